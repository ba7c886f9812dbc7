# SPDX-License-Identifier: GPL-2.0
"""Checks the packets that our client sends, by means of a capture.

tshark decodes the packets. tools/host/xdr_oracle.py decodes the messages in the Sends, and shares
no code with the module.
"""

import collections
import dataclasses
import functools
import importlib
import inspect
import itertools
import struct
import sys

from ..base.paths import REPO
from ..base.tally import Tally
from ..base.ui import LabError, say
from . import pcap, version_two

FIELDS = ("frame.number", "ip.src", "ipv6.src", "infiniband.bth.opcode",
          "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.reth.r_key",
          "infiniband.reth.va", "infiniband.reth.dmalen",
          "infiniband.mad.transactionid", "infiniband.mad.attributeid",
          "infiniband.cm.req.localqpn", "infiniband.cm.rep.localqpn",
          "infiniband.cm.req.responderres", "infiniband.cm.req.initdepth",
          "infiniband.cm.req.ip_cm.private", "udp.payload")
# The opcodes of a reliable connection (InfiniBand specification, volume 1, table 35).
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0, 1, 2, 4
SEND_LAST_INVALIDATE, SEND_ONLY_INVALIDATE = 22, 23
WRITE_FIRST, WRITE_ONLY, READ_REQUEST = 6, 10, 12
READ_RESPONSES, ACKNOWLEDGE = (13, 14, 15, 16), 17
BULK = "infiniband.bth.opcode in {7,8,13,14,15,16}"
DATAGRAM = 100
SENDS = (SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, SEND_LAST_INVALIDATE,
         SEND_ONLY_INVALIDATE)
LASTS = (SEND_LAST, SEND_ONLY, SEND_LAST_INVALIDATE, SEND_ONLY_INVALIDATE)
# The type of an RPC message that is a call (RFC 5531 9).
CALL = 0
BTH, IETH, ICRC = 12, 4, 4
CONNECT_REQUEST, CONNECT_REPLY = 0x10, 0x13
# The first bytes of private data (RFC 8797 4).
MAGIC = bytes.fromhex("f6ab0e18")
# Number of RDMA Reads that rxe executes at a time for the peer (max_qp_rd_atom).
RXE_READS = 128
CONNECTION_CONFIGURATION = 100417
PAGE, MIB = 1 << 12, 1 << 20
CLIENT = ("192.0.2.2", "2001:db8::2")


@dataclasses.dataclass
class Packet:
    """The parts of a RoCE packet that the checks use."""

    frame: int
    ours: bool       # whether the client sent the packet
    opcode: int
    psn: int
    key: int | None
    address: int | None
    length: int | None
    payload: bytes


@dataclasses.dataclass
class Message:
    """One RPC-over-RDMA message."""

    frame: int
    ours: bool
    connection: int
    octets: bytes

    @functools.cached_property
    def header(self):
        """Returns the header of the message, in the form of xdr_oracle's descriptions."""
        return oracle().decode(self.octets)

    @property
    def xid(self):
        return self.header[1]

    @property
    def inline(self):
        """Returns the RPC message in the Send, or no bytes if the RPC message is in a chunk."""
        return self.octets[self.header[9]:] if self.header[0] == "lists" else b""

    def is_call(self):
        """Returns whether the message is a call. It may be a call of the client or of the server.
        """
        rpc = self.inline
        if len(rpc) >= 8:
            return struct.unpack_from(">I", rpc, 4)[0] == CALL
        # The message is an RDMA_NOMSG. The client sends calls in this form, but no answers to
        # callbacks.
        return self.ours

    def segments(self):
        """Yields (handle, length, offset, whether the server may read) of each advertised segment.
        """
        if self.header[0] != "lists":
            return
        reads, writes, reply = self.header[6:9]
        for _, *segment in reads:
            yield (*segment, True)
        for chunk in (*writes, *([reply] if reply else [])):
            for segment in chunk:
                yield (*segment, False)


@functools.cache
def oracle():
    """Returns tools/host/xdr_oracle.py as a module."""
    sys.path.insert(0, str(REPO / "tools/host"))
    return importlib.import_module("xdr_oracle")


class Capture:
    """The connections and messages of a capture."""

    def __init__(self, path):
        self.packets, self.requests, self.connections = [], [], {}
        self.waiting, self.numbers = {}, itertools.count()
        for row in rows(path):
            self.take(row)
        self.messages = list(self.assemble())

    def announced(self):
        """Returns the length in bytes of the longest message that the client announced in private
        data (RFC 8797 4)."""
        found = [private[6:8] for _, _, private in self.requests if private[:4] == MAGIC]
        return max((1024 * (code + 1) for codes in found for code in codes), default=0)

    def take(self, row):
        """Reads one line of tshark's output."""
        frame, v4, v6, opcode, queue, psn, key, address, length, tid, kind, asker, \
            answerer, resources, depth, private, payload = row
        if not opcode:
            return
        ours, opcode, queue = (v4 or v6) in CLIENT, int(opcode), int(queue, 0)
        number: int | None
        if opcode == DATAGRAM:
            if kind and int(kind, 0) == CONNECT_REQUEST and ours:
                self.waiting[tid] = int(asker, 0)
                self.requests.append((int(resources, 0), int(depth, 0), bytes.fromhex(
                    private.replace(":", ""))))
            elif kind and int(kind, 0) == CONNECT_REPLY and tid in self.waiting:
                # A table maps the queue pairs of both ends to the number of the connection.
                # Connections are not identified by the numbers of queue pairs, because such a
                # number may be used again.
                number, here = next(self.numbers), self.waiting.pop(tid)
                self.connections[False, here] = self.connections[True, int(answerer, 0)] = number
            return
        number = self.connections.get((ours, queue))
        if number is not None:
            def value(text):
                return int(text, 0) if text else None

            self.packets.append((number, Packet(
                int(frame), ours, opcode, int(psn), value(key), value(address),
                value(length), bytes.fromhex(payload.replace(":", "")))))

    def assemble(self):
        """Yields every message once, even if its packets were sent several times."""
        parts, seen = collections.defaultdict(bytes), set()
        for number, packet in self.packets:
            if packet.opcode not in SENDS or (number, packet.ours, packet.psn) in seen:
                continue
            seen.add((number, packet.ours, packet.psn))
            begin = BTH + (IETH if packet.opcode in (SEND_LAST_INVALIDATE,
                                                     SEND_ONLY_INVALIDATE) else 0)
            pad = packet.payload[1] >> 4 & 3
            stream = number, packet.ours
            if packet.opcode in (SEND_FIRST, SEND_ONLY, SEND_ONLY_INVALIDATE):
                parts[stream] = b""
            parts[stream] += packet.payload[begin:len(packet.payload) - ICRC - pad]
            if packet.opcode in LASTS:
                yield Message(packet.frame, packet.ours, number, parts.pop(stream))

    def conversations(self):
        """Returns a dictionary from the number of each connection to its messages."""
        found = collections.defaultdict(list)
        for message in self.messages:
            found[message.connection].append(message)
        return found

    def in_version_two(self):
        """Returns the conversations (the messages of a connection) that begin in version two."""
        return {number: messages for number, messages in self.conversations().items()
                if version_two.begins(messages[0].octets)}

    def frames_of_version_two(self):
        """Returns the frame numbers of the messages on connections of version two."""
        connections = self.in_version_two()
        return {packet.frame for number, packet in self.packets if number in connections}


def rows(path):
    """Returns the fields of every RoCE packet. For packets that carry bulk data, only the first six
    fields are read, and the others are empty."""
    packets = pcap.tshark(path, "-Y", f"infiniband && !({BULK})", "-E", "occurrence=f",
                          fields=FIELDS)
    packets += [row + [""] * (len(FIELDS) - len(row))
                for row in pcap.tshark(path, "-Y", BULK, fields=FIELDS[:6])]
    return sorted(packets, key=lambda row: int(row[0]))


def need(condition, what):
    """Raises an AssertionError unless the condition holds."""
    if not condition:
        raise AssertionError(what)


# covers: V1-008, V1-085: The client only sends messages, answers RDMA Reads and acknowledges
# packets. Its keepalive is an RDMA Write of no bytes, which accesses no memory.
def nothing_but_sends_comes_from_the_client(capture):
    counts = collections.Counter()
    for _, packet in capture.packets:
        if packet.ours:
            counts[packet.opcode] += 1
            probe = packet.opcode == WRITE_ONLY and not packet.length
            need(packet.opcode in (*SENDS[:4], *READ_RESPONSES, ACKNOWLEDGE) or probe,
                 f"frame {packet.frame}: operation {packet.opcode}")
    return f"packets by operation: {dict(sorted(counts.items()))}"


# covers: V1-002, V1-004, V1-085: No message has a record mark, and no call is for the program of
# the Connection Configuration Protocol.
def every_send_is_a_message_of_version_one(capture):
    count, others = 0, capture.in_version_two()
    for message in capture.messages:
        if not message.ours or message.connection in others:
            continue
        count += 1
        need(message.header[0] == "lists", f"frame {message.frame}: {message.header}")
        need(message.header[2] == 1, f"frame {message.frame}: version {message.header[2]}")
        rpc = message.inline
        if rpc:
            need(struct.unpack_from(">I", rpc)[0] == message.xid,
                 f"frame {message.frame}: two xids")
        if len(rpc) >= 16 and message.is_call():
            program = struct.unpack_from(">I", rpc, 12)[0]
            need(program != CONNECTION_CONFIGURATION, f"frame {message.frame}: program {program}")
    need(count, "the client sent no message")
    return f"{count} messages"


# covers: V2-02, V2-04, V2-05, V2-13, V2-14, V2-15, V2-17, V2-19, V2-20, V2-29: A separate decoder
# checks the messages of both sides on connections in version two.
def version_two_is_spoken_from_the_probe_to_the_last_reply(capture):
    found = version_two.Judgement(capture.in_version_two().values())
    need(not found.complaints, "; ".join(found.complaints[:5]))
    for kind in ("callback reply", "with Read chunks", "with Write chunks", "with a Reply chunk"):
        need(found.counts[kind], f"no message: {kind}")
    return found


# covers: V1-022: The connect request lets the server have as many RDMA Reads in flight as our
# device allows. The client itself issues none.
# covers: CM-02, CM-03, CM-04: The private data of the connect request are right.
def connect_requests_are_complete(capture):
    need(capture.requests, "no connect request")
    for resources, depth, private in capture.requests:
        need(resources == RXE_READS, f"{resources} responder resources")
        need(depth == 0, f"initiator depth {depth}")
        need(private[:6] == MAGIC + b"\x01\x01", f"private data {private.hex()}")
        need(not any(private[8:]), f"bytes behind the private data: {private.hex()}")
    return f"{len(capture.requests)} connect requests"


# covers: V1-011, V1-012, V1-014: The client never has more calls in flight than the server granted
# last. Before the first Reply it has only one.
def calls_in_flight_stay_within_the_grant(capture):
    grant, most = collections.defaultdict(lambda: 1), 0
    open_calls = collections.defaultdict(set)
    for message in capture.messages:
        number = message.connection
        if message.ours and message.is_call():
            need(message.header[3] > 0, f"frame {message.frame}: no credits requested")
            open_calls[number].add(message.xid)
            flying = len(open_calls[number])
            most = max(most, flying)
            need(flying <= grant[number],
                 f"frame {message.frame}: {flying} calls, {grant[number]} granted")
        elif not message.ours and message.xid in open_calls[number]:
            open_calls[number].discard(message.xid)
            if message.header[0] == "lists":
                grant[number] = message.header[3]
    return f"at most {most} calls in flight"


# covers: ULB-34: A call is sent at most once on a connection.
def no_call_is_repeated_on_its_connection(capture):
    seen = collections.Counter()
    for message in capture.messages:
        if message.ours and message.is_call() and message.xid:
            seen[message.connection, message.xid] += 1
    again = [f"{xid:#x}" for (_, xid), count in seen.items() if count > 1]
    need(not again, f"sent again on the same connection: {', '.join(again[:5])}")
    return f"{len(seen)} calls"


# covers: BC-28: The client answers each callback at most once, and sends no other answers.
def callbacks_are_answered_once(capture):
    asked, count = set(), 0
    for message in capture.messages:
        key = message.connection, message.xid
        if not message.ours and message.is_call():
            asked.add(key)
        elif message.ours and not message.is_call():
            need(key in asked, f"frame {message.frame}: an answer to nothing, {message.xid:#x}")
            asked.discard(key)
            count += 1
    need(count, "no callback was answered")
    return f"{count} callbacks answered, {len(asked)} not"


# covers: V1-048, V1-109, MAL-108: While a call is in flight, no other call advertises the handles
# of this call.
def no_handle_is_advertised_twice_at_a_time(capture):
    exposed, pending, count = {}, collections.defaultdict(list), 0
    for message in capture.messages:
        key = message.connection, message.xid
        if message.ours and message.is_call():
            for handle, *_ in message.segments():
                holder = exposed.setdefault((message.connection, handle), message.xid)
                need(holder == message.xid, f"frame {message.frame}: handle {handle:#x} still "
                     f"belongs to call {holder:#x}")
                pending[key].append(handle)
                count += 1
        elif not message.ours and key in pending:
            for handle in pending.pop(key):
                exposed.pop((message.connection, handle), None)
    need(count, "no handle was advertised")
    return f"{count} handles"


# covers: V1-037, V1-055, V1-063: The server accesses only memory that a call in flight offers, and
# only in the way that is offered.
def the_server_stays_within_what_was_offered(capture):
    offered, count = collections.defaultdict(dict), 0
    order = sorted([(m.frame, m, None) for m in capture.messages]
                   + [(p.frame, None, (n, p)) for n, p in capture.packets
                      if not p.ours and p.length and p.opcode in (WRITE_FIRST, WRITE_ONLY,
                                                                  READ_REQUEST)],
                   key=lambda entry: entry[0])
    for frame, message, access in order:
        if message:
            calls = offered[message.connection]
            if message.ours and message.is_call():
                calls[message.xid] = list(message.segments())
            elif not message.ours:
                calls.pop(message.xid, None)
            continue
        assert access
        number, packet = access
        reading, count = packet.opcode == READ_REQUEST, count + 1
        need(any(handle == packet.key and may_read == reading
                 and offset <= packet.address
                 and packet.address + packet.length <= offset + length
                 for segments in offered[number].values()
                 for handle, length, offset, may_read in segments),
             f"frame {frame}: access to {packet.key:#x}, {packet.address:#x}, "
             f"{packet.length} bytes, which no call under way offers")
    need(count, "the server touched no memory")
    return f"{count} accesses"


# covers: V1-038, V1-044: Each chunk for data has one segment, which is as long as the data. A
# Position-Zero chunk or a Reply chunk may have several segments. If a segment ends at a page
# boundary, the next segment does not begin at one. Otherwise one segment could replace both.
def a_chunk_is_one_segment(capture):
    kinds = collections.Counter()
    for message in capture.messages:
        if not message.ours or not message.is_call():
            continue
        reads, writes, reply = message.header[6:9]
        where = f"frame {message.frame}"
        chunks = collections.defaultdict(list)
        for position, *segment in reads:
            need(position % 4 == 0, f"{where}: position {position}")
            chunks[position].append(segment)
        need(len(writes) <= 1, f"{where}: {len(writes)} Write chunks")
        need(all(len(chunk) == 1 for chunk in (*writes, *(chunks[p] for p in chunks if p))),
             f"{where}: data in several segments: {reads}, {writes}")
        for chunk in (chunks[0], reply or []):
            for (_, length, offset), (_, _, following) in itertools.pairwise(chunk):
                need((offset + length) % PAGE or following % PAGE, f"{where}: {chunk}")
        kinds["Read chunks of 1 MiB"] += any(length == MIB for _, _, length, _ in reads)
        kinds["Write chunks of 1 MiB"] += any(chunk[0][1] == MIB for chunk in writes)
        kinds["Reply chunks"] += bool(reply)
        kinds["long calls"] += message.header[4]
    for kind in ("Read chunks of 1 MiB", "Write chunks of 1 MiB", "Reply chunks", "long calls"):
        need(kinds[kind], f"no {kind}")
    return ", ".join(f"{kind}: {number}" for kind, number in sorted(kinds.items()))


def tests():
    """Returns the test functions of this file, in the order of the file. Each of them takes a
    capture."""
    return [function for name, function in globals().items()
            if inspect.isfunction(function) and not name.startswith("_")
            and list(inspect.signature(function).parameters) == ["capture"]]


def judge(recorded):
    """Runs every test on a capture. Returns the tally of the results."""
    tally = Tally()
    if not recorded.connections:
        raise LabError("no connection in the capture")
    for function in tests():
        try:
            found = function(recorded)
            say(f"ok: cable.{function.__name__}: {found}")
            tally.ok()
        except AssertionError as error:
            say(f"not ok: cable.{function.__name__}: {error}")
            tally.fail(f"cable.{function.__name__}: {error}")
    return tally


def version_two_of(path, longest=version_two.INLINE):
    """Returns a `version_two.Judgement` of a capture, and the number of connections in other
    versions. `longest` is the maximum length of the messages that the server receives or sends, in
    bytes. If the client has announced a lower maximum, the lower maximum applies."""
    capture = Capture(path)
    connections = capture.in_version_two()
    longest = max(version_two.INLINE, min(longest, capture.announced()))
    return (version_two.Judgement(connections.values(), longest),
            len(capture.conversations()) - len(connections))


def show_version_two(path):
    """Prints the messages of version two in a capture. Returns the exit status."""
    found, others = version_two_of(path)
    for line in found.lines():
        print(line)
    for complaint in found.complaints:
        say(f"WRONG: {complaint}")
    print(f"{found}; connections in other versions: {others}", flush=True)
    return 1 if found.complaints or not found.messages else 0
