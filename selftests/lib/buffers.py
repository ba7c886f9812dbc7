# SPDX-License-Identifier: GPL-2.0
"""Memory for direct I/O, with or without alignment to pages."""

import mmap
import os

PAGE = mmap.PAGESIZE


class Buffer:
    """Anonymous memory. `view(n, shift)` returns `n` bytes, from offset `shift` of a page on."""

    def __init__(self, size):
        self.memory = mmap.mmap(-1, size + 2 * PAGE)
        self.whole = memoryview(self.memory)

    def view(self, length, shift=0):
        return self.whole[shift:shift + length]

    def write(self, fd, data, offset, shift=0):
        """Copies `data` to this memory, and writes it from there to the file, from `offset` on."""
        view = self.view(len(data), shift)
        view[:] = data
        done = os.pwritev(fd, [view], offset)
        if done != len(data):
            raise AssertionError(f"wrote {done} of {len(data)} bytes at {offset}")

    def read(self, fd, length, offset, shift=0):
        """Reads up to `length` bytes of the file into this memory, from `offset` on. Returns the
        bytes that were read."""
        view = self.view(length, shift)
        # The memory is filled with a constant, so that bytes that the transfer does not write
        # cannot be mistaken for data.
        view[:] = b"\xa5" * length
        done = os.preadv(fd, [view], offset)
        return bytes(view[:done])
