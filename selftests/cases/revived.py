# SPDX-License-Identifier: GPL-2.0
"""A provider that executes a registration again must not bring an ended key back to life."""

import os
import pathlib
import subprocess
import time

from lib import faults, module, pattern, wait, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal
from lib.responder import BLOCK, Stage
from lib.workers import Crew

# Acknowledgements of the server do not arrive, as if it sent none. Everything else does.
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
# rxe sends again what was not acknowledged within 0.54 s.
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


# covers: V1-103, V1-105
# The debug kernel filters no packets.
@case(versions=(), clients=("ours",), stock_only=True, loaded=False, provider="rxe", seconds=40)
def a_key_that_lives_again_reaches_nothing(t):
    module.insmod()
    an_ended_call_is_out_of_reach(t)


# covers: V1-103, V1-105
@case(versions=(), clients=("ours",), stock_only=True, loaded=False, provider="rxe", seconds=40)
def behind_a_fence_no_key_lives_again(t):
    module.insmod("registration_fence=1")
    an_ended_call_is_out_of_reach(t)


def an_ended_call_is_out_of_reach(t):
    """The server writes to memory of a call that is over, when the client has sent again."""
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
        # Its Send is not acknowledged, so rxe sends it and all behind it again.
        stage.small()
        # The reply invalidates the region, and the call ends.
        stage.read(buffer)
        while retries() == before and time.monotonic() - start < PATIENCE:
            time.sleep(0.005)
        check(retries() > before, "the client's device has sent nothing again")
        time.sleep(max(0, start + HOLD - time.monotonic()))
        # Acknowledged, and everything before it.
        stage.small()
        status = stage.responder.call("probe")
        check(status != "success", "the server has written to memory of a call that was over")
        now = stage.numbers("epoch")[0]
        t.note(f"a write behind the end of the call: {status}; connection {epoch} -> {now}")
        # A denied write has cost the connection.
        stage.read()


# Calls that wait at a time, each behind a registration.
WRITERS = 3


def write_one(_, fd, number):
    Buffer(BLOCK).write(fd, pattern.data(number, 0, BLOCK, 1), 0, 0)


def sent_again_at_depth(t, files, count):
    """Several calls are under way when the device sends its queue again, while none of them has its
    answer."""
    before, clock = retries(), wait.Clock()
    with Crew(ENV.patience(30)) as crew, faults.frozen(t.server):
        hold_acknowledgements()
        for number in range(WRITERS):
            crew.start(write_one, files[number], number)
        wait.until(lambda: retries() > before, ENV.patience(PATIENCE), "sent again")
        time.sleep(max(0, HOLD - clock.seconds()))
    lost = xprt.numbers_of("counters", "repeated_registration")
    equal(lost, [count], "connections lost because a registration was executed again")


# The device lets a connection fail when it executes the registration of a call that waits again.
# That costs one connection, and no call.
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
    # A patched rxe executes none again.
    lost = 0 if ENV.upstream else 1
    for _ in range(ROUNDS):
        sent_again_at_depth(t, files, lost)
    # Nothing else has cost one.
    equal(mount.connects(), 1, "connections")
    text = next(xprt.DEBUGFS.glob("*/state")).read_text()
    equal(text.count(xprt.REPEATED), lost, "ends that say so")
    for number in range(WRITERS):
        t.server.expect(f"{top.there}/f{number}", pattern.data(number, 0, BLOCK, 1))
