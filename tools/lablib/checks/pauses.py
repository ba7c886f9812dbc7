# SPDX-License-Identifier: GPL-2.0
"""Measures how long calls on a mount over two cables wait when one of the cables fails. Both
clients are measured.

The program in the client machine is selftests/pauses. Each client runs in newly booted machines.
The module `paused` stores the record.
"""

import datetime
import json

from ..base.tally import Tally
from ..base.ui import say
from ..machine.session import NAMES, Plan, Session
from . import paused, reliability

CLIENTS = ("ours", "intree")
# Time limits in seconds for one round, and for the steps before the first round.
ROUND_SECONDS, BEGIN_SECONDS = 240, 600
# If a client does not survive a fault, the fault is tried again on another pair of machines. This
# is the maximum number of pairs.
MACHINES = 4


def check(spec, rounds, faults, clients, write):
    """Runs one client after the other. Returns the exit status."""
    tally, rows = Tally(), []
    for client in clients:
        say(NAMES[client])
        for fault in faults:
            row, problem = survive(spec, client, rounds, fault)
            rows += [row]
            # The result of the in-tree client is reported but does not fail the run.
            if client == "ours":
                tally.judge(f"{fault}: {problem}", not problem)
                bound = paused.BOUNDS[fault]
                tally.judge(f"{fault}: {row['worst']} s, at most {bound} s wanted",
                            bool(row["worst"]) and float(row["worst"]) <= bound)
            elif problem:
                say(problem)
    print(paused.text(rows), flush=True)
    if write:
        paused.keep(rows)
    for note in tally.notes:
        say(note)
    print(tally.line(), flush=True)
    return 0 if tally.good() else 1


def survive(spec, client, rounds, fault):
    """Repeats one fault. Returns the row of the record, and a description of the problems."""
    found, problems = [], []
    for _ in range(MACHINES):
        more, problem, release = run(spec, client, rounds - len(found), fault)
        found += more
        if problem:
            problems.append(problem)
        # Our client must survive each round, so only the in-tree client is tried again on another
        # pair of machines. If a pair of machines completes no round, the problem is not caused by
        # the fault, and another pair would not help.
        if len(found) >= rounds or client == "ours" or not more:
            break
    return paused.row(found, datetime.date.today().isoformat(), release, client,
                      fault), "; ".join(problems)


def run(spec, client, rounds, fault):
    """Runs up to `rounds` rounds, and stops if the client does not survive a round. Returns the
    pauses, a description of the problem, and the release of the kernel."""
    seconds = BEGIN_SECONDS + rounds * ROUND_SECONDS
    plan = Plan(client=client, spec=spec, rails=2, load=client == "intree", timeout=seconds)
    session = Session(plan)
    # If the machine crashes, the file contains the results so far.
    report = session.pair.results / "pauses.json"
    with session:
        status = session.run(["./selftests/pauses", str(rounds), fault])
    found = json.loads(report.read_text()) if report.exists() else []
    problem = "; ".join(reliability.reason(text) for text in session.complaints)
    if status and not problem:
        problem = f"exit status {status}"
    return found, problem, session.kernel.release
