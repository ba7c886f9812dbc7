# SPDX-License-Identifier: GPL-2.0
"""Implements `make bench-check`: exact counts must not rise above the recorded counts or above the
goals.
"""

import json
import pathlib
import re

from ..artefacts import kernel, root
from ..base import records
from ..base.tally import Tally
from ..base.ui import LabError, say
from . import bench, report, serving

RECORD = "counts"
# The tolerances of the counts. Each tolerance is a pair: a fraction of the recorded count, and a
# constant. A count may rise by this fraction plus the constant. The numbers of work requests and
# completions are the same in every run. Other counts depend on how many times the processor becomes
# idle between two packets, and on how many times tasks are scheduled. These two numbers depend on
# the server.
TOLERANCE = {
    "work_requests": (0.01, 0.01), "posts": (0.01, 0.01), "completions": (0.01, 0.02),
    # The shortest load has 32 calls. Receives are posted in groups of 16. So this load posts such a
    # group 2 or 3 times.
    "recv_posts": (0.02, 0.035), "transport": (0.01, 5), "service": (0.06, 20),
    # memcpy copies forwards or backwards, depending on the lowest byte of both addresses. The
    # difference is about 30 instructions.
    "copies": (0.02, 35),
    "kernel": (0.05, 0), "works": (0.05, 0.1), "allocations": (0.02, 0.05),
    "atomics": (0.04, 0.3), "fences": (0.1, 0.3), "code": (0.05, 5), "data": (0.05, 3),
    "written": (0.05, 2), "l1d": (0.1, 5), "l2": (0.15, 5),
}
# Maximum number of posts for each call in loads that make several calls at a time. Some of these
# calls share a post. How many do so depends on the scheduler. Few calls share a post if our client
# uses fences, because calls then wait for each other. The client uses fences after a connection was
# lost because rxe has repeated a registration.
SHARED_POSTS = 1.01
# Tolerances for loads that make several calls at a time. Two counts vary more with these loads:
# - The number of instructions depends on how many calls share a post: one module needed 1112 and
#   1140 instructions in two runs. A call that shares a post costs the module about 40 more
#   instructions, and saves a post.
# - The number of cache lines of kernel code was 72 to 87 in three runs with our client, and 105 and
#   121 in two runs with the in-tree client.
SHARED = TOLERANCE | {"transport": (0.035, 5), "code": (0.25, 5)}
# Limits for each RPC, which do not depend on recorded counts. The first group contains the limits
# on work requests and completions. The second group contains the limits on the columns service,
# transport and kernel, as fractions of the in-tree client's numbers. All limits are for runs
# without fences (see SHARED_POSTS).
GOALS = {
    "GETATTR": ((2, 1.04), (1, 1, 0.97)),
    "READ 4 KiB": ((2, 1.04), (0.6, 0.85, 0.97)), "WRITE 4 KiB": ((2, 1.04), (0.67, 0.9, 0.97)),
    # The counts of a transfer of one mebibyte depend on the positions of its pages.
    "READ 1 MiB": ((2, 1.04), (0.7, 0.7, 0.99)), "WRITE 1 MiB": ((2, 1.04), (0.7, 0.7, 0.99)),
} | {f"{what} 4 KiB, {depth} at a time": ((2, 1.04), (1, 1, 0.98))
     for what in ("READ", "WRITE") for depth in (16, 64)}
LIMITED, BESIDE = ("work_requests", "completions"), ("service", "transport", "kernel")

# Counts of machines with several processors, which are recorded in a separate table. Their
# tolerances are large, because the host determines how many times a processor becomes idle.
PROCESSORS = "processors"
HOW_MANY = 4
WIDE = {"kernel": (0.1, 0), "wake-ups": (0.25, 0.5), "interrupts": (0.5, 1),
        "contended": (0.5, 0.5)}
# `MANY` is a pattern of the names of loads. With these loads, the whole kernel may execute at most
# the fraction `MANY_PART` of the instructions that it executes with the in-tree client.
MANY = re.compile(r"16 threads, nconnect=4\b")
MANY_PART = 0.98

# Tolerances for the counts of the server, in the form of `TOLERANCE`. The command `tools/lab count
# --server --write` records these counts. The counts vary for two reasons: a thread sometimes wakes
# up and finds no work, and the first and the last calls of a load may be counted only in part.
SERVED = {
    "passes": (0.05, 0.05), "work_requests": (0.03, 0.02), "posts": (0.03, 0.02),
    "completions": (0.03, 0.02), "recv_posts": (0.1, 0.02), "pages": (0.01, 0.1),
    "kmalloc": (0, 0.1), "transport": (0.02, 10), "service": (0.06, 20), "atomics": (0.04, 0.3),
    "kernel": (0.1, 0),
}
# The pages of a transfer of one mebibyte form 20 or 200 contiguous pieces, depending on the memory
# of the machine. Each piece costs about 30 instructions: in two measurements of the same module, a
# READ took 28 000 and 35 000 instructions.
PIECES = SERVED | {"transport": (0.35, 10), "service": (0.35, 20)}
# Limit for the instructions of the whole kernel with our server, as a fraction of the instructions
# with the in-tree server in the same run. The counts of small operations vary by 5 %.
SERVED_PART = 0.97


def most(load, counter, recorded, tolerance=TOLERANCE):
    """Returns the largest allowed value of a counter."""
    if "at a time" in load:
        if counter == "posts":
            return SHARED_POSTS
        tolerance = SHARED
    if tolerance is SERVED and "1 MiB" in load:
        tolerance = PIECES
    part, constant = tolerance[counter]
    return recorded * (1 + part) + constant


def rises(recorded, measured, tolerance=TOLERANCE):
    """Yields a line for each count that has risen. `recorded` and `measured` map each load to the
    values of its counters."""
    for load, counters in recorded.items():
        if load not in measured:
            yield f"{load}: not measured"
            continue
        for name, before in counters.items():
            now = measured[load].get(name)
            if now is None:
                yield f"{load}: {name} not measured"
            elif now > most(load, name, before, tolerance):
                yield f"{load}: {name} rose from {before:,.2f} to {now:,.2f}"


def missed(ours, intree):
    """Yields a line for each goal that is missed. Both arguments map each load to the values of its
    counters."""
    for load, (limits, parts) in GOALS.items():
        for name, limit in zip(LIMITED, limits, strict=True):
            # The counts of work requests and of completions are exact, except for rounding.
            if ours[load][name] > limit + 0.001:
                yield f"{load}: {name} {ours[load][name]:,.2f}, at most {limit:,}"
        for name, part in zip(BESIDE, parts, strict=True):
            yield from beyond(load, name, part, ours, intree)


def beyond(load, name, part, ours, intree):
    """Yields a line if a counter of our client exceeds the fraction `part` of the in-tree client's
    counter."""
    ratio = ours[load][name] / intree[load][name]
    if ratio > part:
        yield f"{load}: {name} {ratio:.3f} of the in-tree client's, at most {part}"


def missed_by_many(ours, intree):
    """Yields a line for each load in `MANY` that exceeds its limit."""
    for load in filter(MANY.search, ours):
        yield from beyond(load, "kernel", MANY_PART, ours, intree)


def record(counts, release, name=RECORD, columns=tuple(TOLERANCE)):
    """Writes the baseline: a line for each load, with the load's counts per RPC."""
    records.write(name, ("release", "load", *columns), [
        (release, load, *(round(counters[column], 3) if column in counters else ""
                          for column in columns)) for load, counters in counts.items()])
    say(f"written: {records.RESULTS / name}.csv")


def recorded(name=RECORD, columns=tuple(TOLERANCE)):
    """Returns the recorded counters of each load, and the kernel's release."""
    rows = records.read(name)
    return {row["load"]: {column: float(row[column]) for column in columns if row[column]}
            for row in rows}, rows[0]["release"]


def measure(spec, rounds):
    """Returns the counts of both clients, and the kernel's release."""
    counts, _, good = bench.counts(spec, "4.2", rounds)
    if not good:
        raise LabError("the counts were not taken: see above")
    return counts, kernel.get(root.path(), spec).release


def check(spec, rounds, measured, write):
    """Compares the counts with the recorded counts. If `write` is true, records the counts instead.
    If `measured` is given, reads the counts from this file, which `make bench` has written.
    Otherwise measures them."""
    if measured:
        found = json.loads(pathlib.Path(measured).read_text())
        counts, release = found["counts"], found["kernel"]
    else:
        counts, release = measure(spec, rounds)
    if write:
        record(counts["ours"], release)
        return 0
    before = comparable(recorded(), release)
    return judge((before, "ROSE", list(rises(before, counts["ours"]))),
                 (GOALS, "MISSED", list(missed(counts["ours"], counts["intree"]))))


def check_processors(spec, rounds, measured, write):
    """Compares the counts of machines with several processors with the recorded counts of such
    machines. If `write` is true, records the counts instead. If `measured` is given, reads the
    counts from this file, which `tools/lab count --processors` has written. Otherwise measures the
    counts."""
    if measured:
        counts = json.loads(pathlib.Path(measured).read_text())[PROCESSORS]
    else:
        counts, _, good = report.measure_processors(spec, "both", (HOW_MANY,), rounds)
        if not good:
            raise LabError("the counts were not taken: see above")
    release = kernel.get(root.path(), spec).release
    if write:
        record(counts["ours"], release, PROCESSORS, tuple(WIDE))
        return 0
    before = comparable(recorded(PROCESSORS, tuple(WIDE)), release)
    return judge((before, "ROSE", list(rises(before, counts["ours"], WIDE))),
                 (list(filter(MANY.search, counts["ours"])), "MISSED",
                  list(missed_by_many(counts["ours"], counts["intree"]))))


def recorded_served():
    """Returns the recorded counters of each load with our server, and the kernel's release."""
    rows = [row for row in records.read(serving.RECORD) if row["server"] == "ours"]
    return {row["load"]: {column: float(row[column]) for column in SERVED} for row in rows
            }, rows[0]["release"]


def missed_by_server(ours, intree):
    """Yields a line for each load in which the server machine's kernel executes more than the
    fraction `SERVED_PART` of the instructions that it executes with the in-tree server."""
    for load in ours:
        ratio = ours[load]["kernel"] / intree[load]["kernel"]
        if ratio > SERVED_PART:
            yield f"{load}: kernel {ratio:.3f} of the in-tree server's, at most {SERVED_PART}"


def check_server(spec, rounds, measured, write):
    """Compares the counts of the server with the recorded counts. If `measured` is given, reads the
    counts from this file, which `tools/lab count --server --json` has written."""
    if write:
        raise LabError("the server's counts are recorded by tools/lab count --server --write")
    if measured:
        rows = json.loads(pathlib.Path(measured).read_text())
    else:
        found = serving.measure(spec, rounds, serving.SERVERS)
        if not found.good:
            raise LabError("the counts were not taken: see above")
        rows = found.rows
    before = comparable(recorded_served(), kernel.get(root.path(), spec).release)
    ours = rows["ours"]
    return judge((before, "ROSE", list(rises(before, ours, SERVED))),
                 (ours, "MISSED", list(missed_by_server(ours, rows["intree"]))))


def comparable(found, release):
    """Returns the recorded counts. Raises an error if the counts were recorded with another kernel
    release than `release`."""
    before, with_kernel = found
    if with_kernel != release:
        raise LabError(f"recorded with kernel {with_kernel}, measured with {release}: "
                       "instructions do not compare; use KERNEL= or record again")
    return before


def judge(*parts):
    """Prints the problems with the counts, and the tally. Returns the exit status. Each element of
    `parts` consists of the names of loads, a word that describes the problems of these loads, and
    the lines about these problems."""
    tally = Tally()
    for loads, word, lines in parts:
        for line in lines:
            say(f"{word}: {line}")
        for load in loads:
            tally.judge(load, not any(line.startswith(f"{load}: ") for line in lines))
    print(tally.line(), flush=True)
    return 0 if tally.good() else 1
