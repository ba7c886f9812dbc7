# SPDX-License-Identifier: GPL-2.0
"""The properties in which measured mounts differ: how many connections, mounts and outstanding
calls there are."""

import contextlib
import dataclasses
import os
import typing

from . import loads, transport
from .remote import Remote

TRANSPORTS = {True: "rdma,port=20049", False: "proto=tcp,port=2049"}
DIRECTORY = "many"
MOST_MOUNTS, MOST_SLOTS = 50, 1024
SLOTS = "/proc/sys/sunrpc/rdma_slot_table_entries"
REQUESTS = "/proc/sys/sunrpc/svc_rdma/max_requests"
MAKE_FILES = """
import os, sys
os.makedirs(sys.argv[1])
for number in range(int(sys.argv[2])):
    os.close(os.open(f"{sys.argv[1]}/entry-{number}", os.O_CREAT | os.O_WRONLY))
"""


def on_server(*argv):
    """Runs a command on the server."""
    status, text = Remote("server").call([str(word) for word in argv])
    if status:
        raise RuntimeError(f"on the server: {text.decode()}")
    return text.decode().strip()


@dataclasses.dataclass(frozen=True)
class Axis:
    """A property in which measurements differ. All other properties have their usual values."""

    loads: typing.Callable = lambda bed: []  # function that returns the loads for a loads.Bed
    options: str = "vers=4.2"
    mounts: int = 1
    # whether fewer rounds are measured, because each round takes a long time
    long: bool = False
    slots: int = 0              # number of outstanding calls; 0 means the default number


AXES = {
    "one mount": Axis(lambda bed: bed.everything(DIRECTORY)),
    "nconnect=4": Axis(loads.Bed.several, "vers=4.2,nconnect=4", long=True),
    "nconnect=16": Axis(loads.Bed.several, "vers=4.2,nconnect=16", long=True),
    "10 connections": Axis(loads.Bed.several, "vers=3,nolock", 10, long=True),
    "50 connections": Axis(loads.Bed.several, "vers=3,nolock", MOST_MOUNTS, long=True),
    "1024 slots": Axis(lambda bed: [load for _, load in bed.outstanding()], "vers=3,nolock",
                       slots=MOST_SLOTS, long=True),
}


def address(number):
    """Returns an address of the server. Mounts with different addresses use different connections;
    the client shares a connection among mounts of one address."""
    return os.environ["NFS_SERVER"] if not number else f"192.0.2.{100 + number}"


def prepare():
    """Prepares the server for all measurements: makes files and adds addresses."""
    on_server("python3", "-c", MAKE_FILES, f"{os.environ['NFS_EXPORT_MEM']}/{DIRECTORY}",
              loads.DIRECTORY_ENTRIES)
    add_addresses(MOST_MOUNTS)


def add_addresses(count):
    """Adds addresses to the server, so that the server has `count` addresses for mounts."""
    for number in range(1, count):
        on_server("ip", "address", "add", f"{address(number)}/24", "dev", "eth0")


@contextlib.contextmanager
def mounts(axis, rdma):
    """Makes the number of mounts that `axis` specifies. Yields their mount points."""
    with contextlib.ExitStack() as stack:
        places = [f"/mnt/bench-{number}" for number in range(axis.mounts)]
        for number, place in enumerate(places):
            os.makedirs(place, exist_ok=True)
            transport.run("mount", "-t", "nfs", "-o", f"{axis.options},{TRANSPORTS[rdma]}",
                          f"{address(number)}:{os.environ['NFS_EXPORT_MEM']}", place)
            stack.callback(transport.run, "umount", place)
        yield places


@contextlib.contextmanager
def slots(axis):
    """Makes the client and the server allow the number of outstanding calls that `axis`
    specifies."""
    if not axis.slots:
        yield
        return
    with open(SLOTS) as here:
        usual, servers = here.read(), on_server("cat", REQUESTS)
    try:
        set_slots(axis.slots, axis.slots)
        yield
    finally:
        set_slots(usual, servers)


def set_slots(here, there):
    with open(SLOTS, "w") as file:
        file.write(str(here))
    on_server("sh", "-c", f"echo {there} > {REQUESTS}")
