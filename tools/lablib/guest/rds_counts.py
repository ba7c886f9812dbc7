# SPDX-License-Identifier: GPL-2.0
"""Counts what a transport of RDS does for each message and each RDMA operation.

    rds_counts.py MODULE ROUNDS TRANSPORT...

This program runs in the client machine, with the plugin tools/native/instructions.c. It starts
itself in the server machine as well, with the argument `there`. The server machine uses the in-tree
transport.

The program measures each TRANSPORT with ROUNDS rounds. A TRANSPORT is `ours` (the module file
MODULE) or `intree`. `intree` must be the last, because it cannot be unloaded.

The operations are of three kinds:

- The client machine sends messages, and the server machine sends them back.
- The client machine offers memory, and the server machine reads or writes it. The client machine is
  the client of rds-rdma(7).
- The server machine offers memory, and the client machine reads or writes it. The client machine is
  the server of rds-rdma(7).

The counts of instructions and the symbols go to /results. The program prints a JSON object with two
members. `instructions` names the files with counts, and what each file contains. `provider`
contains the counts of the RDMA device for one operation, by transport, operation and counter.
"""

import dataclasses
import importlib
import json
import os
import socket
import sys
import threading
import time

from . import count, instructions, loads, transport
from .remote import Program, obey

RDS = "/repo/selftests/rds"
NAMES = {"ours": "rds_rdma_rs", "intree": "rds_rdma"}
KIB, MIB = 1 << 10, 1 << 20
# Each transport of this machine uses a separate connection.
TOS = {"ours": 1, "intree": 2}
PORT = 4000
SECONDS = 120
REST_SECONDS = 0.3
MESSAGES = {"8 B": 8, "4 KiB": 4 * KIB, "64 KiB": 64 * KIB}
TRANSFERS = {"4 KiB": 4 * KIB, "1 MiB": MIB}
SMALL = 64 * KIB
# The number of small operations of each kind, and the number of large operations of each kind.
COUNT, COUNT_LARGE = 128, 32


@dataclasses.dataclass(frozen=True)
class Load:
    """Operations of one kind, which are made one at a time. If `write` is true, the server of
    rds-rdma(7) writes to the memory that the client offers. Otherwise the server reads the memory.
    """

    name: str
    # `message`: both machines send messages. `offer`: the client machine offers memory, and is the
    # client of rds-rdma(7). `fetch`: the client machine reads or writes offered memory, and is the
    # server of rds-rdma(7).
    kind: str
    size: int
    write: bool = False

    @property
    def count(self):
        return COUNT if self.size <= SMALL else COUNT_LARGE


def operations():
    """Yields the loads that are counted, in the order in which they are counted."""
    for name, size in MESSAGES.items():
        yield Load(f"message, {name}", "message", size)
    for name, size in TRANSFERS.items():
        for write in (True, False):
            what = f"{'write' if write else 'read'} {name}"
            yield Load(f"client, {what}", "offer", size, write)
            yield Load(f"server, {what}", "fetch", size, write)


class End:
    """A socket, with a socket of the other machine as its peer."""

    def __init__(self, own, peer, tos):
        sys.path.insert(0, RDS)
        self.rds = importlib.import_module("rds")
        self.socket, self.peer = self.rds.Rds(), (peer, PORT + tos)
        self.socket.bind(own, PORT + tos)
        self.socket.set_tos(tos)
        self.node = self.rds.Node()
        self.node.sockets["s"] = self.socket
        self.node.buffer("m", MIB, 1)
        # The messages that arrived before a notification.
        self.early = []

    def receive(self):
        """Returns the next message. Raises an error if no message arrives."""
        message = self.early.pop(0) if self.early else self.socket.recv(MIB, SECONDS)
        if message is None or message["from"] is None:
            # On a loaded machine the device may exceed its retries. Then the connection fails, the
            # operation is dropped, and the other machine's part of the load ends with an error.
            raise RuntimeError(f"no message: {message}; did a connection fail (server.dmesg)?")
        return message

    def say(self, size, *cmsgs):
        self.socket.send(*self.peer, bytes(size), [self.node.cmsg(spec) for spec in cmsgs])

    def message(self, load, first):
        """If `first` is true, sends messages and waits until each of them comes back. Otherwise
        sends each received message back."""
        for _ in range(load.count):
            if first:
                self.say(load.size)
            self.receive()
            if not first:
                self.say(load.size)

    def offer(self, load, there):
        """Offers memory repeatedly, each time with a new handle. After each offer, waits for the
        message with the RDMA ACK."""
        if there:
            self.receive()  # This message means that the other machine is ready.
        for _ in range(load.count):
            self.say(8, {"type": "map", "buf": "m", "len": load.size,
                         "flags": self.rds.USE_ONCE | self.rds.INVALIDATE | (
                             self.rds.READWRITE if load.write else 0)})
            self.receive()

    def fetch(self, load, there):
        """Reads or writes the memory that the other machine offers. Sends a message with each
        operation. The arrival of the message shows that the operation has completed."""
        if not there:
            self.say(8)
        flags = self.rds.NOTIFY_ME | self.rds.FENCE | (self.rds.READWRITE if load.write else 0)
        for number in range(load.count):
            cookie = self.receive()["cookie"]
            self.say(8, {"type": "args", "cookie": cookie, "local": [["m", 0, load.size]],
                         "flags": flags, "token": number})
            self.told(number)

    def told(self, token):
        """Waits for the notification of an operation. The peer's next message may arrive before the
        notification, because the device completes operations and Receives independently."""
        got = self.socket.recv(MIB, SECONDS)
        if got is not None and got["from"] is not None and not got["status"]:
            self.early.append(got)
            got = self.socket.recv(MIB, SECONDS)
        if got is None or got["status"] != [[token, "SUCCESS"]]:
            raise RuntimeError(f"operation {token}: {got}")

    def run(self, load, there):
        """Runs this machine's part of a load, in the client or in the server machine."""
        if load.kind == "message":
            self.message(load, not there)
        elif (load.kind == "offer") != there:
            self.offer(load, there)
        else:
            self.fetch(load, there)


class There:
    """The server machine's part of the program."""

    def __init__(self, own, peer):
        load_transport(NAMES["intree"])
        self.ends = {tos: End(own, peer, tos) for tos in TOS.values()}

    def begin(self, tos, fields):
        """Starts the server machine's part of a load."""
        threading.Thread(target=self.ends[tos].run, args=(Load(*fields), True)).start()


def load_transport(module):
    """Loads RDS and a transport. `module` is the name of a module or the path of its file."""
    for argv in (["modprobe", "rds"], ["insmod" if "/" in module else "modprobe", module]):
        transport.run(*argv)


def operate(far, end, tos, load):
    """Runs one load at both ends, and waits until all work of the load is done."""
    far.ask("begin", tos, dataclasses.astuple(load))
    end.run(load, False)
    time.sleep(REST_SECONDS)


def measure(far, end, name, rounds):
    """Measures one transport. Returns a list with an entry for each round and operation, and a
    dictionary from each operation to the device's counters for one execution of the operation."""
    symbols, plugin = instructions.Symbols(f"{name}.symbols"), instructions.Plugin("instructions")
    instructions.tell_regions(plugin, symbols, NAMES[name])
    entries, provider = [], {}
    for number in range(rounds):
        print(f"  round {number + 1}: {name}", file=sys.stderr, flush=True)
        for place, load in enumerate(operations()):
            file = f"{number}-{name}-{place}.counts"
            operate(far, end, TOS[name], load)  # The first run is not counted.
            plugin.command("start")
            operate(far, end, TOS[name], load)
            plugin.stop(file)
            entries.append({"client": name, "operation": load.name, "rpcs": load.count,
                            "counts": file, "symbols": f"{name}.symbols"})
    with count.Probe() as probe:
        for load in operations():
            probe.take()
            operate(far, end, TOS[name], load)
            provider[load.name] = {counter: times / load.count
                                   for counter, times in probe.take().items()}
    return entries, provider


def main(module, rounds, names):
    """Measures all transports."""
    loads.hold_still()
    peer = os.environ["NFS_SERVER"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        own = probe.getsockname()[0]
    far, entries, provider = Program("server", "rds_counts", "there", peer, own), [], {}
    for name in names:
        load_transport(module if name == "ours" else NAMES[name])
        end = End(own, peer, TOS[name])
        found, provider[name] = measure(far, end, name, rounds)
        entries += found
        end.socket.close()
        if name == "ours":
            transport.unload(NAMES[name])
    print(json.dumps({"instructions": entries, "provider": provider}))


if __name__ == "__main__":
    if sys.argv[1] == "there":
        obey(There(*sys.argv[2:]))
    else:
        main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
