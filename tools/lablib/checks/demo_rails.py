# SPDX-License-Identifier: GPL-2.0
"""Implements `make demo-rails`: a mount over two cables, one of which is cut during a copy.

The program in the client machine is selftests/demo_rails.
"""

from ..machine.session import Plan
from . import demo

SECONDS = 900


def run(spec):
    """Runs the whole demonstration. Returns the exit status."""
    plan = Plan(spec=spec, load=False, rails=2, timeout=SECONDS)
    return demo.judge(demo.show(plan, "demo_rails"))
