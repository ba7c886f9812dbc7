# SPDX-License-Identifier: GPL-2.0
"""Tests that create and end our server's module, its listeners and its connections many times."""

import collections
import json
import os
import time
import types

from lib import faults, tracing, wait
from lib.asking import TCP_PORT, Client, Stage
from lib.case import ENV, case, check, equal
from lib.env import PORT
from lib.requester import row, tables
from lib.served import counters, ends, used_kib
from lib.workers import Crew

CLIENTS = "ours", "intree"
CALLS = 8
# Maximum number of connections that a listener accepts from one address.
MOST = 128
# The cause of the end of a connection that nfsd closes, as debugfs shows it.
BY_NFSD = "nfsd ended it"
# Time for which the connections of many clients are idle, in seconds.
IDLE_SECONDS = 240
# `ADDRESSES` contains the addresses of clients that hold idle connections at the same time.
# `MOST_KIB` is the maximum number of KiB of the server's memory for each connection. This memory
# includes the queues of the software device.
ADDRESSES = [f"192.0.2.{101 + number}" for number in range(4)]
MOST_KIB = 2048


def asked(stage, port=PORT):
    """Opens a connection, gets an answer, and closes the connection while calls are in flight."""
    with Client(stage, port=port) as client:
        client.ping()
        client.connection.send_many(tables.Writing()(client).octets(), CALLS)


# covers: Our server can have many listeners at the same time. All of them end when nfsd stops.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60, full_seconds=600)
def many_listeners(t):
    stage = Stage(t)
    t.defer(faults.restart_nfsd, t.server)
    ports = [PORT + 1 + number for number in range(ENV.pick(small=4, full=100))]
    for port in ports:
        t.server.call("text", faults.PORTLIST, f"rdma {port}")
    identifiers = stage.identifiers()
    for port in ports:
        asked(stage, port)
    stage.wait_gone()
    wait.until(lambda: stage.identifiers() <= identifiers, ENV.patience(20),
               "no identifier of a connection left")
    faults.stop_nfsd(t.server)
    wait.until(lambda: not stage.queue_pairs() and not stage.identifiers(), ENV.patience(20),
               "nothing of any listener left in the stopped server")
    faults.start_nfsd(t.server)
    stage.read()


# covers: RSP-209: Our server's module can be loaded and unloaded repeatedly, also while its
# tracepoints are enabled.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90, full_seconds=1800)
def many_loads(t):
    stage = Stage(t)
    t.defer(faults.start_nfsd, t.server)
    for _ in range(ENV.pick(small=2, full=100)):
        tracing.watch_server(t)
        asked(stage)
        check(tracing.of_server(t), "no event")
        # The server sends callbacks to this client on the client's connection.
        t.mount(version="4.2").remove()
        faults.stop_nfsd(t.server)
        wait.until(lambda: not t.server.run("sh", "-c", "rmmod svcrdma_rs 2>&1 || true").strip(),
                   ENV.patience(30), "the module is unloaded")
        equal(tracing.of_server(t), [], "events that are left")
        t.server.run("insmod", os.environ["LAB_SERVER_MODULE"])
        faults.start_nfsd(t.server)
        stage.read()


# covers: A device is removed although a listener uses one of its addresses. The listener does not
# delay the removal. The other listeners serve clients again when the device is back.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def a_listener_at_an_address_lets_its_device_go(t):
    stage = Stage(t)
    t.defer(faults.restart_nfsd, t.server)
    # A listener at an address can be made only while nfsd has no threads.
    faults.stop_nfsd(t.server)
    t.server.run("nfsdctl", "listener", f"+rdma:{ENV.server}:{PORT + 1}")
    for listener in (f"tcp {TCP_PORT}", f"rdma {PORT}"):
        t.server.call("text", faults.PORTLIST, listener)
    t.server.call("text", f"{faults.NFSD}/threads", str(faults.THREADS))
    stage.read()
    asked(stage, PORT + 1)
    identifiers, clock = stage.identifiers(), wait.Clock()
    with faults.server_device_gone(t.server):
        taken = clock.seconds()
        wait.until(lambda: stage.identifiers() < identifiers, ENV.patience(10),
                   "the listener has let the device go")
    t.note(f"the device went in {taken:.2f} s")
    check(taken < ENV.patience(10), f"the device went after {taken:.1f} s")
    stage.read()


BOND_ADDRESS = "198.51.100.1"
# The bond has the hardware address of the interface that it uses at present.
BOND = f"""\
set -e
modprobe bonding max_bonds=0
ip link add bond0 type bond mode active-backup fail_over_mac active
for slave in bond0s1 bond0s2; do
    ip link add $slave type dummy
    ip link set $slave master bond0
done
ip link set bond0 up
ip address add {BOND_ADDRESS}/24 dev bond0
rdma link add rxe8 type rxe netdev bond0s1
rdma link add rxe9 type rxe netdev bond0s2
"""
# `BOND_GID` is the address of the bond as a GID. `GIDS` is a command that prints the GIDs of the
# first device.
BOND_GID = "ffff:c633:6401"
GIDS = "cat /sys/class/infiniband/rxe8/ports/1/gids/*"
UNBOND = """\
for device in rxe8 rxe9; do rdma link delete $device; done
for link in bond0 bond0s1 bond0s2; do ip link delete $link; done
rmmod bonding
"""


# covers: A listener at an address of a bond listens on the device of the interface that the bond
# uses. The debug kernel has no bonds.
@case(versions=(), clients=CLIENTS, server="ours", provider="rxe", stock_only=True, seconds=90)
def a_listener_follows_its_bond(t):
    def listening():
        found = json.loads(t.server.run("rdma", "-j", "resource", "show", "cm_id"))
        return [one["ifname"] for one in found if one["state"] == "LISTEN"
                and one.get("src-addr") == f"{BOND_ADDRESS}:{PORT + 1}"]

    stage = Stage(t)
    t.defer(faults.restart_nfsd, t.server)
    t.defer(t.server.run, "sh", "-c", UNBOND)
    t.server.run("sh", "-c", BOND)
    faults.stop_nfsd(t.server)
    t.defer(faults.stop_nfsd, t.server)
    wait.until(lambda: BOND_GID in t.server.run("sh", "-c", GIDS), ENV.patience(10),
               "the device has the bond's address")
    t.server.run("nfsdctl", "listener", f"+rdma:{BOND_ADDRESS}:{PORT + 1}")
    t.server.call("text", faults.PORTLIST, f"rdma {PORT}")
    t.server.call("text", f"{faults.NFSD}/threads", str(faults.THREADS))
    equal(listening(), ["rxe8"], "where the server listens at the bond's address")
    for slave, device in (("bond0s2", "rxe9"), ("bond0s1", "rxe8"), ("bond0s2", "rxe9")):
        t.server.run("ip", "link", "set", "bond0", "type", "bond", "active_slave", slave)
        wait.until(lambda want=device: listening() == [want], ENV.patience(15),
                   f"the server listens on {device}")
    stage.read()


# covers: Many connections break during calls. No object of these connections is left in our server.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60, full_seconds=1800)
def many_broken_connections(t):
    stage = Stage(t)
    for count in range(ENV.pick(small=8, full=1500)):
        asked(stage)
        if count % 50 == 0:
            # This call keeps the connection of the mount from becoming idle.
            stage.read()
    stage.undisturbed()
    stage.wait_gone()


# covers: Our server ends idle connections to make room for new ones, so it serves any number of
# connections in turn. One address never has more connections at the same time than the limit for an
# address.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60, full_seconds=900)
def many_idle_connections(t):
    stage, before, opened = Stage(t), counters(t), []
    aged = ends(t)[BY_NFSD]
    count, rejected, want, clock = 0, 0, ENV.pick(small=8, full=1000), wait.Clock()
    tracing.watch_server(t)
    while count < want:
        client = Client(stage)
        t.defer(client.connection.close)
        try:
            client.connection.connect()
            client.look()
            opened.append(client)
            count += 1
        except row.NotAccepted:
            # The server rejected the connection, because no other connection has been idle long
            # enough to be ended.
            client.connection.close()
            rejected += 1
            check(clock.seconds() < ENV.patience(600), f"{count} connections")
            time.sleep(1)
        if count % 50 == 0:
            stage.read()
            check(stage.queue_pairs() <= MOST + stage.pairs, "more connections than may be")
            for other in [other for other in opened if other.connection.ended()]:
                other.connection.close()
                opened.remove(other)
    gone = counters(t)["ended_for_another"] - before["ended_for_another"]
    # nfsd ends connections that are idle for six minutes. The debug kernel needs longer for this
    # test.
    aged = ends(t)[BY_NFSD] - aged
    t.note(f"{count} connections in {clock.seconds():.0f} s, {rejected} requests rejected, {gone} "
           f"ended for another, {aged} by nfsd, {len(opened)} there")
    check(count - gone - aged <= MOST, "the count of those that ended")
    events = collections.Counter(name for name, _ in tracing.of_server(t))
    equal(events["svcrdma_rejected"], rejected, "rejected requests that tracepoints tell")
    check(events["svcrdma_accepted"] >= count, "accepted connections that tracepoints tell")
    for client in opened:
        client.connection.close()
    stage.undisturbed()
    stage.wait_gone()


def hold(stop, stage, address, port, count):
    """Makes connections from one address, and keeps them open. Makes a call on each connection
    every four minutes. The reason is that nfsd ends a connection that is idle for six minutes, and
    the debug kernel needs more than six minutes to make all connections. Returns how many of these
    connections the server ended.
    """
    # This child process opens its own RDMA device. It must not close the parent's device, because
    # both processes share the open file of that device.
    own = types.SimpleNamespace(verbs=stage.verbs, device=stage.verbs.Device(faults.device()))
    opened, clock = [], wait.Clock()

    def use():
        nonlocal clock
        if clock.seconds() > IDLE_SECONDS:
            clock = wait.Clock()
            for client in opened:
                client.look()

    for _ in range(count):
        client = Client(own, port=port, source=address)
        client.connection.connect()
        client.look()
        opened.append(client)
        use()
    while not stop():
        time.sleep(0.1)
        use()
    ended = sum(client.connection.ended() for client in opened)
    for client in opened:
        client.connection.close()
    return ended


# covers: Idle connections of many clients exist at the same time. Our server ends none of them, and
# they use little memory.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90, full_seconds=1800)
def idle_connections_of_many_clients(t):
    faults.own_addresses(t, ADDRESSES)
    stage, before = Stage(t), counters(t)["ended_for_another"]
    t.defer(faults.restart_nfsd, t.server)
    t.server.call("text", faults.PORTLIST, f"rdma {PORT + 1}")
    # On the debug kernel, calls on 700 connections take all processor time of the client.
    each = ENV.pick(small=2, full=40 if ENV.debug else 125)
    clock = wait.Clock()
    kib, count = used_kib(t), 2 * each * len(ADDRESSES)
    with Crew(ENV.patience(120)) as crew:
        for address in ADDRESSES:
            for port in (PORT, PORT + 1):
                crew.start(hold, stage, address, port, each)

        def there():
            time.sleep(0.5)
            crew.check()
            # This call keeps the connection of the mount from becoming idle.
            stage.read()
            return stage.queue_pairs() >= stage.pairs + count

        wait.until(there, ENV.patience(ENV.pick(small=20, full=1200)), "all connections")
        t.note(f"{count} connections at a time, after {clock.seconds():.0f} s")
        # The server keeps pages of calls for later calls, and frees them when they have not been
        # used for a while.
        time.sleep(10)
        kib = used_kib(t) - kib
        t.note(f"{kib / 1024:.0f} MiB of the server's memory, {kib / count:.0f} KiB each")
        stage.undisturbed()
        equal(stage.queue_pairs(), stage.pairs + count, "connections that stayed")
    equal(sum(map(int, crew.results)), 0, "connections that the server ended")
    equal(counters(t)["ended_for_another"], before, "connections that ended for another")
    if not ENV.debug:
        check(kib / count <= MOST_KIB, f"KiB of an idle connection: {kib / count:.0f}")
    stage.wait_gone()
