# SPDX-License-Identifier: GPL-2.0
"""Mounting with every NFS version and both address families, and what the kernel shows about
mounts."""

import contextlib
import os
import pathlib

from lib import guide, module, pattern, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal
from lib.mounts import Refused

ALL = ("3", "4.0", "4.1", "4.2")
MIB = 1 << 20
SEGMENTS = ("read_segments", "write_segments", "reply_segments")


def works(t, mount, number):
    """Checks that a mount carries data in both directions."""
    here, there = t.directory(mount).path("file")
    content = pattern.data(number, 0, 200001)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)
    other = pattern.data(number, 0, 77777, generation=1)
    t.server.write(f"{there}-2", other)
    equal(pathlib.Path(f"{here}-2").read_bytes() == other, True, "data from the server")


# covers: V1-114, V1-115, V1-005, BC-20 (4.0), BC-21 (4.1, 4.2), ULB-06 (3): Each NFS version can be
# mounted over IPv4 and over IPv6.
@case(versions=None)
def every_version_mounts_over_both_families(t):
    for version in ALL:
        for netid in ("rdma", "rdma6"):
            mount = t.mount(version=version, netid=netid)
            options = mount.active()
            check(f"vers={version}" in options, f"{version} {netid}: {options}")
            check(f"proto={netid}" in options, f"{version} {netid}: {options}")
            check("port=20049" in options, f"{version} {netid}: {options}")
            works(t, mount, ALL.index(version))
            mount.remove()


# covers: V1-051, V1-057: Client and server agree on transfers of 1 MiB, the largest that NFS
# supports.
@case()
def transfers_of_one_mebibyte_are_negotiated(t):
    options = t.mount().active()
    for name in ("rsize", "wsize"):
        check(f"{name}={MIB}" in options, f"{name}: {options}")


# covers: Administrators' tools read the statistics in /proc/self/mountstats by position, so the
# columns must not change.
@case()
def mountstats_has_the_columns_tools_expect(t):
    mount = t.mount()
    works(t, mount, 1)
    lines = xprt.lines(mount.where)
    equal(len(lines), 1, "xprt lines")
    equal(lines[0][0], "rdma", "transport")
    equal(len(lines[0]) - 1, len(xprt.COLUMNS), "columns")
    numbers = mount.xprts()[0]
    equal(numbers["connect_count"], 1, "connect_count")
    equal(numbers["bad_xids"], 0, "bad_xids")
    equal(numbers["bad_reply"], 0, "bad_reply")
    check(numbers["sends"] > 5, f"sends {numbers['sends']}")
    check(0 <= numbers["sends"] - numbers["recvs"] <= 1,
          f"{numbers['sends']} sends, {numbers['recvs']} receives")
    # The test has written 200001 bytes and has read 77777 bytes, in chunks.
    check(numbers["read_segments"] >= 1, f"read_segments {numbers['read_segments']}")
    check(numbers["write_segments"] >= 1, f"write_segments {numbers['write_segments']}")
    check(numbers["total_rdma_reply"] >= 77777, f"total_rdma_reply {numbers['total_rdma_reply']}")
    # Each kind of call increases only one of the three columns that count segments.
    size = 64 << 10
    top, buffer = t.directory(mount), Buffer(size)
    with open(os.open(top.path("columns")[0], os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644),
              "r+b", buffering=0) as file:
        for call, moved in ((lambda: buffer.write(file.fileno(), bytes(size), 0), "read_segments"),
                            (lambda: buffer.read(file.fileno(), size, 0), "write_segments"),
                            (lambda: os.listdir(top.here), "reply_segments")):
            before = mount.xprts()[0]
            call()
            after = mount.xprts()[0]
            found = [name for name in SEGMENTS if after[name] > before[name]]
            equal(found, [moved], "columns of segments that moved")


# covers: sunrpc's files in sysfs show the address, the port and the state of the connection.
@case()
def sunrpc_shows_the_connection(t):
    mount = t.mount()
    works(t, mount, 2)
    found = xprt.directories()
    equal(len(found), 1, "transports in sysfs")
    equal((found[0] / "dstaddr").read_text().strip(), ENV.server, "dstaddr")
    numbers = xprt.info(found[0])
    equal(numbers["dst_port"], 20049, "dst_port")
    check(numbers["cong_win"] >= 256, f"cong_win {numbers['cong_win']}")
    equal(numbers["cong_win"] % 256, 0, "cong_win in credits")
    check("CONNECTED" in xprt.states()[0], f"state {xprt.states()[0]}")


# covers: V1-006, V1-115: The mount has one reliable connection, which the connection manager made.
# covers: V1-107, CM-15: In the protection domain of this connection, no key gives access to all
# memory.
@case(seconds=30)
def a_connection_is_reliable_and_its_memory_closed(t):
    mount = t.mount()
    works(t, mount, 8)
    pairs = [o for o in module.objects("qp") if o["type"] != "GSI"]
    equal([(o["type"], o["state"]) for o in pairs], [("RC", "RTS")], "queue pairs")
    ids = [o for o in module.objects("cm_id") if o.get("dst-addr", "").endswith(":20049")]
    equal([o["state"] for o in ids], ["CONNECT"], "connections of the connection manager")
    domains = [o for o in module.objects("pd") if o["comm"] == module.name()]
    check(domains, "no protection domain")
    for domain in domains:
        check("unsafe_global_rkey" not in domain, f"a key for all of the memory: {domain}")


# Mount options that other vendors' NFS clients know, and that this kernel's NFS client does not
# know. Options that both know are not listed, because the kernel logs nothing for them.
UNKNOWN = ("rdma,remoteports=192.0.2.1", "rdma,localports=eth0", "rdma,nosharetransport")
IMPOSSIBLE = ("vers=3,rdma,mountproto=rdma", "vers=4.2,rdma,xprtsec=tls", "rdma,nconnect=17",
              "rdma,nconnect=0", "rdma,max_connect=17")


# covers: V1-114: mount(8) refuses unknown and contradictory options immediately, and the message
# says which option is wrong.
@case(versions=None)
def impossible_mounts_fail_at_once(t):
    for options in ("vers=4.2,proto=rdma6", *UNKNOWN, *IMPOSSIBLE):
        t.log.mark()
        try:
            mount = t.mount(options, raw=True)
        except Refused as refused:
            t.note(str(refused))
            if options in (*UNKNOWN, *IMPOSSIBLE):
                guide.explained("mount", str(refused))
                equal(bool(t.log.find("nfs: Unknown parameter")), options in UNKNOWN,
                      f"a log line for {options}")
        else:
            mount.remove()
            raise AssertionError(f"mount -o {options} succeeds")
    check(not xprt.directories(), "a refused mount leaves a transport")


# covers: V1-110: A mount is made and removed again and again. No object is left.
@case(seconds=120, full_seconds=900, slow=True)
def remounts_leave_nothing(t):
    before = module.resources()
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    content = pattern.data(5, 0, 30000)
    pathlib.Path(here).write_bytes(content)
    for _ in range(ENV.pick(small=10, full=50, debug=4)):
        mount.remove()
        mount.make()
        equal(pathlib.Path(here).read_bytes() == content, True, "content after a remount")
    t.server.expect(there, content)
    mount.remove()
    xprt.wait_gone()
    module.wait_resources(before)


# covers: With nconnect a mount has several connections and uses all of them.
@case(versions=("3", "4.1", "4.2"))
def nconnect_uses_every_connection(t):
    mount = t.mount("nconnect=4")
    here, there = t.directory(mount).path("file")
    for number in range(16):
        content = pattern.data(number, 0, 20000)
        pathlib.Path(here).write_bytes(content)
        os.stat(here)
        t.server.expect(there, content)
    found = mount.xprts()
    equal(len(found), 4, "xprt lines")
    for number, numbers in enumerate(found):
        equal(numbers["connect_count"], 1, f"connections of transport {number}")
        check(numbers["recvs"] > 3, f"transport {number} received {numbers['recvs']}")


# covers: V1-129, V1-110: Files of two exports that are mounted at the same time do not get mixed
# up.
@case()
def two_exports_stay_apart(t):
    first, second = t.mount(), t.mount(export=ENV.disk)
    paths = [t.directory(m).path("same-name") for m in (first, second)]
    contents = [pattern.data(number, 0, 1500000) for number in (6, 7)]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(here, "wb")) for here, _ in paths]
        for at in range(0, 1500000, 50000):
            for file, content in zip(files, contents, strict=True):
                file.write(content[at:at + 50000])
    for (_, there), content in zip(paths, contents, strict=True):
        t.server.expect(there, content)
    first.remove()
    equal(pathlib.Path(paths[1][0]).read_bytes() == contents[1], True,
          "the second mount after the first is gone")
