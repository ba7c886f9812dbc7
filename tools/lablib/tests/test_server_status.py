# SPDX-License-Identifier: GPL-2.0
"""Tests that `xprtrdma-status --server` evaluates the files of the server's module correctly."""

import io
import json
import pathlib
import tempfile
import unittest
from contextlib import redirect_stderr

from lablib.tests.test_status import status

LISTENER, CLIENT = "[::]:20049", "192.0.2.2:48023"
CONNECTION = """\
device: rxe0
version: 1
grant: 64
calls in process: {waiting}
messages: 90
messages dropped: {dropped}
answers: {answers}
answers that waited: {waited}
callbacks: {callbacks}
callback replies: 3
"""
QUIET = {"waiting": 0, "dropped": 0, "answers": 80, "waited": 0, "callbacks": 3}
MODULE = "sys/module/svcrdma_rs/version"


class Machine:
    """The files in debugfs and /proc that the kernel of a server shows."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.write(MODULE, "0.2.0\n")
        self.write(f"{status.NFSD}/threads", "8\n")
        self.write(f"{status.NFSD}/portlist", "rdma 20049\ntcp 2049\n")
        self.write(f"{status.SERVER}/{LISTENER}/listener", "accepted: 1\nrejected: 0\n")
        self.write(f"{status.SERVER}/bounds", "answers_waited 0\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def client(self, **changed):
        self.write(f"{status.SERVER}/{LISTENER}/{CLIENT}", CONNECTION.format(**QUIET | changed))

    def said(self, before, now, seconds=2.0):
        kernel = status.Kernel(self.root)
        self.client(**before)
        old = status.look_at_server(kernel)
        self.client(**now)
        return status.judge_server(kernel, old, status.look_at_server(kernel), seconds)


class Server(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.machine = Machine(root.name)

    def expect(self, level, text, before, now):
        found = self.machine.said(before, now)
        self.assertEqual([one[0] for one in found], [level])
        self.assertIn(text, found[0][1])

    def test_a_server_that_is_well(self):
        self.expect("ok", "well: 1 connection, 5 answers a second", {}, {"answers": 90})

    def test_calls_without_answers(self):
        self.expect("warning", "has 7 calls and has answered none for 2.0 s", {"waiting": 7},
                    {"waiting": 7})

    def test_dropped_messages(self):
        self.expect("warning", "2 messages were dropped", {}, {"dropped": 2})

    def test_a_slow_client(self):
        self.expect("note", "4 answers found the send queue full", {"waited": 1}, {"waited": 5})

    def test_callbacks_without_replies(self):
        self.expect("note", "6 callbacks have had no reply", {}, {"callbacks": 9})

    def test_ends_of_connections(self):
        self.machine.write(f"{status.SERVER}/{LISTENER}/listener",
                           "accepted: 9\nended, the client disconnected: 4\n"
                           "ended, a transfer failed: 1\n")
        self.expect("note", "1 connection ended: a transfer failed", {}, {})

    def test_what_is_missing(self):
        self.machine.write(f"{status.NFSD}/portlist", "tcp 2049\n")
        self.expect("error", "does not listen to RDMA", {}, {})
        self.machine.write(f"{status.NFSD}/threads", "0\n")
        self.expect("error", "nfsd does not run", {}, {})
        (self.machine.root / MODULE).unlink()
        with self.assertRaises(status.StatusError):
            self.machine.said({}, {})

    def test_the_report(self):
        self.machine.client()
        found = status.report_of_server(status.Kernel(self.machine.root), 0)
        self.assertEqual(json.loads(json.dumps(found))["listeners"][LISTENER][CLIENT]["grant"],
                         "64")
        self.assertEqual(list(found["listeners"]), [LISTENER])
        text = status.shown_server(found)
        for part in ("0.2.0", "8 threads", "OK      well: 1 connection", CLIENT, "grant 64"):
            self.assertIn(part, text)

    def test_options_that_do_not_go_together(self):
        for more in (["/mnt"], ["--watch"], ["--latency"], ["--from", "/nowhere"]):
            with self.assertRaises(SystemExit), redirect_stderr(io.StringIO()):
                status.main(["--server", *more])
