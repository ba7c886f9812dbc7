# SPDX-License-Identifier: GPL-2.0
"""The form of a row of the tables: what a requester does, and how the server must react."""

import dataclasses
from collections.abc import Callable

# Private data of the requester: version 1, no remote invalidation, messages of 4096 bytes in both
# directions.
PRIVATE = b"\xf6\xab\x0e\x18" + bytes((1, 0, 3, 3))
# The types of access that a peer may have to memory.
READ, WRITE = "read", "write"
DROPPED, REFUSED, ENDED, SERVED, ANY = "dropped", "refused", "ended", "served", "any"


class NotAccepted(Exception):
    """Raised if the server does not accept the connection."""


@dataclasses.dataclass(frozen=True)
class Reaction:
    """How the server must react to a misbehaviour of a client."""

    kind: str
    error: str = ""                # error with which the server refuses a message
    versions: tuple = (1, 1)       # lowest and highest version in an error about the version
    # Function that raises an error if an answer is wrong. Its arguments are the environment of the
    # test, the client and the answer.
    check: Callable | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """One misbehaviour of the requester."""

    name: str
    deed: Callable   # function of a `Client` that returns messages to send
    reaction: Reaction
    # The private data of the connection request; None means the usual data.
    private: bytes | None = None


dropped = Reaction(DROPPED)
ended = Reaction(ENDED)
# The reaction is either that the connection ends or that the calls are served. In both cases other
# clients are not disturbed.
anything = Reaction(ANY)
wrong_version = Reaction(REFUSED, "ERR_VERS")
refused = Reaction(REFUSED, "ERR_CHUNK")


def served(check=None):
    """Returns the reaction of a server that answers the call with an RPC reply. `check` judges the
    reply."""
    return Reaction(SERVED, check=check)
