# SPDX-License-Identifier: GPL-2.0
"""Creates tables for generated documentation pages."""

import re


def cell(content):
    """Returns one cell of a csv-table."""
    text = str(content)
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\n]|^\s', text) else text


def row(*cells):
    """Returns one row of a csv-table, which is one line."""
    return f"   {', '.join(map(cell, cells))}\n"


def table(head, rows, *options):
    """Returns a csv-table. The heading of the table is `head`."""
    return "".join([".. csv-table::\n", *(f"   :{o}\n" for o in ("header-rows: 1", *options)),
                    "\n", row(*head), *(row(*cells) for cells in rows)])
