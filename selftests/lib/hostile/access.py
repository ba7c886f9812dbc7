# SPDX-License-Identifier: GPL-2.0
"""Table rows about RDMA operations on the client's memory, remote invalidation and ends of
connections. The rows test sections 5.2, 5.6 and 5.8 of the requirements."""

import errno
import subprocess
import time

from .message import filled, word
from .row import (
    AT_ONCE,
    CROWD,
    LIST,
    READ,
    SMALL,
    TWO,
    WRITE,
    Row,
    ended,
    failed,
    fields,
    ignored,
    one_by_one,
)

NFSERR_ACCES = 13
ANY_CAUSE = "any"
# The rules below drop outgoing TCP packets without data. So the machine acknowledges incoming data
# only in packets that contain data. `BARE` is the maximum length in bytes of a packet without data:
# the IP and TCP headers with all options. `SEGMENT` is the name of the table of rules.
BARE, SEGMENT = 80, "slow"
SLOW = f"""
table inet {SEGMENT} {{
    chain out {{
        type filter hook output priority 0
        meta l4proto tcp ip daddr != 127.0.0.1 ip length <= {BARE} drop
    }}
}}
"""
SLOW_SECONDS = 1
STALE = "key of an earlier connection"


def refused(operation):
    """Performs an operation that the client's device must refuse, and then ends the connection."""
    def deed(exchange):
        segment = exchange.call.segments()[-1]
        tell(exchange, segment, operation(exchange.client, segment))
        exchange.drop()

    return deed


def tell(exchange, segment, status):
    """Logs an access and its status. Logs an error if the client's device has granted the access.
    """
    granted = "wrong: access granted: " if status == "success" else ""
    exchange.note(f"{granted}{segment}: {status}")


def beyond(client, segment):
    return client.write(segment.handle, segment.offset + segment.length, b"evil")


def across_the_end(client, segment):
    return client.write(segment.handle, segment.offset, bytes(segment.length + 4))


def in_front(client, segment):
    return client.write(segment.handle, (segment.offset - 8) % (1 << 64), b"evil")


def write(client, segment):
    return client.write(segment.handle, segment.offset, b"evil")


def read(client, segment):
    return client.read(segment.handle, segment.offset, segment.length)[0]


def neighbour(client, segment):
    return client.write(segment.handle ^ 1, segment.offset, b"evil")


def atomic(client, segment):
    return client.atomic(segment.handle, segment.offset)


def keep_and_drop(exchange):
    exchange.keep()
    exchange.drop()


def use_kept(exchange):
    """Writes to memory that was offered on an earlier connection."""
    segment = exchange.kept().call.segments()[0]
    tell(exchange, segment, exchange.client.write(segment.handle, segment.offset, b"evil"))
    exchange.drop()


def scribble(exchange):
    """Fills the Write chunk, then answers with an NFS error and returns the chunk as unused."""
    segment = exchange.call.writes[0][0]
    exchange.place([(segment, b"\xee" * segment.length)])
    message, _ = exchange.answer()
    exchange.send(message.but(writes=[filled(exchange.call.writes[0], 0)],
                              payload=message.payload[:24] + word(NFSERR_ACCES, 0)))


def before_the_send(exchange):
    _, placed = exchange.answer()
    exchange.place(placed)
    exchange.drop()


def amid_the_data(exchange):
    _, placed = exchange.answer()
    segment, data = placed[0]
    exchange.place([(segment, data[:len(data) // 2])])
    exchange.drop()


def after_the_answer(exchange):
    exchange.honest()
    exchange.client.wait(exchange.client.number)
    exchange.drop()


def drop(exchange):
    exchange.drop()


def invalidating(key):
    """Answers correctly, and invalidates the key that `key(exchange)` returns."""
    def deed(exchange):
        message, placed = exchange.answer()
        exchange.place(placed)
        exchange.send(message, invalidate=key(exchange))

    return deed


def hold(exchange):
    exchange.keep()


def answer_kept(exchange):
    """Answers an earlier call, which was not answered until now. The answer invalidates the key
    that the current call has offered."""
    other = exchange.kept()
    message, placed = other.answer()
    other.place(placed)
    other.send(message, invalidate=exchange.call.segments()[0].handle)


def bad_and_invalidating(exchange):
    message, _ = exchange.answer()
    exchange.send(message.but(vers=0), invalidate=exchange.call.segments()[0].handle)


def moved(exchange):
    """Answers the call and invalidates the call's key, but changes the offset in the returned Write
    chunk."""
    message, placed = exchange.answer()
    exchange.place(placed)
    chunk = [segment.but(offset=segment.offset ^ 1 << 40) for segment in message.writes[0]]
    exchange.send(message.but(writes=[chunk]), invalidate=own(exchange))


def read_under_way(exchange):
    """Reads the first segment of the call twice. The data of the second RDMA Read are delayed.
    During the delay, answers the call and invalidates the call's key.

    Logs how many octets of the second RDMA Read differ from those of the first RDMA Read.
    """
    segment, client = exchange.call.segments()[0], exchange.client
    _, before = client.read(segment.handle, segment.offset, segment.length)
    subprocess.run(("nft", "-f", "-"), input=SLOW, text=True, check=True)
    try:
        number = client.begin_read(segment.handle, segment.offset, segment.length)
        message, _ = exchange.answer()
        # During this pause the client begins to send the data.
        time.sleep(SLOW_SECONDS / 4)
        exchange.send(message, invalidate=segment.handle)
        time.sleep(SLOW_SECONDS)
    finally:
        subprocess.run(("nft", "delete", "table", "inet", SEGMENT), check=True)
    status, after = client.end_read(number, segment.length)
    others = sum(old != new for old, new in zip(before, after, strict=True))
    exchange.note(f"read under way: {status}: {others} of {len(after)} octets are others")


def following(xid):
    """Returns the xid of the next call of a client that increments its xids as little-endian
    numbers."""
    return int.from_bytes(((int.from_bytes(xid.to_bytes(4, "little")) + 1) % (1 << 32))
                          .to_bytes(4, "little"))


def guess(exchange, key):
    """Answers the next call before the client sends that call, and invalidates a key."""
    message, _ = exchange.answer()
    xid = following(message.xid)
    exchange.send(message.but(xid=xid, payload=word(xid) + message.payload[4:]), invalidate=key)


def early(exchange):
    """Answers correctly, and then answers the next call before the client sends that call. The next
    call may use the same region with another key.
    """
    exchange.honest()
    guess(exchange, own(exchange) ^ 1)


def guess_kept(exchange):
    guess(exchange, kept(exchange))


def own(exchange):
    return exchange.call.segments()[0].handle


def kept(exchange):
    return exchange.kept().call.segments()[0].handle


def honest_and_keep(exchange):
    exchange.keep()
    exchange.honest()


ACCESS = [
    Row("Write beyond the end", "MAL-100", READ, refused(beyond), ended(ANY_CAUSE)),
    Row("Write across the end", "MAL-100", READ,
        refused(across_the_end), ended(ANY_CAUSE), full=True),
    Row("Write in front of the chunk", "MAL-100", LIST, refused(in_front), ended(ANY_CAUSE)),
    Row("Write with another key", "MAL-100", READ, refused(neighbour), ended(ANY_CAUSE)),
    Row("Read of a Write chunk", "MAL-101", READ, refused(read), ended(ANY_CAUSE)),
    Row("Read of a Reply chunk", "MAL-101", LIST, refused(read), ended(ANY_CAUSE), full=True),
    Row("Write into a Read chunk", "MAL-102", WRITE, refused(write), ended(ANY_CAUSE)),
    Row(STALE, "MAL-105", READ, one_by_one(keep_and_drop, use_kept),
        ended(ANY_CAUSE, times=2), times=2),
    Row("atomic on a Write chunk", "MAL-107", READ, refused(atomic), ended(ANY_CAUSE)),
    Row("atomic on a Read chunk", "MAL-107", WRITE, refused(atomic), ended(ANY_CAUSE), full=True),
    Row("data written, chunk unused", "MAL-108, MAL-097", READ, scribble, failed(errno.EACCES)),
]

ENDINGS = [
    Row("ends before the call is served", "MAL-150", SMALL, drop, ended(ANY_CAUSE), stage="call"),
    Row("ends before the answer", "MAL-150", WRITE, drop, ended(ANY_CAUSE)),
    Row("ends amid the data", "MAL-108", READ, amid_the_data, ended(ANY_CAUSE)),
    Row("ends before the Send", "MAL-108", READ, before_the_send, ended(ANY_CAUSE)),
    Row("ends behind the answer", "MAL-103", READ, after_the_answer, ended(ANY_CAUSE)),
]

# Misbehaviours in which the responder does not answer a call.
SILENCE = [
    Row("never answered", "MAL-153", SMALL, hold, ended(ANY_CAUSE)),
    Row("crowd never answered", "V1-014", CROWD,
        one_by_one(*[hold] * (AT_ONCE - 1), drop, hold), ended(ANY_CAUSE, times=2),
        times=AT_ONCE + 1),
    Row("two credits, both held", "V1-013", SMALL, one_by_one(fields(credit=2), hold, hold),
        ignored(), times=3),
    Row("two credits, one held", "V1-105", SMALL, one_by_one(fields(credit=2), hold), ignored(),
        times=2),
    Row("held", "MAL-106", READ, hold, ignored()),
    Row("held list", "MAL-104", LIST, hold, ignored()),
    Row("held write", "MAL-104", WRITE, hold, ignored()),
]

INVALIDATION = [
    Row("own region invalidated, not announced", "MAL-013", READ, invalidating(own),
        ignored("reminv_unannounced")),
    Row("region of another call invalidated", "MAL-014", TWO, one_by_one(hold, answer_kept),
        ended("wrong region invalidated", "reminv_wrong"), times=2),
    # This call is answered correctly, so its region is idle when the next row begins.
    Row("call answered and kept", "MAL-015", READ,
        one_by_one(honest_and_keep), ignored()),
    Row("region of a call that is over invalidated", "MAL-015", SMALL, invalidating(kept),
        ended(ANY_CAUSE, ("reminv_wrong", (0, 1)))),
    Row("unknown region invalidated", "MAL-015", SMALL, invalidating(lambda x: 0x5eadbeef),
        ended(ANY_CAUSE, ("reminv_wrong", (0, 1)))),
    Row("own region invalidated by a bad message", "MAL-016", READ, bad_and_invalidating,
        ended("wrong region invalidated", "bad_vers", "reminv_wrong")),
    Row("next READ answered before it is sent", "MAL-015", READ, early,
        ended(ANY_CAUSE, ("reminv_wrong", (0, 1)), ("bad_xid", (0, 1)))),
    Row("next WRITE answered before it is sent", "MAL-015", WRITE, early,
        ended(ANY_CAUSE, ("reminv_wrong", (0, 1)), ("bad_xid", (0, 1)))),
]

# Each row describes a reply that invalidates a region of the client. Some of the replies prove to
# the client that its region is invalid. The others do not.
PROOFS = [
    Row("chunk moved", "MAL-013", READ, moved, ignored("seg_mismatch", "reminv_unannounced")),
    Row("own Read chunk invalidated", "MAL-013", WRITE, invalidating(own),
        ignored("reminv_unannounced")),
    Row("own Read chunk invalidated when it was sent again", "MAL-013", WRITE,
        one_by_one(keep_and_drop, invalidating(own)),
        ended(ANY_CAUSE, "reminv_unannounced"), times=2),
    Row("read under way", "MAL-013", WRITE, read_under_way, ignored("reminv_unannounced")),
    Row("next call answered with a key that was invalidated", "MAL-015", SMALL, guess_kept,
        ended("wrong region invalidated", "reminv_wrong", "bad_xid")),
]

