# SPDX-License-Identifier: GPL-2.0
"""Tests that children run with low priority until a signal says that a process waits for the
result.
"""

import os
import signal
import subprocess
import unittest

from lablib.base import proc

# For each line of input, starts a child, which prints its nice value.
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

    def check(self, child, behind):
        """Checks the nice value of a child. If the scheduler divides time among sessions, also
        checks the nice value of the child's session. The tests themselves may run with any nice
        value."""
        child.stdin.write("\n")
        self.assertEqual(int(child.stdout.readline()), 19 if behind else os.nice(0))
        try:
            with open(f"/proc/{child.pid}/autogroup") as group:
                self.assertEqual(group.read().split()[-1], "19" if behind else "0")
        except FileNotFoundError:
            pass

    def test_behind_until_somebody_waits(self):
        self.check(self.start(), behind=False)
        proc.Behind.begin()
        child = self.start()
        self.check(child, behind=True)
        os.kill(os.getpid(), signal.SIGUSR1)
        self.check(child, behind=False)
        self.check(self.start(), behind=False)


if __name__ == "__main__":
    unittest.main()
