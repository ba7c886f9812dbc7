# SPDX-License-Identifier: GPL-2.0
"""The program of the responder: receives calls over RDMA, forwards them to knfsd over TCP, and
answers as requested.

Requests of the test are lines of JSON on standard input. Each request is answered by a line of JSON
on standard output. The helper in the server machine uses the same format. One loop handles all
connections and requests.
"""

import functools
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from . import rpc, tables
from .message import (
    CALL,
    GRANT,
    LAYOUTS,
    REPLY,
    Malformed,
    Message,
    decode,
    filled,
    numbers,
    padded,
    version,
)
from .verbs import BUFFER, OK, Connection, Device, Listener, PyverbsRDMAError

KNFSD = "127.0.0.1", 2049
LAST = 0x80000000  # bit that marks the last fragment of a record
LIST_CONNECTIONS = "rdma", "-j", "resource", "show", "cm_id"
MAGIC = b"\xf6\xab\x0e\x18"
# Private data of the responder: version 1, no remote invalidation, messages of 4096 bytes in both
# directions.
PRIVATE = MAGIC + bytes((1, 0, 3, 3))
# `INLINE` is the maximum size in bytes of a message if the private data announce no size.
# `INLINE_FLOOR` contains, for each version, the size that every receiver must accept.
INLINE, INLINE_FLOOR = 1024, {1: 1024, 2: 4096}
# Numbers of RPC-over-RDMA procedures. `MESSAGES` contains the procedures that carry an RPC message.
# `ERROR` is the procedure of errors, and `OPTIONAL` is the procedure of options.
MESSAGES, ERROR, OPTIONAL = (0, 1), 4, 5
SHOWN = 160  # number of bytes of a message that the log shows


class Exchange:
    """A call and its answer."""

    def __init__(self, client, call):
        self.client, self.call, self.turn = client, call, 0
        self.rpc = self.gather()
        self.reply = b""

    def gather(self):
        """Returns the RPC message, whose parts may be in Read chunks."""
        chunks = {}
        for position, segment in self.call.reads:
            status, data = self.client.read(segment.handle, segment.offset, segment.length)
            if status != OK:
                raise ConnectionError(f"RDMA Read: {status}")
            chunks[position] = chunks.get(position, b"") + data
        message = chunks.pop(0, b"") if self.call.kind == "RDMA_NOMSG" else self.call.payload
        for position in sorted(chunks):
            message = message[:position] + padded(chunks[position]) + message[position:]
        return message

    def answer(self, long=False):
        """Returns two things: the correct answer as a Message, and a list of pairs (Segment, data).
        The data of each pair must be written to its Segment before the answer is sent.

        With `long`, the RPC message is put into the Reply chunk even if it would fit inline.
        """
        message = Message(self.call.xid, self.call.wire, credit=self.client.proxy.grant,
                          payload=self.reply)
        placed = []
        if self.call.writes:
            offered = self.call.writes[0]
            item = rpc.item(self.rpc, self.reply)
            start, length = item or (0, 0)
            end = start + (length + 3) // 4 * 4
            message.payload = self.reply[:start] + self.reply[end:]
            back = filled(offered, length)
            placed += pieces(back, self.reply[start:start + length])
            message.writes = [back] + [filled(chunk, 0) for chunk in self.call.writes[1:]]
        if self.call.reply is not None:
            message.reply = filled(self.call.reply, 0)
            if long or len(message.octets()) > self.client.inline[self.call.wire]:
                message.reply = filled(self.call.reply, len(message.payload))
                placed += pieces(message.reply, message.payload)
                message = message.but(kind="RDMA_NOMSG", payload=b"")
        return message, placed

    def place(self, placed, immediate=False):
        """Makes the RDMA Writes that belong to an answer."""
        write = self.client.write_with_immediate if immediate else self.client.write
        for segment, data in placed:
            status = write(segment.handle, segment.offset, data)
            if immediate:
                self.note(f"wrote {len(data)} octets with immediate data")
            if status != OK:
                raise ConnectionError(f"RDMA Write: {status}")

    def send(self, message, **more):
        """Sends a Message or bytes, and logs it."""
        message = self.goes_with(message)
        octets = message if isinstance(message, bytes) else message.octets()
        how = "".join(f", {word} {value:#x}" for word, value in more.items() if value is not None)
        self.note(f"sent {len(octets)} octets{how} {octets[:SHOWN].hex()}")
        self.expect(message)
        self.client.send(octets, **more)

    def goes_with(self, message):
        """Sets the version of a message to the version of this call, unless the message has a
        version already. Returns the message."""
        if isinstance(message, Message) and message.wire is None:
            return message.but(wire=self.call.wire)
        return message

    def expect(self, message):
        """If the message is a call that this proxy itself sends to the client, records its xid. The
        client's answer to this call is then not forwarded to knfsd."""
        if isinstance(message, Message) and rpc.direction(message.payload) == CALL:
            self.client.own.add(message.xid)

    def send_many(self, message, count):
        """Sends the same message many times."""
        message = self.goes_with(message)
        octets = message if isinstance(message, bytes) else message.octets()
        self.note(f"sent {count} times {octets[:SHOWN].hex()}")
        self.expect(message)
        self.client.send_many(octets, count)

    def keep(self):
        """Keeps this call without answering it, so that a later misbehaviour can use the call."""
        self.client.proxy.kept.append(self)

    def kept(self):
        return self.client.proxy.kept[-1]

    def note(self, text):
        self.client.proxy.note(text)

    def drop(self):
        """Ends the connection instead of answering."""
        raise ConnectionError("ended here")

    def honest(self):
        """Answers correctly."""
        message, placed = self.answer()
        self.place(placed)
        invalidate = None
        if self.client.invalidates and self.call.segments():
            invalidate = self.call.segments()[0].handle
        self.client.granted = True
        octets = message.octets()
        self.client.proxy.largest = max(self.client.proxy.largest, len(octets))
        self.client.send(octets, invalidate)


def pieces(chunk, data):
    """Returns pairs of a segment and the data to write into it."""
    found = []
    for segment in chunk:
        if segment.length:
            found.append((segment, data[:segment.length]))
            data = data[segment.length:]
    return found


def private(octets):
    """Returns the version, the flags and the sizes in private data, or None if there are none."""
    at = octets.find(MAGIC)
    return octets[at + 4:at + 8] if 0 <= at <= len(octets) - 8 else None


def announced_size(found, index):
    """Returns a size in bytes from private data, or the default size if there are no private data.
    """
    return (found[index] + 1) * 1024 if found else INLINE


class Client(Connection):
    """A client's RDMA connection, and the TCP connection on which its calls are forwarded to
    knfsd."""

    def __init__(self, proxy, cm_id, tcp, announced, own, receive=BUFFER):
        super().__init__(proxy.device, cm_id, receive)
        self.proxy, self.short_lived, self.seen, self.calls = proxy, False, 0, 0
        theirs, ours = private(announced), private(own)
        takes, sends = announced_size(theirs, 3), announced_size(ours, 2)
        self.inline = {wire: max(takes, floor) for wire, floor in INLINE_FLOOR.items()}
        # In version two this responder sends no message that is longer than the maximum that it has
        # announced, even if the client accepts longer messages.
        self.inline[2] = min(self.inline[2], max(sends, INLINE_FLOOR[2]))
        # `wire` is the version of the client's last call. `granted` says whether an answer has
        # already granted credits to the client.
        self.wire, self.granted = 1, False
        # Remote invalidation is used only if the private data of both ends announce support of it.
        self.invalidates = bool(theirs and ours and theirs[1] & ours[1] & 1)
        self.tcp = tcp
        # `waiting` contains the calls that knfsd has not answered. `own` contains the xids of this
        # program's own calls to the client.
        self.stream, self.waiting, self.own = b"", {}, set()

    def take(self):
        """Handles messages that arrived from the client."""
        self.drain()
        while self.received:
            self.message(self.received.popleft())

    def message(self, octets):
        """Handles a message of the client as the protocol requires of a responder."""
        if not self.seen:
            self.proxy.note(f"first {octets[:SHOWN].hex()}")
        self.seen += 1
        low, high, _ = self.proxy.speaks
        if not low <= (version(octets) or 0) <= high:
            self.refuse(octets, "ERR_VERS")
            return
        try:
            message = decode(octets)
        except Malformed:
            self.proxy.note(f"malformed {octets[:SHOWN].hex()}")
            if self.is_call(octets):
                self.refuse(octets, "ERR_CHUNK")
            return
        if message.kind == "RDMA_ERROR":
            self.proxy.note(f"refused {message.error[0]} {octets.hex()}")
        elif message.kind == "RDMA_OPTIONAL":
            # No option is defined, so the client must not send an option.
            self.proxy.note(f"wrong: an option: {octets.hex()}")
            if message.direction == CALL:
                self.refuse(octets, "ERR_OPTION")
        elif message.kind == "RDMA_MSG" and rpc.direction(message.payload) == REPLY:
            self.check_direction(message, message.payload)
            if message.wire != self.wire:
                self.proxy.note(f"wrong: version {message.wire} answers version {self.wire}")
            if message.xid in self.own:
                self.proxy.note(f"answered {octets.hex()}")
            else:
                self.forward(message.payload)
        else:
            self.call(message, octets)

    def call(self, message, octets):
        """Handles a call."""
        exchange = Exchange(self, message)
        self.check_direction(message, exchange.rpc)
        if rpc.direction(exchange.rpc) != CALL:
            self.refuse(octets, "ERR_CHUNK")
            return
        self.calls += 1
        self.wire = message.wire
        if not self.granted and self.waiting:
            self.proxy.note("wrong: a second call before any credits are known")
        if self.calls == 1 and message.wire > 1 and len(octets) > INLINE:
            self.proxy.note(f"wrong: the first message has {len(octets)} bytes")
        if not self.proxy.misbehave("call", exchange):
            self.waiting[message.xid] = exchange
            self.forward(exchange.rpc)

    def check_direction(self, message, octets):
        """Logs an error if the direction in the header of version two differs from the direction of
        the RPC message."""
        if message.wire > 1 and message.direction != rpc.direction(octets):
            self.proxy.note(f"wrong: {message} has another direction")

    @staticmethod
    def is_call(octets):
        """Returns whether a message that cannot be decoded is a call, and so must be answered."""
        kind, direction = (*numbers(octets, 12, 2), None, None)[:2]
        if version(octets) == 1:
            return kind in MESSAGES
        return kind in (*MESSAGES, OPTIONAL) and direction == CALL

    def refuse(self, octets, error):
        """Answers with an error, unless the message is an error itself."""
        low, high, wire = self.proxy.speaks
        words = numbers(octets, 0, 4)
        if len(words) < 4 or words[3] == ERROR:
            return
        if error != "ERR_VERS":
            wire = version(octets)
        answer = Message(words[0], wire, kind="RDMA_ERROR", error=(error, low, high))
        self.proxy.note(f"sent {error} {answer.octets().hex()}")
        self.send(answer.octets())

    def forward(self, message):
        self.tcp.sendall(struct.pack(">I", LAST | len(message)) + message)

    def records(self):
        """Handles data that arrived from knfsd."""
        data = self.tcp.recv(1 << 20)
        if not data:
            raise ConnectionError("knfsd closed")
        self.stream += data
        while len(self.stream) >= 4:
            header, = struct.unpack_from(">I", self.stream)
            end = 4 + (header & ~LAST)
            if not header & LAST:
                raise ConnectionError("a record of several fragments")
            if len(self.stream) < end:
                return
            record, self.stream = self.stream[4:end], self.stream[end:]
            self.record(record)

    def record(self, record):
        xid, = struct.unpack_from(">I", record)
        if rpc.direction(record) == CALL:
            self.send(Message(xid, self.wire, direction=CALL, payload=record).octets())
            return
        exchange = self.waiting.pop(xid, None)
        if exchange is None:
            self.proxy.note(f"a second answer to {xid:#x}")
            return
        exchange.reply = record
        if not self.proxy.misbehave("reply", exchange):
            exchange.honest()

    def close(self):
        self.tcp.close()
        super().close()


class Proxy:
    """The responder: it handles all clients, and executes the commands of the test."""

    def __init__(self, device, address, port):
        self.device, self.listener = Device(device), Listener(address, port)
        self.clients, self.log = [], []
        self.row: Any = None
        self.exchange: Any = None
        self.left, self.kept = 0, []
        self.plans = []  # plans for the next connection requests, in the order of the requests
        self.largest = 0  # size of the largest right answer in bytes
        self.grant = GRANT
        # The lowest and the highest supported version, and the version of the error messages that
        # report these two versions.
        self.speaks = min(LAYOUTS), max(LAYOUTS), 1
        self.commands = b""

    def note(self, text):
        self.log.append(text)

    # The next methods implement the loop that handles all connections and requests.

    def run(self):
        print("ready", flush=True)
        while True:
            for client in list(self.clients):
                # Messages may have arrived while the loop waited for the end of an operation. They
                # are handled now.
                if client.received or client.broken:
                    self.serve(client, client.take)
            sources: dict[int, Callable[[], None]] = {
                sys.stdin.fileno(): self.command, self.listener.fd: self.connection}
            for client in self.clients:
                sources[client.fd] = functools.partial(self.serve, client, client.take)
                sources[client.tcp.fileno()] = functools.partial(self.serve, client,
                                                                 client.records)
            for fd in select.select(list(sources), [], [])[0]:
                sources[fd]()

    def serve(self, client, work):
        """Calls `work` for a client. An error ends only this client's connection."""
        if client not in self.clients:
            return
        if client.short_lived:
            # This connection must end as soon as it is established. An event reports this, but the
            # client's first call can arrive before the event. So the connection ends when the event
            # or the call arrives, whichever comes first.
            self.drop(client)
            return
        try:
            work()
        except (ConnectionError, PyverbsRDMAError) as error:
            self.note(f"connection: {error}")
            self.drop(client)
            return
        if client.broken:
            self.note(f"connection: {client.broken}")
            self.drop(client)

    def drop(self, client):
        self.note(f"ended after {client.calls} calls")
        client.disconnect()
        self.clients.remove(client)
        client.close()

    def connection(self):
        """Handles an event of the connection manager."""
        name, announced, cm_id = self.listener.event()
        if cm_id:
            try:
                self.request(cm_id, announced, self.plans.pop(0) if self.plans else {})
            except PyverbsRDMAError as error:
                # The client gave up before its connection request was accepted.
                self.note(f"not accepted: {error}")
        elif name == "established" and self.clients and self.clients[-1].short_lived:
            self.drop(self.clients[-1])
        elif name == "disconnected" and self.clients:
            self.drop(self.disconnected())

    def disconnected(self):
        """Returns the client whose connection has ended. The event does not tell which connection
        has ended."""
        if len(self.clients) == 1:
            return self.clients[0]
        listed = subprocess.run(LIST_CONNECTIONS, stdout=subprocess.PIPE, check=True).stdout
        ended = {entry.get("lqpn") for entry in json.loads(listed)
                 if entry.get("state") == "DISCONNECT"}
        # On iWARP the states in the list do not show which connection has ended. But on iWARP the
        # connections end in the order in which they began, so the oldest client is returned.
        return next((client for client in self.clients if client.qp.qp_num in ended),
                    self.clients[0])

    def request(self, cm_id, announced, plan):
        """Handles a connection request in the way that the dictionary `plan` describes."""
        try:
            if plan.get("reject"):
                raise ConnectionError("as planned")
            tcp = socket.create_connection(KNFSD)
        except OSError as error:
            cm_id.reject()
            cm_id.close()
            self.note(f"rejected: {error}")
            return
        time.sleep(plan.get("late", 0))
        own = bytes.fromhex(plan.get("private", PRIVATE.hex()))
        client = Client(self, cm_id, tcp, announced, own, plan.get("receive", BUFFER))
        client.short_lived = plan.get("drop", False)
        client.accept(own, plan.get("reads", 16))
        self.clients.append(client)
        self.note(f"accepted {plan}")

    def misbehave(self, stage, exchange):
        """Applies the misbehaviour of the current table row to a call if the row is for that call.
        Returns whether the misbehaviour was applied."""
        if not self.left or self.row.stage != stage or not self.row.matches(exchange):
            return False
        exchange.turn = self.row.times - self.left
        self.left -= 1
        self.exchange = exchange
        self.row.deed(exchange)
        return True

    # The next methods are commands, which the test sends.

    def command(self):
        data = os.read(sys.stdin.fileno(), 1 << 16)
        if not data:
            sys.exit()
        self.commands += data
        while b"\n" in self.commands:
            line, self.commands = self.commands.split(b"\n", 1)
            number, name, args = json.loads(line)
            try:
                answer = {"id": number, "value": getattr(self, f"do_{name}")(*args)}
            except Exception as error:  # noqa: BLE001  # the caller raises it again
                answer = {"id": number, "error": f"{type(error).__name__}: {error}",
                          "errno": None}
            print(json.dumps(answer), flush=True)

    def do_arm(self, name):
        """Selects the table row with this name. From now on, the responder applies the row's
        misbehaviour to as many calls as the row says."""
        self.row, self.log = tables.find(name), []
        self.left = self.row.times

    def do_speak(self, low, high, wire=1):
        """From now on, supports only the versions from `low` to `high`. Error messages about other
        versions use the layout of version `wire`."""
        self.speaks, self.log = (low, high, wire), []

    def do_log(self):
        """Returns the number of further calls to which the current table row applies, and the
        log."""
        return [self.left, self.log]

    def do_plan(self, plans):
        """Sets what happens to the next connection requests; each plan is a dictionary."""
        self.plans, self.log = plans, []

    def do_segments(self):
        """Returns the segments of memory that the last unanswered call (`kept`) offers."""
        return self.kept[-1].call.segments()

    def do_largest(self):
        """Returns the size of the largest correct answer in bytes."""
        return self.largest

    def do_calls(self):
        """Returns how many calls have arrived on the newest connection."""
        return self.clients[-1].calls

    def do_touch(self, handle, address):
        """Writes to the client's memory at a handle and an address, on the newest connection.
        Returns the status."""
        return self.clients[-1].write(handle, address, b"evil")

    def do_again(self):
        """Reads the memory of the last unanswered call again, and compares it with the bytes that
        were read before. Returns the result as text."""
        exchange = self.kept[-1]
        try:
            return "the same" if exchange.gather() == exchange.rpc else "something else"
        except ConnectionError as refused:
            return str(refused)

    def do_grant(self, count):
        """Grants this number of credits with each correct answer."""
        self.grant = count

    def do_ping(self):
        """Makes an RDMA Write of zero bytes to each client. If a client no longer exists, its
        connection then ends."""
        for client in self.clients:
            self.serve(client, client.ping)

    def do_cut(self):
        """Ends the newest connection."""
        self.drop(self.clients[-1])

    def do_release(self):
        """Answers the last unanswered call, and removes it from the unanswered calls."""
        exchange = self.kept.pop()
        self.serve(exchange.client, exchange.honest)

    def do_probe(self):
        """Accesses the memory of the last call to which a table row was applied. Returns the status
        of the access."""
        segment = next((s for s in self.exchange.call.segments() if s.length), None)
        if segment is None:
            return ""
        client = self.clients[-1]
        if self.exchange.call.reads:
            status, _ = client.read(segment.handle, segment.offset, 4)
        else:
            status = client.write(segment.handle, segment.offset, b"evil")
        return status


if __name__ == "__main__":
    Proxy(sys.argv[1], sys.argv[2], int(sys.argv[3])).run()
