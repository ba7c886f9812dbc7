# SPDX-License-Identifier: GPL-2.0
"""Makes this machine a server with this project's server module. The client of this server is the
machine that is the server in other cases. This machine remains a client as well.
"""

import itertools
import os
import pathlib
import subprocess

from . import module, namespace, pattern, served
from .case import check
from .env import ENV, PORT

MODULE = os.environ.get("LAB_SERVER_MODULE", "")
FILES = pathlib.Path(served.FILES)
THREADS = 4
# The root directory of the exports, and its two entries. The first entry is a directory of this
# machine. The second is an NFS mount that this machine exports again.
ROOT = pathlib.Path("/exports/srv")
OWN, AGAIN = ROOT / "own", ROOT / "again"
# For each export, the number (fsid) that its file handles contain.
NUMBERS = {OWN: 1, AGAIN: 7}
OPTIONS = "rw,no_root_squash,no_subtree_check,insecure,async"
SERVE = f"""\
set -eu
modprobe nfsd
insmod {MODULE}
mkdir -p {ROOT.parent}
mount -t tmpfs tmpfs {ROOT.parent}
mkdir -p {OWN} {AGAIN}
printf '[exports]\\nrootdir={ROOT.parent}\\n' > /etc/nfs.conf
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
mountpoint -q /var/lib/nfs/rpc_pipefs || mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
: > /etc/exports
# Tests that lose the server must not wait minutes for its return.
echo 10 > /proc/fs/nfsd/nfsv4leasetime
echo 10 > /proc/fs/nfsd/nfsv4gracetime
echo 10 > /proc/sys/fs/nfs/nlm_grace_period
nfsdcld
rpc.mountd
"""
LISTEN = f"""\
set -eu
rpc.nfsd {THREADS}
grep -q 'rdma {PORT}' /proc/fs/nfsd/portlist || echo 'rdma {PORT}' > /proc/fs/nfsd/portlist
for end in /proc/fs/nfsd/v4_end_grace /proc/fs/lockd/nlm_end_grace; do
    # The kernel refuses this write if there is no grace period.
    echo Y > $end || true
done
"""
STOP = "echo 0 > /proc/fs/nfsd/threads"
LEAVE = f"""\
set -eu
{STOP}
exportfs -au
# A case that fails may leave its mount in the exported tree.
kill $(pidof rpc.mountd nfsdcld) || true
for undo in "umount -R {ROOT.parent}" "rmmod svcrdma_rs"; do
    timeout 20 sh -c "until $undo; do sleep 0.2; done"
done
"""
PLACES = itertools.count()


def local(script):
    """Runs a script in this machine. The script must succeed."""
    done = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=ENV.patience(60), check=False)
    check(done.returncode == 0, f"exit status {done.returncode}: {done.stdout}")


def begin(t):
    """Makes this machine a server until the end of the test case."""
    check(MODULE, "needs a lab with our module in the server")
    t.defer(leave)
    local(SERVE)
    export(OWN)
    restart()


def export(directory):
    """Exports a directory to all clients."""
    local(f"exportfs -o {OPTIONS},fsid={NUMBERS[directory]} '*:{name(directory)}'")


def name(directory):
    """Returns the path by which clients mount an exported directory."""
    return f"/{directory.relative_to(ROOT.parent)}"


def restart():
    """Stops and starts nfsd, without a grace period."""
    local(STOP)
    local(LISTEN)


def leave():
    """Stops this machine's server."""
    if pathlib.Path("/sys/module/svcrdma_rs").is_dir():
        local(LEAVE)


def address():
    """Returns the address of this machine."""
    return namespace.addresses()[0].partition("/")[0]


def connections():
    """Returns the number of connections to this server on which a call has arrived."""
    files = [file for file in FILES.glob("*/*:*") if file.is_file()]
    return len([file for file in files if "version: " in file.read_text()])


def other_has_client(t):
    """Loads this project's client module on the other machine until the end of the test case."""
    def unload():
        t.server.run("sh", "-c", f"timeout 20 sh -c 'until rmmod {module.name('ours')}; do "
                                 "sleep 0.2; done'")

    t.defer(unload)
    t.server.run("insmod", ENV.module_file)


class There:
    """A mount, in the other machine, of an export of this machine."""

    def __init__(self, t, directory, version):
        self.t, self.where = t, f"/run/there-{next(PLACES)}"
        t.server.run("mkdir", "-p", self.where)
        t.defer(t.server.run, "rmdir", self.where)
        t.server.run("mount", "-t", "nfs", "-o", f"vers={version},proto=rdma,port={PORT}",
                     f"{address()}:{name(directory)}", self.where)
        self.mounted = True
        t.defer(self.remove)

    def remove(self):
        if self.mounted:
            self.t.server.run("umount", self.where)
            self.mounted = False

    def write(self, file, content):
        """Writes a file, and waits until its data are on stable storage."""
        self.t.server.write(f"{self.where}/{file}", content)
        self.t.server.run("sync", f"{self.where}/{file}")

    def expect(self, file, content):
        """Reads a file over RDMA in the other machine. Raises an error unless its content is
        exactly `content`."""
        self.t.server.run("sh", "-c", "echo 1 > /proc/sys/vm/drop_caches")
        self.t.server.expect(f"{self.where}/{file}", content)


def equals(path, content):
    """Raises an error unless the content of a file of this machine is exactly `content`."""
    problem = pattern.difference(pathlib.Path(path).read_bytes(), content)
    check(problem is None, f"{path}: {problem}")
