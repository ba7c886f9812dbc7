# SPDX-License-Identifier: GPL-2.0
"""Uses the hostile requester in tests. The tests check how the server reacts to the requester's
messages.
"""

import contextlib
import importlib
import json
import os
import random
import socket
import struct
import time

from . import faults, pattern, wait
from .buffers import Buffer
from .case import Skip, check, equal
from .env import ENV, PORT
from .hostile.message import LAYOUTS, Malformed, Message, decode, numbers, word
from .requester import calls, row, tables

# This module is imported only when a case runs. Only the lab's machines have the RDMA library, but
# the names of the cases are also needed on other machines.
VERBS = "lib.requester.verbs"
BLOCK = 8192
# Number of bytes that the honest mount reads at a time. Our server's memory limits apply to a READ
# of this length, but not to a READ of `BLOCK` bytes. So such a READ is answered in time only if the
# requester does not keep the memory from others.
HONEST = 64 << 10
OURS = "/sys/module/svcrdma_rs"
# Time limits in seconds for an answer and for the end of a connection. They are long enough for a
# busy machine.
ANSWER_SECONDS, END_SECONDS = 10, 20
# Time limit in seconds in which a server with a free thread answers a call over TCP.
TCP_SECONDS = 2
TCP_PORT = 2049
# `MOST_DATA` is the path of a file that contains the maximum number of data bytes of a READ or
# WRITE. `PAGE` is the size of a page in bytes. A whole call may be longer than its data by one
# page.
MOST_DATA, PAGE = "/proc/fs/nfsd/max_block_size", 4096
LAST = 0x80000000  # bit that marks the last fragment of a record
# An endless sequence of random numbers. Each client takes one of these numbers and counts its xids
# up from it, so the xids of two clients differ. If two clients used the same xid, the server might
# confuse a call with an earlier call that it has answered, or that has broken connections. The
# numbers are random, because cases in other processes also take such numbers.
XIDS = iter(lambda: random.SystemRandom().randrange(0x10, 0x70000) << 12, None)


def record(octets):
    """Returns a message as it is sent over TCP."""
    return struct.pack(">I", LAST | len(octets)) + octets


class Client:
    """A connection of the requester. This class also builds the requester's messages."""

    def __init__(self, stage, private=None, port=PORT, **more):
        self.stage, self.xid = stage, next(XIDS)
        self.connection = stage.verbs.Requester(stage.device, ENV.server, port, **more)
        self.private = row.PRIVATE if private is None else private

    def __enter__(self):
        self.announced = self.connection.connect(self.private)
        return self

    def __exit__(self, *_):
        self.connection.close()

    def next(self):
        """Returns the xid for the next call."""
        self.xid += 1
        return self.xid

    def message(self, payload=None, xid=None, **fields):
        """Builds a valid message with a NULL call. The arguments change parts of the message."""
        xid = xid or self.next()
        if payload is None:
            payload = calls.null(xid)
        elif callable(payload):
            payload = payload(xid)
        return Message(xid, 1, payload=payload).but(**fields)

    def memory(self, *args):
        return self.connection.memory(*args)

    def send(self, message):
        """Sends a message or bytes. Returns the number of the work request."""
        octets = message if isinstance(message, bytes) else message.octets()
        return self.connection.send(octets)

    def receive(self, seconds=None):
        """Returns the next answer, or None if no answer arrives. Raises Malformed if the answer
        cannot be decoded."""
        octets = self.connection.receive_one(seconds or ENV.patience(ANSWER_SECONDS))
        if octets is None:
            return None
        # An error message has the version of its call. If LAYOUTS does not contain that version,
        # the message is decoded as version one.
        version, = numbers(octets, 4)
        found = decode(octets if version in LAYOUTS else octets[:4] + word(1) + octets[8:])
        found.vers = version
        return found

    def ping(self, answers=0):
        """Makes a NULL call on this connection. Waits for the answer to this call and for `answers`
        other messages. Returns the other messages."""
        probe, others, answered = self.message(), [], False
        self.send(probe)
        while not answered or len(others) < answers:
            found = self.receive()
            if found is None:
                raise AssertionError("no answer to a right call")
            if found.xid == probe.xid and not answered:
                equal(found.kind, "RDMA_MSG", "kind of the answer to NULL")
                equal(calls.outcome(found.payload), ("null",), "the answer to NULL")
                answered = True
            else:
                others.append(found)
        return others

    def look(self):
        """Reads a few bytes of the requester's file, so that nfsd keeps this connection. nfsd keeps
        at most 64 connections on which no call with a valid file handle has arrived."""
        xid = self.next()
        self.send(self.message(payload=calls.compound(xid, tables.PATH, calls.read(0, 4)), xid=xid))
        found = self.receive()
        check(found is not None, "no answer to a READ")
        equal((found.xid, found.kind), (xid, "RDMA_MSG"), "the answer to a READ")
        equal(calls.outcome(found.payload), ("nfs", 0), "its outcome")

    def wait_ended(self):
        wait.until(self.connection.ended, ENV.patience(END_SECONDS), "the end of the connection")


class Stage:
    """The environment of a test. It consists of a mount of a correct client beside the requester
    (the honest mount), a file for this mount, a file for the requester, and the state of the
    server."""

    def __init__(self, t):
        if not t.server.run("sh", "-c", f"[ ! -d {OURS} ] || echo ours").strip():
            raise Skip("the server's transport is not ours")
        self.t, self.verbs = t, importlib.import_module(VERBS)
        # An earlier case may have restarted the server. A mount repeats calls that the server
        # refuses during its grace period, but this requester does not. So the grace period must be
        # over.
        faults.end_grace(t.server)
        self.honest = t.mount(version="3", options="noac")
        top = t.directory(self.honest, "requester")
        self.original = pattern.data(6, 0, BLOCK)
        t.server.write(f"{top.there}/honest", pattern.data(5, 0, HONEST))
        t.server.write(f"{top.there}/mine", self.original)
        self.mine = f"{top.there}/mine"
        self.fd = os.open(f"{top.here}/honest", os.O_RDONLY | os.O_DIRECT)
        t.defer(self.close)
        self.device = self.verbs.Device(faults.device())
        self.pairs = self.queue_pairs()

    def close(self):
        """Closes the file of the honest mount, unless the clean-up after a failed case has closed
        it."""
        with contextlib.suppress(OSError):
            os.close(self.fd)

    def client(self, **more):
        return Client(self, **more)

    def content(self):
        """Returns the content of the requester's file."""
        return self.t.server.read(self.mine, 0, 2 * BLOCK)

    def refill(self):
        """Restores the content of the requester's file."""
        self.t.server.call("unlink", self.mine)
        self.t.server.write(self.mine, self.original)

    def link(self, path, text):
        """Makes the symbolic link `path`, which points to `text`."""
        self.t.server.run("ln", "-sfn", text, path)

    def grow(self, path, size):
        """Creates a file of this size that contains zeros, or resizes the file if it exists."""
        self.t.server.run("truncate", "-s", str(size), path)

    def longest_call(self):
        """Returns the number of bytes of the longest call that the server accepts."""
        return int(self.t.server.call("text", MOST_DATA)) + PAGE

    def unchanged(self):
        """Raises an error if the content of the requester's file has changed."""
        problem = pattern.difference(self.content(), self.original)
        check(problem is None, problem)

    def queue_pairs(self):
        """Returns the number of queue pairs that the server has for connections."""
        found = json.loads(self.t.server.run("rdma", "-j", "resource", "show", "qp"))
        return len([pair for pair in found if pair["type"] == "RC"])

    def identifiers(self):
        """Returns the number of connection manager ids that the server has."""
        return len(json.loads(self.t.server.run("rdma", "-j", "resource", "show", "cm_id")))

    def wait_gone(self):
        """Waits until the server has no objects of the requester any more."""
        wait.until(lambda: self.queue_pairs() <= self.pairs, ENV.patience(END_SECONDS),
                   "no connection of the requester left in the server")

    # The next methods check that other clients are not disturbed.

    def read(self, length=HONEST):
        """Makes a READ call on the honest mount, and checks the data."""
        found = Buffer(length).read(self.fd, length, 0)
        check(found == pattern.data(5, 0, HONEST)[:length], "content on the honest mount")

    def undisturbed(self, length=HONEST):
        """Checks that the honest mount works on its first connection, and that a server thread is
        free. `length` is the number of bytes that the honest mount reads.
        """
        self.read(length)
        equal(self.honest.connects(), 1, f"connections of the mount on port {PORT}")
        self.tcp()

    @staticmethod
    def tcp():
        """Makes a NULL call over TCP, and returns how many seconds it took."""
        clock = wait.Clock()
        with socket.create_connection((ENV.server, TCP_PORT), ENV.patience(TCP_SECONDS)) as line:
            line.sendall(record(calls.null(next(XIDS))))
            head = line.recv(4, socket.MSG_WAITALL)
            length = struct.unpack(">I", head)[0] & ~LAST
            answer = line.recv(length, socket.MSG_WAITALL)
        equal(calls.outcome(answer), ("null",), "NULL over TCP")
        seconds = clock.seconds()
        check(seconds < ENV.patience(TCP_SECONDS), f"NULL over TCP took {seconds:.1f} s")
        return seconds

    # The next methods run the rows of a table.

    def play(self, one):
        """Violates the protocol on a new connection in the way that a table row describes. Raises
        an error unless the server reacts as the row requires."""
        with self.client(private=one.private) as client:
            sent = one.deed(client)
            for message in sent if isinstance(sent, list) else [sent]:
                if message is not None:
                    client.send(message)
            self.judge(client, one.reaction)
        self.undisturbed()

    def judge(self, client, reaction):
        if reaction.kind == row.ENDED:
            client.wait_ended()
        elif reaction.kind == row.DROPPED:
            equal(client.ping(), [], "answers to what is dropped")
        elif reaction.kind == row.ANY:
            # Waits until all messages are answered or the connection ends. Either result is right.
            with contextlib.suppress(AssertionError, self.verbs.PyverbsRDMAError):
                client.ping()
        else:
            answer, = client.ping(answers=1)
            equal(answer.xid, client.xid - 1, "xid of the answer")
            check(answer.credit > 0, "no credit")
            if reaction.kind == row.REFUSED:
                equal(answer.kind, "RDMA_ERROR", "kind of the answer")
                equal(answer.error[0], reaction.error, "the error")
                if reaction.error == "ERR_VERS":
                    equal(answer.error[1:], reaction.versions, "versions")
            else:
                check(answer.kind in ("RDMA_MSG", "RDMA_NOMSG"), f"answered by {answer}")
                if reaction.check:
                    reaction.check(self, client, answer)

    def play_all(self, table):
        """Runs all rows of a table, and returns all complaints together."""
        complaints = []
        for one in table:
            start = time.monotonic()
            try:
                self.play(one)
                problem = "as it must be"
            except (AssertionError, Malformed, row.NotAccepted,
                    self.verbs.PyverbsRDMAError) as found:
                problem = f"NOT AS IT MUST BE: {type(found).__name__}: {found}"
                complaints.append(f"{one.name}: {problem}")
            self.t.note(f"{one.name}: {problem}, {time.monotonic() - start:.2f} s")
        with contextlib.suppress(wait.Timeout):
            self.wait_gone()
        equal(self.queue_pairs(), self.pairs, "queue pairs of the server")
        check(not complaints, "\n".join(complaints))


__all__ = ["BLOCK", "Client", "Stage"]
