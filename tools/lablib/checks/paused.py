# SPDX-License-Identifier: GPL-2.0
"""The recorded results of the program `pauses`. A table in Documentation/reliability.rst shows
them."""

import itertools
import statistics

from ..base import records
from ..machine.session import NAMES

# Name of the results file, which contains a row for the newest run of each client and fault.
RECORD = "rail-pauses"
COLUMNS = ("date", "kernel", "client", "fault", "what", "rounds", "median", "worst", "lost")
HEAD = ("Client", "fault", "rounds", "median in s", "worst in s", "no answer")
# For each fault of selftests/pauses: the maximum pause that it may cause, in seconds, and its
# description.
BOUNDS = {"cable": 1, "port": 1, "device": 1, "silence": 8, "address": 8, "flapping": 1,
          "both": 18}
FAULTS = {"cable": "the client's end of a cable out for 10 s, then a new RDMA device",
          "port": "the client's interface down for 10 s, then a new RDMA device",
          "device": "the client's RDMA device of a cable deleted for 10 s",
          "silence": "all that arrives over a cable at the server dropped for 10 s",
          "address": "the server without its address for 10 s, then with a new RDMA device",
          "flapping": "the client's RDMA device deleted for half of each second, for 8 s",
          "both": "both RDMA devices of the client deleted for 10 s, then one of them back"}


def row(found, date, kernel, client, fault):
    """Returns a row of the results file. `found` contains the pauses that the program has reported,
    in seconds. None stands for a pause that did not end."""
    some = [pause for pause in found if pause is not None]
    return {"date": date, "kernel": kernel, "client": client, "fault": fault,
            "what": FAULTS[fault],
            "rounds": len(found), "median": f"{statistics.median(some):.2f}" if some else "",
            "worst": f"{max(some):.2f}" if some else "", "lost": len(found) - len(some)}


def keep(found):
    """Writes new rows to the results file. A new row replaces the row of the same client and fault.
    All other rows stay."""
    known = {(one["client"], one["fault"]): one for one in [*load(), *found]}
    records.write(RECORD, COLUMNS, [[known[key][name] for name in COLUMNS]
                                    for key in itertools.product(NAMES, FAULTS) if key in known])


def load():
    """Returns the rows of the results file. Returns an empty list if the file does not exist."""
    return records.read(RECORD)


def cells(row):
    """Returns the cells of one line of the table, from a row of the results file."""
    return (NAMES[row["client"]], FAULTS[row["fault"]], str(row["rounds"]),
            row["median"] or "–", row["worst"] or "–", str(row["lost"]))


def text(found):
    """Returns the results of a run as text for the terminal."""
    return "\n".join(", ".join(f"{name}: {cell}"
                               for name, cell in zip(HEAD, cells(row), strict=True))
                     for row in found)
