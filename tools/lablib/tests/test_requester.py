# SPDX-License-Identifier: GPL-2.0
"""Tests that the selftests' hostile requester sends the messages that its tables describe."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "selftests"))

from lib import asking
from lib.hostile.message import CALL, Malformed, Segment, decode, numbers, word
from lib.requester import calls, row, tables

NULL = word(CALL, 2, 100003, 4, 0, 0, 0, 0, 0)


class Connection:
    """Replaces the RDMA connection, and stores the messages that are sent."""

    def __init__(self, *_, **__):
        self.sent, self.regions = [], []

    def send(self, octets, **_):
        self.sent.append(octets)

    def send_many(self, octets, count):
        self.sent += [octets] * count

    def post_write_with_immediate(self):
        self.sent.append(b"")

    def change_domain(self):
        """Does nothing, because this connection has no protection domains."""

    def take_back(self):
        self.regions.pop()

    def memory(self, content, rights=row.READ):
        length = content if isinstance(content, int) else len(content)
        self.regions.append((content, rights))
        return None, Segment((len(self.regions), length, 0x1000 * len(self.regions)))


def stage():
    """Returns an object that replaces the objects with which a requester reaches its device and the
    server."""
    found = types.SimpleNamespace()
    found.verbs = types.SimpleNamespace(Requester=Connection)
    found.device = None
    found.refill = lambda: None
    found.link = found.grow = lambda path, value: None
    found.longest_call = lambda: 1 << 16
    return found


def sent(deed):
    """Makes a test client send the messages of one table entry. Returns the first message, and the
    client."""
    client = asking.Client(stage())
    messages = deed(client)
    for message in messages if isinstance(messages, list) else [messages]:
        if message is not None:
            client.send(message)
    return client.connection.sent[0], client


class Rows(unittest.TestCase):
    def test_names_are_unique(self):
        names = [one.name for group in tables.GROUPS for one in group]
        self.assertEqual(len(names), len(set(names)))

    def test_what_is_served_or_refused_is_told_by_the_last_xid(self):
        for group in tables.GROUPS:
            for one in group:
                octets, client = sent(one.deed)
                if one.reaction.kind in (row.SERVED, row.REFUSED):
                    with self.subTest(one.name):
                        self.assertEqual(numbers(octets, 0), (client.xid,))

    def test_lists_that_must_not_be_understood_are_not(self):
        for one in tables.LISTS:
            octets, _ = sent(one.deed)
            if one.name.startswith(("word", "Read list ends")) or "segments in" in one.name:
                with self.subTest(one.name), self.assertRaises(Malformed):
                    decode(octets)

    def test_bytes_of_the_rows(self):
        """Checks messages against bytes that were written by hand from the text of the
        specifications."""
        def xid(octets):
            return octets[:4]

        octets, _ = sent(tables.null())
        self.assertEqual(octets, xid(octets) + word(1, 32, 0, 0, 0, 0) + xid(octets) + NULL)
        octets, client = sent(tables.Writing(claimed=5))
        front = octets[tables.HEADER + 24:]
        self.assertEqual(octets[4:32], word(1, 32, 0, 1, len(front), 1, 5))
        self.assertEqual(client.connection.regions, [(tables.NEW * 5, row.READ)])
        self.assertEqual(front[-16:], word(0, 0, calls.FILE_SYNC, 5))


class Replies(unittest.TestCase):
    def test_outcomes(self):
        for words, expected in (
                ((7, 1, 1, 0, 2, 2), ("denied",)),
                ((7, 1, 0, 0, 0, 4), ("accepted", 4)),
                ((7, 1, 0, 0, 0, 0), ("null",)),
                ((7, 1, 0, 0, 0, 0, 10025, 0, 0), ("nfs", 10025))):
            self.assertEqual(calls.outcome(word(*words)), expected)


if __name__ == "__main__":
    unittest.main()
