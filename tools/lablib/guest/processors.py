# SPDX-License-Identifier: GPL-2.0
"""What processors do to each other while threads read and write, by the kernel's own counters.

    processors.py CLIENT...   prints JSON {"processors": how many there are,
                              "counts": {client: {operation: {counter: per RPC}}}}
"""

import json
import os
import pathlib
import sys

from . import loads, transport

# Connections of a mount; no more than there are threads.
CONNECTIONS = (1, 4, 16)
SCHEDSTATS = pathlib.Path("/proc/sys/kernel/sched_schedstats")
# Rows of /proc/interrupts; the calls of CAL are those of TLB, too.
ROWS = ("RES", "CAL")
# Fields of a processor's line in /proc/schedstat: wake-ups that it made, and how many of them left
# the task to itself.
WAKES, OWN_WAKES = 5, 6


def interrupts(text):
    """Of all processors, from /proc/interrupts."""
    total = 0
    for line in text.splitlines():
        name, _, rest = line.strip().partition(":")
        if name in ROWS:
            total += sum(int(word) for word in rest.split() if word.isdigit())
    return total


def wakes(text):
    """(wake-ups, of them on another processor) of all processors, from /proc/schedstat."""
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    total, own = (sum(int(line[field]) for line in lines) for field in (WAKES, OWN_WAKES))
    return total, total - own


def switches(text):
    """From /proc/stat."""
    return int(next(line for line in text.splitlines() if line.startswith("ctxt")).split()[1])


def counters():
    """Everything since the machine's start."""
    made, remote = wakes(pathlib.Path("/proc/schedstat").read_text())
    return {"interrupts": interrupts(pathlib.Path("/proc/interrupts").read_text()),
            "wake-ups": made, "remote": remote,
            "switches": switches(pathlib.Path("/proc/stat").read_text())}


def measure(mount, load):
    """Per RPC of a load."""
    load.run(load.count)  # warm up
    rpcs, before = loads.rpcs(mount), counters()
    load.run(load.count)
    after = counters()
    rpcs = loads.rpcs(mount) - rpcs
    return {name: (after[name] - before[name]) / rpcs for name in after}


def main(clients):
    loads.hold_still()
    SCHEDSTATS.write_text("1")
    result = {}
    for client in clients:
        with transport.loaded(client):
            for connections in CONNECTIONS:
                options = f"vers=4.2,rdma,port=20049,nconnect={connections}"
                with transport.mounted(options) as mount, \
                        loads.Bed(*[mount] * max(loads.THREADS)) as bed:
                    for load in bed.threads(fewest=connections):
                        result.setdefault(client, {})[
                            f"{load.name}, nconnect={connections}"] = measure(mount, load)
    print(json.dumps({"processors": os.cpu_count(), "counts": result}))


if __name__ == "__main__":
    main(sys.argv[1:])
