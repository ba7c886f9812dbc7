# SPDX-License-Identifier: GPL-2.0
"""The list of all tables of misbehaviours."""

from .access import ACCESS, ENDINGS, INVALIDATION, PROOFS, SILENCE
from .chunks import CHUNK_LISTS, PAYLOAD, SEVERAL_SEGMENTS
from .headers import COMPLETIONS, FIXED_HEADER
from .reverse import AGAIN, NO_BACKCHANNEL, REVERSE
from .version_two import CALLS_HELD, NEGOTIATION, NOTHING_IN_COMMON, REVERSE_TWO, VERSION_TWO

GROUPS = (COMPLETIONS, FIXED_HEADER, CHUNK_LISTS, PAYLOAD, SEVERAL_SEGMENTS, ACCESS,
          ENDINGS, SILENCE, INVALIDATION, PROOFS, NO_BACKCHANNEL, REVERSE, [AGAIN],
          VERSION_TWO, REVERSE_TWO, NEGOTIATION, CALLS_HELD, NOTHING_IN_COMMON)
ROWS = {row.name: row for group in GROUPS for row in group}


def find(name):
    return ROWS[name]
