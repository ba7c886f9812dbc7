# SPDX-License-Identifier: GPL-2.0
"""Makes allocations fail on a debug kernel: all allocations, or only those that one module causes.
The default module is this project's module.
"""

import pathlib

from . import module

DEBUG = pathlib.Path("/sys/kernel/debug")
KINDS = ("failslab", "fail_page_alloc")
DEPTH = 32  # maximum depth of a call stack that the kernel searches
TIMES = 1 << 20


class Injection:
    """The settings of the kernel's fault injection for two types of allocations (KINDS). At the end
    of the case, all settings get their old values back."""

    def __init__(self, t, kinds=KINDS):
        self.t, self.kinds = t, kinds
        # Allocations that may wait for memory fail, too. The kernel prints no trace for a failure.
        self.set(ignore_gfp_wait="N", verbose=0)
        self.write("fail_page_alloc", "min-order", 0)

    def write(self, kind, name, value):
        path = DEBUG / kind / name
        before = path.read_text().strip()
        path.write_text(str(value))
        self.t.defer(path.write_text, before)

    def set(self, **values):
        for kind in self.kinds:
            for name, value in values.items():
                self.write(kind, name.replace("_", "-"), value)

    def only_module(self, name=None):
        """Limits the failures to allocations that have a function of the module `name` among their
        callers. The default is this project's module."""
        self.only_within(text(name or module.name()))

    def only_within(self, functions_from_to):
        """Limits the failures to allocations that have one of these functions among their callers.
        """
        start, end = functions_from_to
        # fail_sunrpc makes operations of sunrpc fail. Its failures are limited to the same callers
        # as the failures of allocations. Otherwise fail-nth would also count operations of sunrpc
        # that have other callers.
        for kind in (*self.kinds, *(kind for kind in ("fail_sunrpc",) if (DEBUG / kind).is_dir())):
            self.write(kind, "stacktrace-depth", DEPTH)
            self.write(kind, "require-start", hex(start))
            self.write(kind, "require-end", hex(end))

    def spare(self, kind, functions_from_to):
        """Excludes an allocation of type `kind` from the failures if one of its callers is a
        function in the given address range."""
        start, end = functions_from_to
        self.write(kind, "reject-start", hex(start))
        self.write(kind, "reject-end", hex(end))

    def spare_slabs(self):
        """Excludes the allocation of pages for slabs from the failures. The kernel makes many
        objects from each of these pages."""
        self.spare("fail_page_alloc", function("new_slab"))

    def every(self, nth):
        """Makes every nth allocation fail."""
        self.set(interval=nth, times=TIMES, probability=100)

    def met(self):
        """Returns how many allocations have failed since the last call of `every`."""
        left = sum(int((DEBUG / kind / "times").read_text()) for kind in self.kinds)
        return len(self.kinds) * TIMES - left

    def stop(self):
        """Ends the failures. Returns how many allocations have failed."""
        for kind in self.kinds:
            (DEBUG / kind / "probability").write_text("0")
        return self.met()


def functions():
    """Returns a tuple for each function of the kernel and of modules: its address, its name and its
    module ("" for the kernel).
    """
    for line in pathlib.Path("/proc/kallsyms").read_text().splitlines():
        address, kind, name, *owner = line.split()
        if kind in "tT":
            yield int(address, 16), name, owner[0].strip("[]") if owner else ""


def text(module_name):
    """Returns the range of a module's functions: the first address, and the address after the last
    function.
    """
    found = [address for address, _, owner in functions() if owner == module_name]
    # The end of the last function is unknown. This code assumes that the last function is at most 4
    # KiB long.
    return min(found), max(found) + (4 << 10)


def function(wanted, of=""):
    """Returns the address of a function of the kernel or of a module, and the address of the next
    function."""
    found = sorted((address, name) for address, name, owner in functions() if owner == of)
    start = next(address for address, name in found if name == wanted)
    return start, next(address for address, _ in found if address > start)
