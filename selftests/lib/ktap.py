# SPDX-License-Identifier: GPL-2.0
"""Results in the Kernel Test Anything Protocol, version 1."""

import dataclasses


@dataclasses.dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def status(self):
        """Returns kselftest's exit status: 4 if everything was skipped."""
        if self.failed:
            return 1
        return 0 if self.passed or not self.skipped else 4


class Report:
    """Prints the plan of a run. Then prints, for each case, the diagnostics and a line with the
    result.
    """

    def __init__(self, total):
        self.number, self.tally = 0, Tally()
        print(f"KTAP version 1\n1..{total}", flush=True)

    @staticmethod
    def diagnose(text):
        for line in text.splitlines():
            print(f"# {line}", flush=True)

    def result(self, name, good, skip=None):
        self.number += 1
        if skip is not None:
            self.tally.skipped += 1
            print(f"ok {self.number} {name} # SKIP {skip}", flush=True)
        elif good:
            self.tally.passed += 1
            print(f"ok {self.number} {name}", flush=True)
        else:
            self.tally.failed += 1
            print(f"not ok {self.number} {name}", flush=True)
