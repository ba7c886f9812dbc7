# SPDX-License-Identifier: GPL-2.0
"""Clients that break the rules of the protocol. The cases check that our server reacts as it must,
and that other clients are not disturbed.
"""

from lib.asking import Stage
from lib.case import case
from lib.requester import tables

CLIENTS = "ours", "intree"


# covers: RSP-024, RSP-025: Our server handles messages of every size, and messages with immediate
# data.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_sizes(t):
    Stage(t).play_all(tables.SIZES)


# covers: Our server refuses versions and message types that it does not support.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_headers(t):
    Stage(t).play_all(tables.VERSIONS + tables.TYPES)


# covers: A client sends unusual credit values, more calls than it has credits for, and many
# messages without pauses between them.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def odd_credits(t):
    Stage(t).play_all(tables.CREDITS)


# covers: A client sends chunk lists that are truncated, too long, or not allowed.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def odd_lists(t):
    Stage(t).play_all(tables.LISTS)


# covers: A client sends unusual Positions, and lengths and addresses at the limits of their ranges.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_positions(t):
    Stage(t).play_all(tables.POSITIONS + tables.NUMBERS)


# covers: The data of a call are shorter than the call says. Our server does not replace the missing
# data with other bytes.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_data(t):
    Stage(t).play_all(tables.DATA)


# covers: A client offers too little memory for replies, or memory that the server may not access.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_room(t):
    Stage(t).play_all(tables.ROOM + tables.KEYS)


# covers: A client sends unusual private data with its connection request.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_announcements(t):
    Stage(t).play_all(tables.ANNOUNCEMENTS)
