# SPDX-License-Identifier: GPL-2.0
"""`make demo-server`: a server with our module, both clients, then both modules in both machines.

The program in the client machine is selftests/demo_server.
"""

from ..base.ui import say
from ..machine.session import Plan, Session

SECONDS = 1200


def run(spec):
    """The whole demonstration; the exit status."""
    session = Session(Plan(spec=spec, serving="ours", load=False, timeout=SECONDS))
    status = None
    with session:
        status = session.run(["./selftests/demo_server"])
    problems = list(session.complaints)
    if status != 0:
        problems.append(f"selftests/demo_server: exit status {status}")
    for problem in problems:
        say(f"FAILED: {problem}")
    print(f"\n{'Everything as it should be.' if not problems else 'FAILED, see above.'}",
          flush=True)
    return 1 if problems else 0
