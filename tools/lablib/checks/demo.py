# SPDX-License-Identifier: GPL-2.0
"""Runs the demonstrations in virtual machines. The demonstration programs themselves are in
selftests."""

from ..base.ui import say
from ..machine.session import Session


def show(plan, program):
    """Runs a demonstration in separate machines. Returns a list of the problems."""
    session, status = Session(plan), None
    with session:
        status = session.run([f"./selftests/{program}"])
    problems = list(session.complaints)
    if status != 0:
        problems.append(f"selftests/{program}: exit status {status}")
    return problems


def judge(problems):
    """Prints the problems and the verdict. Returns the exit status."""
    for problem in problems:
        say(f"FAILED: {problem}")
    print(f"\n{'Everything as it should be.' if not problems else 'FAILED, see above.'}",
          flush=True)
    return 1 if problems else 0
