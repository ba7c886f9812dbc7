# SPDX-License-Identifier: GPL-2.0
"""Reads KTAP, the output of a test program, and counts its results."""

import re

from ..base.tally import Tally

PLAN = re.compile(r"^(\s*)1\.\.(\d+)(?:\s+# SKIP (.*))?")
RESULT = re.compile(r"^(\s*)(ok|not ok) \d+ ?(?:- )?([^#]*)(?:# *(SKIP|TODO|XFAIL)?\b(.*))?$",
                    re.IGNORECASE)
ALL_SKIPPED = 4  # exit status of a test that was skipped, as kselftest defines it


class Parser:
    """Reads lines of KTAP. `tally` counts only the innermost results."""

    def __init__(self):
        self.tally = Tally()
        self.plans = {}     # number of announced results at each depth
        self.seen = {}      # number of results seen at each depth

    def feed(self, line):
        plan, result = PLAN.match(line), RESULT.match(line)
        if plan:
            depth = len(plan[1])
            self.plans[depth], self.seen[depth] = int(plan[2]), 0
        elif result:
            self.result(len(result[1]), result[2].lower() == "ok", result[3].strip(),
                        (result[4] or "").upper())

    def result(self, depth, good, name, directive):
        inner = [d for d in self.plans if d > depth]
        self.seen[depth] = self.seen.get(depth, 0) + 1
        for d in inner:
            self.check_plan(d, name)
        if inner and (good or self.tally.failed):
            return  # This line is the summary of a block whose results are already counted.
        if directive == "SKIP":
            self.tally.skip(name)
        else:
            # An expected failure (TODO, XFAIL) counts as a failure.
            self.tally.judge(name, good)

    def check_plan(self, depth, name):
        planned, seen = self.plans.pop(depth), self.seen.pop(depth, 0)
        if planned != seen:
            self.tally.fail(f"{name}: {planned} tests announced, {seen} seen")

    def end(self, status):
        """Completes the tally after the end of the output, and returns the tally. `status` is the
        program's exit status, or None if the program did not end.
        """
        if not self.plans:
            self.tally.fail("no test plan in the output")
        for depth in sorted(self.plans, reverse=True):
            self.check_plan(depth, "the whole")
        if status is None:
            self.tally.fail("the tests did not end")
        elif status == ALL_SKIPPED and self.tally.skipped and not self.tally.passed:
            pass
        elif status and not self.tally.failed:
            self.tally.fail(f"exit status {status} although no test failed")
        return self.tally
