# SPDX-License-Identifier: GPL-2.0
"""Tests that the records of runs are read back exactly as they were written."""

import pathlib
import tempfile
import unittest
from unittest import mock

from lablib.base import records
from lablib.bench import baseline
from lablib.checks import beside, mutants, reliability


class Records(unittest.TestCase):
    def setUp(self):
        where = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch.object(records, "RESULTS", pathlib.Path(where)))

    def test_a_record_is_a_line(self):
        self.assertEqual(records.read("t"), [])
        rows = [("a, b", 1), ('"c"', ""), ("–", 0.5)]
        records.write("t", ("one", "two"), rows)
        self.assertEqual([tuple(row.values()) for row in records.read("t")],
                         [(one, str(two)) for one, two in rows])
        for columns, row in ((("one", "two"), ("a",)), (("one",), ("a\nb",)),
                             (("one", "one"), ("a", "b"))):
            with self.assertRaises(ValueError):
                records.write("t", columns, [row])

    def test_torture(self):
        def run(**more):
            row = {"recovery": [0.5, 2.25], "bytes": 9, "failed": 1, "errors": 0, "splats": 0}
            return {"client": "ours", "debug": False, "kernel": "7.3", "processors": 1, "seed": 1,
                    "minutes": 3.5, "date": "2026-01-01", "complaints": [], "ended": True,
                    "faults": {"silence": "nothing, for a while"}, "failures": [],
                    "rows": {"silence": {"3": row, "4.2": row | {"recovery": []}}}} | more

        runs = [run(), run(), run(debug=True, ended=False, complaints=["one", "two"],
                                  failures=[{"fault": "end", "text": "OSError: [Errno 5] oh"}])]
        reliability.save(runs)
        self.assertEqual(reliability.load(), runs)

    def test_programs(self):
        record = {"git": {"intree": [1, 0], "ours": [0, 1], "groups": 2, "runs": 3,
                          "worse": {"a, b": 3}, "both": {"c": None, "d": True, "e": False}}}
        beside.save(record)
        self.assertEqual(beside.load(), record)
        self.assertEqual(beside.load("ours"), {})
        beside.keep(beside.PROGRAMS[0], record["git"], "ours")
        self.assertEqual(beside.load(), record)
        self.assertEqual(beside.load("ours"), {beside.PROGRAMS[0].name: record["git"]})

    def test_faults(self):
        fault = mutants.Fault("one", "is broken", "file", "find", "put")
        mutants.save([fault], {"one": "x: y, z", "gone": "w"}, write=False)
        self.assertEqual(mutants.recorded(), {})
        mutants.save([fault], {"one": "x: y, z", "gone": "w"}, write=True)
        self.assertEqual(mutants.recorded(), {"one": "x: y, z"})

    def test_counts(self):
        counts = {"GETATTR": dict.fromkeys(baseline.TOLERANCE, 1.5), "READ": {"posts": 2.0}}
        baseline.record(counts, "7.3")
        self.assertEqual(baseline.recorded(), (counts, "7.3"))


if __name__ == "__main__":
    unittest.main()
