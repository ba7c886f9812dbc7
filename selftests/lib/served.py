# SPDX-License-Identifier: GPL-2.0
"""The settings and the state of our server."""

import collections
import re

SYSCTLS = "/proc/sys/sunrpc/svc_rdma"
VERSION = f"{SYSCTLS}/rdma_version"
FILES = "/sys/kernel/debug/svcrdma_rs"
USED = r"""
echo 3 > /proc/sys/vm/drop_caches
awk '/^(MemFree|Buffers|Cached):/ { sum -= $2 } /^MemTotal:/ { sum += $2 } END { print sum }' \
    /proc/meminfo
awk '/^ +count:/ { sum += $2 } END { print sum * 4 }' /proc/zoneinfo
"""


def highest(t, version):
    """Sets the highest version that later connections to the server can use. At the end of the case
    the highest version is set to version one again.
    """
    if version > 1:
        t.defer(t.server.call, "text", VERSION, "1")
    t.server.call("text", VERSION, str(version))


def connections(t):
    """Returns the version of each of the server's connections on which a call has arrived."""
    return re.findall(r"^version: (\d)$", shown(t), re.MULTILINE)


def devices(t):
    """Returns the name of the device of each connection of the server."""
    return re.findall(r"^device: (\S+)$", shown(t), re.MULTILINE)


def dropped(t):
    """Returns the number of messages that were neither a call nor a reply, on all connections of
    the server."""
    return total(t, "messages dropped")


def total(t, name):
    """Returns the sum of the number `name` over all connections of the server."""
    return sum(map(int, re.findall(rf"^{name}: (\d+)$", shown(t), re.MULTILINE)))


def counters(t):
    """Returns how many times the server has reached each of its limits, as a dictionary by the
    names of the limits."""
    lines = t.server.run("cat", f"{FILES}/bounds").splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def transfers(t, kind):
    """Returns the number of RDMA Reads or Writes that the server has posted."""
    return int(t.server.call("text", f"{SYSCTLS}/rdma_stat_{kind}").split()[0])


def ends(t):
    """Returns how many connections to the server's listeners have ended, by cause."""
    shown, found = t.server.run("sh", "-c", f"cat {FILES}/*/listener"), collections.Counter()
    for cause, count in re.findall(r"^ended, (.*): (\d+)$", shown, re.MULTILINE):
        found[cause] += int(count)
    return found


def shown(t):
    """Returns the contents of the server's debugfs files about its connections."""
    return t.server.run("sh", "-c", f"cat {FILES}/*/*:* 2>/dev/null || true")


def used_kib(t):
    """Returns the server's memory in use, in KiB. Memory that the kernel could reclaim is not
    included."""
    used, at_hand = map(int, t.server.run("sh", "-c", USED).split())
    return used - at_hand
