# SPDX-License-Identifier: GPL-2.0
"""Tests RDS between two machines, with our transport at both ends, and with the kernel's own
transport at one of the ends.
"""

import re
import shutil
import sys

from ..artefacts import kernel, module, root
from ..base.tally import Tally
from ..machine.session import Plan, Session

SECONDS = {"rds": 20 * 60, "rds-short": 5 * 60, "debug-rds": 15 * 60,
           "debug-rds-faults": 60 * 60}
# rds-rdma(7) calls the two ends client and server. `CLIENT` contains the tests that run if only the
# client uses our transport. `SERVER` contains the tests that run if only the server uses our
# transport. If both ends use our transport, all tests run.
CLIENT = ("ping", "datagrams", "map-and-transfer", "get-mr", "dest", "notifications",
          "use-once-at-ack", "fence", "cancel")
SERVER = ("ping", "datagrams", "map-and-transfer", "notifications", "fence", "cancel", "silent")
# Tests that send messages in both directions. These messages spend and grant credits.
CREDITS = ("datagrams", "map-and-transfer", "full-both-ways", "flow-control")
# Tests of the interface, and of the guarantees for memory regions. These tests take a minute.
SHORT = ("ping", "datagrams", "tables", "map-and-transfer", "local-vectors", "get-mr",
         "get-mr-cold", "map-cold", "dest", "conflicts", "notifications", "recverr", "bounds",
         "use-once", "close-releases", "cancel")
# Tests of faults of the link, of programs and of devices.
FAULTS = ("link-cut", "link-cut-in-transfer", "link-cut-with-region", "link-cuts", "loss",
          "kill-in-transfer", "kill-the-client", "kill-the-server", "device-leaves",
          "device-of-the-server-leaves", "simultaneous-connects", "full-both-ways")
# Tests that do not run on the debug kernel, because no command on that kernel can drop only the
# packets of RDMA.
CUTS = ("link-cut", "link-cut-in-transfer", "link-cut-with-region", "link-cuts")
# The kernel's own test of RDS, which runs in one machine. `KERNEL` contains the files of the
# kernel's source that the test needs. `TREE` is the directory of these files in the machine.
KERNEL = ("tools/testing/selftests/net/rds", "tools/testing/selftests/net/lib/py",
          "tools/net/ynl/pyynl", "net/rds")
TREE = "linux"
OWN_TEST = ("./selftests/rds/kernel", f"/results/{TREE}", "-t", "400")
PAIRS: dict[str, dict[str, tuple[str, ...]]] = {
    "rds": {
        "both ends": ("--", "--slow"),
        "both ends, each loaded anew while messages come": ("--reload", "50", "--", "ping"),
        "both ends, each unloaded while operations are in progress": (
            "--unload", "50", "--", "ping"),
        "both ends, with faults": ("--", *FAULTS),
        "both ends, with a hostile peer beside them": ("--", "hostile-peer"),
        "IPv6": ("--six", "--", "ping", "datagrams", "tables", "map-and-transfer"),
        "both ends, with flow control": ("--flow", "--", *CREDITS),
        "the client, with flow control": ("--flow", "--server", "intree", "--", *CREDITS),
        "the server, with flow control": (
            "--flow", "--server", "intree", "--swap", "--", *CREDITS),
        "the client": ("--server", "intree", "--", *CLIENT),
        "the server": ("--server", "intree", "--swap", "--", *SERVER),
        "both ends, in the kernel's own test": OWN_TEST},
    "rds-short": {"both ends": ("--reload", "2", "--ask", "--", *SHORT)},
    "debug-rds": {"both ends": ("--reload", "3", "--", *SHORT, "remote-errors", "free-mr",
                                "failing-allocations", "failing-registrations",
                                "failing-mappings", "unmapped-operations")},
    "debug-rds-faults": {
        "both ends, with faults": ("--", *(name for name in FAULTS if name not in CUTS)),
        "both ends, each loaded anew while messages come": ("--reload", "50", "--", "ping"),
        "both ends, each unloaded while operations are in progress": (
            "--unload", "50", "--", "ping")},
}
OUTCOME = re.compile(r"^(not ok|ok) (\S+) \(")


def run(spec, part):
    """Runs each pair of transports in separate machines."""
    base, tally = root.path(), Tally()
    target = kernel.get(base, spec)
    if part.startswith("debug"):
        target = kernel.debug(base, target)
    module.build(base, target, variant="rds")
    found = module.warnings(target, variant="rds")
    tally.judge(f"the build: {'; '.join(found)[:300]}", not found)
    for where, words in PAIRS[part].items():
        tally.add(pair(spec, part, words), f"ours at {where}")
    return tally


def copy_tree(source, target):
    """Copies the kernel's own test to a directory that the machine can read."""
    for name in KERNEL:
        shutil.copytree(source / name, target / name)
    shutil.copy(source / ".config", target)


def pair(spec, part, words):
    """Runs the tests. `words` contains the arguments of selftests/rds/run."""
    tally, text = Tally(), []

    def sink(_kind, data):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        text.append(data.decode(errors="replace"))

    session = Session(Plan(client="none", spec=spec, load=False, timeout=SECONDS[part],
                           debug=part.startswith("debug"), alike=True,
                           # The module with the KUnit suites is needed, because it has a parameter
                           # that determines whether devices can map memory.
                           suites=part.startswith("debug")))
    if words is OWN_TEST:
        copy_tree(session.kernel.tree, session.pair.results / TREE)
    else:
        words = ("./selftests/rds/run", *words)
    status = None
    with session:
        status = session.run(words, sink)
    for line in "".join(text).splitlines():
        if outcome := OUTCOME.match(line):
            tally.judge(outcome[2], outcome[1] == "ok")
    tally.judge(f"the run ended with {status}", status == 0)
    tally.judge("; ".join(c.splitlines()[0] for c in session.complaints), not session.complaints)
    return tally
