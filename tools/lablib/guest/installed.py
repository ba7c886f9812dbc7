# SPDX-License-Identifier: GPL-2.0
"""Prints the state of an installed machine as JSON after the machine has booted. With the argument
"again", the script first unmounts the mount of /etc/fstab and mounts it again."""

import json
import os
import pathlib
import subprocess
import sys
import time

MOUNT = "/mnt/nfs"
TRANSPORTS = ("xprtrdma_rs", "svcrdma_rs", "rpcrdma")
SECONDS = 120
LETTER = b"written by the client\n"


def output(*argv):
    """Returns the output of a command. The command may fail."""
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=SECONDS, check=False).stdout


def loaded():
    """Returns the names of the transport modules that are loaded."""
    return [name for name in TRANSPORTS if pathlib.Path("/sys/module", name).exists()]


def mounted():
    """Returns the options of the mount in /etc/fstab, or None if it is not mounted."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        source, where, kind, options, *_ = line.split()
        if where == MOUNT and kind.startswith("nfs"):
            return f"{source} {options}"
    return None


def used():
    """Writes a file on the mount. Returns whether it can be read back without the page cache."""
    name = pathlib.Path(MOUNT, "installed")
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, LETTER)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    return name.read_bytes() == LETTER


def again():
    """Unmounts, unloads the transport, and mounts as /etc/fstab says."""
    output("umount", MOUNT)
    deadline = time.monotonic() + 20
    while loaded() and time.monotonic() < deadline:
        for name in loaded():
            output("rmmod", name)
        time.sleep(0.2)
    output("mount", MOUNT)


if sys.argv[1:] == ["again"]:
    again()
print(json.dumps({
    "release": os.uname().release, "loaded": loaded(), "mounted": mounted(),
    "used": bool(mounted()) and used(),
    "failed": output("systemctl", "--failed", "--plain", "--no-legend"),
    "signer": output("modinfo", "-F", "signer", "xprtrdma_rs").strip(),
    "log": [line for line in output("dmesg").splitlines()
            if "xprtrdma_rs" in line or "rpcrdma" in line]}))
