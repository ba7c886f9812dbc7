# SPDX-License-Identifier: GPL-2.0
"""Load on a mount while something happens to it; nothing may be lost or torn.

Writers write records that carry file, offset and generation.  What a write has
acknowledged must be on the server in the end, and what a read returns must be
of a generation that was written.
"""

import mmap
import os
import struct

from . import pattern, wait
from .buffers import Buffer
from .case import ENV, check
from .workers import Crew

PLACES = 16
RECOVERY_SECONDS = 75
COUNT = struct.Struct("=Q")


def rewrite(stopped, path, number, size, progress):
    """Write the places of a file again and again, with reads between.

    Tells how far it is in shared memory.  Returns the generation of each place.
    """
    fd, buffer = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644), Buffer(size)
    done, generation, place = [0] * PLACES, 0, 0
    while not stopped():
        generation += 1
        place = generation % PLACES
        offset = place * size
        buffer.write(fd, pattern.data(number, offset, size, generation), offset, number)
        done[place] = generation
        COUNT.pack_into(progress, number * COUNT.size, generation)
        back = generation * 7 % PLACES
        if done[back]:
            found = buffer.read(fd, size, back * size, generation % 64)
            problem = pattern.difference(
                found, pattern.data(number, back * size, size, done[back]), back * size)
            check(problem is None, f"file {number}: {problem}")
    os.close(fd)
    return ",".join(map(str, done))


def look(stopped, path):
    """Calls without data."""
    turns = 0
    while not stopped():
        os.stat(path)
        os.statvfs(path)
        turns += 1
    return turns


class Load:
    """Writers, readers and lookers on a mount, and the check of what they did."""

    def __init__(self, t, mount, size, writers=2):
        self.t, self.size, self.writers = t, size, writers
        self.top, self.crew = t.directory(mount), Crew(ENV.patience(60))
        self.progress = mmap.mmap(-1, writers * COUNT.size)

    def written(self):
        """How many writes each writer has had acknowledged."""
        return [COUNT.unpack_from(self.progress, n * COUNT.size)[0]
                for n in range(self.writers)]

    def wait_progress(self, seconds, writes):
        """Wait until every writer has done some more writes; how long that took."""
        start, clock = self.written(), wait.Clock()
        wait.until(lambda: all(now >= then + writes for now, then
                               in zip(self.written(), start)), ENV.patience(seconds),
                   f"{writes} more writes by each of {self.writers} writers")
        self.crew.check()
        return clock.seconds()

    def __enter__(self):
        for number in range(self.writers):
            self.crew.start(rewrite, f"{self.top.here}/w{number}", number, self.size,
                            self.progress)
        self.crew.start(look, self.top.here)
        self.crew.__enter__()
        # Every writer is at work before anything is broken.
        self.wait_progress(60, 1)
        return self

    def __exit__(self, *failure):
        if not failure[0]:
            try:
                self.wait_progress(RECOVERY_SECONDS, PLACES)
            except BaseException as error:
                self.crew.__exit__(type(error), error, None)
                raise
        self.crew.__exit__(*failure)
        if failure[0]:
            return
        for number, text in enumerate(self.crew.results[:self.writers]):
            done = list(map(int, text.split(",")))
            content = b"".join(pattern.data(number, p * self.size, self.size, done[p])
                               for p in range(PLACES))
            self.t.server.expect(f"{self.top.there}/w{number}", content)
