# SPDX-License-Identifier: GPL-2.0
"""The checking targets: parts that each give a tally, summed."""

import shutil
import sys
import unittest

from . import cache, chroot, kernel, lint, module, proc, root, wire
from .ktap import Parser
from .session import Plan, Session
from .tally import Tally, of_closing_line
from .ui import LabError, say

PARTS = ("host", "lint", "vm", "debug", "endurance")
HOST_SECONDS = 20 * 60
# The tests' own limits; booting and judging come on top.
VM_SECONDS = {"vm": 25 * 60, "debug": 25 * 60, "endurance": 3 * 3600}
RUNNER = "selftests/run"
# Many times over on the debug kernel: lives of the module, connections broken from both sides.
ENDURANCE_CASES = (
    r"^load\.module_survives_many_lives",
    r"^disconnects\.forced_disconnects_under_inline_load",
    r"^disconnects\.server_ends_connections",
)


def run(parts, spec):
    """Run the parts and print the closing line; the exit status agrees."""
    total = Tally()
    for part in parts:
        say(f"checking: {part}")
        try:
            tally = {"host": host, "lint": lints}[part](spec) \
                if part in ("host", "lint") else machines(part, spec)
        except LabError as error:
            say(f"error: {error}")
            tally = Tally()
            tally.fail(str(error).splitlines()[0])
        say(f"{part}: {tally.line()}")
        total.add(tally, part)
    for note in total.notes:
        say(note)
    print(total.line(), flush=True)
    return 0 if total.good() else 1


def host(_spec):
    """Tests that need no kernel: tools/check-host has them."""
    program = module.REPO / "tools/check-host"
    if not program.exists():
        raise LabError("tools/check-host is missing")
    argv = [program]
    if not shutil.which("cargo"):
        argv = chroot.command(root.path(), argv, [cache.directory(), module.REPO],
                              module.REPO, env={"CARGO_HOME": f"{cache.directory()}/cargo"})
    log = module.REPO / "build/check-host.log"
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    try:
        proc.run_shown("host tests", argv, log, HOST_SECONDS)
        failure = None
    except LabError as error:
        failure = error
    tally = of_closing_line(proc.tail(log))
    if tally is None:
        tally = Tally()
        tally.fail(str(failure or "host tests: no closing line").splitlines()[0])
    elif failure and not tally.failed:
        tally.fail(str(failure).splitlines()[0])
    tally.add(own_tests())
    return tally


def own_tests():
    """The lab's tests of its own judgement."""
    suite = unittest.defaultTestLoader.discover(
        str(module.REPO / "tools/lablib/tests"), top_level_dir=str(module.REPO / "tools"))
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(suite)
    tally = Tally(passed=result.testsRun - len(result.failures) - len(result.errors))
    for test, _ in result.failures + result.errors:
        tally.fail(str(test))
    return tally


def lints(spec):
    """Format, licences, unsafe code, warnings."""
    base = root.path()
    return lint.run(base, kernel.get(base, spec))


def machines(part, spec):
    """The selftests in the client machine, against a stock server."""
    if not (module.REPO / RUNNER).exists():
        raise LabError(f"{RUNNER} is missing")
    plan = Plan(client="ours", spec=spec, debug=part != "vm", load=False,
                timeout=VM_SECONDS[part])
    parser, lines = Parser(), LineSplitter()
    session = Session(plan)
    report = session.pair.results / "selftests.ktap"

    def sink(kind, data):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        if kind == wire.OUT:
            ktap.write(data)
            for line in lines.feed(data):
                parser.feed(line)

    status = None
    with open(report, "wb") as ktap, session:
        argv = [f"./{RUNNER}"]
        if part == "endurance":
            argv += ["--size", "full"]
            argv += [word for name in ENDURANCE_CASES for word in ("--filter", name)]
        status = session.run(argv, sink)
    tally = parser.end(status)
    # The machines themselves are a test: silent kernels, nothing left behind.
    tally.judge("; ".join(c.splitlines()[0] for c in session.complaints),
                not session.complaints)
    return tally


class LineSplitter:
    """Whole lines out of arbitrary pieces."""

    def __init__(self):
        self.rest = b""

    def feed(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]
