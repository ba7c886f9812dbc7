# SPDX-License-Identifier: GPL-2.0
"""What a run of `kills` found: its record, of which the page of faults survived has a table."""

from ..base import records
from ..machine.session import NAMES

# The newest run; a row for each client and version.
RECORD = "kills"
COLUMNS = ("date", "kernel", "client", "vers", "kills", "connects", "pause", "rpcs", "seconds",
           "problem")
HEAD = ("Client", "NFS", "kills", "new connections", "longest pause of the others in s", "RPCs",
        "seconds", "at the end")


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
