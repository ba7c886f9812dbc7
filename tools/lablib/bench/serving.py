# SPDX-License-Identifier: GPL-2.0
"""Implements `tools/lab count --server`: makes the measurements, and prints and records the
results."""

from ..artefacts import kernel, root
from ..base import records
from . import figures, instructions, report

# Each pair names two servers, or two ways to use our server. The second is compared with the first.
# guest/serving.py explains the names.
SERVERS = ("intree", "ours")
VERSIONS = ("version 1", "version 2")
MESSAGES = ("messages of 4 KiB", "messages of 8 KiB")
RECORD, MEMORY = "server-counts", "server-memory"
# The columns of the table: first the columns that the device counts, then the columns that the
# plugin counts.
PROVIDER = ("work_requests", "posts", "completions", "recv_posts")
COLUMNS = ("passes", *PROVIDER, "pages", "kmalloc", "transport", "service", "atomics", "switches",
           "kernel")


def measure(spec, rounds, servers):
    """Measures all servers. Returns four results:

    - the values of the table's columns per RPC, by server and operation
    - the counts of instructions, by server and operation
    - the memory of an idle connection in KiB, by server
    - whether all measurements succeeded
    """
    seen, session, status = report.in_client(
        spec, [str(rounds), *servers], "serving",
        "intree" if servers == SERVERS else "ours", timeout=report.COUNT_SECONDS,
        serving="ours", plugin="instructions", counted="server", memory=report.MEMORY)
    executed = instructions.load(session, seen["instructions"])
    rows = instructions.medians(executed, instructions.Counts.served)
    for server, operations in rows.items():
        for operation, row in operations.items():
            row |= {key: seen["provider"][server][operation][key] for key in PROVIDER}
    return rows, executed, seen["memory"], not status and not session.complaints


def table(rows):
    """Returns a table that compares two servers, with a line for each operation and server."""
    lines = ["per RPC".ljust(36) + "".join(column.rjust(14) for column in COLUMNS)]
    first, last = rows
    for operation in rows[last]:
        lines.extend(report.each_way(rows, operation, COLUMNS))
        ratios = (f"{what} {rows[last][operation][c] / rows[first][operation][c]:.3f}"
                  for what, c in (("transport and what it calls", "service"),
                                  ("whole kernel", "kernel")))
        lines.append(f"{'':26}{report.called(last)} to {report.called(first)}: "
                     f"{', '.join(ratios)}")
    return "\n".join(lines)


def record(rows, memory, release):
    """Writes the table, and the memory of an idle connection, to the records."""
    records.write(MEMORY, ("release", "server", "kib"), [
        (release, server, f"{memory[server]:.0f}") for server in ("ours", "intree")])
    records.write(RECORD, ("release", "server", "load", *COLUMNS), [
        (release, server, load, *(figures.number(row[key]) for key in COLUMNS))
        for server in ("ours", "intree") for load, row in rows[server].items()])


def count(spec, rounds, functions, output, write, servers=SERVERS):
    """Runs the whole command `tools/lab count --server`. Returns the exit status."""
    rows, executed, memory, good = measure(spec, rounds, servers)
    print(table(rows), flush=True)
    print("KiB of an idle connection: " + ", ".join(
        f"{report.called(server)} {kib:.0f}" for server, kib in memory.items()), flush=True)
    report.tell(rows, executed, functions, output)
    if write:
        record(rows, memory, kernel.get(root.path(), spec).release)
    return 0 if good else 1
