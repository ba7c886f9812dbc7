# SPDX-License-Identifier: GPL-2.0
"""Measures how processors slow each other down while threads read and write, by means of the
kernel's own counters. Also counts the instructions that the processors execute, by means of the
plugin of QEMU.

    processors.py ROUNDS CLIENT...

It measures each client in turn, ROUNDS times, and prints JSON:

    {"processors": number of processors,
     "counts": {client: {operation: [{counter: per RPC} of each round]}},
     "waits": {client: {operation: [{code that waited: per RPC} of each round]}},
     "instructions": [files of /results with the plugin's counts, see instructions.py]}

Instructions are counted in a separate pass, because the plugin makes everything slower. The counter
"contended" is the number of calls of the function in which the kernel waits for a spin lock.
"waits" counts these calls separately for each function that takes a lock. (The tracepoint
lock:contention_begin would not count a processor that waits alone. With a hypervisor, it would
count no processor.)
"""

import collections
import contextlib
import json
import os
import pathlib
import sys

from . import histogram, instructions, loads, transport
from .instructions import TIMERS, WAIT

# The mount is measured with each of these numbers of connections. The number of threads is at least
# the number of connections.
CONNECTIONS = (1, 4, 16)
SCHEDSTATS = pathlib.Path("/proc/sys/kernel/sched_schedstats")
# Tracepoints of interrupts that a processor sends to other processors.
SENT = ("ipi/ipi_send_cpu", "ipi/ipi_send_cpumask")
# Functions that run at regular times, such as the function of the timer interrupt. The interrupts
# that these functions send are counted separately, because their number depends on the speed of the
# host. Softirqs for other work also run at the end of the timer interrupt. But the interrupts that
# such softirqs send are not counted separately, because the recorded part of their stacks does not
# contain the timer interrupt's function.
TIMED = (*TIMERS, "sysvec_apic_timer_interrupt", "rcu_core")
# Fields of a processor's line in /proc/schedstat: the number of wake-ups that the processor has
# made, and the number of wake-ups of tasks on the same processor.
WAKES, OWN_WAKES = 5, 6
# Beginnings of the names of functions that only take a lock for their caller. `_R` matches the Rust
# functions of the kernel's own crates.
LOCKS = ("_raw_", "queued_", "rust_helper_", "_R")


def interrupts(found):
    """Counts the interrupts that processors have sent. Returns two counts: the interrupts for work,
    and the interrupts that a function in TIMED caused. `found` is a histogram that contains a count
    of interrupts for each call stack."""
    timed = sum(times for stack, times in found.items()
                if any(name in TIMED for name, _ in stack))
    return found.total() - timed, timed


def wakes(text):
    """Returns two numbers from /proc/schedstat for all processors: the wake-ups, and the wake-ups
    of tasks on another processor."""
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    total, own = (sum(int(line[field]) for line in lines) for field in (WAKES, OWN_WAKES))
    return total, total - own


def switches(text):
    """Returns the number of context switches, from /proc/stat."""
    return int(next(line for line in text.splitlines() if line.startswith("ctxt")).split()[1])


def waiter(stack):
    """Returns the pair (function, module) that had to wait for a lock, from a stack whose first
    entry is the innermost function."""
    above = stack[next(i for i, (name, _) in enumerate(stack) if name == WAIT) + 1:]
    return next(((name, module) for name, module in above
                 if module or not name.startswith(LOCKS)), ("?", ""))


def waits(found):
    """Returns how many times each function had to wait for a lock, by the pair (function, module).
    `found` is a histogram that contains a count for each call stack."""
    total: collections.Counter = collections.Counter()
    for stack, times in found.items():
        total[waiter(stack)] += times
    return total


def counters():
    """Returns three counts since the machine started: wake-ups, remote wake-ups and context
    switches."""
    made, remote = wakes(pathlib.Path("/proc/schedstat").read_text())
    return {"wake-ups": made, "remote": remote,
            "switches": switches(pathlib.Path("/proc/stat").read_text())}


class Watch:
    """Counts what the processors of this machine do to each other. The object is a context manager,
    and counts from its beginning on."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.waiting = stack.enter_context(histogram.of_function(WAIT))
            self.sent = [stack.enter_context(histogram.of_event(event, "common_stacktrace"))
                         for event in SENT]
            self.stack = stack.pop_all()
        self.before = counters()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def read(self):
        """Returns the counts, and how many times each function had to wait for a lock."""
        after, waited = counters(), waits(self.waiting.read())
        work, timed = interrupts(sum((one.read() for one in self.sent), collections.Counter()))
        return {"interrupts": work, "timed interrupts": timed, "contended": waited.total()} | {
            name: after[name] - self.before[name] for name in after}, {
            f"{name} [{module}]" if module else name: times
            for (name, module), times in waited.items()}


def measure(mount, load):
    """Returns the counts of a load, and how many times each function had to wait for a lock. All
    numbers are per RPC."""
    load.run(load.count // 2)  # The first run is not counted.
    rpcs = loads.rpcs(mount)
    with Watch() as watch:
        load.run(load.count)
        found = watch.read()
    rpcs = loads.rpcs(mount) - rpcs
    return tuple({name: number / rpcs for name, number in counts.items()} for counts in found)


def operations():
    """Yields each operation to measure with the client module that is loaded, as a tuple: the name,
    the load, and the mount that the load uses."""
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
