# SPDX-License-Identifier: GPL-2.0
"""Tests that a table in reStructuredText contains the cells from which it was made."""

import csv
import unittest

from lablib.base import rst


class Table(unittest.TestCase):
    ROWS = (("a", 1), ("x, y", '"quoted", and "more"'), ("", " leading"), ("``code``", "–"))

    def test_cells_come_back(self):
        head, *rows = rst.table(("one", "two"), self.ROWS).splitlines()[3:]
        self.assertEqual(head, "   one, two")
        # docutils reads a csv-table with these options.
        found = csv.reader((row.strip() for row in rows), skipinitialspace=True, strict=True)
        self.assertEqual(list(map(tuple, found)),
                         [tuple(map(str, row)) for row in self.ROWS])

    def test_options(self):
        self.assertEqual(rst.table(("a",), [], "widths: 9").splitlines(),
                         [".. csv-table::", "   :header-rows: 1", "   :widths: 9", "", "   a"])


if __name__ == "__main__":
    unittest.main()
