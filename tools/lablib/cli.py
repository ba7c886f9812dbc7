# SPDX-License-Identifier: GPL-2.0
"""The command line of tools/lab."""

import argparse
import dataclasses
import json
import pathlib
import signal
import sys

from .artefacts import ide, kernel, module, root, upstream
from .base import cache, chroot, proc
from .base.paths import REPO
from .base.ui import LabError, say
from .bench import baseline, bench, figures, rds, report, serving
from .checks import (
    arrows,
    beside,
    cable,
    check,
    demo_rails,
    demo_rds,
    demo_server,
    demo_two,
    kills,
    mutants,
    paused,
    pauses,
    pcap,
    shutdown,
    torture,
)
from .machine import shell
from .machine.session import Plan, Session

DESCRIPTION = """\
Builds xprtrdma_rs and runs it in virtual machines.

Everything but mmdebstrap runs from a root file system that the lab makes and
keeps in $XPRTRDMA_CACHE (default: ~/.cache/xprtrdma_rs).  Needs root."""


def main(argv):
    parser = argparse.ArgumentParser(
        prog="tools/lab", description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action=Version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (add_root, add_kernel, add_build, add_run, add_shell, add_check, add_count,
                add_demo, add_programs, add_mutants, add_torture, add_kills, add_pauses,
                add_restart, add_bench, add_bench_check, add_arrows, add_ide, add_pcap, add_exec,
                add_clean):
        add(commands)
    args = parser.parse_args(argv)
    # Each signal that asks the program to stop raises an exception. The exception unwinds the
    # stack, which ends the virtual machines.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    try:
        return args.run(args)
    except LabError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130


class Version(argparse.Action):
    """Prints the version of this source."""

    def __init__(self, option_strings, dest, **_):
        super().__init__(option_strings, dest, nargs=0, help="print the version of this source")

    def __call__(self, *_):
        print(proc.output([REPO / "rust/version.sh"]).strip())
        sys.exit(0)


def add_root(commands):
    sub = commands.add_parser("root", help="make the root file system, print its path")

    def run(_args):
        print(root.path())
        return 0

    sub.set_defaults(run=run)


def add_kernel(commands):
    sub = commands.add_parser("kernel", help="fetch and prepare a kernel, print its paths")
    kernel_option(sub)
    debug = sub.add_mutually_exclusive_group()
    debug.add_argument("--field", choices=("release", "image", "modules", "tree", "source"),
                       help="print this one only")
    debug.add_argument("--debug", action="store_true", help="build the debug kernel, too")
    sub.add_argument("--behind", action="store_true",
                     help="build it on processors that nothing else uses (until SIGUSR1)")

    def run(args):
        base = root.path(kernel.arch_of(args.kernel))
        found = kernel.get(base, args.kernel)
        if args.behind:
            proc.Behind.begin()
        if args.debug:
            kernel.debug(base, found)
        if args.field:
            print(getattr(found, args.field))
            return 0
        for name in ("release", "image", "modules", "tree", "source"):
            print(f"{name} {getattr(found, name)}")
        if found.package:
            for package, checksum in found.package["packages"].items():
                print(f"package {package} {found.package['version']} sha256 {checksum}")
        return 0

    sub.set_defaults(run=run)


def add_build(commands):
    sub = commands.add_parser("build", help="build the module, print its file")
    kernel_option(sub)
    sub.add_argument("--debug", action="store_true", help="for the debug kernel")
    sub.add_argument("--clippy", action="store_true", help="check with clippy as well")
    sub.add_argument("--variant", choices=list(module.VARIANTS), default="client",
                     help="the client's module, that with the KUnit suites (for a debug kernel), "
                          "the server's, that of RDS; or the client's for the debug kernel with "
                          "the patches of Documentation/upstream, or for a kernel whose rxe alone "
                          "has its patch (default: client)")

    def run(args):
        base = root.path(kernel.arch_of(args.kernel))
        target = kernel.get(base, args.kernel)
        if args.debug:
            stock, target = target, kernel.debug(base, target)
            if args.variant == "upstream":
                target = upstream.patched(base, stock, target)
        elif args.variant == "upstream":
            raise LabError("the patches are built for the debug kernel: add --debug")
        print(module.build(base, target, args.clippy, show=True, variant=args.variant))
        return 0

    sub.set_defaults(run=run)


def kernel_option(sub):
    sub.add_argument("--kernel", metavar="KERNEL",
                     help=f"the stock kernel: newest complete one of a series, such as 7.3 or "
                          f"7.3-arm64-16k, or a release; or the directory of a kernel tree that "
                          f"you built (default: {kernel.DEFAULT})")


def machine_options(sub):
    kernel_option(sub)
    sub.add_argument("--server-kernel", metavar="KERNEL",
                     help="another stock kernel in the server, perhaps of another architecture")
    sub.add_argument("--client", choices=("ours", "intree", "none"), default="ours",
                     help="transport module to load in the client (default: ours)")
    sub.add_argument("--server", choices=("ours", "intree"), default="intree",
                     help="transport module to load in the server (default: intree)")
    debug_option(sub)
    sub.add_argument("--provider", choices=("rxe", "siw", "mixed"), default="rxe",
                     help="kind of RDMA device: RoCE or iWARP in software, or with --rails 2 one "
                          "of each (default: rxe)")
    sub.add_argument("--rails", type=int, choices=(1, 2), default=1,
                     help="cables between the machines, each with an RDMA device at either end "
                          "(default: 1)")
    upstream_option(sub)
    sub.add_argument("--vers", help="NFS version: also make a mount, at /mnt/nfs")
    sub.add_argument("--mount-opts", default="", help="more mount options")
    sub.add_argument("--export", choices=("mem", "disk"), default="mem",
                     help="which export to mount (default: mem)")
    sub.add_argument("--server-mem", type=int, default=2048, metavar="MIB")
    sub.add_argument("--client-mem", type=int, default=2048, metavar="MIB")
    cpus_option(sub)
    sub.add_argument("--timeout", type=float, default=600, metavar="S",
                     help="most seconds the command may take (default: 600)")
    sub.add_argument("--pcap", metavar="FILE",
                     help="capture the cable between the machines (a second one in FILE-1)")
    sub.add_argument("--results", metavar="DIR",
                     help="where consoles and /results go (default: build/runs/...)")


def upstream_option(sub):
    sub.add_argument("--upstream", action="store_true",
                     help="a client with the patches of Documentation/upstream, and our module "
                          "without what they replace; without --debug, only rxe is patched")


def debug_option(sub):
    sub.add_argument("--debug", action="store_true",
                     help="debug kernel in the client, and in a server with --server ours")


def record_option(sub):
    sub.add_argument("--write", action="store_true",
                     help="add the run to tools/results")


def numbers(text):
    """Returns the numbers in a text that consists of numbers and commas."""
    return [int(word) for word in text.split(",")]


def cpus_option(sub):
    sub.add_argument("--cpus", type=int, choices=(1, 2), default=1,
                     help="virtual processors of the client (default: 1)")


def plan(args):
    if args.provider == "mixed" and args.rails == 1:
        raise LabError("one of each kind of device needs --rails 2")
    return Plan(client=args.client, serving=args.server, spec=args.kernel,
                server=args.server_kernel, debug=args.debug,
                version=args.vers, options=args.mount_opts, export=args.export,
                memory=(args.server_mem, args.client_mem), timeout=args.timeout,
                pcap=args.pcap, results=args.results, provider=args.provider,
                rails=args.rails, processors=args.cpus, upstream=args.upstream)


def add_run(commands):
    sub = commands.add_parser(
        "run", help="run a command in the client machine and judge both machines",
        description="Boots both machines, loads the module, runs CMD in the client (in the "
                    "repository, read-only), and fails when CMD fails or either kernel "
                    "complains or something is left behind.")
    machine_options(sub)
    sub.add_argument("--server-cmd", metavar="SH", help="shell command for the server first")
    sub.add_argument("cmd", nargs="+", metavar="CMD")

    def run(args):
        status = None
        wanted = dataclasses.replace(plan(args), suites=args.debug and args.client == "ours")
        with Session(wanted) as session:
            if args.server_cmd:
                session.pair.server.channel.check_call(["sh", "-c", args.server_cmd])
            say(f"running: {' '.join(args.cmd)}")
            status = session.run(args.cmd)
            say(f"exit status {status}")
        return status or bool(session.complaints) if status is not None else 1

    sub.set_defaults(run=run)


def add_shell(commands):
    sub = commands.add_parser("shell", help="a shell in the client, with the mount made")
    machine_options(sub)

    def run(args):
        args.vers = args.vers or "4.2"
        with Session(plan(args)) as session:
            shell.interact(session)
        return bool(session.complaints)

    sub.set_defaults(run=run)


def add_check(commands):
    sub = commands.add_parser("check", help="run checks; the last line sums them up")
    kernel_option(sub)
    sub.add_argument("--upstream", action="store_true",
                     help="the client with the patches of Documentation/upstream, for these parts: "
                          f"{', '.join(check.UPSTREAM_PARTS)}")
    sub.add_argument("parts", nargs="+", choices=("all", *check.PARTS),
                     help="all: host, lint, vm, cable-short (captures of our client), shutdown, "
                          "rails-short (two cables), server and rds-short; "
                          "debug: everything in small on the debug kernel; iwarp: a part of that "
                          "over iWARP; iwarp-server: our server over iWARP there; "
                          "endurance: 100 lives, 1000 disconnects by the client and 500 by the "
                          "server there (half an hour); "
                          "server-endurance: 100 listeners, 100 loads, 1500 broken connections of "
                          "our server there; "
                          "full: the selftests in full size on the stock kernel (two hours); "
                          "debug-full: the same on the debug kernel (most of a day); "
                          "short: build and short tests on --kernel; "
                          "kernels: that on every series of the archive, and on a real-time "
                          "kernel; arm64: build and data tests on arm64 with 4k and 16k pages; "
                          "packages: an installation with DKMS, through an upgrade of the kernel")

    def run(args):
        parts = [p for part in args.parts
                 for p in (check.ALL if part == "all" else [part])]
        if args.upstream and not set(parts) <= set(check.UPSTREAM_PARTS):
            sub.error(f"--upstream is for {', '.join(check.UPSTREAM_PARTS)}")
        return check.run(parts, args.kernel, args.upstream)

    sub.set_defaults(run=run)


def add_programs(commands):
    sub = commands.add_parser(
        "programs", help="other people's test programs, in-tree client and ours")
    kernel_option(sub)
    sub.add_argument("--write", action="store_true", help="record the run in tools/results")
    sub.add_argument("--runs", type=int, metavar="N",
                     help="run a program with cases that fail with ours only so often "
                          f"(default {beside.RUNS})")
    sub.add_argument("--server", choices=("intree", "ours"), default="intree",
                     help="ours: both clients with our server (default: %(default)s)")
    sub.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    sub.set_defaults(run=lambda args: beside.check(args.kernel, args.names, args.write, args.runs,
                                                   args.server))


def add_mutants(commands):
    sub = commands.add_parser(
        "mutants", help="plant faults in the module; a selftest must notice each")
    kernel_option(sub)
    sub.add_argument("--write", action="store_true",
                     help="record in tools/results how each was noticed")
    sub.add_argument("names", nargs="*", metavar="NAME",
                     help="of a fault in tools/lablib/checks/mutants.toml (default: all)")
    sub.set_defaults(run=lambda args: mutants.check(args.kernel, args.names, args.write))


def add_torture(commands):
    sub = commands.add_parser(
        "torture", help="faults at random times under a load that verifies itself",
        description="Runs selftests/torture in the machines.  The last line counts faults, "
                    "once for each NFS version, and the verdict on the machines.")
    kernel_option(sub)
    sub.add_argument("--client", choices=("ours", "intree", "both"), default="ours")
    debug_option(sub)
    cpus_option(sub)
    sub.add_argument("--minutes", type=float, default=30, help="(default: %(default)g)")
    sub.add_argument("--seed", type=int, help="of the schedule (default: a new one, printed)")
    sub.add_argument("--fault", metavar="NAME", action="append", default=[],
                     help="only this one (may be given again; selftests/torture --list)")
    sub.add_argument("--rdma-version", type=int, choices=(1, 2), default=1,
                     help="of RPC-over-RDMA; 2: with our client, to our server or by way of the "
                     "responder of the selftests (default: %(default)d)")
    sub.add_argument("--rails", action="store_true",
                     help="with our client: mounts over two cables, and faults of one of them, too")
    sub.add_argument("--server", choices=("intree", "ours"), default="intree",
                     help="the server's transport (default: %(default)s)")
    record_option(sub)

    def run(args):
        clients = list(torture.CLIENTS) if args.client == "both" else [args.client]
        if args.rdma_version == 2 and (args.write or clients != ["ours"]):
            sub.error("version two is our client's alone, and the page is about version one")
        if args.rails and (args.write or clients != ["ours"] or args.rdma_version == 2):
            sub.error("rails are our client's alone, and the page is about one cable")
        if args.server == "ours" and args.write:
            sub.error("the page is about the in-tree server")
        return torture.check(args.kernel, clients, args.debug, args.cpus, args.minutes,
                             args.seed, args.fault, args.write, args.rdma_version,
                             args.rails, args.server)

    sub.set_defaults(run=run)


def add_kills(commands):
    sub = commands.add_parser(
        "kills", help="processes killed while they are answered, in-tree client and ours",
        description="What killed processes cost the others: both clients with NFSv3 and 4.2, each "
                    "in machines of its own (20 minutes).  The last line counts runs with ours.")
    kernel_option(sub)
    record_option(sub)
    sub.set_defaults(run=lambda args: kills.check(args.kernel, args.write))


def add_pauses(commands):
    sub = commands.add_parser(
        "pauses", help="how long a mount over two cables stands still when one fails",
        description="Each client in machines of its own, ours with rails.  The last line counts "
                    "what was judged of ours.")
    kernel_option(sub)
    sub.add_argument("--rounds", type=int, default=20, help="of each fault (default: 20)")
    sub.add_argument("--fault", action="append", choices=list(paused.FAULTS),
                     help="only this one (may be given again)")
    sub.add_argument("--client", action="append", choices=pauses.CLIENTS,
                     help="only this one")
    record_option(sub)
    sub.set_defaults(run=lambda args: pauses.check(
        args.kernel, args.rounds, args.fault or list(paused.FAULTS),
        args.client or pauses.CLIENTS, args.write))


def add_arrows(commands):
    sub = commands.add_parser(
        "arrows", help="which file of the module names what of which other",
        description="Prints every arrow among the files and folders of rust/, and the picture of "
                    "its storeys.  Fails when an arrow goes up, or a file is too long.")
    sub.set_defaults(run=lambda _: arrows.show())


def add_restart(commands):
    sub = commands.add_parser(
        "restart", help="restart the client machine under live mounts, in two ways",
        description="What make check-shutdown does once, as often as wanted.  The last line "
                    "counts restarts.")
    kernel_option(sub)
    sub.add_argument("--client", choices=("ours", "intree"), default="ours")
    debug_option(sub)
    sub.add_argument("--rounds", type=int, default=1, metavar="N",
                     help="of both ways (default: %(default)s)")
    record_option(sub)

    def run(args):
        tally = shutdown.run(args.kernel, args.client, args.debug, args.rounds, args.write)
        for note in tally.notes:
            say(note)
        print(tally.line(), flush=True)
        return 0 if tally.good() else 1

    sub.set_defaults(run=run)


def add_count(commands):
    sub = commands.add_parser(
        "count", help="work requests, posts and completions per operation")
    kernel_option(sub)
    sub.add_argument("--client", choices=("ours", "intree", "both"), default="both")
    sub.add_argument("--vers", default="4.2")
    sub.add_argument("--instructions", action="store_true",
                     help="instructions of the client's kernel instead (emulated)")
    sub.add_argument("--memory", action="store_true",
                     help="the same with cache lines touched and missed (slower)")
    sub.add_argument("--debug", action="store_true",
                     help="with --instructions or --memory: the debug kernel in the client")
    upstream_option(sub)
    sub.add_argument("--rounds", type=int, default=3, metavar="N",
                     help="with --instructions or --processors: times each client is measured "
                          "(default: 3)")
    sub.add_argument("--functions", type=int, default=0, metavar="N",
                     help="with --instructions: also the N functions with most of them, "
                          "and the N functions and lines of our source; with --processors: the "
                          "N functions that found spin locks taken most often")
    sub.add_argument("--json", metavar="FILE",
                     help="with --instructions or --processors: the table as JSON")
    sub.add_argument("--inline-size", type=int, default=0, metavar="BYTES",
                     help="largest inline message, set on both sides (default: as they come, 4096)")
    sub.add_argument("--scale", action="store_true",
                     help="instructions of small reads with NFSv3: from one to 1024 at a time, "
                          "over one and 50 mounts; with --server: 16 calls at a time, and 64 "
                          "connections in turn")
    sub.add_argument("--processors", type=numbers, metavar="N,...",
                     help="instructions, interrupts and wake-ups between processors and spin locks "
                          "found taken instead, with so many processors in the client: of one to "
                          "16 threads over one to 16 connections; with --server: one number of "
                          "processors in the server, 64 threads and 4 connections")
    sub.add_argument("--server", action="store_true",
                     help="what a server does for an RPC instead, instructions and all: ours and "
                          "the in-tree one, both with the in-tree client (uses --rounds, "
                          "--functions, --json)")
    sub.add_argument("--versions", action="store_true",
                     help="with --server: our server in version two of RPC-over-RDMA beside "
                          "version one, both with our client")
    sub.add_argument("--messages", action="store_true",
                     help="with --server: our server with messages of up to 8 KiB beside 4 KiB, "
                          "both with our client")
    sub.add_argument("--rds", action="store_true",
                     help="what a transport of RDS does for a message and an RDMA operation "
                          "instead: ours and the in-tree one, both with the in-tree one at the "
                          "other end (uses --rounds, --functions, --json)")
    sub.add_argument("--write", action="store_true",
                     help="with --server or --rds: record the table in tools/results")
    cpus_option(sub)

    def run(args):
        if (args.debug or args.upstream) and (
                args.rds or args.server or args.processors
                or not (args.instructions or args.memory)):
            sub.error("--debug and --upstream are for --instructions and --memory")
        if (args.versions or args.messages) and (args.write or not args.server):
            sub.error("--versions and --messages are for --server, and are not recorded")
        if args.server and args.processors and (args.scale or len(args.processors) != 1):
            sub.error("--server takes either --scale or one number of processors")
        if args.rds:
            return rds.count(args.kernel, args.rounds, args.functions, args.json, args.write)
        if args.server and (args.scale or args.processors):
            kind, processors = ("scale", 1) if args.scale else ("processors", args.processors[0])
            return serving.count_crowd(args.kernel, kind, args.rounds, processors, args.functions,
                                       args.json, args.write)
        if args.server:
            ways = (serving.VERSIONS if args.versions else
                    serving.MESSAGES if args.messages else serving.SERVERS)
            return serving.count(args.kernel, args.rounds, args.functions, args.json, args.write,
                                 ways)
        if args.processors:
            return report.count_processors(args.kernel, args.client, args.processors, args.rounds,
                                           args.functions, args.json)
        if args.instructions or args.memory or args.scale:
            if args.cpus != 1:
                raise LabError("instructions are counted with one processor")
            mount = report.SCALE if args.scale else report.options(args.vers)
            return report.count_instructions(args.kernel, args.client, mount, args.rounds,
                                             args.functions, args.inline_size, args.memory,
                                             args.json, debug=args.debug, upstream=args.upstream)
        return report.count(args.kernel, args.client, args.vers, args.inline_size, args.cpus)

    sub.set_defaults(run=run)


def add_bench(commands):
    sub = commands.add_parser(
        "bench", help="ours beside the in-tree client: elapsed time, exact counts",
        description="Measures elapsed time of many loads, the clients in turn in the same "
                    "machines, with the in-tree client twice in each round to show the "
                    "scatter and TCP for reference; then exact counts per RPC. Elapsed time "
                    "means something only on a machine that does nothing else.")
    kernel_option(sub)
    usual = bench.Scope()
    sub.add_argument("--quick", action="store_true", help="little of everything: is it alive?")
    sub.add_argument("--axis", action="append", choices=bench.AXES,
                     help=f"measure times of these only (default: {', '.join(bench.AXES)})")
    sub.add_argument("--rounds", type=int, metavar="N",
                     help=f"rounds per load (default: {usual.rounds}, "
                          f"{usual.long_rounds} for all but the first axis, "
                          f"{usual.count_rounds} for counts)")
    sub.add_argument("--only", choices=("times", "counts", "servers", *report.PAIRS),
                     help="half of it; or what no other run measures: elapsed time of both "
                          "servers with the in-tree client (uses --axis, --rounds, --quick); "
                          "version two of RPC-over-RDMA beside version one, each through the "
                          "tests' responder or with our server; messages of up to 8 KiB beside "
                          "4 KiB; rails on beside off")
    sub.add_argument("--vers", default="4.2", help="NFS version for the counts")
    sub.add_argument("--functions", type=int, default=0, metavar="N",
                     help="print the N functions with most instructions per load, too")
    sub.add_argument("--json", metavar="FILE", default="build/bench.json",
                     help="where the figures go too (default: build/bench.json)")
    sub.add_argument("--measured", metavar="FILE",
                     help="what an earlier run wrote, instead of measuring")
    sub.add_argument("--document", action="store_true",
                     help="write tools/results/bench-*.csv, of which a page is made, or "
                          "server-times.csv")

    def run(args):
        good = True
        if args.only in report.PAIRS:
            return 0 if report.compare(args.kernel, args.only,
                                       args.rounds or usual.count_rounds) else 1
        if args.measured:
            found = json.loads(pathlib.Path(args.measured).read_text())
        else:
            found, good = measure(args)
            pathlib.Path(args.json).parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
            say(f"written: {args.json}")
        if args.document and good:
            figures.write(found)
        return 0 if good else 1

    def measure(args):
        scope = bench.Scope.quick() if args.quick else usual
        if args.axis:
            scope = dataclasses.replace(scope, axes=tuple(args.axis))
        if args.rounds:
            scope = dataclasses.replace(scope, rounds=args.rounds, long_rounds=args.rounds,
                                        count_rounds=args.rounds)
        if args.only == "servers":
            return bench.servers(args.kernel, scope)
        return bench.run(args.kernel, args.vers, scope, args.only != "counts",
                         args.only != "times", args.functions)

    sub.set_defaults(run=run)


def add_bench_check(commands):
    sub = commands.add_parser(
        "bench-check", help="fail when an exact count of ours rose above the recorded one, "
                            "or misses a goal")
    kernel_option(sub)
    sub.add_argument("--rounds", type=int, default=3, metavar="N",
                     help="of counting instructions; their median counts (default: 3)")
    sub.add_argument("--processors", action="store_true",
                     help=f"with {baseline.HOW_MANY} processors in the client instead: "
                          "instructions, wake-ups, interrupts, locks found taken")
    sub.add_argument("--server", action="store_true",
                     help="of our server instead: all that tools/lab count --server counts")
    sub.add_argument("--measured", metavar="FILE",
                     help="what make bench wrote (with --processors or --server: tools/lab count), "
                          "instead of measuring")
    sub.add_argument("--write", action="store_true",
                     help=f"record tools/results/{baseline.RECORD}.csv (or "
                          f"{baseline.PROCESSORS}.csv) instead of comparing")

    def run(args):
        check = (baseline.check_server if args.server else
                 baseline.check_processors if args.processors else baseline.check)
        return check(args.kernel, args.rounds, args.measured, args.write)

    sub.set_defaults(run=run)


def add_demo(commands):
    sub = commands.add_parser("demo", help="build, mount, copy, compare, report")
    kernel_option(sub)
    sub.add_argument("--client", choices=("ours", "intree", "both"), default="both")
    sub.add_argument("--vers", default="4.2")
    sub.add_argument("--version-two", action="store_true",
                     help="of RPC-over-RDMA instead: NFSv3 and 4.2, sec=krb5i, callbacks, through "
                          "a responder that speaks it; decodes a capture (ours alone)")

    sub.add_argument("--rails", action="store_true",
                     help="over two cables instead, of which one is cut amid a copy (ours alone)")
    sub.add_argument("--server", action="store_true",
                     help="with our module in the server instead, then in both machines")
    sub.add_argument("--rds", action="store_true",
                     help="of RDS instead: what rds-rdma(7) promises, ours and in-tree")

    def run(args):
        if args.version_two:
            return demo_two.run(args.kernel)
        if args.rails:
            return demo_rails.run(args.kernel)
        if args.server:
            return demo_server.run(args.kernel)
        if args.rds:
            return demo_rds.run(args.kernel)
        return report.demo(args.kernel, args.client, args.vers)

    sub.set_defaults(run=run)


def add_clean(commands):
    sub = commands.add_parser("clean", help="remove what was built in the repository")
    sub.add_argument("--cache", action="store_true",
                     help="and the cache: root, kernels, everything")

    def run(args):
        module.clean()
        if args.cache:
            cache.clear()
        return 0

    sub.set_defaults(run=run)


def add_ide(commands):
    for name, text, action in (
            ("rust-analyzer", "write rust-project.json", ide.rust_analyzer),
            ("doc", "write the crates' documentation to build/doc", ide.doc)):
        sub = commands.add_parser(name, help=text)
        kernel_option(sub)
        sub.set_defaults(run=lambda args, action=action: action(args.kernel))


def add_pcap(commands):
    sub = commands.add_parser(
        "pcap", help="judge captures: what tshark finds wrong, by layer",
        description="Exits 1 when a frame of the first capture is wrong in the infiniband "
                    "or rpcordma layer, or in a way that the second does not show.")
    sub.add_argument("capture")
    sub.add_argument("reference", nargs="?", help="a capture of the in-tree client")
    sub.add_argument("--version-two", action="store_true",
                     help="print and judge the messages of RPC-over-RDMA version two instead, "
                          "which tshark does not know")

    def run(args):
        if args.version_two:
            return cable.show_version_two(args.capture)
        return pcap.judge(args.capture, args.reference,
                          cable.Capture(args.capture).frames_of_version_two())

    sub.set_defaults(run=run)


def add_exec(commands):
    sub = commands.add_parser("exec", help="run a tool of the root file system, here")
    sub.add_argument("cmd", nargs="+", metavar="CMD")

    def run(args):
        argv = chroot.command(root.path(), args.cmd, [cache.directory(), REPO],
                              REPO, env={"CARGO_HOME": f"{cache.directory()}/cargo"})
        child = proc.spawn(argv, stdin=None)
        try:
            return child.wait()
        finally:
            proc.stop(child)

    sub.set_defaults(run=run)
