# SPDX-License-Identifier: GPL-2.0
"""Limits of our server: how many resources a client may use before the server ends the client's
connection."""

import time

from lib import wait
from lib.asking import Client, Stage
from lib.case import ENV, case, check, equal
from lib.hostile.message import REPLY, word
from lib.requester import calls, tables
from lib.served import counters

CLIENTS = "ours", "intree"
# If a client sends this number of malformed messages in a short time, the server ends the
# connection.
MALFORMED = 16
# `CONFIRM` is the time in seconds in which a client must confirm its connection. `TICK` is the
# interval in seconds at which the server looks for connections that were not confirmed.
CONFIRM, TICK = 10, 5
# `ANSWERS` is a number of calls. The answers to all these calls need more entries than the server's
# send queue has. `BURST` is the number of calls that are sent at a time.
ANSWERS, BURST = 1400, 16


# covers: Our server drops or refuses malformed messages. The server ends the connection only if too
# many malformed messages arrive within a given time. Some faults are found in a message when it
# arrives, others in the data that the server reads from the client's memory.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def malformed_messages_end_a_connection(t):
    stage = Stage(t)
    for deed in (tables.null(vers=9), tables.long_call(lambda xid: calls.null(xid + 1))):
        before = counters(t)
        with Client(stage) as client:
            for _ in range(MALFORMED - 1):
                client.send(deed(client))
            equal(len(client.ping(answers=MALFORMED - 1)), MALFORMED - 1, "refusals")
            client.send(client.message(payload=word(1, REPLY, 0, 0, 0, 0)))
            client.wait_ended()
        equal(counters(t)["ended_malformed"], before["ended_malformed"] + 1,
              "connections ended for it")
    stage.undisturbed()
    stage.wait_gone()


# covers: RSP-011
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def a_half_open_connection_ends(t):
    stage = Stage(t)
    before = counters(t)["ended_half_open"]
    client = Client(stage)
    t.defer(client.connection.close)
    client.connection.connect(establish=False)
    wait.until(lambda: counters(t)["ended_half_open"] > before,
               ENV.patience(CONFIRM + 2 * TICK), "the end of a half-open connection")
    stage.wait_gone()
    stage.undisturbed()


# covers: A client posts no Receives for answers. Such a client occupies no thread of our server,
# and the client's connection ends.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def a_client_that_takes_no_answers_is_ended(t):
    stage, slowest = Stage(t), 0.0
    before = counters(t)
    with Client(stage, receives=0) as client:
        octets = client.message().octets()
        for number in range(0, ANSWERS, BURST):
            if client.connection.ended():
                break
            client.connection.send_many(octets, BURST)
            client.connection.wait(client.connection.number)
            if number % (10 * BURST) == 0:
                slowest = max(slowest, stage.tcp())
            time.sleep(0.02)
        client.wait_ended()
    after = counters(t)
    t.note(f"NULL over TCP took {slowest:.2f} s at most, "
           f"{after['answers_waited'] - before['answers_waited']} answers waited")
    check(after["answers_waited"] > before["answers_waited"], "no answer waited for room")
    stage.undisturbed()
    stage.wait_gone()
