# SPDX-License-Identifier: GPL-2.0
"""What makes a run a failed run although every test in it passed."""

import re

# Anything a kernel says about its own health.  Text, not severity, decides:
# the same report comes at different levels.
MODULES = "Modules linked in:"  # ends the head of every report
SPLAT = re.compile("|".join((
    r"BUG: ", r"\bBUG at ", r"WARNING: ", r"\bOops\b", r"Kernel panic",
    r"general protection fault", r"unable to handle (kernel|page)", r"invalid opcode",
    r"KASAN", r"KFENCE", r"KCSAN", r"UBSAN", r"\bkmemleak: \d+ new",
    r"possible circular locking", r"possible recursive locking",
    r"inconsistent lock state", r"suspicious RCU usage", r"Disabling lock debugging",
    r"sleeping function called from invalid context", r"scheduling while atomic",
    r"blocked for more than \d+ seconds", r"soft lockup", r"hard LOCKUP",
    r"rcu.*(detected|self-detected) .*stall", r"unreferenced object",
    r"ODEBUG:", r"DMA-API:", r"list_(add|del) corruption", r"refcount_t:",
    r"Objects remaining", r"Slab cache still has objects", r"object still in use",
    r"Out of memory", r"page allocation failure", r"rust_kernel: panicked", r"panicked at",
    MODULES,
)))
# KASAN and kmemleak announce themselves at boot.
HARMLESS = re.compile(
    r"KernelAddressSanitizer initialized|kasan: |kmemleak: Kernel memory leak detector"
    r"|Command line: |Kernel command line: |DMA-API: preallocated|DMA-API: debugging enabled"
    r"|ODEBUG: selftest passed|Kernel panic.*reboot")
CONTEXT_LINES = 30
# Reports that are not ours: the first line, and a line of the same report.
FOREIGN = (
    # rxe frees the packets of a failed queue pair with interrupts off (debug kernel); nothing of
    # ours is in the trace.  Not yet reproduced with the in-tree client.
    (re.compile(r"WARNING: net/core/page_pool\.c:\d+ at page_pool_put_unrefed_netmem"),
     re.compile(r"\brxe_receiver\b")),
)
# Where a report ends, and how long it is at most.
END = re.compile(r"---\[ end trace")
LONGEST = 80


def splats(console):
    """The first report in a console text, with what follows it; or None."""
    lines = console.splitlines()
    after = 0
    for number, line in enumerate(lines):
        if number < after or not SPLAT.search(line) or HARMLESS.search(line):
            continue
        whole = report_at(lines, number)
        if not foreign(whole):
            return "\n".join(lines[number:number + CONTEXT_LINES])
        after = number + len(whole)
    return None


def report_at(lines, number):
    """The lines of the report that begins with this one."""
    for length in range(1, min(LONGEST, len(lines) - number)):
        if END.search(lines[number + length]):
            return lines[number:number + length + 1]
    return lines[number:number + LONGEST]


def foreign(report):
    """Whether a report is one of those that are known not to be ours.

    It must be whole and nothing but itself: an excuse never covers a second
    report that begins inside the first.
    """
    inner = [line for line in report[1:] if SPLAT.search(line) and MODULES not in line]
    if inner or not END.search(report[-1]):
        return False
    return any(first.search(report[0]) and any(inside.search(line) for line in report)
               for first, inside in FOREIGN)


def verdict(machine):
    """Complaints about a machine that is about to be, or was, switched off."""
    text = machine.console.read_text(errors="replace") if machine.console.exists() else ""
    report = splats(text)
    return [f"{machine.role}: kernel report (all in {machine.console}):\n{report}"] \
        if report else []
