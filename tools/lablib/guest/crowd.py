# SPDX-License-Identifier: GPL-2.0
"""Counts the work that a server does for each RPC while it has many calls or many connections.

This program runs in the client machine, like serving.py, and prints the same kind of result.

    crowd.py KIND ROUNDS SERVER...

KIND names the loads:

- `scale`: 16 calls at a time, and 1 and 64 connections that are used in turn
- `processors`: 64 threads with 4 connections, for a server machine with several processors

SERVER is `ours` or `intree`, as for serving.py. The JSON object has a second member, `watched`: the
counts of processors.Watch per RPC, by server and operation, with an entry for each round. The
member `processors` is the number of the server's processors.
"""

import contextlib
import json
import os
import sys

from . import axes, loads, processors, serving, transport
from .remote import Program, obey

MOUNTS = 64
# The number of threads and the number of connections in a server with several processors.
THREADS, CONNECTIONS = 64, 4
TRIES = 4


class There(serving.There):
    """The part of the program that runs in the server machine."""

    def __init__(self):
        super().__init__()
        processors.SCHEDSTATS.write_text("1")

    def processors(self):
        return os.cpu_count()

    def look(self):
        """Starts to count what the server's processors do to each other."""
        self.look_at = self.probe.enter_context(processors.Watch())

    def seen(self):
        """Returns the counts since the last call of `look`."""
        counts, _ = self.look_at.read()
        self.probe.close()
        return counts


@contextlib.contextmanager
def bed(mounts):
    """Makes mounts of different addresses of the server. Yields their mount points and loads that
    use them in turn."""
    with axes.mounts(axes.Axis(options="vers=3,nolock", mounts=mounts), True) as places, \
            loads.Bed(*places) as made:
        yield places, made


def scale():
    """Yields a tuple for each kind of operation: its name, its load, and the mounts that the load
    uses."""
    with transport.mounted("vers=4.2,rdma,port=20049") as mount, loads.Bed(mount) as made:
        for load in made.by_sixteen():
            yield load.name, load, (mount,)
    for mounts in (1, MOUNTS):
        with bed(mounts) as (places, made):
            for number, load in made.one_at_a_time():
                yield f"READ 4 KiB, connections: {number}", load, places


def by_threads():
    """Yields operations of many threads, like `scale`."""
    options = f"vers=4.2,rdma,port=20049,nconnect={CONNECTIONS}"
    with transport.mounted(options) as mount, loads.Bed(*[mount] * THREADS) as made:
        for write in (0, 1):
            load = made.by_threads(1024, 4 * loads.KIB, write, THREADS)
            yield f"{load.name}, {CONNECTIONS} connections", load, (mount,)


KINDS = {"scale": scale, "processors": by_threads}


def measure(far, name, load, mounts, file):
    """Measures a load. Returns the number of RPCs whose instructions the file contains, and the
    server's other counts per RPC. If a connection breaks, measures again."""
    def of_mounts():
        return [sum(map(what, mounts)) for what in (loads.rpcs, loads.connects)]

    # Our server's grant grows during the first runs.
    for _ in range(serving.WARM_UP):
        load.run(load.count)
    for _ in range(TRIES):
        before = of_mounts()
        far.ask("start")
        load.run(load.count)
        far.ask("stop", file)
        between = of_mounts()
        far.ask("look")
        load.run(load.count)
        seen, after = far.ask("seen"), of_mounts()
        if before[1] == after[1]:
            return between[0] - before[0], {
                counter: times / (after[0] - between[0]) for counter, times in seen.items()}
        print(f"  again: {name}: the connection broke while we counted", file=sys.stderr,
              flush=True)
    raise RuntimeError(f"{name}: the connection broke {TRIES} times while we counted")


def main(kind, rounds, servers):
    loads.hold_still()
    far = Program("server", "crowd", "there",
                  env={"LAB_SERVER_MODULE": os.environ["LAB_SERVER_MODULE"]})
    axes.add_addresses(MOUNTS)
    entries, watched = [], {server: {} for server in servers}
    with transport.loaded("intree"):
        for number in range(int(rounds)):
            for server in servers:
                print(f"  round {number + 1}: {server}", file=sys.stderr, flush=True)
                symbols = f"{number}-{server}.symbols"
                far.ask("serve", server, symbols)
                for place, (name, load, mounts) in enumerate(KINDS[kind]()):
                    file = f"{number}-{server}-{place}.counts"
                    rpcs, seen = measure(far, name, load, mounts, file)
                    watched[server].setdefault(name, []).append(seen)
                    entries.append({"client": server, "operation": name, "rpcs": rpcs,
                                    "counts": file, "symbols": symbols})
    print(json.dumps({"instructions": entries, "watched": watched,
                      "processors": far.ask("processors")}))


if __name__ == "__main__":
    if sys.argv[1] == "there":
        loads.hold_still()
        obey(There())
    else:
        main(sys.argv[1], sys.argv[2], sys.argv[3:])
