#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What continuous integration runs: everything within the time it has.

Stops itself as failed when the limit is over; the last line sums up.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

REPO = pathlib.Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 80 * 60
# Side by side: for most of their time the tests wait for a silent peer to be noticed.  The
# lines of the second begin with a mark.
MAIN, BESIDE, MARK = "check", "check-debug", "debug | "
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
# How long a target may take to tear its machines down when told to stop.
GRACE_SECONDS = 30


class Children:
    """Everything that was started, each in a session of its own."""

    def __init__(self):
        self.lock, self.all, self.closed = threading.Lock(), [], False

    def start(self, argv):
        """A child whose output is read as it comes; None once all are ended."""
        with self.lock:
            if self.closed:
                return None
            child = subprocess.Popen(argv, cwd=REPO, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                     errors="replace", start_new_session=True)
            self.all.append(child)
            return child

    def overdue(self):
        """The time is over."""
        print(f"stopped after {LIMIT_SECONDS // 60} minutes", flush=True)
        self.end()

    def end(self):
        """End them, politely first, and start no others."""
        with self.lock:
            self.closed, running = True, [c for c in self.all if c.poll() is None]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, number)
            for child in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(GRACE_SECONDS)


def run(children, target, mark=""):
    """Make a target and pass its output on: [passed, failed, skipped]."""
    child = children.start(["make", "--no-print-directory", target])
    figures, status = None, 1
    if child:
        for line in child.stdout:
            found = CLOSING.match(line.strip())
            if found:
                figures = [int(n) for n in found.groups()]
            else:
                print(mark + line, end="", flush=True)
        status = child.wait()
    # A target that fails without counting a failure is one failure.
    return [0, 1, 0] if figures is None or (status and not figures[1]) else figures


def main():
    children, beside = Children(), []
    thread = threading.Thread(target=lambda: beside.extend(run(children, BESIDE, MARK)))
    # Being told to stop unwinds the stack.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    limit = threading.Timer(LIMIT_SECONDS, children.overdue)
    limit.daemon = True
    try:
        limit.start()
        thread.start()
        total = run(children, MAIN)
        thread.join()
    finally:
        limit.cancel()
        children.end()
    total = [a + b for a, b in zip(total, beside, strict=True)]
    print("{} passed, {} failed, {} skipped".format(*total), flush=True)
    return 1 if total[1] or not total[0] else 0


sys.exit(main())
