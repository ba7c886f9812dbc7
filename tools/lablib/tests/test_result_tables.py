# SPDX-License-Identifier: GPL-2.0
"""Tests that the tables in the documentation contain the recorded data."""

import csv
import pathlib
import re
import tempfile
import unittest
import unittest.mock
from typing import Any

from lablib.base import records
from lablib.base.paths import REPO
from lablib.bench import figures
from lablib.checks import beside, killed, mutants, reliability
from lablib.checks.documented import tables as loaded

PAGES = REPO / "Documentation"
USED = re.compile(r"^ *\.\. results:: (\S+)$", re.MULTILINE)


def rows_of(module, name):
    """Returns the rows of a table as docutils reads them. The first row is the heading."""
    return list(csv.reader((line.strip() for line in module.lines(name)[3:]),
                           skipinitialspace=True, strict=True))


class AsTheyAre(unittest.TestCase):
    """Tests of the tables that are made from the records in the source tree."""

    def test_each_table_is_on_one_page(self):
        used = [name for page in PAGES.glob("*.rst") for name in USED.findall(page.read_text())]
        self.assertEqual(sorted(used), sorted(loaded().TABLES))

    def test_each_row_is_as_wide_as_its_heading(self):
        module = loaded()
        for name in module.TABLES:
            head, *rows = rows_of(module, name)
            self.assertTrue(rows, name)
            self.assertEqual({len(row) for row in rows}, {len(head)}, name)

    def test_each_counter_is_explained(self):
        source = (REPO / "rust/proto/error.rs").read_text().split("counters! {")[1]
        names = re.findall(r'^    \w+ = "(\w+)",$', source, re.MULTILINE)
        rows = rows_of(loaded(), "counters")[1:]
        self.assertEqual([row[0] for row in rows], [f"``{name}``" for name in names])
        self.assertTrue(all(row[1].endswith(".") for row in rows))

    def test_each_name_in_the_log_is_explained(self):
        for table, path, enum in (
                ("causes", "conn/cause.rs", "Cause"), ("causes", "wc.rs", "WcStatus"),
                ("reasons", "conn/cause.rs", "ConnectError"),
                ("work-requests", "conn/failure_details.rs", "Opcode"),
                ("queue-pair-events", "conn/failure_details.rs", "QpEvent"),
                ("device-events", "conn/device.rs", "DeviceEvent")):
            source = (REPO / "rust/proto" / path).read_text()
            source = source.split(f"\nimpl {enum} {{")[1].split("\n}")[0]
            names = set(re.findall(r'Self::\w+ => "([^"]+)"', source)) - {"success"}
            self.assertGreater(len(names), 4, enum)
            rows = dict(rows_of(loaded(), table)[1:])
            self.assertEqual(names - {name.strip("`") for name in rows}, set(), enum)
            self.assertTrue(all(text[-1] in ".?)" for text in rows.values()), enum)
            self.assertNotRegex(" ".join(rows.values()), r"MAL-|V2-|X-0|\[|\(\)")

    def test_each_tracepoint_is_explained(self):
        for table, path in (("client-tracepoints", "trace.h"),
                            ("server-tracepoints", "svc_trace.h")):
            names = re.findall(r"^(?:TRACE_EVENT|DEFINE_EVENT)\((?:\w+, ?)?(\w+)",
                               (REPO / "rust/helpers" / path).read_text(), re.MULTILINE)
            rows = rows_of(loaded(), table)[1:]
            self.assertEqual(sorted(row[0] for row in rows), sorted(f"``{n}``" for n in names))

    def test_each_line_of_debugfs_is_explained(self):
        for table, path, function, end in (
                ("state", "client/observe/debugfs.rs", "fn show_state", "\n}\n"),
                ("other-counters", "client/observe/debugfs.rs", "fn show_counters", "\n}\n"),
                ("server-connection", "server/board.rs", "fn show(this: &Self", "\n    }\n")):
            source = (REPO / "rust" / path).read_text().split(function)[1].split(end)[0]
            labels = re.findall(r'writeln!\(\s*f,\s*"([A-Za-z][\w\' ]*): ', source)
            rows = rows_of(loaded(), table)[1:]
            self.assertGreater(len(rows), 5)
            self.assertEqual([row[0].strip("`") for row in rows], list(dict.fromkeys(labels)))

    def test_each_parameter_is_in_the_manual_page(self):
        source = (REPO / "rust/client/xprtrdma_client.rs").read_text().split("params: {")[1]
        names = re.findall(r"^        (\w+): u32 {", source, re.MULTILINE)
        names += re.findall(r"^module_param\w*\((\w+),", (
            REPO / "rust/helpers/settings.c").read_text(), re.MULTILINE)
        rows = rows_of(loaded(), "parameters")[1:]
        self.assertGreater(len(names), 7)
        self.assertEqual(set(names) - {row[0].strip("`") for row in rows}, set())
        self.assertFalse([row for row in rows if re.search(r"[\\\"]|^\.", "".join(row))])

    def test_a_page_may_have_its_tables_in_it(self):
        page = (PAGES / "observing.rst").read_text()
        found = loaded().expanded(page)
        self.assertEqual(USED.findall(found), [])
        self.assertIn('   ``odd_len``, A length that is no multiple of four; ignored.', found)

    def test_each_test_of_a_finding_exists(self):
        tops = [REPO / top for top in ("rust", "selftests/cases", "tools/lablib/tests")]
        there = {name for top in tops for path in top.rglob("*.[pr][ys]")
                 if "target" not in path.parts
                 for name in re.findall(r"\b(?:fn|def) (\w+)", path.read_text())}
        rows = rows_of(loaded(), "findings")[1:]
        named = [name for row in rows for name in re.findall(r"``([\w:.]+)``", row[2])]
        self.assertGreater(len(named), 30)
        self.assertEqual([name for name in named if re.split(r"::|\.", name)[-1] not in there], [])

    def test_each_planted_fault_is_told(self):
        rows = rows_of(loaded(), "mutants")[1:]
        self.assertEqual([row[0].split("``")[1] for row in rows],
                         [fault.name for fault in mutants.table()])
        recorded = mutants.recorded()
        self.assertEqual({row[0].split("``")[1] for row in rows if "not planted yet" in row[2]},
                         {fault.name for fault in mutants.table()
                          if fault.tests and fault.name not in recorded})


class Made(unittest.TestCase):
    """Tests of tables that are made from the test's own records."""

    def setUp(self):
        top = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (top / "results").mkdir()
        self.module = loaded()
        self.enterContext(unittest.mock.patch.object(self.module, "TOOLS", top))
        self.enterContext(unittest.mock.patch.object(records, "RESULTS", top / "results"))

    @staticmethod
    def run_of(client, recovery, failed=0, **more):
        row = {"recovery": recovery, "bytes": len(recovery) << 20, "failed": failed, "errors": 0,
               "splats": 0}
        return {"client": client, "debug": False, "kernel": "7.3", "seed": 1, "minutes": 30,
                "date": "2026-01-01", "complaints": [], "ended": True, "failures": [],
                "faults": {"silence": "nothing is heard"}, "rows": {"silence": {"3": row}}} | more

    def test_clients_stand_side_by_side(self):
        reliability.save([self.run_of("ours", [1.0]), self.run_of("intree", [3.0, 4.0])])
        self.assertEqual(rows_of(self.module, "torture-stock")[1], [
            "``silence``: nothing is heard", "1", "1.0, 1.0", "–", "1",
            "2", "3.5, 4.0", "–", "2"])
        self.assertEqual(rows_of(self.module, "torture-runs")[1:], [
            ["ours", "7.3", "1", "30", "1", "0", "nothing"],
            ["in-tree", "7.3", "1", "30", "2", "0", "nothing"]])

    def test_failures_are_told_once(self):
        bad = self.run_of("ours", [], 1, debug=True, complaints=["one", "one and two"],
                          failures=[{"fault": "silence", "text": "OSError: [Errno 5] oh"}])
        reliability.save([bad, bad])
        self.assertEqual(rows_of(self.module, "torture-runs")[1:], [
            ["ours", "7.3", "2", "60", "2", "2: ``silence``", "one and two"]])
        self.assertEqual(rows_of(self.module, "torture-debug")[1][1], "2: 2 failed")
        self.assertEqual(rows_of(self.module, "torture-failures")[1:], [
            ["ours", "``silence``", "``OSError: [Errno 5] oh``"]])

    def test_kills(self):
        killed.keep([{"date": "2026-01-01", "kernel": "7.3", "client": "intree", "vers": "4.2",
                      "problem": "did not start"}])
        self.assertEqual(rows_of(self.module, "kills")[1:], [
            ["in-tree", "4.2", "–", "–", "–", "–", "–", "did not start"]])

    def test_groups_of_a_case_are_counted(self):
        both = {"one | a": True, "two | a": True, "one | b": None, "c": False,
                "one | d": True, "two | d": False}
        beside.save({"git": {"intree": [1, 0], "ours": [0, 1], "groups": 2, "runs": 3,
                             "worse": {"e": 3}, "both": both}})
        self.assertEqual(rows_of(self.module, "program-failures")[1:], [
            ["``git``", "a", "2", "fails"], ["``git``", "b", "1", "not run"],
            ["``git``", "c", "1", "passes"], ["``git``", "d", "2", "fails in 1"]])

    def test_counts_of_both_clients(self):
        def row(value) -> dict[str, Any]:
            return dict.fromkeys(figures.COUNTS, value)

        figures.write({"kernel": "7.3", "counts": {
            "ours": {"GETATTR": row(1234.5678), "READ": {"code": 2.0}},
            "intree": {"GETATTR": row(0.5), "READ": {"code": 3.0}}}})
        self.assertEqual(rows_of(self.module, "bench-provider")[1:], [
            ["GETATTR", *["1,235 / 0.50"] * 4]])

    def test_times(self):
        took = {"ours": 2000.0, "in-tree": 900.0, "in-tree again": 1100.0, "tcp": 9.0}
        one = {"microseconds": took, "ratio": 2.0, "scatter": 0.25, "worse": True}
        figures.write({"kernel": "7.3", "times": {"one mount": {
            "READ": one, "WRITE": one | {"worse": False, "first": 3.0}}}})
        self.assertEqual(rows_of(self.module, "bench-times")[1:], [
            ["one mount", "READ", "2,000", "1,000", "9.00", "2.000 (worse)", "±25.0 %"],
            ["one mount", "WRITE", "2,000", "1,000", "9.00", "2.000 (at first 3.000)",
             "±25.0 %"]])


if __name__ == "__main__":
    unittest.main()
