# SPDX-License-Identifier: GPL-2.0
"""The memory that connections take."""

import mmap
import os
import pathlib
import re

from lib import faults, module, pattern, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait
from lib.env import PORT
from lib.workers import Crew

CONNECTIONS = 16
ROUNDS = 3
BURST = 40
BLOCK = 64 << 10
# The number of regions that an idle connection keeps.
FIRST = 8
# The number of slots that keep their buffers, so that calls can be made when memory is short. One
# more slot is included, because it may be in use during the check.
KEPT = 9


def used_kib():
    """Returns the size of the memory in use, in KiB, without the memory that the kernel could
    reclaim."""
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    fields = dict(line.split(":") for line in
                  pathlib.Path("/proc/meminfo").read_text().splitlines())
    kib = {name: int(value.split()[0]) for name, value in fields.items()}
    # /proc/meminfo does not count the pages in the per-processor free lists as free. But these
    # pages are not in use, so they are subtracted as well.
    zones = pathlib.Path("/proc/zoneinfo").read_text()
    at_hand = sum(map(int, re.findall(r"^\s+count:\s+(\d+)$", zones, re.MULTILINE)))
    return (kib["MemTotal"] - kib["MemFree"] - kib["Buffers"] - kib["Cached"]
            - at_hand * mmap.PAGESIZE // 1024)


def of_a_connection(t):
    """Returns how much memory one additional idle connection takes, in KiB."""
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


# covers: An idle connection of our client takes at most half as much memory as one of the in-tree
# client.
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


def write_one(_, fd, number):
    """Writes one block without the page cache."""
    Buffer(BLOCK).write(fd, pattern.data(number, 0, BLOCK, 1), 0, 0)


def taken():
    """Returns two numbers of the only transport: the number of its regions, and the size of its
    message buffers in bytes."""
    return (xprt.numbers_of("state", "regions")[0],
            xprt.numbers_of("state", "message buffers")[0])


# covers: peer.md 2.4: Many simultaneous calls make the client allocate regions and buffers. The
# client releases them after they have been unused for 30 to 60 seconds. The connection stays.
@case(versions=("3",), clients=("ours",), stock_only=True, seconds=150)
def what_a_burst_took_is_given_back(t):
    mount = t.mount(export=ENV.disk)
    top = t.directory(mount)
    t.server.call("create", top.there, BURST, "f")
    # The files are opened before the server is frozen, because the first calls will occupy all of
    # its few threads.
    files = []
    for number in range(BURST):
        files.append(os.open(f"{top.here}/f{number}", os.O_WRONLY | os.O_DIRECT))
        t.defer(os.close, files[-1])
    before = taken()
    with Crew(ENV.patience(60)) as crew, faults.frozen(t.server):
        for number in range(BURST):
            crew.start(write_one, files[number], number)
        wait.until(lambda: xprt.numbers_of("counters", "mrs_in_use")[0] == BURST,
                   ENV.patience(30), "a region in use for each writer")
        burst = taken()
    check(burst[0] >= BURST and burst[1] >= BURST * 1024,
          f"regions and bytes of the burst: {burst}, before: {before}")
    # Only a few slots keep their buffers.
    most = max(before[1], burst[1] * KEPT // BURST)
    check(most < burst[1] // 2, f"what is kept is most of the burst: {before}, {burst}")
    clock = wait.Clock()
    wait.until(lambda: taken()[0] == FIRST and taken()[1] <= most, ENV.patience(100),
               f"regions and bytes given back: {before}, {burst}")
    t.note(f"regions and bytes: {before}, {burst}, after {clock.seconds():.0f} s {taken()}")
    equal(mount.connects(), 1, "connections")
    for number in range(BURST):
        t.server.expect(f"{top.there}/f{number}", pattern.data(number, 0, BLOCK, 1))
