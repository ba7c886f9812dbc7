# SPDX-License-Identifier: GPL-2.0
"""Tests a client machine that restarts while it has NFS mounts. The machine must shut down within a
short time and without kernel reports. The server must have all data that it has acknowledged."""

import dataclasses
import datetime
import re
import time

from ..base.tally import Tally
from ..base.ui import LabError, say
from ..machine import judge
from ..machine.channel import MachineDied
from ..machine.session import Plan, Session
from . import reliability

GO_DOWN = "/repo/tools/lablib/guest/go-down"
# The ways to restart. "live" means a restart while files are written. "cut" means a restart after
# the network was cut, the processes were killed and the mounts were removed.
WAYS = ("live", "cut")
VERSIONS = ("3", "4.2")
# Time limit in seconds for the mounts, the writes and the shutdown. It is long enough for the debug
# kernel on a busy machine, where a mount alone took a minute.
SECONDS = 900
# Maximum number of seconds between the system call for the restart and the shutdown of the machine.
DOWN_SECONDS = 20
RESTART = "reboot: Restarting system"
ACKNOWLEDGED = re.compile(rb"^acknowledged (\S+) (\d+)$", re.MULTILINE)
FAULTS = {f"restart-{way}": what for way, what in zip(WAYS, (
    "client machine: restart in the midst of writing (seconds until it is down)",
    "client machine: restart after its network went and all was killed (likewise)"), strict=True)}


def run(spec, client="ours", debug=False, rounds=1, write=False, upstream=False):
    """Restarts a client in each of the WAYS, `rounds` times. Returns the tally of the results."""
    tally, start, restarts = Tally(), time.monotonic(), {way: [] for way in WAYS}
    for way in WAYS * rounds:
        session = Session(Plan(client=client, spec=spec, debug=debug, upstream=upstream))
        one = restart(session, way)
        restarts[way].append(one)
        say(f"restart {len(restarts[way])}, {way}: "
            + (one.problem or f"down after {one.seconds:.1f} s, "
                              f"{sum(one.octets.values()) >> 10} KiB compared"))
        tally.judge(f"a client restarts under live mounts, {way}: {one.problem}", not one.problem)
    if write:
        reliability.keep({
            "client": client, "debug": debug, "kernel": session.kernel.release, "seed": 0,
            "minutes": round((time.monotonic() - start) / 60),
            "date": datetime.date.today().isoformat(), "complaints": [], "ended": True,
            "faults": FAULTS,
            "rows": {f"restart-{way}": {version: row(some, version) for version in VERSIONS}
                     for way, some in restarts.items()},
            "failures": [{"fault": f"restart-{way}", "text": one.problem}
                         for way, some in restarts.items() for one in some if one.problem]})
    return tally


def row(restarts, version):
    """Returns the results of the restarts with one NFS version, in the format of a result row of
    selftests/torture."""
    good = [one for one in restarts if not one.problem]
    bad = [one.problem for one in restarts if one.problem]
    return {"recovery": [round(one.seconds, 2) for one in good],
            "bytes": sum(one.octets[version] for one in good), "failed": len(bad), "errors": 0,
            "splats": sum("kernel report" in problem for problem in bad)}


@dataclasses.dataclass
class Restart:
    """The result of one restart."""

    problem: str | None = None
    seconds: float = 0      # seconds until the machine was down
    # number of compared bytes for each version
    octets: dict = dataclasses.field(default_factory=dict)


def restart(session, way):
    """Boots both machines, restarts the client, and checks the files on the server."""
    machines, said, began, commands = session.pair, bytearray(), [], []

    def sink(_kind, data):
        said.extend(data)
        if b"going down" in said and not began:
            # The last output of a machine may be lost. So the machine prints "going down", and
            # restarts only after it has read the newline that is sent here.
            began.append(time.monotonic())
            commands[0].write(b"\n")

    found = Restart()
    try:
        with machines:
            session.load()
            try:
                commands.append(session.channel.start([GO_DOWN, way], sink, stdin=None,
                                                      env=session.environment))
                status = commands[0].wait(SECONDS)
                return Restart(f"still up (status {status}): {said.decode(errors='replace')}")
            except TimeoutError:
                machines.blocked_tasks()
                return Restart(f"not down after {SECONDS} s")
            except MachineDied:
                found.seconds = time.monotonic() - (began or [0])[0]
            found.octets = compared(session, bytes(said))
    except LabError as error:
        return Restart(str(error))
    reports = [report for machine in machines.machines for report in judge.verdict(machine)]
    console = machines.client.console.read_text(errors="replace")
    if reports:
        found.problem = "\n".join(reports)
    elif not began or RESTART not in console:
        found.problem = f"the machine ended in another way: {said.decode(errors='replace')}"
    elif found.seconds > DOWN_SECONDS * (2 if session.plan.debug else 1):
        found.problem = f"down after {found.seconds:.0f} s only"
    return found


def compared(session, said):
    """Returns a dictionary from each NFS version to the number of bytes that the server compared in
    the file of that version."""
    last = {version.decode(): generation.decode()
            for version, generation in ACKNOWLEDGED.findall(said)}
    if set(last) != set(VERSIONS):
        raise LabError(f"writes were acknowledged with {sorted(last)} only")
    return {version: int(session.pair.server.channel.check_call(
        [GO_DOWN, "check", f"{session.environment['NFS_EXPORT_MEM']}/{version}/checked", version,
         last[version]])) for version in VERSIONS}
