# SPDX-License-Identifier: GPL-2.0
"""All the tables."""

from .access import ACCESS, ENDINGS, INVALIDATION, SILENCE
from .chunks import CHUNK_LISTS, PAYLOAD, SEVERAL_SEGMENTS
from .headers import COMPLETIONS, FIXED_HEADER
from .reverse import AGAIN, NO_BACKCHANNEL, REVERSE

GROUPS = (COMPLETIONS, FIXED_HEADER, CHUNK_LISTS, PAYLOAD, SEVERAL_SEGMENTS, ACCESS,
          ENDINGS, SILENCE, INVALIDATION, NO_BACKCHANNEL, REVERSE, [AGAIN])
ROWS = {row.name: row for group in GROUPS for row in group}


def find(name):
    return ROWS[name]
