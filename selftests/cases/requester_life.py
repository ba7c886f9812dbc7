# SPDX-License-Identifier: GPL-2.0
"""Connections to our server that begin badly, end badly or fall silent."""

import contextlib
import time

from lib import faults, wait
from lib.asking import Client, Stage
from lib.case import ENV, case, check, equal
from lib.env import PORT
from lib.hostile.message import CALL, word
from lib.requester import calls, row, tables
from lib.served import counters

MIB = 1 << 20
CLIENTS = "ours", "intree"
# `CALLS` is a number of calls that exceeds the number of a connection's Receives. `LOST` is half of
# `CALLS`: the number of calls that get no answer.
CALLS, LOST = 64, 32
# A number of connection requests that is larger than the number of requests that may wait for a
# thread at a time.
FLOOD = 70
# The number of calls that a client may send before it receives the first grant of credits.
FIRST = 16
# `SILENT` is the number of silent connections. `READS` is the number of 1 MiB calls on each of
# these connections. All these calls together request more memory than the server allows for the
# calls of one client address.
SILENT, READS = 26, 4
# `ADDRESSES` contains the addresses of slow clients. `SLOW` is the number of connections from each
# address. Each connection makes `SHORT_READS` READs, and `LONG_WRITES` WRITEs of 1 MiB. All WRITEs
# together need more memory than the server has for calls.
ADDRESSES, SLOW = ("192.0.2.101", "192.0.2.102"), 28
SHORT_READS, LONG_WRITES = 14, 3
# `PACE`: a slow client takes one answer in this number of seconds. The server ends a connection on
# which no work request completes for 30 seconds, so this pace ends no connection.
# `DRAIN`: the server ends a slow connection within this number of seconds if other calls wait for
# memory that the connection uses. The number is the sum of 60, two intervals of 5 between the
# server's checks, and one `PACE`.
# `SOONEST`: the server must not end a slow connection within this number of seconds.
PACE, DRAIN, SOONEST = 10, 80, 45
# The number of connection requests that the test sends to a server without threads, so that the
# requests wait.
WAITING = 5


def open_many(stage, count, begin):
    """Begins `count` connections. `begin(client)` performs some or all steps of establishing a
    connection. Returns the connections that the server accepts. All connections are closed at the
    end of the case."""
    opened = []
    for _ in range(count):
        client = Client(stage)
        stage.t.defer(client.connection.close)
        with contextlib.suppress(row.NotAccepted):
            begin(client)
            opened.append(client)
    return opened


# covers: Connections that the client never confirms do not disturb our server. These connections
# end when the client closes them.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def half_open_connections(t):
    stage = Stage(t)
    opened = open_many(stage, 20, lambda client: client.connection.connect(establish=False))
    t.note(f"{len(opened)} half open")
    stage.undisturbed()
    for client in opened:
        client.connection.close()
    stage.undisturbed()
    stage.wait_gone()


# covers: A client sends more connection requests than our server queues, and then closes all these
# connections.
@case(versions=(), clients=CLIENTS, server="ours", seconds=120)
def a_flood_of_requests(t):
    stage = Stage(t)
    clients = []
    for _ in range(FLOOD):
        client = Client(stage)
        t.defer(client.connection.close)
        client.connection.request()
        clients.append(client)
        stage.read()
    stage.tcp()
    for client in clients:
        client.connection.close()
        stage.read()
    stage.undisturbed()
    stage.wait_gone()


# covers: A client posts no Receives. Our server keeps a limited number of answers for that client,
# and serves other clients as usual.
@case(versions=(), clients=CLIENTS, server="ours", seconds=120)
def answers_that_nobody_takes(t):
    stage = Stage(t)
    for count in (CALLS // 4, 4 * CALLS):
        with Client(stage, receives=0) as client:
            client.connection.send_many(client.message().octets(), count)
            # During this pause the server receives all calls that it accepts from this client.
            time.sleep(0.2)
            stage.undisturbed()
    stage.wait_gone()


# covers: On many connections, a client does not answer the RDMA Reads that our server makes for
# calls. The calls occupy no thread of our server. The calls use no more memory than the server
# allows for the calls of one client address.
@case(versions=(), clients=CLIENTS, server="ours", seconds=120)
def reads_that_are_not_answered(t):
    stage, silent, before = Stage(t), [], counters(t)
    for _ in range(SILENT):
        client = Client(stage)
        t.defer(client.connection.close)
        client.connection.connect()
        silent.append(client)
    _, memory = silent[0].memory(MIB)
    for client in silent:
        for _ in range(READS):
            front = calls.compound(client.next(), tables.PATH, calls.write(0, MIB))
            last = client.send(client.message(payload=front, xid=client.xid,
                                              reads=[(len(front), memory)]))
        client.connection.wait(last)
        client.connection.fall_silent()
    short, least = "memory_of_address_short", before["memory_free_pages"]
    for _ in range(5):
        t.note(f"NULL over TCP: {stage.tcp():.2f} s")
        least = min(least, counters(t)["memory_free_pages"])
        time.sleep(0.2)
    t.note(f"{least} of {before['memory_free_pages']} pages were free")
    check(least < before["memory_free_pages"], "the silent connections hold no memory")
    check(2 * least >= before["memory_free_pages"], "an address holds more than half of the memory")
    check(counters(t)[short] > before[short], "no call waited for the memory of its address")
    # The honest mount has the same address. So a longer READ would wait until the silent
    # connections end.
    stage.undisturbed(tables.BLOCK)


# covers: RSP-203: Connections end during Reads, Writes and answers. Nothing is left in our server.
@case(versions=(), clients=CLIENTS, server="ours", seconds=120)
def connections_that_end_amid_calls(t):
    stage, pages = Stage(t), counters(t)["memory_free_pages"]
    deeds = (tables.Writing(claimed=4 * tables.BLOCK, pieces=8), tables.reading(
        tables.BLOCK, write=tables.BLOCK), tables.null())
    for pause in (0, 0.001, 0.01, 0.05):
        for deed in deeds:
            with Client(stage) as client:
                client.connection.send_many(deed(client).octets(), FIRST)
                time.sleep(pause)
        stage.undisturbed()
    stage.wait_gone()
    wait.until(lambda: counters(t)["memory_free_pages"] == pages, ENV.patience(20),
               "the memory of all calls given back")


# covers: A client sends many calls that get no answer. After a number of such calls our server ends
# the client's connection. Other clients are served as usual.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def calls_that_get_no_answer(t):
    stage = Stage(t)
    with Client(stage) as client:
        client.ping()
        for _ in range(LOST):
            if not client.connection.ended():
                client.send(client.message(payload=lambda xid: word(xid, CALL)))
        client.wait_ended()
    stage.undisturbed()


# covers: Our server is stopped while it has connections in every state. No object of these
# connections is left.
@case(versions=(), clients=CLIENTS, server="ours", seconds=120)
def a_server_that_stops(t):
    stage = Stage(t)
    half = open_many(stage, 8, lambda client: client.connection.connect(establish=False))
    whole = open_many(stage, 4, lambda client: client.connection.connect())
    asked = open_many(stage, 8, lambda client: client.connection.request())
    t.note(f"{len(half)} half open, {len(whole)} open, {len(asked)} asked for")
    for client in whole:
        client.connection.send_many(tables.Writing()(client).octets(), FIRST)
    t.defer(faults.start_nfsd, t.server)
    faults.stop_nfsd(t.server)
    wait.until(lambda: not stage.queue_pairs() and not stage.identifiers(), ENV.patience(20),
               "nothing of any connection left in the stopped server")
    faults.start_nfsd(t.server)
    stage.read()
    check(stage.honest.connects() >= 2, "the honest mount has not connected again")


# covers: Connection requests wait at a listener, because nfsd has no threads. The clients give up
# the requests. Our server drops the requests, although no thread takes them.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def requests_that_are_given_up(t):
    stage = Stage(t)
    t.defer(faults.start_nfsd, t.server)
    faults.stop_nfsd(t.server)
    wait.until(lambda: not stage.identifiers(), ENV.patience(20), "no listener")
    t.server.call("text", faults.PORTLIST, f"rdma {PORT}")
    listening = stage.identifiers()
    asked = open_many(stage, WAITING, lambda client: client.connection.request())
    wait.until(lambda: stage.identifiers() >= listening + WAITING, ENV.patience(20),
               "requests that wait")
    for client in asked:
        client.connection.close()
    wait.until(lambda: stage.identifiers() == listening, ENV.patience(20),
               "the requests dropped without a thread")
    faults.stop_nfsd(t.server)
    wait.until(lambda: not stage.identifiers(), ENV.patience(20), "no listener")
    faults.start_nfsd(t.server)
    stage.read()


# covers: RSP-205: Connection requests wait at a listener, because nfsd has no threads. The listener
# is removed. The requests are rejected, and no object of these requests is left.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def a_listener_without_threads_goes(t):
    stage = Stage(t)
    t.defer(faults.start_nfsd, t.server)
    faults.stop_nfsd(t.server)
    wait.until(lambda: not stage.identifiers(), ENV.patience(20), "no listener")
    t.server.call("text", faults.PORTLIST, f"rdma {PORT}")
    listening = stage.identifiers()
    asked = open_many(stage, WAITING, lambda client: client.connection.request())
    wait.until(lambda: stage.identifiers() >= listening + WAITING, ENV.patience(20),
               "requests that wait")
    equal(stage.queue_pairs(), 0, "queue pairs for requests that wait")
    faults.stop_nfsd(t.server)
    wait.until(lambda: not stage.identifiers(), ENV.patience(20),
               "nothing of any request left in the stopped server")
    for client in asked:
        name, _ = client.connection.event(ENV.patience(5))
        equal(name, "rejected", "what the client was told")
    faults.start_nfsd(t.server)
    stage.read()


class Slow(Client):
    """A connection of a client that takes one answer at a time. Until the client takes the next
    answer, all later work requests of the server wait."""

    def __init__(self, stage, address):
        super().__init__(stage, source=address, receives=1)
        self.connection.connect()

    def ask(self, memory):
        """Sends the READs, and then the WRITEs. The server reads the data of the WRITEs from
        `memory`."""
        _, chunk = self.memory(tables.BLOCK, row.WRITE)
        for _ in range(SHORT_READS):
            rpc = calls.compound(self.next(), tables.PATH, calls.read(0, tables.BLOCK))
            self.send(self.message(payload=rpc, xid=self.xid, writes=[[chunk]]))
        for _ in range(LONG_WRITES):
            front = calls.compound(self.next(), tables.PATH, calls.write(0, MIB))
            last = self.send(self.message(payload=front, xid=self.xid,
                                          reads=[(len(front), memory)]))
        self.connection.wait(last)


# covers: Our server runs short of memory for calls. Some connections hold this memory, and complete
# a work request only now and then. Our server ends such a connection if not all of its work
# requests complete in time. Connections that only wait for memory stay, and other clients are
# served as usual.
@case(versions=(), clients=CLIENTS, server="ours", full_only=True, full_seconds=180)
def slow_connections_that_hold_needed_memory(t):
    faults.own_addresses(t, ADDRESSES)
    stage, before, slow = Stage(t), counters(t), []
    for address in ADDRESSES:
        for _ in range(SLOW):
            slow.append(Slow(stage, address))
            t.defer(slow[-1].connection.close)
            stage.read()
    _, memory = slow[0].memory(MIB)
    # While the clients send their calls, the server runs short of memory.
    begun, seconds = wait.Clock(), 0.0
    for client in slow:
        client.ask(memory)
        stage.read()
    clock = wait.Clock()
    while not seconds and clock.seconds() < DRAIN:
        time.sleep(PACE)
        stage.undisturbed()
        now = counters(t)
        # `ended()` also receives an answer of the server, if one has arrived.
        ended = [client.connection.ended() for client in slow]
        t.note(f"{clock.seconds():.0f} s: {now['memory_free_pages']} of "
               f"{before['memory_free_pages']} pages free, {sum(ended)} connections ended")
        # All memory was free when the first connection sent its WRITEs. No memory was free when the
        # last connection sent its WRITEs.
        if ended[0]:
            seconds = begun.seconds()
    check(seconds, "a slow connection keeps memory that others need")
    check(seconds >= SOONEST, f"ended after {seconds:.0f} s, although its work requests completed")
    check(not ended[-1], "a connection without memory has ended")
    stalled = counters(t)["ended_send_queue_stalled"] - before["ended_send_queue_stalled"]
    check(stalled, "no connection ended because of its send queue")
    for client in slow:
        client.connection.close()
    stage.undisturbed()
    stage.wait_gone()
    wait.until(lambda: counters(t)["memory_free_pages"] == before["memory_free_pages"],
               ENV.patience(20), "the memory of all calls given back")
