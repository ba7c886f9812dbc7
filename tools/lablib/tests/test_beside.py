# SPDX-License-Identifier: GPL-2.0
"""Tests the code that reads the output of other projects' programs, and that finds the failures
that occur only with our client or our server.
"""

import re
import unittest

from lablib.artefacts.programs import PROGRAMS, Program
from lablib.checks.beside import Found, with_our_server, worse

NFSTEST = Program("nfstest_x", "an NFStest")
RECALLS = Program("nfstest_y", "an NFStest with groups to be", groups={"Recall": 2})
LINES = Program("lines", "prints its cases", command="true",
                line=re.compile(r"^(?P<name>\w+)\s+(?P<verdict>ok|FAILED)$"))
STATUS = Program("status", "has an exit status", command="true")
TEXT = """\
*** Basic 1
    PASS: READ (2048@0) is sent
    PASS: READ (2048@4096) is sent
*** Recall 2
    FAIL: READ (2048@0) is sent
"""


def found(program, *runs):
    result = Found()
    for output, status in runs:
        result.add(program, output, status)
    return result


class Reading(unittest.TestCase):
    def test_cases_belong_to_their_group_and_numbers_do_not_count(self):
        seen = found(NFSTEST, (TEXT, 1))
        self.assertEqual(dict(seen.cases), {"Basic N | READ (N@N) is sent": [2, 0],
                                            "Recall N | READ (N@N) is sent": [0, 1]})
        self.assertEqual(seen.totals(), [2, 1])

    def test_a_program_that_breaks_off_fails(self):
        for program, output, status in ((NFSTEST, TEXT, 124), (NFSTEST, TEXT, None),
                                        (NFSTEST, "", 0), (LINES, "a ok", 137), (LINES, "", 0),
                                        (STATUS, "", 1), (STATUS, "", None)):
            with self.subTest(program=program.name, status=status):
                seen = found(program, (output, status))
                self.assertTrue(any("the program" in name for name in seen.failures))

    def test_a_program_that_says_how_it_went_may_say_that_something_failed(self):
        self.assertEqual(dict(found(LINES, ("a ok\nb FAILED\nnoise", 1)).failures), {"b": 1})
        self.assertFalse(found(STATUS, ("a FAILED", 0)).failures)

    def test_an_exception_is_known_by_what_and_where(self):
        text = '''\
*** Group
    FAIL: Traceback (most recent call last):
            File "/usr/bin/nfstest_x", line 76, in test_x
              self.look()
              ~~~~~~~~~^^
            File "/usr/bin/nfstest_x", line 587, in look
              raise IndexError(what)
          IndexError: list index 7 out of range

    PASS: more
'''
        self.assertEqual(list(found(NFSTEST, (text, 1)).failures),
                         ["Group | IndexError: list index N out of range in look"])

    def test_groups_that_must_run(self):
        self.assertIn("the program itself (1 of 2 groups named Recall)",
                      found(RECALLS, (TEXT, 1)).failures)
        self.assertNotIn("the program itself (2 of 2 groups named Recall)",
                         found(RECALLS, (TEXT + TEXT, 1)).failures)


class Comparing(unittest.TestCase):
    def test_worse_is_what_fails_with_ours_only(self):
        for name, intree, ours, expected in (
                ("both pass", "a ok", "a ok", []),
                ("both fail", "a FAILED", "a FAILED", []),
                ("ours is better", "a FAILED", "a ok", []),
                ("ours fails", "a ok", "a FAILED", ["a"]),
                ("ours has a case more, which fails", "a ok", "a ok\nb FAILED", ["b"])):
            with self.subTest(name):
                self.assertEqual(worse(found(LINES, (intree, 0)), found(LINES, (ours, 0))),
                                 expected)

    def test_a_group_that_ours_lacks(self):
        intree, ours = found(NFSTEST, (TEXT, 1)), found(NFSTEST, (TEXT[:TEXT.find("*** R")], 0))
        self.assertEqual(worse(intree, ours), ["Recall N: not run"])

    def test_the_same_case_of_another_group_excuses_nothing(self):
        intree = found(NFSTEST, (TEXT, 1))
        ours = found(NFSTEST, (TEXT.replace("PASS", "FAIL"), 1))
        self.assertEqual(worse(intree, ours), ["Basic N | READ (N@N) is sent"])

    def test_one_failure_in_several_runs_stays_one(self):
        ours = found(LINES, ("a FAILED", 1), ("a ok", 0), ("a ok", 0))
        self.assertEqual(worse(found(LINES, ("a ok", 0)), ours), ["a"])
        self.assertEqual((ours.failures["a"], ours.runs), (1, 3))


KNOWN = {"both": {"known": True}, "worse": {}, "groups": 0}


class Servers(unittest.TestCase):

    def bad(self, known, intree, ours, more=None):
        """Calls `with_our_server`. `known` and `more` are results with the in-tree server. `intree`
        and `ours` are result lines of runs with our server: `intree` with the in-tree client, and
        `ours` with our client."""
        return with_our_server(known, {"intree": found(LINES, (intree, 0)),
                                       "ours": found(LINES, (ours, 0))}, more or Found())

    def test_what_fails_with_either_client_is_found(self):
        self.assertEqual(self.bad(None, "a FAILED", "a ok"), [("intree", "a")])
        self.assertEqual(self.bad(KNOWN, "a ok", "a FAILED"), [("ours", "a")])
        self.assertEqual(self.bad(KNOWN, "a ok", "a ok"), [])

    def test_what_fails_with_the_other_server_is_excused(self):
        self.assertEqual(self.bad(KNOWN, "known FAILED", "known FAILED"), [])
        self.assertEqual(self.bad(None, "a ok", "a FAILED", found(LINES, ("a FAILED", 1))), [])

    def test_a_group_that_is_missing(self):
        whole, part = found(NFSTEST, (TEXT, 1)), found(NFSTEST, (TEXT[:TEXT.find("*** R")], 0))
        known = {"both": dict.fromkeys(whole.failures), "worse": {}, "groups": 2}
        for intree in (Found(), whole):
            self.assertEqual(with_our_server(known, {"intree": whole, "ours": part}, intree),
                             [("ours", "1 of 2 groups")])


class Table(unittest.TestCase):
    def test_names_are_unique(self):
        names = [program.name for program in PROGRAMS]
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
