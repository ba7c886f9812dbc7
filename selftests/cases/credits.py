# SPDX-License-Identifier: GPL-2.0
"""Credits. The tests send more requests than the server grants, use small grants, and check that a
connection starts with one credit."""

import contextlib
import os

from lib import faults, pattern, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait
from lib.workers import together

KIB = 1 << 10
BLOCK = 4 * KIB
THREADS = 200  # number of threads: more than any server grants credits by default
CALLBACKS = 16  # number of credits that our client grants the server


def read_and_write(top, number, threads, turns):
    """Makes direct transfers at offsets that no other thread uses. Each of many threads runs this
    function.
    """
    fd = os.open(f"{top.here}/file", os.O_RDWR | os.O_DIRECT)
    buffer = Buffer(BLOCK)
    for turn in range(turns):
        offset = (turn * threads + number) * BLOCK
        buffer.write(fd, pattern.data(1, offset, BLOCK, 1), offset)
        found = buffer.read(fd, BLOCK, offset)
        problem = pattern.difference(found, pattern.data(1, offset, BLOCK, 1), offset)
        check(problem is None, f"thread {number}: {problem}")
    os.close(fd)


def crowd(t, mount, threads, turns, watch=lambda: None):
    """Makes many threads write and read one file. Then compares the file on the server with the
    written data."""
    top = t.directory(mount)
    here, there = top.path("file")
    os.close(os.open(here, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644))
    together(threads, lambda number: read_and_write(top, number, threads, turns), watch)
    t.server.expect(there, pattern.data(1, 0, threads * turns * BLOCK, 1))


class Watch:
    """Records the maximum number of requests in flight, and checks that the number never exceeds
    the grant."""

    def __init__(self):
        self.most, self.window, self.waiting = 0, 0, 0

    def __call__(self):
        for directory in xprt.directories():
            numbers = xprt.info(directory)
            if "cur_cong" not in numbers:
                continue  # The transport is not connected, so it has no window.
            self.most = max(self.most, numbers["cur_cong"] // xprt.CREDIT)
            self.window = max(self.window, numbers["cong_win"] // xprt.CREDIT)
            self.waiting = max(self.waiting, numbers["sending_q_len"]
                               + numbers["backlog_q_len"])
            # The window may become smaller than the number of requests in flight. Therefore the
            # test compares this number with the largest window that was seen.
            check(self.most <= self.window,
                  f"{self.most} requests in flight, at most {self.window} granted")


# covers: V1-011, V1-012, V1-013, V1-018, V1-021: The client uses all credits, never exceeds them,
# and always has enough Receives. The server's disk is frozen, so that calls accumulate.
@case(versions=("3",), seconds=100)
def all_credits_are_used_and_none_exceeded(t):
    mount, watch = t.mount("noac", export=ENV.disk), Watch()
    top = t.directory(mount, "many")
    t.server.call("create", top.there, THREADS, "f")
    crowd(t, mount, 40, ENV.pick(small=4, full=50, debug=2), watch)
    check(watch.window >= 64, f"the server grants only {watch.window}")

    def change(number):
        for turn in range(ENV.pick(small=2, full=50, debug=1)):
            os.chmod(f"{top.here}/f{number}", 0o600 + turn % 8)

    def all_used():
        watch()
        return watch.most == watch.window and watch.waiting > 0

    # The server's disk stays frozen until every credit is used and a call waits for a credit.
    with contextlib.ExitStack() as still:
        still.enter_context(faults.frozen(t.server))
        watch.waiting = 0
        def move():
            wait.until(all_used, ENV.patience(40), "all credits used, and calls that wait")
            still.close()

        together(THREADS, change, watch, move)
    t.note(f"at most {watch.most} in flight of {watch.window} granted")
    equal(watch.most, watch.window, "requests in flight at most")
    found = mount.xprts()[0]
    equal(found["connect_count"], 1, "connections")
    equal(found["bad_xids"], 0, "replies to nobody")


# covers: V1-014, V1-016, V1-023: Everything works with four credits. After a disconnect the client
# sends one call and waits for its reply before it sends more.
@case(seconds=120, slow=True)
def four_credits_are_enough(t):
    faults.grant(t, 4)
    mount, watch = t.mount(), Watch()
    crowd(t, mount, 20, ENV.pick(small=10, full=200, debug=4), watch)
    xprt.force_disconnect()
    crowd(t, mount, 20, ENV.pick(small=5, full=100, debug=2), watch)
    t.note(f"at most {watch.most} in flight of {watch.window} granted, {watch.waiting} waiting")
    check(watch.window <= 4, f"window {watch.window} although the server grants 4")
    if ENV.ours:
        equal(mount.connects(), 2, "connections, of which one was broken here")
    # The file system is unmounted before the server's former number of credits is restored.
    mount.remove()


# covers: V1-130, V1-024, CM-08, CM-09, CM-11: The client works with servers whose inline thresholds
# differ from its own.
@case(seconds=120, slow=True)
def servers_with_other_message_sizes(t):
    for size in (65536, 8192):
        faults.take_messages_of(t, size)
        mount = t.mount()
        crowd(t, mount, 4, ENV.pick(small=4, full=50, debug=2))
        here, there = t.directory(mount).path("odd")
        fd, buffer, at = os.open(here, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644), \
            Buffer(128 * KIB), 0
        for length in (1, 900, 1001, 3900, 4097, 8003, 65000, 70001):
            buffer.write(fd, pattern.data(2, at, length), at, 1)
            found = buffer.read(fd, length, at, 3)
            problem = pattern.difference(found, pattern.data(2, at, length), at)
            check(problem is None, f"messages of {size}: {problem}")
            at += length
        os.close(fd)
        t.server.expect(there, pattern.data(2, 0, at))
        mount.remove()


# covers: V1-011, V1-018, BC-04: A Receive is posted for every message that may arrive: one for each
# credit that the client requests, one for each credit that it grants, and one more. The additional
# Receive is needed while the client handles a message, because the server may already use that
# message's credit for another message.
@case(versions=("3",), clients=("ours",), seconds=30)
def every_message_finds_a_receive(t):
    mount = t.mount("noac")
    top = t.directory(mount)
    t.server.call("create", top.there, 1, "f")
    fewest = None
    # Receives are posted again in batches of at most 32, and each call uses one Receive. So during
    # 64 calls the number of posted Receives reaches its minimum. A sample is taken after each call,
    # so one of the samples is this minimum.
    for _ in range(64):
        os.stat(f"{top.here}/f0")
        posted = xprt.numbers_of("state", "receives posted")[0]
        fewest = posted if fewest is None else min(fewest, posted)
    requested = xprt.numbers_of("state", "credits")[0]
    t.note(f"at least {fewest} receives posted, {requested} credits requested")
    check(fewest > requested + CALLBACKS,
          f"{fewest} receives for {requested} replies and {CALLBACKS} callbacks")
    equal(mount.connects(), 1, "connections")


# covers: V1-113: Each sender that waits for space in the send queue gets space. The test sends more
# messages than the queue holds. The server's acknowledgements are delayed, so that sent messages
# stay in the queue.
@case(versions=("3",), clients=("ours",), seconds=60)
def a_full_send_queue_drains(t):
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    size, threads, turns = 3000, 60, ENV.pick(small=6, full=60, debug=2)
    fds = [os.open(here, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644) for _ in range(threads)]

    def write(number):
        buffer = Buffer(size)
        for turn in range(turns):
            offset = (turn * threads + number) * size
            buffer.write(fds[number], pattern.data(3, offset, size), offset)

    def full():
        return mount.xprts()[0]["empty_sendctx_q"]

    for milliseconds in faults.held_back(t, full):
        together(threads, write)
        t.note(f"{milliseconds} ms late: the send queue was full {full()} times")
    for fd in fds:
        os.close(fd)
    t.server.expect(there, pattern.data(3, 0, threads * turns * size))
    check(full() > 0, "the send queue was never full")
    equal(mount.connects(), 1, "connections")
