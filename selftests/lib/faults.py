# SPDX-License-Identifier: GPL-2.0
"""Faults on the server and on the network, and how to undo them."""

import contextlib
import pathlib
import subprocess
import tempfile

from lablib.guest.remote import Remote

from . import wait, xprt
from .env import ENV, PORT

ROCE_PORT = 4791
THREADS = 8
NFSD = "/proc/fs/nfsd"
PORTLIST = f"{NFSD}/portlist"
MAX_REQUESTS = "/proc/sys/sunrpc/svc_rdma/max_requests"
MESSAGE_SIZE = "/proc/sys/sunrpc/svc_rdma/max_req_size"
TABLE = "selftests"
DISK = "/disk"  # mount point of the file system that contains ENV.disk
DETOUR = "detour"
# Commands for rxe and for siw. Only incoming packets are dropped: a software device whose own
# sends are refused loses its management queue pair for good.
SILENCE = f"""
table inet {TABLE} {{
    chain in {{
        type filter hook input priority 0
        udp dport {ROCE_PORT} drop
        tcp dport {PORT} drop
    }}
}}
"""


def interface(number=0):
    """Returns the interface of this or the other machine at a cable."""
    return f"eth{number}"


def device(number=0):
    """Returns the RDMA device of this or the other machine at a cable."""
    return ENV.devices[number]


def device_add(number=0):
    """Returns the command that creates the RDMA device."""
    name = device(number)
    return ("rdma", "link", "add", name, "type", name.rstrip("0123456789"),
            "netdev", interface(number))


def silence(server):
    """Makes the server's RDMA port receive nothing, so that it acknowledges nothing."""
    server.run("nft", "-f", "-", stdin=SILENCE)


def speak(server):
    """Makes the server's RDMA port receive packets again, after `silence`."""
    server.call("run", ["nft", "delete", "table", "inet", TABLE])


def stop_nfsd(server):
    """Stops the server's threads: all connections and listeners end."""
    server.call("text", f"{NFSD}/threads", "0")


def start_nfsd(server):
    """Starts the threads again, with the RDMA listener. Grace ends when no client may reclaim."""
    server.run("rpc.nfsd", str(THREADS))
    listeners = server.call("text", PORTLIST).split()
    if str(PORT) not in listeners:
        server.call("text", PORTLIST, f"rdma {PORT}")


def restart_nfsd(server, setting=None, value=None):
    """Stops and starts the server, optionally with another value of a setting for later
    connections."""
    stop_nfsd(server)
    if setting is not None:
        server.call("text", setting, value)
    start_nfsd(server)


@contextlib.contextmanager
def serving_with(server, setting, value):
    """Sets a setting of the server while the block runs."""
    before = server.call("text", setting).split()[0]
    restart_nfsd(server, setting, str(value))
    try:
        yield
    finally:
        restart_nfsd(server, setting, before)


def granting(server, count):
    """Makes the server grant this number of credits to a connection while the block runs."""
    return serving_with(server, MAX_REQUESTS, count)


def grant(t, count):
    """Makes the server grant this number of credits until the end of the case. The case must have
    no mount yet."""
    # A client of the last case that has not said goodbye would wait for the server's grace.
    xprt.wait_gone()
    t.stack.enter_context(granting(t.server, count))
    end_grace(t.server)


def take_messages_of(t, octets):
    """Makes the server receive and send messages of `octets` bytes inline until the case ends."""
    t.stack.enter_context(serving_with(t.server, MESSAGE_SIZE, octets))
    end_grace(t.server)


@contextlib.contextmanager
def frozen(server):
    """Makes everything that changes the server's disk wait while the block runs."""
    server.run("fsfreeze", "--freeze", DISK)
    try:
        yield
    finally:
        server.run("fsfreeze", "--unfreeze", DISK)


@contextlib.contextmanager
def stopped(pid):
    """Stops a process of this machine while the block runs, even if it waits in a system call. It
    keeps its locks and slots. (A signal would stop it only after the call.)
    """
    with tempfile.TemporaryDirectory() as top:
        subprocess.run(["mount", "-t", "cgroup", "-o", "freezer", "freezer", top], check=True)
        root, group = pathlib.Path(top), pathlib.Path(top, "stopped")
        group.mkdir()
        state = group / "freezer.state"
        try:
            (group / "cgroup.procs").write_text(str(pid))
            state.write_text("FROZEN")
            wait.until(lambda: state.read_text() == "FROZEN\n", ENV.patience(5), f"{pid} stopped")
            yield
        finally:
            state.write_text("THAWED")
            with contextlib.suppress(ProcessLookupError):
                (root / "cgroup.procs").write_text(str(pid))
            group.rmdir()
            subprocess.run(["umount", top], check=True)


def end_grace(server):
    """Waits until the server's grace periods are over."""
    def over():
        for name in (f"{NFSD}/v4_end_grace", "/proc/fs/lockd/nlm_end_grace"):
            server.call("run", ["sh", "-c", f"echo Y > {name}"])
        return server.call("text", f"{NFSD}/v4_end_grace").strip() == "Y"

    wait.until(over, 60, "end of the server's grace period")


def delay(server, milliseconds):
    """Delays everything that the server sends."""
    server.run("tc", "qdisc", "replace", "dev", interface(), "root", "netem",
               "delay", f"{milliseconds}ms", "limit", "100000")


def no_delay(server):
    server.call("run", ["tc", "qdisc", "del", "dev", interface(), "root"])


def held_back(t, enough):
    """Delays everything that the server sends, longer and longer until `enough()` is true after a
    turn; yields the delay of each turn. A slow client needs more time to fill a queue."""
    t.defer(no_delay, t.server)
    # The delay stays below rxe's wait for an acknowledgement, 540 ms: if a message is sent again
    # with its registrations, the connection ends (rxe's fault, Documentation/reliability.rst). A
    # busy machine adds to the delay.
    for milliseconds in (300, 400, 450, 450, 450, 450):
        delay(t.server, milliseconds)
        yield milliseconds
        no_delay(t.server)
        if enough():
            return


# Incoming packets pass a device that the lab made for this. Outgoing packets do not: rxe takes an
# error of the queueing discipline, or its absence during a change, for an error of the queue pair.
WORSEN = f'tc qdisc replace dev {DETOUR} root netem limit 100000 "$@"'
BETTER = f"tc qdisc del dev {DETOUR} root"


def worsen(server, *words):
    """Treats incoming packets as the `words` for tc-netem say, on the server and on this machine.
    """
    for run in machines(server):
        run("sh", "-ec", WORSEN, "sh", *words)


def better(server):
    """Treats incoming packets normally again, after `worsen`."""
    for run in machines(server):
        run("sh", "-c", BETTER)


def machines(server):
    """Returns the functions that run a command in each machine. A debug kernel has no tc-netem."""
    def here(*argv):
        subprocess.run(argv, timeout=ENV.patience(30), check=True)

    return (server.run,) if ENV.debug else (server.run, here)


def lab(*request):
    """Requests an action that only the lab can perform: server off, server on, client unplug,
    client plug."""
    status, text = Remote("lab").call(request)
    if status:
        raise AssertionError(f"{' '.join(request)}: {text.decode()}")


def remove_server_device(server, number=0):
    """Removes an RDMA device from the server."""
    server.run("rdma", "link", "delete", device(number))


def add_server_device(server, number=0):
    server.run(*device_add(number))


@contextlib.contextmanager
def server_device_gone(server, number=0):
    """Deletes an RDMA device of the server, and creates it again."""
    try:
        remove_server_device(server, number)
        yield
    finally:
        add_server_device(server, number)


def remove_client_device(number=0):
    """Removes an RDMA device from this machine."""
    subprocess.run(["rdma", "link", "delete", device(number)], timeout=ENV.patience(60),
                   check=True)


def add_client_device(number=0):
    subprocess.run(device_add(number), timeout=ENV.patience(60), check=True)


def repair(server):
    """Repairs what a failed case left broken on the server; returns the complaints."""
    if server is None:
        return []
    complaints = []
    # Check silently, because most cases do not change these settings.
    server.call("run", ["fsfreeze", "--unfreeze", DISK])
    no_delay(server)
    server.call("run", ["sh", "-c", BETTER])
    if server.call("run", ["nft", "list", "table", "inet", TABLE])[0] == 0:
        complaints.append("left the wire cut")
        speak(server)
    if server.call("text", f"{NFSD}/threads").strip() == "0":
        complaints.append("left the server stopped")
        start_nfsd(server)
    return complaints
