# SPDX-License-Identifier: GPL-2.0
"""Counts how many times the kernel runs a function or a tracepoint. Uses the kernel's own
histograms (tracefs).

A kprobe at the beginning of a function counts each call. Sampling would be less accurate.
"""

import collections
import contextlib
import os
import pathlib
import re

TRACING = pathlib.Path("/sys/kernel/tracing")
ENTRIES = 16384
ENTRY = re.compile(r"\{(.*?)\} hitcount: +(\d+)", re.DOTALL)
DROPPED = re.compile(r"^ +Dropped: (\d+)$", re.MULTILINE)
# Pattern of a function (perhaps with an offset), and of the function's module (if there is one).
PLACE = re.compile(r"([^\s+]+)\+0x\S+(?: \[(\w+)\])?$")


def places(key):
    """Returns a pair (function, module or "") for each line of a key that contains a function. The
    innermost function comes first.
    """
    found = (PLACE.search(line.strip()) for line in key.splitlines())
    return tuple((one[1], one[2] or "") for one in found if one)


def parse(text):
    """Parses the text of a histogram. Returns a counter. Each key of the counter is the result of
    `places` for a key of the text. If several keys of the text have the same result, their counts
    are added."""
    dropped = DROPPED.search(text)
    if not dropped or int(dropped[1]):
        raise RuntimeError("a histogram that is not complete")
    found: collections.Counter = collections.Counter()
    for key, times in ENTRY.findall(text):
        found[places(key)] += int(times)
    return found


class Histogram:
    """A histogram of a kernel event. It counts from its creation on."""

    def __init__(self, event, key):
        self.directory = TRACING / "events" / event
        self.trigger = f"hist:keys={key}:size={ENTRIES}"

    def write(self, text):
        (self.directory / "trigger").write_text(text)

    def read(self):
        """Returns the present histogram as a counter, see `parse`."""
        return parse((self.directory / "hist").read_text())


def define(line):
    """Creates or removes a kprobe. Other kprobes are not changed."""
    # Python's open() with mode "a" is not used, because it seeks to the end of the file, which the
    # kernel refuses.
    events = os.open(TRACING / "kprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(events, line.encode())
    finally:
        os.close(events)


@contextlib.contextmanager
def of_function(function, key="common_stacktrace"):
    """Provides a histogram of the calls of a function, with a count for each call stack."""
    name = f"lab/{function}"
    define(f"p:{name} {function}\n")
    try:
        with of_event(name, key) as histogram:
            yield histogram
    finally:
        define(f"-:{name}\n")


@contextlib.contextmanager
def of_event(event, key):
    """Provides a histogram of a tracepoint, with a count for each call stack or for each value of a
    field."""
    histogram = Histogram(event, key)
    histogram.write(histogram.trigger)
    try:
        yield histogram
    finally:
        histogram.write(f"!{histogram.trigger}")
