# SPDX-License-Identifier: GPL-2.0
"""Tables of the pages that programs write."""


def row(*cells):
    """One row of a list-table."""
    return "".join(f"   {'  ' if i else '* '}- {cell}\n" for i, cell in enumerate(cells))


def table(head, rows, *options):
    """A list-table whose first row is its heading."""
    return "".join([".. list-table::\n", *(f"   :{o}\n" for o in ("header-rows: 1", *options)),
                    "\n", row(*head), *(row(*cells) for cells in rows)])
