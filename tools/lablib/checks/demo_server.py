# SPDX-License-Identifier: GPL-2.0
"""Implements `make demo-server`: a server with our module, both clients, then both modules in both
machines.

The program in the client machine is selftests/demo_server.
"""

from ..machine.session import Plan
from . import demo

SECONDS = 1200


def run(spec):
    """Runs the whole demonstration; returns the exit status."""
    plan = Plan(spec=spec, serving="ours", load=False, timeout=SECONDS)
    return demo.judge(demo.show(plan, "demo_server"))
