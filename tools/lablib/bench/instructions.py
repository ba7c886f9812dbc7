# SPDX-License-Identifier: GPL-2.0
"""Makes tables of instructions per RPC in the client's kernel, from the plugin's counts.

tools/native/instructions.c explains what is counted.
"""

import bisect
import collections
import re
import statistics

from ..base import cache, chroot, proc
from ..base.ui import LabError
from ..machine.session import NAMES

# The numbers of the plugin's classes of code, as in guest/instructions.py.
OTHER, TRANSPORT, RXE, ENTRY, TIMER, SPIN, ENQUEUE, IDLE, REFILL = range(9)
KERNEL = frozenset((OTHER, TRANSPORT, RXE, ENTRY, ENQUEUE, REFILL))
NOT_RXE = KERNEL - {RXE}
# For each module, the group to which the module's code belongs. The code of the kernel itself, and
# of modules that are not listed, belongs to the group "rest".
GROUPS = {"xprtrdma_rs": "transport", "rpcrdma": "transport", "svcrdma_rs": "transport",
          "rds_rdma_rs": "transport", "rds_rdma": "transport",
          "sunrpc": "sunrpc",
          "nfs": "nfs", "nfsv3": "nfs", "nfsv4": "nfs", "netfs": "nfs", "ib_core": "ib_core",
          "rdma_cm": "ib_core", "ib_cm": "ib_core", "ib_uverbs": "ib_core", "rdma_rxe": "rxe"}
# The columns of the tables:
# - "kernel": all instructions except idle time, waiting for spin locks, and timer interrupts
# - "service": instructions in the transport and in the code that it calls, without rxe
# - "copies": the part of "service" that copies or fills memory
# - "transport" to "rest": the part of "kernel" in each of the groups in `GROUPS`
# - "timer", "spinning": instructions in timer interrupts, and in waiting for spin locks
# - "switches" to "allocations": calls of functions
# - "atomics", "fences": atomic instructions and fences in "service"
# - "own-atomics", "own-fences": atomic instructions and fences in the transport
# - "all-atomics": atomic instructions in the kernel without rxe
COLUMNS = ("kernel", "service", "copies", "transport", "sunrpc", "nfs", "ib_core", "rxe", "rest",
           "timer", "spinning", "switches", "wakeups", "works", "allocations", "atomics", "fences",
           "own-atomics", "own-fences", "all-atomics")
# Columns of a run that counts cache lines, see tools/native/lines.h.
MEMORY = tuple(f"{whose}{what}" for whose in ("", "own-")
               for what in ("code", "data", "written", "stack", "l1i", "l1d", "l2"))
NAME = 120  # number of characters of a function's name that are shown
COPY = frozenset(("memcpy_orig", "memset_orig", "__memcpy", "__memset", "__memmove", "memcpy",
                  "memset", "memmove", "__pi_memcpy", "__pi_memset", "__pi_memmove",
                  "copy_page", "clear_page_rep", "clear_page_orig", "clear_page_erms"))
HASH = re.compile(r"\[[0-9a-f]{14,16}\]")  # hash of a crate in the names of Rust functions
# The function that zeroes each page when the page is allocated, as init_on_alloc requires.
# Distributions build their kernels with init_on_alloc. So the calls of this function count the
# allocated pages.
ZEROED = "clear_highpages_kasan_tagged"
# The beginnings of the names of functions that allocate memory.
ALLOCATE = ("kmem_cache_alloc", "__kmalloc", "__kvmalloc", "krealloc_node", "get_free_pages",
            "__alloc_pages", "alloc_pages_bulk", "vmalloc")


class Symbols:
    """The functions of the kernel and its modules. Finds the function that contains an address."""

    def __init__(self, path):
        self.entries = []
        for line in path.read_text().splitlines():
            address, kind, rest = line.split(" ", 2)
            name, _, module = rest.partition("\t")
            # Only a symbol of code begins a function. A symbol with the prefix `__pfx_` or `__cfi_`
            # begins no function.
            if kind in "tTwW" and not name.startswith(("__pfx_", "__cfi_")):
                self.entries.append((int(address, 16), name, module.strip("[]")))
        self.entries.sort(key=lambda entry: entry[0])
        self.starts = [entry[0] for entry in self.entries]

    def find(self, address):
        """Returns the (function, module) that contains an address; the kernel itself is module "".
        """
        place = bisect.bisect_right(self.starts, address) - 1
        return self.entries[place][1:] if place >= 0 else ("?", "")

    def start(self, address):
        """Returns the start address of the function that contains an address."""
        return self.starts[bisect.bisect_right(self.starts, address) - 1]


class Counts:
    """The plugin's output for one load."""

    def __init__(self, path, symbols, rpcs):
        """Reads the output. All counts are divided by `rpcs`, the number of RPCs."""
        # number of instructions by (function, module, class)
        self.functions = collections.Counter()
        # number of atomic instructions, by (function, module, class)
        self.atomics = collections.Counter()
        self.fences = collections.Counter()     # number of fences, by (function, module, class)
        # number of runs of each block of the transport, by (function, offset, instructions)
        self.blocks = collections.Counter()
        self.lines = {}                         # counts of cache lines, see lines.h
        # number of runs of a function's first block, by (function, class)
        self.calls = collections.Counter()
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
        """Returns the number of calls of the functions whose names begin with one of `beginnings`.
        Only calls in the classes `kinds` are counted.
        """
        return sum(times for (name, kind), times in self.calls.items()
                   if kind in kinds and name.startswith(beginnings))

    def row(self):
        """Returns one number for each column."""
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
        """Returns one number for each column of the tables about servers. `pages` counts the pages
        that the transport allocates, and the pages that a thread of the server allocates for its
        next call."""
        row = self.row()
        return {name: row[name] for name in ("transport", "service", "kernel", "switches")} | {
            "passes": sum(times for (name, _), times in self.calls.items() if name == "svc_recv"),
            "pages": self.called(ZEROED, kinds=(TRANSPORT, REFILL)),
            "kmalloc": self.called("__kmalloc", "kmem_cache_alloc", kinds=(TRANSPORT,)),
            "atomics": sum(number for (_, _, kind), number in self.atomics.items()
                           if kind in (TRANSPORT, ENQUEUE))}

    def profile(self, kinds, of="functions"):
        """Returns the numbers of a counter for these classes, by (function, module). `of` is the
        name of the counter."""
        found = collections.Counter()
        for (name, module, kind), number in getattr(self, of).items():
            if kind in kinds:
                found[name, module] += number
        return found


def load(session, entries):
    """Returns, for each client and operation, a list with the `Counts` of each round."""
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
    """Returns the median of the rounds, by client, operation and column."""
    def median(rows):
        return {column: statistics.median(row[column] for row in rows) for column in rows[0]}

    return {client: {operation: median([row(counts) for counts in rounds])
                     for operation, rounds in operations.items()}
            for client, operations in found.items()}


def readable(root, names):
    """Returns for each symbol the name as it is written in the source."""
    names = sorted(names)
    argv = chroot.command(root, ["c++filt", *names], [cache.directory()])
    return dict(zip(names, HASH.sub("", proc.output(argv)).splitlines(), strict=True))


def table(rows, columns=COLUMNS):
    """Returns the counts of all clients as text, one line for each operation and client."""
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
    """Returns the functions with the most instructions: [name, module, instructions]."""
    chosen = counts.profile(kinds, of).most_common(number)
    names = readable(root, {name for (name, _), _ in chosen})
    return [[names[name][:NAME], module, count] for (name, module), count in chosen]


def listing(functions, total):
    """Returns the functions with the most instructions as text, one function per line."""
    return "\n".join(f"{count:12,.1f} {100 * count / total:5.1f} %  "
                     f"{name}{f' [{module}]' if module else ''}"
                     for name, module, count in functions)
