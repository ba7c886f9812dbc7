# SPDX-License-Identifier: GPL-2.0
"""Loads a transport and mounts with it, for programs inside the client."""

import contextlib
import os
import pathlib
import subprocess
import time

NAMES = {"ours": "xprtrdma_rs", "intree": "rpcrdma"}
INLINE = ("/proc/sys/sunrpc/rdma_max_inline_read", "/proc/sys/sunrpc/rdma_max_inline_write")
# Ways to use our client. Each of them is a pair: a version of RPC-over-RDMA, and the maximum length
# of messages in bytes. "version 1" and "version 2" have the same maximum length, so that only the
# versions are compared.
WAYS = {"version 1": (1, 8192), "version 2": (2, 8192), "messages of 4 KiB": (1, 4096),
        "messages of 8 KiB": (1, 8192)}
SECONDS = 120
UNLOAD_SECONDS = 20


def run(*argv):
    """Runs a command. If the command fails, raises an exception with the command's output as text.
    """
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stdout.strip()}")
    return done.stdout


@contextlib.contextmanager
def loaded(client):
    """Loads the transport module of `client` (ours, intree), and unloads it at the end."""
    if client == "ours":
        run("insmod", os.environ["LAB_MODULE"])
    else:
        run("modprobe", "rpcrdma")
    try:
        if os.environ.get("LAB_INLINE_SIZE"):
            set_inline(os.environ["LAB_INLINE_SIZE"])
        yield
    finally:
        unload(NAMES[client])


def set_inline(size):
    """Sets the maximum message length, in bytes, for connections that are made later."""
    for name in INLINE:
        pathlib.Path(name).write_text(str(size))


def unload(name):
    """Unloads a module. Tries repeatedly, because sunrpc releases a transport some time after the
    unmount."""
    deadline = time.monotonic() + UNLOAD_SECONDS
    while True:
        try:
            run("rmmod", name)
            return
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextlib.contextmanager
def mounted(options, export="NFS_EXPORT_MEM", where="/mnt/nfs"):
    """Mounts an export of the server. Yields the mount point."""
    source = f"{os.environ['NFS_SERVER']}:{os.environ[export]}"
    run("mount", "-t", "nfs", "-o", options, source, where)
    try:
        yield where
    finally:
        run("umount", where)
