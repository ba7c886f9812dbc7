# SPDX-License-Identifier: GPL-2.0
"""`make demo-rails`: a mount over two cables, of which one is cut amid a copy.

The program in the client machine is selftests/demo_rails.
"""

from ..base.ui import say
from ..machine.session import Plan, Session

SECONDS = 900


def run(spec):
    """The whole demonstration; the exit status."""
    session = Session(Plan(spec=spec, load=False, rails=2, timeout=SECONDS))
    with session:
        status = session.run(["./selftests/demo_rails"])
    problems = list(session.complaints)
    if status:
        problems.append(f"selftests/demo_rails: exit status {status}")
    for problem in problems:
        say(f"FAILED: {problem}")
    print(f"\n{'Everything as it should be.' if not problems else 'FAILED, see above.'}",
          flush=True)
    return 1 if problems else 0
