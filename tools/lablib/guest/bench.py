# SPDX-License-Identifier: GPL-2.0
"""Measures the time per operation with several clients or servers in turn, in many rounds.

    bench.py JSON

JSON: {"compare": "clients" or "servers", "rounds": N, "long_rounds": N, "scale": factor for the
operations of a load, "axes": {name: [loads]}}. An empty list of loads means all loads. Each round
consists of several measurements ("legs"). The order of the legs is reversed in every second round.
The in-tree module is measured before and after our module. So a slow change of the machine's speed
affects both modules equally. The difference between the two legs of the in-tree module shows how
much the results scatter. When servers are compared, the client is the in-tree client.

Prints {axis: {load: {leg: [nanoseconds per operation, one per round]}}}. If the measurement of an
axis fails, this axis is left out, the other axes are still measured, and the exit status is 1.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
import traceback

from . import axes, loads, transport
from .remote import Program

LEGS = (("in-tree", "intree"), ("ours", "ours"), ("in-tree again", "intree"), ("tcp", None))


@contextlib.contextmanager
def clients():
    """Compares clients. The server is the same in each leg. Yields a function that takes the module
    of a leg, and returns the module that the client loads. Both are the same module."""
    yield lambda module: module


@contextlib.contextmanager
def servers():
    """Compares servers. The client is the in-tree client in each leg. Yields a function that takes
    the module of a leg, makes the server use this module, and returns the name of the in-tree
    client."""
    far = Program("server", "servers",
                  env={"LAB_SERVER_MODULE": os.environ["LAB_SERVER_MODULE"]})

    def client_of(module):
        far.ask("use", module)
        return "intree"

    try:
        yield client_of
    finally:
        # The server must end with our module loaded, because the lab unloads this module at the
        # end.
        far.ask("use", "ours")


COMPARE = {"clients": clients, "servers": servers}


def leg(axis, client, scale, only):
    """Makes one measurement. Returns the nanoseconds per operation of each load. `client` is the
    client's module, or None for NFS over TCP. `only` contains the names of the loads."""
    with contextlib.ExitStack() as stack:
        if client:
            stack.enter_context(transport.loaded(client))
            stack.enter_context(axes.slots(axis))
        places = stack.enter_context(axes.mounts(axis, bool(client)))
        bed = stack.enter_context(loads.Bed(*places))
        return {load.name: time_of(load, scale)
                for load in axis.loads(bed)
                if not only or load.name in only}


def time_of(load, scale):
    """Runs a load twice. Returns the nanoseconds per operation of the second run."""
    count = max(int(load.count * scale), 1)
    for number in (max(count // 4, 1), count):
        load.before(number)
        took = load.run(number) / number
        load.after(number)
    return took


def rounds_of(client_of, name, plan, start):
    """Measures one axis (a group of loads) in several rounds. A leg is one of the measurements in a
    round. Returns, for each load and leg, a list of the nanoseconds per operation in each round."""
    axis, found, only = axes.AXES[name], {}, plan["axes"][name]
    rounds = plan["long_rounds" if axis.long else "rounds"]
    for number in range(rounds):
        # The measurement over TCP is only for reference. It comes last, so that it does not disturb
        # the other measurements.
        legs = LEGS[:3] if number % 2 == 0 else LEGS[2::-1]
        for title, module in (*legs, LEGS[3]):
            client = module and client_of(module)
            print(f"  {time.monotonic() - start:5.0f} s  {name}, round {number + 1} of "
                  f"{rounds}: {title}", file=sys.stderr, flush=True)
            for load, took in leg(axis, client, plan["scale"], only).items():
                found.setdefault(load, {}).setdefault(title, []).append(took)
    return found


def main(plan):
    loads.hold_still()
    axes.prepare()
    result, start = {}, time.monotonic()
    with COMPARE[plan["compare"]]() as client_of:
        for name in plan["axes"]:
            try:
                result[name] = rounds_of(client_of, name, plan, start)
            except (OSError, RuntimeError, subprocess.SubprocessError):
                traceback.print_exc()
    print(json.dumps(result))
    return 0 if set(result) == set(plan["axes"]) else 1


sys.exit(main(json.loads(sys.argv[1])))
