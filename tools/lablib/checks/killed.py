# SPDX-License-Identifier: GPL-2.0
"""The record of the results of `kills`. The page about survived faults contains a table of this
record."""

from ..base import records
from ..machine.session import NAMES

# The record, which contains the newest run: a row for each client and version.
RECORD = "kills"
COLUMNS = ("date", "kernel", "client", "vers", "kills", "connects", "pause", "rpcs", "seconds",
           "problem")
HEAD = ("Client", "NFS", "kills", "new connections", "longest pause of the others in s", "RPCs",
        "seconds", "at the end")


def keep(rows):
    """Replaces the last run in the record."""
    records.write(RECORD, COLUMNS, [[row.get(name, "") for name in COLUMNS] for row in rows])


def load():
    """Returns the rows of the run, or an empty list."""
    return records.read(RECORD)


def cells(row):
    """Returns a row of the table. A dash means that the number was not measured."""
    numbers = {name: str(row.get(name, ""))
               for name in ("kills", "connects", "pause", "rpcs", "seconds")}
    if numbers["pause"]:
        numbers["pause"] = f"{float(numbers['pause']):.2f}"
    return (NAMES[row["client"]], row["vers"], *(number or "–" for number in numbers.values()),
            row["problem"] or "all well")


def text(rows):
    """Returns a run as text for the terminal."""
    return "\n".join(", ".join(f"{name}: {cell}"
                               for name, cell in zip(HEAD, cells(row), strict=True))
                     for row in rows)
