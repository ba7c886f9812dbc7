# SPDX-License-Identifier: GPL-2.0
"""Finds the source of our module's instructions: the function and the line to which each
instruction belongs."""

import collections
import re

from ..base import cache, chroot, proc
from ..base.paths import REPO
from .instructions import HASH

SECONDS = 120
FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
INSTRUCTION = re.compile(r"^\s+([0-9a-f]+):\t")
PLACE = re.compile(r"^(?:.*/)?(rust/[^:]*):(\d+)")


class Source:
    """The module's code: its instructions, and the source lines to which they belong."""

    def __init__(self, root, module):
        """Reads the code of a module. `module` is the module's file, which must contain debug
        information."""
        self.root, self.module = root, module
        self.starts, self.order, self.place = {}, [], {}
        # The disassembler omits the bytes of the instructions. The bytes of a long instruction
        # would need a second line.
        argv = "objdump", "-d", "--no-show-raw-insn", "-j", ".text", module
        for line in self.tool(*argv).splitlines():
            if found := FUNCTION.match(line):
                self.starts[found[2]] = int(found[1], 16)
            elif found := INSTRUCTION.match(line):
                self.place[int(found[1], 16)] = len(self.order)
                self.order.append(int(found[1], 16))

    def tool(self, *argv):
        """Runs a program from the root file system, and returns its output."""
        return proc.output(chroot.command(self.root, argv, [cache.directory(), REPO]), SECONDS)

    def executed(self, counts):
        """Returns a dictionary from the address of each instruction in the module's file to the
        number of times that the instruction was executed. `counts` are the counts of the QEMU
        plugin."""
        found = collections.Counter()
        for (name, offset, instructions), times in counts.blocks.items():
            first = self.place.get(self.starts.get(name, 0) + offset)
            if name in self.starts and first is not None:
                for address in self.order[first:first + instructions]:
                    found[address] += times
        return found

    def lines(self, addresses):
        """Returns, for each address, a list of pairs: a function and a line in our source. The
        innermost function comes first. The line is `None` if the function is not in our source."""
        said = self.tool("addr2line", "-a", "-i", "-f", "-C", "-j", ".text", "-e", self.module,
                         *(f"{address:x}" for address in addresses)).splitlines()
        found, frames = {}, []
        for line in said:
            if re.fullmatch(r"0x[0-9a-f]{16}", line):
                frames = found.setdefault(int(line, 16), [])
            elif frames and len(frames[-1]) == 1:
                frames[-1] = (*frames[-1], ours(line))
            else:
                frames.append((HASH.sub("", line),))
        return found

    def profile(self, counts):
        """Returns two tables of executed instructions: by function, and by line of our own source.
        An inlined instruction counts for the innermost function, and for the innermost line that is
        in our own source."""
        executed = self.executed(counts)
        functions, places = collections.Counter(), collections.Counter()
        for address, frames in self.lines(sorted(executed)).items():
            functions[frames[0][0]] += executed[address]
            places[next(filter(None, (place for _, place in frames)), "elsewhere")] += \
                executed[address]
        return functions, places


def ours(place):
    """Returns the path and line of a source line relative to the repository, or None if the line is
    not in our source."""
    found = PLACE.match(place)
    return f"{found[1]}:{found[2]}" if found and (REPO / found[1]).exists() else None
