# SPDX-License-Identifier: GPL-2.0
"""Worker processes of the torture test. They use files in addition to the main load while faults
are injected."""

import contextlib
import mmap
import os
import pathlib
import signal
import time

from . import mounts, pattern, wait
from .case import ENV, check
from .env import PORT
from .load import PLACES, Board, Direct, Synced, rewrite
from .workers import Worker

KIB, MIB = 1 << 10, 1 << 20
DIRTY, PIECE = 8 * MIB, 256 * KIB
DIRTY_FILE, LIFE_FILE = 90, 91     # numbers of the files on the mount
BLOCK = 16 * KIB
# Amount of memory that stays free, in MiB. With less free memory, the kernel would kill a process.
LEFT_MIB = 160
CHUNK = 16 * MIB
LIFE_BYTES = 9000
PARALLEL_VERSIONS = ("3", "4.0", "4.1", "4.2")


def mortal(*args):
    """Runs `rewrite` in a process in which signals have their default effects."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    rewrite(*args)


class Bystander:
    """A writer on a mount. The test stops or kills the writer, or cuts the mount off. Even then, no
    acknowledged write may be lost.
    """

    def __init__(self, server, mount, number):
        self.server, self.board, self.number = server, Board(), number
        self.here, self.there = mount.path(f"bystander{number}")
        self.worker = Worker(mortal, self.here, number, (Direct, Synced)[number % 2], BLOCK,
                             self.board)

    def at_work(self):
        wait.until(lambda: self.worker.ended() or self.board[Board.GENERATION] >= 2,
                   ENV.patience(60), "a bystander at work")
        return self

    def finish(self):
        """Stops the writer between two writes, and compares the writer's file with the acknowledged
        data."""
        self.worker.join(ENV.patience(120))
        self.compare(())

    def kill(self, number):
        """Sends the writer a signal that kills it during its writes, and then checks the writer's
        file."""
        self.worker.kill(number)
        try:
            self.worker.join(ENV.patience(60), killed=True)
        except AssertionError as error:
            check(f"status {-number}\n" in str(error), f"a killed bystander: {error}")
        self.compare_cut()

    def compare_cut(self):
        """Compares the file after the writer was interrupted: the last write may or may not be on
        the server."""
        self.compare((self.board[Board.GENERATION] + 1,))

    def ended_by(self, numbers):
        """Checks that an error of the mount has ended the writer, and that its errno is in
        `numbers`."""
        try:
            self.worker.join(ENV.patience(10))
        except AssertionError as error:
            check(any(f"[Errno {number}]" in str(error) for number in numbers),
                  f"another end: {error}")
        else:
            raise AssertionError("no error")

    def compare(self, under_way):
        """Checks each block of the file on the server. `under_way` contains the numbers of the
        writes that were not acknowledged. A block must contain its last acknowledged write or one
        of these writes."""
        for place, done in enumerate(self.board.done()):
            allowed = {done or None} | {g for g in under_way if g % PLACES == place}
            found = self.server.read(self.there, place * BLOCK, BLOCK)
            problem = pattern.generations(found, self.number, place * BLOCK, allowed)
            check(problem is None, f"bystander {self.number}: {problem}")

    def close(self):
        """Kills the process if it still exists, and removes its file."""
        try:
            if not self.worker.reaped():
                self.worker.kill()
                self.worker.join(ENV.patience(60), killed=True)
        except (AssertionError, OSError):
            pass  # The worker hangs. The round has already reported this.
        self.server.call("unlink", self.there)


def in_namespace(_, space, mount):
    """Mounts from inside a network namespace, in a separate process."""
    with open(space) as file:
        os.setns(file.fileno(), os.CLONE_NEWNET)  # type: ignore[attr-defined]
    mount.make()


def hold_open(stopped, top, names):
    """Holds files open for reading, so that the server delegates them to the client. The server
    delegates files only after it knows that it can send callbacks to the client. So the files are
    opened again and again. Once the files are delegated, opening them sends no call.
    """
    fds = []
    while not stopped():
        fds, old = [os.open(f"{top}/{name}", os.O_RDONLY) for name in names], fds
        for fd in old:
            os.close(fd)
        with contextlib.suppress(wait.Timeout):
            wait.until(stopped, 1, "the end")
    for fd in fds:
        os.close(fd)


def look_once(_, places):
    for place in places:
        os.statvfs(place)


def until_error(_, where):
    """Makes calls on a soft mount until a call fails. Returns the errno."""
    while True:
        try:
            os.statvfs(where)
        except OSError as error:
            return error.errno


def until_answered(_, where):
    """Makes calls on a soft mount until a call succeeds."""
    def answered():
        try:
            return bool(os.statvfs(where))
        except OSError:
            return False

    wait.until(answered, ENV.patience(60), "an answer on a soft mount")


def dirty_content(generation):
    return b"".join(pattern.data(DIRTY_FILE, at, PIECE, generation)
                    for at in range(0, DIRTY, PIECE))


def write_dirty(stopped, path, generation):
    """Writes through the page cache. Data go to the server only at the end or when memory is
    needed.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    for at in range(0, DIRTY, PIECE):
        os.pwrite(fd, pattern.data(DIRTY_FILE, at, PIECE, generation), at)
    wait.until(stopped, float("inf"), "the end")
    os.fsync(fd)
    os.close(fd)


def available_mib():
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:", 1)[1].split()[0]) // 1024


def take_memory(stopped):
    """Allocates almost all free memory of this machine, and allocates more when other memory
    becomes free."""
    pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    taken = []
    while not stopped():
        if available_mib() > LEFT_MIB + CHUNK // MIB:
            taken.append(mmap.mmap(-1, CHUNK, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                                   | mmap.MAP_POPULATE))
        else:
            time.sleep(wait.PAUSE_SECONDS)


def life(number):
    """Returns the content of the file that is written on a short-lived mount."""
    return pattern.data(LIFE_FILE, 0, LIFE_BYTES, number + 1)


def live(_, there, number, port):
    """Mounts, writes a file, and unmounts."""
    # The responder has only one address, so the address family is fixed.
    netids = ("rdma", "rdma6") if port == PORT else ("rdma",)
    mount = mounts.Mount(PARALLEL_VERSIONS[number % len(PARALLEL_VERSIONS)], "nosharecache",
                         ENV.disk, netid=netids[number // 4 % len(netids)], port=port)
    mount.make(180)
    name = os.path.relpath(f"{there}/m{number}", ENV.disk)
    pathlib.Path(mount.where, name).write_bytes(life(number))
    mount.remove()
