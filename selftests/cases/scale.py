# SPDX-License-Identifier: GPL-2.0
"""Many connections, several server addresses, network namespaces."""

import errno
import os
import pathlib

from lib import namespace, pattern, xprt
from lib.case import ENV, case, check, equal, wait
from lib.env import PORT
from lib.workers import Worker

# A second address of the server.
OTHER = "192.0.2.3"


def other_address(t):
    """Adds a second address to the server until the end of the test case."""
    t.server.run("ip", "addr", "add", f"{OTHER}/24", "dev", "eth0")
    t.defer(t.server.run, "ip", "addr", "del", f"{OTHER}/24", "dev", "eth0")


def peers():
    """Returns the server address of each transport."""
    return sorted((d / "dstaddr").read_text().strip() for d in xprt.directories())


def exchange(t, mount, number, size=300001):
    """Transfers data in both directions and compares them."""
    here, there = mount.path(f"scale-{number}")
    content = pattern.data(number, 0, size)
    pathlib.Path(here).write_bytes(content)
    t.defer(t.server.call, "rmtree", there)
    t.server.expect(there, content)
    t.server.write(there, pattern.data(number, 0, size, 1))
    fd = os.open(here, os.O_RDONLY | os.O_DIRECT)
    found = os.read(fd, 4096)
    os.close(fd)
    check(found == pattern.data(number, 0, 4096, 1), f"what the server wrote to {number}")


# covers: A mount works with nconnect=16, the largest value that mount allows, and uses all
# connections.
@case(versions=("3", "4.2"), seconds=90)
def sixteen_connections(t):
    mount = t.mount("nconnect=16")
    for number in range(8):
        exchange(t, mount, number, 20000)
    for _ in range(40):
        os.statvfs(mount.where)
    found = mount.xprts()
    equal(len(found), 16, "xprt lines")
    equal([x["connect_count"] for x in found], [1] * 16, "connections")
    idle = [number for number, x in enumerate(found) if not x["recvs"]]
    equal(idle, [], "connections that carried nothing")


# covers: A second address looks like a second server to the client. When the mount of the second
# address is removed, the mount of the first address is not affected.
@case(versions=("3",), seconds=60)
def two_servers_stay_apart(t):
    other_address(t)
    first = t.mount()
    second = t.mount(f"vers=3,proto=rdma,port={PORT},mountaddr={OTHER}", raw=True, host=OTHER)
    for number, mount in enumerate((first, second)):
        exchange(t, mount, number)
    equal(peers(), sorted((ENV.server, OTHER)), "peers")
    exchange(t, second, 2)
    second.remove()
    wait.until(lambda: peers() == [ENV.server], ENV.patience(20), "one transport is gone")
    exchange(t, first, 3)
    equal(first.connects(), 1, "connections")


def delete(directory):
    """Removes a connection. Returns whether the kernel allowed the removal."""
    try:
        (directory / "del_xprt").write_text("1")
    except OSError as error:
        equal(error.errno, errno.EINVAL, "del_xprt")
        return False
    return True


# covers: The guide's statements about nconnect, add_xprt and del_xprt are true. The first mount
# decides the number of connections, and later values are ignored without a message. An added
# connection carries nothing unless the mount distributes calls over its connections.
@case(versions=("4.2",), seconds=60)
def connections_are_those_of_the_first_mount(t):
    first = t.mount()
    t.log.mark()
    second = t.mount("nconnect=4,nosharecache", export=ENV.disk)
    for mount in (first, second):
        equal(len(mount.xprts()), 1, "connections")
        equal([o for o in mount.active() if o.startswith("nconnect")], [], "shown options")
    check(not t.log.find("nconnect"), "the kernel says that nconnect is ignored")
    switch = xprt.directories()[0].parent
    (switch / "add_xprt").write_text("1")
    exchange(t, first, 1)
    equal([one["connect_count"] for one in first.xprts()], [1, 0], "connections made")
    found = xprt.directories()
    equal([delete(directory) for directory in found].count(True), 1, "connections taken away")
    # The removed transport was never connected. It carries no data, but exists until the last mount
    # is removed.
    marked = [words for words in xprt.states() if {"OFFLINE", "REMOVE"} <= set(words)]
    equal((len(xprt.states()), len(marked)), (2, 1), "transports, and those to be removed")
    exchange(t, second, 2)
    equal(first.connects(), 1, "connections made")


# covers: A mount with nconnect uses a connection that an administrator adds. After the
# administrator removes the connection, it no longer exists.
@case(versions=("4.2",), seconds=60)
def connections_come_and_go(t):
    mount = t.mount("nconnect=2")
    switch, before = xprt.directories()[0].parent, xprt.directories()
    (switch / "add_xprt").write_text("1")
    wait.until(lambda: os.statvfs(mount.where) and mount.connects() == 3, ENV.patience(20),
               "three connections")
    exchange(t, mount, 1)
    added, = set(xprt.directories()) - set(before)
    check(delete(added), "the added one stays")
    wait.until(lambda: xprt.directories() == before, ENV.patience(20), "the added one is gone")
    exchange(t, mount, 2)
    equal(mount.connects(), 2, "connections made")


# covers: A mount of a second address of the same server adds a connection to the first mount
# (trunking).
@case(versions=("4.1", "4.2"), seconds=60)
def trunks_use_both_addresses(t):
    other_address(t)
    first = t.mount("max_connect=4")
    options = f"vers={t.version},proto=rdma,port={PORT},max_connect=4"
    second = t.mount(options, raw=True, host=OTHER, export=ENV.disk)
    equal(peers(), sorted((ENV.server, OTHER)), "peers")
    for number in range(6):
        exchange(t, (first, second)[number % 2], number)
    found = first.xprts()
    equal(len(found), 2, "transports of the first mount")
    for number, one in enumerate(found):
        check(one["recvs"] > 3, f"transport {number} received {one['recvs']}")


# covers: An administrator moves a connection to another address by writing to dstaddr in sysfs.
@case(versions=("3", "4.2"), seconds=60)
def dstaddr_moves_the_connection(t):
    other_address(t)
    mount = t.mount()
    exchange(t, mount, 1)
    before, directory = mount.connects(), xprt.directories()[0]
    (directory / "dstaddr").write_text(OTHER)
    xprt.wait_reconnected_by(mount, before, lambda: os.statvfs(mount.where))
    equal(peers(), [OTHER], "peers")
    exchange(t, mount, 2)
    (directory / "dstaddr").write_text(ENV.server)
    exchange(t, mount, 3)


def in_namespace(_, mount):
    """Mounts from inside the network namespace, in a separate process."""
    with open(namespace.FILE) as space:
        os.setns(space.fileno(), os.CLONE_NEWNET)  # type: ignore[attr-defined]
    mount.make()


# covers: A mount is made in a network namespace that has the RDMA device. Then the name of the
# namespace is deleted. The mount still works, and the namespace ends with the mount.
@case(versions=("4.2",), seconds=90)
def a_namespace_may_go_under_its_mount(t):
    t.defer(namespace.leave)
    namespace.enter()
    mount = t.unmounted()
    Worker(in_namespace, mount).join(ENV.patience(60))
    exchange(t, mount, 1)
    namespace.delete()
    exchange(t, mount, 2)
    before = mount.connects()
    xprt.force_disconnect()
    xprt.wait_reconnected_by(mount, before, lambda: os.statvfs(mount.where))
    exchange(t, mount, 3)
    mount.remove()
    xprt.wait_gone()
