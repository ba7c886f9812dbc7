# SPDX-License-Identifier: GPL-2.0
"""Allocations of our server fail: each call is answered or its connection ends, and no object is
left behind.
"""

import collections
import contextlib

from lib import wait
from lib.asking import Client, Stage
from lib.case import ENV, case, check, equal
from lib.env import REPO
from lib.hostile.message import word
from lib.injection import DEBUG, KINDS, TIMES
from lib.requester import calls, row, tables
from lib.served import counters, ends

CLIENTS = "ours", "intree"
# A program that configures the kernel's fault injection, but does not enable it. The injected
# faults affect only allocations of the server's module. Two kinds of allocations never fail:
# - Allocations for messages of the connection manager. Without memory the connection manager never
#   sends its DREQ, so a client would not learn that its connection has ended.
# - Allocations of pages for slabs, because the module shares the slabs with other modules.
SELECT = f"""
import sys
sys.path.insert(0, "{REPO}/selftests")
from lib.injection import Injection, text
class Case:
    defer = staticmethod(lambda *_: None)
injection = Injection(Case)
injection.only_module("svcrdma_rs")
injection.spare("failslab", text("ib_cm"))
injection.spare_slabs()
"""
# Causes for the end of a connection, as the server shows them. `UNANSWERED` means that there was no
# memory for a call or a reply. `LEFT` means that the client has disconnected.
UNANSWERED, LEFT = "an answer could not be sent", "the client disconnected"
# Time limit for an answer, in seconds. On the debug kernel it is 45 seconds, which is less than the
# time for which a client may be silent.
SECONDS = 5
# `OF_CALL` exceeds the number of allocations that one call makes. `OF_ACCEPT` exceeds the number of
# allocations that one accepted connection makes.
OF_CALL, OF_ACCEPT = 16, 64
# `INTERVALS` contains values of n: every nth allocation fails. `CALLS` is the number of calls that
# are sent for each n.
INTERVALS, CALLS = (1, 3), 6


class Failures:
    """Makes memory allocations of the server's module fail."""

    def __init__(self, t):
        self.t = t
        t.server.run("python3", "-c", SELECT)
        t.defer(self.stop)

    def write(self, name, value):
        for kind in KINDS:
            self.t.server.call("text", f"{DEBUG}/{kind}/{name}", str(value))

    def begin(self, nth):
        """Makes every nth allocation fail."""
        self.write("interval", nth)
        self.write("times", TIMES)
        self.write("probability", 100)

    def stop(self):
        self.write("probability", 0)

    @contextlib.contextmanager
    def every(self, nth):
        """Makes every nth allocation fail during the `with` block."""
        self.begin(nth)
        try:
            yield
        finally:
            self.stop()

    def met(self):
        """Returns how many allocations have failed since the last `begin`."""
        left = [int(self.t.server.call("text", f"{DEBUG}/{kind}/times")) for kind in KINDS]
        return len(KINDS) * TIMES - sum(left)


def answered(client, count):
    """Waits for this number of answers. Returns whether all of them arrived. If an answer is
    missing, the connection must have ended."""
    for _ in range(count):
        if client.receive(ENV.patience(SECONDS)) is None:
            check(client.connection.ended(), "a call without an answer on a connection that lives")
            return False
    return True


def ended(t, before, wanted):
    """Checks the causes for which connections have ended since `before`. They must be exactly those
    in `wanted`. Waits until the server has counted the connections, because the server counts a
    connection only when the connection is completely removed."""
    def found():
        return dict(ends(t) - before)

    with contextlib.suppress(wait.Timeout):
        wait.until(lambda: found() == wanted, ENV.patience(SECONDS), "the causes")
    equal(found(), wanted, "why connections have ended")


def as_before(t, stage, pages):
    """Checks that the server works, and that it has freed all memory."""
    stage.read()
    stage.tcp()
    stage.wait_gone()
    wait.until(lambda: counters(t)["memory_free_pages"] == pages, ENV.patience(SECONDS),
               "the memory of all calls given back")


# covers: RSP-117
@case(versions=(), clients=CLIENTS, server="ours", debug_only=True, seconds=60)
def calls_that_find_no_memory_are_not_forgotten(t):
    stage, failures, lost = Stage(t), Failures(t), 0
    deeds = tables.Writing(), tables.reading(tables.BLOCK, write=tables.BLOCK)
    for nth in INTERVALS:
        for deed in deeds:
            with Client(stage) as client:
                client.ping()
                octets = deed(client).octets()
                with failures.every(nth):
                    client.connection.send_many(octets, CALLS)
                    lost += not answered(client, CALLS)
    t.note(f"{lost} of {len(INTERVALS) * len(deeds)} connections ended")
    check(lost, "no allocation failed")
    stage.read()
    stage.tcp()
    stage.wait_gone()


# covers: RSP-118: There is no memory for a reply. The connection ends for that reason, and not
# because the client is silent. The call itself needs no new memory, because it uses the memory of
# an earlier call.
@case(versions=(), clients=CLIENTS, server="ours", debug_only=True, seconds=60)
def replies_that_find_no_memory_are_not_forgotten(t):
    stage, failures = Stage(t), Failures(t)
    for deed in (tables.reading(tables.BLOCK, write=tables.BLOCK),
                 tables.reading(tables.BLOCK, reply=2 * tables.BLOCK)):
        before = ends(t)
        with Client(stage) as client:
            client.ping()
            message = deed(client)
            with failures.every(1):
                client.send(message)
                check(not answered(client, 1), "no allocation failed")
        # The connection ended neither because the client was silent nor because the client
        # disconnected.
        ended(t, before, {UNANSWERED: 1})
    stage.read()
    stage.wait_gone()


def two_reads(client):
    """Builds a call with two READ operations. Each READ has a Write chunk."""
    xid, half = client.next(), tables.BLOCK // 2
    rpc = calls.compound(xid, tables.PATH, calls.read(0, half), calls.read(half, half))
    chunks = [[client.memory(half, row.WRITE)[1]] for _ in range(2)]
    return client.message(payload=rpc, xid=xid, writes=chunks)


PATHS = {
    "a message that is refused": tables.null(vers=9),
    "a call that the RPC layer refuses": tables.payload(
        lambda xid: word(xid, 0, 3, 100003, 4, 0, 0, 0, 0, 0)),
    "a WRITE": tables.Writing(),
    "a WRITE in many segments": tables.Writing(pieces=16),
    "a long call": tables.long_call(),
    "a READ": tables.reading(tables.BLOCK, write=tables.BLOCK),
    "two READs": two_reads,
    "a READ into the Reply chunk": tables.reading(tables.BLOCK, reply=2 * tables.BLOCK),
}


# covers: Our server handles calls of every kind while every nth allocation fails, for different
# values of n. Each call is answered, or its connection ends because memory is missing. The server
# frees all memory.
@case(versions=(), clients=CLIENTS, server="ours", debug_only=True, seconds=150, full_seconds=900)
def each_path_of_a_call_may_find_no_memory(t):
    stage, failures, pages = Stage(t), Failures(t), counters(t)["memory_free_pages"]
    before, lost = ends(t), collections.Counter()
    intervals = ENV.pick(small=(1, 2, 3), full=range(1, OF_CALL))
    for name, deed in PATHS.items():
        for nth in intervals:
            stage.read()
            with Client(stage) as client:
                client.ping()
                message = deed(client)
                with failures.every(nth):
                    client.send(message)
                    lost[name] += not answered(client, 1)
        t.note(f"{name}: {lost[name]} of {len(intervals)} without an answer")
    gone = sum(lost.values())
    check(gone, "no allocation failed")
    equal(lost["a message that is refused"], 0, "refusals without an answer")
    ended(t, before, {UNANSWERED: gone, LEFT: len(PATHS) * len(intervals) - gone})
    as_before(t, stage, pages)


# covers: Allocations fail while our server accepts connections. Each connection is rejected or
# works. No object of a rejected connection is left.
@case(versions=(), clients=CLIENTS, server="ours", debug_only=True, seconds=150, full_seconds=600)
def allocations_of_an_accept_may_fail(t):
    stage, failures = Stage(t), Failures(t)
    identifiers, rejected, tried, failed = stage.identifiers(), 0, 0, 0
    for nth in range(1, OF_ACCEPT, ENV.pick(small=4, full=1)):
        tried += 1
        client = Client(stage)
        t.defer(client.connection.close)
        try:
            with failures.every(nth):
                client.connection.connect()
        except row.NotAccepted:
            rejected += 1
        else:
            client.ping()
        failed += failures.met()
        client.connection.close()
        stage.read()
    t.note(f"{rejected} of {tried} connections rejected, {failed} allocations failed")
    check(rejected >= tried // 4, f"{rejected} of {tried} connections rejected")
    stage.undisturbed()
    stage.wait_gone()
    wait.until(lambda: stage.identifiers() <= identifiers, ENV.patience(20),
               "no identifier of a connection left")
