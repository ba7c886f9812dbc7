# SPDX-License-Identifier: GPL-2.0
"""Instructions of the client's kernel per RPC: from the plugin's counts to tables.

What is counted is said in tools/native/instructions.c.
"""

import bisect
import collections
import re
import statistics

from ..base import cache, chroot, proc
from ..base.ui import LabError
from ..machine.session import NAMES

# Numbers of the plugin's classes, as guest/instructions.py gives them.
OTHER, TRANSPORT, RXE, ENTRY, TIMER, SPIN, ENQUEUE, IDLE, REFILL = range(9)
KERNEL = frozenset((OTHER, TRANSPORT, RXE, ENTRY, ENQUEUE, REFILL))
NOT_RXE = KERNEL - {RXE}
# Groups of code by address; a module that is not named is in the rest.
GROUPS = {"xprtrdma_rs": "transport", "rpcrdma": "transport", "svcrdma_rs": "transport",
          "rds_rdma_rs": "transport", "rds_rdma": "transport",
          "sunrpc": "sunrpc",
          "nfs": "nfs", "nfsv3": "nfs", "nfsv4": "nfs", "netfs": "nfs", "ib_core": "ib_core",
          "rdma_cm": "ib_core", "ib_cm": "ib_core", "ib_uverbs": "ib_core", "rdma_rxe": "rxe"}
# kernel: all but idleness, waiting for spin locks and timer interrupts; service: the transport and
# what it calls, rxe excluded; copies: what of that copies and fills memory; then the kernel's parts
# by address; then numbers of calls; then what of service's instructions is atomic or a fence, what
# of transport's, and what of the kernel's but for rxe's is atomic.
COLUMNS = ("kernel", "service", "copies", "transport", "sunrpc", "nfs", "ib_core", "rxe", "rest",
           "timer", "spinning", "switches", "wakeups", "works", "allocations", "atomics", "fences",
           "own-atomics", "own-fences", "all-atomics")
# Of a run that looked at memory, see tools/native/lines.h.
MEMORY = tuple(f"{whose}{what}" for whose in ("", "own-")
               for what in ("code", "data", "written", "stack", "l1i", "l1d", "l2"))
NAME = 120  # characters of a function's that are shown
COPY = frozenset(("memcpy_orig", "memset_orig", "__memcpy", "__memset", "__memmove", "memcpy",
                  "memset", "memmove", "__pi_memcpy", "__pi_memset", "__pi_memmove",
                  "copy_page", "clear_page_rep", "clear_page_orig", "clear_page_erms"))
HASH = re.compile(r"\[[0-9a-f]{14,16}\]")  # of a crate, in names of Rust functions
# What zeroes each page that is allocated, as distributions have it (init_on_alloc).
ZEROED = "clear_highpages_kasan_tagged"
# What allocates memory, by the beginnings of names.
ALLOCATE = ("kmem_cache_alloc", "__kmalloc", "__kvmalloc", "krealloc_node", "get_free_pages",
            "__alloc_pages", "alloc_pages_bulk", "vmalloc")


class Symbols:
    """Functions by address."""

    def __init__(self, path):
        self.entries = []
        for line in path.read_text().splitlines():
            address, kind, rest = line.split(" ", 2)
            name, _, module = rest.partition("\t")
            # Data and markers of sections begin no function.
            if kind in "tTwW" and not name.startswith(("__pfx_", "__cfi_")):
                self.entries.append((int(address, 16), name, module.strip("[]")))
        self.entries.sort(key=lambda entry: entry[0])
        self.starts = [entry[0] for entry in self.entries]

    def find(self, address):
        """(function, module) that holds an address; the kernel itself is module ""."""
        place = bisect.bisect_right(self.starts, address) - 1
        return self.entries[place][1:] if place >= 0 else ("?", "")

    def start(self, address):
        """Where that function begins."""
        return self.starts[bisect.bisect_right(self.starts, address) - 1]


class Counts:
    """What the plugin wrote for one load."""

    def __init__(self, path, symbols, rpcs):
        """`rpcs`: the number to divide by."""
        self.functions = collections.Counter()  # (function, module, class): instructions
        self.atomics = collections.Counter()    # the same: of them atomic
        self.fences = collections.Counter()     # the same: of them fences
        self.blocks = collections.Counter()     # the transport's own: (function, place in it,
                                                # instructions): times executed
        self.lines = {}                         # what lines.h counts
        self.calls = collections.Counter()      # (function, class): times its first block ran
        lines = path.read_text().splitlines()
        if not lines or lines[-1] != "end 0":
            raise LabError(f"{path}: incomplete")
        known, starts = {}, set(symbols.starts)
        for line in lines[:-1]:
            if line.startswith("lines "):
                _, name, number = line.split()
                self.lines[name] = int(number) / rpcs
                continue
            address, instructions, atomics, fences, kind, times = line.split()
            address, times = int(address, 16), int(times)
            if address not in known:
                known[address] = symbols.find(address)
            name, module = known[address]
            if GROUPS.get(module) == "transport":
                block = name, address - symbols.start(address), int(instructions)
                self.blocks[block] += times / rpcs
            for counter, number in ((self.functions, instructions), (self.atomics, atomics),
                                    (self.fences, fences)):
                if number != "0":
                    counter[name, module, int(kind)] += int(number) * times / rpcs
            if address in starts:
                self.calls[name, int(kind)] += times / rpcs

    def called(self, *beginnings, kinds=range(REFILL + 1)):
        """How often functions so named were called in these classes."""
        return sum(times for (name, kind), times in self.calls.items()
                   if kind in kinds and name.startswith(beginnings))

    def row(self):
        """One number per column."""
        found = dict.fromkeys(COLUMNS, 0.0)
        for (name, module, kind), number in self.functions.items():
            if kind == TIMER:
                found["timer"] += number
            elif kind == SPIN:
                found["spinning"] += number
            elif kind != IDLE:
                found["kernel"] += number
                found[GROUPS.get(module, "rest")] += number
            if kind == TRANSPORT:
                found["service"] += number
                if name in COPY:
                    found["copies"] += number
        for what, counter in (("atomics", self.atomics), ("fences", self.fences)):
            for (_, module, kind), number in counter.items():
                if kind == TRANSPORT:
                    found[what] += number
                if GROUPS.get(module) == "transport":
                    found[f"own-{what}"] += number
                if what == "atomics" and kind in NOT_RXE:
                    found["all-atomics"] += number
        found["switches"] = self.called("__switch_to_asm")
        found["wakeups"] = self.called("ttwu_do_activate")
        found["works"] = self.called("__queue_work")
        found["allocations"] = self.called(*ALLOCATE, kinds=(TRANSPORT,))
        return found | self.lines

    def served(self):
        """The same of a server, SERVER's columns: `pages` are allocations of pages by the transport
        and for the pages that it made the thread give away."""
        row = self.row()
        return {name: row[name] for name in ("transport", "service", "kernel", "switches")} | {
            "passes": sum(times for (name, _), times in self.calls.items() if name == "svc_recv"),
            "pages": self.called(ZEROED, kinds=(TRANSPORT, REFILL)),
            "kmalloc": self.called("__kmalloc", "kmem_cache_alloc", kinds=(TRANSPORT,)),
            "atomics": sum(number for (_, _, kind), number in self.atomics.items()
                           if kind in (TRANSPORT, ENQUEUE))}

    def profile(self, kinds, of="functions"):
        """{(function, module): instructions} of the classes; `of`: which are counted."""
        found = collections.Counter()
        for (name, module, kind), number in getattr(self, of).items():
            if kind in kinds:
                found[name, module] += number
        return found


def load(session, entries):
    """{client: {operation: [Counts of each round]}}"""
    symbols, found = {}, {}
    for entry in entries:
        name = entry["symbols"]
        if name not in symbols:
            symbols[name] = Symbols(session.pair.results / name)
        rounds = found.setdefault(entry["client"], {}).setdefault(entry["operation"], [])
        rounds.append(Counts(session.pair.results / entry["counts"], symbols[name],
                             entry["rpcs"]))
    return found


def medians(found, row=Counts.row):
    """{client: {operation: {column: median of the rounds}}}"""
    def median(rows):
        return {column: statistics.median(row[column] for row in rows) for column in rows[0]}

    return {client: {operation: median([row(counts) for counts in rounds])
                     for operation, rounds in operations.items()}
            for client, operations in found.items()}


def readable(root, names):
    """{symbol: name as written in the source}"""
    names = sorted(names)
    argv = chroot.command(root, ["c++filt", *names], [cache.directory()])
    return dict(zip(names, HASH.sub("", proc.output(argv)).splitlines(), strict=True))


def table(rows, columns=COLUMNS):
    """The clients side by side, one line each per operation."""
    clients = list(rows)
    width = 13
    lines = ["per RPC".ljust(36) + "".join(column.rjust(width) for column in columns)]
    for operation in rows[clients[0]]:
        for client in clients:
            cells = rows[client][operation]
            lines.append(operation.ljust(26) + NAMES.get(client, client).ljust(10)
                         + "".join((f"{cells[c]:.2f}" if cells[c] < 100 else f"{cells[c]:,.0f}"
                                    ).rjust(width) for c in columns))
    return "\n".join(lines)


def top(root, counts, kinds, number, of="functions"):
    """The functions with most instructions: [name, module, instructions]."""
    chosen = counts.profile(kinds, of).most_common(number)
    names = readable(root, {name for (name, _), _ in chosen})
    return [[names[name][:NAME], module, count] for (name, module), count in chosen]


def listing(functions, total):
    """The same as text, one line each."""
    return "\n".join(f"{count:12,.1f} {100 * count / total:5.1f} %  "
                     f"{name}{f' [{module}]' if module else ''}"
                     for name, module, count in functions)
