# SPDX-License-Identifier: GPL-2.0
"""Mounting and unmounting."""

import contextlib
import ctypes
import errno
import itertools
import os
import pathlib
import subprocess

from . import wait, xprt
from .env import ENV, PORT

MNT_FORCE, MNT_DETACH = 1, 2
MOUNT_SECONDS = 90
BUSY_SECONDS = 20
LIBC = ctypes.CDLL(None, use_errno=True)
PLACES = itertools.count()


class Refused(Exception):
    """Raised if mount(8) refuses to mount."""


def table():
    """Returns a dictionary from the mount point of each NFS mount of this machine to the mount's
    source and options."""
    found = {}
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        source, where, kind, options = line.split()[:4]
        if kind in ("nfs", "nfs4"):
            found[where] = source, options.split(",")
    return found


def umount(where, flags=0):
    """Calls umount(2). Raises OSError if the call fails."""
    if LIBC.umount2(os.fsencode(where), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), where)


def remove(where):
    """Unmounts a mount, and tries again for some time, because a process that is ending may keep
    the mount busy."""
    def gone():
        try:
            umount(where)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            if error.errno != errno.EINVAL:
                raise
        return True

    wait.until(gone, ENV.patience(BUSY_SECONDS), f"{where} no longer busy")


def close_files():
    """Closes files that a failed case has left open on mounts, so that the mounts can be unmounted.
    """
    places = tuple(f"{where}/" for where in table())
    for fd in os.listdir("/proc/self/fd"):
        try:
            if places and os.readlink(f"/proc/self/fd/{fd}").startswith(places):
                os.close(int(fd))
        except OSError:
            continue


def remove_all():
    """Unmounts every NFS mount by force. Returns the mount points."""
    found = list(table())
    for where in found:
        for flags in (0, MNT_FORCE, MNT_DETACH):
            try:
                umount(where, flags)
                break
            except OSError:
                continue
    return found


def force_all(_=None):
    """Unmounts every NFS mount, even if its server does not answer."""
    for where in table():
        for flags in (MNT_FORCE, MNT_DETACH):
            with contextlib.suppress(OSError):
                umount(where, flags)


class Mount:
    """One mount of an export of the lab's server, over RDMA."""

    def __init__(self, version, options="", export=None, where=None, netid="rdma", raw=False,
                 host=None, port=PORT):
        """If `raw` is true, the options are used unchanged. Otherwise the options for version,
        netid and port are added."""
        self.version, self.export, self.port = version, export or ENV.mem, port
        self.where = where or f"/tmp/nfs-{os.getpid()}-{next(PLACES)}"
        host = host or (f"[{ENV.server6}]" if netid == "rdma6" else ENV.server)
        self.source = f"{host}:{self.export}"
        given = [options] if options else []
        self.options = ",".join(given if raw else [f"vers={version}", f"proto={netid}",
                                                   f"port={port}", *given])

    def make(self, seconds=MOUNT_SECONDS):
        """Mounts the export. Raises Refused with the message of mount(8) if mount(8) fails."""
        os.makedirs(self.where, exist_ok=True)
        argv = ["mount", "-t", "nfs", "-o", self.options, self.source, self.where]
        try:
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=ENV.patience(seconds), check=False)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{' '.join(argv)}: no end after {seconds} s") from None
        if done.returncode:
            raise Refused(f"{' '.join(argv)}: {done.stdout.strip()}")
        return self

    def mounted(self):
        return self.where in table()

    def remove(self):
        """Unmounts if the mount still exists, and removes the mount point."""
        if self.mounted():
            remove(self.where)
        if os.path.isdir(self.where):
            os.rmdir(self.where)

    def path(self, name):
        """Returns the names of a file on the client and on the server."""
        return f"{self.where}/{name}", f"{self.export}/{name}"

    def active(self):
        """Returns the mount options that the kernel shows."""
        return table()[self.where][1]

    def xprts(self):
        """Returns the statistics of the mount's transports. If a connection broke because the
        device executed a registration again, the connection that replaced it is not counted."""
        found = xprt.statistics(self.where)
        lost = xprt.repeated(self.port)
        if len(lost) == len(found):
            for numbers, count in zip(found, lost, strict=True):
                numbers["connect_count"] -= count
        return found

    def connects(self):
        """Returns the number of connections that the mount's transports have made."""
        return sum(x["connect_count"] for x in self.xprts())
