#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs the make targets that continuous integration needs, within a time limit.

If the limit is exceeded, the program stops and fails. The last line contains the numbers of passed,
failed and skipped tests.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

REPO = pathlib.Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 86 * 60
TARGETS = (("check",), ("check-debug", "SIZE=short"))
# The command that builds the debug kernel for the second target, which takes ten minutes. The build
# uses the processor time that the first target leaves. If the build fails, the second target
# repeats the build and reports the error.
AHEAD = ("tools/lab", "kernel", "--debug", "--behind")
AHEAD_LOG = "build/ahead.log"
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
# The time in seconds in which a make target that was told to stop must end its virtual machines.
GRACE_SECONDS = 30


def run(target, overdue):
    """Runs a make target with its variables and prints the target's output. Returns the exit status
    and the numbers in the last line of the output."""
    child = subprocess.Popen(["make", "-C", str(REPO), "--no-print-directory", *target],
                             stdout=subprocess.PIPE, text=True, errors="replace",
                             start_new_session=True)
    overdue.victim = child
    figures = None
    for line in child.stdout or ():
        found = CLOSING.match(line.strip())
        if found:
            figures = [int(n) for n in found.groups()]
        else:
            print(line, end="", flush=True)
    return child.wait(), figures


def start_ahead():
    """Starts to build the files that the second target needs."""
    log = REPO / AHEAD_LOG
    log.parent.mkdir(exist_ok=True)
    with open(log, "wb") as out:
        return subprocess.Popen(AHEAD, cwd=REPO, stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT, start_new_session=True)


def end(child):
    """Ends a child process and the processes that it started. Sends SIGTERM first, and later
    SIGKILL if the child process still runs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child is None or child.poll() is not None:
            return
        try:
            os.killpg(child.pid, number)
            child.wait(GRACE_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


class Overdue:
    """Ends the running make target when the time limit has passed."""

    def __init__(self, seconds):
        self.victim, self.struck = None, False
        self.timer = threading.Timer(seconds, self.strike)
        self.timer.daemon = True
        self.timer.start()

    def strike(self):
        self.struck = True
        print(f"stopped after {LIMIT_SECONDS // 60} minutes", flush=True)
        self.end()

    def end(self):
        """Ends the running target, if any."""
        self.timer.cancel()
        end(self.victim)


def main():
    # SIGTERM raises an exception, so that every `finally` runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    overdue, total, ahead = Overdue(LIMIT_SECONDS), [0, 0, 0], None
    try:
        ahead = start_ahead()
        for target in TARGETS:
            if target == TARGETS[-1] and ahead.poll() is None:
                ahead.send_signal(signal.SIGUSR1)
            if overdue.struck:
                status, figures = 1, None
            else:
                status, figures = run(target, overdue)
            # A target that fails, but reports no failed test, counts as one failed test.
            if figures is None or (status and not figures[1]):
                figures = [0, 1, 0]
            total = [a + b for a, b in zip(total, figures, strict=True)]
    finally:
        overdue.end()
        end(ahead)
    print("{} passed, {} failed, {} skipped".format(*total), flush=True)
    return 1 if total[1] or not total[0] else 0


sys.exit(main())
