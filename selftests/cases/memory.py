# SPDX-License-Identifier: GPL-2.0
"""How much memory connections take."""

import mmap
import os
import pathlib
import re

from lib import module, xprt
from lib.case import case, check, equal
from lib.env import PORT

CONNECTIONS = 16
ROUNDS = 3


def used_kib():
    """Memory in use that the kernel could not have back, in KiB."""
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    fields = dict(line.split(":") for line in
                  pathlib.Path("/proc/meminfo").read_text().splitlines())
    kib = {name: int(value.split()[0]) for name, value in fields.items()}
    # What a processor keeps at hand for the next allocation is in no sum.
    zones = pathlib.Path("/proc/zoneinfo").read_text()
    at_hand = sum(map(int, re.findall(r"^\s+count:\s+(\d+)$", zones, re.MULTILINE)))
    return (kib["MemTotal"] - kib["MemFree"] - kib["Buffers"] - kib["Cached"]
            - at_hand * mmap.PAGESIZE // 1024)


def of_a_connection(t):
    """KiB that one more idle connection takes, with all that belongs to it."""
    taken = {}
    for count in (1, CONNECTIONS):
        mount = t.mount(f"vers=3,proto=rdma,port={PORT},nconnect={count}", raw=True)
        for _ in range(4 * count):
            os.statvfs(mount.where)
        equal([x["connect_count"] for x in mount.xprts()], [1] * count, "connections")
        taken[count] = used_kib()
        mount.remove()
        xprt.wait_gone()
    return (taken[CONNECTIONS] - taken[1]) / (CONNECTIONS - 1)


# covers: an idle connection takes at most half of the memory that the in-tree client takes for one.
@case(versions=None, clients=("ours",), seconds=120, stock_only=True, loaded=False)
def an_idle_connection_takes_half_of_the_intree_clients(t):
    found = {}
    for client in ("intree", "ours"):
        if client == "intree":
            status, text = module.modprobe(module.name(client))
            check(status == 0, text)
        else:
            module.load()
        of_a_connection(t)
        found[client] = sorted(of_a_connection(t) for _ in range(ROUNDS))
        module.unload(client)
    t.note(f"KiB for a connection: {found}")
    medians = {client: rounds[ROUNDS // 2] for client, rounds in found.items()}
    check(0 < medians["ours"] <= medians["intree"] / 2, f"KiB for a connection: {medians}")
