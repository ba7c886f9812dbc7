# SPDX-License-Identifier: GPL-2.0
"""Documentation/benchmark-figures.rst: what one run of `make bench` measured."""

from ..base import rst
from ..base.paths import REPO
from ..base.ui import say
from . import report

FILE = REPO / "Documentation/benchmark-figures.rst"
HEAD = """\
.. SPDX-License-Identifier: GPL-2.0
.. Written by tools/lab bench --document; do not edit.

=================
Benchmark figures
=================

What ``make bench`` measured, kernel {kernel}. What the words mean is in
:doc:`benchmarks`. Counts and times may be of different runs.
"""
TIMES = "Elapsed time: one mount\n"
KERNEL = (("service", "the transport and what it calls"), ("copies", "of that, copying"),
          ("kernel", "whole kernel"), ("switches", "task switches"), ("wakeups", "wake-ups"),
          ("works", "works queued"), ("allocations", "allocations of the transport"))
ORDER = (("atomics", "atomic"), ("fences", "fences"), ("own-atomics", "atomic, in its own code"))
LINES = (("code", "code"), ("data", "data"), ("written", "written"), ("stack", "stack"),
         ("l1i", "missed, L1 code"), ("l1d", "missed, L1 data"), ("l2", "missed, L2"),
         ("own-data", "data, its own code"), ("own-written", "written, its own code"))
PROFILED = ("GETATTR", "READ 1 MiB")
FUNCTIONS = 30


def heading(text):
    return f"\n{text}\n{'=' * len(text)}\n"


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def counts(found):
    """The exact counts of both clients, an operation each line."""
    for title, columns in (("Counts at the provider, per RPC", report.COLUMNS),
                           ("Instructions and calls in the client's kernel, per RPC", KERNEL),
                           ("Atomic instructions and fences of the transport and what it calls, "
                            "per RPC", ORDER),
                           ("Cache lines of the transport and what it calls, per RPC", LINES)):
        yield heading(title)
        yield "Ours / in-tree.\n"
        ours, intree = found["ours"], found["intree"]
        yield rst.table(("operation", *(name for _, name in columns)),
                        [(load, *(f"{number(ours[load][key])} / {number(intree[load][key])}"
                                  for key, _ in columns))
                         for load in ours if all(key in ours[load] for key, _ in columns)])


def scale(found):
    """What a small read costs with how many beside it."""
    yield heading("Instructions of the transport and what it calls: "
                  "more and more calls, and mounts")
    yield rst.table(("NFSv3, per RPC", "ours", "in-tree"),
                    [(load, number(row["service"]), number(found["intree"][load]["service"]))
                     for load, row in found["ours"].items()])


def times(found):
    """Elapsed time, an axis each table."""
    for axis, loads in found.items():
        yield heading(f"Elapsed time: {axis}")
        yield rst.table(("microseconds per operation", "ours", "in-tree", "TCP", "ours/in-tree",
                         "scatter"),
                        [(load, number(took["ours"]),
                          number((took["in-tree"] + took["in-tree again"]) / 2),
                          number(took["tcp"]),
                          f"{one['ratio']:.3f}{' (worse)' if one['worse'] else ''}"
                          + (f" (at first {one['first']:.3f})" if "first" in one else ""),
                          f"±{100 * one['scatter']:.1f} %")
                         for load, one in loads.items() for took in (one["microseconds"],)])


def earlier_times(page):
    """Those of an earlier run, which are on the page."""
    _, times, rest = page.partition(TIMES)
    return [f"\n{times}{rest}"] if times else []


def profile(found):
    """Where the instructions of the transport and of what it calls are."""
    for load in PROFILED:
        yield heading(f"Profile: {load}, the transport and what it calls")
        yield rst.table(("function", "module", "instructions"),
                        [(f"``{name}``", where or "kernel", number(value))
                         for name, where, value in found[load][:FUNCTIONS]])


def write(result):
    """Write the page from what `bench` measured."""
    parts = [HEAD.format(kernel=result["kernel"])]
    if "counts" in result:
        parts += counts(result["counts"])
        parts += profile(result["profile"])
    if "scale" in result:
        parts += scale(result["scale"])
    if "times" in result:
        parts += times(result["times"])
    else:
        parts += earlier_times(FILE.read_text())
    FILE.write_text("\n".join(parts).replace("\n\n\n", "\n\n"))
    say(f"written: {FILE}")
