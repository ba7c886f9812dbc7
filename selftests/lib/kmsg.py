# SPDX-License-Identifier: GPL-2.0
"""The kernel log: the messages since a certain time, and the reports of kernel problems among them.
"""

import os

from lablib.machine import judge

from . import wait


class Log:
    """Reads the kernel log from the time when the object was created."""

    def __init__(self):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.fd, 0, os.SEEK_END)
        self.lines = []

    def read(self):
        """Reads new messages, and returns all lines so far."""
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
        """Discards all lines that were logged so far."""
        self.read()
        self.lines.clear()

    def find(self, *words):
        """Returns the first line that contains all these words (ignoring case), or None."""
        return next((line for line in self.read()
                     if all(w.lower() in line.lower() for w in words)), None)

    def expect(self, *words, seconds=5):
        """Waits for a line that contains all these words, and returns it."""
        return wait.until(lambda: self.find(*words), seconds,
                          f"a kernel log line with {' and '.join(map(repr, words))}")

    def report(self):
        """Returns the first report of a kernel problem, with its context, or None."""
        return judge.splats("\n".join(self.read()))

    def close(self):
        os.close(self.fd)
