# SPDX-License-Identifier: GPL-2.0
"""Tests that the results of several runs are added up and recorded."""

import pathlib
import tempfile
import unittest
import unittest.mock

from lablib.base import records
from lablib.checks import paused, reliability


def run(client, recovery, failed=0):
    row = {"recovery": recovery, "bytes": len(recovery) << 20, "failed": failed, "errors": 0,
           "splats": 0}
    return {"client": client, "rows": {"silence": {"3": row}}}


class Torture(unittest.TestCase):
    def test_runs_add_up(self):
        row = reliability.summed([run("ours", [1.0, 2.0]), run("ours", [6.0], failed=1)])
        row = row["silence", "3"]
        self.assertEqual(reliability.rounds(row), 4)
        self.assertEqual(reliability.times(row), ("2.0", "6.0"))
        self.assertEqual(row["bytes"], 3 << 20)

    def test_the_reason_of_a_failure_is_a_line(self):
        trace = "Traceback\n  File x\nlib.wait.Timeout: not within 9 s: progress\ntask 1\n"
        for text, reason in (
                (trace, "lib.wait.Timeout: not within 9 s: progress"),
                ("AssertionError: worker rewrite: status 1\nTraceback\nOSError: [Errno 5] oh\n",
                 "OSError: [Errno 5] oh"),
                (f"{trace}kernel report:\nBUG: KASAN: bad\nmore\n", "BUG: KASAN: bad")):
            self.assertEqual(reliability.reason(text), reason)


class Pauses(unittest.TestCase):
    def test_a_row_for_each_client_and_fault(self):
        rows = [paused.row(found, "2026-01-01", "7.3", "ours", fault) for fault, found in (
            ("cable", [0.4, 0.1, 0.25]), ("device", [3.0, None]), ("both", [None]))]
        self.assertEqual([paused.cells(row)[2:] for row in rows], [
            ("3", "0.25", "0.40", "0"), ("2", "3.00", "3.00", "1"), ("1", "–", "–", "1")])

    def test_a_run_of_one_fault_leaves_the_others(self):
        def took(client, fault, pause):
            return [paused.row([pause], "2026-01-01", "7.3", client, fault)]

        with tempfile.TemporaryDirectory() as top, \
                unittest.mock.patch.object(records, "RESULTS", pathlib.Path(top)):
            paused.keep(took("intree", "cable", 9) + took("ours", "device", 2))
            paused.keep(took("ours", "cable", 1))
            paused.keep(took("ours", "device", 3))
            kept = [(row["client"], row["fault"], row["worst"]) for row in paused.load()]
        self.assertEqual(kept, [("ours", "cable", "1.00"), ("ours", "device", "3.00"),
                                ("intree", "cable", "9.00")])


if __name__ == "__main__":
    unittest.main()
