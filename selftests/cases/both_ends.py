# SPDX-License-Identifier: GPL-2.0
"""A machine is client and server at the same time. Its peer is another machine, or the machine
itself."""

import os
import pathlib

from cases.credits import Watch
from cases.data import forget
from lib import faults, module, pattern, serving, xprt
from lib.case import case, check, equal, wait
from lib.env import ENV

KIB, MIB = 1 << 10, 1 << 20
# Number of slots of a mount, and number of programs that share the mount.
FEW, PROGRAMS = 4, 16
COPIES = f"""\
for number in $(seq 0 {PROGRAMS - 1}); do
    dd if=$1/source of=$1/copy-$number bs=64k iflag=direct oflag=direct status=none &
done
wait
"""
# The programs continue to run after this script has ended.
CHANGES = f"""\
for number in $(seq 0 {PROGRAMS - 1}); do
    chmod 600 $1/copy-$number >/dev/null 2>&1 &
done
"""


def expect(path, content):
    """Checks that the server's file is exactly `content`."""
    fd = os.open(path, os.O_RDONLY)
    forget(fd)
    os.close(fd)
    serving.equals(path, content)


# Two machines mount each other's exports. Both run our client and our server. Files are copied in
# both directions at the same time.
@case(versions=("3", "4.2"), clients=("ours",), server="ours", seconds=60)
def each_machine_mounts_the_other(t):
    serving.begin(t)
    serving.other_has_client(t)
    mount, there = t.mount(), serving.There(t, serving.OWN, t.version)
    top = t.directory(mount)
    size = ENV.pick(small=2, full=64) * MIB
    ours, theirs = pattern.data(1, 0, size), pattern.data(2, 0, size)
    t.server.write(f"{top.there}/theirs", theirs)
    # Each machine writes to an export of the other machine. The two machines write at the same
    # time.
    copied = t.server.send("run", ["cp", f"{top.there}/theirs", f"{there.where}/theirs"])
    pathlib.Path(f"{top.here}/ours").write_bytes(ours)
    equal(t.server.take(copied), [0, ""], "copy by the other machine")
    t.server.expect(f"{top.there}/ours", ours)
    serving.equals(serving.OWN / "theirs", theirs)
    there.expect("theirs", theirs)
    expect(f"{top.here}/theirs", theirs)
    equal((mount.connects(), serving.connections()), (1, 1), "connections")
    there.remove()


# A machine mounts its own export. The hard mount keeps working when the server restarts.
@case(versions=("3", "4.2"), clients=("ours",), server="ours", seconds=60)
def a_machine_mounts_itself(t):
    serving.begin(t)
    mount = t.mount(host=serving.address(), export=serving.name(serving.OWN))
    content = pattern.data(1, 0, ENV.pick(small=4, full=64) * MIB)
    pathlib.Path(f"{mount.where}/file").write_bytes(content)
    serving.equals(serving.OWN / "file", content)
    expect(f"{mount.where}/file", content)
    check(serving.connections() > 0, "our server had no connection")
    serving.restart()
    more = pattern.data(2, 0, 100 * KIB)
    pathlib.Path(f"{mount.where}/more").write_bytes(more)
    serving.equals(serving.OWN / "more", more)
    mount.remove()
    xprt.wait_gone()


# This machine mounts a directory of a server, and exports the mount to a client. Data are correct
# in both directions. nfsd refuses locks on such an export. The client continues after a restart of
# the server, and after a restart of nfsd on this machine.
@case(versions=("3", "4.2"), clients=("ours",), server="ours", seconds=90)
def a_mount_is_exported_again(t):
    serving.begin(t)
    serving.other_has_client(t)
    mount = t.mount(where=str(serving.AGAIN))
    top = t.directory(mount)
    serving.export(serving.AGAIN)
    there = serving.There(t, serving.AGAIN, t.version)
    size = ENV.pick(small=1, full=64) * MIB
    down, up = pattern.data(1, 0, size), pattern.data(2, 0, size)
    t.server.write(f"{top.there}/down", down)
    there.expect("case/down", down)
    there.write("case/up", up)
    t.server.expect(f"{top.there}/up", up)
    equal((mount.connects(), serving.connections()), (1, 1), "connections")
    status, text = t.server.call("run", ["flock", "-n", f"{there.where}/case/up", "true"])
    check(status, "nfsd locks what lies on NFS")
    t.note(text.strip())
    faults.restart_nfsd(t.server)
    faults.end_grace(t.server)
    there.write("case/more", down)
    t.server.expect(f"{top.there}/more", down)
    serving.restart()
    there.write("case/again", up)
    t.server.expect(f"{top.there}/again", up)
    there.remove()
    serving.local("exportfs -au")


# This machine exports an NFS mount that has only four slots. Sixteen programs use the export. While
# the disk of the server behind the mount is frozen, calls wait in this machine. No call is lost,
# and the data are right.
@case(versions=("3", "4.2"), clients=("ours",), server="ours", loaded=False, seconds=90)
def a_mount_with_few_slots_is_exported_again(t):
    module.insmod(f"slots={FEW}")
    serving.begin(t)
    serving.other_has_client(t)
    mount, watch = t.mount(where=str(serving.AGAIN), export=ENV.disk), Watch()
    top = t.directory(mount)
    serving.export(serving.AGAIN)
    serving.local(f"rpc.nfsd {PROGRAMS}")
    there = serving.There(t, serving.AGAIN, t.version)
    content = pattern.data(1, 0, ENV.pick(small=512, full=8192) * KIB)
    t.server.write(f"{top.there}/source", content)

    def crowded():
        watch()
        return watch.most == FEW and watch.waiting > 0

    status, said = t.server.call("run", ["sh", "-c", COPIES, "sh", f"{there.where}/case"])
    equal((status, said), (0, ""), "copies by the other machine")
    serving.local("sync")
    # The disk of the server behind the mount stays frozen until every slot of the mount is in use
    # and a call waits for a slot.
    with faults.frozen(t.server):
        t.server.run("sh", "-c", CHANGES, "sh", f"{there.where}/case")
        wait.until(crowded, ENV.patience(40), "all slots in use, and calls that wait")

    def changed():
        modes = t.server.run("sh", "-c", f"stat -c %a {top.there}/copy-*").split()
        return modes == ["600"] * PROGRAMS

    wait.until(changed, ENV.patience(40), "changes by the other machine")
    # The NFS export is asynchronous. So before this sync, some of the data may have been only in
    # the memory of this machine.
    serving.local("sync")
    for number in range(PROGRAMS):
        t.server.expect(f"{top.there}/copy-{number}", content)
    t.note(f"{PROGRAMS} programs, at most {watch.most} calls in flight to the first server")
    equal((mount.connects(), serving.connections()), (1, 1), "connections")
    there.remove()
    serving.local("exportfs -au")
    mount.remove()
    module.unload()
