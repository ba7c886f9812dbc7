# SPDX-License-Identifier: GPL-2.0
"""The kernel log: what it said since a moment, and whether that is a report."""

import os

from lablib.machine import judge

from . import wait


class Log:
    """Reads the kernel log from the moment it is made."""

    def __init__(self):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.fd, 0, os.SEEK_END)
        self.lines = []

    def read(self):
        """Take what has come in; returns all lines so far."""
        while True:
            try:
                entry = os.read(self.fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return self.lines
            except BrokenPipeError:
                self.lines.append("(log lines lost: the buffer overflowed)")
                continue
            _, _, text = entry.partition(";")
            self.lines.append(text.split("\n", 1)[0])

    def mark(self):
        """Forget what has been said so far."""
        self.read()
        self.lines.clear()

    def find(self, *words):
        """The first line with all these words (whatever the case), or None."""
        return next((line for line in self.read()
                     if all(w.lower() in line.lower() for w in words)), None)

    def expect(self, *words, seconds=5):
        """Wait for such a line."""
        return wait.until(lambda: self.find(*words), seconds,
                          f"a kernel log line with {' and '.join(map(repr, words))}")

    def report(self):
        """A complaint of the kernel about itself, with its context, or None."""
        return judge.splats("\n".join(self.read()))

    def close(self):
        os.close(self.fd)
