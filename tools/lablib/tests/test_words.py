# SPDX-License-Identifier: GPL-2.0
"""Tests that the check finds the listed words in comments and pages, and in no other text."""

import pathlib
import tempfile
import unittest

from lablib.checks import words


def found(name, text, left_out=()):
    """Checks one file with this name and text. Returns a list of pairs: the line number, and the
    words that were found."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        lines = list(words.check(pathlib.Path(directory), [path], left_out))
    return [(int(line.split(":")[1]), line.split('"')[1]) for line in lines]


class Words(unittest.TestCase):
    def test_each_word(self):
        for text, hit in (("Wakes who waits.", "who"), ("Of whom it is.", "whom"),
                          ("Whoever has it goes.", "Whoever"), ("Nobody looks.", "Nobody"),
                          ("When somebody comes.", "somebody"), ("If anybody asks.", "anybody"),
                          ("Has the device tell of it.", "Has the device tell"),
                          ("Fails after so many sends.", "after so many"),
                          ("So many are sent.", "So many"), ("The rail, if there is none.",
                                                             "there is none"),
                          ("It shall end.", "shall"), ("It may end meanwhile.", "meanwhile"),
                          ("Gives it back.", "Gives"), ("Lets calls out.", "Lets")):
            self.assertIn((1, hit), found("rust/a.rs", f"/// {text}\nfn f() {{}}\n"), text)

    def test_what_is_plain(self):
        for text in ("Returns the thread whose turn it is.", "A user who mounts waits.",
                     "So many that all fail.", "The lock has the caller's class.",
                     "It gives the slot back.", "Calls `nobody()`.",
                     "The log says \"nobody answers\"."):
            self.assertEqual(found("rust/a.rs", f"/// {text}\nfn f() {{}}\n"), [], text)

    def test_a_phrase_over_two_lines_is_told_of_where_it_begins(self):
        self.assertEqual(found("rust/a.rs", "fn f() {\n    // If there\n    // is none.\n}\n"),
                         [(2, "there is none")])

    def test_code_is_not_read(self):
        for text in ("fn f() { nobody(\"// shall\"); }\n", "let nobody = '\"';\nlet who = '\"';\n",
                     "/// ```\n/// let nobody = 1;\n/// ```\nfn f() {}\n"):
            self.assertEqual(found("rust/a.rs", text), [], text)

    def test_each_kind_of_file(self):
        for name, text, line in (
                ("rust/a.c", "int nobody;\n/*\n * It shall end.\n */\n", 3),
                ("rust/a.rs", "let a = 1; // Nobody looks.\n", 1),
                ("tools/a.py", "def who():\n    \"\"\"One.\n\n    It shall end.\n    \"\"\"\n", 4),
                ("tools/a.py", "who = 1  # it shall end\n", 1),
                ("tools/run", "#!/usr/bin/env python3\n# It shall end.\n", 2),
                ("selftests/run", "#!/bin/sh\nnobody=1\n# It shall end.\n", 3),
                ("Documentation/a.rst", "Title\n=====\n\nIt shall end.\n", 4),
                ("README.md", "It shall end.\n", 1)):
            self.assertEqual([at for at, _ in found(name, text)], [line], name)

    def test_pages_without_their_literal_blocks(self):
        self.assertEqual(found("Documentation/a.rst",
                               "As in::\n\n    it shall end\n\n``nobody`` is there.\n"), [])
        self.assertEqual(found("Documentation/conformance.rst", "It shall end.\n"), [])

    def test_directories_that_are_left_out(self):
        self.assertEqual(found("rust/a/b.rs", "// It shall end.\n", ("rust/a/",)), [])
        self.assertEqual(len(found("rust/ab.rs", "// It shall end.\n", ("rust/a/",))), 1)


if __name__ == "__main__":
    unittest.main()
