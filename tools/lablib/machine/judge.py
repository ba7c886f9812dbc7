# SPDX-License-Identifier: GPL-2.0
"""Conditions that make a run fail although every test in it passed."""

import dataclasses
import re

MODULES = "Modules linked in:"
# Pattern of every report about a problem in the kernel. A report is recognised by its text and not
# by its log level, because the same report appears at different levels.
SPLAT = re.compile("|".join((  # noqa: FLY002
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
# Pattern of messages that are not reports. The kernel prints most of them when it boots.
HARMLESS = re.compile(
    r"KernelAddressSanitizer initialized|kasan: |kmemleak: Kernel memory leak detector"
    r"|Command line: |Kernel command line: |DMA-API: preallocated|DMA-API: debugging enabled"
    r"|ODEBUG: selftest passed|Kernel panic.*reboot")
CONTEXT_LINES = 30
CUT, END = "[ cut here ]", "---[ end trace"


@dataclasses.dataclass(frozen=True)
class Foreign:
    """A kernel report that is not counted as a failure, because the in-tree client causes the same
    report."""

    signature: str   # text in the first line of the report
    reason: str
    shown_by: str    # command that shows the report
    caller: str = ""  # name of a function that the report must also contain


# The acknowledgement of an earlier Send can arrive a second time between the packets of the answer
# to an RDMA Read. If rxe expects a middle packet of the answer at that time, check_ack() fails but
# sets no status. So do_complete() reports the Read as complete, although some of its data are
# missing.
FOREIGN = (
    Foreign("WARNING: drivers/infiniband/sw/rxe/rxe_comp.c:827 at rxe_completer+",
            "rxe: an acknowledgement that comes twice, amid the answer to an RDMA Read",
            "tools/lab torture --client intree --fault late-duplicates"),
    # On iWARP the in-tree server's RDMA Reads use memory regions from a pool of the queue pair. The
    # kernel counts the regions in use. If the count is not zero when the queue pair is destroyed,
    # the kernel prints this warning.
    Foreign("WARNING: drivers/infiniband/core/verbs.c:2164 at ib_destroy_qp_user+",
            "the server on siw: a connection ends amid RDMA Reads, and not all regions come back",
            "tools/lab run --provider siw --client intree -- ./selftests/run --client intree "
            "--filter ^disconnects.server_restarts", caller="svc_rdma_free+"),
)


def another(lines):
    """Returns whether another report begins within the lines of a report. The line that lists the
    modules matches `SPLAT` too, but it does not begin a report."""
    found = [line for line in lines if SPLAT.search(line)]
    return len(found) > 1 or (found and MODULES not in found[0])


def foreign(console):
    """Removes the reports that `FOREIGN` describes from a console text. Returns the remaining text,
    and a list with the entry of `FOREIGN` for each removed report."""
    lines, kept, found = console.splitlines(), [], []
    while lines:
        line = lines.pop(0)
        known = next((f for f in FOREIGN if f.signature in line), None)
        end = next((n for n, text in enumerate(lines) if END in text), None)
        if known is None or end is None or another(lines[:end]) \
                or not any(known.caller in text for text in [line, *lines[:end]]):
            kept.append(line)
            continue
        found.append(known)
        if kept and CUT in kept[-1]:
            kept.pop()
        del lines[:end + 1]
    return "\n".join(kept), found


def splats(console):
    """Returns the first report in a console text together with the lines that follow, or None if
    there is no report."""
    lines = foreign(console)[0].splitlines()
    for number, line in enumerate(lines):
        if SPLAT.search(line) and not HARMLESS.search(line):
            return "\n".join(lines[number:number + CONTEXT_LINES])
    return None


def verdict(machine):
    """Returns a list with the first kernel report of a machine, or an empty list. Can be called
    before or after the machine is switched off."""
    text = machine.console.read_text(errors="replace") if machine.console.exists() else ""
    report = splats(text)
    return [f"{machine.role}: kernel report (all in {machine.console}):\n{report}"] \
        if report else []
