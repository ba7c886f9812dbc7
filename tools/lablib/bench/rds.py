# SPDX-License-Identifier: GPL-2.0
"""Implements `tools/lab count --rds`: measures, prints and records."""

from ..artefacts import kernel, module, root
from ..base import records
from . import figures, instructions, report

TRANSPORTS = ("ours", "intree")
RECORD = "rds-counts"
# The names of the columns. The numbers in the columns of `PROVIDER` come from the RDMA device. The
# numbers in the columns of `EXECUTED` come from the emulator's plugin.
PROVIDER = ("work_requests", "posts", "completions", "recv_posts")
EXECUTED = ("transport", "service", "copies", "own-atomics", "switches", "wakeups", "kernel")
COLUMNS = (*PROVIDER, *EXECUTED)


def measure(spec, rounds):
    """Measures all transports. Returns three results:

    - a number for each transport, operation and column,
    - the plugin's counts for each transport and operation,
    - whether all measurements succeeded.
    """
    base = root.path()
    built = module.build(base, kernel.get(base, spec), variant="rds")
    seen, session, status = report.in_client(
        spec, [f"/repo/{built}", str(rounds), *TRANSPORTS], "rds_counts", "none",
        timeout=report.COUNT_SECONDS, plugin="instructions")
    executed = instructions.load(session, seen["instructions"])
    rows = instructions.medians(executed)
    for transport, operations in seen["provider"].items():
        for operation, counted in operations.items():
            rows[transport][operation] |= counted
    return rows, executed, not status and not session.complaints


def table(rows):
    """Returns the counts of both transports as text, one line for each operation and transport."""
    lines = ["each".ljust(36) + "".join(column.rjust(14) for column in COLUMNS)]
    for operation in rows["ours"]:
        lines.extend(report.each_way(rows, operation, COLUMNS))
    return "\n".join(lines)


def record(rows, release):
    """Records the counts of both transports."""
    records.write(RECORD, ("release", "module", "load", *COLUMNS), [
        (release, transport, load, *(figures.number(row[key]) for key in COLUMNS))
        for transport in TRANSPORTS for load, row in rows[transport].items()])


def count(spec, rounds, functions, output, write):
    """Runs the whole command. Returns the exit status."""
    rows, executed, good = measure(spec, rounds)
    print(table(rows), flush=True)
    report.tell(rows, executed, functions, output)
    if write:
        record(rows, kernel.get(root.path(), spec).release)
    return 0 if good else 1
