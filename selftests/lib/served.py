# SPDX-License-Identifier: GPL-2.0
"""The settings and the state of our server."""

import re

VERSION = "/proc/sys/sunrpc/svc_rdma/rdma_version"
FILES = "/sys/kernel/debug/svcrdma_rs"


def highest(t, version):
    """Sets the highest version of later connections to the server until the end of the case, which
    sets version one again.
    """
    if version > 1:
        t.defer(t.server.call, "text", VERSION, "1")
    t.server.call("text", VERSION, str(version))


def connections(t):
    """Returns the version of each connection of the server on which a call has arrived."""
    return re.findall(r"^version: (\d)$", shown(t), re.MULTILINE)


def devices(t):
    """Returns the device of each connection that the server has."""
    return re.findall(r"^device: (\S+)$", shown(t), re.MULTILINE)


def dropped(t):
    """Returns the number of messages that were neither a call nor a reply, on all connections of
    the server."""
    return sum(map(int, re.findall(r"^messages dropped: (\d+)$", shown(t), re.MULTILINE)))


def counters(t):
    """Returns how often the server has reached each of its limits, by name."""
    lines = t.server.run("cat", f"{FILES}/bounds").splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def shown(t):
    """Returns the connection files of the server."""
    return t.server.run("sh", "-c", f"cat {FILES}/*/*:* 2>/dev/null || true")
