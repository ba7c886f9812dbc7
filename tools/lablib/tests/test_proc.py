# SPDX-License-Identifier: GPL-2.0
"""Work that nobody waits for yet stays behind all other, and catches up when told."""

import os
import signal
import subprocess
import unittest

from lablib.base import proc

# Says which nice value it has whenever it is asked, through a child of its own.
TELL = 'while read -r _; do sh -c "exec nice"; done'


class StayingBehind(unittest.TestCase):
    def setUp(self):
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
        self.addCleanup(setattr, proc.Behind, "now", False)

    def start(self):
        child = proc.spawn(["sh", "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           text=True, bufsize=1)
        self.addCleanup(lambda: (proc.stop(child), child.stdin.close(), child.stdout.close()))
        return child

    def nice(self, child):
        """Its own value, and that of its session where the scheduler shares out by session."""
        child.stdin.write("\n")
        value = int(child.stdout.readline())
        try:
            with open(f"/proc/{child.pid}/autogroup") as group:
                self.assertEqual(group.read().split()[-1], str(value))
        except FileNotFoundError:
            pass
        return value

    def test_behind_until_somebody_waits(self):
        self.assertEqual(self.nice(self.start()), 0)
        proc.Behind.begin()
        child = self.start()
        self.assertEqual(self.nice(child), 19)
        os.kill(os.getpid(), signal.SIGUSR1)
        self.assertEqual(self.nice(child), 0)
        self.assertEqual(self.nice(self.start()), 0)


if __name__ == "__main__":
    unittest.main()
