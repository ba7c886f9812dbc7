# SPDX-License-Identifier: GPL-2.0
"""Counts the instructions that the kernel executes per operation, with a plugin of QEMU.

The machine must run with the plugin tools/native/instructions.c or tools/native/cache.c. Each of
these files explains what its plugin counts.

    instructions.py PLUGIN OPTIONS ROUNDS CLIENT...

This program measures each client in turn, ROUNDS times, on a mount with the mount options OPTIONS.
If OPTIONS is `scale`, it measures with different numbers of mounts and of simultaneous calls
instead. A CLIENT is a client's module or a setting of our client. A setting is a name in
transport.WAYS, `rails off` or `rails on`. The settings of rails need two cables. The counts and the
symbols go to /results. A JSON list on standard output names the files and their contents.
"""

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import pathlib
import struct
import sys

from . import axes, loads, transport

RESULTS = pathlib.Path("/results")
TRIES = 4
PAGE = 4096
SELFTESTS = "/repo/selftests"
RAILS = {"rails off": "off", "rails on": "auto"}
# The machine code of `nopl 0x74727078(%rax,%rax,1); ret`. The plugin detects the first instruction.
MARKER = bytes((0x0f, 0x1f, 0x84, 0x00)) + struct.pack("<I", 0x74727078) + b"\xc3"
# The plugin's classes of code. ENTRY is code that may interrupt any other code, and that does not
# run on behalf of the interrupted code.
TRANSPORT, RXE, ENTRY, TIMER, SPIN, IDLE = 1, 2, 3, 4, 5, 7
# Classes of code that are counted only in a server. ENQUEUE is the function that gives a call to a
# thread. REFILL is the function that gives a thread new pages.
ENQUEUE, REFILL = 6, 8
SERVERS = ((ENQUEUE, "svc_xprt_enqueue"), (REFILL, "svc_fill_pages"))
# `IDLES` are the functions of an idle processor. If another processor wakes an idle processor for
# some work, the woken processor does this work in the function `WOKEN`.
IDLES, WOKEN = ("cpu_startup_entry", "do_idle"), "flush_smp_call_function_queue"
# Functions that wait for a spin lock, or for a timer's function that runs on another processor.
WAIT = "native_queued_spin_lock_slowpath"
WAITS = (WAIT, "timer_delete_sync")
# The function that begins an RPC, as a pair (function, module).
BEGINS = ("rpc_run_task", "sunrpc")
# Functions that run only because time passes. They do not include the whole timer interrupt,
# because softirqs for other work run at the end of the interrupt.
TIMERS = ("__sysvec_apic_timer_interrupt", "run_timer_softirq", "hrtimer_run_softirq",
          "sched_balance_softirq", "rcu_core_si")


class Plugin:
    """Sends commands to the plugin by executing an instruction without effect, which the plugin
    detects."""

    def __init__(self, name):
        """Writes the instruction that the plugin detects into executable memory. `name` is the name
        of the plugin."""
        self.looks_at_memory = name == "cache"
        self.code = mmap.mmap(-1, PAGE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.code.write(MARKER)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.code))
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_size_t)(address)

    def command(self, text):
        data = text.encode()
        self.call(data, len(data))

    def stop(self, name):
        """Stops counting. The plugin writes the counts to the file `name` in the results directory.
        """
        self.command(f"stop {name}")
        if not (RESULTS / name).exists():
            raise RuntimeError("no counts: is the plugin there?")


class Symbols:
    """The kernel's list of symbols (/proc/kallsyms). The symbols of the kernel itself are sorted by
    address, but the symbols of modules are not."""

    def __init__(self, name):
        """Reads the list of symbols, and writes a copy of the list to the results as the file
        `name`."""
        self.text = pathlib.Path("/proc/kallsyms").read_bytes()
        (RESULTS / name).write_bytes(self.text)

    def entries(self, start, end):
        """Yields (address, type) of each symbol in the text from position `start` to position
        `end`."""
        for line in self.text[start:end].splitlines():
            address, kind, _ = line.split(b" ", 2)
            yield int(address, 16), kind

    def line(self, symbol):
        """Finds a symbol of the kernel itself, not of a module. Returns the offset in the contents
        of kallsyms at which the symbol's line begins."""
        found = self.text.find(b" %b\n" % symbol.encode())
        if found < 0:
            raise RuntimeError(f"the kernel has no {symbol}")
        return self.text.rfind(b"\n", 0, found) + 1

    def address(self, symbol):
        place = self.line(symbol)
        return next(self.entries(place, self.text.find(b"\n", place)))[0]

    def function(self, symbol):
        """Returns the first address of a function and the first address after it."""
        place = self.line(symbol)
        end = self.text.find(b"\n", place + 1024)
        addresses = [address for address, _ in self.entries(place, end)]
        return addresses[0], next(a for a in addresses if a > addresses[0])

    def of_module(self, symbol, module):
        """Returns the address of a module's symbol."""
        place = self.text.find(b" %b\t[%b]\n" % (symbol.encode(), module.encode()))
        if place < 0:
            raise RuntimeError(f"{module} has no {symbol}")
        start = self.text.rfind(b"\n", 0, place) + 1
        return next(self.entries(start, self.text.find(b"\n", place)))[0]

    def function_of_module(self, symbol, module):
        """Returns the first address of a module's function and the first address after it."""
        begin = self.of_module(symbol, module)
        return begin, min(a for a, _ in self.entries(*self.lines_of(module)) if a > begin)

    def lines_of(self, module):
        """Returns the positions at which the lines of a module begin and end."""
        tag = b"\t[%b]\n" % module.encode()
        first = self.text.find(tag)
        return self.text.rfind(b"\n", 0, first) + 1, self.text.rfind(tag)

    def module(self, module):
        """Returns the first address of a module's code and the first address after it, in whole
        pages."""
        code = [a for a, kind in self.entries(*self.lines_of(module)) if kind in b"tT"]
        return min(code) & -PAGE, (max(code) & -PAGE) + PAGE


def tell_regions(plugin, symbols, module, more=()):
    """Tells the plugin the addresses of each class of code in the running kernel. `module` is the
    client module that is loaded. `more` contains pairs (class, function) for additional functions
    of sunrpc."""
    plugin.command("clear")
    waits = WAITS if (os.cpu_count() or 1) > 1 else ()
    for region, (start, end) in (
            *((TIMER, symbols.function(name)) for name in TIMERS),
            (TRANSPORT, symbols.module(module)),
            (RXE, symbols.module("rdma_rxe")),
            (ENTRY, (symbols.address("__entry_text_start"), symbols.address("__entry_text_end"))),
            *((ENTRY, symbols.function(name)) for name in ("__schedule", WOKEN)),
            *((IDLE, symbols.function(name)) for name in IDLES),
            *((SPIN, symbols.function(name)) for name in waits),
            *((kind, symbols.function_of_module(name, "sunrpc")) for kind, name in more)):
        plugin.command(f"region {region} {start:x} {end:x}")
    if plugin.looks_at_memory:
        plugin.command(f"call {symbols.of_module(*BEGINS):x}")


def usual(options, looks_at_memory):
    """Yields a tuple for each kind of operation: its name, its load, and the mounts that the load
    uses."""
    with transport.mounted(options) as mount, loads.Bed(mount) as bed:
        for load in (*bed.single(), *(bed.deepest() if looks_at_memory else bed.deep())):
            # Operations of 1 MiB are left out on the debug kernel. Under the plugin this kernel is
            # so slow that such an operation times out and breaks the connection.
            if not (os.environ["LAB_DEBUG"] and "MiB" in load.name):
                yield load.name, load, (mount,)


def selftests(name):
    """Returns a module of the selftests' library."""
    sys.path.insert(0, SELFTESTS)
    return importlib.import_module(f"lib.{name}")


def in_way(way, options):
    """Yields operations that are made one at a time. `way` is the name of an entry of
    `transport.WAYS`. If the server is ours, calls go directly to the server. If the server is the
    in-tree server, calls go through the responder of the selftests."""
    lib, port = selftests("responder"), 20049
    number, size = transport.WAYS[way]
    transport.set_inline(size)
    with contextlib.ExitStack() as undo:
        undo.enter_context(lib.preferred(lib.ALONE[number]))
        if os.environ["LAB_SERVER"] == "intree":
            peer = undo.enter_context(contextlib.closing(lib.Responder()))
            peer.call("speak", 1, 2)
            port = peer.port
        mount = undo.enter_context(transport.mounted(f"{options},port={port}"))
        bed = undo.enter_context(loads.Bed(mount))
        for load in bed.single():
            yield load.name, load, (mount,)


def with_rails(which, options):
    """Yields operations that are made one at a time, on a mount with the rail setting `which`."""
    selftests("rails").set_up(which)
    with transport.mounted(options) as mount, loads.Bed(mount) as bed:
        for load in bed.single():
            yield load.name, load, (mount,)


def scale():
    """Yields loads of small reads. First the number of simultaneous reads on one mount increases.
    Then there is one read at a time, and the number of mounts increases."""
    for mounts, slots, of_bed, what in ((1, axes.MOST_SLOTS, loads.Bed.outstanding, "at a time"),
                                        (1, 0, loads.Bed.one_at_a_time, "mount"),
                                        (axes.MOST_MOUNTS, 0, loads.Bed.one_at_a_time, "mounts")):
        axis = axes.Axis(options="vers=3,nolock", mounts=mounts, slots=slots)
        with axes.slots(axis), axes.mounts(axis, True) as places, loads.Bed(*places) as bed:
            for number, load in of_bed(bed):
                yield f"READ 4 KiB, {number} {what}", load, places


def operations_of(client, options, looks_at_memory):
    """Returns (the client's module, the operations to count)."""
    if client in transport.WAYS:
        return "ours", in_way(client, options)
    if client in RAILS:
        return "ours", with_rails(RAILS[client], options)
    return client, scale() if options == "scale" else usual(options, looks_at_memory)


def measure(plugin, client, module, operations, prefix):
    """Yields one entry for each kind of operation."""
    symbols = Symbols(f"{prefix}.symbols")
    tell_regions(plugin, symbols, transport.NAMES[module])
    for number, operation in enumerate(operations):
        yield entry(plugin, client, prefix, number, operation)


def entry(plugin, client, prefix, number, operation):
    """Counts one operation. `operation` is a tuple of its name, its load and its mounts. Returns
    the entry for the list of results. `number` is the number of the operation among the operations
    that use the same file of symbols."""
    name, load, mounts = operation
    file = f"{prefix}-{number}.counts"
    return {"client": client, "operation": name, "rpcs": count(plugin, name, load, mounts, file),
            "counts": file, "symbols": f"{prefix}.symbols"}


def count(plugin, name, load, mounts, file):
    """Counts the instructions of a load, and writes the counts to a file. Returns the number of
    RPCs. If a connection breaks during the count, counts again, because the connections of any
    client can break on an overloaded host."""
    for _ in range(TRIES):
        # The first run is not counted, because it allocates objects. Later runs with the same
        # number of simultaneous operations use these objects again.
        load.run(load.count)
        before, connects = (sum(map(what, mounts)) for what in (loads.rpcs, loads.connects))
        plugin.command("start")
        load.run(load.count)
        plugin.stop(file)
        rpcs, now = (sum(map(what, mounts)) for what in (loads.rpcs, loads.connects))
        if now == connects:
            return rpcs - before
        print(f"  again: {name}: the connection broke while we counted", file=sys.stderr,
              flush=True)
    raise RuntimeError(f"{name}: the connection broke {TRIES} times while we counted")


def main(name, options, rounds, clients):
    loads.hold_still()
    if options == "scale":
        axes.prepare()
    plugin, found = Plugin(name), []
    for each in range(int(rounds)):
        for client in clients:
            print(f"  round {each + 1}: {client}", file=sys.stderr, flush=True)
            module, operations = operations_of(client, options, plugin.looks_at_memory)
            with transport.loaded(module), contextlib.closing(operations):
                found += measure(plugin, client, module, operations,
                                 f"{each}-{client.replace(' ', '-')}")
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
