# SPDX-License-Identifier: GPL-2.0
"""File locks: the client's processes compete with processes of the server and with each other."""

import fcntl
import os
import pathlib

from lib import faults
from lib.case import ENV, case, check, wait
from lib.wait import Clock
from lib.workers import Crew, Worker

# Time limit in seconds for a waiting client to get a lock that became free. The limit is far less
# than the half minute after which the client asks for the lock again if it gets no callback.
PROMPT_SECONDS = 8


def try_lock(fd, kind, length=0, start=0):
    """Tries to lock a file without waiting. Returns whether the lock was obtained."""
    try:
        fcntl.lockf(fd, kind | fcntl.LOCK_NB, length, start)
    except (BlockingIOError, PermissionError):
        return False
    return True


# covers: ULB-06, ULB-30: A lock of the client excludes processes on the server. A lock of a process
# on the server excludes the client. NFSv3 uses a side protocol over TCP for locks.
@case(seconds=90)
def locks_exclude_processes_of_the_server(t):
    here, there = t.directory(t.mount()).path("file")
    pathlib.Path(here).write_bytes(b"x" * 100)
    faults.end_grace(t.server)
    fd = os.open(here, os.O_RDWR)
    check(try_lock(fd, fcntl.LOCK_EX), "no lock on a free file")
    check(not t.server.call("lock", there, True), "the server's process has it as well")
    fcntl.lockf(fd, fcntl.LOCK_UN)
    check(t.server.call("lock", there, True), "the lock is still held after unlocking")
    check(not try_lock(fd, fcntl.LOCK_EX), "two owners of a lock")
    t.server.call("unlock", there)
    check(try_lock(fd, fcntl.LOCK_SH), "no shared lock")
    check(t.server.call("lock", there, False), "no second shared lock")
    check(not t.server.call("lock", there, True), "exclusive beside shared")
    t.server.call("unlock", there)
    os.close(fd)
    check(t.server.call("lock", there, True), "closing the file kept the lock")
    t.server.call("unlock", there)


# covers: Locks on ranges that do not overlap do not conflict.
@case(seconds=60)
def ranges_are_locked_apart(t):
    top = t.directory(t.mount())
    here, _ = top.path("file")
    pathlib.Path(here).write_bytes(b"x" * 1000)
    faults.end_grace(t.server)
    fd = os.open(here, os.O_RDWR)
    check(try_lock(fd, fcntl.LOCK_EX, 100, 0), "no lock on the first range")

    def other(_):
        mine = os.open(here, os.O_RDWR)
        check(not try_lock(mine, fcntl.LOCK_EX, 1, 99), "overlapping ranges")
        check(try_lock(mine, fcntl.LOCK_EX, 100, 100), "no lock on the next range")

    Worker(other).join(ENV.patience(30))
    os.close(fd)


def wait_for_lock(_, path):
    """Waits for a lock. Returns how many seconds the wait took."""
    fd, clock = os.open(path, os.O_RDWR), Clock()
    fcntl.lockf(fd, fcntl.LOCK_EX)
    return clock.seconds()


# covers: BC-21, V1-113: The server tells a waiting client when a lock is free. With NFSv3 the
# server does so by an NLM call over TCP. NFSv4.0 is not tested, because its clients poll for locks.
@case(versions=("3", "4.1", "4.2"), seconds=90)
def a_waiting_process_gets_the_lock_promptly(t):
    here, there = t.directory(t.mount()).path("file")
    pathlib.Path(here).write_bytes(b"x")
    faults.end_grace(t.server)
    check(t.server.call("lock", there, True), "the server's process got no lock")
    waiter = Worker(wait_for_lock, here)
    wait.until(lambda: "F_SETLKW" in waiting(waiter.pid) or "lock" in waiting(waiter.pid),
               ENV.patience(20), f"the waiter waits (it is at {waiting(waiter.pid)!r})")
    clock = Clock()
    t.server.call("unlock", there)
    waiter.join(ENV.patience(25))
    t.note(f"granted after {clock.seconds():.2f} s")
    check(clock.seconds() < PROMPT_SECONDS, f"granted after {clock.seconds():.1f} s only")


def waiting(pid):
    """Returns the present kernel stack of a process, or no text if the stack cannot be read."""
    try:
        return pathlib.Path(f"/proc/{pid}/stack").read_text()
    except OSError:
        return ""


def count_up(_, path, turns):
    """Increments a number in a file, under a lock each time."""
    fd = os.open(path, os.O_RDWR)
    for _ in range(turns):
        fcntl.lockf(fd, fcntl.LOCK_EX)
        value = int(os.pread(fd, 20, 0))
        os.pwrite(fd, f"{value + 1:<20}".encode(), 0)
        os.fsync(fd)
        fcntl.lockf(fd, fcntl.LOCK_UN)
    os.close(fd)


# covers: Three processes increment a number in a file under a lock. No increment is lost.
@case(seconds=90)
def locked_increments_are_not_lost(t):
    here, there = t.directory(t.mount()).path("number")
    pathlib.Path(here).write_bytes(b"0".ljust(20))
    faults.end_grace(t.server)
    turns = ENV.pick(small=25, full=500, debug=6)
    with Crew(ENV.patience(80)) as crew:
        for _ in range(3):
            crew.start(count_up, here, turns)
    t.server.expect(there, f"{3 * turns:<20}".encode())
