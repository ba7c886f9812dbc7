# SPDX-License-Identifier: GPL-2.0
"""Tests each promise of the manual page rds-rdma(7) with the transports that are loaded.

Each promise is tested by a function. The function returns the text for the table of results: "yes",
or a description of what happened instead.
"""

import argparse

from rds import (  # type: ignore[attr-defined]
    FENCE,
    INVALIDATE,
    NOTIFY_ME,
    PAGE,
    READWRITE,
    RECVERR,
    TRANS_IB,
    USE_ONCE,
    Context,
    reachable,
)

MIB = 1 << 20
# Maximum number of regions of all programs together, as the manual page states it.
REGIONS = 2048
# The exclusive or of this number and a valid handle is a handle whose region does not exist.
WRONG = 0x5500
PROMISES = []


def context(local, peer, control):
    """Returns the two ends of a connection, in the form that the tests use."""
    return Context(argparse.Namespace(local=local, peer=peer, control=control, strict=False,
                                          tos=None, dead="10.9.0.77"))


def promise(text):
    """Returns a decorator that adds a test. `text` is the promise, as the table of results shows
    it."""
    def add(function):
        PROMISES.append((text, function))
        return function
    return add


def ask(t, first):
    """Tests each promise. Yields the text of the promise and the result of the test.

    Each test uses another type of service, and so another connection. The first test uses the type
    of service `first`.
    """
    for number, (text, function) in enumerate(PROMISES, first):
        t.options.tos = number
        yield text, function(t)
    for node in (t.a, t.b):
        node.close_all()


def error(answer, good="yes"):
    """Returns the name of the error if a call has failed, and `good` otherwise."""
    return answer["error"] if isinstance(answer, dict) else good


def status(t, cookie, size, flags, token, wait=15):
    """Returns the status of an RDMA operation with this cookie."""
    t.b.buffer("l", size, 1)
    t.rdma(cookie, size, flags, token=token)
    found = t.b.wait_status("s", token, wait)
    return found[1] if found else "no status"


@promise("RDS_CMSG_RDMA_MAP and RDS_CMSG_RDMA_ARGS: the server reads")
def reads(t):
    t.pair()
    done = t.transfer(False, 4095, MIB, USE_ONCE | INVALIDATE, FENCE)
    return "yes" if done is True else done


@promise("RDS_CMSG_RDMA_MAP and RDS_CMSG_RDMA_ARGS: the server writes")
def writes(t):
    t.pair()
    done = t.transfer(True, 17, 65521, USE_ONCE | INVALIDATE, FENCE)
    return "yes" if done is True else done


@promise("RDS_CMSG_RDMA_MAP with the first message to a peer")
def first_message(t):
    t.pair(warm=False)
    t.a.buffer("m", PAGE, 5)
    sent = t.a.send("s", t.b_addr, t.pb, "01", [{"type": "map", "buf": "m", "len": 100}])
    if isinstance(sent, dict):
        return sent["error"]
    got = t.b.recv("s", 10)
    return "yes" if got and got["cookie"] else "no cookie"


def by_handle(t, dest):
    """The client requests a handle, and sends the handle with RDS_CMSG_RDMA_DEST. The server writes
    to the client's memory."""
    t.pair()
    t.a.buffer("m", 70000, 5)
    cookie = t.a.get_mr("s", "m", 77, 60000, 0, [t.b_addr, t.pb] if dest else None)
    if isinstance(cookie, dict):
        return cookie["error"]
    t.a.send("s", t.b_addr, t.pb, "01", [{"type": "dest", "cookie": cookie}])
    if (t.b.recv("s", 10) or {}).get("cookie") != cookie:
        return "no cookie"
    if (told := status(t, cookie, 60000, READWRITE | NOTIFY_ME, 7)) != "SUCCESS":
        return told
    t.a.recv("s", 10)
    same = t.a.digest("m", 77, 60000) == t.b.digest("l", 0, 60000)
    t.a.free_mr("s", cookie, INVALIDATE)
    return "yes" if same else "the bytes differ"


@promise("RDS_GET_MR returns a handle")
def get_mr(t):
    return by_handle(t, False)


@promise("RDS_GET_MR_FOR_DEST returns a handle")
def get_mr_for_dest(t):
    return by_handle(t, True)


@promise("a handle covers the memory that was named")
def exact(t):
    for remote_off in (-1, 200):
        t.pair()
        cookie = t.offer(100, 200)
        found = reachable(t, cookie, 1, remote_off & ((1 << 64) - 1))
        if found != "REMOTE_ERROR":
            return "its pages"
    return "yes"


@promise("USE_ONCE, INVALIDATE: out of reach when the RDMA ACK is read")
def once(t):
    late, rounds = 0, 5
    for _ in range(rounds):
        t.pair()
        cookie = t.offer(0, PAGE, USE_ONCE | INVALIDATE)
        t.b.buffer("l", PAGE, 1)
        t.b.buffer("probe", PAGE, 2)
        t.rdma(cookie, 100, READWRITE | NOTIFY_ME)
        if not t.a.recv("s", 10):
            return "no ACK"
        before = t.a.digest("m", 0, PAGE)
        t.b.send("s", t.a_addr, t.pa, "02", [
            {"type": "args", "cookie": cookie, "local": [["probe", 0, PAGE]], "token": 8,
             "flags": READWRITE | NOTIFY_ME}])
        t.b.wait_status("s", 8, 10)
        late += t.a.digest("m", 0, PAGE) != before
    return f"later ({late} of {rounds} times)" if late else "yes"


@promise("RDS_FREE_MR, INVALIDATE: out of reach when it returns")
def freed(t):
    t.pair()
    cookie = t.offer(0, PAGE, 0, acked=False)
    if isinstance(done := t.a.free_mr("s", cookie, INVALIDATE), dict):
        return done["error"]
    return "yes" if reachable(t, cookie) == "REMOTE_ERROR" else "later"


@promise("RDS_RDMA_NOTIFY_ME tells how an operation ended")
def notified(t):
    t.pair()
    found = status(t, t.offer(), 100, READWRITE | NOTIFY_ME, 9)
    return "yes" if found == "SUCCESS" else found


def refused(t, size, flags, recverr=0):
    """Returns the result of an operation with a bad handle."""
    t.pair(b={"recverr": recverr})
    good = t.offer(0, MIB)
    t.b.buffer("l", size, 1)
    t.rdma(good ^ WRONG, size, flags, token=42)
    found = t.b.wait_status("s", 42, 3)
    t.a.free_mr("s", good, INVALIDATE)
    found = found or t.b.wait_status("s", 42, 15)
    told = found[1] if found else "no status"
    return "yes" if told == "REMOTE_ERROR" else told


@promise("RDS_RDMA_REMOTE_ERROR for a bad handle: one page")
def small_refused(t):
    return refused(t, 100, READWRITE | NOTIFY_ME)


@promise("RDS_RDMA_REMOTE_ERROR for a bad handle: 64 KiB")
def large_refused(t):
    return refused(t, 65536, READWRITE | NOTIFY_ME)


@promise("RDS_RECVERR alone tells why an operation failed")
def unasked(t):
    t.pair()
    if t.b.getopt("s", RECVERR) != "00000000":
        return "it is on by default"
    return refused(t, 100, READWRITE, 1)


@promise("RDS_CANCEL_SENT_TO: the status is RDS_RDMA_CANCELED")
def cancelled(t):
    t.pair()
    cookie = t.offer()
    t.b.buffer("l", PAGE, 1)
    t.b.send("s", t.options.dead, 7777, "00", [
        {"type": "args", "cookie": cookie, "token": 12, "local": [["l", 0, 100]],
         "flags": NOTIFY_ME}])
    t.b.cancel("s", t.options.dead, 7777)
    found = t.b.wait_status("s", 12, 5)
    told = found[1] if found else "no status"
    return "yes" if told == "CANCELED" else told


@promise("EINVAL for two MAPs, or MAP and DEST, in a message")
def conflicts(t):
    t.pair()
    cookie = t.offer()
    a_map, a_dest = {"type": "map", "buf": "m", "len": 100}, {"type": "dest", "cookie": cookie}
    for pair in ([a_map, a_map], [a_map, a_dest]):
        if (found := error(t.a.send("s", t.b_addr, t.pb, "aa", pair), "none")) != "EINVAL":
            return found
    return "yes"


@promise("EINVAL for memory of more than 1 MiB")
def too_large(t):
    t.pair()
    t.a.buffer("big", MIB + 2 * PAGE)
    found = error(t.a.send("s", t.b_addr, t.pb, "aa", [
        {"type": "map", "buf": "big", "len": MIB + 1}]), "no error")
    return "yes" if found == "EINVAL" else found


@promise(f"EAGAIN beyond {REGIONS} regions")
def limited(t):
    t.pair()
    t.a.buffer("m", PAGE, 1)
    a_map = {"type": "map", "buf": "m", "len": 8}
    for count in range(REGIONS + 1):
        found = error(t.a.send("s", t.b_addr, t.pb, "00", [a_map]), "no error")
        if found != "no error":
            break
        if count % 64 == 63:
            t.b.drain("s", 0.05)
    t.a.close("s")
    t.a.open("s", t.a_addr, 0, transport=TRANS_IB)
    if found == "no error":
        return found
    return "yes" if found == "EAGAIN" and count == REGIONS else f"{found}, {count} regions"
