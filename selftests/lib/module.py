# SPDX-License-Identifier: GPL-2.0
"""Loading and unloading the transport module."""

import contextlib
import ctypes
import errno
import json
import os
import pathlib
import subprocess

from . import wait
from .env import ENV

NAMES = {"ours": "xprtrdma_rs", "intree": "rpcrdma", "suites": "xprtrdma_rs_kunit"}
LIBC = ctypes.CDLL(None, use_errno=True)
# System calls without a wrapper in the C library. Their numbers depend on the architecture.
FINIT_MODULE, DELETE_MODULE = {"x86_64": (313, 176), "aarch64": (273, 106)}[os.uname().machine]
O_NONBLOCK = os.O_NONBLOCK
GONE_SECONDS = 20
# KUnit's parameter that selects suites. A module runs the selected suites when it is loaded.
SUITES_FILTER = pathlib.Path("/sys/module/kunit/parameters/filter_glob")


def name(client=None):
    return NAMES[client or ENV.client]


def loaded(client=None):
    return pathlib.Path(f"/sys/module/{name(client)}").exists()


def references(client=None):
    """Returns the use count of the module."""
    return int(pathlib.Path(f"/sys/module/{name(client)}/refcnt").read_text())


def insmod(parameters="", file=None):
    """Loads the module without starting a process. Raises OSError if the kernel refuses."""
    fd = os.open(file or ENV.module_file, os.O_RDONLY)
    try:
        if LIBC.syscall(FINIT_MODULE, fd, parameters.encode(), 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(fd)


def rmmod(client=None):
    """Unloads the module without starting a process. Raises OSError if the kernel refuses."""
    if LIBC.syscall(DELETE_MODULE, name(client).encode(), O_NONBLOCK):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def rmmod_is_refused():
    """Tries to unload the module. Raises an error unless the kernel reports that the transport is
    in use."""
    try:
        rmmod()
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EBUSY):
            raise AssertionError(f"rmmod: {error}") from error
    else:
        raise AssertionError("the transport was unloaded under its mounts")


@contextlib.contextmanager
def unmapped(parameter="unmapped"):
    """Loads the module of the KUnit suites without running a suite. Yields the file of the module's
    parameter `parameter`, which is "unmapped" or "unlisted". If "unmapped" is set, no device can
    map memory for a region. If "unlisted" is set, no software device can map a scatterlist."""
    with suites("none"):
        yield pathlib.Path(f"/sys/module/{name('suites')}/parameters/{parameter}")


@contextlib.contextmanager
def suites(wanted="*"):
    """Loads the module of the KUnit suites, which runs the requested suites."""
    SUITES_FILTER.write_text(wanted)
    insmod(file=ENV.suites_file)
    try:
        yield
    finally:
        unload("suites")


def modprobe(module):
    """Loads a module of the kernel. Returns the status and the output."""
    done = subprocess.run(["modprobe", module], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.strip()


def load():
    """Loads the module that this run tests."""
    if loaded():
        return
    if ENV.ours:
        insmod(" ".join(ENV.parameters))
        return
    status, text = modprobe(name())
    if status:
        raise AssertionError(f"modprobe {name()}: {text}")


def unload(client=None):
    """Unloads a module: by default the module that this run tests. First waits until the last
    connection has ended, but only for a limited time."""
    wait.until(lambda: not loaded(client) or references(client) == 0,
               ENV.patience(GONE_SECONDS), f"no reference to {name(client)}")
    if loaded(client):
        rmmod(client)


def resources():
    """Returns the numbers of RDMA objects in this machine, as one line of text for each device."""
    done = subprocess.run(["rdma", "resource", "show"], stdout=subprocess.PIPE, text=True,
                          timeout=60, check=True)
    return done.stdout.split("\n")


def objects(kind):
    """Returns the RDMA objects of a type in this machine, as dictionaries."""
    done = subprocess.run(["rdma", "-j", "-d", "resource", "show", kind], text=True,
                          stdout=subprocess.PIPE, timeout=60, check=True)
    return json.loads(done.stdout)


def wait_resources(before, seconds=20):
    """Waits until the machine has the RDMA objects `before`, and no others."""
    wait.until(lambda: resources() == before, ENV.patience(seconds),
               f"RDMA objects as before ({before}); now {resources()}")
