# SPDX-License-Identifier: GPL-2.0
"""Implements `make torture`: injects faults at random times. The in-tree client and our client are
tested, each on machines of its own.

The program in the client machine is selftests/torture. The module `reliability` stores the results.
"""

import datetime
import json
import random
import sys

from ..base.tally import Tally, of_closing_line
from ..base.ui import say
from ..machine import wire
from ..machine.session import Plan, Session
from . import reliability

CLIENTS = ("intree", "ours")
# Additional time in seconds for the end of the last round and for the clean-up.
MORE_SECONDS = 900
# The client machine has little memory, so that memory soon becomes scarce. A debug kernel itself
# needs much memory, so its machine has more.
MEMORY = {False: (2048, 1024), True: (2048, 2048)}


def check(spec, clients, debug, processors, minutes, seed, names, write, version, rails, serving):
    """Runs the fault test with each client, over the version `version` of RPC-over-RDMA. Returns
    the exit status."""
    seed = random.randrange(1 << 32) if seed is None else seed
    total = Tally()
    for client in clients:
        tally, found = run(spec, client, debug, processors, minutes, seed, names, version, rails,
                           serving)
        if found:
            print(reliability.text(found), flush=True)
            if write:
                reliability.keep(found)
        if len(clients) > 1:
            say(f"{client}: {tally.line()}")
        # If both clients are run, the result of the in-tree client is reported but does not fail
        # the run.
        if client == "ours" or len(clients) == 1:
            total.add(tally)
    for note in total.notes:
        say(note)
    print(total.line(), flush=True)
    return 0 if total.good() else 1


def run(spec, client, debug, processors, minutes, seed, names, version, rails, serving="intree"):
    """Makes one run. Returns a pair: the tally, and the results that the program wrote. The results
    are None if the program wrote none."""
    plan = Plan(client=client, serving=serving, spec=spec, debug=debug, load=False,
                serving_words=f"rdma_version={version}" if serving == "ours" else "",
                memory=MEMORY[debug],
                timeout=minutes * 60 + MORE_SECONDS, detour=True, processors=processors,
                rails=2 if rails else 1)
    session, output, status = Session(plan), bytearray(), None
    argv = ["./selftests/torture", "--minutes", str(minutes), "--seed", str(seed),
            "--rdma-version", str(version)]
    if rails:
        argv.append("--rails")
    for name in names:
        argv += ["--fault", name]

    def sink(kind, data):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        if kind == wire.OUT:
            output.extend(data)

    with session:
        status = session.run(argv, sink)
    tally = of_closing_line(output.decode(errors="replace"))
    if tally is None:
        tally = Tally()
        tally.fail("the program did not end" if status is None else f"exit status {status}")
    elif status and not tally.failed:
        tally.fail(f"exit status {status}")
    tally.judge("; ".join(c.splitlines()[0] for c in session.complaints), not session.complaints)
    report = session.pair.results / "torture.json"
    if not report.exists():
        return tally, None
    found = json.loads(report.read_text())
    found["processors"] = processors
    found["date"] = datetime.date.today().isoformat()
    found["complaints"] = [c.splitlines()[0] for c in session.complaints]
    report.write_text(json.dumps(found) + "\n")
    return tally, found
