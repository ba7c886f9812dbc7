# SPDX-License-Identifier: GPL-2.0
"""Load on a mount during a fault. No record may be lost or torn.

Writers write records that contain file, offset and generation. Data of an acknowledged write must
be on the server in the end. A read must return a generation that was written.
"""

import contextlib
import mmap
import os
import struct
import time

from . import pattern, wait
from .buffers import Buffer
from .case import ENV, check
from .workers import Crew

PLACES = 16
RECOVERY_SECONDS = 75
WORD = struct.Struct("=Q")


class Board:
    """Memory that the test shares with a writer: the writer stores the writes that it has done, and
    the test stores whether the writer must pause."""

    GENERATION, VERIFIED, REST, RESTING, FIRST_PLACE = range(5)

    def __init__(self):
        self.memory = mmap.mmap(-1, (self.FIRST_PLACE + PLACES) * WORD.size)

    def __getitem__(self, word):
        return WORD.unpack_from(self.memory, word * WORD.size)[0]

    def __setitem__(self, word, value):
        WORD.pack_into(self.memory, word * WORD.size, value)

    def rest(self, stopped):
        """Pauses the worker that calls this method if the test has requested a pause. Returns
        whether the worker has paused."""
        if not self[self.REST]:
            return False
        self[self.RESTING] = 1
        wait.until(lambda: not self[self.REST] or stopped(), float("inf"), "work again")
        self[self.RESTING] = 0
        return True

    def done(self):
        """Returns the generation of the last acknowledged write of each block of the file, or 0 for
        a block without an acknowledged write."""
        return [self[self.FIRST_PLACE + place] for place in range(PLACES)]


class Direct:
    """Writes with O_DIRECT. The server has acknowledged a write when write(2) returns."""

    def __init__(self, path, size):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
        self.buffer = Buffer(size)

    def write(self, data, offset, number):
        self.buffer.write(self.fd, data, offset, number % 64)

    def read(self, length, offset, generation):
        return self.buffer.read(self.fd, length, offset, generation % 64)

    def close(self):
        os.close(self.fd)


class Synced:
    """Writes to the page cache. The server has acknowledged a write when fsync(2) returns."""

    def __init__(self, path, _size):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def write(self, data, offset, _number):
        check(os.pwrite(self.fd, data, offset) == len(data), "a short write")
        os.fsync(self.fd)

    def read(self, length, offset, _generation):
        # The bytes must be read from the server, not from this machine's page cache.
        os.posix_fadvise(self.fd, offset, length, os.POSIX_FADV_DONTNEED)
        return os.pread(self.fd, length, offset)

    def close(self):
        os.close(self.fd)


class Closed:
    """Opens and closes the file for each write. The server has acknowledged a write when close(2)
    returns."""

    def __init__(self, path, size):
        self.path, self.buffer = path, Buffer(size)

    @contextlib.contextmanager
    def opened(self, flags):
        fd = os.open(self.path, flags, 0o644)
        try:
            yield fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)

    def write(self, data, offset, _number):
        with self.opened(os.O_WRONLY | os.O_CREAT) as fd:
            check(os.pwrite(fd, data, offset) == len(data), "a short write")

    def read(self, length, offset, generation):
        with self.opened(os.O_RDONLY | os.O_DIRECT) as fd:
            return self.buffer.read(fd, length, offset, generation % 64)

    def close(self):
        pass


def rewrite(stopped, path, number, kind, size, board):
    """Writes the blocks of a file again and again. Reads a block after each write and checks its
    content."""
    file, generation = kind(path, size), 0
    while not stopped():
        if board.rest(stopped):
            continue
        generation += 1
        place = generation % PLACES
        offset = place * size
        file.write(pattern.data(number, offset, size, generation), offset, number)
        board[Board.FIRST_PLACE + place] = generation
        board[Board.GENERATION] = generation
        back = generation * 7 % PLACES
        if written := board[Board.FIRST_PLACE + back]:
            found = file.read(size, back * size, generation)
            problem = pattern.difference(
                found, pattern.data(number, back * size, size, written), back * size)
            check(problem is None, f"file {number}: {problem}")
            board[Board.VERIFIED] += size
    file.close()


def look(stopped, path, board):
    """Makes calls without data, at a rate that leaves processor time to other processes."""
    while not stopped():
        if not board.rest(stopped):
            os.stat(path)
            os.statvfs(path)
            board[Board.GENERATION] += 1
            time.sleep(wait.PAUSE_SECONDS)


class Load:
    """Processes that write, read and request attributes on a mount, and the check of the written
    data.

    `kinds` contains a pair for each writer: the class that determines how it writes, and the number
    of bytes of each write.
    """

    def __init__(self, t, mount, size=0, writers=2, kinds=None, name="case"):
        self.t, self.kinds = t, kinds or ((Direct, size),) * writers
        self.top, self.crew = t.directory(mount, name), Crew(ENV.patience(60))
        self.boards, self.looker = [Board() for _ in self.kinds], Board()

    def written(self):
        """Returns the number of acknowledged writes of each writer, and the number of requests of
        the process that requests attributes."""
        return [board[Board.GENERATION] for board in (*self.boards, self.looker)]

    def further(self, start, more):
        """Returns whether each process of the load has done at least `more` operations since
        `start`."""
        return all(now >= then + more for now, then in zip(self.written(), start, strict=True))

    def wait_progress(self, seconds, writes):
        """Waits until every process of the load has done `writes` more operations. Returns how many
        seconds the wait took."""
        start, clock = self.written(), wait.Clock()
        wait.until(lambda: self.further(start, writes), ENV.patience(seconds),
                   f"{writes} more writes by each of {len(self.kinds)} writers")
        self.crew.check()
        return clock.seconds()

    def start(self):
        """Starts the processes, and waits until every writer works."""
        for number, (kind, size) in enumerate(self.kinds):
            self.crew.start(rewrite, f"{self.top.here}/w{number}", number, kind, size,
                            self.boards[number])
        self.crew.start(look, self.top.here, self.looker)
        self.wait_progress(60, 1)

    @contextlib.contextmanager
    def resting(self):
        """Pauses the load during the `with` block, so that no call is in flight."""
        boards = (*self.boards, self.looker)
        for board in boards:
            board[Board.REST] = 1
        try:
            wait.until(lambda: self.crew.check() or all(b[Board.RESTING] for b in boards),
                       ENV.patience(RECOVERY_SECONDS), "the writers rest")
            yield
        finally:
            for board in boards:
                board[Board.REST] = 0

    def content(self, number):
        """Returns the expected content of a writer's file. The writer must not be writing."""
        size, done = self.kinds[number][1], self.boards[number].done()
        end = max(place + 1 for place in range(PLACES) if done[place])
        return b"".join(pattern.data(number, place * size, size, done[place]) if done[place]
                        else bytes(size) for place in range(end))

    def verify(self):
        """Compares the acknowledged data with the server's own files. No write may be in flight."""
        for number, board in enumerate(self.boards):
            content = self.content(number)
            self.t.server.expect(f"{self.top.there}/w{number}", content)
            board[Board.VERIFIED] += len(content)

    def verified(self):
        """Returns the number of bytes that were compared."""
        return sum(board[Board.VERIFIED] for board in self.boards)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *failure):
        if not failure[0]:
            try:
                # After this wait, each writer has written every block of its file.
                self.wait_progress(RECOVERY_SECONDS, PLACES)
            except BaseException as error:
                self.crew.__exit__(type(error), error, None)
                raise
        self.crew.__exit__(*failure)
        if not failure[0]:
            self.verify()
