# SPDX-License-Identifier: GPL-2.0
"""Tests that the results of a test program are counted correctly, and that missing output counts as
a failure."""

import unittest

from lablib.base.tally import of_closing_line
from lablib.checks.ktap import Parser

CASES = (
    ("all pass", "TAP version 13\n1..2\nok 1 a\nok 2 - b", 0, (2, 0, 0)),
    ("one fails", "1..2\nok 1 a\nnot ok 2 b", 1, (1, 1, 0)),
    ("a skip is neither", "1..2\nok 1 a\nok 2 b # SKIP no siw", 0, (1, 0, 1)),
    ("all skipped", "1..1\nok 1 b # skip no siw", 4, (0, 0, 1)),
    ("not all skipped", "1..2\nok 1 a\nok 2 b # SKIP", 4, (1, 1, 1)),
    ("an expected failure fails", "1..1\nnot ok 1 b # TODO later", 0, (0, 1, 0)),
    ("inner results count, their sum does not",
     "1..2\n    1..2\n    ok 1 a\n    not ok 2 b\nnot ok 1 group\nok 2 c", 1, (2, 1, 0)),
    ("a group that fails by itself counts",
     "1..1\n    1..1\n    ok 1 a\nnot ok 1 group", 1, (1, 1, 0)),
    ("missing results fail", "1..3\nok 1 a\nok 2 b", 0, (2, 1, 0)),
    ("missing inner results fail", "1..1\n    1..2\n    ok 1 a\nok 1 group", 0, (1, 1, 0)),
    ("no plan fails", "ok 1 a", 0, (1, 1, 0)),
    ("no output fails", "", 0, (0, 1, 0)),
    ("an exit status without a failed test fails", "1..1\nok 1 a", 3, (1, 1, 0)),
    ("a hang fails", "1..2\nok 1 a\nok 2 b", None, (2, 1, 0)),
    ("diagnostics are no results", "1..1\n# ok 2 no\nok 1 a", 0, (1, 0, 0)),
)


class Counting(unittest.TestCase):
    def test_cases(self):
        for name, text, status, expected in CASES:
            with self.subTest(name):
                parser = Parser()
                for line in text.splitlines():
                    parser.feed(line)
                tally = parser.end(status)
                self.assertEqual((tally.passed, tally.failed, tally.skipped), expected,
                                 tally.notes)


class ClosingLine(unittest.TestCase):
    def test_is_the_last_line_or_nothing(self):
        tally = of_closing_line("noise\n3 passed, 1 failed, 2 skipped\n\n")
        self.assertEqual((tally.passed, tally.failed, tally.skipped), (3, 1, 2))
        self.assertIsNone(of_closing_line("3 passed, 1 failed, 2 skipped\nnoise"))
        self.assertIsNone(of_closing_line(""))

    def test_nothing_tested_is_not_good(self):
        self.assertFalse(of_closing_line("0 passed, 0 failed, 4 skipped").good())


if __name__ == "__main__":
    unittest.main()
