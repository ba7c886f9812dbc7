# SPDX-License-Identifier: GPL-2.0
"""Tests of the chunk lists and the payload of a reply: sections 5.4 and 5.5 of the requirements."""

import errno

from . import rpc
from .message import Segment, filled, padded, word
from .row import (
    BAD_PAYLOAD,
    DDP_VIOLATION,
    LIST,
    READ,
    SMALL,
    Row,
    altered,
    cut,
    dropped,
    ended,
    failed,
    fields,
    ignored,
    patched,
    payload,
)

ALIEN = Segment((0x12345678, 4096, 0x1000))
# Position of the first word of each list in a message, counted in words from 0. A position is right
# only if the lists before it in the message are empty.
READ_LIST, WRITE_LIST, REPLY_CHUNK = 4, 5, 6
# Position of the segment count of the first Write chunk.
WRITE_COUNT = 6
# Position of the Reply chunk if the Write list contains one chunk with one segment.
AFTER_WRITES = 12
NFSERR_ACCES = 13


def written(change):
    """Answers a READ call, and changes the Write chunk in the header of the answer."""
    def altering(message, exchange):
        return message.but(writes=change(message.writes, exchange.call.writes))

    return altered(altering)


def lengths(change):
    """Answers a READ call, and changes the lengths of the Write chunk in the header of the answer.
    """
    return written(lambda back, offered: [
        [segment.but(length=change(segment.length, limit.length))
         for segment, limit in zip(back[0], offered[0], strict=True)]])


def replied(change):
    """Answers through the Reply chunk, and changes the chunk in the header of the answer."""
    def altering(message, exchange):
        return message.but(reply=change(message.reply, exchange.call.reply))

    return altered(altering, long=True)


def total(count):
    """Answers through the Reply chunk, and states in the header that the chunk contains `count`
    bytes."""
    return replied(lambda _, offered: filled(offered, count))


def gap(which):
    """Answers with a chunk of several segments. The header states that the first segment is not
    full although the second segment contains data."""
    def altering(message, exchange):
        offered = exchange.call.writes[0] if which == "writes" else exchange.call.reply
        back = [offered[0].but(length=offered[0].length - 4), offered[1].but(length=4),
                *filled(offered[2:], 0)]
        return message.but(**{which: [back] if which == "writes" else back})

    return altered(altering, long=which == "reply")


def inline(count, writes=None):
    """Answers a READ call with inline data although the call offers a Write chunk."""
    def altering(message, exchange):
        start, _ = rpc.item(exchange.rpc, exchange.reply)
        data = exchange.reply[start:start + count]
        body = exchange.reply[:start - 12] + word(count, 0, count) + padded(data)
        back = [filled(exchange.call.writes[0], 0)] if writes is None else writes
        return message.but(payload=body, writes=back)

    return altered(altering)


def nothing_written(exchange):
    """States that the answer is in the Reply chunk, but writes nothing to the chunk."""
    message, _ = exchange.answer(long=True)
    exchange.send(message)


def long_payload(change):
    """Writes a changed RPC message to the Reply chunk, and answers."""
    def deed(exchange):
        exchange.reply = change(exchange.reply)
        message, placed = exchange.answer(long=True)
        exchange.place(placed)
        exchange.send(message)

    return deed


def status(number):
    """Answers a READ call with an NFS error, but writes the data as for a successful call."""
    def altering(message, exchange):
        at = rpc.results(exchange.reply)
        return message.but(payload=message.payload[:at] + word(number, 0))

    return altered(altering)


def claims(count):
    """States in the RPC message that the READ call has read `count` bytes."""
    def change(octets):
        return octets[:-12] + word(count, 0, count)

    return payload(change)


def rpc_word(number, value):
    """Answers with an RPC message in which one word is changed."""
    return payload(lambda octets: octets[:4 * number] + word(value) + octets[4 * number + 4:])


CHUNK_LISTS = [
    Row("Read list", "MAL-050, MAL-115", SMALL, fields(reads=[(0, ALIEN)]), dropped("bad_chunk")),
    Row("Read list discriminator 2", "MAL-051", SMALL, patched(READ_LIST, 2),
        dropped("bad_chunk")),
    Row("Read list discriminator ffffffff", "MAL-051", READ, patched(READ_LIST, 0xffffffff),
        dropped("bad_chunk"), full=True),
    Row("Write list discriminator 2", "MAL-052", READ, patched(WRITE_LIST, 2),
        dropped("bad_chunk")),
    Row("Reply chunk discriminator 2", "MAL-053", SMALL, patched(REPLY_CHUNK, 2),
        dropped("bad_chunk")),
    *(Row(f"ends after {length} octets", "MAL-054", READ, cut(length), dropped("bad_chunk"),
          full=length != 28)
      for length in range(28, 52, 4)),
    Row("1000 segments", "MAL-055", READ, patched(WRITE_COUNT, 1000), dropped("bad_chunk")),
    Row("10000000 segments", "MAL-056", READ, patched(WRITE_COUNT, 0x10000000),
        dropped("bad_chunk")),
    Row("ffffffff segments", "MAL-056", READ, patched(WRITE_COUNT, 0xffffffff),
        dropped("bad_chunk"), full=True),
    Row("400 empty Write chunks", "MAL-057", READ, fields(writes=[[]] * 400),
        dropped("bad_chunk")),
    Row("Write list that was not offered", "MAL-058", SMALL, fields(writes=[[ALIEN]]),
        dropped("bad_chunk")),
    Row("no Write list", "MAL-059", READ,
        altered(lambda m, x: m.but(writes=[], payload=m.payload[:24] + word(NFSERR_ACCES, 0))),
        failed(errno.EACCES, "wlist_missing")),
    Row("data inline, chunk unused", "MAL-060", READ, inline(2000), DDP_VIOLATION),
    Row("data inline, chunk empty", "MAL-060", READ, inline(2000, [[]]), DDP_VIOLATION, full=True),
    Row("data inline, chunk absent", "MAL-060", READ, inline(2000, []),
        failed(errno.EIO, "ddp_violation")),
    Row("two Write chunks", "MAL-062", READ, written(lambda back, _: back * 2),
        dropped("bad_chunk")),
    Row("no segment", "MAL-063", READ,
        altered(lambda m, x: m.but(writes=[[]], payload=m.payload[:24] + word(NFSERR_ACCES, 0))),
        failed(errno.EACCES)),
    Row("a segment more", "MAL-064", READ, written(lambda back, _: [back[0] + [ALIEN]]),
        dropped("bad_chunk")),
    Row("a segment too long", "MAL-065", READ, lengths(lambda _, limit: limit + 1),
        dropped("bad_chunk")),
    Row("a segment of ffffffff octets", "MAL-065", READ, lengths(lambda *_: 0xffffffff),
        dropped("bad_chunk"), full=True),
    Row("lengths that wrap", "MAL-066", READ,
        written(lambda back, _: [[segment.but(length=0x80000000) for segment in back[0] * 2]]),
        dropped("bad_chunk"), full=True),
    Row("another handle", "MAL-068", READ,
        written(lambda back, _: [[segment.but(handle=0xdead) for segment in back[0]]]),
        ignored("seg_mismatch")),
    Row("another offset", "MAL-069", READ,
        written(lambda back, _: [[segment.but(offset=segment.offset + 8) for segment in back[0]]]),
        ignored("seg_mismatch")),
    Row("Reply chunk absent", "MAL-076", LIST, fields(reply=None), ignored("rchunk_missing")),
    Row("RDMA_MSG with a Reply chunk", "MAL-077", LIST,
        altered(lambda m, x: m.but(reply=filled(x.call.reply, 100))), dropped("bad_chunk")),
    Row("Reply chunk that was not offered", "MAL-078", SMALL, fields(reply=[ALIEN]),
        dropped("bad_chunk")),
    Row("NOMSG without chunks", "MAL-079", SMALL, fields(kind="RDMA_NOMSG", payload=b""),
        dropped("bad_chunk")),
    Row("NOMSG without a Reply chunk", "MAL-080", READ, fields(kind="RDMA_NOMSG", payload=b""),
        dropped("bad_chunk")),
    Row("empty Reply chunk", "MAL-081", LIST, total(0), dropped("bad_chunk")),
    Row("Reply chunk without segments", "MAL-081", LIST, replied(lambda *_: []),
        dropped("bad_chunk"), full=True),
    Row("Reply chunk too long", "MAL-082", LIST,
        replied(lambda _, offered: [s.but(length=s.length + 4) for s in offered]),
        dropped("bad_chunk")),
    Row("Reply chunk of 16 octets", "MAL-083", LIST, total(16), dropped("bad_chunk")),
    Row("Reply chunk of 102 octets", "MAL-084", LIST, total(102), dropped("bad_chunk")),
    Row("NOMSG with a payload", "MAL-085", LIST,
        altered(lambda m, _: m.but(payload=b"rest"), long=True), ignored("trailing")),
    Row("Reply chunk not written", "MAL-086", LIST, nothing_written, BAD_PAYLOAD),
    Row("another xid in the Reply chunk", "MAL-087", LIST,
        long_payload(lambda octets: word(0x0badbad0) + octets[4:]), BAD_PAYLOAD),
    Row("a Call in the Reply chunk", "MAL-088", LIST,
        long_payload(lambda octets: octets[:4] + word(0) + octets[8:]), BAD_PAYLOAD),
]

PAYLOAD = [
    Row("4 octets of payload", "MAL-090", SMALL, payload(lambda octets: octets[:4]),
        dropped("bad_payload_len")),
    Row("no payload", "MAL-090", READ, payload(lambda octets: b""), dropped("bad_payload_len")),
    Row("another xid in the payload", "MAL-091", SMALL, rpc_word(0, 0x0badbad0),
        dropped("xid_mismatch")),
    Row("msg_type 2", "MAL-092", SMALL, rpc_word(1, 2), dropped("bad_payload")),
    Row("16 octets of payload", "MAL-093", SMALL, payload(lambda octets: octets[:16]),
        dropped("bad_payload_len")),
    Row("payload larger than its buffer", "MAL-094", SMALL,
        payload(lambda octets: octets + b"\xee" * 3000), failed(errno.EIO)),
    Row("payload ends early", "MAL-095", READ, payload(lambda octets: octets[:40]),
        failed(errno.EIO)),
    # The RPC client treats every `reply_stat` other than MSG_ACCEPTED as MSG_DENIED. So it reads
    # the next word, which is 0, as RPC_MISMATCH.
    Row("reply_stat 7", "MAL-096", SMALL, rpc_word(2, 7), failed(errno.EPROTONOSUPPORT)),
    # The RPC client sends the call again, and makes a new connection for that.
    Row("accept_stat 99", "MAL-096", SMALL, rpc_word(5, 99), ended("retransmission")),
    Row("NFS error with data in the Write chunk", "MAL-097", READ, status(NFSERR_ACCES),
        failed(errno.EACCES)),
    # Our client does not decode NFS, so it accepts the answer. The NFS client uses the data that
    # arrived, and requests the missing data with another call.
    Row("fewer octets in the chunk than read", "MAL-071", READ,
        lengths(lambda length, _: length // 2), ignored()),
    Row("more octets read than asked for", "MAL-098", READ, claims(0x7fffffff), ignored()),
]

SEVERAL_SEGMENTS = [
    Row("a segment short of the next", "MAL-067", READ, gap("writes"), dropped("bad_chunk")),
    Row("first segment of the Reply chunk short", "MAL-089", LIST, gap("reply"),
        dropped("bad_chunk")),
    Row("two lengths that wrap", "MAL-066", READ,
        lengths(lambda *_: 0x80000000), dropped("bad_chunk")),
    Row("a segment less", "MAL-064", READ, written(lambda back, _: [back[0][:-1]]),
        dropped("bad_chunk")),
    Row("segments in another order", "MAL-068, MAL-069", READ,
        written(lambda back, _: [back[0][::-1]]), dropped("seg_mismatch")),
    Row("another handle, strict", "MAL-068", READ,
        written(lambda back, _: [[s.but(handle=s.handle ^ 1) for s in back[0]]]),
        dropped("seg_mismatch")),
    Row("another offset, strict", "MAL-069", READ,
        written(lambda back, _: [[s.but(offset=s.offset + 4) for s in back[0]]]),
        dropped("seg_mismatch")),
]
