# SPDX-License-Identifier: GPL-2.0
"""Our server over iWARP: the server registers the memory into which its RDMA Reads put data."""

import os
import re

from lib import pattern, served, wait
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal

# The server uses each region several times, because there are more WRITEs than a connection has
# regions.
WRITES, LENGTH = 60, 64 << 10


def count(t, what):
    """Returns a counter of the server's only connection."""
    found, = re.findall(rf"^{what}: (\d+)$", served.shown(t), re.MULTILINE)
    return int(found)


# covers: RSP-119
@case(versions=("3",), server="ours", provider="siw", seconds=60)
def reads_fill_registered_memory_until_it_is_invalidated(t):
    mount = t.mount()
    here, there = t.directory(mount).path("written")
    buffer, content = Buffer(LENGTH), b""
    fd = os.open(here, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644)
    before = count(t, "calls with Reads")
    for number in range(WRITES):
        data = pattern.data(3, len(content), LENGTH)
        buffer.write(fd, data, number * LENGTH, 0)
        content += data
    os.close(fd)
    t.server.expect(there, content)
    calls = count(t, "calls with Reads")
    check(calls - before >= WRITES, f"only {calls - before} calls with Reads")
    equal(count(t, "Read regions registered"), calls, "regions that were registered")
    wait.until(lambda: count(t, "Read regions invalidated") == calls, ENV.patience(5),
               "every invalidation")
    equal(mount.connects(), 1, "connections of the mount")
