# SPDX-License-Identifier: GPL-2.0
"""The page of faults survived says what the runs say."""

import csv
import pathlib
import tempfile
import unittest
import unittest.mock
from typing import Any, ClassVar

from lablib.base import records
from lablib.checks import killed, paused, reliability


def run(client, recovery, failed=0, failures=()):
    row = {"recovery": recovery, "bytes": len(recovery) << 20, "failed": failed, "errors": 0,
           "splats": 0}
    return {"client": client, "debug": False, "kernel": "7.3", "seed": 1, "minutes": 30,
            "date": "2026-01-01", "complaints": [], "ended": True, "failures": list(failures),
            "faults": {"silence": "nothing is heard"}, "rows": {"silence": {"3": row}}}


class Page(unittest.TestCase):
    def test_runs_add_up(self):
        row = reliability.summed([run("ours", [1.0, 2.0]), run("ours", [6.0], failed=1)])
        row = row["silence", "3"]
        self.assertEqual(reliability.rounds(row), 4)
        self.assertEqual(reliability.times(row), ("2.0", "6.0"))
        self.assertEqual(row["bytes"], 3 << 20)

    def test_clients_stand_side_by_side(self):
        page = reliability.page([run("ours", [1.0]), run("intree", [3.0, 4.0])])
        row = next(line for line in page.splitlines() if "nothing is heard" in line)
        self.assertEqual(next(csv.reader([row.strip()], skipinitialspace=True)), [
            "``silence``: nothing is heard", "1", "1.0, 1.0", "–", "1",
            "2", "3.5, 4.0", "–", "2"])
        self.assertIn("* in-tree, 7.3: 1 runs, 30 minutes, 2 rounds; left behind: nothing", page)
        self.assertNotIn("What failed", page)

    def test_failures_are_told_with_their_reason(self):
        trace = "Traceback\n  File x\nlib.wait.Timeout: not within 9 s: progress\ntask 1\n"
        page = reliability.page([run("ours", [], 1, [{"fault": "silence", "text": trace}])])
        self.assertIn("nothing is heard, 1: 1 failed, ", page)
        self.assertIn("``lib.wait.Timeout: not within 9 s: progress``", page)
        worker = "AssertionError: worker rewrite: status 1\nTraceback\nOSError: [Errno 5] oh\n"
        page = reliability.page([run("ours", [], 1, [{"fault": "silence", "text": worker}])])
        self.assertIn("``OSError: [Errno 5] oh``", page)
        splat = f"{trace}kernel report:\nBUG: KASAN: bad\nmore\n"
        page = reliability.page([run("ours", [], 1, [{"fault": "silence", "text": splat}])])
        self.assertIn("``BUG: KASAN: bad``", page)


class Kills(unittest.TestCase):
    common: ClassVar[dict[str, Any]] = {"date": "2026-01-01", "kernel": "7.3"}
    rows: ClassVar[list[dict[str, Any]]] = [
        common | {"client": "intree", "vers": "4.2", "problem": "BUG: bad page state",
                  "kills": 17, "connects": 9, "rpcs": 1000, "seconds": 7.5},
        common | {"client": "ours", "vers": "3", "problem": "", "kills": 50, "connects": 0,
                  "rpcs": 2000, "pause": 0.1234, "seconds": 20.0},
        common | {"client": "ours", "vers": "4.2", "problem": "did not start"}]

    def test_a_row_for_each_client_and_version(self):
        # As the record has them.
        texts = [{name: str(row.get(name, "")) for name in killed.COLUMNS} for row in self.rows]
        for rows in self.rows, texts:
            page = reliability.page([], rows)
            found = [next(csv.reader([line.strip()], skipinitialspace=True))
                     for line in page.splitlines()
                     if line.strip().startswith(("in-tree,", "ours,"))]
            self.assertEqual(found, [
                ["in-tree", "4.2", "17", "9", "–", "1000", "7.5", "BUG: bad page state"],
                ["ours", "3", "50", "0", "0.12", "2000", "20.0", "all well"],
                ["ours", "4.2", "–", "–", "–", "–", "–", "did not start"]])

    def test_a_page_without_a_run_has_no_table(self):
        self.assertNotIn("Killed processes", reliability.page([]))


class Pauses(unittest.TestCase):
    def test_a_row_for_each_client_and_fault(self):
        rows = [paused.row(found, "2026-01-01", "7.3", "ours", fault) for fault, found in (
            ("cable", [0.4, 0.1, 0.25]), ("device", [3.0, None]), ("both", [None]))]
        page = reliability.page([], (), rows)
        cells = [next(csv.reader([line.strip()], skipinitialspace=True))
                 for line in page.splitlines() if line.strip().startswith("ours,")]
        self.assertEqual([row[2:] for row in cells], [
            ["3", "0.25", "0.40", "0"], ["2", "3.00", "3.00", "1"], ["1", "–", "–", "1"]])
        self.assertIn("kernel 7.3, 2026-01-01", page)
        self.assertNotIn("One of two cables", reliability.page([]))

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
