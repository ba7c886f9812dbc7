# SPDX-License-Identifier: GPL-2.0
"""Tests of our server with clients that answer its callbacks wrongly, or not at all."""

import time

from lib import faults, wait
from lib.asking import Client, Stage
from lib.case import ENV, case, check, equal
from lib.hostile.message import CALL, Segment, numbers, word
from lib.requester import session
from lib.served import counters

CLIENTS = "ours", "intree"
PATH = "/srv/mem/requester"
# `RECALL_SECONDS` is the time in seconds within which a delegation is recalled. `GIVEN_UP` is the
# time in seconds after which nfsd gives up a callback.
RECALL_SECONDS, GIVEN_UP = 10, 3
SEGMENT = Segment((1, 64, 0))


class Recall:
    """A delegation that the server recalls from a client, and the client's answers to the recall.
    """

    def __init__(self, stage, client, name):
        self.t, self.client, self.name = stage.t, client, name
        self.there = f"{stage.mine.rpartition('/')[0]}/{name}"
        self.t.server.write(self.there, b"content")
        self.session = session.Session(client)
        self.delegation = self.session.delegation(PATH, name)
        self.helper = self.t.another_server()
        self.opened = self.helper.send("open_for_write", self.there)
        self.callback = session.Callback(self.wait_call())

    def wait_call(self):
        found = self.client.receive(ENV.patience(RECALL_SECONDS))
        check(found is not None and found.kind == "RDMA_MSG", f"a recall: {found}")
        equal(numbers(found.payload, 4), (CALL,), "the direction of the callback")
        return found

    def message(self, payload=None, xid=None, **fields):
        """Returns an answer to the callback. The answer is correct except for the parts that the
        arguments change."""
        xid = self.callback.xid if xid is None else xid
        payload = self.callback.reply() if payload is None else payload
        return self.client.message(payload=payload, xid=xid, **fields)

    def send(self, *messages):
        for message in messages:
            self.client.send(message)

    def end(self):
        """Returns the delegation to the server, and waits until the file is open for writing."""
        self.session.give_back(f"{PATH}/{self.name}", self.delegation)
        self.helper.take(self.opened, ENV.patience(RECALL_SECONDS))


def right(recall):
    recall.send(recall.message())


def none(_recall):
    """Sends no answer to the callback."""


def twice(recall):
    recall.send(recall.message(), recall.message())


def late(recall):
    time.sleep(GIVEN_UP)
    recall.send(recall.message())


def wrong_xid(recall):
    xid = recall.callback.xid ^ 0x55
    recall.send(recall.message(recall.callback.reply(xid), xid))


def two_xids(recall):
    recall.send(recall.message(xid=recall.callback.xid ^ 0x55))


def with_chunks(recall):
    recall.send(recall.message(reads=[(8, SEGMENT)]), recall.message(writes=[[SEGMENT]]),
                recall.message(reply=[SEGMENT]))


def too_long(recall):
    recall.send(recall.message(recall.callback.reply() + bytes(3000)))


def cut(recall):
    for length in (8, 12, 20, 24, 40):
        recall.send(recall.message(recall.callback.reply()[:length]))


def refused(recall):
    for error in (word(2), word(1, 1, 1)):
        recall.client.send(word(recall.callback.xid, 1, 32, 4) + error)


def denied(recall):
    recall.send(recall.message(word(recall.callback.xid, 1, 1, 1, 1)))


def credit(number):
    return lambda recall: recall.send(recall.message(credit=number))


ANSWERS = {
    "a right answer": right, "no answer": none, "two answers": twice, "a late answer": late,
    "an answer with another xid": wrong_xid, "an answer with two xids": two_xids,
    "answers with chunks": with_chunks, "an answer that is too long": too_long,
    "answers that are cut": cut, "errors": refused, "a denial": denied,
    "a grant of zero": credit(0), "a huge grant": credit(0xffffffff),
}


# covers: Clients give wrong or unusual answers to recalls. The connections of these clients do not
# end, and other clients are not disturbed. A late answer does not count as malformed.
@case(versions=(), clients=CLIENTS, server="ours", seconds=120)
def odd_answers_to_callbacks(t):
    stage = Stage(t)
    faults.end_grace(t.server)
    for number, (name, answer) in enumerate(ANSWERS.items()):
        clock, before = wait.Clock(), counters(t)["malformed_messages"]
        with Client(stage) as client:
            recall = Recall(stage, client, f"odd{number}")
            answer(recall)
            recall.end()
            check(not client.connection.ended(), f"{name}: the connection has ended")
        if answer in (right, none, late):
            equal(counters(t)["malformed_messages"], before, f"{name}: malformed messages")
        stage.undisturbed()
        t.note(f"{name}: {clock.seconds():.2f} s")
    stage.wait_gone()


# covers: The answer to a callback arrives on the connection of another client. Neither of the two
# connections ends.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def answers_on_another_connection(t):
    stage = Stage(t)
    faults.end_grace(t.server)
    before = counters(t)["malformed_messages"]
    with Client(stage) as client, Client(stage) as other:
        recall = Recall(stage, client, "elsewhere")
        other.send(recall.message())
        equal(other.ping(), [], "answers on the other connection")
        check(counters(t)["malformed_messages"] > before, "the strange answer was not counted")
        recall.send(recall.message())
        recall.end()
    stage.undisturbed()
    stage.wait_gone()


# covers: Clients close their connections while the server waits for answers to callbacks. No object
# of these clients is left in the server.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def clients_that_leave_amid_callbacks(t):
    stage, recalls = Stage(t), []
    faults.end_grace(t.server)
    for number in range(ENV.pick(small=3, full=30)):
        with Client(stage) as client:
            recalls.append(Recall(stage, client, f"left{number}"))
    stage.wait_gone()
    stage.undisturbed()
    # nfsd revokes these delegations at the end of the lease.
    for recall in recalls:
        recall.helper.take(recall.opened, ENV.patience(30))
