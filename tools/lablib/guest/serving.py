# SPDX-License-Identifier: GPL-2.0
"""Counts the work that a server does for each RPC, in the server machine, while a client makes
calls.

This program runs in the client machine. The server machine must run with the plugin
tools/native/instructions.c.

    serving.py ROUNDS SERVER...

This program measures each SERVER in turn, ROUNDS times. A SERVER is `ours`, `intree` or a name in
transport.WAYS. `ours` and `intree` are measured with the in-tree client. For a name in
transport.WAYS, our server is measured with our client, which uses the settings of that name. The
last SERVER must be our server, because the lab unloads its module at the end.

The counts of instructions and the symbols go to /results. A JSON object on standard output has
three members. `instructions` names the files and their contents. `provider` contains the numbers
per RPC that the RDMA device counts, by server, operation and counter. `memory` contains the KiB
that a connection without calls needs, by server.

This program starts a copy of itself in the server machine, with the argument `there`. It sends
requests to this copy: a JSON list in each line.
"""

import contextlib
import json
import os
import pathlib
import sys
import time

from . import count, instructions, loads, transport
from .remote import Program, obey
from .servers import Servers

MODULES = {"ours": "svcrdma_rs", "intree": "rpcrdma"}
# The NFS versions that are measured, each with a flag. If the flag is true, only GETATTR is counted
# for this version.
VERSIONS = {"4.2": False, "3": True}
# Number of connections of the mount, and number of seconds without calls, for the measurement of an
# idle connection.
CONNECTIONS = 16
IDLE_SECONDS = 12
# Number of times that a load of small operations runs in a measurement. The counts also include the
# commands to the server. With more runs, these commands are a smaller part of the counts.
TIMES = 2
WARM_UP = 4


class There(Servers):
    """The part of the program that runs in the server machine."""

    def __init__(self):
        self.plugin, self.probe = instructions.Plugin("instructions"), contextlib.ExitStack()

    def serve(self, which, symbols):
        """Loads the module of the server `which`, and makes the server listen. Writes the kernel's
        symbols to the file `symbols`."""
        self.use(which, version(which))
        found = instructions.Symbols(symbols)
        instructions.tell_regions(self.plugin, found, MODULES.get(which, MODULES["ours"]),
                                  instructions.SERVERS)

    def start(self):
        self.plugin.command("start")

    def stop(self, name):
        self.plugin.stop(name)

    def watch(self):
        """Starts to count the work requests and completions of the RDMA device."""
        self.counter = self.probe.enter_context(count.Probe())

    def take(self):
        return self.counter.take()

    def rest(self):
        self.probe.close()

    def free(self):
        """Returns the amount of free memory in KiB."""
        loads.drop_caches()
        found = pathlib.Path("/proc/meminfo").read_text()
        return int(found.partition("MemFree:")[2].split()[0])


def version(server):
    """Returns the server's version of RPC-over-RDMA."""
    return transport.WAYS.get(server, (1,))[0]


def speak(server):
    """Makes the client's next mounts use the settings that `server` names (see transport.WAYS). If
    `server` is not such a name, does nothing."""
    if server in transport.WAYS:
        lib = instructions.selftests("responder")
        lib.VERSION.write_text(str(lib.ALONE[version(server)]))
        transport.set_inline(transport.WAYS[server][1])


def operations():
    """Yields a tuple for each kind of operation: its name, its load, and the mount that the load
    uses. Only one mount exists at a time."""
    for version, only_getattr in VERSIONS.items():
        options = f"vers={version},rdma,port=20049{',nolock' if version == '3' else ''}"
        with transport.mounted(options) as mount, loads.Bed(mount) as bed:
            for load in [bed.getattr(128)] if only_getattr else bed.single():
                name = f"{load.name} v{version}" if load.name == "GETATTR" else load.name
                yield name, load, mount


def rpcs_of(load, mount, times):
    """Runs a load `times` times. Returns the number of RPCs."""
    before = loads.rpcs(mount)
    load.run(load.count * times)
    return loads.rpcs(mount) - before


def executed(far, server, symbols):
    """Counts instructions. Yields an entry for each operation. `symbols` is the name of the file
    with the symbols."""
    for place, (name, load, mount) in enumerate(operations()):
        file = f"{symbols.removesuffix('.symbols')}-{place}.counts"
        is_small = load.count >= 128
        # These first runs are not counted. Our server's grant grows during these runs, so it no
        # longer grows while instructions are counted.
        load.run(load.count * (WARM_UP if is_small else 1))
        far.ask("start")
        rpcs = rpcs_of(load, mount, TIMES if is_small else 1)
        far.ask("stop", file)
        yield {"client": server, "operation": name, "rpcs": rpcs, "counts": file,
               "symbols": symbols}


def at_provider(far):
    """Returns how much each counter of the RDMA device grows per RPC, by operation and counter."""
    found = {}
    far.ask("watch")
    for name, load, mount in operations():
        load.run(load.count)
        far.ask("take")
        rpcs = rpcs_of(load, mount, 1)
        found[name] = {counter: times / rpcs for counter, times in far.ask("take").items()}
    far.ask("rest")
    return found


def idle(far):
    """Returns the amount of memory that a connection without calls needs, in KiB."""
    free = []
    for number in (1, CONNECTIONS):
        options = f"vers=3,nolock,rdma,port=20049,nconnect={number}"
        with transport.mounted(options) as mount:
            for _ in range(4 * CONNECTIONS):
                os.statvfs(mount)
            time.sleep(IDLE_SECONDS)
            free.append(far.ask("free"))
    return (free[0] - free[1]) / (CONNECTIONS - 1)


def main(rounds, servers):
    loads.hold_still()
    far = Program("server", "serving", "there",
                  env={"LAB_SERVER_MODULE": os.environ["LAB_SERVER_MODULE"]})
    entries, provider, memory = [], {}, {}
    with transport.loaded("ours" if servers[0] in transport.WAYS else "intree"):
        for number in range(int(rounds)):
            for server in servers:
                print(f"  round {number + 1}: {server}", file=sys.stderr, flush=True)
                symbols = f"{number}-{server.replace(' ', '-')}.symbols"
                far.ask("serve", server, symbols)
                speak(server)
                entries += executed(far, server, symbols)
                if server not in provider:
                    provider[server], memory[server] = at_provider(far), idle(far)
    print(json.dumps({"instructions": entries, "provider": provider, "memory": memory}))


if __name__ == "__main__":
    if sys.argv[1] == "there":
        loads.hold_still()
        obey(There())
    else:
        main(sys.argv[1], sys.argv[2:])
