# SPDX-License-Identifier: GPL-2.0
"""`make demo-rds`: what rds-rdma(7) promises, between two machines.

The program in the client machine is selftests/rds/demo.
"""

from ..artefacts import kernel, module, root
from ..machine.session import Plan
from . import demo

SECONDS = 900
LEFT = "client: rdma resources:"


def run(spec):
    """The whole demonstration; the exit status."""
    base = root.path()
    module.build(base, kernel.get(base, spec), variant="rds")
    plan = Plan(client="none", spec=spec, load=False, timeout=SECONDS)
    problems = demo.show(plan, "rds/demo")
    # The in-tree module stays loaded with its connections, for it cannot be removed with them.
    return demo.judge([text for text in problems if not text.startswith(LEFT)])
