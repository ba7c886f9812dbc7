# SPDX-License-Identifier: GPL-2.0
"""Runs each case in its own process: enforces the limits, judges the result, and cleans up."""

import contextlib
import os
import select
import signal
import sys
import time
import traceback

from . import faults, kmsg, ktap, module, mounts, namespace, server, serving, stacks
from .case import Context, Skip
from .env import ENV

PASSED, FAILED, SKIPPED = 0, 1, 4
# Time limit in seconds within which a killed case must end. If the case has not ended by then, the
# run ends.
DEATH_SECONDS = 60


class Runner:
    """Runs the cases, and keeps the objects that several cases use: the kernel log, the helper and
    the results."""

    def __init__(self, runs):
        """Prepares a run. `runs` contains pairs of a case and an NFS version (or None)."""
        self.runs, self.report = runs, ktap.Report(len(runs))
        self.log = kmsg.Log()
        self.helper: server.Server | None = None
        self.child: int | None = None

    def run(self, stop=False):
        """Runs all cases. With `stop`, no case is run after the first failure. Returns the tally
        of passed, failed and skipped cases."""
        for case, version in self.runs:
            name = case.name + (f" vers={version}" if version else "")
            start = time.monotonic()
            status, text = self.one(case, version)
            if text:
                self.report.diagnose(text)
            self.report.diagnose(f"{time.monotonic() - start:.1f} s")
            reason = text.strip().splitlines()[-1] if status == SKIPPED and text.strip() else None
            self.report.result(name, status == PASSED, reason)
            if stop and self.report.tally.failed:
                break
        return self.report.tally

    def one(self, case, version):
        """Runs a case and cleans up after it. Returns (status, diagnostics)."""
        if not self.helper:
            self.helper = server.Server()
        self.log.mark()
        status, text = self.supervise(case, version)
        try:
            complaints = self.inspect(status)
        except Exception:  # noqa: BLE001  # cleaning up may fail in any way
            complaints = [traceback.format_exc(limit=-3)]
        if status not in (PASSED, SKIPPED):
            # The helper is started again for the next case, because this case may have stopped the
            # helper in the middle of an answer.
            self.helper.close()
            self.helper = None
            text += "".join(f"kernel: {line}\n" for line in self.log.read()[-40:])
        if complaints:
            status, text = FAILED, text + "\n".join(complaints)
        return status, text

    def inspect(self, status):
        """Checks the machine after a case, and undoes the changes that the case has left. Returns a
        list of the problems."""
        complaints = []
        left = mounts.remove_all()
        if left:
            complaints.append(f"left mounted: {' '.join(left)}")
        report = self.log.report()
        if report:
            complaints.append(f"kernel report:\n{report}")
        if status not in (PASSED, SKIPPED):
            # The case may have ended before it had undone all its changes.
            complaints += faults.repair(self.helper)
            namespace.leave()
            serving.leave()
        return complaints

    def supervise(self, case, version):
        """Forks the case, reads its output, and kills it when its time limit is over."""
        output, child_output = os.pipe()
        sys.stdout.flush()
        self.child = os.fork()
        if not self.child:
            os.close(output)
            self.become(case, version, child_output)
        os.close(child_output)
        try:
            text, ended = self.listen(output, case.limit())
            if not ended:
                text += f"no end after {case.limit():.0f} s; tasks:\n"
                text += "\n".join(stacks.dump(self.child)) + "\n"
            # Processes that the case has left running must not disturb the next case.
            self.kill()
            status = self.reap()
        finally:
            os.close(output)
            self.child = None
        if not ended:
            return FAILED, text
        if status not in (PASSED, FAILED, SKIPPED):
            return FAILED, text + f"ended with status {status}\n"
        return status, text

    @staticmethod
    def listen(output, limit):
        """Collects the output of the case until the case ends or its time limit is over. Returns a
        tuple: the output, and whether the case has ended."""
        text, deadline = b"", time.monotonic() + limit
        while True:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([output], [], [], left)[0]
            if not ready:
                return text.decode(errors="replace"), False
            data = os.read(output, 65536)
            if not data:
                return text.decode(errors="replace"), True
            text += data

    def kill(self):
        """Ends the whole process group of the case."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.child:
                os.killpg(self.child, signal.SIGKILL)

    def reap(self):
        """Returns the status of the case's process, which has ended or was just killed."""
        deadline = time.monotonic() + DEATH_SECONDS
        assert self.child
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        raise RuntimeError(f"process {self.child} survives SIGKILL:\n"
                           + "\n".join(stacks.dump(self.child)))

    def become(self, case, version, output):
        """Runs the case in the child process. Never returns."""
        status = FAILED
        try:
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            # From now on only descriptors 1 and 2 keep the pipe open. So the parent reads the end
            # of the output when this process has ended.
            os.close(output)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            status = self.body(case, version)
        except BaseException:  # noqa: BLE001  # a child must end here
            traceback.print_exc(limit=-6)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def body(self, case, version):
        """Runs the function of the case, and then the functions that the case has deferred. All of
        them must succeed."""
        status, context = PASSED, Context(version, self.log, self.helper)
        try:
            if case.loaded:
                module.load()
            else:
                module.unload()
            case.function(context)
        except Skip as reason:
            print(reason)
            status = SKIPPED
        except BaseException:  # noqa: BLE001  # reported, then cleaned up
            traceback.print_exc(limit=-6)
            status = FAILED
            for tell in context.witnesses:
                with contextlib.suppress(Exception):
                    print(tell())
            mounts.close_files()
        try:
            context.close()
        except BaseException:  # noqa: BLE001
            traceback.print_exc(limit=-6)
            status = FAILED
        if status == FAILED and not case.loaded:
            # The next case must not find the module with the parameters of this case.
            with contextlib.suppress(Exception):
                module.unload()
        return status

    def close(self):
        """Ends the running case, unmounts all NFS mounts, stops the helper and unloads the client
        module, even after a request to stop."""
        if self.child:
            self.kill()
            self.reap()
        for where in mounts.remove_all():
            self.report.diagnose(f"unmounted at the end: {where}")
        if self.helper:
            self.helper.close()
        if ENV.client and module.loaded():
            module.unload()
