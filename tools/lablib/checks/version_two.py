# SPDX-License-Identifier: GPL-2.0
"""Decodes and checks messages of RPC-over-RDMA version two, according to the XDR in its draft.

tshark cannot decode version two. Section numbers are those of
draft-cel-nfsv4-rpcrdma-version-two-01, whose section 4.2 contains the XDR. This file shares no code
with the module, and no code with the encoder of the tests' responder. So it detects mistakes of the
module and of the responder.
"""

import collections
import dataclasses
import struct

VERSION = 2
# Maximum length of a Send. `FIRST` applies before the versions are known (section 5). `INLINE`
# applies afterwards (section 2.3), unless both ends announced a larger maximum (RFC 8797).
FIRST, INLINE = 1024, 4096
# Values of enum msg_type and of enum rpcrdma2_proc.
CALL, REPLY = 0, 1
DIRECTIONS = {CALL: "call", REPLY: "reply"}
MSG, NOMSG, ERROR, OPTIONAL = 0, 1, 4, 5
PROCEDURES = {MSG: "MSG", NOMSG: "NOMSG", ERROR: "ERROR", OPTIONAL: "OPTIONAL"}
# Values of enum rpcrdma2_errcode.
ERR_VERS = 1
ERRORS = {ERR_VERS: "ERR_VERS", 2: "ERR_BAD_HEADER", 3: "ERR_INVAL_OPTION"}
# The words of a call, up to the flavour of its credentials (RFC 5531).
RPC_CALL = ("xid", "mtype", "rpcvers", "prog", "vers", "proc", "flavour")
# The words of a call with RPCSEC_GSS, up to the procedure in its credentials (RFC 2203 5).
GSS_CALL = (*RPC_CALL, "length", "gss_vers", "gss_proc")
GSS = 6
# Flavours of credentials.
FLAVOURS = {0: "none", 1: "sys", GSS: "gss"}
NULL = 0
RPCSEC_GSS_DESTROY = 3


class Malformed(Exception):
    """Raised if the bytes are not a message of version two."""


class Words:
    """Decodes XDR data (RFC 4506)."""

    def __init__(self, octets):
        self.octets, self.at = octets, 0

    def take(self, size, what):
        piece = self.octets[self.at:self.at + size]
        if len(piece) < size:
            raise Malformed(f"ends in {what}")
        self.at += size
        return piece

    def word(self, what):
        return int.from_bytes(self.take(4, what))

    def hyper(self, what):
        return int.from_bytes(self.take(8, what))

    def choice(self, values, what):
        """Reads an enum. A value that is not in `values` is not valid XDR (4.3)."""
        value = self.word(what)
        if value not in values:
            raise Malformed(f"{what} {value}")
        return value

    def present(self, what):
        """Returns whether optional data follow."""
        return self.choice((0, 1), f"the word before {what}")

    def opaque(self, what):
        length = self.word(f"the length of {what}")
        content = self.take(length, what)
        self.take(-length % 4, f"the padding of {what}")
        return content


@dataclasses.dataclass
class Segment:
    """A struct rpcrdma2_segment."""

    handle: int
    length: int
    offset: int

    def __str__(self):
        return f"{self.handle:#x}:{self.length}@{self.offset:#x}"


@dataclasses.dataclass
class Message:
    """A struct rpcrdma2_xprt_hdr with the fields of its procedure, and the payload that follows."""

    xid: int
    version: int
    credits: int
    procedure: int
    direction: int = REPLY            # direction word; it is meaningless in an ERROR (4.2.2)
    # the Read list: pairs (position, Segment)
    reads: list = dataclasses.field(default_factory=list)
    # the Write list: each chunk is a list of Segments
    writes: list = dataclasses.field(default_factory=list)
    reply: list | None = None                                # the Reply chunk: a list of Segments
    error: int | None = None
    versions: tuple = ()              # lowest and highest version in an ERR_VERS
    option: tuple = ()                # number and information of an option
    payload: bytes = b""

    @property
    def rpc(self):
        """Returns a dictionary with the first words of the RPC message in the payload."""
        count = min(len(RPC_CALL), len(self.payload) // 4)
        found = dict(zip(RPC_CALL, struct.unpack_from(f">{count}I", self.payload), strict=False))
        return found if found.get("mtype") == CALL else dict(list(found.items())[:2])

    def ends_context(self):
        """Returns whether the message tells the server that a security context is no longer in use.
        """
        size = 4 * len(GSS_CALL)
        if self.rpc.get("flavour") != GSS or len(self.payload) < size:
            return False
        words = dict(zip(GSS_CALL, struct.unpack(f">{len(GSS_CALL)}I", self.payload[:size]),
                         strict=True))
        return (words["proc"], words["gss_proc"]) == (NULL, RPCSEC_GSS_DESTROY)

    def has_chunks(self):
        return bool(self.reads or self.writes or self.reply is not None)

    def __str__(self):
        words = [f"xid {self.xid:08x}", f"version {self.version}", f"credits {self.credits}",
                 PROCEDURES[self.procedure], DIRECTIONS[self.direction]]
        words += [f"read {position}+{segment}" for position, segment in self.reads]
        words += [f"write [{listed(chunk)}]" for chunk in self.writes]
        if self.reply is not None:
            words.append(f"reply chunk [{listed(self.reply)}]")
        if self.error is not None:
            words.append(ERRORS[self.error])
        if self.versions:
            words.append(f"versions {self.versions[0]} to {self.versions[1]}")
        if self.option:
            words.append(f"option {self.option[0]} with {len(self.option[1])} bytes")
        if self.payload:
            words.append(f"payload {len(self.payload)}{self.program()}")
        return ", ".join(words)

    def program(self):
        """Describes the call in the payload."""
        rpc = self.rpc
        if len(rpc) < len(RPC_CALL):
            return ""
        end = ", the end of its context" if self.ends_context() else ""
        return (f": program {rpc['prog']} version {rpc['vers']} procedure {rpc['proc']}, "
                f"auth {FLAVOURS.get(rpc['flavour'], rpc['flavour'])}{end}")


def listed(segments):
    return " ".join(map(str, segments))


def segment(words):
    return Segment(words.word("a handle"), words.word("a length"), words.hyper("an offset"))


def chunk(words):
    """Reads a struct rpcrdma2_write_chunk."""
    return [segment(words) for _ in range(words.word("the count of a chunk"))]


def chunk_lists(words, message):
    """Reads a struct rpcrdma2_chunk_lists."""
    message.direction = words.choice(DIRECTIONS, "direction")
    while words.present("a read segment"):
        message.reads.append((words.word("a position"), segment(words)))
    while words.present("a Write chunk"):
        message.writes.append(chunk(words))
    if words.present("the Reply chunk"):
        message.reply = chunk(words)


def error(words, message):
    """Reads a union rpcrdma2_error."""
    message.error = words.choice(ERRORS, "error")
    if message.error == ERR_VERS:
        message.versions = words.word("the lowest version"), words.word("the highest version")


def optional(words, message):
    """Reads a struct rpcrdma2_optional."""
    message.direction = words.choice(DIRECTIONS, "direction of an option")
    message.option = words.word("the number of an option"), words.opaque("an option")


ARMS = {MSG: chunk_lists, NOMSG: chunk_lists, ERROR: error, OPTIONAL: optional}


def decode(octets):
    """Returns the message in a Send. Raises Malformed if the bytes are not a valid message."""
    words = Words(octets)
    xid, version = words.word("the xid"), words.word("the version")
    if version != VERSION:
        raise Malformed(f"version {version}")
    message = Message(xid, version, words.word("the credits"),
                      words.choice(PROCEDURES, "procedure"))
    ARMS[message.procedure](words, message)
    message.payload = octets[words.at:]
    return message


@dataclasses.dataclass
class Sent:
    """A Send in a capture."""

    frame: int
    ours: bool   # whether the client sent it
    octets: bytes


class Connection:
    """Checks the messages of one connection in order. No message may have more than `longest`
    bytes."""

    def __init__(self, longest=INLINE):
        self.longest = longest
        self.lines, self.complaints, self.counts = [], [], collections.Counter()
        self.agreed = False  # whether the probe was answered
        # `open` contains the calls that have no answer yet, `options` all options. An element is a
        # pair: whether the client is the sender of the call or option, and the xid.
        self.open, self.options = set(), set()
        # The calls that end a security context. The RPC client does not wait for their answers, so
        # the connection may end before the answers arrive.
        self.parting = set()
        self.probe = None

    def take(self, sent):
        """Checks the next message."""
        way = "client" if sent.ours else "server"
        try:
            message = decode(sent.octets)
        except Malformed as problem:
            self.lines.append(f"{sent.frame} {way}: MALFORMED ({problem}): "
                              f"{sent.octets[:64].hex()}")
            self.complaints.append(f"frame {sent.frame}: {problem}")
            return
        self.lines.append(f"{sent.frame} {way}: {message}")
        found = [*self.form(message, sent), *self.turn(message, sent)]
        self.complaints += [f"frame {sent.frame}: {problem}" for problem in found]
        self.count(message, sent.ours)

    def form(self, message, sent):
        """Yields the errors of a message that do not depend on other messages."""
        size = len(sent.octets)
        if size > self.longest:
            yield f"{size} bytes (2.3)"
        if message.procedure == MSG and not message.payload:
            yield "MSG without a payload (4.2.1)"
        if message.procedure in (NOMSG, ERROR) and message.payload:
            yield f"{PROCEDURES[message.procedure]} with a payload (4.2.1)"
        if message.procedure == NOMSG and not message.has_chunks():
            yield "NOMSG without a chunk"
        if message.reads and message.direction == REPLY:
            yield "a reply with a Read list"
        if message.procedure == MSG and message.payload:
            rpc = message.rpc
            if rpc.get("mtype") != message.direction:
                yield f"direction {message.direction}, RPC message type {rpc.get('mtype')} (4.2.2)"
            if rpc.get("xid") != message.xid:
                yield f"xid {message.xid:#x}, in the RPC message {rpc.get('xid', 0):#x}"

    def turn(self, message, sent):
        """Yields the errors of a message that depend on the earlier messages of the connection."""
        call = message.direction == CALL
        if self.probe is None:
            self.probe = message
            yield from self.first(message, sent)
        elif not self.agreed and (call or sent.ours):
            yield "sent before the first message has its answer (5)"
        key = sent.ours if call else not sent.ours, message.xid
        if message.procedure == OPTIONAL:
            self.options.add(key)  # If the peer supports the option, it need not answer.
        elif call:
            if key in self.open:
                yield f"a second call {message.xid:#x} beside the first"
            self.open.add(key)
            if message.ends_context():
                self.parting.add(key)
        else:
            if key not in self.open | self.options:
                yield f"an answer to nothing, {message.xid:#x}"
            self.open.discard(key)
            self.agreed |= not sent.ours and message.error is None

    @staticmethod
    def first(message, sent):
        """Yields the errors of the probe, which must be a small NULL call of the client."""
        rpc = message.rpc
        if not sent.ours or message.procedure != MSG or message.direction != CALL:
            yield "does not begin with a call of the client (5)"
        if len(sent.octets) > FIRST:
            yield f"the first message has {len(sent.octets)} bytes (5)"
        if message.has_chunks() or rpc.get("proc") != NULL:
            yield "the first message is no NULL call without chunks"

    def count(self, message, ours):
        """Counts kinds of messages, for the summary."""
        name = DIRECTIONS[message.direction] if ours == (message.direction == CALL) \
            else f"callback {DIRECTIONS[message.direction]}"
        if message.error is not None:
            name = ERRORS[message.error]
        elif message.procedure == OPTIONAL:
            name = "option"
        self.counts[name] += 1
        self.counts["long call"] += message.procedure == NOMSG and message.direction == CALL
        self.counts["long reply"] += message.procedure == NOMSG and message.direction == REPLY
        self.counts["with Read chunks"] += bool(message.reads)
        self.counts["with Write chunks"] += message.direction == CALL and bool(message.writes)
        self.counts["with a Reply chunk"] += message.direction == CALL \
            and message.reply is not None
        self.counts["RPCSEC_GSS call"] += FLAVOURS.get(message.rpc.get("flavour")) == "gss"


class Judgement:
    """The results of checking all connections of version two."""

    def __init__(self, connections, longest=INLINE):
        """Checks `connections`, which contains a list of `Sent` for each connection. A message may
        have at most `longest` bytes."""
        self.connections = []
        for messages in connections:
            connection = Connection(longest)
            for sent in messages:
                connection.take(sent)
            self.connections.append(connection)
        self.messages = sum(len(connection.lines) for connection in self.connections)
        self.counts = sum((connection.counts for connection in self.connections),
                          collections.Counter())
        # The number of calls without an answer. Calls that may have no answer in normal operation
        # are not included.
        self.unanswered = sum(len(connection.open - connection.parting)
                              for connection in self.connections)
        self.complaints = [complaint for connection in self.connections
                           for complaint in connection.complaints]

    def lines(self):
        """Yields a line for each connection, and then a line for each of its messages."""
        for number, connection in enumerate(self.connections):
            yield f"connection {number}"
            yield from connection.lines

    def __str__(self):
        kinds = ", ".join(f"{kind}: {count}" for kind, count in sorted(self.counts.items())
                          if count)
        verdict = f"{len(self.complaints)} WRONG" if self.complaints \
            else "each of version two, the probe first"
        return (f"{len(self.connections)} connections, {self.messages} messages, {verdict} "
                f"({kinds}; calls without an answer: {self.unanswered})")


def begins(octets):
    """Returns whether a connection with this first message begins in version two."""
    return len(octets) >= 8 and int.from_bytes(octets[4:8]) == VERSION
