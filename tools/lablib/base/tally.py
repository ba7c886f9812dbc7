# SPDX-License-Identifier: GPL-2.0
"""Counts of passed, failed and skipped tests. Every check returns such counts."""

import dataclasses
import re

CLOSING = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


@dataclasses.dataclass
class Tally:
    """The number of tests with each result, and the names of the tests that need attention."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    notes: list = dataclasses.field(default_factory=list)

    def add(self, other, where=""):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.notes += [f"{where}: {note}" if where else note for note in other.notes]

    def ok(self):
        self.passed += 1

    def fail(self, note):
        self.failed += 1
        self.notes.append(f"failed: {note}")

    def skip(self, note):
        self.skipped += 1
        self.notes.append(f"skipped: {note}")

    def judge(self, name, good):
        self.ok() if good else self.fail(name)

    def line(self):
        """Returns the line that every check prints as its last line."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def good(self):
        """Returns whether no test failed, and at least one ran."""
        return not self.failed and self.passed > 0


def of_closing_line(text):
    """Returns the tally in the last line that a program printed, or None."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = CLOSING.match(lines[-1].strip()) if lines else None
    if not found:
        return None
    passed, failed, skipped = map(int, found.groups())
    return Tally(passed, failed, skipped)
