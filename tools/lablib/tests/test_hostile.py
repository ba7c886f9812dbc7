# SPDX-License-Identifier: GPL-2.0
"""The hostile responder of the selftests speaks both versions as their XDR defines them."""

import importlib
import json
import pathlib
import socket
import struct
import sys
import types
import unittest
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "selftests"))

from lib.hostile import chunks, headers, message, reverse, row, rpc, tables, version_two
from lib.hostile.message import CALL, REPLY, Message, Segment, word

REPO = pathlib.Path(__file__).resolve().parents[3]
VECTORS = json.loads((REPO / "rust/proto/tests/vectors.json").read_text())
PROBE = next(bytes.fromhex(vector["hex"]) for vector in VECTORS if vector["id"] == "E20")
MAGIC = b"\xf6\xab\x0e\x18"
SMALL_CALL = word(7, CALL, 2, rpc.NFS, 3, 18, 0, 0, 0, 0)
SMALL_REPLY = word(7, REPLY, 0, 0, 0, 0, 0)
READ_CALL = word(7, CALL, 2, rpc.NFS, 3, rpc.READ3, 0, 0, 0, 0)
DATA = b"0123456789"
# The results of a READ: no attributes, the number of bytes, the end of the file.
READ_REPLY = SMALL_REPLY + word(0, len(DATA), 1, len(DATA)) + DATA + bytes(2)
SEGMENT, OTHER = Segment((1, 8192, 0x1000)), Segment((2, 8192, 0x9000))


class Connection:
    """Replaces the RDMA connection, and stores the messages that are sent and the data that are
    written."""

    def __init__(self, *_):
        self.sent, self.written, self.memory, self.number = [], [], {}, 0

    def send(self, octets, *_, **__):
        self.sent.append(octets)

    def send_many(self, octets, count):
        self.sent += [octets] * count

    def wait(self, _):
        return "success"

    def write(self, handle, address, data):
        self.written.append((handle, address, data))
        return "success"

    write_with_immediate = write

    def read(self, handle, _, length):
        return "success", self.memory[handle][:length]


def load_proxy():
    """Loads the responder with a replacement for the RDMA library, because only the virtual
    machines have this library."""
    verbs: Any = types.ModuleType("lib.hostile.verbs")
    verbs.BUFFER, verbs.OK, verbs.Connection = 4096, "success", Connection
    verbs.Device = verbs.Listener = lambda *_: None
    verbs.PyverbsRDMAError = OSError
    sys.modules["lib.hostile.verbs"] = verbs
    return importlib.import_module("lib.hostile.proxy")


proxy = load_proxy()


def described(found):
    """Returns a message in the format in which vectors.json describes messages."""
    said = {"xid": found.xid, "vers": found.wire, "credit": found.credit}
    if found.kind == "RDMA_ERROR":
        name, *versions = found.error
        said.update(proc=4, err=1 + ("ERR_VERS", "ERR_CHUNK", "ERR_OPTION").index(name))
        return {**said, "range": versions} if name == "ERR_VERS" else said
    if found.kind == "RDMA_OPTIONAL":
        return {**said, "proc": 5, "optdir": found.direction, "opttype": found.option[0],
                "optinfo": found.option[1].hex()}
    if found.wire > 1:
        said["direction"] = found.direction
    return {**said, "proc": int(found.kind == "RDMA_NOMSG"),
            "reads": [[position, *segment] for position, segment in found.reads],
            "writes": [list(map(list, chunk)) for chunk in found.writes],
            "reply": found.reply and list(map(list, found.reply))}


class Codec(unittest.TestCase):
    def test_the_vectors_are_read_as_they_say(self):
        versions = set()
        for vector in VECTORS:
            said = dict(vector["decoded"])
            if "vers" not in said:
                continue
            octets = bytes.fromhex(vector["hex"])
            found = message.decode(octets)
            with self.subTest(vector["id"]):
                self.assertEqual(len(octets) - len(found.payload), said.pop("hdrlen"))
                self.assertEqual(len(found.payload), said.pop("payload_len"))
                said.pop("mtype", None)
                self.assertEqual(described(found), said)
                self.assertEqual(found.octets(), octets)
            versions.add(found.wire)
        self.assertEqual(versions, {1, 2})

    def test_the_version_word_can_lie(self):
        lie = Message(7, 2, 1, payload=b"abcd").octets()
        self.assertEqual(lie, word(7, 1, message.GRANT, 0, REPLY, 0, 0, 0) + b"abcd")

    def test_words_keep_their_meaning_in_either_version(self):
        """If a test row changes a word of a chunk list, it changes a word of the same list in both
        versions of the protocol."""
        for wire in message.LAYOUTS:
            answer = Message(7, wire, payload=bytes(8))
            for number, name in ((4, "reads"), (5, "writes"), (6, "reply")):
                octets = row.replaced(answer, number, 2)
                at = len(answer.header()) - 4 * (7 - number)
                self.assertEqual(octets[at:at + 4], word(2), name)
            self.assertEqual(row.replaced(answer, 3, 9)[12:16], word(9))


class Case(unittest.TestCase):
    """A client of the responder. The responder forwards calls to a server, which answers
    immediately."""

    def setUp(self):
        here, self.knfsd = socket.socketpair()
        self.addCleanup(here.close)
        self.addCleanup(self.knfsd.close)
        self.proxy = proxy.Proxy("device", "address", 1)
        self.client = proxy.Client(self.proxy, None, here, MAGIC + bytes((1, 0, 0, 0)), b"")

    def take(self, call, reply=SMALL_REPLY):
        """Delivers a call and the server's reply to the responder. Returns the data that the server
        received."""
        self.client.message(call if isinstance(call, bytes) else call.octets())
        if not self.client.waiting:
            return b""
        length, = struct.unpack(">I", self.knfsd.recv(4))
        forwarded = self.knfsd.recv(length & ~proxy.LAST)
        self.client.record(forwarded[:4] + reply[4:])
        return forwarded

    def ask(self, call, reply=SMALL_REPLY):
        """Delivers a call and the server's reply to the responder. Returns the data that the server
        received and the messages that the client received."""
        return self.take(call, reply), self.last()

    def last(self):
        return message.decode(self.client.sent[-1])

    def wrong(self):
        return [line for line in self.proxy.log if line.startswith("wrong")]


class Honest(Case):
    def test_the_probe_is_answered_in_version_two(self):
        forwarded, answer = self.ask(PROBE)
        self.assertEqual(forwarded, PROBE[32:])
        self.assertEqual((answer.wire, answer.kind, answer.direction, answer.xid),
                         (2, "RDMA_MSG", REPLY, message.numbers(PROBE, 0)[0]))
        self.assertEqual(answer.payload[4:], SMALL_REPLY[4:])
        self.assertEqual(self.wrong(), [])

    def test_calls_are_answered_in_their_version(self):
        for wire in (2, 1):
            _, answer = self.ask(Message(7, wire, direction=CALL, payload=SMALL_CALL))
            self.assertEqual(answer.wire, wire)

    def test_it_grants_what_it_is_told(self):
        self.proxy.do_grant(4)
        for wire in (2, 1):
            _, answer = self.ask(Message(7, wire, direction=CALL, payload=SMALL_CALL))
            self.assertEqual(answer.credit, 4)

    def test_a_reply_that_nobody_waits_for_is_noted(self):
        self.client.record(SMALL_REPLY)
        self.assertEqual(self.client.sent, [])
        self.assertEqual(self.proxy.log, ["a second answer to 0x7"])

    def test_versions_that_are_not_spoken(self):
        for speaks, wire in (((1, 1, 1), 1), ((1, 1, 2), 2), ((3, 9, 2), 2)):
            self.proxy.do_speak(*speaks)
            self.client.message(PROBE)
            answer = self.last()
            self.assertEqual((answer.xid, answer.wire, answer.error),
                             (message.numbers(PROBE, 0)[0], wire, ("ERR_VERS", *speaks[:2])))
        self.proxy.do_speak(2, 2, 2)
        self.client.message(Message(7, 1, payload=SMALL_CALL).octets())
        self.assertEqual(self.last().error, ("ERR_VERS", 2, 2))

    def test_data_go_through_the_write_chunk(self):
        call = Message(7, 2, direction=CALL, writes=[[SEGMENT]], payload=READ_CALL)
        _, answer = self.ask(call, READ_REPLY)
        self.assertEqual(self.client.written, [(1, 0x1000, DATA)])
        self.assertEqual(answer.writes, [[SEGMENT.but(length=len(DATA))]])
        self.assertEqual(answer.payload, READ_REPLY[:-12])

    def test_read_chunks_are_gathered(self):
        self.client.memory = {1: SMALL_CALL, 2: b"data!"}
        call = Message(7, 2, direction=CALL, kind="RDMA_NOMSG",
                       reads=[(0, SEGMENT.but(length=len(SMALL_CALL))),
                              (len(SMALL_CALL), OTHER.but(length=5))])
        forwarded, answer = self.ask(call)
        self.assertEqual(forwarded, SMALL_CALL + b"data!" + bytes(3))
        self.assertEqual(answer.payload, SMALL_REPLY)
        self.assertEqual(self.wrong(), [])

    def test_what_is_long(self):
        """In version two a message may have 4096 bytes even if the client announces a smaller size.
        The header of version two is 4 bytes longer than the header of version one."""
        for wire, fits in ((1, 1024 - 28 - 20), (2, 4096 - 32 - 20)):
            for length, kind in ((fits, "RDMA_MSG"), (fits + 4, "RDMA_NOMSG")):
                reply = SMALL_REPLY.ljust(length, b"x")
                self.client.written.clear()
                _, answer = self.ask(Message(7, wire, direction=CALL, reply=[SEGMENT],
                                             payload=SMALL_CALL), reply)
                self.assertEqual((answer.kind, answer.direction), (kind, REPLY))
                if kind == "RDMA_NOMSG":
                    self.assertEqual(self.client.written, [(1, 0x1000, reply)])
                    self.assertEqual(answer.reply, [SEGMENT.but(length=length)])

    def test_callbacks_have_the_direction_of_a_call(self):
        self.ask(Message(7, 2, direction=CALL, payload=SMALL_CALL))
        callback = reverse.rpc()
        self.client.record(callback)
        found = self.last()
        self.assertEqual((found.wire, found.direction, found.payload), (2, CALL, callback))
        answer = word(reverse.XID, REPLY, 0, 0, 0, 0)
        self.client.message(Message(reverse.XID, 2, payload=answer).octets())
        self.assertEqual(self.knfsd.recv(100)[4:], answer)
        self.assertEqual(self.wrong(), [])

    def test_malformed_calls_are_refused(self):
        good = Message(7, 2, direction=CALL, payload=SMALL_CALL)
        for octets in (row.replaced(good, 4, 2), good.octets()[:28], good.but(payload=b"").octets(),
                       Message(7, 2, direction=CALL, kind="RDMA_NOMSG").octets(),
                       good.header()[:12] + word(5, CALL, 1, 9)):
            self.client.message(octets)
            answer = self.last()
            self.assertEqual((answer.xid, answer.wire, answer.error[0]), (7, 2, "ERR_CHUNK"))

    def test_unknown_options_are_refused(self):
        self.client.message(version_two.option(7, wire=2).octets())
        answer = self.last()
        self.assertEqual((answer.xid, answer.wire, answer.error[0]), (7, 2, "ERR_OPTION"))

    def test_errors_and_what_a_responder_sent_are_not_answered(self):
        for octets in (Message(7, 2, kind="RDMA_ERROR", error=("ERR_OPTION", 0, 0)).octets(),
                       Message(7, 2, 3, kind="RDMA_ERROR", error=("ERR_CHUNK", 0, 0)).octets(),
                       word(7, 2, 32, 4, 9),
                       version_two.option(7, wire=2, direction=REPLY).octets(),
                       word(7, 2, 32, 0, REPLY, 2)):
            self.client.message(octets)
            self.assertEqual(self.client.sent, [])

    def test_wrong_directions_of_the_client_are_noted(self):
        self.client.message(Message(7, 2, direction=REPLY, payload=SMALL_CALL).octets())
        self.assertEqual(len(self.wrong()), 1)

    def test_calls_before_the_first_grant_are_noted(self):
        self.client.message(PROBE)
        self.client.message(Message(7, 2, direction=CALL, payload=SMALL_CALL).octets())
        self.assertEqual(len(self.wrong()), 1)

    def test_a_first_message_that_is_too_long_is_noted(self):
        self.client.message(Message(7, 2, direction=CALL, payload=SMALL_CALL.ljust(1000)).octets())
        self.assertEqual(len(self.wrong()), 1)


def other_than(found, honest):
    """Returns the names of the fields in which a message differs from the correct answer."""
    return {name for name, value in vars(found).items() if value != getattr(honest, name)}


class Rows(Case):
    def played(self, name, wire=2, call=None, reply=SMALL_REPLY):
        """Runs the test row `name`. Returns the messages that the responder has sent."""
        self.client.sent.clear()
        self.proxy.do_arm(name)
        call = call or Message(7, wire, direction=CALL, payload=SMALL_CALL)
        try:
            self.take(call, reply)
        except ConnectionError as ended:
            self.assertEqual(str(ended), "ended here")
        self.assertEqual(self.proxy.left, self.proxy.row.times - 1, f"{name} met no call")
        return self.client.sent

    def test_names_are_unique(self):
        self.assertEqual(len(tables.ROWS), sum(map(len, tables.GROUPS)))

    def test_rows_of_both_versions_do_the_same_in_both(self):
        """A test row sends the same messages in both protocol versions, except for the direction
        word and the version number."""
        compared = 0
        for one in (headers.COMPLETIONS + headers.FIXED_HEADER + chunks.CHUNK_LISTS
                    + chunks.PAYLOAD + reverse.REVERSE):
            if one.protocol or one.on != row.SMALL or one.times > 1:
                continue
            first, second = (list(self.played(one.name, wire)) for wire in (1, 2))
            with self.subTest(one.name):
                self.assertEqual(len(first), len(second))
                for old, new in zip(first, second, strict=True):
                    self.assertEqual(old[8:16], new[8:16])
                    try:
                        said = message.decode(old)
                    except (message.Malformed, KeyError):
                        continue
                    found = message.decode(new)
                    self.assertLessEqual(other_than(found, said), {"wire", "direction"})
                    compared += 1
        self.assertGreater(compared, 30)

    def test_every_row_is_something_else_than_the_right_answer(self):
        for one in version_two.VERSION_TWO + version_two.REVERSE_TWO:
            sent = self.played(one.name)
            honest = Message(7, 2, payload=SMALL_REPLY).octets()
            with self.subTest(one.name):
                self.assertTrue(sent)
                self.assertNotEqual(sent, [honest])

    def test_bytes_of_the_rows(self):
        """The bytes are written by hand, from the text of the specifications."""
        answer = word(7, 2, 32, 0, REPLY, 0, 0, 0) + SMALL_REPLY
        information = b"hello\0\0\0"
        option = word(0x5eadbeef, 2, 32, 5, CALL, 0xff01, 5) + information
        wrong_direction = answer[:16] + word(2) + answer[20:]
        for name, expected in (
                ("direction 2", [wrong_direction]),
                ("BAD_HEADER", [word(7, 2, 32, 4, 2)]),
                ("INVAL_OPTION for a call", [word(7, 2, 32, 4, 3)]),
                ("ERR_VERS for a call", [word(7, 2, 32, 4, 1, 1, 1)]),
                ("unknown option", [option[:8] + word(0) + option[12:], answer]),
                ("option that answers",
                 [word(7, 2, 32, 5, REPLY, 0xff01, 5) + information]),
                ("information whose length wraps",
                 [option[:24] + word(0xfffffffd) + information, answer]),
                ("direction 2 of an option", [option[:16] + word(2) + option[20:], answer]),
                ("padding that is not zero", [option[:-3] + b"\xff\xff\xff", answer]),
                ("option with the Reply behind it", [word(7) + option[4:] + SMALL_REPLY, answer]),
                ("RDMA2_NOMSG of 31 bytes", [word(7, 2, 32, 1, REPLY, 0, 0, 0)[:31], answer]),
                ("a Reply of version one", [word(7, 1, 32, 0, 0, 0, 0) + SMALL_REPLY]),
                ("flood of options", [option] * version_two.MESSAGES + [answer])):
            with self.subTest(name):
                self.assertEqual(self.played(name), expected)

    def test_rows_of_the_probe_meet_the_probe_alone(self):
        for one in version_two.NEGOTIATION + version_two.NOTHING_IN_COMMON:
            self.client.calls = 0
            self.played(one.name, call=message.decode(PROBE))
            self.proxy.do_arm(one.name)
            self.take(Message(7, 2, direction=CALL, payload=SMALL_CALL))
            self.assertEqual(self.proxy.left, one.times, one.name)


if __name__ == "__main__":
    unittest.main()
