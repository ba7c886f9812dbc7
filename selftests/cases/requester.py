# SPDX-License-Identifier: GPL-2.0
"""Clients that break the rules: our server reacts as it must, and other clients are not disturbed.
"""

from lib.asking import Stage
from lib.case import case
from lib.requester import tables

CLIENTS = "ours", "intree"


# covers: RSP-024, RSP-025: the server: messages of every size, and with immediate data.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_sizes(t):
    Stage(t).play_all(tables.SIZES)


# covers: the server: versions and kinds of messages that it does not speak.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_headers(t):
    Stage(t).play_all(tables.VERSIONS + tables.TYPES)


# covers: the server: credit words, more calls than were granted, many messages at once.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def odd_credits(t):
    Stage(t).play_all(tables.CREDITS)


# covers: the server: chunk lists that end early, are too long or do not belong there.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def odd_lists(t):
    Stage(t).play_all(tables.LISTS)


# covers: the server: Positions, and lengths and addresses at the ends of their range.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_positions(t):
    Stage(t).play_all(tables.POSITIONS + tables.NUMBERS)


# covers: the server: data that are shorter than the call says are not made up of other bytes.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_data(t):
    Stage(t).play_all(tables.DATA)


# covers: the server: replies that find little room, and memory that the server may not touch.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_room(t):
    Stage(t).play_all(tables.ROOM + tables.KEYS)


# covers: the server: what a client announces with its connection request.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_announcements(t):
    Stage(t).play_all(tables.ANNOUNCEMENTS)
