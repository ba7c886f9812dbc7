# SPDX-License-Identifier: GPL-2.0
"""Table rows about calls from the server to the client (callbacks). The rows test section 5.7 of
the requirements."""

from . import rpc as calls
from .message import CALL, REPLY, Message, Segment, numbers, word
from .row import READ, SMALL, Row, before, ended, header, ignored, made, one_by_one, replaced

CALLBACK, VERSION, NULL, COMPOUND = 0x40000000, 1, 0, 1
XID = 0xcb000001
ALIEN = Segment((0x12345678, 4096, 0x1000))
MSGP, ERROR = 2, 4
CREDITS = 16  # number of credits that the client grants for callbacks
SEQUENCE, RECALL_ANY = 11, 8
# `UNIX` is the number of the authentication flavour AUTH_UNIX. `NOBODY` is an AUTH_UNIX credential
# with an empty machine name and no groups.
UNIX, NOBODY = 1, bytes(20)
RETRY_UNCACHED = 10068


def rpc(xid=XID, rpcvers=2, program=CALLBACK, version=VERSION, procedure=NULL, flavor=0,
        cred=b"", kind=0):
    """Returns a Call of the callback service."""
    return word(xid, kind, rpcvers, program, version, procedure, flavor, len(cred)) + cred + \
        word(0, 0)


def call(octets=None, xid=XID, **changes):
    return Message(xid, direction=CALL,
                   payload=rpc(xid) if octets is None else octets).but(**changes)


def reverse(*args, **more):
    """Sends a Call of the callback service, and then the correct answer to the client's call."""
    return before(call(*args, **more))


def raw(message, number, value):
    """Returns a Call of the callback service with one word changed."""
    return lambda exchange: replaced(exchange.goes_with(message), number, value)


def with_pending_xid(exchange):
    return call(rpc(exchange.call.xid), xid=exchange.call.xid)


def chain(message, count):
    """Sends many Calls of the callback service without waiting for answers, and then the correct
    answer to the client's call. The client ends the connection."""
    def deed(exchange):
        exchange.send_many(made(message, exchange), count)
        exchange.honest()

    return deed


def call_and_drop(exchange):
    exchange.send(call())
    exchange.drop()


def referring(number, ours):
    """Returns a callback in slot `number` of the session. The callback refers to the client's call
    `ours`.

    The client's callback service has a single thread. The thread waits up to half a second for the
    end of the client's call, and then serves the callback even if the call has not ended.
    """
    minor, session, *refers = calls.sequence(ours)
    body = word(0, minor, 0, 2, SEQUENCE) + session + word(1, number, CREDITS - 1, 0, 1) \
        + session + word(1, *refers) + word(RECALL_ANY, 0, 1, 0)
    return call(rpc(XID + number, procedure=COMPOUND, flavor=UNIX, cred=NOBODY) + body,
                XID + number)


def replay(answer):
    """Returns whether the answer to a callback says that the session has seen the callback before.
    """
    return answer.credit == CREDITS and numbers(answer.payload, 4, 10) == (
        REPLY, 0, 0, 0, 0, RETRY_UNCACHED, 0, 2, SEQUENCE, 0) and numbers(
        answer.payload, len(answer.payload) - 8, 2) == (RECALL_ANY, RETRY_UNCACHED)


def call_back(exchange):
    for number in range(CREDITS):
        exchange.send(referring(number, exchange.kept().rpc))


def keep_and_call_back(exchange):
    exchange.keep()
    call_back(exchange)


def call_back_and_keep(exchange):
    """Sends the callbacks of `keep_and_call_back` again, on the client's second connection. The
    callbacks refer to the call that was not answered on the first connection. The client's current
    call is not answered either."""
    call_back(exchange)
    exchange.keep()


def invalidating(message):
    """Writes the data of the client's call, sends a callback that invalidates the call's region,
    and then sends the right answer."""
    def deed(exchange):
        answer, placed = exchange.answer()
        exchange.place(placed)
        exchange.send(message, invalidate=exchange.call.segments()[0].handle)
        exchange.send(answer)

    return deed


ANSWERED, REFUSED = ignored(answered=1), ignored(refused=1)

REVERSE = [
    Row("CB_NULL", "MAL-124", SMALL, reverse(), ANSWERED),
    # A client that serves callbacks quickly may never exceed its limit of callbacks in progress.
    # Such a client serves all callbacks. On the debug kernel the client served all of them in one
    # of three runs.
    Row("more calls than reverse credits", "MAL-111", SMALL, chain(call(), 200),
        ended("too many callbacks", ("bc_overflow", (1, 200)), answered=None), full=True),
    Row("call with a Read list", "MAL-112", SMALL, reverse(reads=[(60, ALIEN)]), REFUSED),
    Row("call with a Write list", "MAL-113", SMALL, reverse(writes=[[ALIEN]]), REFUSED),
    Row("call with a Reply chunk", "MAL-113", SMALL, reverse(reply=[ALIEN]), REFUSED),
    Row("long call", "MAL-114", SMALL, reverse(b"", kind="RDMA_NOMSG", reads=[(0, ALIEN)]),
        REFUSED),
    Row("call with two xids", "MAL-116", SMALL, reverse(rpc(xid=XID + 1)), REFUSED),
    Row("call of version 2", "MAL-117", SMALL, reverse(vers=2), ignored("bad_vers"),
        protocol=1),
    Row("call with broken lists", "MAL-118", SMALL, before(raw(call(), 4, 9)), REFUSED),
    Row("call of 24 octets", "MAL-119", SMALL, reverse(rpc()[:24]), ignored(answered=None)),
    Row("RPC version 3", "MAL-120", SMALL, reverse(rpc(rpcvers=3)), ANSWERED),
    Row("unknown program", "MAL-121", SMALL, reverse(rpc(program=99)), ANSWERED),
    Row("unknown version of the program", "MAL-121", SMALL, reverse(rpc(version=77)), ANSWERED),
    Row("unknown procedure", "MAL-121", SMALL, reverse(rpc(procedure=99)), ANSWERED),
    Row("call with the xid of ours", "MAL-122", SMALL, before(with_pending_xid), ANSWERED),
    Row("same xid twice", "MAL-123", SMALL, before(call(), call()), ignored(answered=2)),
    Row("call that asks for no credit", "MAL-124", SMALL, reverse(credit=0), ANSWERED),
    Row("call that asks for every credit", "MAL-124", SMALL, reverse(credit=0xffffffff),
        ANSWERED),
    Row("call that invalidates a region", "MAL-014", READ, invalidating(call()),
        ended("wrong region invalidated", "reminv_wrong")),
    Row("call with a Write list that invalidates a region", "MAL-014", READ,
        invalidating(call(writes=[[ALIEN]])), ended("wrong region invalidated", "reminv_wrong")),
    Row("MSGP as a call", "MAL-125", SMALL, before(raw(call(), 3, MSGP)), ignored("bad_proc")),
    Row("error with the xid of a call", "MAL-126", SMALL,
        before(call(), lambda x: header(x.call.but(xid=XID), ERROR, 2)),
        ignored("bad_xid", answered=1)),
    Row("reply with the xid of a call", "MAL-127, MAL-028", SMALL,
        before(call(), call(word(XID, 1, 0, 0, 0, 0), direction=REPLY)),
        ignored("bad_xid", answered=1)),
    Row("flood of garbage", "MAL-128", SMALL, chain(call(vers=9), 64),
        ended("too many bad replies", ("bad_vers", (1, 64)))),
    Row("flood of calls with broken lists", "MAL-118, MAL-128", SMALL,
        chain(raw(call(), 4, 9), 64), ended("too many bad replies", refused=None), protocol=1),
    Row("call larger than the Receive", "MAL-130", SMALL, reverse(rpc() + bytes(1 << 16)),
        ended("any")),
    Row("ends while a call is served", "MAL-132", SMALL, call_and_drop,
        ended("any", answered=None)),
    Row("call with broken credentials", "MAL-133", SMALL, reverse(rpc(flavor=99, cred=b"xxxx")),
        ANSWERED),
    Row("call with broken GSS", "MAL-133", SMALL, reverse(rpc(flavor=6, cred=b"\xff" * 20)),
        ignored(answered=None)),
    Row("call with octets behind it", "MAL-134", SMALL, reverse(rpc() + bytes(400)), ANSWERED),
    Row("COMPOUND of garbage", "MAL-134", SMALL,
        reverse(rpc(procedure=COMPOUND) + b"\xff" * 64), ignored(answered=None)),
]

AGAIN = Row("callbacks on two connections", "BC-19", SMALL,
            one_by_one(keep_and_call_back, call_back_and_keep), ignored(answered=None), times=2)

NO_BACKCHANNEL = [
    Row("call without a backchannel", "MAL-110", SMALL, reverse(), ignored("bc_disabled")),
    Row("call with chunks, without a backchannel", "MAL-110", SMALL, reverse(writes=[[ALIEN]]),
        ignored("bc_disabled")),
]
