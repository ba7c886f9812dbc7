# SPDX-License-Identifier: GPL-2.0
"""What a run of `pauses` found: its record, and its part of the page of faults survived."""

import itertools
import statistics

from ..base import records, rst
from ..machine.session import NAMES

# Of the newest run of each: a row for each client and fault.
RECORD = "rail-pauses"
COLUMNS = ("date", "kernel", "client", "fault", "rounds", "median", "worst", "lost")
HEAD = ("Client", "fault", "rounds", "median in s", "worst in s", "no answer")
# What a fault may cost, in seconds, by its name in selftests/pauses; and what it is.
BOUNDS = {"cable": 1, "port": 1, "device": 1, "silence": 8, "address": 8, "flapping": 1,
          "both": 18}
FAULTS = {"cable": "the client's end of a cable out for 10 s, then a new RDMA device",
          "port": "the client's interface down for 10 s, then a new RDMA device",
          "device": "the client's RDMA device of a cable deleted for 10 s",
          "silence": "all that arrives over a cable at the server dropped for 10 s",
          "address": "the server without its address for 10 s, then with a new RDMA device",
          "flapping": "the client's RDMA device deleted for half of each second, for 8 s",
          "both": "both RDMA devices of the client deleted for 10 s, then one of them back"}
INTRO = """\
One of two cables
=================

An NFSv4.2 mount with ``nconnect=4`` of a server to which two cables lead. Four processes write 4096
bytes past the page cache and read them back, again and again; a pause is the longest that one such
call took, from the begin of a fault until all four write after its end. Ours has rails, and the
fault meets one and then the other; the in-tree client has the first cable alone, and the fault
meets that. A mount that had not answered each of them 270 s after the end of a fault is counted in
the last column, and the next round was in new machines. With both devices gone the 10 s are part of
the pause. Silence is noticed when the device's retries run out, after 4.1 s with ours.
``tools/lab pauses`` (kernel {kernel}, {date}; ``--write`` makes the table anew).

"""


def row(found, date, kernel, client, fault):
    """The row of the record, from the pauses that the program wrote; None is one without end."""
    some = [pause for pause in found if pause is not None]
    return {"date": date, "kernel": kernel, "client": client, "fault": fault,
            "rounds": len(found), "median": f"{statistics.median(some):.2f}" if some else "",
            "worst": f"{max(some):.2f}" if some else "", "lost": len(found) - len(some)}


def keep(found):
    """Put what a run found in the place of the same before; the rest stays."""
    known = {(one["client"], one["fault"]): one for one in [*load(), *found]}
    records.write(RECORD, COLUMNS, [[known[key][name] for name in COLUMNS]
                                    for key in itertools.product(NAMES, FAULTS) if key in known])


def load():
    """The rows of the run, or none."""
    return records.read(RECORD)


def cells(row):
    """A row of the table."""
    return (NAMES[row["client"]], FAULTS[row["fault"]], str(row["rounds"]),
            row["median"] or "–", row["worst"] or "–", str(row["lost"]))


def text(found):
    """A run for the terminal."""
    return "\n".join(", ".join(f"{name}: {cell}"
                               for name, cell in zip(HEAD, cells(row), strict=True))
                     for row in found)


def page(found):
    """The part of the page; nothing without a run."""
    if not found:
        return ""
    newest = max(found, key=lambda row: row["date"])
    return INTRO.format(**newest) + rst.table(HEAD, map(cells, found)) + "\n"
