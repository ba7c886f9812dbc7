# SPDX-License-Identifier: GPL-2.0
"""Records of runs: tables in tools/results, with one record in a line."""

import csv

from .paths import REPO

RESULTS = REPO / "tools/results"


def read(name):
    """Returns the records of a table as dictionaries of texts. Returns an empty list if the table
    does not exist."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write(name, columns, rows):
    """Writes a whole table, with the rows in this order. A row is a sequence of cells."""
    if len(set(columns)) != len(columns):
        raise ValueError(f"{name}: two columns of one name: {columns}")
    rows = [[str(cell) for cell in row] for row in rows]
    for row in rows:
        if len(row) != len(columns) or any("\n" in cell for cell in row):
            raise ValueError(f"{name}: not a line of {len(columns)} cells: {row}")
    with open(RESULTS / f"{name}.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
