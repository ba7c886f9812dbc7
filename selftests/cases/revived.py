# SPDX-License-Identifier: GPL-2.0
"""A provider that executes a registration again must not bring an ended key back to life."""

import pathlib
import subprocess
import time

from lib import faults
from lib.buffers import Buffer
from lib.case import ENV, case, check
from lib.responder import BLOCK, Stage

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


# covers: V1-103, V1-105
# The debug kernel filters no packets.
@case(versions=(), clients=("ours",), stock_only=True, seconds=40)
def a_key_stays_invalid_when_the_send_queue_is_sent_again(t):
    stage = Stage(t)
    nft("-f", "-", text=RULES)
    t.defer(nft, "delete", "table", "inet", "revived")
    stage.read()
    stage.small()
    for _ in range(ROUNDS):
        before, epoch = retries(), stage.numbers("epoch")[0]
        buffer = Buffer(BLOCK)
        stage.responder.call("arm", "own region invalidated, not announced")
        nft("add", "element", "inet", "revived", "hold",
            f"{{ {ENV.server} timeout {int(HOLD * 1000)}ms }}")
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
