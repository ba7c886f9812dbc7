# SPDX-License-Identifier: GPL-2.0
"""Implements `make demo-server`: a server with our module serves both clients, and then both
machines use both of our modules.

The program in the client machine is selftests/demo_server.
"""

from ..machine.session import Plan
from . import demo

SECONDS = 1200


def run(spec):
    """Runs the whole demonstration. Returns the exit status."""
    plan = Plan(spec=spec, serving="ours", load=False, timeout=SECONDS)
    return demo.judge(demo.show(plan, "demo_server"))
