# SPDX-License-Identifier: GPL-2.0
"""Messages to the person at the terminal."""

import contextlib
import sys
import threading
import time

HEARTBEAT_SECONDS = 15


class LabError(Exception):
    """Raised for an error that the user can correct. The error is shown as one line, without a
    traceback."""


def say(text):
    """Prints one line of progress to stderr, because stdout is for the output of tests."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def step(text, detail=None):
    """Announces a step, prints signs of progress, and prints how long the step took.

    `detail` returns a short text that describes the progress.
    """
    start = time.monotonic()
    done = threading.Event()

    def beat():
        while not done.wait(HEARTBEAT_SECONDS):
            extra = detail() if detail else ""
            say(f"  ... {time.monotonic() - start:.0f} s {extra}".rstrip())

    say(text)
    ticker = threading.Thread(target=beat, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()
    took = time.monotonic() - start
    if took >= 1:
        say(f"  {took:.1f} s")
