# SPDX-License-Identifier: GPL-2.0
"""The make targets that check the project. A target runs several parts, and adds up their results.
"""

import contextlib
import shutil
import sys
import tempfile
import time
import unittest

from ..artefacts import kernel, module, packages, root
from ..artefacts import upstream as patches
from ..base import arch, cache, chroot, proc
from ..base.paths import REPO
from ..base.tally import Tally, of_closing_line
from ..base.ui import LabError, say
from ..machine import wire
from ..machine.session import Plan, Session
from . import cable, life, lint, pcap, rds, shutdown
from .ktap import Parser
from .lane import LOG, Lane

PARTS = ("host", "lint", "vm", "cable-short", "shutdown", "rails-short", "server", "rds-short",
         "cable", "debug", "iwarp", "endurance", "full", "debug-full", "short", "kernels", "arm64",
         "packages", "rds", "vm-work", "vm-faults", "debug-work", "debug-faults", "debug-server",
         "debug-rds", "debug-rds-faults", "server-endurance", "iwarp-server", "debug-short")
# The parts that are split into smaller parts. Each of the smaller parts uses separate machines.
# Some of the smaller parts mostly compute, others mostly wait.
HALVES = {"vm": ("vm-work", "vm-faults"),
          "debug": ("debug-work", "debug-faults", "debug-server", "debug-rds")}
# The parts in WORKING run one after the other. The parts in WAITING mostly wait and leave the
# processors idle, so they run at the same time as the parts in WORKING.
WAITING = ("vm-faults", "cable-short", "cable", "shutdown", "rails-short", "rds-short",
           "debug-faults", "debug-server", "debug-rds", "iwarp", "iwarp-server")
WORKING = ("vm-work", "server", "debug-work", "debug-short")
# The parts of `tools/lab check all`.
ALL = PARTS[:8]
HOST_SECONDS = 20 * 60
# Time limits in seconds for the tests of each part on a machine that runs nothing else. The time
# for booting and checking the machines is not included. Each case has its own limit, which ends the
# case if it hangs.
VM_SECONDS = {"vm-work": 40 * 60, "vm-faults": 40 * 60, "cable": 10 * 60, "rails-short": 10 * 60,
              "debug-work": 45 * 60, "debug-faults": 45 * 60,
              "iwarp": 30 * 60, "full": 3 * 3600, "debug-full": 10 * 3600, "short": 20 * 60,
              "iwarp-server": 20 * 60, "debug-short": 30 * 60,
              "server": 20 * 60, "debug-server": 30 * 60, "arm64": 30 * 60, "endurance": 3 * 3600,
              "server-endurance": 3 * 3600}
# All time limits, including the limits of single cases, are multiplied by this factor, because a
# busy machine needs more time.
BUSY = 3
FULL_PARTS = ("full", "debug-full", "endurance", "server-endurance")
DEBUG_PARTS = ("debug-work", "debug-faults", "debug-server", "debug-short", "debug-full", "iwarp",
               "iwarp-server", "endurance", "server-endurance")
# Names of the parts in which the server machine uses our module as well.
SERVER_PARTS = ("server", "debug-server", "debug-short", "iwarp-server", "server-endurance")
# Names of the parts that run over iWARP.
IWARP_PARTS = ("iwarp", "iwarp-server")
# The parts that can run with the patches of Documentation/upstream.
UPSTREAM_PARTS = ("debug-work", "debug-faults", "debug-server", "iwarp")
# Memory of the server and of the client in MiB, for parts that need more than usual.
MEMORY = {"full": (4096, 2048), "debug-full": (4096, 2048), "server-endurance": (4096, 4096)}
RUNNER = "selftests/run"
# Seed of the random numbers in the cases whose packets are captured. With the same seed, both
# clients perform the same operations on the same data.
CABLE_SEED = 8166
# Modules of selftests whose cases inject a fault, for example a broken connection, and wait for its
# effect.
FAULTS = ("disconnects", "hostile", "hostile_connect", "life", "memory", "outage", "signals",
          "status", "unreachable")
FAULT_CASES = rf"^({'|'.join(FAULTS)})\."
WORK_CASES = f"^(?!{FAULT_CASES[1:]})"
# Cases whose packets are captured. They show every kind of message and chunk, callbacks, broken
# connections, and version two, which the in-tree client does not have.
CABLE_CASES = (
    r"^mounts\.every_version",
    r"^callbacks\.callbacks_work",
    r"^data\.direct_transfers_around",
    r"^disconnects\.forced_disconnects_under_inline_load",
    r"^files\.(extended|large_directories|posix_acls|symbolic)",
    r"^version_two\.(everything_works|delegations_are_returned)",
)
# Cases in which two network links connect the machines: a rail that becomes silent, and a rail
# whose device is removed. `make check-rails` runs the other cases with two links.
RAILS_CASES = (r"^rails\.(silence|a_device)[a-z_]*_4 vers=4\.2",)
# Cases that run with iWARP as well, because an iWARP device makes and ends connections differently.
IWARP_CASES = (
    r"^load\.nothing_is_left",
    r"^mounts\.",
    r"^callbacks\.callbacks_work",
    r"^caps\.regions_of_few_pages",
    r"^concurrency\.eight_writers",
    r"^counts\.regions_are_invalidated",
    r"^data\.direct_transfers",
    r"^disconnects\.(forced_disconnects_under_bulk|server_ends|client_device|hard_mount)",
    r"^files\.extended",
    r"^hostile\.(an_invalidation_that|a_read_does_not)",
    r"^signals\.",
)
# Cases that show whether another kernel has everything that the module needs.
SHORT_CASES = (
    r"^load\.",
    r"^mounts\.",
    r"^callbacks\.callbacks_work",
    r"^data\.direct_transfers_around",
    r"^disconnects\.forced_disconnects_under_bulk",
    r"^files\.(extended|large_directories|posix_acls)",
)
# Cases that run with our module in the client and in the server. The cases cover every form of
# chunk, callbacks, and the end of connections.
SERVER_CASES = (
    r"^mounts\.every_version",
    r"^data\.direct_transfers_around",
    r"^callbacks\.(another|delegations_are|callbacks_work|many_recalls)",
    r"^disconnects\.forced_disconnects_under_bulk_load vers=(3|4\.2)",
    r"^files\.large_directories_are_listed_whole vers=(3|4\.2)",
    r"^files\.symbolic_links_of_every_length",
    r"^install\.a_server_loads",
    r"^requester",
    r"^server_life",
    r"^served_two",
    r"^both_ends\.((each_machine|a_mount)[a-z_]* vers=4\.2|a_machine[a-z_]* vers=3)",
    r"^fairness",
    r"^replays\.calls",
)
# Cases on the debug kernel in continuous integration, with our modules in both machines. The cases
# use the paths on which memory changes its owner: all forms of chunks, callbacks, connections that
# end, killed processes, and messages of a hostile peer. The KUnit suites run, too.
DEBUG_SHORT_CASES = (
    r"^kunit\.",
    r"^load\.nothing_is_left",
    r"^mounts\.nconnect",
    r"^callbacks\.callbacks_work",
    r"^caps\.calls_wait",
    r"^data\.(direct_transfers_around_the|mapped_files)",
    r"^disconnects\.(client_device_comes|forced_disconnects_under_bulk)",
    r"^files\.extended",
    r"^hostile\.(an_invalidation|connections_end)",
    r"^hostile_connect\.memory_of",
    r"^requester_rules\.a_call_that",
    r"^revived\.behind",
    r"^server_injection\.(calls|replies)",
    r"^signals\.killed_readers",
    r"^version_two\.everything_works",
)
# Cases in which the server runs our module on the debug kernel. There are few such cases, because
# the debug kernel is slow. The cases cover the memory of calls, and the end of connections.
SERVER_DEBUG_CASES = (
    r"^requester(\.odd_room|_rules\.a_call_that)",
    r"^server_injection\.(calls|replies|each)",
    r"^mounts\.every_version",
    r"^callbacks\.(delegations_are|callbacks_work)",
    r"^data\.direct_transfers_around",
    r"^disconnects\.forced_disconnects_under_bulk_load vers=(3|4\.2)",
)
# Cases in which the server runs our module over iWARP on the debug kernel. Over iWARP the server
# registers the memory of its RDMA Reads.
IWARP_SERVER_CASES = (
    r"^iwarp\.",
    r"^mounts\.every_version",
    r"^callbacks\.callbacks_work vers=4\.2",
    r"^data\.direct_transfers_around",
    r"^disconnects\.(forced_disconnects_under_bulk|server_ends)[a-z_]* vers=4\.2",
)
# Cases that depend on the page size, on the order of memory accesses or on the compiler.
ARM64_CASES = (
    r"^load\.nothing_is_left",
    r"^mounts\.every_version",
    r"^callbacks\.callbacks_work",
    r"^caps\.regions_of_few_pages",
    r"^concurrency\.eight_writers",
    r"^data\.(direct_transfers|user_buffers|mapped_files)",
    r"^disconnects\.forced_disconnects_under_bulk",
    r"^files\.(extended|large_directories|posix_acls)",
)
# Pairs of kernels for client and server. In each pair, one kernel has pages of 4 KiB, the other has
# pages of 16 KiB.
ARM64_PAIRS = ((f"{kernel.DEFAULT}-arm64", f"{kernel.DEFAULT}-arm64-16k"),
               (f"{kernel.DEFAULT}-arm64-16k", kernel.DEFAULT))
# Cases that are repeated many times on the debug kernel: loading the module, and connections that
# either side breaks.
ENDURANCE_CASES = (
    r"^load\.module_survives_many_lives",
    r"^disconnects\.forced_disconnects_under_inline_load",
    r"^disconnects\.server_ends_connections",
)
# Cases that are repeated many times for our server: its listeners, its module and its connections.
SERVER_ENDURANCE_CASES = (r"^server_life\.", r"^requester_life\.", r"^server_injection\.")


def run(parts, spec, upstream=False):
    """Runs the parts. The last line of the output says how many tests of all parts passed, failed
    and were skipped. With `upstream`, the client has the patches of Documentation/upstream. Returns
    the exit status."""
    total, took = Tally(), {}
    for group, beside in order([half for whole in parts for half in HALVES.get(whole, (whole,))]):
        with contextlib.ExitStack() as stack:
            lane = None
            if beside:
                # The modules are built here, once for all parts that run at the same time.
                # Otherwise this process and the process that checks the other parts would both
                # build the modules.
                prepare(spec, [*group, *beside], upstream)
                say(f"checking beside: {', '.join(beside)} (output in {LOG})")
                lane = stack.enter_context(Lane(beside, spec, upstream))
            for part in group:
                tally, took[part] = run_one(part, spec, upstream)
                total.add(tally, part)
            if lane:
                say(f"checked beside: {', '.join(beside)}")
                total.add(lane.finish())
                took |= lane.minutes()
    # The times of all parts are printed together at the end. Documentation/verification.rst says
    # how long the checks may take.
    say(f"minutes: {', '.join(f'{part} {minutes:.1f}' for part, minutes in took.items())}")
    for note in total.notes:
        say(note)
    print(total.line(), flush=True)
    return 0 if total.good() else 1


def order(parts):
    """Returns pairs of two lists of parts. The parts of the first list run one after the other, and
    at the same time as the parts of the second list."""
    working = [part for part in parts if part in WORKING]
    waiting = [part for part in parts if part in WAITING] if working else []
    pairs = [([part], []) for part in parts if part not in (*working, *waiting)]
    if working:
        # Parts that neither work nor wait come first, as far as they come first in `parts`.
        before = next(n for n, part in enumerate(parts) if part in (*working, *waiting))
        pairs.insert(before, (working, waiting))
    return pairs


def prepare(spec, parts, upstream=False):
    """Builds the kernels and the module that several parts need."""
    base = root.path(kernel.arch_of(spec))
    target = stock = kernel.get(base, spec)
    if any(part in DEBUG_PARTS for part in parts):
        target = kernel.debug(base, stock)
    if upstream:
        target = patches.patched(base, stock, target)
    with contextlib.suppress(LabError):
        module.build(base, target, variant="upstream" if upstream else "client")


def run_one(part, spec, upstream=False):
    """Runs a part. Returns the part's tally and how many minutes the part took."""
    say(f"checking: {part}")
    start = time.monotonic()
    try:
        more = {"upstream": True} if upstream else {}
        tally = RUN.get(part, machines)(spec, part, **more)
    except LabError as error:
        say(f"error: {error}")
        tally = Tally()
        tally.fail(str(error).splitlines()[0])
    minutes = (time.monotonic() - start) / 60
    say(f"{part}: {tally.line()}, {minutes:.1f} minutes")
    return tally, minutes


def host(_spec, _part):
    """Runs tests that need no kernel, with tools/check-host."""
    program = REPO / "tools/check-host"
    if not program.exists():
        raise LabError("tools/check-host is missing")
    argv = [program]
    if not shutil.which("cargo"):
        argv = chroot.command(root.path(), argv, [cache.directory(), REPO],
                              REPO, env={"CARGO_HOME": f"{cache.directory()}/cargo"})
    log = REPO / "build/check-host.log"
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
    """Runs the unit tests of lablib."""
    suite = unittest.defaultTestLoader.discover(
        str(REPO / "tools/lablib/tests"), top_level_dir=str(REPO / "tools"))
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(suite)
    tally = Tally(passed=result.testsRun - len(result.failures) - len(result.errors))
    for test, _ in result.failures + result.errors:
        tally.fail(str(test))
    return tally


def lints(spec, _part):
    """Checks the format, the licences, the unsafe code and the compiler warnings of the sources."""
    base = root.path()
    return lint.run(base, kernel.get(base, spec))


def machines(spec, part, client="ours", capture=None, seed=None, server=None, upstream=False):
    """Runs the selftests in the client machine. If `part` is in SERVER_PARTS, the server machine
    uses our module as well."""
    if not (REPO / RUNNER).exists():
        raise LabError(f"{RUNNER} is missing")
    full, debug = part in FULL_PARTS, part in DEBUG_PARTS
    plan = Plan(client=client, spec=spec, server=server, debug=debug,
                serving="ours" if part in SERVER_PARTS else "intree",
                suites=part in ("debug-work", "debug-short", "debug-full"),
                memory=MEMORY.get(part, (2048, 2048)),
                provider="siw" if part in IWARP_PARTS else "rxe",
                rails=2 if part == "rails-short" else 1, load=False,
                timeout=BUSY * VM_SECONDS[part], pcap=capture, upstream=upstream)
    argv = [f"./{RUNNER}", *(["--size", "full"] if full else [])]
    if seed is not None:
        # Both NFS versions are named, because otherwise the runner would run a slow case with only
        # one version, which the seed selects.
        argv += ["--seed", str(seed), "--vers", "3,4.2"]
    for name in {"vm-work": (WORK_CASES,), "vm-faults": (FAULT_CASES,),
                 "debug-work": (WORK_CASES,), "debug-faults": (FAULT_CASES,),
                 "debug-short": DEBUG_SHORT_CASES,
                 "cable": CABLE_CASES, "rails-short": RAILS_CASES,
                 "iwarp": IWARP_CASES, "short": SHORT_CASES, "server": SERVER_CASES,
                 "debug-server": SERVER_DEBUG_CASES, "iwarp-server": IWARP_SERVER_CASES,
                 "arm64": ARM64_CASES,
                 "endurance": ENDURANCE_CASES,
                 "server-endurance": SERVER_ENDURANCE_CASES}.get(part, ()):
        argv += ["--filter", name]
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
        status = session.run(argv, sink)
    tally = parser.end(status)
    if session.suites:
        found = module.warnings(session.kernel, variant="suites")
        tally.judge(f"the build of the KUnit suites: {'; '.join(found)[:300]}", not found)
    # One more test checks that the kernels of the machines have reported no problem, and that no
    # object is left.
    tally.judge("; ".join(c.splitlines()[0] for c in session.complaints),
                not session.complaints)
    return tally


def watched(spec, part):
    """Captures packets of our client, and checks them. The part `cable` runs the same cases with
    the in-tree client as well. It also finds errors in the layers above RPC-over-RDMA that only
    packets of our client have."""
    tally = Tally()
    with tempfile.TemporaryDirectory(dir=cache.directory()) as where:
        clients = ("ours", "intree") if part == "cable" else ("ours",)
        captures = {client: f"{where}/{client}.pcap" for client in clients}
        for client, capture in captures.items():
            tally.add(machines(spec, "cable", client, capture, CABLE_SEED), client)
        ours = cable.Capture(captures["ours"])
        tally.add(cable.judge(ours))
        tally.judge("tshark finds errors of ours", not pcap.judge(
            captures["ours"], captures.get("intree"), ours.frames_of_version_two()))
    return tally


def short(spec, part, server=None):
    """Builds the client's module for one kernel, and runs the selftests of `part` with that kernel.
    The part `short` builds the modules of the server and of RDS as well."""
    base, tally = root.path(kernel.arch_of(spec)), Tally()
    target = kernel.get(base, spec)
    linters = lint.Lint(base, target)
    warnings = [*linters.build(), *(linters.others() if part == "short" else ())]
    tally.judge(f"{target.release}: the build: {'; '.join(warnings)[:300]}", not warnings)
    tally.add(machines(spec, part, server=server), target.release)
    return tally


def arm64(_spec, part):
    """Builds the module for arm64, and runs the selftests on arm64 with pages of 4 KiB and of 16
    KiB."""
    tally = Tally()
    for client, server in ARM64_PAIRS:
        tally.add(short(client, part, server))
    return tally


def kernels(_spec, _part):
    """Runs the short check on the newest kernel of every series in the package archive, and on the
    real-time flavour of the newest series."""
    base, tally = root.path(), Tally()
    whole, lacking = packages.series(base)
    for series in lacking:
        say(f"{series}: an image alone; headers or source of its version are not in the archive")
    for one in [*whole, f"{whole[-1]}-{arch.of_host().rt}"]:
        tally.add(short(one, "short"))
    return tally


def restarts(spec, _part):
    """Restarts the client machine while file systems are mounted."""
    return shutdown.run(spec)


def debug(spec, part, upstream=False):
    """Runs a part's selftests on the debug kernel. Then tests restarts of the client machine with
    the debug kernel."""
    tally = machines(spec, part, upstream=upstream)
    tally.add(shutdown.run(spec, debug=True, upstream=upstream))
    return tally


RUN = {"host": host, "lint": lints, "cable": watched, "cable-short": watched,
       "shutdown": restarts, "debug-work": debug, "short": short, "kernels": kernels,
       "arm64": arm64, "packages": life.run, "rds": rds.run, "rds-short": rds.run,
       "debug-rds": rds.run, "debug-rds-faults": rds.run}


class LineSplitter:
    """Splits a stream of bytes into whole lines."""

    def __init__(self):
        self.rest = b""

    def feed(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]
