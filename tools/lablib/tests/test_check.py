# SPDX-License-Identifier: GPL-2.0
"""Tests which parts of `tools/lab check` run at the same time."""

import re
import unittest

from ..base import records
from ..checks import check, lane

# The arguments of `tools/lab check` in continuous integration.
OF_CI = (*check.ALL, "debug-short", "debug-rds")


class Order(unittest.TestCase):
    """Tests the order of the parts of `tools/lab check`, and which parts run at the same time as
    other parts."""

    def test_what_waits_runs_beside_what_works(self):
        self.assertEqual(
            check.order(["host", "lint", "vm-work", "vm-faults", "cable", "server", "short"]),
            [(["host"], []), (["lint"], []), (["vm-work", "server"], ["vm-faults", "cable"]),
             (["short"], [])])
        self.assertEqual(check.order(["debug-work", "debug-faults", "iwarp"]),
                         [(["debug-work"], ["debug-faults", "iwarp"])])

    def test_alone_it_runs_as_any_other(self):
        self.assertEqual(check.order(["cable", "shutdown"]), [(["cable"], []), (["shutdown"], [])])
        self.assertEqual(check.order(["iwarp", "host"]), [(["iwarp"], []), (["host"], [])])

    def test_no_part_is_lost(self):
        for parts in (list(check.ALL), list(check.PARTS)):
            found = [name for group, beside in check.order(parts) for name in (*group, *beside)]
            self.assertEqual(sorted(found), sorted(parts))

    def test_the_time_of_each_part_is_found(self):
        self.assertEqual(lane.minutes(
            "lab: cable: 44 passed, 0 failed, 0 skipped, 7.3 minutes\n"
            "ok 1 a lab: b: 1 minutes\nlab: checking: iwarp\n"
            "lab: iwarp: 36 passed, 0 failed, 0 skipped, 4.7 minutes\n"),
            {"cable": 7.3, "iwarp": 4.7})

    def test_the_table_of_minutes_has_each_part_of_ci_once(self):
        parts = [half for part in OF_CI for half in check.HALVES.get(part, (part,))]
        found = [word for row in records.read("ci-minutes")
                 for word in re.findall(r"[a-z-]+", row["Part"]) if word in check.PARTS]
        self.assertEqual(sorted(found), sorted(parts))

    def test_the_patched_kernel_is_a_debug_kernel(self):
        self.assertLessEqual(set(check.UPSTREAM_PARTS), set(check.DEBUG_PARTS))

    def test_each_case_is_in_one_half(self):
        rest, faults = check.WORK_CASES, check.FAULT_CASES
        for name in ("data.one_large_file vers=3", "hostile.bad", "hostile_connect.x", "lifeless.x",
                     "status.a_dead_server"):
            self.assertNotEqual(bool(re.search(rest, name)), bool(re.search(faults, name)), name)
