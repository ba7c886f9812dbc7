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
# Rules of the packet filter for rxe and for siw. They drop only incoming packets. If the kernel
# refused the outgoing packets of a software device, the device's management queue pair would fail
# permanently.
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
    """Returns the network interface that the cable `number` connects. The interface has the same
    name on this machine and on the server."""
    return f"eth{number}"


def device(number=0):
    """Returns the RDMA device that the cable `number` connects. The device has the same name on
    this machine and on the server."""
    return ENV.devices[number]


def device_add(number=0):
    """Returns the command that creates the RDMA device."""
    name = device(number)
    return ("rdma", "link", "add", name, "type", name.rstrip("0123456789"),
            "netdev", interface(number))


def own_addresses(t, addresses):
    """Adds addresses to this machine until the end of the case."""
    for address in addresses:
        words = f"{address}/24", "dev", interface()
        t.defer(subprocess.run, ["ip", "addr", "del", *words], check=True)
        subprocess.run(["ip", "addr", "add", *words], check=True)


def silence(server):
    """Makes the server's RDMA port receive nothing, so that it acknowledges nothing."""
    server.run("nft", "-f", "-", stdin=SILENCE)


def speak(server):
    """Undoes `silence`: the server's RDMA port receives packets again."""
    server.call("run", ["nft", "delete", "table", "inet", TABLE])


def stop_nfsd(server):
    """Stops the server's threads: all connections and listeners end."""
    server.call("text", f"{NFSD}/threads", "0")


def start_nfsd(server):
    """Starts the server's threads again, with the RDMA listener. The server ends its grace period
    when no client can reclaim state."""
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
    """Changes a setting of the server during the `with` block."""
    before = server.call("text", setting).split()[0]
    restart_nfsd(server, setting, str(value))
    try:
        yield
    finally:
        restart_nfsd(server, setting, before)


def granting(server, count):
    """Makes the server grant this number of credits to a connection during the `with` block."""
    return serving_with(server, MAX_REQUESTS, count)


def grant(t, count):
    """Makes the server grant this number of credits until the end of the case. The case must have
    no mount yet."""
    # A client of the previous case may still have a lease. After a restart of the server, such a
    # client would have to wait until the grace period is over. So the server is restarted only when
    # no transport exists.
    xprt.wait_gone()
    t.stack.enter_context(granting(t.server, count))
    end_grace(t.server)


def take_messages_of(t, octets):
    """Makes the server receive and send messages of `octets` bytes inline until the case ends."""
    t.stack.enter_context(serving_with(t.server, MESSAGE_SIZE, octets))
    end_grace(t.server)


@contextlib.contextmanager
def frozen(server):
    """Freezes the server's file system during the `with` block. Operations that write to the file
    system wait until the block ends."""
    server.run("fsfreeze", "--freeze", DISK)
    try:
        yield
    finally:
        server.run("fsfreeze", "--unfreeze", DISK)


@contextlib.contextmanager
def stopped(pid):
    """Stops a process of this machine during the `with` block, even if the process waits in a
    system call. The process keeps its locks and slots. A signal would stop the process only after
    the system call."""
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
    """Delays all packets that the server sends, in up to six turns. Yields the delay of each turn.
    Stops after a turn if `enough()` is true. The delay grows during the first three turns, because
    a slow client fills a queue only during a long delay."""
    t.defer(no_delay, t.server)
    # If rxe gets no acknowledgement for 540 ms, it sends the message and its registrations again.
    # This would end the connection (an error of rxe, see Documentation/reliability.rst). So the
    # delays must be shorter than 540 ms. They are at most 450 ms, because on a busy machine the
    # real delay is longer than the delay that is set here.
    for milliseconds in (300, 400, 450, 450, 450, 450):
        delay(t.server, milliseconds)
        yield milliseconds
        no_delay(t.server)
        if enough():
            return


# Packets are delayed or dropped only when they arrive. Incoming packets pass through a network
# device that the lab has made for this purpose. Outgoing packets do not pass through it, because a
# queueing discipline can refuse a packet, or can be missing while it is being changed. The driver
# rxe would treat both events as errors of the queue pair.
WORSEN = f'tc qdisc replace dev {DETOUR} root netem limit 100000 "$@"'
BETTER = f"tc qdisc del dev {DETOUR} root"


def worsen(server, *words):
    """Applies tc-netem with the arguments `words` to incoming packets, on the server and on this
    machine.
    """
    for run in machines(server):
        run("sh", "-ec", WORSEN, "sh", *words)


def better(server):
    """Undoes `worsen`: incoming packets are treated normally again."""
    for run in machines(server):
        run("sh", "-c", BETTER)


def machines(server):
    """Returns functions that run a command, one for each machine on which tc-netem is used. A debug
    kernel has no tc-netem, so this machine is left out on a debug kernel."""
    def here(*argv):
        subprocess.run(argv, timeout=ENV.patience(30), check=True)

    return (server.run,) if ENV.debug else (server.run, here)


def lab(*request):
    """Requests an action that only the lab can perform. The actions are "server off", "server on",
    "client unplug" and "client plug"."""
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
    """Undoes the faults that a failed case has left on the server. Returns a list of these faults.
    """
    if server is None:
        return []
    complaints = []
    # Each of the next commands undoes a change, and fails if the case has not made the change. So
    # errors are ignored.
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
