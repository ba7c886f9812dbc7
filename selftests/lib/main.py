# SPDX-License-Identifier: GPL-2.0
"""The command line, and the selection of cases."""

import argparse
import importlib
import os
import pathlib
import random
import re
import signal
import sys

from . import case, env, runner

CASES = pathlib.Path(__file__).resolve().parents[1] / "cases"
# The modules of cases in the order of a run. The cases on which other cases depend come first.
MODULES = ("load", "mounts")
VERSIONS = ("3", "4.0", "4.1", "4.2")
DESCRIPTION = """\
System tests of an NFS/RDMA client: mounts a stock server, works on it, breaks
things, and compares with the server's own file system.  Runs as root in a
client machine that has the lab's control line to its server (tools/lab).  Prints
KTAP; the exit status is 0, or 1 when a case failed, or 4 when all were skipped."""


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="run", description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the cases, run none")
    parser.add_argument("--filter", metavar="REGEX", action="append", default=[],
                        help="only cases whose name matches (may be given again)")
    parser.add_argument("--size", choices=("small", "full"), default=env.ENV.size,
                        help="small: minutes; full: for a quiet evening (default: small)")
    parser.add_argument("--vers", metavar="V,V",
                        help="NFS versions for cases that run with several (default: "
                             f"{','.join(env.ENV.versions)}, of which slow cases, and all cases "
                             "on a debug kernel, take one by turns in small size; all: all four)")
    parser.add_argument("--client", choices=("ours", "intree"), default=env.ENV.client,
                        help="the transport module under test (default: %(default)s)")
    parser.add_argument("--module", metavar="FILE", default=env.ENV.module_file,
                        help="our module's file (default: $LAB_MODULE)")
    parser.add_argument("--param", metavar="NAME=VALUE", action="append", default=[],
                        help="parameter for our module (may be given again)")
    parser.add_argument("--seed", type=int, metavar="N",
                        help="of everything that is random (default: a new one, printed)")
    parser.add_argument("--patience", type=float, metavar="N", default=env.ENV.factor,
                        help="limits of time are N times what a machine of two processors "
                             "needs at its worst (default: %(default)g)")
    parser.add_argument("--stop", action="store_true",
                        help="end with the first case that fails")
    args = parser.parse_args(argv)
    versions = env.ENV.versions
    if args.vers:
        versions = VERSIONS if args.vers == "all" else tuple(args.vers.split(","))
    unknown = set(versions) - set(VERSIONS)
    if unknown:
        parser.error(f"--vers: unknown version {', '.join(sorted(unknown))}")
    set_environment(args, versions)
    return args


def set_environment(args, versions):
    seed = args.seed if args.seed is not None else random.randrange(1 << 32)
    settings = {"size": args.size, "versions": versions, "client": args.client,
                "module_file": args.module, "parameters": tuple(args.param), "seed": seed,
                "factor": args.patience,
                "every_version": bool(args.size == "full" or args.vers)}
    settings["one_version"] = env.ENV.debug and not settings["every_version"]
    for name, value in settings.items():
        setattr(env.ENV, name, value)


def selection(patterns):
    """Returns pairs of case and version, in the order of a run."""
    names = sorted(p.stem for p in CASES.glob("[a-z]*.py"))
    for name in sorted(names, key=lambda n: (*MODULES, n).index(n)):
        importlib.import_module(f"cases.{name}")
    return [(c, v) for c in case.CASES if c.applies()
            for v in c.variants(lambda v, c=c: not patterns or any(
                re.search(p, f"{c.name} vers={v}") for p in patterns))]


def main(argv):
    args = arguments(argv)
    runs = selection(args.filter)
    if args.list:
        for one, version in runs:
            print(one.name + (f" vers={version}" if version else ""))
        return 0
    if not runs:
        sys.exit("run: no case matches")
    if os.geteuid() or not env.ENV.server:
        sys.exit("run: needs root and the lab's environment: tools/lab run -- selftests/run")
    if env.ENV.ours and not os.path.exists(env.ENV.module_file):
        sys.exit(f"run: no module file {env.ENV.module_file!r}: use --module")
    # A request to stop raises an exception, so that the clean-up code runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    whole = runner.Runner(runs)
    whole.report.diagnose(f"client {env.ENV.client}, size {env.ENV.size}, "
                          f"seed {env.ENV.seed}, kernel {os.uname().release}")
    try:
        return whole.run(args.stop).status()
    finally:
        whole.close()
