# SPDX-License-Identifier: GPL-2.0
"""Elapsed time per operation, with one client after the other, again and again.

    bench.py JSON

JSON: {"rounds": N, "long_rounds": N, "scale": factor for the operations of a load,
"axes": [names]}.  Each round goes through the legs, forwards and backwards in turn:
the in-tree client before and after ours, so that what drifts weighs on both, and
the two in-tree legs against each other show what is only scatter.
Prints {axis: {load: {leg: [nanoseconds per operation, one per round]}}}.  An axis that fails is
left out; the others are measured all the same, and the exit status is 1.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
import traceback

import loads
import transport
from remote import Remote

LEGS = (("in-tree", "intree"), ("ours", "ours"), ("in-tree again", "intree"), ("tcp", None))
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
    """Run a command in the server."""
    status, text = Remote("server").call([str(word) for word in argv])
    if status:
        raise RuntimeError(f"on the server: {text.decode()}")
    return text.decode().strip()


@dataclasses.dataclass(frozen=True)
class Axis:
    """One thing varied, the others as they usually are."""

    loads: str                  # method of loads.Bed
    options: str = "vers=4.2"
    mounts: int = 1
    long: bool = False          # fewer rounds
    slots: int = 0              # outstanding calls; 0: as usual
    words: tuple = ()


AXES = {
    "one mount": Axis("everything", words=(DIRECTORY,)),
    "nconnect=4": Axis("several", "vers=4.2,nconnect=4", long=True),
    "nconnect=16": Axis("several", "vers=4.2,nconnect=16", long=True),
    "10 connections": Axis("several", "vers=3,nolock", 10, long=True),
    "50 connections": Axis("several", "vers=3,nolock", MOST_MOUNTS, long=True),
    "1024 slots": Axis("outstanding", "vers=3,nolock", slots=MOST_SLOTS, long=True),
}


def address(number):
    """Of the server.  One connection goes to each: the client shares those to the same."""
    return os.environ["NFS_SERVER"] if not number else f"192.0.2.{100 + number}"


def prepare():
    """What every axis needs of the server."""
    on_server("python3", "-c", MAKE_FILES, f"{os.environ['NFS_EXPORT_MEM']}/{DIRECTORY}",
              loads.DIRECTORY_ENTRIES)
    for number in range(1, MOST_MOUNTS):
        on_server("ip", "address", "add", f"{address(number)}/24", "dev", "eth0")


@contextlib.contextmanager
def mounts(axis, rdma):
    """The mounts of an axis; yields where."""
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
    """Both ends allow as many outstanding calls as the axis wants."""
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


def leg(axis, client, scale):
    """{load: nanoseconds per operation} of one client."""
    with contextlib.ExitStack() as stack:
        if client:
            stack.enter_context(transport.loaded(client))
            stack.enter_context(slots(axis))
        places = stack.enter_context(mounts(axis, bool(client)))
        bed = stack.enter_context(loads.Bed(*places))
        return {load.name: time_of(load, scale)
                for load in getattr(bed, axis.loads)(*axis.words)}


def time_of(load, scale):
    """Nanoseconds per operation, warm."""
    count = max(int(load.count * scale), 1)
    for number in (max(count // 4, 1), count):
        load.before(number)
        took = load.run(number) / number
        load.after(number)
    return took


def rounds_of(name, plan, start):
    """{load: {leg: [nanoseconds per operation, one per round]}} of an axis"""
    axis, found = AXES[name], {}
    rounds = plan["long_rounds" if axis.long else "rounds"]
    for number in range(rounds):
        # TCP is for reference only: it comes last, where it is in nobody's way.
        legs = LEGS[:3] if number % 2 == 0 else LEGS[2::-1]
        for title, client in (*legs, LEGS[3]):
            print(f"  {time.monotonic() - start:5.0f} s  {name}, round {number + 1} of "
                  f"{rounds}: {title}", file=sys.stderr, flush=True)
            for load, took in leg(axis, client, plan["scale"]).items():
                found.setdefault(load, {}).setdefault(title, []).append(took)
    return found


def main(plan):
    loads.hold_still()
    prepare()
    result, start = {}, time.monotonic()
    for name in plan["axes"]:
        try:
            result[name] = rounds_of(name, plan, start)
        except (OSError, RuntimeError, subprocess.SubprocessError):
            traceback.print_exc()
    print(json.dumps(result))
    return 0 if set(result) == set(plan["axes"]) else 1


sys.exit(main(json.loads(sys.argv[1])))
