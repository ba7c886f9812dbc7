# SPDX-License-Identifier: GPL-2.0
"""What makes a run a failed run although every test in it passed."""

import re

# Anything a kernel says about its own health.  Text, not severity, decides:
# the same report comes at different levels.
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
    "Modules linked in:",
)))
# KASAN and kmemleak announce themselves at boot.
HARMLESS = re.compile(
    r"KernelAddressSanitizer initialized|kasan: |kmemleak: Kernel memory leak detector"
    r"|Command line: |Kernel command line: |DMA-API: preallocated|DMA-API: debugging enabled"
    r"|ODEBUG: selftest passed|Kernel panic.*reboot")
CONTEXT_LINES = 30


def splats(console):
    """The first report in a console text, with what follows it; or None."""
    lines = console.splitlines()
    for number, line in enumerate(lines):
        if SPLAT.search(line) and not HARMLESS.search(line):
            return "\n".join(lines[number:number + CONTEXT_LINES])
    return None


def verdict(machine):
    """Complaints about a machine that is about to be, or was, switched off."""
    text = machine.console.read_text(errors="replace") if machine.console.exists() else ""
    report = splats(text)
    return [f"{machine.role}: kernel report (all in {machine.console}):\n{report}"] \
        if report else []
