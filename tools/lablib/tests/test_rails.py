# SPDX-License-Identifier: GPL-2.0
"""Tests that xprtrdma-rails detects whether addresses belong to one server or to two servers, or
reports that this cannot be detected."""

import contextlib
import io
import pathlib
import socket
import socketserver
import struct
import sys
import threading
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

from lablib.base.paths import REPO

LOADER = SourceFileLoader("xprtrdma_rails", str(REPO / "tools/xprtrdma-rails"))
SPEC = spec_from_loader(LOADER.name, LOADER)
assert SPEC
rails: Any = module_from_spec(SPEC)
sys.modules[LOADER.name] = rails
LOADER.exec_module(rails)
SECONDS = 10


class State:
    """The state of a server, which is the same at all of its addresses."""

    def __init__(self, major=b"host", minor=0, scope=b"host"):
        self.major, self.minor, self.scope = major, minor, scope
        self.clients, self.sessions, self.next = {}, {}, 7


class Answers(socketserver.BaseRequestHandler):
    """An NFSv4.1 server that supports only the calls by which a server identifies itself."""

    server: "Address"

    def handle(self):
        # The client disconnects as soon as it has the information that it needs. So the connection
        # may end at any time.
        with contextlib.suppress(ConnectionError):
            self.serve()

    def serve(self):
        while head := self.request.recv(4, socket.MSG_WAITALL):
            call = b""
            length = struct.unpack("!I", head)[0] & 0x7fffffff
            while len(call) < length:
                call += self.request.recv(length - len(call))
            self.request.sendall(self.server.twist(self.answer(call)))

    def answer(self, call):
        xid, kind, rpc, program, version, procedure = struct.unpack_from("!6I", call)
        test = self.server.test
        test.assertEqual((kind, rpc, program, version, procedure), (0, 2, 100003, 4, 1))
        place = 24
        for _ in range(2):
            length = struct.unpack_from("!I", call, place + 4)[0]
            place += 8 + (length + 3) // 4 * 4
        tag, minor, count, operation = struct.unpack_from("!4I", call, place)
        test.assertEqual((tag, minor, count), (0, 1, 1))
        result = self.operate(operation, call[place + 16:])
        body = struct.pack("!7I", xid, 1, 0, 0, 0, 0, 0) + struct.pack(
            "!4I", 0, 1, operation, 0) + result
        return struct.pack("!I", 0x80000000 | len(body)) + body

    def operate(self, operation, rest):
        state = self.server.state
        if operation == 42:
            verifier, length = rest[:8], struct.unpack_from("!I", rest, 8)[0]
            owner = rest[12:12 + length]
            known = state.clients.get((verifier, owner))
            if not known:
                known = state.clients[verifier, owner] = [state.next, False]
                state.next += 1
            flags = 0x80000000 if known[1] else 0
            return (struct.pack("!QII", known[0], 1, flags) + struct.pack("!IQ", 0, state.minor)
                    + rails.opaque(state.major) + rails.opaque(state.scope) + bytes(4))
        number = struct.unpack_from("!Q", rest)[0]
        if operation == 43:
            for client in state.clients.values():
                client[1] |= client[0] == number
            session = rest[:8] * 2
            state.sessions[session] = number
            return session + bytes(4 * 16)
        if operation == 44:
            # If a test has changed an earlier reply, the client may name a session that does not
            # exist.
            state.sessions.pop(rest[:16], None)
        else:
            self.server.test.assertEqual(operation, 57)
            state.clients = {k: v for k, v in state.clients.items() if v[0] != number}
        return b""


class Address(socketserver.ThreadingTCPServer):
    """A simulated server that listens on one address. The function `twist` changes its replies."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self, test, address, state, port=0, twist=lambda reply: reply):
        super().__init__((address, port), Answers)
        self.test, self.state, self.twist = test, state, twist
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


def status_word(reply, place, value):
    """Returns a reply with one word replaced."""
    return reply[:place] + struct.pack("!I", value) + reply[place + 4:]


def cut_off(reply, length):
    """Returns an RPC record that contains only the first `length` bytes of a reply."""
    body = reply[4:4 + length]
    return struct.pack("!I", 0x80000000 | len(body)) + body


class Checking(unittest.TestCase):
    def ask(self, *servers, **more):
        """Starts these servers at the addresses 127.0.0.1, 127.0.0.2 and so on. Runs the program
        for these addresses. Returns (exit status, text)."""
        with contextlib.ExitStack() as stack:
            port, group = 0, []
            for number, state in enumerate(servers, 1):
                group.append(f"127.0.0.{number}")
                if state:
                    made = Address(self, group[-1], state, port, **more)
                    stack.callback(made.server_close)
                    stack.callback(made.shutdown)
                    port = made.server_address[1]
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = rails.main(["--port", str(port or 1), "--timeout", str(SECONDS),
                                   "=".join(group)])
            return code, out.getvalue()

    def test_one_server_at_three_addresses(self):
        state = State()
        code, text = self.ask(state, state, state)
        self.assertEqual(code, 0, text)
        self.assertIn("127.0.0.1=127.0.0.2=127.0.0.3: one server", text)
        self.assertIn("127.0.0.1: owner host/0, scope host", text)
        self.assertEqual(text.count("the same server"), 2)
        self.assertEqual((state.clients, state.sessions), ({}, {}), "what is left at the server")

    def test_another_server_by_its_owner_or_scope(self):
        for other in (State(major=b"host2"), State(scope=b"host2")):
            code, text = self.ask(State(), other)
            self.assertEqual(code, 1, text)
            self.assertIn("NOT one server", text)
            self.assertIn("127.0.0.2: ANOTHER SERVER: owner", text)

    def test_another_server_of_the_same_name(self):
        # In the first comparison, both servers also assign the same client ID.
        code, text = self.ask(State(), State())
        self.assertEqual(code, 1, text)
        self.assertIn("127.0.0.2: ANOTHER SERVER: it calls itself the same", text)
        foreign, mine = State(), State()
        foreign.next = 99
        self.assertEqual(self.ask(mine, foreign)[0], 1)

    def test_sessions_that_do_not_span_the_addresses(self):
        one, other = State(), State(minor=1)
        other.clients = one.clients
        code, text = self.ask(one, other)
        self.assertEqual(code, 1, text)
        self.assertIn("sessions do not span", text)

    def test_the_worst_of_a_group_and_of_all_counts(self):
        state = State()
        code, text = self.ask(state, None, state)
        self.assertEqual(code, 2, text)
        self.assertIn("127.0.0.2: cannot be told: connection refused", text)
        self.assertIn("127.0.0.3: the same server", text)
        code, text = self.ask(state, None, State(major=b"x"))
        self.assertEqual(code, 1, text)
        # The test runs the program with several groups of addresses: a correct group, an unknown
        # group and a wrong group, in several orders.
        with contextlib.ExitStack() as stack:
            port = 0
            for number, one in enumerate((state, state, State(major=b"x")), 1):
                made = Address(self, f"127.0.0.{number}", one, port)
                port = made.server_address[1]
                stack.callback(made.server_close)
                stack.callback(made.shutdown)
            well, unknown, wrong = (f"127.0.0.1=127.0.0.{n}" for n in (2, 9, 3))
            for groups, worst in (((well, unknown, well), 2), ((well, wrong, unknown), 1),
                                  ((unknown, wrong, well), 1), ((well, well), 0)):
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(rails.main(["--port", str(port), *groups]), worst, groups)

    def test_what_cannot_be_asked_is_no_other_server(self):
        for twist, said in (
                (lambda r: status_word(r, 4 + 20, 2), "it has no NFSv4"),
                (lambda r: status_word(r, 4 + 24, 10021), "it has no NFSv4.1"),
                (lambda r: status_word(r, 4 + 8, 1), "refuses the call"),
                (lambda r: status_word(r, 4, 0), "is no NFS server"),
                (lambda r: status_word(r, 0, 0x80000000), "is no NFS server"),
                (lambda r: status_word(r, 0, 0xffffffff), "is no NFS server"),
                (lambda r: status_word(r, 4 + 32, 2), "makes no sense"),
                (lambda r: status_word(r[:48], 0, 0x80000000 | 44), "too short")):
            with self.subTest(said):
                code, text = self.ask(State(), State(), twist=twist)
                self.assertEqual(code, 2, text)
                self.assertEqual(text.count(said), 2, text)

    def test_a_server_that_says_too_little_or_lies_about_lengths(self):
        # The test cuts a reply at each length, and replaces each of its words by a large number.
        whole = 100
        for cut in range(0, whole, 4):
            for twist in (lambda r, n=cut: cut_off(r, n),
                          lambda r, n=cut: status_word(r, 4 + n, 0x7fffffff)):
                state = State()
                code, text = self.ask(state, state, twist=twist)
                self.assertEqual(text.count("\n"), 3, text)
                self.assertIn(code, (0, 1, 2), text)

    def test_names_of_a_server_are_no_commands_for_a_terminal(self):
        state = State(major=b"\x1b[2Jhost\\ \xff")
        code, text = self.ask(state, state)
        self.assertEqual(code, 0)
        self.assertIn(r"\x1b[2Jhost\x5c\x20\xff", text)

    def test_tables_are_read_as_the_module_does(self):
        found = rails.groups("192.0.2.1=198.51.100.1, 2001:db8::1=2001:db8::2=192.0.2.3\n")
        self.assertEqual([[str(a) for a in group] for group in found],
                         [["192.0.2.1", "198.51.100.1"],
                          ["2001:db8::1", "2001:db8::2", "192.0.2.3"]])
        self.assertEqual(rails.groups("\n"), [])
        for text in ("192.0.2.1", "192.0.2.1=", "192.0.2.1=host", "=192.0.2.1"):
            with self.assertRaises(rails.TableError, msg=text):
                rails.main([text])

    def test_wrong_arguments_are_no_doubt_about_a_group(self):
        for argv in (["--port", "0"], ["--timeout", "x"], ["--nothing"]):
            with self.assertRaises(SystemExit) as caught, \
                    contextlib.redirect_stderr(io.StringIO()):
                rails.main(argv)
            self.assertEqual(caught.exception.code, rails.UNUSABLE)

    def test_without_the_module_the_reason_is_said(self):
        table, rails.TABLE = rails.TABLE, pathlib.Path("/nonexistent/rdma_rail_servers")
        try:
            with self.assertRaisesRegex(rails.TableError, "is xprtrdma_rs loaded"):
                rails.main([])
        finally:
            rails.TABLE = table


if __name__ == "__main__":
    unittest.main()
