# SPDX-License-Identifier: GPL-2.0
"""A session of NFSv4.1 (RFC 8881) with a backchannel and delegations, which the server recalls."""

import itertools
import os

from ..hostile import rpc
from ..hostile.message import CALL, REPLY, numbers, word
from . import calls

EXCHANGE_ID, CREATE_SESSION, SEQUENCE, RECLAIM_COMPLETE = 42, 43, 53, 58
DELEGRETURN, OPEN = 8, 18
CB_SEQUENCE, CB_RECALL = 11, 4
PROGRAM = 0x40000000
BACKCHANNEL = 2
# The attributes of a channel of the session, in this order: the padding (none), the maximum size of
# a request, of a reply and of a cached reply, the maximum number of operations in a request, the
# maximum number of requests, and an empty list for RDMA Reads.
CHANNEL = word(0, 4000, 4000, 4000, 16, 1, 0)
READ, WANT_READ_DELEGATION = 1, 0x100
READ_DELEGATION = 1
STATE = 16
NUMBERS = itertools.count(1)


def compound(xid, *operations):
    """Builds a compound of version 4.1."""
    return calls.call(xid, calls.COMPOUND, word(0, 1, len(operations)) + b"".join(operations))


class Session:
    """A session that a client has made on its connection."""

    def __init__(self, client):
        self.client, self.number = client, 0
        owner = f"requester {os.getpid()} {next(NUMBERS)}"
        results = self.ask(word(EXCHANGE_ID) + os.urandom(8) + calls.name(owner) + word(0, 0, 0))
        self.id, sequence = results[8:16], numbers(results, 16)
        results = self.ask(word(CREATE_SESSION) + self.id + word(*sequence, BACKCHANNEL)
                           + 2 * CHANNEL + word(PROGRAM, 1, 0))
        self.session = results[8:8 + rpc.SESSION_ID]
        self.call(word(RECLAIM_COMPLETE, 0))

    def ask(self, *operations):
        """Makes a call that must succeed, and returns the results of its operations."""
        xid = self.client.next()
        self.client.send(self.client.message(payload=compound(xid, *operations), xid=xid))
        found = self.client.receive()
        # The server may send a callback before it answers. Callbacks are skipped here.
        while found and rpc.direction(found.payload) == CALL:
            found = self.client.receive()
        if found is None or found.xid != xid or calls.outcome(found.payload) != ("nfs", 0):
            raise AssertionError(f"answered by {found}")
        # The results begin after the RPC header, the status of the compound, an empty tag and the
        # number of results.
        return found.payload[rpc.results(found.payload) + 12:]

    def call(self, *operations):
        """Makes a call in the session."""
        self.number += 1
        return self.ask(word(SEQUENCE) + self.session + word(self.number, 0, 0, 0), *operations)

    def delegation(self, path, name):
        """Opens a file for reading, and returns the stateid of the delegation."""
        steps = calls.choose(path)
        results = self.call(*steps, word(OPEN, 0, READ | WANT_READ_DELEGATION, 0) + self.id
                            + calls.name("owner") + word(0, 0) + calls.name(name))
        # The results are, in this order: the result of SEQUENCE, the operation number and the
        # status of each operation in `steps`, and the result of OPEN. The result of OPEN contains
        # the stateid, the change of the directory, flags, and the attributes that were set.
        at = 8 + rpc.SEQUENCE_RESULT + 8 * len(steps) + 8 + STATE + 20 + 4
        at += 4 + 4 * numbers(results, at)[0]
        kind, = numbers(results, at)
        if kind != READ_DELEGATION:
            raise AssertionError(f"a delegation of kind {kind}")
        return results[at + 4:at + 4 + STATE]

    def give_back(self, path, delegation):
        """Makes the client return the delegation of a file to the server."""
        self.call(*calls.choose(path), word(DELEGRETURN) + delegation)


class Callback:
    """A recall that the server has sent, and the answers to this recall."""

    def __init__(self, message):
        self.message = message
        self.xid, _, _, program, _, procedure = numbers(message.payload, 0, 6)
        if (program, procedure) != (PROGRAM, 1):
            raise AssertionError(f"a callback to {program:#x}, {procedure}")
        _, _, at = rpc.opaque(message.payload, rpc.CREDENTIALS)
        _, _, at = rpc.opaque(message.payload, at + 4)
        _, _, at = rpc.opaque(message.payload, at)
        operation, = numbers(message.payload, at + 12)
        if operation != CB_SEQUENCE:
            raise AssertionError(f"a callback of operation {operation}")
        at += 16
        self.session = message.payload[at:at + rpc.SESSION_ID]
        self.numbers = numbers(message.payload, at + rpc.SESSION_ID, 3)

    def reply(self, xid=None):
        """Returns the correct reply as an RPC message."""
        sequence, slot, highest = self.numbers
        return (word(self.xid if xid is None else xid, REPLY, 0, 0, 0, 0) + word(0, 0, 2)
                + word(CB_SEQUENCE, 0) + self.session + word(sequence, slot, highest, highest)
                + word(CB_RECALL, 0))
