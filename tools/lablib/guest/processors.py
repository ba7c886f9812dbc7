# SPDX-License-Identifier: GPL-2.0
"""Measures what processors cost each other while threads read and write, with the kernel's own
counters; and what they execute, with the plugin of QEMU.

    processors.py ROUNDS CLIENT...

It measures each client in turn, ROUNDS times, and prints JSON:

    {"processors": number of processors,
     "counts": {client: {operation: [{counter: per RPC} of each round]}},
     "waits": {client: {operation: [{code that waited: per RPC} of each round]}},
     "instructions": [files of /results with the plugin's counts, see instructions.py]}

Instructions are counted in a pass of their own, because the plugin makes everything slower.
"contended" is how often a spin lock was found taken, counted as calls of the function in which the
kernel then waits. The code that takes the lock gets the count. (The tracepoint
lock:contention_begin misses a processor that waits alone and, with a hypervisor, every processor.)
"""

import collections
import contextlib
import json
import os
import pathlib
import sys

from . import histogram, instructions, loads, transport
from .instructions import TIMERS, WAIT

# Numbers of connections of a mount; there are at least as many threads.
CONNECTIONS = (1, 4, 16)
SCHEDSTATS = pathlib.Path("/proc/sys/kernel/sched_schedstats")
# Tracepoints of interrupts that a processor sends to others; and functions that only time causes,
# whose counts would show the speed of the host. A stack does not contain softirqs of other work,
# which run at the end of the timer's interrupt.
SENT = ("ipi/ipi_send_cpu", "ipi/ipi_send_cpumask")
TIMED = (*TIMERS, "sysvec_apic_timer_interrupt", "rcu_core")
# Fields of a processor's line in /proc/schedstat: its wake-ups, and those that woke a task on the
# same processor.
WAKES, OWN_WAKES = 5, 6
# Beginnings of functions that only take a lock for their caller; Rust's names are those of the
# kernel's own crates.
LOCKS = ("_raw_", "queued_", "rust_helper_", "_R")


def interrupts(found):
    """Returns (those that other work sent, those of timers) from a histogram by stack."""
    timed = sum(times for stack, times in found.items()
                if any(name in TIMED for name, _ in stack))
    return found.total() - timed, timed


def wakes(text):
    """Returns (wake-ups, those on another processor) of all processors, from /proc/schedstat."""
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    total, own = (sum(int(line[field]) for line in lines) for field in (WAKES, OWN_WAKES))
    return total, total - own


def switches(text):
    """Returns the number of context switches, from /proc/stat."""
    return int(next(line for line in text.splitlines() if line.startswith("ctxt")).split()[1])


def waiter(stack):
    """Returns the (function, module) that found the lock taken, from a stack with the innermost
    first."""
    above = stack[next(i for i, (name, _) in enumerate(stack) if name == WAIT) + 1:]
    return next(((name, module) for name, module in above
                 if module or not name.startswith(LOCKS)), ("?", ""))


def waits(found):
    """Returns the counts of a histogram by stack, added up by (function, module)."""
    total: collections.Counter = collections.Counter()
    for stack, times in found.items():
        total[waiter(stack)] += times
    return total


def counters():
    """Returns all counters since the machine's start."""
    made, remote = wakes(pathlib.Path("/proc/schedstat").read_text())
    return {"wake-ups": made, "remote": remote,
            "switches": switches(pathlib.Path("/proc/stat").read_text())}


def measure(mount, load):
    """Returns the counts per RPC of a load, and how often per RPC each piece of code found a lock
    taken."""
    load.run(load.count // 2)  # The first run is not counted.
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(histogram.of_function(WAIT))
        sent = [stack.enter_context(histogram.of_event(event, "common_stacktrace"))
                for event in SENT]
        rpcs, before = loads.rpcs(mount), counters()
        load.run(load.count)
        after, waited = counters(), waits(waiting.read())
        work, timed = interrupts(sum((one.read() for one in sent), collections.Counter()))
        rpcs = loads.rpcs(mount) - rpcs
    counted = {"interrupts": work, "timed interrupts": timed, "contended": waited.total()} | {
        name: after[name] - before[name] for name in after}
    return ({name: number / rpcs for name, number in counted.items()},
            {f"{name} [{module}]" if module else name: times / rpcs
             for (name, module), times in waited.items()})


def operations():
    """Yields (name, load, its mount) with the client that is loaded."""
    for connections in CONNECTIONS:
        options = f"vers=4.2,rdma,port=20049,nconnect={connections}"
        with transport.mounted(options) as mount, \
                loads.Bed(*[mount] * max(loads.THREADS)) as bed:
            for load in bed.threads(fewest=connections):
                yield f"{load.name}, nconnect={connections}", load, mount


def main(rounds, clients):
    loads.hold_still()
    SCHEDSTATS.write_text("1")
    plugin = instructions.Plugin("instructions")
    counts: dict = {client: {} for client in clients}
    waits_of: dict = {client: {} for client in clients}
    counted = []
    for each in range(int(rounds)):
        for client in clients:
            print(f"  round {each + 1}: {client}", file=sys.stderr, flush=True)
            with transport.loaded(client):
                prefix = f"{each}-{client}"
                symbols = instructions.Symbols(f"{prefix}.symbols")
                instructions.tell_regions(plugin, symbols, client)
                for number, (name, load, mount) in enumerate(operations()):
                    row, waited = measure(mount, load)
                    counts[client].setdefault(name, []).append(row)
                    waits_of[client].setdefault(name, []).append(waited)
                    counted.append(instructions.entry(plugin, client, prefix, number,
                                                      (name, load, (mount,))))
    print(json.dumps({"processors": os.cpu_count(), "counts": counts, "waits": waits_of,
                      "instructions": counted}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
