# SPDX-License-Identifier: GPL-2.0
"""What our server is told, and what it shows."""

import re

VERSION = "/proc/sys/sunrpc/svc_rdma/rdma_version"
FILES = "/sys/kernel/debug/svcrdma_rs"


def highest(t, version):
    """Connections that the server accepts from now on may have this version at most; the case ends
    with version one."""
    if version > 1:
        t.defer(t.server.call, "text", VERSION, "1")
    t.server.call("text", VERSION, str(version))


def connections(t):
    """The version of each connection that the server has and on which a call came."""
    return re.findall(r"^version: (\d)$", shown(t), re.MULTILINE)


def devices(t):
    """The device of each connection that the server has."""
    return re.findall(r"^device: (\S+)$", shown(t), re.MULTILINE)


def dropped(t):
    """How many messages were no call and no reply, on all connections that the server has."""
    return sum(map(int, re.findall(r"^messages dropped: (\d+)$", shown(t), re.MULTILINE)))


def counters(t):
    """How often the server has reached each of its bounds, by name."""
    lines = t.server.run("cat", f"{FILES}/bounds").splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def shown(t):
    """What the server shows of its connections."""
    return t.server.run("sh", "-c", f"cat {FILES}/*/*:* 2>/dev/null || true")
