# SPDX-License-Identifier: GPL-2.0
"""Tables of misbehaviours in features that only version two has: negotiation, direction and
options. Each row describes one misbehaviour. See section 5.9 of the requirements.
"""

import errno

from .headers import ERROR, MSG, NOMSG, OPTIONAL, STRANGER, twice
from .message import CALL, REPLY, Message, word
from .reverse import XID, call
from .reverse import raw as call_with_word
from .row import (
    PROBE,
    REMOTE_CHUNK,
    SMALL,
    Row,
    altered,
    before,
    dropped,
    ended,
    error,
    failed,
    fields,
    header,
    ignored,
    patched,
    payload,
    raw,
)

UNKNOWN = 0xff01        # number of an option that is not defined
INFORMATION = b"hello"  # information of an option, whose length needs padding
WRAPS = 0xfffffffd      # a length that exceeds 32 bits together with its padding
# Error numbers of version two.
ERR_VERS, BAD_HEADER, INVAL_OPTION = 1, 2, 3
MESSAGES = 100          # number of messages in a flood
CALLERS = 4             # number of callers whose calls are held
OLD_RANGE, NEW_RANGE, BOTH = (1, 1), (3, 9), (1, 2)


# The next functions return RDMA_OPTIONAL messages or send them.

def option(xid=STRANGER, **changes):
    """Returns a message with an option that is not defined."""
    return Message(xid, kind="RDMA_OPTIONAL", direction=CALL,
                   option=(UNKNOWN, INFORMATION)).but(**changes)


def option_with_reply(exchange):
    """Returns an option whose payload is the correct answer to a call."""
    return option(exchange.call.xid, payload=exchange.answer()[0].payload)


def option_of_length(length, direction=CALL, xid=STRANGER):
    """Returns a function that builds an option. The option's header states that the information of
    the option has `length` bytes."""
    return lambda exchange: header(exchange.call.but(xid=xid), OPTIONAL, direction, UNKNOWN,
                                   length) + INFORMATION + bytes(3)


def option_padded_oddly(exchange):
    octets = exchange.goes_with(option()).octets()
    return octets[:-3] + b"\xff\xff\xff"


def error_for(xid, number):
    """Returns a function that builds an error message."""
    return lambda exchange: header(exchange.call.but(xid=xid), ERROR, number)


def as_call(exchange):
    """Returns the correct answer, but with the direction of a Call."""
    return exchange.answer()[0].but(direction=CALL)


def flood_of_broken_calls(exchange):
    exchange.send_many(call_with_word(call(), 4, 9)(exchange), MESSAGES)
    exchange.honest()


def short(procedure, length):
    """Sends only the first bytes of a message whose chunk lists are empty, and then the correct
    answer."""
    return before(lambda x: header(x.call, procedure, REPLY, 0, 0, 0)[:length])


def version_one(message, _):
    """Returns the correct answer, but in version one."""
    return message.but(wire=1)


def flood(exchange):
    """Sends options without a pause, faster than the client can refuse them. Then sends the correct
    Reply."""
    exchange.send_many(option(), MESSAGES)
    exchange.honest()


def large_first(exchange):
    """Answers the version probe correctly, and then sends a long Reply with an xid for which no
    call waits."""
    exchange.honest()
    message, _ = exchange.answer()
    rest = (word(STRANGER) + message.payload[4:]).ljust(LARGE, b"\0")
    exchange.send(message.but(xid=STRANGER, payload=rest))


LARGE = 4096 - 32  # length of an RPC message that fills a whole transport message

REFUSED_OPTION = ignored(refused=1, refusal="ERR_OPTION")
REFUSED = ignored(refused=1)

VERSION_TWO = [
    Row("direction 2", "MAL-166", SMALL, fields(direction=2), dropped("bad_direction")),
    Row("direction ffffffff", "MAL-166", SMALL, fields(direction=0xffffffff),
        dropped("bad_direction"), full=True),
    Row("a Call as a Reply", "MAL-168", SMALL, before(call(direction=REPLY)),
        ignored("bad_direction")),
    Row("a Call as the Reply to ours", "MAL-168", SMALL,
        payload(lambda octets: octets[:4] + word(CALL) + octets[8:]), dropped("bad_direction")),
    Row("RDMA2_MSG without payload", "MAL-170", SMALL, payload(lambda octets: b""),
        dropped("bad_payload_len")),
    Row("RDMA2_NOMSG without lists", "MAL-171", SMALL, fields(kind="RDMA_NOMSG", payload=b""),
        dropped("bad_chunk")),
    Row("procedure 2 of version two", "MAL-172", SMALL, patched(3, 2), dropped("bad_proc")),
    Row("procedure 3 of version two", "MAL-172", SMALL, patched(3, 3), dropped("bad_proc")),
    Row("procedure 6 of version two", "MAL-173", SMALL, patched(3, 6), dropped("bad_proc")),
    Row("error 0 of version two", "MAL-174", SMALL, raw(lambda m: header(m, ERROR, 0)),
        dropped("err_undecodable")),
    Row("error 4 of version two", "MAL-174", SMALL, raw(lambda m: header(m, ERROR, 4)),
        dropped("err_undecodable")),
    Row("BAD_HEADER", "MAL-175", SMALL, error("ERR_CHUNK"), REMOTE_CHUNK),
    Row("INVAL_OPTION for a call", "MAL-177", SMALL, error("ERR_OPTION"),
        failed(errno.EREMOTEIO, "err_inval_option")),
    Row("unknown option", "MAL-178, MAL-192", SMALL, before(option(credit=0)), REFUSED_OPTION),
    Row("unknown option that grants much", "MAL-192", SMALL, before(option(credit=0xffffffff)),
        REFUSED_OPTION),
    # The dropped message has the xid of a call, so the call is sent again.
    Row("option that answers", "MAL-179", SMALL,
        altered(lambda m, _: option(m.xid, direction=REPLY)), dropped("opt_reply")),
    Row("option that answers nobody", "MAL-179", SMALL, before(option(direction=REPLY)),
        ignored("opt_reply")),
    Row("information beyond the end", "MAL-180", SMALL, before(option_of_length(9)), REFUSED),
    Row("information beyond the end of an answer", "MAL-180", SMALL,
        before(option_of_length(9, REPLY)), ignored("bad_chunk")),
    Row("information whose length wraps", "MAL-181", SMALL, before(option_of_length(WRAPS)),
        REFUSED),
    Row("information of an answer whose length wraps", "MAL-181", SMALL,
        before(option_of_length(WRAPS, REPLY)), ignored("bad_chunk")),
    Row("direction 2 of an option", "MAL-182", SMALL, before(option(direction=2)),
        ignored("bad_direction")),
    # The number of options that the client refuses is not checked, because a fast client may refuse
    # every option before the connection ends.
    Row("flood of options", "MAL-184", SMALL, flood,
        ended("any", ("opt_flood", (1, MESSAGES)), refused=None, refusal="ERR_OPTION")),
    Row("error for the client's error", "MAL-185", SMALL,
        before(option(), error_for(STRANGER, BAD_HEADER)),
        ignored("bad_xid", refused=1, refusal="ERR_OPTION")),
    *(Row(f"{name} of {length} bytes", "MAL-187", SMALL, short(kind, length),
          ignored("short_msg"), full=length in (29, 30))
      for kind, name in ((MSG, "RDMA2_MSG"), (NOMSG, "RDMA2_NOMSG")) for length in range(28, 32)),
    Row("a Reply of version one", "MAL-188", SMALL, altered(version_one), dropped("bad_vers")),
    Row("option with the Reply behind it", "MAL-189", SMALL, before(option_with_reply),
        REFUSED_OPTION),
    Row("padding that is not zero", "MAL-190", SMALL, before(option_padded_oddly),
        REFUSED_OPTION),
    # The error means that the peer has changed its version. The client sends the call again, in a
    # version that the peer now supports.
    Row("ERR_VERS for a call", "MAL-023", SMALL, error("ERR_VERS", *OLD_RANGE),
        ended("any", "err_vers")),
]

# The misbehaviours in the next rows need a backchannel.
REVERSE_TWO = [
    Row("call with the direction of a Reply", "MAL-168", SMALL, before(call(direction=REPLY)),
        ignored("bad_direction")),
    Row("a Reply as a Call", "MAL-167", SMALL, before(as_call), ignored("bad_direction")),
    # The client refuses callbacks with broken lists, and counts each of them as a dropped message.
    # The client ends the connection when it has dropped too many messages.
    Row("flood of calls with broken lists, version two", "MAL-118, MAL-184", SMALL,
        flood_of_broken_calls,
        ended("any", ("opt_flood", (0, MESSAGES)), refused=None)),
    Row("call without payload", "MAL-170", SMALL, before(call(b"")), REFUSED),
    Row("long call without lists", "MAL-171", SMALL, before(call(b"", kind="RDMA_NOMSG")),
        REFUSED),
    Row("call of version one", "MAL-188", SMALL, before(call(wire=1)), ignored("bad_vers")),
    Row("call of procedure 6", "MAL-173", SMALL, before(call_with_word(call(), 3, 6)),
        ignored("bad_proc")),
    Row("option with the xid of a call", "MAL-178", SMALL, before(call(), option(XID)),
        ignored(answered=1, refused=1, refusal="ERR_OPTION")),
]


# The next functions and rows are about answers to the client's version probe.

def swallow(exchange):
    """Leaves the version probe without an answer."""


def hold(exchange):
    exchange.keep()


def drop(exchange):
    exchange.drop()


def refuse_and_drop(exchange):
    """Answers the version probe with an error which says that only version one is supported. Then
    ends the connection."""
    exchange.send(Message(exchange.call.xid, kind="RDMA_ERROR", error=("ERR_VERS", *OLD_RANGE)))
    exchange.client.wait(exchange.client.number)
    exchange.drop()


def answer_and_refuse(exchange):
    exchange.honest()
    exchange.send(Message(exchange.call.xid, kind="RDMA_ERROR", error=("ERR_VERS", *OLD_RANGE)))


NEGOTIATION = [
    Row("probe refused in version one", "MAL-160", PROBE,
        error("ERR_VERS", *OLD_RANGE, wire=1), ignored("err_vers")),
    Row("probe refused in version two", "MAL-160", PROBE, error("ERR_VERS", *OLD_RANGE),
        ignored("err_vers")),
    Row("probe refused, both versions spoken", "MAL-162", PROBE, error("ERR_VERS", *BOTH),
        ignored("err_vers")),
    Row("probe answered in version one", "MAL-163", PROBE, altered(version_one),
        ended("any", "bad_vers")),
    Row("probe refused, and the connection ended", "MAL-164", PROBE, refuse_and_drop,
        ended("any", "err_vers")),
    Row("connection ended instead of an answer to the probe", "MAL-165", PROBE, drop,
        ended("any")),
    Row("probe swallowed", "MAL-165", PROBE, swallow, ended("any")),
    Row("probe held", "V2-05", PROBE, hold, ignored()),
    Row("option before the answer to the probe", "MAL-183", PROBE, before(option()),
        REFUSED_OPTION),
    Row("long message behind the answer to the probe", "V2-10", PROBE, large_first,
        ignored("bad_xid")),
    Row("probe answered twice", "V2-12, V2-30", PROBE, twice, ignored("bad_xid")),
    Row("probe answered and refused", "V2-12, V2-30", PROBE, answer_and_refuse,
        ignored("bad_xid")),
]
CALLS_HELD = [Row("calls held", "V2-34", SMALL, hold, ignored(), times=CALLERS)]
# Answers that refuse the version probe. After each of these answers the two ends have no version in
# common.
NOTHING_IN_COMMON = [
    Row("probe refused, later versions only", "MAL-161", PROBE, error("ERR_VERS", *NEW_RANGE),
        failed(errno.EPROTONOSUPPORT), times=50),
    Row("probe refused, version two spoken", "MAL-162", PROBE, error("ERR_VERS", 2, 2),
        failed(errno.EPROTONOSUPPORT), times=50),
]
