# SPDX-License-Identifier: GPL-2.0
"""How long a mount over two cables stands still when one of them fails, with either client.

The program in the client machine is selftests/pauses; each client has fresh machines.  `paused`
has the table, on the page of `reliability`.
"""

import datetime
import json

from ..base.tally import Tally
from ..base.ui import say
from ..machine.session import NAMES, Plan, Session
from . import paused, reliability

CLIENTS = ("ours", "intree")
# Of one round at most, and of the beginning.
ROUND_SECONDS, BEGIN_SECONDS = 240, 600


def check(spec, rounds, faults, clients, write):
    """One client after the other; the exit status."""
    tally, rows = Tally(), []
    for client in clients:
        say(NAMES[client])
        found, problem = run(spec, client, rounds, faults)
        rows += found
        # What the in-tree client does beside ours is told, not judged.
        if client == "ours":
            tally.judge(f"{NAMES[client]}: {problem}", not problem)
            for row in found:
                bound = paused.BOUNDS[row["fault"]]
                tally.judge(f"{row['fault']}: {row['worst']} s, at most {bound} s wanted",
                            float(row["worst"]) <= bound)
        elif problem:
            say(problem)
    print(paused.text(rows), flush=True)
    if write:
        paused.keep(rows)
        reliability.write()
    for note in tally.notes:
        say(note)
    print(tally.line(), flush=True)
    return 0 if tally.good() else 1


def run(spec, client, rounds, faults):
    """One client; the rows of the record and what went wrong."""
    seconds = BEGIN_SECONDS + rounds * len(faults) * ROUND_SECONDS
    plan = Plan(client=client, spec=spec, rails=2, load=client == "intree", timeout=seconds)
    session = Session(plan)
    # As far as it came, if the machine dies.
    report = session.pair.results / "pauses.json"
    with session:
        status = session.run(["./selftests/pauses", str(rounds), *faults])
    found = json.loads(report.read_text()) if report.exists() else []
    problem = "; ".join(reliability.reason(text) for text in session.complaints)
    if status and not problem:
        problem = f"exit status {status}"
    return paused.rows(found, datetime.date.today().isoformat(), session.kernel.release,
                       client), problem
