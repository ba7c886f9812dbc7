# SPDX-License-Identifier: GPL-2.0
"""Tests that the check of the examples finds a public type without an example."""

import pathlib
import tempfile
import unittest

from lablib.checks import examples

FILE = """\
/// A type.
///
/// ```
/// # use base::Shown;
/// let shown = Shown::new();
/// ```
pub struct Shown;

/// Another one; Hidden is not in an example.
///
/// ```text
/// Hidden
/// ```
pub struct Hidden;

pub(crate) struct Internal;
"""


class Examples(unittest.TestCase):
    def test_only_the_type_without_an_example_is_told_of(self):
        with tempfile.TemporaryDirectory() as directory:
            rust = pathlib.Path(directory)
            (rust / "base/tests").mkdir(parents=True)
            (rust / "base/a.rs").write_text(FILE)
            (rust / "base/tests/b.rs").write_text("pub struct Fake;\n")
            self.assertEqual(list(examples.check(rust)),
                             ["rust/base/a.rs:14: no example uses Hidden"])
