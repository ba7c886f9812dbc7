# SPDX-License-Identifier: GPL-2.0
"""Kills processes while the server answers their calls, and measures how other processes are
affected. Both clients are measured.

The kills are a case of selftests/cases/signals.py. Each client is run with each NFS version in
newly booted machines. killed.py stores the results.
"""

import datetime
import json
import sys

from ..base.tally import Tally
from ..base.ui import say
from ..machine.session import NAMES, Plan, Session
from . import killed, reliability

CASES = {"intree": "killed_listings_of_the_other_client",
         "ours": "killed_listings_cost_the_others_nothing"}
VERSIONS = ("3", "4.2")
# Time limit in seconds for one client and one NFS version. The time limit of the case itself is
# shorter.
SECONDS = 1500


def check(spec, write):
    """Runs both clients with each NFS version, one after the other. Returns the exit status."""
    tally, rows = Tally(), []
    for client in CASES:
        for version in VERSIONS:
            say(f"{NAMES[client]}, NFSv{version}")
            row = run(spec, client, version)
            rows.append(row)
            # The result of the in-tree client is reported but does not fail the run.
            if client == "ours":
                tally.judge(f"NFSv{version}: {row['problem']}", not row["problem"])
    print(killed.text(rows), flush=True)
    if write:
        killed.keep(rows)
    for note in tally.notes:
        say(note)
    print(tally.line(), flush=True)
    return 0 if tally.good() else 1


def run(spec, client, version):
    """Runs one client with one NFS version. Returns the results as a dictionary."""
    session = Session(Plan(client=client, spec=spec, timeout=SECONDS))
    # The selftests write their results to this file. It is readable even after a crash of the
    # machine.
    report = session.pair.results / "kills.json"
    status = None

    def sink(_kind, data):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    with session:
        status = session.run(["./selftests/run", "--client", client, "--size", "full", "--vers",
                              version, "--filter", f"^signals.{CASES[client]}"], sink)
    found = json.loads(report.read_text()) if report.exists() else {}
    problem = "; ".join(reliability.reason(text) for text in session.complaints)
    if status and not problem:
        problem = f"exit status {status}"
    return {"date": datetime.date.today().isoformat(), "kernel": session.kernel.release,
            "client": client, "vers": version, "problem": problem, **found}
