# SPDX-License-Identifier: GPL-2.0
"""Lists the objects that a run has left behind in this machine, one object in each line.

The host runs this program after the tests, and after the lab's own mount and module were removed.
Resources of connections that are being closed get some time to disappear.
"""

import pathlib
import subprocess
import sys
import time

from ..machine import judge

PATIENCE_SECONDS = 15
# Taint of out-of-tree and unsigned modules, and of a debug kernel that contains KUnit.
ALLOWED_TAINT = 1 << 12 | 1 << 13 | 1 << 18
# Debian's kernel taints itself, and logs the text FANOTIFY, when a program such as stress-ng can
# block other programs by means of fanotify. Other reasons for this taint are not allowed.
AUXILIARY, FANOTIFY = 1 << 16, "Using fanotify permission checks"
# Taint of a kernel that has printed a warning.
WARNED = 1 << 9
INTREE_RDS = pathlib.Path("/sys/module/rds_rdma")
OURS = ("xprtrdma_rs", "svcrdma_rs", "rds_rdma_rs")
KINDS = ("pd", "cq", "qp", "cm_id", "mr")
KMEMLEAK = pathlib.Path("/sys/kernel/debug/kmemleak")


def output(*argv):
    """Returns the output of a command."""
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout


def nfs_mounts():
    """Returns a line for each NFS mount that still exists."""
    lines = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    return [f"still mounted: {line}" for line in lines
            if line.split()[2] in ("nfs", "nfs4")]


def modules():
    """Returns a line for each transport module that is still loaded."""
    names = [line.split()[0] for line in pathlib.Path("/proc/modules").read_text().splitlines()]
    return [f"module still loaded: {name}" for name in names
            if name in (*OURS, "rpcrdma")]


def resources():
    """Returns the RDMA objects that did not exist before the tests. If the in-tree transport of RDS
    is loaded, only objects of our modules count, because the in-tree transport cannot be unloaded
    while it has connections."""
    if INTREE_RDS.is_dir():
        return [f"rdma resources: {kind} {line}" for kind in KINDS
                for line in output("rdma", "resource", "show", kind).splitlines()
                if any(f"[{name}]" in line for name in OURS)]

    def devices(text):
        # The number in front of a device's name is ignored, because it changes if a test creates
        # the device again.
        return [line.partition(": ")[2] for line in text.splitlines()]

    before = devices(pathlib.Path("/run/rdma-baseline").read_text())
    now = devices(output("rdma", "resource", "show"))
    return [f"rdma resources: {line} (before the tests: {before})"
            for line in now if line not in before]


def taint():
    """Returns a line if the kernel has a taint that is not expected."""
    value = int(pathlib.Path("/proc/sys/kernel/tainted").read_text())
    left = value & ~ALLOWED_TAINT
    if left & AUXILIARY and FANOTIFY in output("dmesg"):
        left &= ~AUXILIARY
    if left & WARNED:
        rest, found = judge.foreign(output("dmesg"))
        if found and not judge.splats(rest):
            left &= ~WARNED
    return [f"kernel tainted: {value} (unexpected bits: {left:#x})"] if left else []


def leaks():
    """Returns the leaks that the second scan of kmemleak finds, if the kernel has kmemleak."""
    if not KMEMLEAK.exists():
        return []
    for _ in range(2):
        KMEMLEAK.write_text("scan")
    return KMEMLEAK.read_text().splitlines()[:40]


def main(what):
    checks = [nfs_mounts, taint]
    # The in-tree server keeps the connections of silent clients until it searches for them, which
    # can take minutes. So objects in the machine of the in-tree server are no sign of an error.
    # `everything` is passed only if this machine is the client or runs our server.
    if "everything" in what:
        checks += [resources, modules, leaks]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = [line for check in checks for line in check()]
        if not found or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    print("\n".join(found))
    return 1 if found else 0


sys.exit(main(sys.argv[1:]))
