# SPDX-License-Identifier: GPL-2.0
"""Connections that break. No acknowledged data are lost, and no record is written only in part."""

import contextlib
import ctypes
import ipaddress
import json
import os
import pathlib
import subprocess
import tempfile

from lib import faults, module, pattern, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait
from lib.env import PORT
from lib.load import RECOVERY_SECONDS, Load
from lib.workers import Crew, Worker, together

KIB = 1 << 10
INLINE, BULK = 512, 256 * KIB
# A value of `timeo` for a timer of one second: `timeo` counts tenths of a second.
TIMER = "timeo=10,retrans=2"
# A hardware address that no host has.
NO_HOST = "02:00:00:00:09:09"
# Time in seconds within which the client must notice the end of a connection, or the removal of its
# device. This time is shorter than the interval between keepalives.
NOTICED_SECONDS = 10
LIBC = ctypes.CDLL(None, use_errno=True)
# Difference between the server's IP address and an IP address that no machine has.
NOBODY = 75
# `ATTEMPTS` is the number of connection attempts. They run one after the other, for five seconds
# each. `LEFT` is the number of attempts that must still be running or waiting when the idle
# connection is closed.
ATTEMPTS, LEFT = 3, 2
WIDTH = pathlib.Path("/sys/devices/virtual/workqueue/xprtrdma_rs/max_active")


def break_again_and_again(t, size, rounds):
    """Forces disconnects. Each disconnect is forced after the mount has reconnected."""
    mount = t.mount()
    with Load(t, mount, size) as load:
        for _ in range(rounds):
            before = mount.connects()
            xprt.force_disconnect()
            xprt.wait_reconnected(mount, before)
            load.crew.check()
    found = mount.xprts()[0]
    t.note(f"{found['connect_count']} connections, {found['sends']} sends, "
           f"{found['bad_xids']} bad xids")


# covers: V1-100, V1-014, V1-095, V1-102, BC-08, CM-11, ULB-33, ULB-34: Connections are broken again
# and again during small transfers. The mount reconnects each time, and no data are lost.
@case(seconds=150, full_seconds=3600, slow=True)
def forced_disconnects_under_inline_load(t):
    break_again_and_again(t, INLINE, ENV.pick(small=50, full=500, debug=10))


# covers: V1-102, V1-104
# covers: V1-100, V1-103, V1-110, MAL-105: Connections are broken again and again during large
# transfers. Each time the client takes back the memory that the server could access.
@case(seconds=150, full_seconds=3600, slow=True)
def forced_disconnects_under_bulk_load(t):
    break_again_and_again(t, BULK, ENV.pick(small=50, full=500, debug=10))


# covers: V1-100: After a disconnect each of the mount's connections is made again.
@case(versions=("4.1", "4.2", "3"), seconds=120, slow=True)
def forced_disconnects_with_nconnect(t):
    mount = t.mount("nconnect=4")
    with Load(t, mount, 16 * KIB) as load:
        for _ in range(ENV.pick(small=5, full=100, debug=2)):
            before = [x["connect_count"] for x in mount.xprts()]
            xprt.force_disconnect()
            wait.until(lambda b=before: all(x["connect_count"] > count for x, count
                                            in zip(mount.xprts(), b, strict=True)),
                       ENV.patience(30), "all four connected again")
            load.crew.check()


def restart_again_and_again(t, export, size, rounds):
    """Restarts the server again and again. Each restart ends all connections and the listener."""
    mount = t.mount(export=export)
    with Load(t, mount, size) as load:
        for _ in range(rounds):
            faults.restart_nfsd(t.server)
            faults.end_grace(t.server)
            # Progress of the load proves that there is a new connection. The test does not read the
            # statistics here: while the client of an NFSv4.1 mount identifies the server again, the
            # kernel would print the server's name from freed memory.
            load.wait_progress(RECOVERY_SECONDS, 2)
    found = mount.connects()
    check(found > rounds, f"{found} connections after {rounds} restarts")
    t.note(f"{found} connections")


# covers: V1-095, ULB-33: The server closes the connection, and its listener returns later. The
# client reconnects.
@case(seconds=150, slow=True)
def server_restarts_under_load(t):
    restart_again_and_again(t, ENV.disk, 32 * KIB, ENV.pick(small=2, full=20, debug=1))


# covers: V1-095, V1-100: The server closes the connection while small calls are in flight. The
# client reconnects.
@case(seconds=150, full_seconds=3600, slow=True)
def server_ends_connections_under_inline_load(t):
    restart_again_and_again(t, ENV.mem, INLINE, ENV.pick(small=5, full=250, debug=3))


# covers: V1-100, peer.md R1, R2: No packet arrives for ten seconds. A hard mount returns no error,
# and works again afterwards.
@case(seconds=180, slow=True)
def hard_mount_survives_ten_seconds_of_silence(t):
    mount = t.mount()
    with Load(t, mount, 32 * KIB) as load:
        faults.silence(t.server)
        t.defer(faults.speak, t.server)
        clock = wait.Clock()
        wait.until(lambda: clock.seconds() > 10, 11, "ten seconds")
        load.crew.check()
        faults.speak(t.server)
        t.note(f"works again {load.wait_progress(RECOVERY_SECONDS, 1):.1f} s after the silence")


# covers: V1-095: The server's RDMA device is removed under load and added again. The client
# reconnects.
@case(seconds=180, slow=True)
def server_device_comes_and_goes_under_load(t):
    mount = t.mount()
    with Load(t, mount, 32 * KIB) as load:
        before = mount.connects()
        faults.remove_server_device(t.server)
        faults.add_server_device(t.server)
        xprt.wait_reconnected(mount, before, 90)
        load.crew.check()


# covers: peer.md 1.19: The client's RDMA device is removed under load. The removal completes, and
# the mount works again when the device returns.
@case(seconds=180, slow=True)
def client_device_comes_and_goes_under_load(t):
    mount = t.mount()
    with Load(t, mount, 32 * KIB) as load:
        for _ in range(ENV.pick(small=2, full=20, debug=1)):
            before = mount.connects()
            try:
                faults.remove_client_device()
            finally:
                faults.add_client_device()
            xprt.wait_reconnected(mount, before, 90)
            load.crew.check()


# covers: V1-095, ULB-33: The client notices that the server has closed an idle connection. No call
# is in flight, and the next keepalive is not due soon.
@case(seconds=60)
def the_end_of_an_idle_connection_is_noticed(t):
    mount = t.mount()
    os.statvfs(mount.where)
    t.defer(faults.start_nfsd, t.server)
    faults.stop_nfsd(t.server)
    wait.until(lambda: not xprt.connected(), ENV.patience(NOTICED_SECONDS),
               "the connection is given up")
    faults.start_nfsd(t.server)
    faults.end_grace(t.server)
    os.statvfs(mount.where)


# covers: peer.md 1.19: The client's RDMA device is removed while no call is in flight.
@case(seconds=60)
def client_device_goes_from_an_idle_mount(t):
    mount = t.mount()
    os.statvfs(mount.where)
    clock = wait.Clock()
    try:
        faults.remove_client_device()
    finally:
        taken = clock.seconds()
        faults.add_client_device()
    check(taken < ENV.patience(NOTICED_SECONDS), f"the removal took {taken:.1f} s")
    os.statvfs(mount.where)


def told(what):
    """Returns whether our device has reported this event on any connection."""
    return any(f"device event: {what}, " in file.read_text()
               for file in xprt.DEBUGFS.glob("*/state"))


# covers: The device reports a change of its port before the connection ends. The record of the
# disconnect contains this report. Nothing is sent while the link is down. At the end the test
# removes the device and adds it again, because rxe cannot send after its link was down.
@case(versions=("3",), clients=("ours",), seconds=90)
def what_happened_to_the_port_is_named(t):
    mount = t.mount()
    os.statvfs(mount.where)
    check(not told("port down"), "the port was down before")
    try:
        faults.lab("client", "unplug")
        wait.until(lambda: told("port down"), ENV.patience(10), "port down in state")
    finally:
        faults.lab("client", "plug")
    wait.until(lambda: told("port active"), ENV.patience(10), "port active in state")
    try:
        faults.remove_client_device()
    finally:
        faults.add_client_device()
    # The test reads the debugfs file and not the log, because the number of log lines within a few
    # seconds is limited.
    wait.until(xprt.disconnects, ENV.patience(10), "an end in state")
    os.statvfs(mount.where)
    cause, details = xprt.disconnects()[0]
    equal(cause, "device removed", "cause")
    check("device: port down " in details, f"state: {details}")


# covers: peer.md 1.19: The device is removed before the mount has made all of its connections.
# Without a device the other connections cannot be made. During the mount command, such a failure
# makes the command fail. But here the hard mount exists already, so its I/O must continue.
@case(versions=("3",), clients=("ours",), seconds=90)
def device_goes_before_every_connection_was_made(t):
    mount = t.mount("nconnect=16")
    here, there = t.directory(mount).path("file")
    data = pattern.data(1, 0, 64 * KIB)
    t.server.write(there, data)
    fd = os.open(here, os.O_RDONLY | os.O_DIRECT)
    unused = sum(not x["connect_count"] for x in mount.xprts())
    check(unused, "every connection was made")
    t.note(f"{unused} connections were not made yet")

    def read(_):
        problem = pattern.difference(Buffer(len(data)).read(fd, len(data), 0), data)
        check(problem is None, f"read: {problem}")

    def refused():
        try:
            t.log.expect("cannot be connected: no suitable RDMA device", seconds=ENV.patience(10))
        finally:
            faults.add_client_device()

    try:
        faults.remove_client_device()
    except BaseException:
        faults.add_client_device()
        raise
    together(32, read, under_way=refused)
    os.close(fd)
    check(all(x["connect_count"] for x in mount.xprts()), "not every connection is made")


def idle_and_back(t, seconds):
    """Writes, waits until the connection is closed, and writes again."""
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    with open(here, "wb") as data:
        data.write(pattern.data(1, 0, 5000))
    before = mount.connects()
    wait.until(lambda: not xprt.connected(), seconds, "the idle connection is closed")
    if ENV.ours:
        t.log.expect("disconnected: idle")
    with open(here, "r+b") as data:
        data.write(pattern.data(1, 0, 5000, 1))
    check(mount.connects() > before, "no new connection")
    t.server.expect(there, pattern.data(1, 0, 5000, 1))
    mount.remove()


# covers: V1-020: An idle connection is closed, and is made again when it is needed. The default
# timeout is five minutes.
@case(versions=("3",), full_only=True, full_seconds=900)
def idle_connection_is_closed_and_comes_back(t):
    idle_and_back(t, 420)


# covers: An idle connection is closed after the time that the module parameter sets.
@case(versions=("3",), clients=("ours",), loaded=False, seconds=60)
def idle_connection_is_closed_in_time(t):
    module.insmod("idle_timeout=2")
    idle_and_back(t, ENV.patience(12))
    module.unload()


def mount_in_vain(_, where, absent):
    options = f"vers=4.2,proto=rdma,port={PORT},addr={absent},clientaddr=0.0.0.0"
    if not LIBC.mount(f"{absent}:/".encode(), where.encode(), b"nfs", 0, options.encode()):
        raise AssertionError(f"{absent} is mounted")


# covers: The check for idle connections does not wait for connection attempts of other transports.
# The idle connection is closed even if the work queue runs only one attempt at a time, as it does
# when memory is short.
@case(versions=("3",), clients=("ours",), loaded=False, seconds=60)
def attempts_hold_up_no_look_at_a_connection(t):
    module.insmod("idle_timeout=2")
    WIDTH.write_text("1")
    mount = t.mount()
    os.statvfs(mount.where)
    with tempfile.TemporaryDirectory() as where, Crew(ENV.patience(60)) as crew:
        for number in range(ATTEMPTS):
            absent = ipaddress.ip_address(ENV.server) + NOBODY + number
            crew.start(mount_in_vain, where, str(absent))
        wait.until(lambda: t.log.find("disconnected: idle"), ENV.patience(40),
                   "the idle connection is closed")
        left = [worker.ended() for worker in crew.workers].count(False)
    t.note(f"{left} of {ATTEMPTS} attempts left")
    check(left >= LEFT, f"closed when {left} of {ATTEMPTS} attempts were left")
    mount.remove()
    module.unload()


# covers: BC-16: An idle connection is kept if the server may send callbacks over it.
@case(versions=("4.2",), clients=("ours",), loaded=False, seconds=60)
def a_connection_for_callbacks_is_kept(t):
    module.insmod("idle_timeout=1")
    mount = t.mount()
    os.statvfs(mount.where)
    # The client renews its lease over this connection. More than two seconds pass between two
    # renewals, so the connection is idle for this time.
    wait.until(lambda: mount.xprts()[0]["idle_time"] > 2, ENV.patience(40),
               "the connection is idle")
    check(xprt.connected(), "the connection was closed")
    equal(mount.connects(), 1, "connections")
    mount.remove()
    module.unload()


def neighbour(*addresses, state="reachable"):
    """Sets these hardware addresses, one after the other, in the entry for the server in this
    machine's neighbour table.

    One process sets all addresses, because the start of a second process can take seconds on a busy
    machine. Unless `state` is "permanent", an ARP request from the server repairs the entry.
    """
    lines = [f"neigh replace {ENV.server} lladdr {address} dev {faults.interface()} nud {state}"
             for address in addresses]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def hardware_address():
    """Returns the hardware address in the neighbour table's entry for the server."""
    show = subprocess.run(["ip", "-j", "neigh", "show", ENV.server, "dev", faults.interface()],
                          check=True, capture_output=True)
    return json.loads(show.stdout)[0]["lladdr"]


# covers: V1-095: A neighbour entry that is wrong for a moment ends no connection. If the entry
# stays wrong, the connection ends within two seconds.
@case(versions=("3", "4.2"), clients=("ours",), seconds=40, slow=True)
def a_neighbour_that_flips_keeps_its_connection(t):
    mount = t.mount()
    with Load(t, mount, INLINE) as load:
        before, right = mount.connects(), hardware_address()
        for _ in range(5):
            neighbour(NO_HOST, right)
            load.wait_progress(RECOVERY_SECONDS, 1)
        equal(mount.connects(), before, f"connections ({xprt.disconnects()})")
        neighbour(NO_HOST, state="permanent")
        clock = wait.Clock()
        try:
            wait.until(xprt.disconnects, ENV.patience(5), "the end of the connection")
            t.note(f"ended after {clock.seconds():.2f} s: {xprt.disconnects()}")
        finally:
            neighbour(right)
        equal(xprt.disconnects()[0][0], "peer unreachable", "cause")
        load.wait_progress(RECOVERY_SECONDS, 1)


@contextlib.contextmanager
def no_thread_free(server):
    """Leaves the server only one thread while the `with` block runs, so that a slow call can occupy
    the only thread."""
    threads = f"{faults.NFSD}/threads"
    before = server.call("text", threads).strip()
    server.call("text", threads, "1")
    try:
        yield
    finally:
        server.call("text", threads, before)


# covers: ULB-31: The server's RDMA adapter still acknowledges packets, but its software no longer
# answers. The connection ends when the timer of a call expires for the third time.
@case(versions=("4.2",), clients=("ours",), seconds=60)
def a_dead_server_behind_a_live_adapter_is_given_up(t):
    mount = t.mount(TIMER, export=ENV.disk)
    top = t.directory(mount)
    fd = os.open(top.path("file")[0], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    t.defer(os.close, fd)
    buffer = Buffer(4 * KIB)
    buffer.write(fd, pattern.data(1, 0, 4 * KIB), 0)
    equal(xprt.disconnects(), [], "connections lost")
    with no_thread_free(t.server):
        with faults.frozen(t.server):
            writer = Worker(lambda _: buffer.write(fd, pattern.data(2, 0, 4 * KIB), 0))
            clock = wait.Clock()
            wait.until(xprt.disconnects, ENV.patience(15), "the end of the connection")
            t.note(f"ended after {clock.seconds():.1f} s: {xprt.disconnects()}")
            check(clock.seconds() > 2.5, "sooner than by the third timer")
            equal(xprt.disconnects()[-1][0], "no message from the server", "cause")
        writer.join(ENV.patience(40))
    t.server.expect(top.path("file")[1], pattern.data(2, 0, 4 * KIB))
