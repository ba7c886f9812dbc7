# SPDX-License-Identifier: GPL-2.0
"""Faults at random times under a load that verifies itself.

Each NFS version has one mount on the server's disk. The mounts exist at the same time, and every
fault hits all of them. After each fault every writer must do more work. Then all writers pause, and
the files on the server are compared with the acknowledged data.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import traceback
from typing import Any

from . import (
    bystanders,
    case,
    faults,
    kmsg,
    matrix,
    module,
    mounts,
    namespace,
    rails,
    responder,
    server,
    stacks,
    wait,
    xprt,
)
from .env import ENV, PORT
from .load import RECOVERY_SECONDS, Closed, Direct, Load, Synced
from .workers import Worker

DESCRIPTION = """\
Breaks things at random times under a load that verifies itself, for a time.
Runs as root in the client machine of the lab: see tools/lab torture.  The
schedule follows from the seed, the moments do not.  Writes a JSON file; the last
line reads: N passed, N failed, N skipped (one for each fault and version)."""
VERSIONS = ("3", "4.2")
KIB = 1 << 10
# The number of connections of each mount over two cables.
CONNECTIONS = 2
# A pair for each writer: the class that determines how it writes, and the size of each write in
# bytes. Large writes use chunks, and small writes are inline.
KINDS = ((Direct, 32 * KIB), (Synced, 8 * KIB), (Closed, 1000))
CALM_SECONDS = (0.1, 1.5)
FIRST_BYSTANDER = 100
# Pattern of the message with which a process of the load reports that a system call failed.
APPLICATION_ERROR = re.compile(r"worker (rewrite|look): status .*\[Errno", re.DOTALL)
MOST_TEXT = 4000  # maximum number of characters of a failure's text in the record
# Types of RDMA objects. After a fault there must be as many objects of each type as before the
# fault.
KEPT = ("pd", "cq", "qp", "cm_id")
# The number of RDMA objects of each type must be constant for this time, in seconds. A probe of a
# dead rail also creates objects, so this time is a little longer than the longest probe.
PROBE_SECONDS = 5


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="torture", description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30, help="(default: %(default)g)")
    parser.add_argument("--seed", type=int, help="of the schedule (default: a new one, printed)")
    parser.add_argument("--fault", metavar="NAME", action="append", default=[],
                        choices=[f.name for f in matrix.FAULTS],
                        help="only this one (may be given again)")
    parser.add_argument("--rdma-version", type=int, choices=(1, 2), default=1,
                        help="of RPC-over-RDMA; 2: with our server, or else by way of the "
                        "responder of these tests (default: %(default)d)")
    parser.add_argument("--rails", action="store_true",
                        help="mounts over two cables, and faults of one of them")
    parser.add_argument("--list", action="store_true", help="print the faults, run none")
    parser.add_argument("--json", metavar="FILE", default="/results/torture.json",
                        help="what is known after each round (default: %(default)s)")
    parser.add_argument("--client", choices=("ours", "intree"), default=ENV.client)
    args = parser.parse_args(argv)
    if args.seed is None:
        args.seed = random.randrange(1 << 32)
    return args


def schedule(seed, names, world):
    """Yields an endless sequence of tuples: a fault, the time before the fault, the duration of the
    fault, and a seed for the fault. The same seed and the same table of faults result in the same
    sequence.
    """
    source = random.Random(seed)
    table = [f for f in matrix.FAULTS if f.applies(world) and f.wanted(names)]
    for number in itertools.count():
        # The sequence begins with every fault once, so that a short run contains all faults.
        lap = [fault for fault in table for _ in range(max(fault.share, 1) if number else 1)]
        source.shuffle(lap)
        for fault in lap:
            yield fault, source.uniform(*CALM_SECONDS), source.uniform(*fault.hold), \
                source.randrange(1 << 32)


class World:
    """This machine with its mounts under load. Each fault receives this object as its argument."""

    def __init__(self, transport, over_rails):
        self.log, self.server, self.transport = kmsg.Log(), server.Server(), transport
        self.over_rails = over_rails
        # The in-tree server does not support version two, so the responder serves version two.
        self.by_responder = transport == 2 and ENV.serving == "intree"
        self.random, self.contexts, self.loads, self.mounts = None, [], {}, {}
        self.more_helpers, self.bystanders = [], 0
        self.responder: Any = None
        self.port = PORT

    def build(self):
        """Mounts with each NFS version, and starts the load."""
        module.load()
        if self.by_responder:
            self.responder = self.responder or responder.Responder()
            self.port = self.responder.port
        if self.transport == 2:
            # The client is set to version two only, and not to "version two if possible", because
            # the run has to test version two.
            responder.VERSION.write_text(str(responder.TWO_ONLY))
        if self.over_rails:
            rails.set_up()
        self.resources_without = self.resources()
        for version in VERSIONS:
            context = self.context(version)
            self.contexts.append(context)
            mount = self.mounts[version] = context.mount(
                f"nconnect={CONNECTIONS}" if self.over_rails else "", ENV.disk, port=self.port)
            self.loads[version] = Load(context, mount, kinds=KINDS, name=f"load-{version}")
        for load in self.loads.values():
            load.start()
        self.connect_all()
        self.objects = self.steady_objects() if self.over_rails else self.count_objects()

    def context(self, version):
        return case.Context(version, self.log, self.server)

    def helpers(self, count):
        """Returns `count` additional helper processes in the server machine. Starts the processes
        that do not run yet."""
        while len(self.more_helpers) < count:
            self.more_helpers.append(server.Server())
        return self.more_helpers[:count]

    def hang_up(self):
        """Ends the helper processes in the server machine."""
        for helper in (self.server, self.responder, *self.more_helpers):
            if helper:
                helper.close()
        self.more_helpers = []

    def call_helpers(self):
        """Restarts the helpers that every run needs."""
        self.server.start()
        if self.responder:
            self.responder.start()

    @contextlib.contextmanager
    def without_responder(self):
        """Stops the responder, which is the server for version two, during the `with` block."""
        if self.responder:
            self.responder.close()
        try:
            yield
        finally:
            if self.responder:
                self.responder.start()

    @contextlib.contextmanager
    def another_responder(self):
        """Runs a second responder at the next port of the server during the `with` block."""
        found = responder.Responder(self.port + 1)
        try:
            yield found
        finally:
            found.close()

    def granting(self, count):
        """Makes the server grant this number of credits during the `with` block."""
        return (self.responder.granting(count) if self.responder
                else faults.granting(self.server, count))

    def unmounted(self, undo, version, options="", export=None, port=None, **more):
        """Returns another mount, which is not mounted yet. `undo` will remove the mount."""
        mount = mounts.Mount(version, options, export or ENV.mem, port=port or self.port, **more)
        undo.callback(mount.remove)
        return mount

    def mount(self, undo, version, options="", **more):
        return self.unmounted(undo, version, options, **more).make()

    @contextlib.contextmanager
    def bystander(self, mount):
        """Starts a writer on a mount, and yields the writer. Stops the writer when the `with` block
        ends."""
        self.bystanders += 1
        found = bystanders.Bystander(self.server, mount, FIRST_BYSTANDER + self.bystanders)
        try:
            yield found.at_work()
        finally:
            found.close()

    def connect_all(self):
        """Makes calls on all mounts until each connection is established. Does nothing in a run
        without rails."""
        if not self.over_rails:
            return

        def used():
            Worker(bystanders.look_once, places).join(ENV.patience(60))
            return len(rails.devices()) == len(rails.states())

        places = [mount.where for mount in self.mounts.values()]
        wait.until(used, ENV.patience(RECOVERY_SECONDS), "every connection made")

    @staticmethod
    def resources():
        """Returns how many RDMA objects of each type exist on each device. The result does not
        contain device numbers, because a device that was created again has another device
        number."""
        return sorted(line.partition(": ")[2] for line in module.resources())

    @staticmethod
    def count_objects():
        return {kind: len(module.objects(kind)) for kind in KEPT}

    def steady_objects(self):
        """Waits until the number of RDMA objects of each type has been constant for PROBE_SECONDS.
        Returns these numbers by type."""
        found, clock = self.count_objects(), wait.Clock()

        def stayed():
            nonlocal found, clock
            now = self.count_objects()
            if now != found:
                found, clock = now, wait.Clock()
            return clock.seconds() > PROBE_SECONDS

        wait.until(stayed, ENV.patience(RECOVERY_SECONDS), "the numbers of RDMA objects stay")
        return found

    def pause(self, seconds):
        """Waits for some time while the load runs. The load must not end."""
        clock = wait.Clock()
        wait.until(lambda: self.check() or clock.seconds() >= seconds, seconds + 5, "a pause")

    def check(self):
        for load in self.loads.values():
            load.crew.check()

    def recover(self, start):
        """Waits until every process of the load has done more work. Returns how many seconds that
        took for each NFS version.
        """
        clock, taken = wait.Clock(), {}

        def all_further():
            self.check()
            for version, load in self.loads.items():
                if version not in taken and load.further(start[version], 1):
                    taken[version] = clock.seconds()
            return len(taken) == len(self.loads)

        wait.until(all_further, ENV.patience(RECOVERY_SECONDS),
                   f"the load at work again (so far: {taken}; then {start}, now "
                   f"{ {v: load.written() for v, load in self.loads.items()} })")
        return taken

    def verify(self):
        """Checks that all acknowledged data are on the server, and that there are as many RDMA
        objects as when the load was started.
        """
        with contextlib.ExitStack() as stack:
            for load in self.loads.values():
                stack.enter_context(load.resting())
            for load in self.loads.values():
                load.verify()
            self.connect_all()
            wait.until(lambda: self.count_objects() == self.objects, ENV.patience(20),
                       f"RDMA objects as before: {self.objects}, now {self.count_objects()}")
        if self.transport == 2:
            self.verify_version()

    def verify_version(self):
        """Checks that all connections use version two, and that the responder, if there is one, has
        logged no error of the client."""
        found = responder.versions(self.port)
        case.check(len(found) >= len(self.loads) and set(found) == {"2"}, f"versions: {found}")
        if not self.responder:
            return
        wrong = [line for line in self.responder.call("log")[1] if line.startswith("wrong")]
        case.check(not wrong, "; ".join(wrong))
        # Makes the responder end connections that have already ended at the client.
        self.responder.call("ping")

    def verified(self):
        return {version: load.verified() for version, load in self.loads.items()}

    def end(self):
        """Stops the load, removes the mounts, and unloads the module. Checks that no RDMA objects
        remain."""
        if not self.loads:
            return
        for load in self.loads.values():
            load.crew.__exit__(None, None, None)
            load.verify()
        self.close()
        xprt.wait_gone(60)
        wait.until(lambda: self.resources() == self.resources_without, ENV.patience(60),
                   f"RDMA objects as before {self.resources_without}, now {self.resources()}")
        module.unload()

    def close(self):
        while self.contexts:
            self.contexts.pop().close()
        self.loads, self.mounts = {}, {}

    def give_up(self):
        """Cleans up after a failure, whatever the state of the machine is: ends the load, unmounts,
        and replaces the RDMA devices. Returns True, or raises an exception if this kernel cannot be
        repaired."""
        for load in self.loads.values():
            for worker in load.crew.workers:
                with contextlib.suppress(OSError):
                    worker.kill()
        self.hang_up()
        self.call_helpers()
        faults.repair(self.server)
        namespace.leave()
        # Unmounting may hang, so another process does it.
        with contextlib.suppress(AssertionError):
            Worker(mounts.force_all).join(ENV.patience(60))
            xprt.wait_gone(60)
        subprocess.run(["sh", "-c", faults.BETTER], stderr=subprocess.DEVNULL,
                       timeout=ENV.patience(30), check=False)
        self.contexts, self.loads, self.mounts = [], {}, {}
        # The management queue pair of a device may have failed permanently, so each device is
        # replaced. A separate process does this, because the process that removes a device cannot
        # be killed while it waits for the users of the device.
        for number in range(len(ENV.devices)):
            Worker(new_client_device, number).join(ENV.patience(20))
        return True


def new_client_device(_, number):
    """Replaces an RDMA device of this machine, if it exists."""
    with contextlib.suppress(subprocess.CalledProcessError):
        faults.remove_client_device(number)
    faults.add_client_device(number)


class Record:
    """The results of the rounds so far. They are written to a file after each round."""

    END = "end"   # name of the row for the check that no objects remain after the run

    def __init__(self, args):
        self.path, self.rows, self.failures, self.ended = pathlib.Path(args.json), {}, [], None
        self.head = {"client": ENV.client, "debug": ENV.debug, "kernel": os.uname().release,
                     "seed": args.seed, "minutes": args.minutes, "rdma": args.rdma_version,
                     "rails": args.rails,
                     "faults": {fault.name: fault.what for fault in matrix.FAULTS
                                if args.rails or not fault.rails}}

    def row(self, fault, version):
        empty = {"recovery": [], "bytes": 0, "failed": 0, "errors": 0, "splats": 0}
        return self.rows.setdefault(fault.name, {}).setdefault(version, empty)

    def good(self, fault, recovery, verified):
        for version in fault.versions:
            row = self.row(fault, version)
            row["recovery"].append(round(recovery[version], 2))
            row["bytes"] += verified[version]

    def bad(self, fault, text, splat):
        for version in fault.versions:
            row = self.row(fault, version)
            row["failed"] += 1
            row["errors"] += bool(APPLICATION_ERROR.search(text))
            row["splats"] += bool(splat)
        self.failures.append({"fault": fault.name, "text": text[:MOST_TEXT]})

    def later(self, fault, splat):
        """Records that the kernel reported a problem during the clean-up after a round.
        """
        for version in fault.versions:
            self.row(fault, version)["splats"] += 1
        text = f"afterwards:\nkernel report:\n{splat}"
        self.failures.append({"fault": fault.name, "text": text[:MOST_TEXT]})

    def end(self, text):
        """Records the end of the run. `text` describes the objects that remain, and is empty if
        none remain."""
        self.ended = not text
        if text:
            self.failures.append({"fault": self.END, "text": text[:MOST_TEXT]})

    def write(self):
        text = json.dumps(self.head | {"ended": self.ended, "rows": self.rows,
                                       "failures": self.failures}, indent=1)
        new = self.path.with_suffix(".new")
        new.write_text(text + "\n")
        new.rename(self.path)

    def closing_line(self, names, world):
        """Returns the closing line, which says how many results are passed, failed and skipped.
        There is one result for each fault and NFS version, and one for the check that no objects
        remain."""
        passed, failed, skipped = int(bool(self.ended)), int(not self.ended), 0
        for fault in matrix.FAULTS:
            if not (fault.wanted(names) and fault.belongs(world)):
                continue
            for version in fault.versions:
                row = self.rows.get(fault.name, {}).get(version)
                failed += bool(row and row["failed"])
                passed += bool(row and not row["failed"])
                skipped += not row
        return f"{passed} passed, {failed} failed, {skipped} skipped"


def say(text):
    print(text, flush=True)


def one_round(world, fault, calm, hold, seed):
    """Runs one fault until its end, and then checks the state. Returns two results for each NFS
    version: the recovery time, and the number of compared bytes."""
    if not world.loads:
        world.build()
    world.random = random.Random(seed)
    before = world.verified()
    world.pause(calm)
    with fault.function(world):
        world.pause(hold)
    taken = world.recover({v: load.written() for v, load in world.loads.items()})
    world.verify()
    return taken, {v: count - before[v] for v, count in world.verified().items()}


def attempt(world, action, *args):
    """Calls a function. Returns (value, complaint, kernel report). If the function fails,
    returns None in place of the value. The complaint describes the failure."""
    world.log.mark()
    value, text = None, ""
    try:
        value = action(*args)
    except Exception:  # noqa: BLE001  # a round may fail in any way
        text = traceback.format_exc(limit=-4)
    splat = world.log.report()
    if splat:
        text += f"\nkernel report:\n{splat}"
    elif text:
        text += "".join(f"kernel: {line}\n" for line in world.log.read()[-30:])
        text += "\n".join(stacks.dump(os.getpgid(0)))
    return value, text, splat


def run(args):
    """Runs all rounds. Returns whether all of them were successful."""
    world = World(args.rdma_version, args.rails)
    record, clock, stuck = Record(args), wait.Clock(), ""
    say(f"client {ENV.client}, kernel {os.uname().release}, RPC-over-RDMA version "
        f"{args.rdma_version}, seed {args.seed}, {args.minutes:g} minutes")
    rounds = schedule(args.seed, args.fault, world)
    for number, (fault, calm, hold, seed) in enumerate(rounds, 1):
        if clock.seconds() > args.minutes * 60:
            break
        value, text, splat = attempt(world, one_round, world, fault, calm, hold, seed)
        head = f"{clock.seconds():6.0f} s round {number} {fault.name} ({hold:.1f} s)"
        if text:
            record.bad(fault, text, splat)
            say(f"{head}: FAILED: {text}")
            # The following steps may hang.
            record.write()
            done, text, later = attempt(world, world.give_up)
            if text:
                say(f"after round {number}: {text}")
            if later and not splat:
                record.later(fault, later)
            if not done:
                stuck = f"round {number} left what cannot be put right: no further round"
                break
        else:
            recovery, verified = value
            record.good(fault, recovery, verified)
            times = ", ".join(f"v{v} {seconds:.2f} s" for v, seconds in recovery.items())
            say(f"{head}: back after {times}; {sum(verified.values()) >> 10} KiB verified")
        record.write()
    text = stuck or attempt(world, world.end)[1]
    record.end(text)
    record.write()
    if text:
        say(f"at the end: FAILED: {text}")
        if not stuck:
            attempt(world, world.give_up)
    say(record.closing_line(args.fault, world))
    return not record.failures


def main(argv):
    args = arguments(argv)
    if args.list:
        for fault in matrix.FAULTS:
            say(f"{fault.name:24} {fault.what}")
        return 0
    if args.rdma_version == 2 and args.client != "ours":
        sys.exit("torture: only our client speaks version two")
    if args.rails and (args.client != "ours" or args.rdma_version == 2 or len(rails.DEVICES) < 2):
        sys.exit("torture: rails need our client, version one, and two cables")
    if os.geteuid() or not ENV.server:
        sys.exit("torture: needs root and the lab's environment: tools/lab torture")
    ENV.client, ENV.seed = args.client, args.seed
    # A request to stop raises an exception, so that the code after the `yield` of a fault runs and
    # ends the fault.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    return 0 if run(args) else 1
