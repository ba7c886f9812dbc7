# SPDX-License-Identifier: GPL-2.0
"""Rules of our server whose tests need more than one connection."""

import collections
import time

from lib import faults, tracing, wait
from lib.asking import BLOCK, TCP_PORT, XIDS, Client, Stage, record
from lib.case import ENV, case, check, equal
from lib.hostile.message import REPLY, word
from lib.requester import calls, tables
from lib.served import FILES, counters, total, used_kib

CLIENTS = "ours", "intree"
# After a single call has broken this number of connections, our server refuses the call.
BROKEN = 2
# `IDLE` is the number of idle connections whose memory is measured. `MOST_KIB` is the maximum
# memory of one connection, in KiB. It includes the queues of a software device, which take more
# memory than the messages.
IDLE, MOST_KIB = 24, 1024
# `GREEDY` is the number of calls of a client that requests as much data as it can. `WANTED` is the
# number of bytes that each call requests.
GREEDY, WANTED = 48, 1 << 20
# A program that makes a call over TCP to the server on which it runs, and waits for the answer.
LOCAL = f"""
import socket, sys
with socket.create_connection(("127.0.0.1", {TCP_PORT}), 20) as line:
    line.sendall(bytes.fromhex(sys.argv[1]))
    line.recv(4096)
"""
# `FIRST_GRANT` is the number of credits that the server grants on a new connection. After
# `MANY_CALLS` calls, one at a time, the server grants twice this number. The server doubles the
# grant if 64 calls arrive between two of its periodic checks. `MANY_CALLS` is large enough for this
# even if one check takes place during the calls. After `IDLE_SECONDS` without a call, the server
# grants `FIRST_GRANT` credits again.
MANY_CALLS, FIRST_GRANT, IDLE_SECONDS = 150, 8, 25
# The number of connections that a noisy client makes.
NOISY = 24


def refused_reads(client):
    """Makes a WRITE call that offers its data with a wrong key."""
    change = tables.Writing(change=lambda segment: segment.but(handle=segment.handle ^ 0xff00))
    return change(client)


def refused_writes(client):
    """Makes a READ call that offers memory into which the server may not write."""
    return tables.reading_into(client, tables.READ)


def odd_length(client):
    """Makes a NULL call whose length is not a multiple of four."""
    return client.message().octets() + b"\0"


def odd_position(client):
    """Makes a call whose length is not a multiple of four, and which must be refused because of the
    Position of a Read chunk."""
    return tables.with_reads(6)(client).octets() + b"\0"


# covers: RSP-023, RSP-047: Our server executes and counts two kinds of unusual calls ("odd calls"):
# calls whose length is not a multiple of four, and long calls with bytes after the header. It does
# not count such a call if it refuses the call for another reason.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def odd_calls_are_served_and_counted(t):
    stage = Stage(t)
    before = total(t, "odd calls")
    with Client(stage) as client:
        for made, deed in enumerate((odd_length, tables.long_call(payload=bytes(64))), 1):
            client.send(deed(client))
            answer, = client.ping(answers=1)
            equal(calls.outcome(answer.payload), ("null",), "the answer")
            equal(total(t, "odd calls"), before + made, "odd calls")
        client.send(odd_position(client))
        answer, = client.ping(answers=1)
        equal(answer.kind, "RDMA_ERROR", "the answer to an odd call with another fault")
        equal(total(t, "odd calls"), before + made, "odd calls without one that is refused")
    stage.undisturbed()


# covers: RSP-148
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def the_grant_of_an_idle_client_shrinks(t):
    stage = Stage(t)
    with Client(stage) as client:
        credit = 0
        for _ in range(MANY_CALLS):
            client.send(client.message())
            credit = client.receive().credit
        check(credit > FIRST_GRANT, f"{credit} credits after many calls")
        # If no call has arrived for ten to fifteen seconds, the server halves the grant. It halves
        # the grant again every five seconds.
        time.sleep(IDLE_SECONDS)
        client.send(client.message())
        equal(client.receive().credit, FIRST_GRANT, "credits after a pause")
    stage.undisturbed()


# covers: RSP-110, RSP-111, RSP-112
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def a_call_that_broke_two_connections_gets_an_error(t):
    stage = Stage(t)
    for deed in (refused_reads, refused_writes):
        xid = next(XIDS)
        for _ in range(BROKEN):
            with Client(stage) as client:
                client.xid = xid
                client.send(deed(client))
                client.wait_ended()
                # Only the server has destroyed its objects for the connection. The client's objects
                # for the connection still exist.
                stage.wait_gone()
        with Client(stage) as client:
            client.xid = xid
            client.send(deed(client))
            answer, = client.ping(answers=1)
            equal((answer.xid, answer.kind), (xid + 1, "RDMA_ERROR"), "the answer")
            equal(answer.error[0], "ERR_CHUNK", "the error")
            # Other calls of this client work as before.
            client.send(tables.Writing()(client))
            answer, = client.ping(answers=1)
            equal(calls.outcome(answer.payload), ("nfs", 0), "the next call")
    stage.undisturbed()
    stage.wait_gone()


# covers: RSP-026, RSP-114
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def keys_that_a_client_wants_invalidated(t):
    stage = Stage(t)
    for key in (0, 1, 0x100, 0xffffffff):
        with Client(stage) as client:
            client.ping()
            client.connection.send(client.message().octets(), invalidate=key)
            client.wait_ended()
            # The server ends the connection itself: the client has not ended it.
            stage.wait_gone()
    stage.undisturbed()


# covers: RSP-165
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def replies_that_no_call_waits_for(t):
    stage = Stage(t)
    with Client(stage) as client, Client(stage) as other:
        # The reply has the xid of a call in progress. The client sends the reply on the call's
        # connection and on another connection.
        for _ in range(3):
            call = client.message()
            late = client.message(payload=word(call.xid, REPLY, 0, 0, 0, 0), xid=call.xid)
            client.send(call)
            client.send(late)
            other.send(late)
            client.send(late)
            found = client.receive()
            equal((found.xid, found.kind), (call.xid, "RDMA_MSG"), "the answer to a call")
            equal(calls.outcome(found.payload), ("null",), "its outcome")
        equal(client.ping(), [], "other answers")
        equal(other.ping(), [], "answers on the other connection")
    stage.undisturbed()
    stage.wait_gone()


# covers: RSP-201
@case(versions=(), clients=CLIENTS, server="ours", stock_only=True, seconds=90)
def an_idle_connection_takes_little_memory(t):
    stage, opened = Stage(t), []
    stated = counters(t)["memory_of_idle_connection"]
    for count in (1, IDLE):
        while len(opened) < count:
            client = Client(stage)
            t.defer(client.connection.close)
            client.connection.connect()
            client.ping()
            opened.append(client)
        if count == 1:
            before = used_kib(t)
    each = (used_kib(t) - before) / (IDLE - 1)
    t.note(f"KiB of an idle connection: {each:.0f}, stated: {stated / 1024:.0f}")
    check(stated / 1024 / 2 <= each <= MOST_KIB, f"KiB of an idle connection: {each:.0f}")


# covers: RSP-202: A client requests as much as it can. Other clients are still served in turn.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def a_greedy_client_starves_no_other(t):
    stage, slowest = Stage(t), 0.0
    with Client(stage) as client:
        client.ping()
        _, memory = client.memory(WANTED, tables.WRITE)
        for _ in range(GREEDY):
            xid = client.next()
            rpc = calls.compound(xid, tables.PATH, calls.read(0, WANTED))
            client.send(client.message(payload=rpc, xid=xid, writes=[[memory]]))
        # Our server answers each READ of the honest client before all calls of the greedy client
        # are complete.
        for _ in range(8):
            clock = wait.Clock()
            stage.read()
            slowest = max(slowest, clock.seconds())
        equal(len(client.ping(answers=GREEDY)), GREEDY, "answers to the greedy client")
    t.note(f"a READ of the honest client took {slowest:.2f} s at most")
    check(slowest < ENV.patience(2), f"a READ of the honest client took {slowest:.1f} s")
    stage.undisturbed()
    stage.wait_gone()


# covers: A single thread of our server serves a client on the server's own host, and then a client
# on another host. The thread does not treat the second client as local.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def a_thread_forgets_a_client_of_its_host(t):
    stage, local, threads = Stage(t), next(XIDS), f"{faults.NFSD}/threads"
    # A single thread serves both clients.
    t.defer(t.server.call, "text", threads, str(faults.THREADS))
    t.server.call("text", threads, "1")
    tracing.watch_server(t, "sunrpc/svc_send")
    with Client(stage) as client:
        t.server.run("python3", "-c", LOCAL, record(calls.null(local)).hex())
        client.ping()
        flags = {int(fields["xid"], 16): fields.get("flags", "")
                 for _, fields in tracing.of_server(t)}
        equal(["LOCAL" in flags[xid] for xid in (local, client.xid)], [True, False], f"{flags}")


# covers: Our server's tracepoints report connections, calls, RDMA operations, answers and refusals.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def tracepoints_tell_what_happened(t):
    stage, xids = Stage(t), {}
    tracing.watch_server(t)
    with Client(stage) as client:
        client.ping()
        xids["ping"] = client.xid
        for name, deed in (("write", tables.Writing()), ("version", tables.null(vers=9)),
                           ("read", tables.reading(BLOCK, write=BLOCK)),
                           ("empty", tables.null(payload=b"")),
                           ("reply", tables.payload(lambda xid: word(xid, REPLY, 0, 0, 0, 0)))):
            client.send(deed(client))
            xids[name] = client.xid
            if name != "reply":
                check(client.receive() is not None, f"no answer: {name}")
        client.ping()
        xids["last"] = client.xid
    stage.wait_gone()

    def events():
        found = collections.defaultdict(list)
        for name, fields in tracing.of_server(t):
            found[name.removeprefix("svcrdma_")].append(fields)
        return found

    def is_ping(event):
        return event["xid"] == f"{xids['ping']:#010x}"

    def mine():
        peer, = (event["peer"] for event in events()["call"] if is_ping(event))
        return {name: [event for event in found if event["peer"] == peer]
                for name, found in events().items()}

    wait.until(lambda: "closed" in mine(), ENV.patience(5), "the end of the connection is told")
    found = mine()
    equal([(e["call_max"], e["reply_max"]) for e in found["accepted"]], [("4096", "4096")],
          "accepted connections")
    equal([e["cause"] for e in found["closed"]], ['"the client disconnected"'], "ends")

    def of(name, *fields):
        """Returns a tuple for each event `name` that was recorded. The tuple contains the name of
        the RPC call, and the values of the event's fields `fields`."""
        names = {f"{xid:#010x}": name for name, xid in xids.items()}
        return sorted((names.get(e["xid"], e["xid"]), *(e[field] for field in fields))
                      for e in found[name])

    served = ["last", "ping", "read", "write"]
    equal(of("call", "version"), [(name, "1") for name in served], "calls")
    equal(of("read", "bytes"), [("write", str(BLOCK))], "RDMA Reads")
    equal([name for name, *_ in of("reply")], served, "replies")
    equal(of("reply", "written")[2], ("read", str(BLOCK)), "the reply with RDMA Writes")
    equal(of("refused", "fault"), [("empty", '"no RPC message"'), ("version", '"another version"')],
          "refusals")
    equal(of("dropped"), [("reply",)], "dropped messages")


STAGES = "read", "serve", "reply", "write"


def times(t):
    """Returns, for each stage of a call, how many durations were recorded."""
    head, *rows = t.server.run("cat", f"{FILES}/latency").splitlines()
    columns = zip(*(row.split()[1:] for row in rows), strict=True)
    sums = dict(zip(head.split()[1:], (sum(map(int, one)) for one in columns), strict=True))
    return tuple(sums[stage] for stage in STAGES)


def timed(t, stage, state, least):
    """Makes three calls, one of them with an RDMA Write. Waits until enough durations of each stage
    were recorded: `least` contains the minimum for each stage. Returns how many durations of each
    stage were recorded."""
    t.server.call("text", f"{FILES}/measure_latency", state)
    before = times(t)
    found = []
    with Client(stage) as client:
        for deed in (tables.Writing(), tables.reading(BLOCK, write=BLOCK), tables.null()):
            client.send(deed(client))
            check(client.receive() is not None, "no answer")

    def counted():
        found[:] = [now - then for now, then in zip(times(t), before, strict=True)]
        return all(map(int.__ge__, found, least))

    wait.until(counted, ENV.patience(5), f"times of each stage, with the switch at {state}")
    return found


# covers: While `measure_latency` is on, our server records the duration of each stage of a call.
# While it is off, our server records no durations.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def stages_of_calls_are_timed(t):
    stage = Stage(t)
    t.defer(t.server.call, "text", f"{FILES}/measure_latency", "0")
    timed(t, stage, "1", (3, 3, 3, 1))
    # During the first attempts, durations of earlier calls may still be recorded. So the test is
    # repeated until no duration is recorded.
    wait.until(lambda: not any(timed(t, stage, "0", (0,) * len(STAGES))), ENV.patience(5),
               "no time is counted that is not wanted")


# covers: RSP-210
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def a_noisy_client_does_not_silence_another(t):
    stage = Stage(t)
    left_out, before = counters(t)["log_lines_left_out"], accepted(t, "[")
    # Without a limit, the server's log would have two lines for each of these connections. All of
    # them begin and end within a few seconds.
    for _ in range(NOISY):
        with Client(stage) as client:
            client.ping()
    # This mount is made from the same host, but from another address.
    t.mount(version="3", netid="rdma6")
    equal(accepted(t, "[") - before, 1, "lines about the other address")
    check(counters(t)["log_lines_left_out"] > left_out, "no line was left out")


def accepted(t, address):
    """Returns how many connections the server's log reports from addresses that begin with this
    text."""
    return t.server.run("dmesg").count(f"svcrdma_rs: connection from {address}")
