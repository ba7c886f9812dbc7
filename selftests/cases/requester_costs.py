# SPDX-License-Identifier: GPL-2.0
"""What calls cost our server: how many times nfsd's threads are woken, how many work requests are
posted, and how many times clients are looked up."""

import contextlib
import re

from lib.asking import Client, Stage
from lib.case import case, check, equal
from lib.requester import calls, row, tables
from lib.served import transfers

CLIENTS = "ours", "intree"
MIB, MEDIUM = 1 << 20, 64 << 10
# `CALLS` is the number of calls. In addition, calls of another mount may wake threads, but at most
# `OTHERS` times.
CALLS, OTHERS = 100, 10
# `ELEMENTS` is the maximum number of scatter/gather elements in a work request of the software
# device. `PAGE` is the size of a page in bytes. Each scatter/gather element refers to at least one
# page.
ELEMENTS, PAGE = 32, 4096
PASSES = "/proc/fs/nfsd/pool_stats"
# A command that shows the addresses of clients that the server has looked up, with the number of
# references to each. The kernel shows these numbers only while sunrpc's debugging of caches is on,
# so the command switches it on and off.
ADDRESSES = """\
echo 2048 > /proc/sys/sunrpc/rpc_debug
cat /proc/net/rpc/auth.unix.ip/content
echo 0 > /proc/sys/sunrpc/rpc_debug"""
# Number of connections that exist at the same time.
CONNECTIONS = 8
LARGE = "/srv/mem/requester/large"


def passes(t):
    """Returns how many times connections were queued for a thread of nfsd."""
    _, *pools = t.server.run("cat", PASSES).splitlines()
    return sum(int(pool.split()[2]) for pool in pools)


# covers: Each call wakes one thread of nfsd once.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def a_call_is_one_pass_of_a_thread(t):
    stage = Stage(t)
    with Client(stage) as client:
        for name, deed in (("NULL", tables.null()),
                           ("READ", tables.reading(tables.BLOCK, write=tables.BLOCK)),
                           ("WRITE", tables.Writing())):
            message = deed(client)
            before = passes(t)
            for number in range(CALLS):
                xid = message.xid + number
                client.send(message.but(xid=xid, payload=xid.to_bytes(4) + message.payload[4:]))
                found = client.receive()
                check(found is not None and found.kind == "RDMA_MSG", f"answered by {found}")
            client.xid += CALLS
            count = passes(t) - before
            t.note(f"{count} passes for {CALLS} calls of {name}")
            check(CALLS <= count <= CALLS + OTHERS, f"{count} passes for {CALLS} calls of {name}")
    stage.undisturbed()
    stage.wait_gone()


def judge_count(t, what, count, length):
    """Checks that `count` work requests are not too many for `length` bytes."""
    # Each page of the file may need a separate scatter/gather element. One more work request is
    # allowed, because the bytes may begin inside a page.
    limit = length // (ELEMENTS * PAGE) + 1
    t.note(f"{count} {what} for {length >> 10} KiB")
    check(1 <= count <= limit, f"{count} {what} for {length >> 10} KiB, at most {limit} wanted")


# covers: The data of a long READ or WRITE take as few work requests as the device allows.
@case(versions=(), clients=CLIENTS, server="ours", provider="rxe", seconds=60)
def long_transfers_take_few_work_requests(t):
    stage = Stage(t)
    content = bytes(range(256)) * (MIB // 256)
    t.server.write(LARGE, content)
    t.defer(t.server.call, "unlink", LARGE)
    with Client(stage) as client:
        client.ping()
        # This memory holds the data of a WRITE. A Read chunk offers it to the server. The chunk's
        # Position is the length of the call without the data.
        _, whole = client.memory(content, row.READ)
        most = int(t.server.call("text", "/proc/fs/nfsd/max_block_size"))
        length = min(MIB, most)
        front = calls.compound(client.next(), LARGE, calls.write(0, length))
        before = transfers(t, "read")
        client.send(client.message(payload=front, xid=client.xid,
                                   reads=[(len(front), whole.but(length=length))]))
        found = client.receive()
        equal(calls.outcome(found.payload), ("nfs", 0), "the outcome of the WRITE")
        judge_count(t, "Reads", transfers(t, "read") - before, length)
        # With one page in each work request, the long READ would not fit into the send queue.
        for count in (MEDIUM, length):
            region, whole = client.memory(MIB, row.WRITE)
            before = transfers(t, "write")
            xid = client.next()
            client.send(client.message(payload=calls.compound(xid, LARGE, calls.read(0, count)),
                                       xid=xid, writes=[[whole]]))
            found = client.receive()
            equal(found.kind, "RDMA_MSG", f"kind of the answer to a READ of {count} bytes")
            used = sum(segment.length for segment in found.writes[0])
            equal(used, count, "bytes in the Write chunk")
            check(region.read(used, 0) == content[:used], "other data than those of the file")
            judge_count(t, "Writes", transfers(t, "write") - before, count)
    stage.undisturbed()
    stage.wait_gone()


def references(t):
    """Returns the total number of references to the client addresses in the server's cache."""
    return sum(map(int, re.findall(r"refcnt=(\d+)", t.server.run("sh", "-c", ADDRESSES))))


# covers: The server looks up the client's address at the first call on a connection, and keeps the
# result of the look-up for later calls.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def a_client_is_looked_up_once(t):
    stage = Stage(t)
    before = references(t)
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = stack.enter_context(Client(stage))
            client.look()
            client.look()
        kept = references(t) - before
    equal(kept, CONNECTIONS, f"addresses that connections keep, beside {before}")
    stage.wait_gone()
    equal(references(t), before, "references that are left")
