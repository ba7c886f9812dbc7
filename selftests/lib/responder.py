# SPDX-License-Identifier: GPL-2.0
"""Controls the hostile responder from the client machine: requests actions of the responder, and
checks how the client reacts."""

import contextlib
import errno
import os
import pathlib
import re
import threading

from . import faults, pattern, server, wait, xprt
from .buffers import Buffer
from .case import check, equal
from .env import ENV, PORT, REPO
from .hostile import row as rows
from .hostile.message import GRANT
from .workers import Worker, together

PROXY_PORT = 20050
# The file that determines the protocol version of new transports. `ONE`: version one. `TWO`:
# version two if the peer supports it, otherwise version one. `TWO_ONLY`: only version two.
VERSION = pathlib.Path("/proc/sys/sunrpc/rdma_version")
ONE, TWO, TWO_ONLY = 1, 2, 3
# For each version, the setting that makes a client use only this version.
ALONE = {1: ONE, 2: TWO_ONLY}
# The proxy is a Python package, so it is started in the directory above the package.
START = ("import os, runpy, sys; os.chdir(sys.argv[1]); sys.path.insert(0, '.'); "
         "sys.argv[:2] = ['proxy']; runpy.run_module('lib.hostile.proxy', run_name='__main__')")
BLOCK = 8192
# Time limit in seconds within which a call must succeed or fail. It is long enough for several
# reconnects and a timeout.
END_SECONDS = 20
# Counters that also change on a connection without errors.
USUAL = {"local_inv", "mrs_allocated", "mrs_in_use", "reminv", "stale_epoch", "callbacks",
         "late_replies", "no_region", "send_queue_full", "repeated_registration"}


class Responder(server.Server):
    """The proxy that runs on the server machine, between this client and knfsd."""

    def __init__(self, port=PROXY_PORT):
        super().__init__(("python3", "-B", "-c", START, f"{REPO}/selftests", faults.device(),
                          ENV.server, str(port)))
        self.port = port

    @contextlib.contextmanager
    def granting(self, count):
        """Makes the responder grant this number of credits during the `with` block."""
        self.call("grant", count)
        try:
            yield
        finally:
            self.call("grant", GRANT)


@contextlib.contextmanager
def preferred(value):
    """Makes transports that are created during the `with` block use this version."""
    before = VERSION.read_text()
    VERSION.write_text(str(value))
    try:
        yield
    finally:
        VERSION.write_text(before)


def transport(port):
    """Returns the debugfs directory of the transport to this port."""
    for directory in xprt.transports():
        if f":{port}\n" in (directory / "state").read_text():
            return directory
    raise AssertionError(f"no transport to port {port}")


def forgotten():
    """Waits until no transport exists. When the last transport of a server ends, the client forgets
    what it knows about the server."""
    xprt.wait_gone()
    wait.until(lambda: not xprt.transports(), ENV.patience(20), "no transport left in debugfs")


def versions(port):
    """Returns the protocol version of each connection to this port."""
    texts = [(directory / "state").read_text() for directory in xprt.transports()]
    found = [re.search(r"^version: (\d)", text, re.MULTILINE) for text in texts
             if f":{port}\n" in text]
    return [match[1] for match in found if match]


def replies(log):
    """Returns the number of callbacks that the client has answered, and the number of callbacks
    that it has refused."""
    return [len([line for line in log if line.startswith(word)])
            for word in ("answered", "refused")]


def refusals(log):
    """Returns the errors with which the client has refused messages."""
    return [line.split()[1] for line in log if line.startswith("refused")]


def close(fd):
    """Closes a file, unless the clean-up after a failed case has closed it."""
    try:
        os.close(fd)
    except OSError as problem:
        check(problem.errno == errno.EBADF, problem)


class Stage:
    """The environment of a test: a mount through the responder, a mount without the responder (the
    "honest" mount), and methods that make each type of call."""

    def __init__(self, t, version="3", options="", protocol=1):
        self.t, self.protocol = t, protocol
        self.responder = Responder()
        t.defer(self.responder.close)
        if protocol > 1:
            t.defer(forgotten)
        self.honest = t.mount(version="3", options="noac")
        with preferred(protocol) if protocol > 1 else contextlib.nullcontext():
            self.mount = t.mount(version=version, port=self.responder.port,
                                 options=f"noac,{options}" if options else "noac")
        self.top = t.directory(self.mount)
        here, there = self.top.path("file")
        t.server.write(there, pattern.data(5, 0, BLOCK))
        self.name, self.buffer, self.names = there, Buffer(BLOCK), 1
        self.fd = os.open(here, os.O_RDWR | os.O_DIRECT)
        t.defer(close, self.fd)
        self.honest_fd = os.open(f"{self.honest.where}/case/file", os.O_RDONLY | os.O_DIRECT)
        t.defer(close, self.honest_fd)
        self.debugfs = transport(self.responder.port)
        if protocol > 1:
            equal(versions(self.responder.port), ["2"], "versions")

    # The next methods make calls.

    def small(self):
        os.statvfs(self.mount.where)

    def caller(self):
        """Returns a process that makes one small call."""
        def small(_):
            self.small()
        return Worker(small)

    def read(self, buffer=None):
        found = (buffer or self.buffer).read(self.fd, BLOCK, 0)
        problem = pattern.difference(found, pattern.data(5, 0, BLOCK), 0)
        check(problem is None, problem)

    def two(self):
        together(2, lambda _: self.read(Buffer(BLOCK)))

    def crowd(self):
        together(rows.AT_ONCE, lambda _: [self.small() for _ in range(4)])

    def write(self):
        self.buffer.write(self.fd, pattern.data(5, 0, BLOCK), 0)
        self.t.server.expect(self.name, pattern.data(5, 0, BLOCK))

    def new_name(self):
        """Changes the directory, so that the client must request the directory from the server."""
        self.t.server.call("create", self.top.there, 1, f"name{self.names}-")
        self.names += 1

    def list(self):
        self.new_name()
        equal(len(os.listdir(self.top.here)), self.names, "names")

    # The next methods return the client's state and counters.

    def counters(self):
        lines = (self.debugfs / "counters").read_text().splitlines()
        return {name: int(number) for name, number in (line.split(": ") for line in lines)}

    def moved(self, before):
        """Returns the counters that have changed since `before`, and by how much. Counters in USUAL
        are left out."""
        return {name: number - before[name] for name, number in self.counters().items()
                if number != before[name] and name not in USUAL}

    def causes(self):
        """Returns a dictionary from the epoch (number) of each ended connection to the cause of its
        end, the newest connection first."""
        return {int(epoch): cause for epoch, cause, _ in xprt.ends(self.debugfs / "state")}

    def numbers(self, name):
        """Returns the numbers in a line of the transport's state."""
        text = (self.debugfs / "state").read_text()
        line = re.search(f"^{name}: (.*)", text, re.MULTILINE)
        if not line:
            raise AssertionError(f"no {name} in debugfs: {text}")
        return [int(number) for number in re.findall(r"\d+", line[1])]

    def directory(self):
        """Returns the directory of the transport in the sysfs directory of sunrpc."""
        return next(d for d in xprt.directories() if d.name.split("-")[1] == self.debugfs.name)

    def wait_senders(self, count, what):
        """Waits until `count` calls wait for the send lock."""
        directory = self.directory()
        wait.until(lambda: xprt.info(directory)["sending_q_len"] == count, ENV.patience(10), what)

    def is_to_be_closed(self):
        """Returns whether the RPC client must still close the connection."""
        return "CLOSE_WAIT" in (self.directory() / "xprt_state").read_text().split()

    def disconnect(self):
        """Closes the connection to the responder. The client immediately makes a new connection."""
        (self.debugfs / "disconnect").write_text("1")

    def ends(self, call):
        """Makes a call. Returns the errno with which the call ends, and its duration in seconds.
        The call must end within a time limit."""
        result: list[int | str | None] = []

        def work():
            try:
                call()
                result.append(0)
            except OSError as problem:
                result.append(problem.errno)
            except AssertionError as problem:
                result.append(str(problem))

        thread, clock = threading.Thread(target=work, daemon=True), wait.Clock()
        thread.start()
        thread.join(ENV.patience(END_SECONDS))
        check(result, f"the call did not end within {ENV.patience(END_SECONDS):.0f} s")
        return result[0], clock.seconds()

    # The next methods run rows of the tables. Each row describes how the responder violates the
    # protocol.

    def play(self, row):
        """Makes the responder violate the protocol as a row describes. Raises an error unless the
        client reacts as it must."""
        call = getattr(self, row.on)
        # An earlier test may have ended the connection. This call makes the client connect again.
        self.small()
        before, epoch = self.counters(), self.numbers("epoch")[0]
        self.responder.call("arm", row.name)
        found, seconds = self.ends(call)
        wanted = row.reaction.by(self.protocol)
        left, log = self.settle(before, wanted)
        moved = self.moved(before)
        lost = [cause for number, cause in self.causes().items() if number >= epoch]
        self.t.note(f"{row.rules}: {row.name}: {errno.errorcode.get(found, found or 'done')} in "
                    f"{seconds:.2f} s, {moved}, lost {lost}")
        for line in log:
            self.t.note(f"    {line}")
        equal(left, 0, "calls that the row did not meet")
        equal(found, wanted.errno, "the end of the call")
        self.judge_counters(moved, wanted)
        equal(len(lost), wanted.times if wanted.lost else 0, f"connections lost ({lost})")
        check(wanted.lost == "any" or all(cause == wanted.lost for cause in lost),
              f"lost by {lost}")
        answered, refused = replies(log)
        check(wanted.refused in (refused, None), f"{refused} messages that the client refused")
        check(wanted.answered in (answered, None), f"{answered} callbacks answered")
        for refusal in refusals(log):
            equal(refusal, wanted.refusal, "the error that the client sends")
        wrong = [line for line in log if line.startswith("wrong")]
        check(not wrong, "; ".join(wrong))
        if row.on not in (rows.SMALL, rows.CROWD):
            self.probe()
        self.undisturbed()

    def settle(self, before, wanted):
        """Waits until the expected counters have changed, or until a time limit is over. Returns
        two values: how many of the row's misbehaviours have not happened, and the responder's log.

        The wait is needed, because a message for which no call waits may arrive after the tested
        call has ended.
        """
        left, log = self.responder.call("log")

        def moved():
            nonlocal left, log
            if replies(log)[0] < (wanted.answered or 0) or replies(log)[1] < (wanted.refused or 0):
                left, log = self.responder.call("log")
                return False
            now = self.counters()
            return all(sum(now[n] - before[n] for n in names) >= least
                       for names, (least, _) in wanted.counters)

        # If counters have not changed within the time limit, the caller reports an error.
        with contextlib.suppress(wait.Timeout):
            wait.until(moved, ENV.patience(1), "counters")
        return left, log

    @staticmethod
    def judge_counters(moved, wanted):
        for names, (least, most) in wanted.counters:
            found = sum(moved.pop(name, 0) for name in names)
            check(least <= found <= most, f"counter {names}: {found}, expected {least}")
        equal(moved, {}, "other counters")

    def probe(self):
        """Checks that the responder can no longer access the memory of a completed call."""
        self.small()
        status = self.responder.call("probe")
        if status:
            self.t.note(f"    memory touched afterwards: {status}")
            equal(status, "rem_access", "access to memory of a call that is over")

    def undisturbed(self):
        """Checks that the mount without the responder still works on its first connection."""
        found = Buffer(BLOCK).read(self.honest_fd, BLOCK, 0)
        check(found == pattern.data(5, 0, BLOCK), "content on the honest mount")
        equal(self.honest.connects(), 1, f"connections of the mount on port {PORT}")

    def play_all(self, table, share=1):
        """Runs all tests (rows) of a table, and reports all errors together.

        In a small run, only every `share`-th row is run. The seed selects the first row.
        """
        complaints = []
        for row in table if ENV.full else table[ENV.seed % share::share]:
            if (row.full and not ENV.full) or row.protocol not in (self.protocol, None):
                continue
            try:
                self.play(row)
            except AssertionError as problem:
                complaints.append(f"{row.rules}, {row.name}: {problem}")
                self.t.note(f"    NOT AS IT MUST BE: {problem}")
            report = self.t.log.report()
            check(not report, f"{row.rules}, {row.name}: kernel report\n{report}")
        check(not complaints, "\n".join(complaints))


__all__ = ["PROXY_PORT", "Responder", "Stage", "rows"]
