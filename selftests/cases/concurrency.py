# SPDX-License-Identifier: GPL-2.0
"""Many processes at the same time, and file systems that are unmounted while processes use them."""

import os
import pathlib

from lib import module, mounts, pattern, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait
from lib.workers import Crew, Worker

KIB, MIB = 1 << 10, 1 << 20
BLOCK = 48 * KIB


def write_blocks(stopped, path, number, generation, count, direct):
    """Writes a file block by block, and reads some earlier blocks again."""
    flags = os.O_RDWR | os.O_CREAT | (os.O_DIRECT if direct else 0)
    fd, buffer = os.open(path, flags, 0o644), Buffer(BLOCK)
    for at in range(count):
        data = pattern.data(number, at * BLOCK, BLOCK, generation)
        buffer.write(fd, data, at * BLOCK, number % 64)
        if at % 4 == 3:
            back = at // 2 * BLOCK
            found = buffer.read(fd, BLOCK, back, at % 64)
            problem = pattern.difference(found, pattern.data(number, back, BLOCK, generation),
                                         back)
            check(problem is None, f"file {number}: {problem}")
        if stopped():
            break
    os.fsync(fd)
    os.close(fd)


def read_whole(_stopped, path, number, generation, size):
    """Reads a file of the server in pieces that begin and end anywhere in a page, and checks its
    content."""
    fd, buffer, at = os.open(path, os.O_RDONLY | os.O_DIRECT), Buffer(MIB), 0
    expected = pattern.data(number, 0, size, generation)
    while at < size:
        found = buffer.read(fd, 77777, at, at % 512)
        problem = pattern.difference(found, expected[at:at + 77777], at)
        check(problem is None, f"file {number}: {problem}")
        at += len(found)
    os.close(fd)


# covers: V1-010, V1-012, V1-113, BC-30: Eight processes use one mount, and each reply reaches the
# call to which it belongs.
@case(seconds=120, full_seconds=900, slow=True)
def eight_writers_and_readers_do_not_mix(t):
    top = t.directory(t.mount())
    count = ENV.pick(small=30, full=400, debug=8)
    size = count * BLOCK
    for number in range(4):
        t.server.write(f"{top.there}/r{number}", pattern.data(100 + number, 0, size, 9))
    workers = []
    for number in range(4):
        workers.append(Worker(write_blocks, f"{top.here}/w{number}", number, 1, count,
                              number % 2))
        workers.append(Worker(read_whole, f"{top.here}/r{number}", 100 + number, 9, size))
    for worker in workers:
        worker.join(ENV.patience(100), stop=False)
    for number in range(4):
        t.server.expect(f"{top.there}/w{number}", pattern.data(number, 0, size, 1))


# covers: V1-105: After a lazy unmount, running processes complete their work. Then all objects of
# the mount are released.
@case(seconds=90, slow=True)
def lazy_unmount_under_load_loses_nothing(t):
    before = module.resources()
    mount = t.mount()
    top = t.directory(mount)
    count = ENV.pick(small=60, full=600, debug=12)
    workers = [Worker(write_blocks, f"{top.here}/w{number}", number, 2, count, number % 2)
               for number in range(4)]
    wait.until(lambda: all(os.path.exists(f"{top.here}/w{n}") for n in range(4)),
               ENV.patience(20), "all writers have begun")
    mounts.umount(mount.where, mounts.MNT_DETACH)
    check(not mount.mounted(), "the lazily unmounted mount is still shown")
    for worker in workers:
        worker.join(ENV.patience(80), stop=False)
    for number in range(4):
        t.server.expect(f"{top.there}/w{number}", pattern.data(number, 0, count * BLOCK, 2))
    xprt.wait_gone()
    module.wait_resources(before)


# covers: peer.md 5: Mounts that are made and removed at the same time share no state.
@case(seconds=120, full_seconds=900, slow=True)
def parallel_mounts_come_and_go(t):
    before = module.resources()
    rounds = ENV.pick(small=3, full=20, debug=1)
    top = t.directory(t.mount())

    def live(_, number):
        for turn in range(rounds):
            mount = mounts.Mount(t.version, "nosharecache")
            mount.make()
            here, _ = mount.path(f"case/m{number}")
            pathlib.Path(here).write_bytes(pattern.data(number, 0, 9000, turn))
            mount.remove()

    workers = [Worker(live, number) for number in range(ENV.pick(small=4, full=25, debug=2))]
    for worker in workers:
        worker.join(ENV.patience(100))
    for number in range(len(workers)):
        t.server.expect(f"{top.there}/m{number}", pattern.data(number, 0, 9000, rounds - 1))
    t.close()
    xprt.wait_gone()
    module.wait_resources(before)


def stat_all(stopped, top, names):
    """Looks up the names until `stopped` returns true. Returns the number of rounds."""
    turns = 0
    while not stopped():
        for name in names:
            os.stat(f"{top}/{name}")
            os.listdir(top)
        turns += 1
    return turns


# covers: V1-113: Processes look up names while other calls transfer data. Each process gets
# answers.
@case(seconds=60, slow=True)
def small_calls_are_answered_under_bulk_load(t):
    mount = t.mount("noac")
    top = t.directory(mount)
    t.server.call("create", top.there, 10, "n")
    names = [f"n{n}" for n in range(10)]
    count = ENV.pick(small=20, full=400, debug=5)
    with Crew() as crew:
        crew.start(stat_all, top.here, names)
        crew.start(stat_all, top.here, names)
        for number in range(4):
            write_blocks(lambda: False, f"{top.here}/w", number, 3, count, True)
        crew.check()
    for turns in crew.results:
        check(int(turns) > 0, "a process got no answer at all under load")
    equal(t.server.call("digest", f"{top.there}/w")[0], count * BLOCK, "size")
