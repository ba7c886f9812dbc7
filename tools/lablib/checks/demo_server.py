# SPDX-License-Identifier: GPL-2.0
"""Implements `make demo-server`. First, a server with our module serves the in-tree client and our
client. Then each of the two machines uses both of our modules.

The program in the client machine is selftests/demo_server.
"""

from ..machine.session import Plan
from . import demo

SECONDS = 1200


def run(spec):
    """Runs the whole demonstration. Returns the exit status."""
    plan = Plan(spec=spec, serving="ours", load=False, timeout=SECONDS)
    return demo.judge(demo.show(plan, "demo_server"))
