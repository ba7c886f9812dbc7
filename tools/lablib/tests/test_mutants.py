# SPDX-License-Identifier: GPL-2.0
"""Tests that each planted fault in the table fits the source, and that the tests of each fault
exist."""

import os
import re
import subprocess
import sys
import unittest

from lablib.base.paths import REPO
from lablib.checks import mutants

LEAST = 24  # minimum number of faults that tests notice


class Table(unittest.TestCase):
    def test_every_fault_can_be_planted(self):
        faults = mutants.table()
        self.assertGreaterEqual(len([fault for fault in faults if fault.tests]), LEAST)
        for fault in faults:
            with self.subTest(fault.name):
                original = (REPO / fault.file).read_text()
                self.assertNotEqual(fault.applied(original), original)

    def test_every_test_exists(self):
        faults = [fault for fault in mutants.table() if not (fault.host or fault.rds)]

        def kind(fault):
            return *fault.kind[:2], fault.rails, fault.server, fault.siw

        for wanted in sorted({kind(fault) for fault in faults}):
            debug, full, rails, server, siw = wanted
            listed = subprocess.run(
                [sys.executable, "-B", REPO / "selftests/run", "--list", "--size",
                 "full" if full else "small", "--vers", mutants.VERSIONS],
                env=os.environ | {"LAB_DEBUG": "1" if debug else "",
                                  "LAB_SERVER": "ours" if server else "intree",
                                  "LAB_PROVIDER": "siw" if siw else "rxe",
                                  "LAB_DEVICES": "rxe0 rxe1" if rails else "rxe0"},
                stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout.splitlines()
            for fault in faults:
                for test in fault.tests if kind(fault) == wanted else ():
                    with self.subTest(fault.name):
                        self.assertTrue(any(re.search(test, name) for name in listed), test)

    def test_every_test_of_rds_exists(self):
        listed = subprocess.run(
            [sys.executable, "-B", REPO / "selftests/rds/rds.py", "list"],
            stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout.splitlines()
        names = {line.split()[0] for line in listed}
        for fault in mutants.table():
            if fault.rds:
                with self.subTest(fault.name):
                    self.assertLessEqual(set(fault.tests), names)

    def test_every_test_on_the_host_exists(self):
        tests = REPO / "rust/proto/tests/it"
        for fault in mutants.table():
            for test in fault.tests if fault.host else ():
                with self.subTest(fault.name):
                    *file, name = test.split("::")
                    source = (tests / "/".join(file)).with_suffix(".rs").read_text()
                    self.assertTrue(f"fn {name}()" in source, test)

    def test_a_text_that_is_not_there_once_is_refused(self):
        for text in ("", "a", "aba"):
            fault = mutants.Fault("x", "y", "f", "a", "b", ("t",))
            with self.subTest(text):
                if text.count("a") == 1:
                    self.assertEqual(fault.applied(text), "b")
                else:
                    self.assertRaises(mutants.LabError, fault.applied, text)


class Reading(unittest.TestCase):
    OUTPUT = ("KTAP version 1\n1..2\n# 1.5 s\nok 1 a.b vers=3\n# Traceback\n# AssertionError: x\n"
              "# 2.0 s\nnot ok 2 c.d\n")

    def test_results(self):
        self.assertEqual(mutants.results(self.OUTPUT),
                         {"a.b vers=3": (True, 1.5, ""),
                          "c.d": (False, 2.0, "AssertionError: x")})

    def test_results_of_rds(self):
        output = ("ok ping (0.3 s) [basic]\n    note: x\nnot ok get-mr (1.0 s) [RDS-16]\n"
                  "    FAILED: GET_MR: 'EIO', promised True\n    FAILED: more\n"
                  "1 passed, 1 failed\n")
        self.assertEqual(mutants.rds_results(output),
                         {"ping": (True, 0.3, ""),
                          "get-mr": (False, 1.0, "GET_MR: 'EIO', promised True")})

    def test_skipped_is_no_failure(self):
        self.assertEqual(mutants.results("ok 1 a # SKIP none\n"), {"a": (True, 0.0, "")})
