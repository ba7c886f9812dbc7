# SPDX-License-Identifier: GPL-2.0
"""Calls that Kerberos protects, and memory that a client changes during a call."""

import os

from lib import kerberos, wait
from lib.asking import BLOCK, Client, Stage
from lib.case import ENV, case, check, equal
from lib.hostile.message import numbers
from lib.requester import calls, gss, tables
from lib.served import transfers

CLIENTS = "ours", "intree"
SERVICE = f"nfs@server.{kerberos.DOMAIN}"
SERVICES = {"krb5": gss.AUTHENTICATION, "krb5i": gss.INTEGRITY, "krb5p": gss.PRIVACY}
UNTOUCHED = b"\xee"
# `SHORT` is the length in bytes of a READ whose results fit into a message. `ROOM` is the size in
# bytes of the Reply chunk for a READ whose results do not fit into a message.
SHORT, ROOM = 512, 3 * BLOCK
OTHER, LAST = b"\x5a", b"\x3c"
# `CHANGES` is the number of calls during which memory changes. `SECONDS` is the time limit for the
# answer to each long call.
CHANGES, SECONDS = 12, 2


class Protected:
    """READ calls with Kerberos for the requester's file. Each call offers a Write chunk. The server
    may use the Write chunk only if the call uses Kerberos for authentication alone."""

    def __init__(self, client):
        self.client = client
        self.context = gss.Context(client, SERVICE)

    def read(self, service, count, room=False):
        """Sends a READ call that offers a Write chunk. Returns the server's answer, and the memory
        that the Write chunk describes."""
        memory, chunk = self.client.memory(UNTOUCHED * BLOCK, tables.WRITE)
        xid = self.client.next()
        call = self.context.compound(xid, service, tables.PATH, calls.read(0, count))
        reply = [self.client.memory(ROOM, tables.WRITE)[1]] if room else None
        self.client.send(self.client.message(payload=call, xid=xid, writes=[[chunk]], reply=reply))
        found = self.client.receive()
        check(found is not None and found.xid == xid, f"answered by {found}")
        return found, memory

    def results(self, found, service):
        """Returns the results in an answer. The answer must report success."""
        reply = found.payload
        if found.kind == "RDMA_NOMSG":
            used = sum(segment.length for segment in found.reply)
            reply = self.client.connection.regions[-1].read(used, 0)
        results = self.context.results(reply, service)
        equal(numbers(results, 0), (0,), "the state of the compound")
        return results


# covers: RSP-092: A client offers a Write chunk with calls under integrity or privacy. Our server
# sends all of the reply inline or to the Reply chunk. With authentication alone our server uses the
# Write chunk.
@case(versions=(), clients=CLIENTS, server="ours", seconds=150)
def protected_replies_use_no_write_chunk(t):
    kerberos.Realm(t)
    os.environ["KRB5CCNAME"] = kerberos.Realm.log_in()
    stage = Stage(t)
    with Client(stage) as client:
        client.ping()
        protected = Protected(client)
        for name, service in SERVICES.items():
            reduced = service == gss.AUTHENTICATION
            for count, room, kind in ((SHORT, False, "RDMA_MSG"), (BLOCK, True, "RDMA_NOMSG")):
                found, memory = protected.read(service, count, room)
                written = sum(segment.length for segment in found.writes[0])
                content = memory.read(BLOCK, 0)
                data = stage.original[:count]
                equal(found.kind, "RDMA_MSG" if reduced else kind, f"{name}, {count} bytes")
                results = protected.results(found, service)
                if reduced:
                    equal((written, content[:count]), (count, data), f"{name}: the Write chunk")
                else:
                    check(data in results, f"{name}: other data than those of the file")
                    equal(written, 0, f"{name}: bytes in the Write chunk")
                    equal(content, UNTOUCHED * BLOCK, f"{name}: the memory of the Write chunk")
            if not reduced:
                found, memory = protected.read(service, BLOCK)
                equal(found.kind, "RDMA_ERROR", f"{name}: a reply that has no room")
                equal(memory.read(BLOCK, 0), UNTOUCHED * BLOCK, f"{name}: its Write chunk")
    stage.undisturbed()
    stage.wait_gone()


def flip(region, contents, done, seconds):
    """Writes the elements of `contents` into a region, one after the other, and repeats this until
    `done()` is true or `seconds` have passed."""
    clock, turn = wait.Clock(), 0
    while not done() and clock.seconds() < seconds:
        region.write(contents[turn % len(contents)], len(contents[0]))
        turn += 1


# covers: A client changes the data of a WRITE while our server reads the data, and afterwards. Our
# server reads the data only once. A change after the answer has no effect.
@case(versions=(), clients=CLIENTS, server="ours", seconds=60)
def data_that_change_during_a_write(t):
    stage = Stage(t)
    with Client(stage) as client:
        client.ping()
        for _ in range(CHANGES):
            message, before = tables.Writing()(client), transfers(t, "read")
            region, connection = client.connection.regions[-1], client.connection
            client.send(message)

            def answered(connection=connection):
                connection.drain()
                return connection.received

            flip(region, (tables.NEW * BLOCK, OTHER * BLOCK), answered, ENV.patience(SECONDS))
            region.write(LAST * BLOCK, BLOCK)
            found = client.receive()
            check(found is not None, "no answer")
            equal(calls.outcome(found.payload), ("nfs", 0), "the outcome of the WRITE")
            equal(transfers(t, "read") - before, 1, "RDMA Reads of a WRITE")
            content = stage.content()
            check(set(content) <= set(tables.NEW + OTHER), "other bytes than those of the WRITE")
            equal(stage.content(), content, "what the file contains a moment later")
    stage.undisturbed()
    stage.wait_gone()


# covers: A client changes a long call several times while our server reads the call. The server
# executes one version of the call, or refuses the call. Other clients are not disturbed.
@case(versions=(), clients=CLIENTS, server="ours", seconds=90)
def a_long_call_that_changes(t):
    stage, kinds = Stage(t), []
    for _ in range(CHANGES):
        stage.refill()
        with Client(stage) as client:
            client.ping()
            xid = client.next()
            forms = [calls.compound(xid, tables.PATH, calls.read(0, 64)),
                     calls.compound(xid, tables.PATH, calls.write(0, 64) + tables.NEW * 64),
                     calls.null(xid)]
            length = max(map(len, forms))
            forms = [form.ljust(length, b"\0") for form in forms]
            region, segment = client.memory(forms[0], tables.READ)
            client.send(client.message(payload=b"", kind="RDMA_NOMSG", xid=xid,
                                       reads=[(0, segment)]))
            connection = client.connection

            def over(connection=connection):
                return connection.ended() or connection.received

            flip(region, forms, over, ENV.patience(SECONDS))
            found = client.receive(0.1) if connection.received else None
            kinds.append(found.kind if found else "none")
        content = stage.content()
        check(content in (stage.original, tables.NEW * 64 + stage.original[64:]),
              "other bytes than those of the call")
        stage.undisturbed()
    t.note(f"answers: {kinds}")
    check("RDMA_MSG" in kinds, "no call was served")
    stage.wait_gone()
