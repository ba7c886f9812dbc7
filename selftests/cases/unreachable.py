# SPDX-License-Identifier: GPL-2.0
"""Mounts of servers that do not answer: mount(8) fails soon, and the log says why."""

import contextlib
import ipaddress

from lib import faults, module, wait, xprt
from lib.case import ENV, case, check
from lib.env import PORT
from lib.mounts import Refused

# The server's address plus this number is an address that no machine has.
NOBODY = 75
UNUSED_PORT = 20050
# Seconds until a mount fails. `ADDRESS_SECONDS` is for an address that cannot be resolved.
# `REQUEST_SECONDS` is for a connection request that is not answered. The administrator's guide
# lists these values in its table of times.
ADDRESS_SECONDS = 5
REQUEST_SECONDS = 15
# Seconds added for the processes of mount(8). These processes are slow in an emulated machine.
SLACK_SECONDS = 5
RETRY_SECONDS = 120  # time in seconds for which mount(8) retries by default
# Rules that drop all packets that arrive at the server's TCP port.
TCP_SILENCE = """
table inet selftests-tcp {
    chain in {
        type filter hook input priority 0
        tcp dport 2049 drop
    }
}
"""


def fails(t, options, most, *words, host=None, seconds=None):
    """Expects a mount to fail, and notes how long the attempt took.

    For our client, checks that the attempt took at most `most` seconds and that the message
    contains `words`.
    """
    clock = wait.Clock()
    try:
        mount = t.mount(f"vers=4.2,{options}", raw=True, host=host, seconds=seconds or 200)
    except Refused as refused:
        taken, text = clock.seconds(), str(refused)
    else:
        mount.remove()
        raise AssertionError(f"mount -o {options} succeeds")
    t.note(f"{taken:.1f} s: {text}")
    if ENV.ours and most:
        check(taken < ENV.patience(most + SLACK_SECONDS), f"{options}: {taken:.1f} s")
        for word in words:
            check(word in text, f"no {word!r} in: {text}")


@contextlib.contextmanager
def leaving_nothing():
    """Checks that the body of the `with` statement leaves no transport and no objects of the device
    behind."""
    # The previous test may have left a connection that is still being closed.
    wait.until(lambda: all("cm_id 0" in line for line in module.resources() if line),
               ENV.patience(20), "no connection left")
    before = module.resources()
    yield
    xprt.wait_gone()
    module.wait_resources(before)


# covers: No machine has the server's address. mount fails after a few seconds, as it does over TCP.
@case(versions=None, seconds=120)
def an_absent_host_is_noticed_soon(t):
    with leaving_nothing():
        for netid, server in (("rdma", ENV.server), ("rdma6", ENV.server6)):
            absent = str(ipaddress.ip_address(server) + NOBODY)
            host = f"[{absent}]" if ":" in absent else absent
            fails(t, f"proto={netid.replace('rdma', 'tcp')},retry=0", None, host=host)
            fails(t, f"proto={netid},port={PORT},retry=0", ADDRESS_SECONDS, "No route to host",
                  host=host)
            if ENV.ours:
                t.log.expect(absent, "no answer to ARP or neighbour discovery")


# covers: By default mount(8) tries again for two minutes and then fails.
@case(versions=None, full_only=True, full_seconds=600)
def mount_ends_its_own_retries(t):
    absent = str(ipaddress.ip_address(ENV.server) + NOBODY)
    for proto in ("tcp", f"rdma,port={PORT}"):
        fails(t, f"proto={proto}", RETRY_SECONDS, "No route to host", host=absent, seconds=400)


# covers: A mount with a wrong port number fails within a limited time and does not hang.
@case(versions=None, seconds=150)
def a_port_without_listener_is_refused(t):
    with leaving_nothing():
        fails(t, f"proto=tcp,port={UNUSED_PORT},retry=0", None)
        for more in ("hard", "soft,timeo=20,retrans=1"):
            fails(t, f"proto=rdma,port={UNUSED_PORT},retry=0,{more}", 1, "Connection refused")
            if ENV.ours:
                t.log.expect(f"{ENV.server}:{UNUSED_PORT}", "cannot be connected: refused")


# covers: A firewall drops all packets, or the server is dead. The connection request gets no
# answer, and mount fails.
@case(versions=None, seconds=240)
def a_host_that_drops_everything_is_noticed_soon(t):
    with leaving_nothing():
        if ENV.full:
            t.defer(t.server.call, "run", ["nft", "delete", "table", "inet", "selftests-tcp"])
            t.server.run("nft", "-f", "-", stdin=TCP_SILENCE)
            fails(t, "proto=tcp,retry=0", None, seconds=400)
        t.defer(faults.speak, t.server)
        faults.silence(t.server)
        # On iWARP, TCP carries the connection request, and TCP's own timeouts apply.
        rules = (REQUEST_SECONDS, "No route to host") if ENV.provider == "rxe" else (None,)
        fails(t, f"proto=rdma,port={PORT},retry=0", *rules)
        if ENV.ours and ENV.provider == "rxe":
            t.log.expect(f"{ENV.server}:{PORT}", "no answer to the connection request")
        faults.speak(t.server)
