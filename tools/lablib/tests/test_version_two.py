# SPDX-License-Identifier: GPL-2.0
"""Tests the decoder of version two with bytes that were written by hand from the XDR of the draft.
"""

import unittest

from lablib.checks import cable, version_two
from lablib.checks.version_two import CALL, Connection, Judgement, Malformed, Segment, Sent, decode

NO_LISTS = "00000000 00000000 00000000"
# A NULL call of NFS: 32 bytes of header, 40 bytes of RPC.
RPC_CALL = ("2b000001 00000000 00000002 000186a3 00000003 00000000 00000000 00000000 00000000 "
            "00000000")
PROBE_HEAD = "2b000001 00000002 00000020 00000000 00000000"
PROBE = f"{PROBE_HEAD} {NO_LISTS} {RPC_CALL}"
RPC_REPLY = "2b000001 00000001 00000000 00000000 00000000 00000000"
AGREED_HEAD = "2b000001 00000002 00000010 00000000 00000001"
AGREED = f"{AGREED_HEAD} {NO_LISTS} {RPC_REPLY}"
# The words of a Read segment: a position, a handle, a length, an offset.
READ = "00000084 00004b02 00001000 00000000 7f000000"
SEGMENT = "00004b03 00002000 00000000 7f100000"
# The end of a security context: a NULL call with RPCSEC_GSS, its credentials and its verifier.
DESTROY_RPC = ("2b000001 00000000 00000002 000186a3 00000003 00000000 00000006 00000014 00000001 "
               "00000003 00000007 00000002 00000000 00000006 00000004 01020304")
ERROR = "2b000002 00000002 00000010 00000004"
OPTION = "2b000003 00000002 00000020 00000005 00000000 00000007 00000005 68656c6c 6f000000"


def octets(text):
    return bytes.fromhex(text)


class Decoding(unittest.TestCase):
    def test_the_probe(self):
        message = decode(octets(PROBE))
        self.assertEqual((message.xid, message.version, message.credits, message.procedure,
                          message.direction), (0x2b000001, 2, 32, version_two.MSG, CALL))
        self.assertFalse(message.has_chunks())
        self.assertEqual(len(message.payload), 40)
        self.assertEqual(str(message), "xid 2b000001, version 2, credits 32, MSG, call, payload "
                         "40: program 100003 version 3 procedure 0, auth none")

    def test_every_kind_of_chunk(self):
        message = decode(octets(
            f"2b000005 00000002 00000020 00000001 00000000 00000001 {READ} 00000001 {READ} "
            f"00000000 00000001 00000002 {SEGMENT} {SEGMENT} 00000001 00000000 00000000 "
            f"00000001 00000001 {SEGMENT}"))
        read, target = Segment(0x4b02, 4096, 0x7f000000), Segment(0x4b03, 8192, 0x7f100000)
        self.assertEqual(message.reads, [(132, read), (132, read)])
        self.assertEqual(message.writes, [[target, target], []])
        self.assertEqual(message.reply, [target])
        self.assertEqual(message.payload, b"")
        self.assertEqual(str(message), (
            "xid 2b000005, version 2, credits 32, NOMSG, call, "
            "read 132+0x4b02:4096@0x7f000000, read 132+0x4b02:4096@0x7f000000, "
            "write [0x4b03:8192@0x7f100000 0x4b03:8192@0x7f100000], write [], "
            "reply chunk [0x4b03:8192@0x7f100000]"))

    def test_an_empty_reply_chunk_is_one(self):
        message = decode(octets("00000001 00000002 00000001 00000001 00000001 00000000 00000000 "
                                "00000001 00000000"))
        self.assertEqual(message.reply, [])
        self.assertTrue(message.has_chunks())

    def test_errors(self):
        for rest, text in (("00000001 00000001 00000001", "ERR_VERS, versions 1 to 1"),
                           ("00000002", "ERR_BAD_HEADER"), ("00000003", "ERR_INVAL_OPTION")):
            self.assertEqual(str(decode(octets(f"{ERROR} {rest}"))),
                             f"xid 2b000002, version 2, credits 16, ERROR, reply, {text}")

    def test_an_option(self):
        message = decode(octets(OPTION))
        self.assertEqual(message.option, (7, b"hello"))
        self.assertEqual(message.payload, b"")
        self.assertEqual(decode(octets(f"{OPTION} 01020304")).payload, b"\1\2\3\4")

    def test_every_beginning_of_a_message_is_malformed(self):
        lists = (f"2b000005 00000002 00000020 00000001 00000000 00000001 {READ} 00000000 "
                 f"00000001 00000001 {SEGMENT} 00000000 00000001 00000001 {SEGMENT}")
        for text in (lists, f"{ERROR} 00000001 00000001 00000001", OPTION):
            whole = octets(text)
            decode(whole)
            for size in range(len(whole)):
                with self.assertRaises(Malformed, msg=f"{size} bytes of {text}"):
                    decode(whole[:size])

    def test_what_the_xdr_does_not_have(self):
        head = "2b000001 00000002 00000020"
        for text in (f"2b000001 00000001 00000020 00000000 {NO_LISTS}",
                     f"2b000001 00000003 00000020 00000000 00000000 {NO_LISTS}",
                     f"{head} 00000002 00000000 {NO_LISTS}",
                     f"{head} 00000003 00000000 {NO_LISTS}",
                     f"{head} 00000006 00000000 {NO_LISTS}",
                     f"{head} 00000000 00000002 {NO_LISTS}",
                     f"{head} 00000000 00000000 00000002 00000000 00000000",
                     f"{head} 00000000 00000000 00000000 00000000 00000100",
                     f"{ERROR} 00000000", f"{ERROR} 00000004",
                     f"{head} 00000005 00000002 00000007 00000000",
                     f"{head} 00000005 00000000 00000007 fffffffd 00000000"):
            with self.assertRaises(Malformed, msg=text):
                decode(octets(text))

    def test_a_count_that_no_message_can_hold_ends_at_once(self):
        with self.assertRaises(Malformed):
            decode(octets("00000001 00000002 00000001 00000000 00000000 00000000 00000001 "
                          "ffffffff 00000000"))


class TwoDecoders(unittest.TestCase):
    """This decoder and the decoder of the responder share no code. They decode random messages to
    the same values."""

    SEED, MESSAGES = 2016, 2000

    @staticmethod
    def described(text):
        """Returns the content of a message as a list, in the form that the other decoder
        (xdr_oracle) uses."""
        try:
            message = decode(text)
        except Malformed:
            return ["malformed"]
        if message.error is not None:
            low, high = message.versions or (0, 0)
            return ["error", message.xid, message.error, low, high, bool(message.payload)]
        if message.option:
            return ["option", message.xid] if message.direction == CALL else ["option reply"]

        def plain(segments):
            return [[s.handle, s.length, s.offset] for s in segments]

        return ["lists", message.xid, message.version, message.credits, message.procedure,
                message.direction, [[p, *plain([s])[0]] for p, s in message.reads],
                [plain(chunk) for chunk in message.writes],
                None if message.reply is None else plain(message.reply),
                len(text) - len(message.payload), len(message.payload)]

    def test_they_agree(self):
        oracle = cable.oracle()
        maker, kinds = oracle.Maker(self.SEED), set()
        for _ in range(self.MESSAGES):
            text, _ = maker.message()
            for one in (text, maker.damaged(text)):
                if version_two.begins(one):
                    found = self.described(one)
                    kinds.add(found[0])
                    self.assertEqual(found, oracle.decode(one), one.hex())
        self.assertEqual(kinds, {"lists", "error", "option", "option reply", "malformed"})


def call(xid, direction="00000000"):
    """Returns a call without chunks whose direction word is `direction`."""
    return PROBE.replace("2b000001", xid).replace("00000000 00000000", f"00000000 {direction}", 1)


def reply(xid):
    return AGREED.replace("2b000001", xid)


class Judging(unittest.TestCase):
    START = ((True, PROBE), (False, AGREED))

    def judge(self, *messages):
        found = Judgement([[Sent(number, ours, octets(text))
                            for number, (ours, text) in enumerate(messages)]])
        return [text.split(": ", 1)[1] for text in found.complaints], found

    def test_both_directions(self):
        complaints, found = self.judge(*self.START, (True, call("00000007")),
                                       (False, call("00000007")), (True, reply("00000007")),
                                       (False, reply("00000007")))
        self.assertEqual(complaints, [])
        self.assertEqual((found.messages, found.unanswered), (6, 0))
        self.assertEqual({kind: count for kind, count in found.counts.items() if count},
                         {"call": 2, "reply": 2, "callback call": 1, "callback reply": 1})
        self.assertEqual(len(list(found.lines())), 7)

    def test_another_version_is_malformed(self):
        old = "00000007 00000001 00000020 00000000 00000000 00000000 00000000"
        self.assertEqual(self.judge(*self.START, (True, old))[0], ["version 1"])

    def test_something_before_the_answer_to_the_probe(self):
        complaints, _ = self.judge((True, PROBE), (True, call("00000007")), (False, AGREED))
        self.assertEqual(complaints, ["sent before the first message has its answer (5)"])

    def test_a_probe_that_is_none(self):
        self.assertEqual(self.judge((False, PROBE))[0],
                         ["does not begin with a call of the client (5)"])
        lists = f"00000000 00000000 00000001 00000001 {SEGMENT}"
        self.assertEqual(self.judge((True, f"{PROBE_HEAD} {lists} {RPC_CALL}"))[0],
                         ["the first message is no NULL call without chunks"])
        self.assertEqual(self.judge((True, f"{PROBE} {'00' * 953}"))[0],
                         ["the first message has 1025 bytes (5)"])

    def test_a_refused_probe_agrees_on_nothing(self):
        refusal = "2b000001 00000002 00000010 00000004 00000001 00000001 00000001"
        complaints, found = self.judge((True, PROBE), (False, refusal), (True, call("00000007")))
        self.assertEqual(complaints, ["sent before the first message has its answer (5)"])
        self.assertEqual((found.counts["ERR_VERS"], found.unanswered), (1, 1))

    def test_a_direction_that_is_not_that_of_the_rpc_message(self):
        self.assertEqual(self.judge(*self.START, (False, call("00000007", "00000001")))[0],
                         ["direction 1, RPC message type 0 (4.2.2)", "an answer to nothing, 0x7"])

    def test_another_xid_than_the_rpc_message(self):
        wrong = "00000008" + call("00000007")[8:]
        self.assertEqual(self.judge(*self.START, (True, wrong))[0],
                         ["xid 0x8, in the RPC message 0x7"])

    def test_payloads_that_are_missing_or_too_much(self):
        head = "00000007 00000002 00000020"
        empty = f"{head} 00000000 00000000 {NO_LISTS}"
        long = f"{head} 00000001 00000000 00000000 00000000 00000001 00000001 {SEGMENT}"
        for text, said in ((empty, ["MSG without a payload (4.2.1)"]), (long, []),
                           (f"{long} 00000000", ["NOMSG with a payload (4.2.1)"]),
                           (f"{head} 00000001 00000000 {NO_LISTS}", ["NOMSG without a chunk"])):
            self.assertEqual(self.judge(*self.START, (True, text))[0], said)
        self.assertEqual(self.judge(*self.START, (True, call("00000007")), (
            False, "00000007 00000002 00000010 00000004 00000002 00000000"))[0],
            ["ERROR with a payload (4.2.1)"])

    def test_calls_and_their_answers(self):
        one = True, call("00000007")
        complaints, found = self.judge(*self.START, one, one, (False, reply("00000009")))
        self.assertEqual(complaints,
                         ["a second call 0x7 beside the first", "an answer to nothing, 0x9"])
        self.assertEqual(found.unanswered, 1)

    def test_the_end_of_a_security_context_may_stay_unanswered(self):
        """The last messages of an NFSv3 mount with krb5i, as recorded in two runs. The RPC client
        sends the last call of a context and does not wait for the answer. So the connection may
        end before the answer or after it."""
        end = f"{PROBE_HEAD} {NO_LISTS} {DESTROY_RPC}".replace("2b000001", "0000000b")
        last = ((True, call("0000000a")), (False, reply("0000000a")), (True, end))
        for answers in ((), ((False, reply("0000000b")),)):
            complaints, found = self.judge(*self.START, *last, *answers)
            self.assertEqual((complaints, found.unanswered), ([], 0))
        self.assertIn("auth gss, the end of its context", list(found.lines())[5])
        # A call that does not end a security context must have an answer. Each of the following
        # calls differs in one way from a call that ends a context: another flavour, the GSS
        # procedure for data, another RPC procedure, or truncated credentials.
        for other in (call("0000000b"), end.replace("00000001 00000003 00000007",
                                                    "00000001 00000000 00000007"),
                      end.replace("00000003 00000000 00000006", "00000003 00000001 00000006"),
                      end.partition(" 00000003 00000007")[0]):
            self.assertEqual(self.judge(*self.START, (True, other))[1].unanswered, 1, other)
        self.assertEqual(self.judge(*self.START, (True, call("0000000a")), (True, end))[1]
                         .unanswered, 1)

    def test_a_reply_offers_nothing_to_read(self):
        text = f"{AGREED_HEAD} 00000001 {READ} 00000000 00000000 00000000 {RPC_REPLY}"
        self.assertEqual(self.judge((True, PROBE), (False, text))[0], ["a reply with a Read list"])

    def test_a_message_larger_than_the_threshold(self):
        text = call("00000007")
        self.assertEqual(self.judge(*self.START, (True, f"{text} {'00' * 4024}"))[0], [])
        self.assertEqual(self.judge(*self.START, (True, f"{text} {'00' * 4028}"))[0],
                         ["4100 bytes (2.3)"])
        long = [Sent(1, True, octets(f"{text} {'00' * 4028}"))]
        self.assertIn("frame 1: 4100 bytes (2.3)", Judgement([long]).complaints)
        self.assertNotIn("frame 1: 4100 bytes (2.3)",
                         Judgement([long], longest=8192).complaints)

    def test_a_refused_option(self):
        refusal = "2b000003 00000002 00000010 00000004 00000003"
        self.assertEqual(self.judge(*self.START, (False, OPTION), (True, refusal))[0], [])
        self.assertEqual(self.judge(*self.START, (True, refusal))[0],
                         ["an answer to nothing, 0x2b000003"])

    def test_where_version_two_begins(self):
        self.assertTrue(version_two.begins(octets(PROBE)))
        for text in ("", "2b000001 000000", "2b000001 00000001 00000020"):
            self.assertFalse(version_two.begins(octets(text)))

    def test_nothing_said_is_nothing_found(self):
        self.assertEqual(Connection().complaints, [])
        self.assertEqual(Judgement([]).messages, 0)


if __name__ == "__main__":
    unittest.main()
