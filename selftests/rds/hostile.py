# SPDX-License-Identifier: GPL-2.0
"""A peer that breaks the rules of RDS. It is a program in user space that connects to RDS in the
other machine by verbs.

Each row of the table sends frames on a separate connection. The row states whether that connection
must end, and how many messages must reach the program in the other machine. At the same time two
honest programs exchange messages over a connection that must not end.
"""

import contextlib
import dataclasses
import json
import pathlib
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lib.requester.row import NotAccepted
from lib.requester.verbs import RECEIVES, Device, PyverbsRDMAError, Requester

PORT, TRANS_IB = 18634, 0
# The RDS type of service of the first connection. Each further connection uses the next number.
FIRST_TOS = 100
HEADER = struct.Struct("!QQIHHBB4xH16s")
HELLO = struct.Struct("!4s4sBBHB3xQI4x")
FRAGMENT, MIB = 4096, 1 << 20
MAP_BYTES = 8192
MAP, ACK_REQUIRED, RETRANSMITTED = 1, 2, 4
MOST = (1 << 64) - 1
SECONDS = 20
# Maximum number of answers to pings that a peer may leave unacknowledged.
PINGS = 1024
OWN_PORT = 7


def words(data):
    """Returns the sum of the 16-bit words, which is needed for the checksum."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def frame(payload=b"", checksum=None, **fields):
    """Returns a frame whose header has these fields, with a correct checksum unless one is given.
    """
    values = {"sequence": 1, "ack": 0, "len": len(payload), "sport": OWN_PORT, "dport": 0,
              "flags": 0, "credit": 0} | fields
    extensions = values.pop("extensions", b"").ljust(16, b"\0")
    head = HEADER.pack(*values.values(), 0, extensions)
    if checksum is None:
        checksum = 0xffff & ~words(head)
    return HEADER.pack(*values.values(), checksum, extensions) + payload


class Peer(Requester):
    """One connection of the hostile peer."""

    buffer_bytes = HEADER.size + FRAGMENT

    def hello(self, own, peer, tos, **changes):
        """Connects with private data that are correct except for these changes."""
        values = {"from": own, "to": peer, "major": 3, "minor": 1, "minors": 3, "tos": tos,
                  "ack": 0, "credit": 0} | changes
        length = values.pop("length", HELLO.size)
        addresses = [socket.inet_aton(values.pop(end)) for end in ("from", "to")]
        self.connect(HELLO.pack(*addresses, *values.values())[:length], reads=1)

    def ended(self):
        """Returns whether the other end has ended or rejected the connection. The other end rejects
        the connection if a bad frame arrives before the message that establishes the connection."""
        return super().ended() or "rejected" in self.events

    def has_ended(self):
        """Waits until the other end ends the connection. Returns whether this happened in time."""
        deadline = time.monotonic() + SECONDS
        while not self.ended() and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.ended()

    def answers(self, wanted=1, seconds=SECONDS):
        """Receives frames for `seconds`. Returns how many of them answer a ping. Stops when
        `wanted` answers have arrived."""
        found, deadline = 0, time.monotonic() + seconds
        while found < wanted and (left := deadline - time.monotonic()) > 0:
            message = self.receive_one(left)
            if message is None:
                break
            _, _, length, sport, dport, *_ = HEADER.unpack(message[:HEADER.size])
            found += (length, sport, dport) == (0, 0, OWN_PORT)
        return found


@dataclasses.dataclass
class Row:
    """A row of the table. The function `frames` returns the frames that are sent to the port of a
    program. The function `does` is called after the frames were sent."""

    name: str
    frames: object = lambda port: []
    does: object = None
    ends: bool = True
    delivered: int = 0
    hello: dict | None = None


def message(payload=b"message", **fields):
    """Returns a function that builds the frames of a message with these header fields changed."""
    return lambda port: [frame(payload, dport=port, **fields)]


def ends(name, frames=lambda port: [], **more):
    return Row(name, frames, **more)


def lives(name, frames=lambda port: [], delivered=1, **more):
    return Row(name, frames, ends=False, delivered=delivered, **more)


def second(**changes):
    """Returns a function that builds the frames of the first two fragments of a message. The second
    fragment has changed header fields."""
    full = bytes(FRAGMENT)
    body = changes.pop("body", full)
    fields = {"len": 3 * FRAGMENT, "sequence": 5}
    return lambda port: [frame(full, dport=port, **fields),
                         frame(body, **({"dport": port} | fields | changes))]


def map_of(size):
    """Returns a function that builds the frames of a congestion map of `size` zero bytes."""
    parts = [bytes(min(FRAGMENT, size - at)) for at in range(0, max(size, 1), FRAGMENT)]
    return lambda port: [frame(part, sport=0, flags=MAP, len=size, sequence=0) for part in parts]


def refused(name, **hello):
    return Row(f"private data: {name}", hello=hello)


def write(peer):
    """Makes an RDMA Write into memory that was not offered."""
    peer.write(0x1234, 0x1000, b"not yours")


def read(peer):
    peer.read(0x1234, 0x1000, 64)


def leave(peer):
    peer.disconnect()


ROWS = (
    lives("a message", message()),
    ends("no bytes", lambda _: [b""]),
    ends("a byte", lambda _: [b"\1"]),
    ends("a header without its last byte", lambda port: [frame(dport=port)[:-1]]),
    ends("a wrong checksum", message(checksum=0x1234)),
    lives("no checksum", message(checksum=0)),
    ends("the longest length there is", message(bytes(FRAGMENT), len=(1 << 32) - 1)),
    ends("a byte too long", message(bytes(FRAGMENT), len=MIB + 1)),
    ends("more than is received into", lambda port: [frame(bytes(FRAGMENT + 1), dport=port)]),
    ends("a short fragment", message(bytes(100), len=2 * FRAGMENT)),
    ends("a long fragment", message(bytes(20), len=10)),
    ends("bytes behind an empty message", message(bytes(5), len=0)),
    ends("a short last fragment", second(len=2 * FRAGMENT, body=bytes(FRAGMENT - 1))),
    ends("another sequence number amid a message", second(sequence=6)),
    ends("another length amid a message", second(len=4 * FRAGMENT)),
    ends("another receiver amid a message", second(dport=1)),
    ends("another sender amid a message", second(sport=1)),
    ends("other flags amid a message", second(flags=ACK_REQUIRED)),
    ends("a map amid a message", second(flags=MAP, sport=0, dport=0, len=MAP_BYTES)),
    ends("half a message, and good-bye", second(), does=leave),
    lives("a congestion map", map_of(MAP_BYTES), delivered=0),
    *(ends(f"a congestion map of {size} bytes", map_of(size))
      for size in (1, MAP_BYTES - 1, MAP_BYTES + 1, 9 << 10)),
    ends("an acknowledgement with a payload",
         lambda _: [frame(b"payload!", sport=0, len=0, sequence=0)]),
    lives("an acknowledgement of all there is",
          lambda _: [frame(sport=0, sequence=0, ack=MOST)], delivered=0),
    lives("a message that acknowledges all there is", message(ack=MOST)),
    lives("acknowledgements that go back",
          lambda _: [frame(sport=0, sequence=0, ack=ack) for ack in (MOST, 3, 0)], delivered=0),
    lives("many acknowledgements", lambda _: [frame(sport=0, sequence=0)] * 300, delivered=0),
    lives("the largest sequence number", message(sequence=MOST, flags=ACK_REQUIRED)),
    lives("sequence number zero", message(sequence=0, flags=ACK_REQUIRED)),
    lives("credits that were not asked for", lambda port: [
        frame(b"x", dport=port, sequence=number, credit=255) for number in range(1, 21)],
        delivered=20),
    lives("flags without a meaning", message(flags=0xd8)),
    lives("a map's flag, and another", message(flags=MAP | ACK_REQUIRED)),
    lives("an answer to no ping", lambda port: [frame(sport=0, dport=port)]),
    lives("a port of no program", lambda _: [frame(b"x", dport=1)], delivered=0),
    *(lives(f"an extension of type {kind}", message(extensions=bytes((kind,)) + b"\xff" * 15))
      for kind in (7, 15, 255)),
    lives("extensions without an end", message(extensions=b"\6\0\0\0\1" * 3 + b"\3")),
    lives("a region that was never offered was used",
          message(extensions=struct.pack("!BI", 2, 0x1234))),
    lives("the same twice", lambda port: [
        frame(b"x", dport=port, sequence=number, extensions=struct.pack("!BI", 2, 0x1234))
        for number in (1, 2)], delivered=2),
    lives("a handle of nothing", message(extensions=struct.pack("!BII", 3, MOST & 0xffffffff, 1))),
    lives("bytes in no direction", message(flags=0x20, extensions=struct.pack(
        "!BIBBIB3x", 2, 1, 4, 1, 0xffffffff, 9)[:16])),
    ends("a Send with immediate data",
         does=lambda peer: peer.send(frame(b"x"), immediate=7)),
    ends("an RDMA Write with immediate data",
         does=lambda peer: peer.post_write_with_immediate()),
    lives("an RDMA Write of no bytes", does=lambda peer: peer.ping(), delivered=0),
    ends("an RDMA Write into what was not offered", does=write),
    ends("an RDMA Read of what was not offered", does=read),
    ends("an atomic operation", does=lambda peer: peer.atomic(0x1234, 0x1000)),
    refused("of another host", **{"from": "192.0.2.77"}),
    refused("for another host", to="192.0.2.77"),
    refused("no version", major=0),
    refused("version 2", major=2),
    refused("version 9", major=9),
    refused("no common minor version", minors=1),
    refused("no byte", length=0),
    refused("8 bytes", length=8),
)


class Judge:
    """Runs the rows of the table, and checks both machines after each row."""

    def __init__(self, t):
        self.t, self.device = t, Device(devices()[0])
        t.pair(warm=True)
        self.port = t.b.open("victim", t.b_addr)[1]
        self.own = {qp for qp, owner in queue_pairs() if owner}

    def peer(self, tos, hello, **more):
        """Returns a connection, or None if the other end refuses it."""
        peer = Peer(self.device, self.t.b_addr, PORT, **more)
        try:
            peer.hello(self.t.a_addr, self.t.b_addr, tos, **(hello or {}))
        except NotAccepted:
            peer.close()
            return None
        return peer

    def row(self, tos, row):
        """Sends the frames of one table row on a new connection, and checks the effects. Returns a
        list of the problems."""
        peer = self.peer(tos, row.hello)
        if row.hello is not None or peer is None:
            if peer:
                peer.close()
            return [] if row.hello is not None and not peer else [
                f"the connection is {'accepted' if peer else 'refused'}"]
        with contextlib.closing(peer):
            # The connection may end while frames are sent.
            with contextlib.suppress(PyverbsRDMAError):
                for octets in row.frames(self.port):
                    peer.send(octets)
                    peer.drain()
                if row.does:
                    row.does(peer)
            found = self.became(peer, row)
        got = 0
        while got < row.delivered and self.t.b.recv("victim", SECONDS):
            got += 1
        # If one of the frames ends the connection, no message of a later frame may be delivered.
        late = self.t.b.drain("victim", 0.05) if row.ends else []
        if got != row.delivered or late:
            found.append(f"{got} of {row.delivered} messages arrive, and {late}")
        return found

    def became(self, peer, row):
        """Checks the connection after a row. Returns a list of the problems."""
        if row.ends:
            return [] if peer.has_ended() else [f"the connection goes on, events: {peer.events}"]
        with contextlib.suppress(PyverbsRDMAError):
            peer.send(frame(sequence=MOST))  # This frame is a ping.
        answered = peer.answers()
        return [] if answered else [f"no answer to a ping, broken: {peer.broken}, {peer.events}"]

    def honest(self):
        """Exchanges messages between the honest programs. Returns a list of the problems."""
        t = self.t
        t.a.send("s", t.b_addr, t.pb, b"there".hex())
        there = t.b.recv("s", SECONDS)
        t.b.send("s", t.a_addr, t.pa, b"back".hex())
        back = t.a.recv("s", SECONDS)
        got = [(one or {}).get("data") for one in (there, back)]
        return [] if got == [b"there".hex(), b"back".hex()] else [f"honest programs got {got}"]


def devices():
    """Returns the names of the RDMA devices."""
    return sorted(path.name for path in pathlib.Path("/sys/class/infiniband").iterdir())


def queue_pairs():
    """Returns a tuple for each RC queue pair of this machine: its number and the name of the module
    that owns it."""
    text = subprocess.run(["rdma", "-j", "resource", "show", "qp"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return [(qp["lqpn"], qp["comm"].strip("[]") if qp.get("comm", "").startswith("[") else "")
            for qp in json.loads(text) if qp["type"] == "RC"]


def pings(judge, tos):
    """Sends more pings than the other end answers, and acknowledges no answer. Returns the number
    of answers, and the number of answers beyond the limit."""
    peer = judge.peer(tos, {})
    with contextlib.closing(peer):
        for number in range(1, PINGS + 65):
            peer.send(frame(sequence=number))
            peer.drain()
        return peer.answers(PINGS), peer.answers(1, 1)


def unreceived(judge, tos):
    """Sends 4 * `PINGS` pings, which acknowledge all messages, but posts no Receives. Then posts
    Receives, and counts the answers that arrive. Returns True if their number is in the promised
    range, and otherwise their number. More than `PINGS` answers may arrive, because the other end
    treats the answers in its send queue as sent and acknowledged."""
    peer = judge.peer(tos, {}, receives=0)
    with contextlib.closing(peer):
        for number in range(1, 4 * PINGS + 1):
            sent = peer.send(frame(sequence=number, ack=MOST))
            if number % 128 == 0:
                peer.wait(sent)
        for number in range(RECEIVES):
            peer.post_receive(number)
        answers = peer.answers(PINGS)
        while peer.answers(1, 2):
            answers += 1
        return PINGS <= answers <= 2 * PINGS or answers


def repeated_pings(judge, tos):
    """Sends a ping, retransmits it more than `PINGS` times, and then sends a new ping. Returns two
    numbers, each 0 or 1: the number of answers to the first ping, and the number of answers that
    arrived after the last ping."""
    peer = judge.peer(tos, {})
    with contextlib.closing(peer):
        peer.send(frame(sequence=5))
        answers = peer.answers()
        for _ in range(PINGS + 64):
            peer.send(frame(sequence=5, flags=RETRANSMITTED))
            peer.drain()
        peer.send(frame(sequence=6))
        return answers, peer.answers()


def invalidation(judge, tos):
    """Sends a message that invalidates a region of another peer. Returns whether the connection
    ends, and the messages that the program "victim" receives."""
    there = judge.t.b
    there.open("owner", judge.t.b_addr, 0, transport=TRANS_IB)
    there.buffer("kept", FRAGMENT)
    cookie = there.get_mr("owner", "kept", 0, FRAGMENT)
    peer = judge.peer(tos, {})
    with contextlib.closing(peer):
        peer.send(frame(b"x", dport=judge.port), invalidate=cookie & 0xffffffff)
        ended = peer.has_ended()
    there.close("owner")
    return ended, there.drain("victim", 0.2)


def attack(t):
    """Runs all rows of the table, and reports the result of each row to `t`."""
    judge, start = Judge(t), time.monotonic()
    for tos, row in enumerate(ROWS, FIRST_TOS):
        found = judge.row(tos, row) + judge.honest()
        t.want(row.name, found, [])
    tos = FIRST_TOS + len(ROWS)
    t.want("answers to pings, and one more", pings(judge, tos), (PINGS, 0))
    t.want("answers that are acknowledged and not received", unreceived(judge, tos + 1), True)
    t.want("answers before and after repeated pings", repeated_pings(judge, tos + 2), (1, 1))
    t.want("a Send that invalidates another peer's region", invalidation(judge, tos + 3),
           (True, []))
    t.want("the honest connection after all that", judge.honest(), [])
    gone = judge.own - {qp for qp, _ in queue_pairs()}
    t.want("queue pairs of this machine that were made anew", gone, set())
    t.note(f"{len(ROWS)} rows, {time.monotonic() - start:.1f} s")
