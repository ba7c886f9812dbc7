# SPDX-License-Identifier: GPL-2.0
"""Implements `make demo-rds`, which demonstrates what rds-rdma(7) guarantees, between two machines.

The program in the client machine is selftests/rds/demo.
"""

from ..artefacts import kernel, module, root
from ..machine.session import Plan
from . import demo

SECONDS = 900


def run(spec):
    """Runs the whole demonstration. Returns the exit status."""
    base = root.path()
    module.build(base, kernel.get(base, spec), variant="rds")
    plan = Plan(client="none", spec=spec, load=False, timeout=SECONDS)
    return demo.judge(demo.show(plan, "rds/demo"))
