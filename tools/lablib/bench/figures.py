# SPDX-License-Identifier: GPL-2.0
"""Records the measurements of one run of `make bench`. The page of benchmarks is made from these
records.
"""

from ..base import records
from ..base.ui import say
from . import report

CLIENTS = ("ours", "intree")
# The columns of the record of counts. They count events in the client's kernel, among them atomic
# instructions and accesses to cache lines.
COUNTS = (*(name for name, _ in report.COLUMNS), "service", "copies", "kernel", "switches",
          "wakeups", "works", "allocations", "atomics", "fences", "own-atomics", "code", "data",
          "written", "stack", "l1i", "l1d", "l2", "own-data", "own-written")
TIMES = ("axis", "load", "ours", "in-tree", "tcp", "ratio", "first", "scatter", "worse")


def number(value):
    """Returns the text that is recorded for a number."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3f}".rstrip("0").rstrip(".")


def counts(found, release):
    """Records the exact counts, one line for each client and operation."""
    records.write("bench-counts", ("release", "client", "load", *COUNTS), [
        (release, client, load, *(number(row[key]) if key in row else "" for key in COUNTS))
        for client in CLIENTS for load, row in found[client].items()])


def scale(found):
    """Records the cost of a small read for different numbers of simultaneous reads."""
    records.write("bench-scale", ("load", "ours", "in-tree"), [
        (load, number(row["service"]), number(found["intree"][load]["service"]))
        for load, row in found["ours"].items()])


def times(found, name="bench-times"):
    """Records elapsed times."""
    records.write(name, TIMES, [
        (axis, load, number(took["ours"]),
         number((took["in-tree"] + took["in-tree again"]) / 2), number(took["tcp"]),
         f"{one['ratio']:.3f}", f"{one['first']:.3f}" if "first" in one else "",
         f"{one['scatter']:.3f}", int(one["worse"]))
        for axis, loads in found.items() for load, one in loads.items()
        for took in (one["microseconds"],)])


def write(result):
    """Records the results that `bench` has measured. Records of other results do not change."""
    if "counts" in result:
        counts(result["counts"], result["kernel"])
    if "scale" in result:
        scale(result["scale"])
    if "times" in result:
        times(result["times"])
    if "servers" in result:
        times(result["servers"], "server-times")
    say(f"written: {records.RESULTS}")
