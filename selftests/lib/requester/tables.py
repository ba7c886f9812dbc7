# SPDX-License-Identifier: GPL-2.0
"""The misbehaviours of a requester, and how our server must react to each."""

import struct

from ..hostile.message import REPLY, Segment, padded, word
from ..hostile.row import replaced
from . import calls
from .row import PRIVATE, READ, WRITE, Row, anything, dropped, ended, refused, served, wrong_version

TOP = "/srv/mem/requester"
PATH = f"{TOP}/mine"
LINK, TEXT = f"{TOP}/link", "a text whose length is no multiple of four"
LONG = f"{TOP}/long"
PAGE, BLOCK = 4096, 8192
MSG, NOMSG, MSGP, DONE, ERROR = range(5)
HEADER = 28
# The longest message that the server accepts.
RECEIVE = 4096
# Maximum number of segments in a call, and maximum number of Write chunks in a call.
SEGMENTS, CHUNKS = 64, 16
# A length in bytes that exceeds the maximum length of a call.
HUGE = 4 << 20
NEW = b"\xa5"
# Number of bytes in the reply to a READ of the requester's file, without the data. These are the
# bytes of the RPC header, of the compound's header, of PUTROOTFH and four LOOKUPs, and of the
# READ's results before the data.
REPLY_HEAD = 24 + 12 + 5 * 8 + 16


# A misbehaviour is a function that takes a `Client`. Each of the following functions is a
# misbehaviour or returns one.

def null(**fields):
    """Builds a NULL call with changed fields of the header."""
    return lambda client: client.message(**fields)


def patched(number, value):
    """Builds a NULL call, and changes one word of the message."""
    return lambda client: replaced(client.message(), number, value)


def cut(length):
    """Builds only the first bytes of a NULL call."""
    return lambda client: client.message().octets()[:length]


def more(*words):
    """Builds a message that consists of the first three words of a correct header and of `words`.
    """
    return lambda client: word(client.next(), 1, 32) + word(*words)


def payload(make):
    """Builds a message whose payload is the result of `make(xid)`."""
    return lambda client: client.message(payload=make)


def swapped(client):
    """Builds a message whose first words are little-endian."""
    octets = client.message().octets()
    return struct.pack("<4I", *struct.unpack_from(">4I", octets)) + octets[16:]


def immediate(client):
    client.connection.send(client.message().octets(), immediate=7)


def write_with_immediate(client):
    """Makes an RDMA Write with immediate data, although the server never offers memory to clients.
    """
    client.connection.post_write_with_immediate()


def segment_of(client, length=64):
    return client.memory(length, READ)[1]


def with_reads(*positions, **fields):
    """Builds a NULL call whose Read list has a segment at each of these Positions."""
    def deed(client):
        segment = segment_of(client)
        return client.message(reads=[(position, segment) for position in positions], **fields)

    return deed


def with_chunks(writes=None, reply=None):
    """Builds a NULL call with Write chunks and a Reply chunk. The arguments give the number of
    segments of each chunk."""
    def deed(client):
        _, segment = client.memory(64, WRITE)
        return client.message(writes=[[segment] * count for count in writes or ()],
                              reply=None if reply is None else [segment] * reply)

    return deed


class Writing:
    """Builds a WRITE call whose data are in a Read chunk. The arguments can make one part of the
    call wrong."""

    def __init__(self, claimed=BLOCK, chunk=None, pieces=1, place=0, behind=b"", rights=READ,
                 change=None, credential=calls.SYS, inline=b""):
        self.claimed, self.chunk = claimed, claimed if chunk is None else chunk
        self.pieces, self.place, self.behind, self.rights = pieces, place, behind, rights
        self.change, self.credential, self.inline = change, credential, inline

    def __call__(self, client):
        client.stage.refill()
        front = calls.compound(client.next(), PATH, calls.write(0, self.claimed),
                               credential=self.credential)
        _, whole = client.memory(NEW * self.chunk, self.rights)
        size = self.chunk // self.pieces
        reads = [(len(front) + self.place,
                  whole.but(length=size if n + 1 < self.pieces else self.chunk - n * size,
                            offset=whole.offset + n * size)) for n in range(self.pieces)]
        if self.change:
            reads = [(position, self.change(segment)) for position, segment in reads]
        return client.message(payload=front + self.inline + self.behind, reads=reads,
                              xid=client.xid)


def written(count):
    """Checks that the server's file begins with `count` new bytes, and that the other bytes are
    unchanged.
    """
    def judge(stage, _client, answer):
        outcome = calls.outcome(answer.payload)
        found = stage.content()
        if outcome != ("nfs", 0):
            raise AssertionError(f"{outcome} instead of success")
        if found != NEW * count + stage.original[count:]:
            raise AssertionError("not the data that were written")

    return judge


def not_written(stage, _client, answer):
    """Checks that the call has failed, and that no byte of the file has changed."""
    outcome = calls.outcome(answer.payload)
    if outcome == ("nfs", 0):
        raise AssertionError("success")
    stage.unchanged()


def reading(count, write=None, reply=None):
    """Builds a READ call with a Write chunk and a Reply chunk of these lengths."""
    def deed(client):
        client.stage.refill()
        xid = client.next()
        rpc = calls.compound(xid, PATH, calls.read(0, count))
        fields = {"writes": [] if write is None else [[client.memory(write, WRITE)[1]]],
                  "reply": None if reply is None else [client.memory(reply, WRITE)[1]]}
        return client.message(payload=rpc, xid=xid, **fields)

    return deed


def read_into(kind, length):
    """Checks that the data are in the client's memory, and that the answer states the used length
    of the chunk correctly."""
    def judge(stage, client, answer):
        if answer.kind != kind:
            raise AssertionError(f"{answer.kind} instead of {kind}")
        offered = answer.reply if kind == "RDMA_NOMSG" else answer.writes[0]
        used = sum(segment.length for segment in offered)
        region = client.connection.regions[-1]
        if kind == "RDMA_MSG" and used != length:
            raise AssertionError(f"{used} bytes written instead of {length}")
        found = region.read(used, 0)
        if stage.content()[:length] not in found:
            raise AssertionError("other data than those of the file")

    return judge


def reading_link(client):
    """Builds a READLINK call with a Write chunk for the text of the link."""
    client.stage.link(LINK, TEXT)
    xid = client.next()
    return client.message(payload=calls.compound(xid, LINK, calls.readlink()), xid=xid,
                          writes=[[client.memory(BLOCK, WRITE)[1]]])


def link_read(_stage, client, answer):
    """Checks that the text of the link is in the client's memory, and that the length of the text
    is in the message."""
    if calls.outcome(answer.payload) != ("nfs", 0) or answer.payload[-4:] != word(len(TEXT)):
        raise AssertionError("not the length of the text")
    used = sum(segment.length for segment in answer.writes[0])
    found = client.connection.regions[-1].read(used, 0)
    if found != TEXT.encode():
        raise AssertionError(f"{found} instead of the text")


def reading_more_than_a_call(client):
    """Builds a compound with two READs, whose data are longer than the longest call."""
    longest = client.stage.longest_call() - PAGE
    client.stage.grow(LONG, longest)
    xid = client.next()
    rpc = calls.compound(xid, LONG, calls.read(0, longest), calls.read(0, BLOCK))
    return client.message(payload=rpc, xid=xid, writes=[[client.memory(longest, WRITE)[1]],
                                                        [client.memory(BLOCK, WRITE)[1]]])


def inline(_stage, _client, answer):
    """Checks that the reply is inline, and that the chunk was returned as unused."""
    if answer.kind != "RDMA_MSG" or sum(s.length for s in answer.reply or ()):
        raise AssertionError(f"answered by {answer}")


def failed(_stage, _client, answer):
    """Checks that the NFS operation has failed, and that the RPC call was executed."""
    outcome = calls.outcome(answer.payload)
    if outcome[0] != "nfs" or outcome[1] == 0:
        raise AssertionError(f"{outcome} instead of an operation that failed")


def long_call(make=calls.null, behind=(), payload=b""):
    """Builds a message whose whole RPC call is in a Read chunk at Position zero. The call is the
    result of `make(xid)`."""
    def deed(client):
        xid = client.next()
        content = make(xid)
        segments = [(0, client.memory(content, READ)[1])] if content else []
        return client.message(payload=payload, kind="RDMA_NOMSG", xid=xid,
                              reads=[*segments, *behind])

    return deed


def null_reply(_stage, _client, answer):
    if calls.outcome(answer.payload) != ("null",):
        raise AssertionError(f"answered by {answer}")


class TwoWrites:
    """Builds a call with two WRITEs whose data are in two Read chunks. Each chunk has two segments.
    `order` determines the order of the segments in the Read list. `shift` is added to the Position
    of the second chunk.
    """

    def __init__(self, order=lambda first, second: first + second, shift=0):
        self.order, self.shift = order, shift

    def __call__(self, client):
        client.stage.refill()
        half = BLOCK // 2
        first = calls.compound(client.next(), PATH, calls.write(0, half), calls.write(half, half))
        between = calls.write(half, half)
        place = len(first) - len(between)
        _, whole = client.memory(NEW * BLOCK, READ)

        def chunk(position, start):
            return [(position, whole.but(length=half // 2, offset=whole.offset + start + offset))
                    for offset in (0, half // 2)]

        behind = place + half + len(between) + self.shift
        reads = self.order(chunk(place, 0), chunk(behind, half))
        return client.message(payload=first, reads=reads, xid=client.xid)


def with_empty(deed, where):
    """Builds the message that `deed` builds, and adds empty segments to each chunk. `where(empty,
    segments)` returns the new list of a chunk's segments."""
    def built(client):
        message = deed(client)

        def more(segments):
            empty = [segment.but(length=0) for segment in segments[:1]]
            return where(empty, segments) if segments else segments

        if message.reads:
            position, = {position for position, _ in message.reads}
            segments = more([segment for _, segment in message.reads])
            return message.but(reads=[(position, segment) for segment in segments])
        return message.but(writes=[more(chunk) for chunk in message.writes],
                           reply=message.reply and more(message.reply))

    return built


def first_and_last(empty, segments):
    return [*empty, *segments, *empty]


def amid(empty, segments):
    return [*segments[:1], *empty, *segments[1:]]


def longest(more):
    """Builds a WRITE call that is `more` bytes longer than the longest call that the server
    accepts. The data are followed by bytes that belong to no operation."""
    def deed(client):
        client.stage.refill()
        most = client.stage.longest_call()
        front = calls.compound(client.next(), PATH, calls.write(0, BLOCK))
        length = most - len(front) + more
        _, whole = client.memory(length, READ)
        return client.message(payload=front, reads=[(len(front), whole)], xid=client.xid)

    return deed


def twice(make):
    """Sends the same message twice in immediate succession."""
    def deed(client):
        client.connection.send_many(make(client).octets(), 2)

    return deed


def many(count, make=None):
    """Sends the same RPC call `count` times. All work requests are posted together."""
    def deed(client):
        octets = (make(client) if make else client.message()).octets()
        client.connection.send_many(octets, count)

    return deed


SIZES = [
    Row("longer than the Receive", payload(lambda xid: calls.null(xid) + bytes(RECEIVE)), ended),
    Row("exactly as long as the Receive",
        payload(lambda xid: calls.null(xid).ljust(RECEIVE - HEADER, b"\0")), served()),
    Row("no octets", lambda _: b"", dropped),
    *(Row(f"{length} octets", cut(length), dropped) for length in (3, 8, 15, 16, 20, 27)),
    Row("28 octets: no payload", cut(HEADER), refused),
    Row("payload of a word", cut(HEADER + 4), refused),
    # The server drops the message of the next row. Then it may close the connection before it
    # answers a later call.
    Row("payload of an xid and a direction: for the RPC layer", cut(HEADER + 8), anything),
    Row("odd length", lambda client: client.message().octets() + b"\0", served()),
    Row("Send with immediate data", immediate, ended),
    Row("RDMA Write with immediate data", write_with_immediate, ended),
]

VERSIONS = [
    *(Row(f"version {number:#x}", patched(1, number), wrong_version)
      for number in (0, 2, 3, 0x01000000, 0xffffffff)),
    Row("byte-swapped", swapped, anything),
    Row("error of version 2", lambda client: word(client.next(), 2, 32, ERROR, 2), dropped),
]

TYPES = [
    Row("RDMA_MSGP", patched(3, MSGP), refused),
    Row("RDMA_DONE", patched(3, DONE), dropped),
    *(Row(f"procedure {number:#x}", patched(3, number), refused)
      for number in (5, 6, 0xffffffff)),
    Row("ERR_VERS from a client", more(ERROR, 1, 1, 1), dropped),
    Row("ERR_CHUNK from a client", more(ERROR, 2), dropped),
    Row("an error that ends early", more(ERROR), dropped),
    *(Row(f"an error of {4 * count} bytes in version {version}",
          lambda client, count=count, version=version:
          (word(client.next(), version, 32, ERROR) + word(2, *[1] * 8))[:4 * count], dropped)
      for version in (0, 1, 2, 3) for count in (4, 5, 7, 9)),
    Row("a Reply that nobody asked for",
        payload(lambda xid: word(xid, REPLY, 0, 0, 0, 0)), dropped),
    Row("a Reply of 8 bytes", payload(lambda xid: word(xid, REPLY)), dropped),
    Row("a Reply with chunks", with_reads(8, payload=lambda xid: word(xid, REPLY, 0, 0, 0, 0)),
        dropped),
    Row("a direction that is none", payload(lambda xid: word(xid, 2, 2, 100003, 4, 0)), refused),
    Row("two xids", payload(lambda xid: calls.null(xid + 1)), refused),
    Row("RPC version 3", payload(lambda xid: word(xid, 0, 3, 100003, 4, 0, 0, 0, 0, 0)), served()),
    Row("a program that is not there",
        payload(lambda xid: word(xid, 0, 2, 400003, 4, 0, 0, 0, 0, 0)), served()),
]

CREDITS = [
    Row("credit 0", null(credit=0), served(null_reply)),
    Row("credit 2^32-1", null(credit=0xffffffff), served(null_reply)),
    Row("many calls at once", many(100), anything),
    Row("more calls than any grant", many(250), anything),
    Row("the same call twice", twice(Writing()), anything),
    Row("many refusals at once", many(100, lambda client: client.message(vers=9)), anything),
    Row("many messages that are dropped", many(200, lambda client: client.message(
        payload=word(1, REPLY, 0, 0, 0, 0))), anything),
]

LISTS = [
    *(Row(f"word {number} is {value:#x}", patched(number, value), refused)
      for number in (4, 5, 6) for value in (2, 0xffffffff)),
    *(Row(f"Read list ends after {words} words", more(MSG, *((1, 8, 1, 64, 0, 0)[:words])), refused)
      for words in range(3, 7)),
    *(Row(f"Write list ends after {words} words", more(MSG, 0, *((1, 1, 1, 64, 0, 0, 0)[:words])),
          refused) for words in range(3, 7)),
    *(Row(f"Reply chunk ends after {words} words", more(MSG, 0, 0, *((1, 1, 1, 64, 0, 0)[:words])),
          refused) for words in range(2, 6)),
    *(Row(f"{count:#x} segments in a Write chunk", more(MSG, 0, 1, count, 0, 0, 0, 0), refused)
      for count in (2, 1 << 28, 0xffffffff)),
    *(Row(f"{count:#x} segments in the Reply chunk", more(MSG, 0, 0, 1, count, 0, 0, 0), refused)
      for count in (2, 1 << 28, 0xffffffff)),
    Row("a Read list without an end", with_reads(*range(4, 4 * 150, 4)), refused),
    Row("many Write chunks of no segments", with_chunks([0] * 400), refused),
    Row("one Write chunk too many", with_chunks([1] * (CHUNKS + 1)), refused),
    Row("as many Write chunks as may be", with_chunks([1] * CHUNKS), served(null_reply)),
    Row("one segment too many", with_chunks([SEGMENTS], 1), refused),
    Row("as many segments as may be", with_chunks([SEGMENTS]), served(null_reply)),
    Row("Write chunk and Reply chunk", with_chunks([1], 1), served(null_reply)),
    Row("chunks of no segments", with_chunks([0], 0), served(null_reply)),
]

POSITIONS = [
    Row("no argument may be in a chunk", with_reads(40), refused),
    Row("Position 0 in RDMA_MSG", with_reads(0), refused),
    Row("a Position that is odd", Writing(place=1), refused),
    Row("a Position inside the RPC header", with_reads(4), refused),
    Row("two chunks", TwoWrites(), served(written(BLOCK))),
    Row("two chunks, the second one first", TwoWrites(lambda first, second: second + first),
        served(written(BLOCK))),
    Row("two chunks whose segments take turns", TwoWrites(
        lambda first, second: [first[0], second[0], first[1], second[1]]), served(written(BLOCK))),
    Row("two chunks that overlap", TwoWrites(shift=-BLOCK // 4), refused),
    Row("two chunks, the second one behind the message", TwoWrites(shift=64), refused),
    Row("a Position behind the message", Writing(place=64), refused),
    Row("a protected call", Writing(credential=calls.INTEGRITY), refused),
    Row("more Positions than a call has", with_reads(*range(44, 44 + 40, 4)), refused),
    Row("RDMA_NOMSG without a chunk", long_call(lambda _: b""), refused),
    Row("RDMA_NOMSG with a word", long_call(word), refused),
    Row("RDMA_NOMSG with another xid", long_call(lambda xid: calls.null(xid + 1)), refused),
    Row("RDMA_NOMSG with a Reply", long_call(lambda xid: word(xid, REPLY, 0, 0, 0, 0)), refused),
    Row("RDMA_NOMSG with a right call", long_call(), served(null_reply)),
    Row("RDMA_NOMSG with a payload as well", long_call(payload=bytes(64)), served(null_reply)),
    Row("RDMA_NOMSG with a chunk amid the header",
        long_call(behind=((8, Segment((1, 64, 0))),)), refused),
]

NUMBERS = [
    Row("a segment of 2^32-1 bytes",
        Writing(change=lambda segment: segment.but(length=0xffffffff)), refused),
    Row("segments whose sum is above 2^32",
        Writing(pieces=2, change=lambda segment: segment.but(length=0x80000000)), refused),
    Row("a segment that goes beyond the end of memory",
        Writing(change=lambda segment: segment.but(offset=(1 << 64) - 4096)), refused),
    Row("a call that is too long", Writing(change=lambda segment: segment.but(length=HUGE)),
        refused),
    Row("a call as long as the server takes", longest(0), served()),
    Row("a call that is longer by a word", longest(4), refused),
    Row("a Write chunk of 2^32 bytes", lambda client: client.message(
        writes=[[Segment((1, 0x80000000, 0))] * 2]), refused),
    Row("a Reply chunk that goes beyond the end of memory", lambda client: client.message(
        reply=[Segment((1, 4096, (1 << 64) - 2048))]), refused),
]

DATA = [
    Row("a WRITE in good order", Writing(), served(written(BLOCK))),
    *(Row(f"data in {count} segments", Writing(pieces=count), served(written(BLOCK)))
      for count in (16, 17, SEGMENTS)),
    Row("data in one segment too many", Writing(pieces=SEGMENTS + 1), refused),
    Row("data between empty segments", with_empty(Writing(), first_and_last),
        served(written(BLOCK))),
    Row("data with an empty segment amid them", with_empty(Writing(pieces=2), amid),
        served(written(BLOCK))),
    Row("more data than the WRITE says", Writing(claimed=BLOCK // 2, chunk=BLOCK), served()),
    Row("data whose pad is not sent", Writing(claimed=BLOCK - 3), served(written(BLOCK - 3))),
    Row("a chunk that is shorter than the data", Writing(chunk=BLOCK // 2), served(not_written)),
    Row("a chunk that is shorter by a word", Writing(chunk=BLOCK - 4), served(not_written)),
    Row("a chunk that is empty", Writing(chunk=0), served(not_written)),
    Row("data of 2^31 bytes in a chunk of a page", Writing(claimed=1 << 31, chunk=4096),
        served(not_written)),
    Row("no pad in the chunk, and words behind it",
        Writing(claimed=BLOCK - 3, behind=word(99)), served()),
    Row("data inline and in the chunk",
        Writing(claimed=BLOCK, inline=padded(NEW * 64)), anything),
]

def sent_back(empty):
    """Checks that the data of a READ were written to the READ's chunk, and that exactly `empty` of
    the returned segments are unused."""
    def judge(stage, client, answer):
        segments = answer.reply if answer.kind == "RDMA_NOMSG" else answer.writes[0]
        used = [segment.length for segment in segments if segment.length]
        if len(segments) != len(used) + empty:
            raise AssertionError(f"segments that came back: {segments}")
        if stage.content()[:BLOCK] not in client.connection.regions[-1].read(sum(used), 0):
            raise AssertionError("other data than those of the file")

    return judge


def gone(client):
    """Builds a WRITE call, and then deregisters the memory that contains the call's data."""
    message = Writing()(client)
    client.connection.take_back()
    return message


ROOM = [
    Row("a reply that has no room", reading(BLOCK), refused),
    Row("a Reply chunk that is too short", reading(BLOCK, reply=BLOCK), refused),
    Row("a Reply chunk that is long enough", reading(BLOCK, reply=2 * BLOCK),
        served(read_into("RDMA_NOMSG", BLOCK))),
    Row("a Reply chunk that is exactly long enough", reading(BLOCK, reply=BLOCK + REPLY_HEAD),
        served(read_into("RDMA_NOMSG", BLOCK))),
    Row("a Reply chunk that is too short by a byte", reading(BLOCK, reply=BLOCK + REPLY_HEAD - 1),
        refused),
    Row("a Write chunk between empty segments",
        with_empty(reading(BLOCK, write=BLOCK), first_and_last), served(sent_back(2))),
    Row("a Reply chunk between empty segments",
        with_empty(reading(BLOCK, reply=2 * BLOCK), first_and_last), served(sent_back(2))),
    Row("a Write chunk of no segments for a few bytes", lambda client: reading(64)(client).but(
        writes=[[]]), served(inline)),
    *(Row(f"a Reply chunk of {length} bytes that is not needed", lambda client, length=length:
          client.message(reply=[client.memory(length, WRITE)[1].but(length=length)]),
          served(inline)) for length in (0, 4, 20, 4096)),
    Row("a Write chunk that is long enough", reading(BLOCK, write=BLOCK),
        served(read_into("RDMA_MSG", BLOCK))),
    Row("a Write chunk that is too short", reading(BLOCK, write=BLOCK - 4), served(failed)),
    Row("a READ of a few bytes without chunks", reading(64), served()),
    Row("a READLINK with a Write chunk", reading_link, served(link_read)),
    Row("two READs that are longer than the longest call", reading_more_than_a_call, refused),
]

def in_another_domain(deed):
    """Builds the same message as `deed`, but its memory belongs to a protection domain that is not
    the domain of the connection."""
    def built(client):
        client.connection.change_domain()
        return deed(client)

    return built


KEYS = [
    Row("a Read of memory with another key",
        Writing(change=lambda segment: segment.but(handle=segment.handle ^ 0xff00)), ended),
    Row("a Read beyond the end of a region", Writing(
        chunk=64, change=lambda segment: segment.but(length=BLOCK)), ended),
    Row("a Read of memory that may only be written", Writing(rights=WRITE), ended),
    Row("a Read of memory that was taken back", gone, ended),
    Row("a Write into memory that may only be read", lambda client: reading_into(client, READ),
        ended),
    Row("a Write beyond the end of a region", lambda client: reading_into(client, WRITE, 64),
        ended),
    Row("a Read of memory of another domain", in_another_domain(Writing()), ended),
    Row("a Write into memory of another domain", in_another_domain(reading(BLOCK, write=BLOCK)),
        ended),
]


def reading_into(client, rights, size=BLOCK):
    """Builds a READ call that offers memory with these access rights. The memory may be shorter
    than the call states."""
    xid = client.next()
    segment = client.memory(size, rights)[1].but(length=BLOCK)
    return client.message(payload=calls.compound(xid, PATH, calls.read(0, BLOCK)), xid=xid,
                          writes=[[segment]])


ANNOUNCEMENTS = [
    Row(f"private data: {name}", null(), served(null_reply), private)
    for name, private in (
        ("none", b""), ("one byte", b"\xf6"), ("cut", PRIVATE[:7]), ("no magic", bytes(8)),
        ("version 0", PRIVATE[:4] + bytes((0, 0, 3, 3))),
        ("version 2", PRIVATE[:4] + bytes((2, 0, 3, 3))),
        ("largest sizes", PRIVATE[:4] + bytes((1, 0, 255, 255))),
        ("smallest sizes", PRIVATE[:4] + bytes((1, 0, 0, 0))),
        ("all flags", PRIVATE[:4] + bytes((1, 255, 3, 3))))
] + [
    Row("a reply of 3 KiB to a client that announced nothing", reading(3072), refused, b""),
]

GROUPS = (SIZES, VERSIONS, TYPES, CREDITS, LISTS, POSITIONS, NUMBERS, DATA, ROOM, KEYS,
          ANNOUNCEMENTS)
