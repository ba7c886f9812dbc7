# SPDX-License-Identifier: GPL-2.0
"""What a run of `kills` found: its record, and its part of the page of faults survived."""

from ..base import records, rst
from ..machine.session import NAMES

# The newest run; a row for each client and version.
RECORD = "kills"
COLUMNS = ("date", "kernel", "client", "vers", "kills", "connects", "pause", "rpcs", "seconds",
           "problem")
HEAD = ("Client", "NFS", "kills", "new connections", "longest pause of the others in s", "RPCs",
        "seconds", "at the end")
INTRO = """\
Killed processes
================

Processes that list a directory of 5000 entries are killed with SIGKILL while the server answers
them, one after the other. Beside them one process asks for attributes and another reads 32 KiB,
again and again; a pause is the time between the ends of two of their calls. RPCs are those of all,
in the time that the kills took. One run, each row in a pair of machines of its own:
``tools/lab kills`` (kernel {kernel}, {date}; ``--write`` makes the table anew).

"""


def keep(rows):
    """Put a run in the place of the one before."""
    records.write(RECORD, COLUMNS, [[row.get(name, "") for name in COLUMNS] for row in rows])


def load():
    """The rows of the run, or none."""
    return records.read(RECORD)


def cells(row):
    """A row of the table; what was not counted is a dash."""
    numbers = {name: str(row.get(name, ""))
               for name in ("kills", "connects", "pause", "rpcs", "seconds")}
    if numbers["pause"]:
        numbers["pause"] = f"{float(numbers['pause']):.2f}"
    return (NAMES[row["client"]], row["vers"], *(number or "–" for number in numbers.values()),
            row["problem"] or "all well")


def text(rows):
    """A run for the terminal."""
    return "\n".join(", ".join(f"{name}: {cell}"
                               for name, cell in zip(HEAD, cells(row), strict=True))
                     for row in rows)


def page(rows):
    """The part of the page; nothing without a run."""
    return INTRO.format(**rows[0]) + rst.table(HEAD, map(cells, rows)) + "\n" if rows else ""
