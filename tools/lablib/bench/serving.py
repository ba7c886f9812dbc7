# SPDX-License-Identifier: GPL-2.0
"""Implements `tools/lab count --server`: makes the measurements, and prints and records the
results. With `--scale` or `--processors`, the server has many calls or connections."""

import collections
import dataclasses
import pathlib

from ..artefacts import kernel, root
from ..base import records
from ..base.paths import REPO
from ..base.ui import LabError
from . import figures, instructions, report, source

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
# For each kind of crowd (see guest/crowd.py), the columns of its table. Instructions in the columns
# do not include those in which a processor waits for a spin lock.
CROWDS = {
    "scale": ("passes", "pages", "kmalloc", "transport", "service", "atomics", "kernel"),
    "processors": ("passes", "transport", "service", "kernel", "spinning", "contended",
                   "interrupts", "wake-ups"),
}


@dataclasses.dataclass(frozen=True)
class Measured:
    """The results of a measurement."""

    rows: dict              # the values of the table's columns per RPC, by server and operation
    executed: dict          # the counts of instructions, by server and operation
    good: bool              # whether all measurements succeeded
    module: pathlib.Path    # the file of our server's module
    memory: dict            # the memory of an idle connection in KiB, by server


def measure(spec, rounds, servers):
    """Measures all servers. Returns a `Measured`."""
    seen, session, status = report.in_client(
        spec, [str(rounds), *servers], "serving",
        "intree" if servers == SERVERS else "ours", timeout=report.COUNT_SECONDS,
        serving="ours", plugin="instructions", counted="server", memory=report.MEMORY)
    executed = instructions.load(session, seen["instructions"])
    rows = instructions.medians(executed, instructions.Counts.served)
    for server, operations in rows.items():
        for operation, row in operations.items():
            row |= {key: seen["provider"][server][operation][key] for key in PROVIDER}
    return Measured(rows, executed, not status and not session.complaints,
                    REPO / session.pair.serving, seen["memory"])


def table(rows, columns=COLUMNS):
    """Returns a table that compares two servers, with a line for each operation and server."""
    lines = ["per RPC".ljust(36) + "".join(column.rjust(14) for column in columns)]
    first, last = rows
    for operation in rows[last]:
        lines.extend(report.each_way(rows, operation, columns))
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
    found = measure(spec, rounds, servers)
    print(table(found.rows), flush=True)
    print("KiB of an idle connection: " + ", ".join(
        f"{report.called(server)} {kib:.0f}" for server, kib in found.memory.items()), flush=True)
    tell(found, functions, output)
    if write:
        record(found.rows, found.memory, kernel.get(root.path(), spec).release)
    return 0 if found.good else 1


def tell(found, functions, output):
    """Prints the `functions` functions that execute the most instructions, and how many
    instructions each crate of our server executes. Writes the rows to the file `output`, if there
    is one."""
    report.tell(found.rows, found.executed, functions, output)
    if not functions:
        return
    server = list(found.rows)[-1]
    code = source.Source(root.path(), found.module)
    for operation, rounds in found.executed[server].items():
        parts = collections.Counter()
        for place, number in code.profile(rounds[-1])[1].items():
            parts[place.split("/")[1] if "/" in place else place] += number
        print(f"\n{report.called(server)}, {operation}, the module alone, by crate:")
        print(instructions.listing([[name, "", number] for name, number in parts.most_common()],
                                   sum(parts.values())), flush=True)


def measure_crowd(spec, kind, rounds, processors):
    """Measures both servers with many calls or connections. Returns a `Measured`."""
    seen, session, status = report.in_client(
        spec, [kind, str(rounds), *SERVERS], "crowd", "intree", timeout=report.COUNT_SECONDS,
        serving="ours", plugin="instructions", counted="server", processors=processors,
        memory=report.MEMORY)
    if seen["processors"] != processors:
        raise LabError(f"the server has {seen['processors']} processors, not {processors}")
    executed = instructions.load(session, seen["instructions"])
    rows = instructions.medians(executed, lambda counts: counts.row() | counts.served())
    for server, operations in seen["watched"].items():
        for operation, watched in operations.items():
            rows[server][operation] |= report.medians(watched)
    return Measured(rows, executed, not status and not session.complaints,
                    REPO / session.pair.serving, {})


def count_crowd(spec, kind, rounds, processors, functions, output, write):
    """Runs the command `tools/lab count --server` with `--scale` or `--processors`. Returns the
    exit status."""
    found = measure_crowd(spec, kind, rounds, processors)
    print(table(found.rows, CROWDS[kind]), flush=True)
    tell(found, functions, output)
    if write:
        release = kernel.get(root.path(), spec).release
        records.write(f"server-{kind}", ("release", "server", "load", *CROWDS[kind]), [
            (release, server, load, *(figures.number(row[key]) for key in CROWDS[kind]))
            for server in ("ours", "intree") for load, row in found.rows[server].items()])
    return 0 if found.good else 1
