# SPDX-License-Identifier: GPL-2.0
"""Loads the module of our server or of the in-tree server, for measurements that compare both.

    servers.py

servers.py runs in the server machine. A program in the client machine starts servers.py (class
remote.Program) and sends requests to it.
"""

import os
import subprocess

from .remote import obey

SECONDS = 120
THREADS = 8
STOP = """\
echo 0 > /proc/fs/nfsd/threads
for module in svcrdma_rs rpcrdma; do
    [ ! -d /sys/module/$module ] || timeout 30 sh -c "until rmmod $module; do sleep 0.2; done"
done"""
START = """\
set -e
rpc.nfsd {threads}
echo "rdma 20049" > /proc/fs/nfsd/portlist
for end in /proc/fs/nfsd/v4_end_grace /proc/fs/lockd/nlm_end_grace; do
    echo Y > $end || true
done"""


class Servers:
    """The server machine, in which one of the server modules is loaded at a time."""

    @staticmethod
    def script(text):
        done = subprocess.run(["sh", "-c", text], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout)

    def use(self, which, version=1):
        """Loads the module of this server (ours, intree), and makes the server listen. `version` is
        the version of RPC-over-RDMA that our server accepts."""
        self.script(STOP)
        ours = f"insmod {os.environ['LAB_SERVER_MODULE']} rdma_version={version}"
        load = "modprobe rpcrdma" if which == "intree" else ours
        self.script(f"{load}\n{START.format(threads=THREADS)}")


if __name__ == "__main__":
    obey(Servers())
