# SPDX-License-Identifier: GPL-2.0
"""Credits: more requests than the server grants, few credits, one at the start."""

import os
import threading

from lib import faults, pattern, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait

KIB = 1 << 10
BLOCK = 4 * KIB
THREADS = 200  # more than any server grants by default


def read_and_write(top, number, threads, turns):
    """One of many threads: direct transfers at places of its own."""
    fd = os.open(f"{top.here}/file", os.O_RDWR | os.O_DIRECT)
    buffer = Buffer(BLOCK)
    for turn in range(turns):
        offset = (turn * threads + number) * BLOCK
        buffer.write(fd, pattern.data(1, offset, BLOCK, 1), offset)
        found = buffer.read(fd, BLOCK, offset)
        problem = pattern.difference(found, pattern.data(1, offset, BLOCK, 1), offset)
        check(problem is None, f"thread {number}: {problem}")
    os.close(fd)


def together(count, work, watch=lambda: None):
    """Run `work(number)` in many threads; `watch` is called while they work."""
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # noqa: B036: passed on below
            failures.append(error)

    crew = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(count)]
    for thread in crew:
        thread.start()

    def over():
        watch()
        return not any(thread.is_alive() for thread in crew)

    wait.until(over, ENV.patience(ENV.pick(small=80, full=1200)), "all threads done")
    if failures:
        raise failures[0]


def crowd(t, mount, threads, turns, watch=lambda: None):
    """Many threads write and read one file, then compare it with the server's."""
    top = t.directory(mount)
    here, there = top.path("file")
    os.close(os.open(here, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644))
    together(threads, lambda number: read_and_write(top, number, threads, turns), watch)
    t.server.expect(there, pattern.data(1, 0, threads * turns * BLOCK, 1))


class Watch:
    """The most requests seen in flight, and whether they kept to the grant."""

    def __init__(self):
        self.most, self.window, self.waiting = 0, 0, 0

    def __call__(self):
        for directory in xprt.directories():
            numbers = xprt.info(directory)
            self.most = max(self.most, numbers["cur_cong"] // xprt.CREDIT)
            self.window = max(self.window, numbers["cong_win"] // xprt.CREDIT)
            self.waiting = max(self.waiting, numbers["sending_q_len"]
                               + numbers["backlog_q_len"])
            # The window may shrink under requests that are in flight already,
            # so only the largest window that was seen is a bound.
            check(self.most <= self.window,
                  f"{self.most} requests in flight, at most {self.window} granted")


# covers: V1-011, V1-012, V1-013, V1-018, V1-021: all credits used, none exceeded,
# no receive missing.  The server's answers are held back, so that calls pile up.
@case(versions=("3",), seconds=100)
def all_credits_are_used_and_none_exceeded(t):
    mount, watch = t.mount("noac"), Watch()
    top = t.directory(mount, "many")
    t.server.call("create", top.there, THREADS, "f")
    crowd(t, mount, 40, ENV.pick(small=4, full=50, debug=2))
    # Long enough for a slow client to send everything that it may before the first answer.
    faults.delay(t.server, ENV.pick(small=100, full=100, debug=300))
    t.defer(faults.no_delay, t.server)

    def look(number):
        for _ in range(ENV.pick(small=8, full=100, debug=3)):
            os.stat(f"{top.here}/f{number}")

    together(THREADS, look, watch)
    t.note(f"at most {watch.most} in flight of {watch.window} granted, {watch.waiting} waiting")
    check(watch.window >= 64, f"the server grants only {watch.window}")
    check(watch.most >= watch.window * 3 // 4,
          f"at most {watch.most} requests in flight of {watch.window} granted")
    check(watch.waiting > 0, "no request ever waited for a credit")
    found = mount.xprts()[0]
    equal(found["connect_count"], 1, "connections")
    equal(found["bad_xids"], 0, "replies to nobody")


# covers: V1-014, V1-016, V1-023: with four credits everything still works, and
# after a disconnect the first call goes alone.
@case(seconds=120)
def four_credits_are_enough(t):
    faults.grant(t, 4)
    mount, watch = t.mount(), Watch()
    crowd(t, mount, 20, ENV.pick(small=10, full=200, debug=4), watch)
    xprt.force_disconnect()
    crowd(t, mount, 20, ENV.pick(small=5, full=100, debug=2), watch)
    t.note(f"at most {watch.most} in flight of {watch.window} granted, {watch.waiting} waiting")
    check(watch.window <= 4, f"window {watch.window} although the server grants 4")
    # Unmounted before the server's old number comes back.
    mount.remove()


# covers: V1-130, V1-024, CM-08, CM-09, CM-11: thresholds that differ from ours.
@case(seconds=120)
def servers_with_other_message_sizes(t):
    sizes = "/proc/sys/sunrpc/svc_rdma/max_req_size"
    before = t.server.call("text", sizes).split()[0]

    def restore():
        t.server.call("text", sizes, before)
        faults.restart_nfsd(t.server)

    t.defer(restore)
    for size in ("65536", "8192"):
        t.server.call("text", sizes, size)
        faults.restart_nfsd(t.server)
        faults.end_grace(t.server)
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
