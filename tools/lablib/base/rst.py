# SPDX-License-Identifier: GPL-2.0
"""Creates the tables of the pages that programs write."""

import re


def cell(content):
    """Returns one cell of a csv-table."""
    text = str(content)
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\n]|^\s', text) else text


def row(*cells):
    """Returns one row of a csv-table, which is one line."""
    return f"   {', '.join(map(cell, cells))}\n"


def table(head, rows, *options):
    """Returns a csv-table whose first row is its heading."""
    return "".join([".. csv-table::\n", *(f"   :{o}\n" for o in ("header-rows: 1", *options)),
                    "\n", row(*head), *(row(*cells) for cells in rows)])
