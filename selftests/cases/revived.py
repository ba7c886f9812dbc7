# SPDX-License-Identifier: GPL-2.0
"""If a device repeats the registration of memory, a revoked key must not become valid again."""

import os
import pathlib
import subprocess
import time

from lib import faults, module, pattern, wait, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal
from lib.responder import BLOCK, Stage
from lib.workers import Crew

# The opcode of RoCE's acknowledgements. The packet filter's rules drop only acknowledgements from
# the server.
ACKNOWLEDGE = "0x11"
RULES = f"""
table inet revived {{
    set hold {{ type ipv4_addr; flags timeout; }}
    chain in {{
        type filter hook input priority 0
        ip saddr @hold udp dport {faults.ROCE_PORT} @th,64,8 {ACKNOWLEDGE} drop
    }}
}}
"""
# Time in seconds for which acknowledgements are dropped. It is longer than the 0.54 s after which
# rxe retransmits unacknowledged packets.
HOLD = 0.9
PATIENCE = 3
ROUNDS = 2


def retries():
    path = pathlib.Path(f"/sys/class/infiniband/{faults.device()}/ports/1/hw_counters")
    return int((path / "completer_retry_err").read_text())


def nft(*words, text=None):
    subprocess.run(["nft", *words], input=text, text=True, check=True, timeout=30)


def filter_acknowledgements(t):
    nft("-f", "-", text=RULES)
    t.defer(nft, "delete", "table", "inet", "revived")


def hold_acknowledgements():
    nft("add", "element", "inet", "revived", "hold",
        f"{{ {ENV.server} timeout {int(HOLD * 1000)}ms }}")


# covers: V1-103, V1-105: A device may make a key valid again after the key's call has ended. An
# access with this key then fails and does not reach the memory. The case needs a packet filter, so
# it does not run with the debug kernel.
@case(versions=(), clients=("ours",), stock_only=True, loaded=False, provider="rxe", seconds=40)
def a_key_that_lives_again_reaches_nothing(t):
    module.insmod()
    an_ended_call_is_out_of_reach(t)


# covers: V1-103, V1-105: With registration_fence=1 the server cannot access the memory of a call
# that has ended.
@case(versions=(), clients=("ours",), stock_only=True, loaded=False, provider="rxe", seconds=40)
def behind_a_fence_no_key_lives_again(t):
    module.insmod("registration_fence=1")
    an_ended_call_is_out_of_reach(t)


def an_ended_call_is_out_of_reach(t):
    """Checks that the server cannot write to the memory of a completed call after the device has
    retransmitted packets.
    """
    t.defer(module.unload)
    stage = Stage(t)
    filter_acknowledgements(t)
    stage.read()
    stage.small()
    for _ in range(ROUNDS):
        before, epoch = retries(), stage.numbers("epoch")[0]
        buffer = Buffer(BLOCK)
        stage.responder.call("arm", "own region invalidated, not announced")
        hold_acknowledgements()
        start = time.monotonic()
        # The Send of this call is not acknowledged, so rxe retransmits the Send and all later work
        # requests.
        stage.small()
        # The reply invalidates the region, and the call completes.
        stage.read(buffer)
        while retries() == before and time.monotonic() - start < PATIENCE:
            time.sleep(0.005)
        check(retries() > before, "the client's device has sent nothing again")
        time.sleep(max(0, start + HOLD - time.monotonic()))
        # The acknowledgement of this call also acknowledges all earlier packets.
        stage.small()
        status = stage.responder.call("probe")
        check(status != "success", "the server has written to memory of a call that was over")
        now = stage.numbers("epoch")[0]
        t.note(f"a write behind the end of the call: {status}; connection {epoch} -> {now}")
        # The device denied the write and ended the connection. So this call needs a new connection.
        stage.read()


# The number of calls that wait for an answer at a time. Memory was registered for each of these
# calls.
WRITERS = 3


def write_one(_, fd, number):
    Buffer(BLOCK).write(fd, pattern.data(number, 0, BLOCK, 1), 0, 0)


def sent_again_at_depth(t, files, count):
    """Makes the device retransmit its send queue while several calls wait for their answers. Checks
    that `count` connections have ended so far because the device repeated a registration."""
    before, clock = retries(), wait.Clock()
    with Crew(ENV.patience(30)) as crew, faults.frozen(t.server):
        hold_acknowledgements()
        for number in range(WRITERS):
            crew.start(write_one, files[number], number)
        wait.until(lambda: retries() > before, ENV.patience(PATIENCE), "sent again")
        time.sleep(max(0, HOLD - clock.seconds()))
    lost = xprt.numbers_of("counters", "repeated_registration")
    equal(lost, [count], "connections lost because a registration was executed again")


# If the device repeats the registration for a call that still waits, the device fails the
# connection. One connection ends, and no call fails.
@case(versions=("3",), clients=("ours",), stock_only=True, loaded=False, provider="rxe", seconds=60)
def one_lost_connection_brings_the_fence(t):
    module.insmod()
    t.defer(module.unload)
    filter_acknowledgements(t)
    mount = t.mount(export=ENV.disk)
    top = t.directory(mount)
    t.server.call("create", top.there, WRITERS, "f")
    files = []
    for number in range(WRITERS):
        files.append(os.open(f"{top.here}/f{number}", os.O_WRONLY | os.O_DIRECT))
        t.defer(os.close, files[-1])
    # An rxe with our patch does not repeat registrations.
    lost = 0 if ENV.upstream else 1
    for _ in range(ROUNDS):
        sent_again_at_depth(t, files, lost)
    # `connects` does not count the connections that a repeated registration made necessary. So the
    # count is one unless another event has ended a connection.
    equal(mount.connects(), 1, "connections")
    text = next(xprt.DEBUGFS.glob("*/state")).read_text()
    equal(text.count(xprt.REPEATED), lost, "ends that say so")
    for number in range(WRITERS):
        t.server.expect(f"{top.there}/f{number}", pattern.data(number, 0, BLOCK, 1))
