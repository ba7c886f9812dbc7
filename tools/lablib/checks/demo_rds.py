# SPDX-License-Identifier: GPL-2.0
"""`make demo-rds`: what rds-rdma(7) promises, between two machines.

The program in the client machine is selftests/rds/demo.
"""

from ..artefacts import kernel, module, root
from ..base.ui import say
from ..machine.session import Plan, Session

SECONDS = 900
LEFT = "client: rdma resources:"


def run(spec):
    """The whole demonstration; the exit status."""
    base = root.path()
    module.build(base, kernel.get(base, spec), variant="rds")
    session = Session(Plan(client="none", spec=spec, load=False, timeout=SECONDS))
    status = None
    with session:
        status = session.run(["./selftests/rds/demo"])
    # The in-tree module stays loaded with its connections, for it cannot be removed with them.
    problems = [text for text in session.complaints if not text.startswith(LEFT)]
    if status != 0:
        problems.append(f"selftests/rds/demo: exit status {status}")
    for problem in problems:
        say(f"FAILED: {problem}")
    print(f"\n{'Everything as it should be.' if not problems else 'FAILED, see above.'}",
          flush=True)
    return 1 if problems else 0
