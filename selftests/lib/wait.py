# SPDX-License-Identifier: GPL-2.0
"""Functions that wait until a condition is true. They do not wait for a fixed time."""

import time

PAUSE_SECONDS = 0.02


class Timeout(AssertionError):
    """Raised if a condition does not become true in time."""


def until(condition, seconds, what):
    """Waits until `condition()` is true, and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Timeout(f"not within {seconds:.0f} s: {what}")
        time.sleep(PAUSE_SECONDS)


class Clock:
    """Measures the seconds since the object was created."""

    def __init__(self):
        self.start = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.start
