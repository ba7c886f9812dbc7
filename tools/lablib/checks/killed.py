# SPDX-License-Identifier: GPL-2.0
"""The record of the results of `tools/lab kills`, which kills processes during their calls. A table
in Documentation/reliability.rst shows this record."""

from ..base import records
from ..machine.session import NAMES

# The name of the record. The record contains the newest run, with a row for each client and version
# of NFS.
RECORD = "kills"
COLUMNS = ("date", "kernel", "client", "vers", "kills", "connects", "pause", "rpcs", "seconds",
           "problem")
HEAD = ("Client", "NFS", "kills", "new connections", "longest pause of the others in s", "RPCs",
        "seconds", "at the end")


def keep(rows):
    """Stores the results of a run in the record, in place of the previous run's results."""
    records.write(RECORD, COLUMNS, [[row.get(name, "") for name in COLUMNS] for row in rows])


def load():
    """Returns the rows of the recorded run. The list is empty if no run is recorded."""
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
    """Returns the results of a run as text for the terminal."""
    return "\n".join(", ".join(f"{name}: {cell}"
                               for name, cell in zip(HEAD, cells(row), strict=True))
                     for row in rows)
