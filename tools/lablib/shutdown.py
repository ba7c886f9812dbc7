# SPDX-License-Identifier: GPL-2.0
"""A client machine that restarts under live mounts: it must come down at once, and quietly."""

import time

from . import judge
from .channel import MachineDied
from .session import Plan, Session
from .tally import Tally
from .ui import LabError, say

GO_DOWN = "/repo/tools/lablib/guest/go-down"
# live: in the middle of writing. cut: the network went first, then the processes, then the mounts.
WAYS = ("live", "cut")
SECONDS = 180
# From the system call to the end of the machine.
DOWN_SECONDS = 20
RESTART = "reboot: Restarting system"


def run(spec, debug=False):
    """Restart a client each way; returns the tally."""
    tally = Tally()
    for way in WAYS:
        problem, seconds = restart(Session(Plan(spec=spec, debug=debug)), way)
        say(f"restart, {way}: {problem or f'down after {seconds:.1f} s'}")
        tally.judge(f"a client restarts under live mounts, {way}: {problem}", not problem)
    return tally


def restart(session, way):
    """(what went wrong or None, seconds that it took)."""
    machines, said, began, commands = session.pair, bytearray(), [], []

    def sink(_kind, data):
        said.extend(data)
        if b"going down" in said and not began:
            # What the machine says in its last moment may be lost: so it waits for this.
            began.append(time.monotonic())
            commands[0].write(b"\n")

    try:
        with machines:
            session.load()
            try:
                commands.append(session.channel.start([GO_DOWN, way], sink, stdin=None,
                                                      env=session.environment))
                status = commands[0].wait(SECONDS)
                return f"still up (status {status}): {said.decode(errors='replace')}", 0
            except TimeoutError:
                machines.blocked_tasks()
                return f"not down after {SECONDS} s", 0
            except MachineDied:
                seconds = time.monotonic() - (began or [0])[0]
    except LabError as error:
        return str(error), 0
    reports = [report for machine in machines.machines for report in judge.verdict(machine)]
    console = machines.client.console.read_text(errors="replace")
    if reports:
        return "\n".join(reports), seconds
    if not began or RESTART not in console:
        return f"the machine ended in another way: {said.decode(errors='replace')}", seconds
    if seconds > DOWN_SECONDS * (2 if session.plan.debug else 1):
        return f"down after {seconds:.0f} s only", seconds
    return None, seconds
