# SPDX-License-Identifier: GPL-2.0
"""Tests with a server that violates the protocol. Every call must end as required, and nothing else
may be disturbed.
"""

import os
import pathlib
import re
import time

from lib import module, pattern, tracing, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait
from lib.hostile import access, chunks, headers, message, reverse
from lib.responder import Responder, Stage

KIB = 1 << 10
# Number of wrong invalidations after which the client accepts no more invalidations from a server.
GUESSES = 3
# Length of a WRITE in bytes. The length is much greater than the size of the queue in which TCP
# keeps data that it has not sent.
LONG, QUEUE = 512 * KIB, 64 * KIB
WMEM = pathlib.Path("/proc/sys/net/ipv4/tcp_wmem")


# covers: V1-003: This is a test of the proxy itself. Mounts through the proxy work while the proxy
# follows the protocol. The Read and Write lists contain everything that the proxy needs for its
# transfers.
@case(versions=("3", "4.1", "4.2"), clients=("ours", "intree"), seconds=90, slow=True)
def a_proxy_that_behaves(t):
    responder = Responder()
    t.defer(responder.close)
    mount = t.mount(port=responder.port)
    top = t.directory(mount)
    here, there = top.path("file")
    size = 300 * KIB + 5
    with open(here, "wb") as file:
        file.write(pattern.data(1, 0, size))
    t.server.expect(there, pattern.data(1, 0, size))
    fd, buffer = os.open(here, os.O_RDONLY | os.O_DIRECT), Buffer(512 * KIB)
    found = buffer.read(fd, size, 0)
    problem = pattern.difference(found, pattern.data(1, 0, size), 0)
    check(problem is None, problem)
    os.close(fd)
    t.server.call("create", top.there, 300, "name" * 20)
    equal(len(os.listdir(top.here)), 301, "names")
    equal(mount.connects(), 1, "connections")
    t.note(str(responder.call("log")[1]))


# covers: MAL-001, MAL-003, MAL-004, MAL-005, MAL-006, MAL-007, MAL-008, MAL-009, MAL-010,
# covers: MAL-011, MAL-012, MAL-018, MAL-043, MAL-108, V1-087, V1-088, V1-090, V1-091, ULB-28
@case(versions=(), clients=("ours",), seconds=60)
def odd_completions(t):
    Stage(t).play_all(headers.COMPLETIONS)


# Pattern of a failed work request in the log. The parts are the kind of work request, its status as
# text and number, and the device's own error number.
FAILED = re.compile(r"\(RECV: [^;,]+, status [12], vendor error 0x[0-9a-f]+[;)]")


# covers: MAL-001: The record of a disconnect names the first work request that failed. The record
# contains the kind of work request, its status, and the vendor's error number. If all work requests
# were only flushed, the record says so.
@case(versions=(), clients=("ours",), seconds=30)
def the_work_request_that_failed_is_named(t):
    stage = Stage(t)
    stage.small()
    stage.play(next(row for row in headers.COMPLETIONS if row.name == "longer than the Receive"))
    cause, details = xprt.disconnects()[0]
    t.note(f"{cause}{details}")
    check(FAILED.search(details), f"state: {cause}{details}")
    stage.responder.call("cut")
    wait.until(lambda: len(xprt.disconnects()) > 1, ENV.patience(10), "the second end")
    cause, details = xprt.disconnects()[0]
    t.note(f"{cause}{details}")
    flushed = ": flushed" in details and ", status " not in details
    equal("no work request told of an error" in details, flushed, f"state: {cause}{details}")
    stage.undisturbed()


# covers: MAL-020, MAL-021, MAL-022, MAL-023, MAL-024, MAL-025, MAL-026, MAL-027, MAL-029,
# covers: MAL-030, MAL-031, MAL-032, MAL-033, MAL-034, MAL-035, MAL-036, MAL-037, MAL-038,
# covers: MAL-039, MAL-040, MAL-041, MAL-042, MAL-044, MAL-046, MAL-045, V1-015, V1-083, V1-084,
# covers: V1-088, V1-090, V1-091, V1-096, ULB-32
@case(versions=(), clients=("ours",), seconds=90)
def bad_fixed_headers(t):
    Stage(t).play_all(headers.FIXED_HEADER)


# covers: MAL-050, MAL-051, MAL-052, MAL-053, MAL-054, MAL-055, MAL-056, MAL-057, MAL-058,
# covers: MAL-059, MAL-060, MAL-062, MAL-063, MAL-064, MAL-065, MAL-066, MAL-068, MAL-069,
# covers: MAL-076, MAL-077, MAL-078, MAL-079, MAL-080, MAL-081, MAL-082, MAL-083, MAL-084,
# covers: MAL-085, MAL-086, MAL-087, MAL-088, MAL-115, V1-047, V1-054, V1-066, V1-068, V1-070,
# covers: V1-075, V1-101, ULB-23
@case(versions=(), clients=("ours",), seconds=90)
def bad_chunk_lists(t):
    Stage(t).play_all(chunks.CHUNK_LISTS)


# covers: MAL-064, MAL-066, MAL-067, MAL-068, MAL-069, MAL-089: The proxy sends invalid chunks of
# several segments.
@case(versions=(), clients=("ours",), loaded=False, seconds=60)
def bad_chunks_of_several_segments(t):
    module.insmod("region_pages=1 strict=1")
    t.defer(module.unload)
    Stage(t).play_all(chunks.SEVERAL_SEGMENTS)


# covers: MAL-071, MAL-090, MAL-091, MAL-092, MAL-093, MAL-094, MAL-095, MAL-096, MAL-097,
# covers: MAL-098, V1-077
@case(versions=(), clients=("ours",), seconds=60)
def bad_payloads(t):
    Stage(t).play_all(chunks.PAYLOAD)


# covers: MAL-013, MAL-014, MAL-015, MAL-016, CM-16
@case(versions=(), clients=("ours",), seconds=60)
def wrong_remote_invalidation(t):
    Stage(t).play_all(access.INVALIDATION)


def invalidations(stage, deed, call):
    """Returns how many regions the client and the server have invalidated for a call. `deed` is the
    misbehaviour of the responder, or `None`."""
    before = stage.counters()
    if deed:
        stage.responder.call("arm", deed)
    call()
    after = stage.counters()
    return [after[name] - before[name] for name in ("local_inv", "reminv_unannounced")]


# covers: MAL-013, CM-19: The server invalidates a region without being asked. The client accepts
# the invalidation if the reply repeats a secret that only the Send of its call contained. Otherwise
# the client invalidates the region itself. A reply to a call that was sent again proves nothing,
# because the server already knew the secret. On siw no reply is a proof.
@case(versions=(), clients=("ours",), seconds=60)
def an_invalidation_that_nobody_asked_for(t):
    stage, proof = Stage(t), [int(ENV.provider == "siw"), 1]
    # After the first WRITE, the xids of WRITEs cannot be predicted.
    stage.write()
    for deed, call, expected in (
            (None, stage.read, [1, 0]),
            ("own region invalidated, not announced", stage.read, proof),
            ("chunk moved", stage.read, [1, 1]),
            (None, stage.write, [1, 0]),
            ("own Read chunk invalidated", stage.write, proof)):
        equal(invalidations(stage, deed, call), expected, f"regions invalidated: {deed}")
    equal(stage.causes(), {}, "connections that ended")
    found = invalidations(stage, "own Read chunk invalidated when it was sent again", stage.write)
    equal(found, [1, 1], "regions invalidated of a call that was sent again")
    stage.read()
    stage.undisturbed()


# covers: V1-103, V1-105: An RDMA Read is in progress when its region is invalidated. After the call
# has ended, the process writes other bytes to the memory. The Read does not transfer these bytes.
# There is one exception, and only with siw: bytes in memory to which TCP's send queue already
# refers.
@case(versions=(), clients=("ours",), provider="siw", seconds=60)
def a_read_does_not_outlive_its_call(t):
    t.defer(WMEM.write_text, WMEM.read_text())
    WMEM.write_text(f"{QUEUE} {QUEUE} {QUEUE}")
    stage = Stage(t)
    stage.write()
    stage.responder.call("arm", "read under way")
    buffer, start = Buffer(LONG), time.monotonic()
    buffer.write(stage.fd, b"\x11" * LONG, 0)
    ended = time.monotonic() - start
    # The call has ended, so the process owns the memory again.
    buffer.view(LONG)[:] = b"\xee" * LONG
    found = ""

    def over():
        nonlocal found
        _, log = stage.responder.call("log")
        found = next((line for line in log if line.startswith("read under way")), "")
        return bool(found)

    wait.until(over, ENV.patience(20), "the end of the Read")
    t.note(f"write() took {ended:.2f} s; {found}")
    others = int(found.rpartition(": ")[2].partition(" ")[0])
    check(others <= 3 * QUEUE, f"{others} octets came that were written behind the call")
    # The file gets its original length and content again. If the Read was refused, the connection
    # has ended, and the client first connects again.
    os.ftruncate(stage.fd, 0)
    stage.write()
    stage.undisturbed()


# covers: MAL-015: The server guesses: it answers the next call before the client sends that call,
# and invalidates the key of an earlier call's region. The client ends the connection after each
# guess. After the third guess the client accepts no more invalidations from this server. On siw the
# client never accepts invalidations, so the test uses rxe.
@case(versions=(), clients=("ours",), provider="rxe", seconds=60)
def a_server_that_guesses_is_not_believed(t):
    stage = Stage(t)
    for number in range(GUESSES):
        check("not asked for" not in (stage.debugfs / "state").read_text(), "doubted too early")
        stage.responder.call("arm", "call answered and kept")
        stage.read()
        stage.responder.call("arm", "next call answered with a key that was invalidated")
        stage.small()
        wait.until(lambda made=number + 1: stage.counters()["reminv_wrong"] == made,
                   ENV.patience(10), "the guess is noticed")
    stage.read()
    state = (stage.debugfs / "state").read_text()
    check("remote invalidation: not asked for, the server has" in state, state)
    found = invalidations(stage, "own region invalidated, not announced", stage.read)
    equal(found, [1, 1], "regions invalidated")
    stage.undisturbed()


# covers: V1-108, MAL-100, MAL-101, MAL-102, MAL-105, MAL-107, MAL-108: A transfer fails, so the
# client gets no reply. The client repeats the call, and the data are right.
@case(versions=(), clients=("ours",), seconds=60)
def access_to_memory_is_refused(t):
    Stage(t).play_all(access.ACCESS)


# covers: MAL-103, MAL-108, MAL-150: If the server writes data but sends no reply, the client must
# not use the data. If the server sends a reply, the client must have received the data.
# covers: MAL-002: A Receive that is flushed when the connection ends is not taken for a message.
@case(versions=(), clients=("ours",), seconds=60)
def connections_end_at_every_point(t):
    Stage(t).play_all(access.ENDINGS)


# covers: MAL-110, BC-17
@case(versions=(), clients=("ours",), seconds=60)
def callbacks_without_a_backchannel(t):
    Stage(t).play_all(reverse.NO_BACKCHANNEL)


# covers: MAL-014, MAL-028, MAL-111, MAL-112, MAL-113, MAL-114, MAL-116, MAL-117, MAL-118, MAL-119,
# covers: MAL-120, MAL-121, MAL-122, MAL-123, MAL-124, MAL-125, MAL-126, MAL-127, MAL-128,
# covers: MAL-130, MAL-132, MAL-133, MAL-134, BC-02, BC-05, BC-10, BC-11, BC-13, CM-22
@case(versions=("4.2",), clients=("ours",), seconds=90)
def bad_callbacks(t):
    Stage(t, t.version).play_all(reverse.REVERSE)


def answers(log):
    """Returns two lists of the client's answers to callbacks: the answers before the connection
    ended, and the answers on the next connection.
    """
    end = next((n for n, line in enumerate(log) if line.startswith("ended")), len(log))
    return [[message.decode(bytes.fromhex(line.split()[1])) for line in part
             if line.startswith("answered")] for part in (log[:end], log[end:])]


def handed_over(events):
    """Returns the status of each answer to a callback on the newest connection, as the transport
    has reported it."""
    end = max(n for n, (name, _) in enumerate(events) if name == "xprtrdma_connected")
    return [int(fields["status"]) for name, fields in events[end:] if name == "xprt_transmit"
            and 0 <= int(fields["xid"], 16) - reverse.XID < reverse.CREDITS]


# covers: MAL-132
# covers: BC-19, BC-27, BC-04, BC-03, V1-014: The connection ends while the client executes
# callbacks. The server sends the same callbacks again on the next connection. The client answers
# each of them once. The NFS session recognizes that they are repeated. The credits for calls start
# again at one, and callbacks grant no credits. The client drops the answers for the old connection.
# No call gets an error.
@case(versions=("4.2",), clients=("ours",), seconds=60)
def callbacks_come_again_after_a_reconnect(t):
    stage = Stage(t, t.version)
    tracing.start(t, "sunrpc:xprt_transmit", "xprtrdma_rs:xprtrdma_connected")
    before = stage.counters()
    stage.responder.call("arm", reverse.AGAIN.name)
    caller = stage.caller()
    wait.until(lambda: stage.counters()["callbacks"] >= before["callbacks"] + reverse.CREDITS,
               ENV.patience(10), "callbacks delivered")
    stage.responder.call("cut")

    def answered_again():
        return len(answers(stage.responder.call("log")[1])[1]) >= reverse.CREDITS

    wait.until(answered_again, ENV.patience(20), "the same callbacks answered")
    equal(stage.numbers("credits")[1], 1, "credits granted before the first reply")
    stage.responder.call("release")
    caller.join(ENV.patience(20))
    left, log = stage.responder.call("log")
    first, again = answers(log)
    statuses = handed_over(tracing.stop())
    t.note(f"{len(first)} answered before the end, {stage.causes()}, then {statuses}")
    equal(left, 0, "calls that the row did not meet")
    check(len(first) < reverse.CREDITS, "nothing was being served when the connection ended")
    equal(sorted(one.xid for one in again),
          [reverse.XID + number for number in range(reverse.CREDITS)], "callbacks answered again")
    for one in again:
        check(reverse.replay(one), f"not answered as a call seen before: {one}")
    check(len(statuses) > len(again), "no answer came too late for its connection")
    equal(set(statuses), {0}, "errors of answers")
    equal(stage.moved(before), {}, "counters")
    equal(len(stage.causes()), 1, f"connections lost ({stage.causes()})")
    stage.undisturbed()
