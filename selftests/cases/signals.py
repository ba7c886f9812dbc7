# SPDX-License-Identifier: GPL-2.0
"""Processes that are killed and servers that stay silent: memory comes back,
others are not disturbed, soft mounts fail and hard ones wait."""

import errno
import os
import time

from lib import faults, module, mounts, pattern, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, wait
from lib.workers import Worker

KIB, MIB = 1 << 10, 1 << 20
BLOCK, BLOCKS = 512 * KIB, 8


def write_for_ever(_, path, number):
    """Direct writes of large blocks, each of the next generation."""
    fd, buffer, generation = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644), \
        Buffer(BLOCK), 0
    while True:
        generation += 1
        for at in range(0, BLOCK * BLOCKS, BLOCK):
            buffer.write(fd, pattern.data(number, at, BLOCK, generation % 4), at)


def read_for_ever(_, path, number):
    """Direct reads of large blocks, compared."""
    fd, buffer = os.open(path, os.O_RDONLY | os.O_DIRECT), Buffer(BLOCK)
    expected = [pattern.data(number, at, BLOCK, 5) for at in range(0, BLOCK * BLOCKS, BLOCK)]
    while True:
        for at, data in enumerate(expected):
            found = buffer.read(fd, BLOCK, at * BLOCK, 77)
            problem = pattern.difference(found, data, at * BLOCK)
            check(problem is None, problem)


def read_until(stopped, path, number):
    """The bystander: the same, until told to stop; how many blocks."""
    fd, buffer, turns = os.open(path, os.O_RDONLY | os.O_DIRECT), Buffer(BLOCK), 0
    while not stopped():
        at = turns % BLOCKS * BLOCK
        problem = pattern.difference(buffer.read(fd, BLOCK, at, 5),
                                     pattern.data(number, at, BLOCK, 5), at)
        check(problem is None, f"bystander: {problem}")
        turns += 1
    os.close(fd)
    return turns


# covers: V1-105, V1-113, MAL-104, RDS-38: a killed process leaves no region that
# the server could still write to, and no slot; what it wrote is whole records.
@case(seconds=120, full_seconds=1200)
def killed_readers_and_writers_harm_nobody(t):
    before = module.resources()
    mount = t.mount()
    top = t.directory(mount)
    t.server.write(f"{top.there}/read", pattern.data(50, 0, BLOCK * BLOCKS, 5))
    bystander = Worker(read_until, f"{top.here}/read", 50)
    for turn in range(ENV.pick(small=12, full=300, debug=3)):
        victims = [Worker(write_for_ever, f"{top.here}/write", 51),
                   Worker(read_for_ever, f"{top.here}/read", 50)]
        # At a random moment in the middle of their transfers.
        sent, more = mount.xprts()[0]["sends"], t.random.randrange(3, 40)
        wait.until(lambda s=sent, m=more: mount.xprts()[0]["sends"] > s + m,
                   ENV.patience(30), "transfers under way")
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.join(ENV.patience(30), killed=True)
        check(not bystander.ended(), f"the bystander ended in round {turn}")
    turns = int(bystander.join(ENV.patience(30)))
    check(turns > 0, "the bystander got nothing")
    found = t.server.read(f"{top.there}/write", 0, BLOCK)
    problem = pattern.generations(found, 51, 0, {None, 0, 1, 2, 3})
    check(problem is None, f"what killed writers wrote: {problem}")
    mount.remove()
    xprt.wait_gone()
    module.wait_resources(before)


# covers: V1-097, peer.md 1.4: a soft mount gives up in a bounded time.
@case(seconds=200)
def soft_mount_fails_when_the_server_is_silent(t):
    mount = t.mount("soft,timeo=50,retrans=1")
    here, there = t.directory(mount).path("file")
    t.server.write(there, b"x" * 5000)
    fd, buffer = os.open(here, os.O_RDWR | os.O_DIRECT), Buffer(8 * KIB)
    buffer.read(fd, 5000, 0)
    faults.silence(t.server)
    t.defer(faults.speak, t.server)
    clock = wait.Clock()
    for action in (lambda: buffer.read(fd, 5000, 0), lambda: buffer.write(fd, b"y" * 5000, 0)):
        try:
            action()
        except OSError as error:
            check(error.errno in (errno.EIO, errno.ETIMEDOUT), f"{error}")
        else:
            raise AssertionError("data from a silent server")
    t.note(f"gave up after {clock.seconds():.1f} s")
    check(clock.seconds() < ENV.patience(120), f"gave up after {clock.seconds():.0f} s only")
    faults.speak(t.server)
    # The mount itself is not lost.
    wait.until(lambda: answers(fd, buffer), ENV.patience(60), "an answer again")
    os.close(fd)


def answers(fd, buffer):
    """Whether a read works."""
    try:
        return len(buffer.read(fd, 5000, 0)) == 5000
    except OSError:
        return False


# covers: V1-105: a process that waits for a silent server can be killed at once.
@case(seconds=120)
def a_waiting_process_can_be_killed(t):
    mount = t.mount()
    top = t.directory(mount)
    t.server.write(f"{top.there}/read", pattern.data(50, 0, BLOCK * BLOCKS, 5))
    victims = [Worker(write_for_ever, f"{top.here}/write", 52),
               Worker(read_for_ever, f"{top.here}/read", 50)]
    start = mount.xprts()[0]["sends"]
    wait.until(lambda: mount.xprts()[0]["sends"] > start + 5, 30, "transfers under way")
    faults.silence(t.server)
    t.defer(faults.speak, t.server)
    quiet_since = time.monotonic()
    last = [mount.xprts()[0]["recvs"]]

    def quiet():
        nonlocal quiet_since
        now = mount.xprts()[0]["recvs"]
        if now != last[0]:
            last[0], quiet_since = now, time.monotonic()
        return time.monotonic() - quiet_since > 1

    wait.until(quiet, ENV.patience(20), "nothing comes in any more")
    clock = wait.Clock()
    for victim in victims:
        victim.kill()
        victim.join(ENV.patience(30), killed=True)
    t.note(f"ended after {clock.seconds():.1f} s")
    check(clock.seconds() < ENV.patience(20), f"ended after {clock.seconds():.0f} s only")
    faults.speak(t.server)
    wait.until(lambda: os.statvfs(mount.where), ENV.patience(90), "an answer again")


# covers: umount -f of a dead server ends what waits, with an error.
@case(seconds=150)
def forced_unmount_of_a_silent_server_ends(t):
    before = module.resources()
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    t.server.write(there, pattern.data(50, 0, BLOCK * BLOCKS, 5))
    victim = Worker(read_for_ever, here, 50)
    start = mount.xprts()[0]["sends"]
    wait.until(lambda: mount.xprts()[0]["sends"] > start + 3, 30, "transfers under way")
    faults.silence(t.server)
    t.defer(faults.speak, t.server)

    def forced():
        force(mount)
        return victim.ended()

    wait.until(forced, ENV.patience(60), "the reader ended by umount -f")
    try:
        victim.join(1)
    except AssertionError as error:
        check("Input/output error" in str(error) or "OSError" in str(error), f"{error}")
    faults.speak(t.server)
    mount.remove()
    xprt.wait_gone(90)
    module.wait_resources(before)


def force(mount):
    """umount -f, which may find it busy still."""
    try:
        mounts.umount(mount.where, mounts.MNT_FORCE)
    except OSError as error:
        check(error.errno in (errno.EBUSY, errno.EINVAL), f"umount -f: {error}")
