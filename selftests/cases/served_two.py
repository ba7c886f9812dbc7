# SPDX-License-Identifier: GPL-2.0
"""Version two of RPC-over-RDMA with our server."""

import mmap
import os
import pathlib
import re

from cases import callbacks, security
from cases.version_two import state
from lib import faults, pattern, wait, xprt
from lib.asking import Stage
from lib.case import case, check, equal
from lib.env import ENV, PORT
from lib.requester import two
from lib.responder import ONE, TWO, forgotten, preferred, transport
from lib.served import VERSION, connections, highest

PAGE = 4096
# The second mount uses another NFS version, so that the two mounts do not share a connection.
OTHER = {"3": "4.2", "4.2": "3"}


# covers: V2-01, V2-06, V2-07, V2-11, V2-20, V2-28, RSP-181, RSP-183, MAL-160: Our client and our
# server use version two for all messages, including callbacks. A second mount uses version one at
# the same time. If the server stops supporting version two, a hard mount continues in version one.
# When the server supports version two again, the next mount requests version two.
@case(versions=("3", "4.2"), clients=("ours",), server="ours", seconds=90)
def our_server_speaks_version_two(t):
    with preferred(ONE):
        plain = t.mount(version=OTHER[t.version])
    highest(t, TWO)
    with preferred(TWO):
        mount = t.mount()
    equal(sorted(connections(t)), ["1", "2"], "versions that the server shows")
    security.transfers(t, mount, 1)
    numbers = mount.xprts()[0]
    for name in ("read_segments", "write_segments", "reply_segments"):
        check(numbers[name] > 0, f"no {name}")
    equal((mount.connects(), numbers["bad_reply"]), (1, 0), "connections, bad replies")
    if t.version == "4.2":
        delegation(t, mount)
    plain.remove()
    wait.until(lambda: len(xprt.transports()) == 1, ENV.patience(20), "one transport")
    equal(state(PORT, "version"), "2", "version")
    faults.restart_nfsd(t.server, VERSION, str(ONE))
    faults.end_grace(t.server)
    security.transfers(t, mount, 2)
    equal((state(PORT, "version"), connections(t)), ("1", ["1"]), "version of the server anew")
    faults.restart_nfsd(t.server, VERSION, str(TWO))
    faults.end_grace(t.server)
    os.statvfs(mount.where)
    equal(state(PORT, "version"), "1", "version, as long as it is remembered")
    mount.remove()
    forgotten()
    with preferred(TWO):
        mount = t.mount()
    equal((state(PORT, "version"), connections(t)), ("2", ["2"]), "version of the next mount")
    os.statvfs(mount.where)


def delegation(t, mount):
    """Gets a delegation and makes the server recall it."""
    here, there = t.directory(mount, "delegation").path("file")
    t.server.write(there, b"before")
    with open(here, "rb"):
        callbacks.wait_delegated(t, here)
        before = callbacks.returned(mount)
        taken = callbacks.recall(t, there)
        callbacks.check_returned(mount, before, taken)
        t.server.write(there, b"behind")
        equal(pathlib.Path(here).read_bytes(), b"behind", "content that the server wrote")
    counters = (transport(PORT) / "counters").read_text()
    check(not re.search("^callbacks: 0$", counters, re.MULTILINE), "no callback came")


# covers: RSP-002: In version two both ends accept messages of up to 8192 bytes. So a transfer of
# 4096 bytes of file data needs no memory region in version two, and needs one region in version
# one.
@case(versions=("3", "4.2"), clients=("ours",), server="ours", seconds=60)
def a_page_of_a_file_fits_into_a_message(t):
    highest(t, TWO)
    for version, size, regions in ((ONE, 4096, True), (TWO, 8192, False)):
        with preferred(version):
            mount = t.mount()
        top = t.directory(mount, f"version{version}")
        before = mount.xprts()[0]
        content = pattern.data(version, 0, PAGE)
        fd = os.open(f"{top.here}/file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        with mmap.mmap(-1, PAGE) as page:
            page.write(content)
            equal(os.pwrite(fd, page, 0), PAGE, "bytes written")
            page[:] = bytes(PAGE)
            equal(os.preadv(fd, [page], 0), PAGE, "bytes read")
            check(page[:] == content, "other data were read")
        os.close(fd)
        t.server.expect(f"{top.there}/file", content)
        after = mount.xprts()[0]
        moved = [after[name] - before[name] for name in ("read_segments", "write_segments")]
        equal(moved, [1, 1] if regions else [0, 0], f"segments in version {version}")
        equal(state(PORT, "inline"), f"{size} out, {size} in", f"sizes in version {version}")
        mount.remove()
        xprt.wait_gone()


# covers: V2-14, V2-17, V2-21, V2-26, V2-27, RSP-184, RSP-185, RSP-186, RSP-187, RSP-188, RSP-189,
# covers: RSP-190, MAL-178, MAL-180, MAL-184: A client breaks the rules of version two.
@case(versions=(), clients=("ours", "intree"), server="ours", stock_only=True, seconds=60)
def odd_messages_of_version_two(t):
    highest(t, TWO)
    Stage(t).play_all(two.TWO)
