# SPDX-License-Identifier: GPL-2.0
"""Tables of hostile messages: messages whose Receive completes in an unusual way, and messages
whose fixed header fields are wrong. These are sections 5.2 and 5.3 of the requirements."""

import struct

from .message import word
from .row import (
    AT_ONCE,
    CROWD,
    LIST,
    READ,
    REMOTE_CHUNK,
    REMOTE_VERSION,
    SMALL,
    Row,
    before,
    dropped,
    ended,
    error,
    failed,
    fields,
    header,
    ignored,
    one_by_one,
    patched,
    payload,
    raw,
)

STRANGER = 0x5eadbeef  # an xid that no call has
MSG, NOMSG, MSGP, DONE, ERROR, OPTIONAL = range(6)
ERR_VERS, ERR_CHUNK = 1, 2
TOO_LONG = 1 << 16


def stranger(*words):
    """Returns a header with an xid that no call has."""
    return lambda exchange: header(exchange.call.but(xid=STRANGER), *words)


def of_stranger(exchange):
    """Returns an answer that is correct except for its xid, which no call has."""
    message, _ = exchange.answer()
    return message.but(xid=STRANGER, payload=word(STRANGER) + message.payload[4:])


def twice(exchange):
    exchange.honest()
    exchange.honest()


def both_at_once(exchange):
    """Sends the same answer twice, directly one after the other. The second copy arrives while the
    client invalidates the regions of the call.
    """
    message, placed = exchange.answer()
    exchange.place(placed)
    exchange.send_many(message, 2)


def with_immediate(exchange):
    message, placed = exchange.answer()
    exchange.place(placed)
    exchange.send(message, immediate=7)


def write_with_immediate(exchange):
    _, placed = exchange.answer()
    exchange.place(placed, immediate=True)


def swapped(exchange):
    """Returns an answer whose first words are little-endian."""
    octets = exchange.answer()[0].octets()
    return struct.pack("<4I", *struct.unpack_from(">4I", octets)) + octets[16:]


def flood(exchange):
    """Sends more messages than the client has posted Receives for."""
    exchange.send_many(of_stranger(exchange), 100)
    exchange.honest()


def one_credit(exchange):
    """Grants one credit with each answer, and checks that only one call arrives at a time. The
    first calls are not checked: the client may have sent them before the first grant arrived."""
    waiting = exchange.client.waiting
    if exchange.turn >= AT_ONCE and waiting:
        exchange.note(f"wrong: {1 + len(waiting)} calls with one credit")
    exchange.send(exchange.answer()[0].but(credit=1))


def guess(exchange):
    """Answers some calls before the client sends these calls. The calls wait in the client, because
    the client has only one credit and another call is in flight."""
    message, _ = exchange.answer()
    if exchange.turn == 9:
        for xid in (message.xid + n for n in range(-6, 7) if n):
            exchange.send(message.but(xid=xid, payload=word(xid) + message.payload[4:]))
    exchange.send(message.but(credit=1))


def up_and_down(exchange):
    exchange.send(exchange.answer()[0].but(credit=128 if exchange.turn % 2 else 1))


def lose(exchange):
    exchange.drop()


COMPLETIONS = [
    Row("longer than the Receive", "MAL-001", SMALL,
        payload(lambda octets: octets + bytes(TOO_LONG)), ended("any")),
    Row("no octets", "MAL-003", SMALL, before(b""), ignored("short_msg")),
    Row("3 octets", "MAL-004", SMALL, before(bytes(3)), ignored("short_msg")),
    Row("8 octets", "MAL-005", SMALL, before(lambda x: word(x.call.xid, x.call.wire)),
        ignored("short_msg")),
    Row("15 octets", "MAL-005", SMALL, before(lambda x: header(x.call, MSG)[:15]),
        ignored("short_msg")),
    Row("MSG of 16 octets", "MAL-006", SMALL, before(lambda x: header(x.call, MSG)),
        ignored("short_msg")),
    Row("NOMSG of 27 octets", "MAL-006", SMALL,
        before(lambda x: header(x.call, NOMSG, 0, 0, 0)[:27]), ignored("short_msg")),
    Row("error without its number", "MAL-007", SMALL, raw(lambda m: header(m, ERROR)),
        dropped("err_undecodable")),
    Row("ERR_CHUNK", "MAL-008, MAL-043", SMALL, error("ERR_CHUNK"), REMOTE_CHUNK),
    Row("ERR_CHUNK for a read", "MAL-108", READ, error("ERR_CHUNK"), REMOTE_CHUNK),
    Row("ERR_VERS cut off", "MAL-009", SMALL,
        raw(lambda m: header(m, ERROR, ERR_VERS, 1)), dropped("err_undecodable")),
    # The RPC client's decoder rejects this answer, and the RPC client sends the call again.
    Row("an octet too many", "MAL-010", SMALL, payload(lambda octets: octets + b"\0"),
        ended("retransmission", "odd_len")),
    Row("Send with immediate data", "MAL-011", SMALL, with_immediate, ignored("imm")),
    Row("Write with immediate data", "MAL-012", READ, write_with_immediate,
        ended("write with immediate", "imm")),
    Row("more messages than Receives", "MAL-018", SMALL, flood,
        ended("too many bad replies", ("bad_xid", (16, 100)))),
]

FIXED_HEADER = [
    Row("answers to calls that wait for a credit", "MAL-026", CROWD, guess,
        ignored(("bad_xid", 12)), times=10),
    Row("version 0", "MAL-020", SMALL, fields(vers=0), dropped("bad_vers")),
    Row("version 2", "MAL-021", SMALL, fields(vers=2), dropped("bad_vers"), protocol=1),
    Row("version ffffffff", "MAL-022", SMALL, fields(vers=0xffffffff), dropped("bad_vers")),
    Row("version swapped", "MAL-022", READ, fields(vers=0x01000000),
        dropped("bad_vers"), full=True),
    Row("ERR_VERS of version 0", "MAL-023", SMALL, error("ERR_VERS", 2, 3, vers=0),
        REMOTE_VERSION, protocol=1),
    Row("ERR_VERS of version 99", "MAL-023", READ, error("ERR_VERS", 2, 3, vers=99),
        REMOTE_VERSION, full=True, protocol=1),
    Row("unknown xid", "MAL-024", SMALL, before(of_stranger), ignored("bad_xid")),
    Row("second answer", "MAL-025", SMALL, twice, ignored("bad_xid")),
    Row("two answers at once", "MAL-027", READ, both_at_once, ignored("dup_reply|bad_xid")),
    Row("grant 0", "MAL-029", SMALL, fields(credit=0), ignored("credit_zero")),
    Row("grant ffffffff", "MAL-030", SMALL, fields(credit=0xffffffff),
        ignored("credit_clamped")),
    Row("grant 1 below what is in flight", "MAL-031", CROWD, one_credit, ignored(), times=24),
    Row("grants that go up and down", "MAL-032", CROWD, up_and_down,
        ignored(("credit_clamped", (0, 12))), times=24),
    Row("grant in an error", "MAL-033", SMALL, error("ERR_CHUNK", credit=0), REMOTE_CHUNK),
    Row("grant in a dropped message", "MAL-033", SMALL,
        before(lambda x: of_stranger(x).but(credit=0)), ignored("bad_xid")),
    Row("MSGP", "MAL-034", SMALL, patched(3, MSGP), dropped("bad_proc")),
    Row("DONE", "MAL-035", SMALL, before(lambda x: header(x.call, DONE)), ignored("bad_proc"),
        protocol=1),
    # Version two has no procedure that corresponds to RDMA_DONE.
    Row("DONE in version two", "MAL-172", SMALL, before(lambda x: header(x.call, DONE)),
        dropped("bad_proc"), protocol=2),
    Row("DONE for nobody", "MAL-035", SMALL, before(stranger(DONE)),
        ignored("bad_proc")),
    Row("procedure 5", "MAL-036", SMALL, patched(3, OPTIONAL), dropped("bad_proc"),
        protocol=1),
    Row("procedure 6", "MAL-036", SMALL, patched(3, 6), dropped("bad_proc")),
    Row("procedure ffffffff", "MAL-036", READ, patched(3, 0xffffffff),
        dropped("bad_proc"), full=True),
    Row("error for nobody", "MAL-037", SMALL, before(stranger(ERROR, ERR_CHUNK)),
        ignored("bad_xid")),
    Row("error 0", "MAL-038", SMALL, raw(lambda m: header(m, ERROR, 0)),
        dropped("err_undecodable")),
    Row("error 3", "MAL-039", SMALL, raw(lambda m: header(m, ERROR, 3)),
        dropped("err_undecodable"), protocol=1),
    Row("error ffffffff with eight words", "MAL-039", READ,
        raw(lambda m: header(m, ERROR, 0xffffffff, *range(8))),
        dropped("err_undecodable"), full=True),
    Row("ERR_VERS from 3 to 2", "MAL-040", SMALL, error("ERR_VERS", 3, 2), REMOTE_VERSION,
        protocol=1),
    Row("ERR_VERS from 1 to 1", "MAL-041", SMALL, error("ERR_VERS", 1, 1), REMOTE_VERSION,
        protocol=1),
    Row("error with trailing octets", "MAL-042", LIST,
        raw(lambda m: header(m, ERROR, ERR_CHUNK) + b"rest"),
        ignored("err_chunk", "trailing", errno=REMOTE_CHUNK.errno)),
    Row("ERR_CHUNK for a call sent again", "MAL-044", SMALL,
        one_by_one(lose, error("ERR_CHUNK")),
        ended("any", "err_chunk", errno=REMOTE_CHUNK.errno), times=2),
    Row("ERR_CHUNK for every call", "MAL-045", CROWD, error("ERR_CHUNK"),
        failed(REMOTE_CHUNK.errno, ("err_chunk", 8)), times=8),
    Row("all in host order", "MAL-046", SMALL, before(swapped), ignored("bad_vers")),
    Row("bad three times", "X-03", SMALL, fields(vers=7),
        ended("bad reply to a pending call", ("bad_vers", 3), errno=5, times=2), times=3),
]
