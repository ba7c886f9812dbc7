# SPDX-License-Identifier: GPL-2.0
"""A server that misbehaves or is silent while connections are made."""

import os
import re
import signal

from lib import faults, mounts, pattern
from lib.case import ENV, case, check, equal, wait
from lib.responder import Responder, Stage
from lib.workers import Worker, together

MAGIC = b"\xf6\xab\x0e\x18"
WHOLE = 196  # number of bytes of private data in every message that accepts a connection
LATE_SECONDS = 3
ANEW_SECONDS = 12  # number of seconds after which the RPC client encodes an unanswered call again
GOOD = MAGIC + bytes((1, 0, 3, 3))
MINIMUM, OURS = [1024, 1024], [4096, 4096]
# Columns: ids of requirements, name of the case, private data of the server, the resulting maximum
# message sizes, and whether these sizes are the defaults.
PRIVATE_DATA = (
    ("MAL-141", "none", b"", MINIMUM, True),
    ("MAL-141", "another identifier", b"\x18\x0e\xab\xf6" + GOOD[4:], MINIMUM, True),
    ("MAL-142", "version 0", MAGIC + bytes((0, 0, 3, 3)), MINIMUM, True),
    ("MAL-142", "version 2", MAGIC + bytes((2, 0, 3, 3)), MINIMUM, True),
    ("MAL-143", "odd offset", b"abc" + GOOD, OURS, False),
    ("MAL-144, MAL-140", "the last 7 bytes", bytes(WHOLE - 7) + GOOD[:7], MINIMUM, True),
    ("MAL-144", "the last byte", bytes(WHOLE - 1) + GOOD[:1], MINIMUM, True),
    ("MAL-144", "the last 8 bytes", bytes(WHOLE - 8) + GOOD, OURS, False),
    ("MAL-145", "a false identifier in front", MAGIC + bytes(4) + b"x" + GOOD, OURS, False),
    ("MAL-145", "an identifier within one", MAGIC[:3] + GOOD, OURS, False),
    ("MAL-146", "sizes ff", MAGIC + bytes((1, 0, 255, 255)), OURS, False),
    ("CM-23", "sizes 0", MAGIC + bytes((1, 0, 0, 0)), MINIMUM, False),
    ("MAL-147", "reserved bits", MAGIC + bytes((1, 0xfe, 3, 3)), OURS, False),
    ("CM-16", "remote invalidation", MAGIC + bytes((1, 1, 3, 3)), OURS, False),
    ("MAL-148", "bytes behind", GOOD + b"\xff" * (WHOLE - 8), OURS, False),
)


# covers: CM-01, CM-10, CM-16, CM-13, CM-14, MAL-140, MAL-141, MAL-142, MAL-143, MAL-144, MAL-145,
# covers: MAL-146, MAL-147, MAL-148
@case(versions=(), clients=("ours",), seconds=60)
def odd_private_data(t):
    stage, complaints = Stage(t), []
    for rules, name, data, sizes, default in PRIVATE_DATA:
        before = stage.counters()
        stage.responder.call("plan", [{"private": data.hex()}])
        stage.disconnect()
        stage.read()
        stage.list()
        found, after = stage.numbers("inline"), stage.counters()
        counted, reminv = (after[c] - before[c] for c in ("cm_default", "reminv"))
        t.note(f"{rules}: {name}: {data[-20:].hex()}: {found}, cm_default {counted}, "
               f"{reminv} invalidated by the server")
        if (found, counted) != (sizes, int(default)):
            complaints.append(f"{name}: {found} and {counted} defaults instead of {sizes}")
        if (reminv > 0) != (rules == "CM-16"):
            complaints.append(f"{name}: {reminv} remote invalidations")
    stage.undisturbed()
    check(not complaints, "\n".join(complaints))


# covers: MAL-150, MAL-152: The server rejects connections, or accepts them and drops them. The
# client waits longer after each failure. In the end it connects, and the call completes without an
# error.
@case(versions=(), clients=("ours",), seconds=60)
def connections_refused_and_dropped(t):
    stage = Stage(t)
    # The first three pauses between connection attempts are at least 0.25 s, 0.5 s and 1 s long.
    for plan, times, least in (({"reject": True}, 2, 0.7), ({"drop": True}, 3, 1.7)):
        stage.small()
        stage.responder.call("plan", [plan] * times)
        stage.disconnect()
        found, seconds = stage.ends(stage.read)
        equal(found, 0, f"a call while {plan}")
        t.note(f"{plan} {times} times: done in {seconds:.2f} s, {stage.causes()}")
        check(seconds >= least, f"{times} connections within {seconds:.2f} s")
        stage.undisturbed()


# covers: MAL-152, MAL-150: The server drops each connection. A soft mount then returns an error
# within its time limit.
@case(versions=(), clients=("ours",), seconds=60)
def a_soft_mount_gives_up_on_a_server_that_drops(t):
    stage = Stage(t, options="soft,timeo=20,retrans=1")
    stage.responder.call("plan", [{"drop": True}] * 100)
    stage.disconnect()
    found, seconds = stage.ends(stage.small)
    t.note(f"error {found} after {seconds:.2f} s")
    check(found in (5, 110), f"error {found}")
    stage.responder.call("plan", [])
    wait.until(lambda: stage.ends(stage.small)[0] == 0, ENV.patience(20), "works again")
    stage.undisturbed()


# covers: MAL-150, MAL-151: A first mount reports why it failed.
@case(versions=("3", "4.2"), clients=("ours",), seconds=60, slow=True)
def first_mounts_tell_why(t):
    responder = Responder()
    t.defer(responder.close)
    for plan, word in (({"reject": True}, "refused"), ({"reads": 0}, "Protocol not supported")):
        responder.call("plan", [plan] * 50)
        mount = t.unmounted("retry=0", port=responder.port)
        try:
            mount.make()
        except mounts.Refused as refused:
            t.note(f"{plan}: {refused}")
            check(word in str(refused), f"{plan}: {refused}")
        else:
            raise AssertionError(f"mounted although {plan}")
        responder.call("plan", [])


# covers: MAL-151: On a mount that worked before, calls wait until the server accepts RDMA Reads
# again.
@case(versions=(), clients=("ours",), seconds=60)
def a_server_that_will_not_read(t):
    stage = Stage(t)
    stage.responder.call("plan", [{"reads": 0}] * 2)
    stage.disconnect()
    found, seconds = stage.ends(stage.write)
    t.note(f"done in {seconds:.2f} s")
    equal(found, 0, "a call while the server cannot read")
    stage.undisturbed()


def write_inline(t, stage):
    """Sends a call that is longer than the minimum inline size of 1024 bytes, and fits into a
    message."""
    here, there = stage.top.path("large")
    data = pattern.data(6, 0, 2500)
    fd = os.open(here, os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o644)
    os.write(fd, data)
    os.close(fd)
    t.server.expect(there, data)


# covers: MAL-149, CM-24: The server's Receives are smaller than it announced. After the second lost
# connection the client sends messages of at most 1024 bytes.
@case(versions=(), clients=("ours",), seconds=60)
def receives_smaller_than_announced(t):
    stage = Stage(t)
    stage.responder.call("plan", [{"receive": 1024}] * 10)
    stage.disconnect()
    stage.small()
    before = stage.counters()["cm_fallback"]
    found, seconds = stage.ends(lambda: write_inline(t, stage))
    t.note(f"done in {seconds:.2f} s, {stage.causes()}, inline {stage.numbers('inline')}")
    equal(found, 0, "a call of 2500 bytes")
    equal(stage.counters()["cm_fallback"] - before, 1, "cm_fallback")
    equal(stage.numbers("inline")[0], 1024, "bytes of a message")
    stage.undisturbed()


# covers: MAL-149: Three connections are lost, each shortly after the server accepted a large
# message. The client does not reduce its message size, because the server accepts large messages.
@case(versions=(), clients=("ours",), seconds=60)
def losses_behind_large_messages_change_nothing(t):
    stage = Stage(t)
    before = stage.counters()["cm_fallback"]
    for _ in range(3):
        write_inline(t, stage)
        stage.responder.call("arm", "ends before the call is served")
        equal(stage.ends(stage.small)[0], 0, "a call whose connection ends")
    stage.small()
    t.note(f"{stage.causes()}, inline {stage.numbers('inline')}")
    equal(len(stage.causes()), 3, "connections lost")
    equal(stage.counters()["cm_fallback"], before, "cm_fallback")
    equal(stage.numbers("inline"), OURS, "bytes of a message")
    stage.undisturbed()


# covers: MAL-153, V1-014: The server never answers the first call of a connection. The timer of the
# call ends the connection. Before the first answer the client sends no other call.
@case(versions=(), clients=("ours",), seconds=60)
def a_first_answer_that_never_comes(t):
    stage = Stage(t, options="timeo=20,retrans=2")
    stage.responder.call("arm", "never answered")
    stage.disconnect()
    found, seconds = stage.ends(lambda: together(4, lambda _: stage.small()))
    left, log = stage.responder.call("log")
    t.note(f"done in {seconds:.2f} s, {stage.causes()}, {log}")
    equal((found, left), (0, 0), "the calls, and what was left of the row")
    check("ended after 1 calls" in log, f"more calls without a grant: {log}")
    stage.undisturbed()


# covers: V1-100: A call was sent on the previous connection. If its timer expires during an attempt
# to reconnect, the attempt continues.
@case(versions=(), clients=("ours",), seconds=60)
def timers_of_calls_leave_an_attempt_alone(t):
    stage = Stage(t, options="timeo=20,retrans=2")
    stage.responder.call("arm", "never answered")
    caller = stage.caller()
    wait.until(lambda: stage.responder.call("log")[0] == 0, ENV.patience(10), "the call is held")
    # The pause of `LATE_SECONDS` is longer than the time after which the call's timer expires.
    stage.responder.call("plan", [{"late": LATE_SECONDS}])
    clock = wait.Clock()
    stage.disconnect()
    caller.join(ENV.patience(20))
    log = stage.responder.call("log")[1]
    t.note(f"done after {clock.seconds():.1f} s, {log}, {stage.causes()}")
    check(clock.seconds() > LATE_SECONDS, "connected too soon")
    equal(len([line for line in log if line.startswith("accepted")]), 1, "attempts to connect")
    equal(len(stage.causes()), 1, "connections lost")
    stage.undisturbed()


# covers: V1-014, V1-095: A connection ends while many calls are in flight. The client sends one of
# them on the next connection, and sends the others only after the first answer.
@case(versions=(), clients=("ours",), seconds=60)
def calls_of_an_ended_connection_wait_for_a_grant(t):
    stage = Stage(t, options="timeo=20,retrans=2")
    stage.responder.call("arm", "crowd never answered")
    found, seconds = stage.ends(stage.crowd)
    left, log = stage.responder.call("log")
    t.note(f"done in {seconds:.2f} s, {stage.causes()}, {log}")
    equal((found, left), (0, 0), "the calls, and what was left of the row")
    served = re.findall(r"ended after (\d+) calls", "\n".join(log))
    check(served[1:2] == ["1"], f"calls without a grant: {served}")
    stage.undisturbed()


def held_read(_, stage):
    """Starts a read that the responder does not answer."""
    stage.read()


def held_list(_, stage):
    os.listdir(stage.top.here)


# covers: MAL-104: After a process is killed, the server can no longer access the memory of the
# process's call. The call lists a directory, because the call of a direct read (O_DIRECT) would
# continue after the death of its process.
@case(versions=(), clients=("ours",), seconds=60)
def memory_of_a_killed_call(t):
    stage = Stage(t)
    stage.new_name()
    stage.responder.call("arm", "held list")
    worker = Worker(held_list, stage)
    wait.until(lambda: stage.responder.call("log")[0] == 0, ENV.patience(10), "the call is held")
    worker.kill(signal.SIGKILL)
    worker.join(ENV.patience(20), killed=True)
    handle, _, offset = stage.responder.call("segments")[0]
    status = stage.responder.call("touch", handle, offset)
    t.note(f"memory touched: {status}")
    equal(status, "rem_access", "access to the memory of a killed call")
    stage.read()
    stage.undisturbed()


# covers: V1-013: The timer of a call expires, and the RPC client encodes the call again. It cannot
# send the call, because the task that holds the send lock is stopped. Then the reply to the first
# transmission arrives. The client does not count this reply as an error of the server. After that,
# the process of the call is killed. The call then holds no credit, because no further reply will
# arrive.
@case(versions=(), clients=("ours",), stock_only=True, seconds=60)
def the_credit_of_a_call_encoded_anew(t):
    stage = Stage(t, options=f"timeo={10 * ANEW_SECONDS}")
    before = stage.mount.connects()
    stage.responder.call("arm", "two credits, both held")
    stage.small()
    callers = []
    for left in (1, 0):
        callers.append(stage.caller())
        wait.until(lambda n=left: stage.responder.call("log")[0] == n,
                   ENV.patience(ANEW_SECONDS), "the call is held")
    late, other = callers
    sender = stage.caller()
    stage.wait_senders(1, "a call that waits for a credit")
    with faults.stopped(sender.pid):
        # The responder answers the call of `other`. The process `sender`, which is stopped, then
        # gets the credit of this call and the send lock.
        stage.responder.call("release")
        other.join(ENV.patience(10))
        stage.wait_senders(0, "the right to send given away")
        stage.wait_senders(1, "a call that was encoded anew")
        counters = stage.counters()
        stage.responder.call("release")
        wait.until(lambda: stage.counters()["late_replies"] > counters["late_replies"],
                   ENV.patience(10), "the late reply")
        equal(stage.moved(counters), {}, "offences")
        late.kill()
        late.join(ENV.patience(10), killed=True)
        equal(stage.numbers("credits")[2], 0, "credits of calls that were given up")
    sender.join(ENV.patience(10))
    stage.small()
    equal(stage.mount.connects(), before, f"connections ({stage.causes()})")
    stage.undisturbed()


# covers: V1-103, V1-105: The task that holds the send lock is stopped. Then the connection fails.
# The RPC client cannot close the connection without the send lock. Then a process is killed while
# the server still has access to the memory of the process's call. Our driver revokes this access
# although the connection is not closed yet, so the process ends.
@case(versions=(), clients=("ours",), stock_only=True, seconds=60)
def memory_comes_back_though_nobody_can_close_the_connection(t):
    stage = Stage(t)
    stage.new_name()
    stage.responder.call("arm", "held list")
    victim = Worker(held_list, stage)
    wait.until(lambda: stage.responder.call("log")[0] == 0, ENV.patience(10), "the listing is held")
    stage.responder.call("arm", "two credits, one held")
    stage.small()
    other = stage.caller()
    wait.until(lambda: stage.responder.call("log")[0] == 0, ENV.patience(10), "the call is held")
    sender = stage.caller()
    stage.wait_senders(1, "a call that waits for a credit")
    with faults.stopped(sender.pid):
        stage.responder.call("release")
        other.join(ENV.patience(10))
        stage.wait_senders(0, "the right to send given away")
        equal(stage.counters()["mrs_in_use"], 1, "regions in use")
        # A write with a wrong key makes the queue pairs of the client and the server fail. From now
        # on, work requests of the client are flushed.
        handle, _, offset = stage.responder.call("segments")[0]
        equal(stage.responder.call("touch", handle ^ 1, offset), "rem_access", "another key")
        wait.until(stage.is_to_be_closed, ENV.patience(20), "the end of the connection")
        clock = wait.Clock()
        victim.kill()
        victim.join(ENV.patience(10), killed=True)
        t.note(f"ended after {clock.seconds():.2f} s")
        check(stage.is_to_be_closed(), "the RPC client has closed the connection")
        equal(stage.counters()["mrs_in_use"], 0, "regions in use of a connection that has ended")
    sender.join(ENV.patience(20))
    stage.read()
    stage.undisturbed()


# covers: MAL-106: A region of one connection cannot be accessed through another connection of the
# same server.
@case(versions=(), clients=("ours",), seconds=60)
def keys_of_another_connection(t):
    stage = Stage(t)
    other = Responder(stage.responder.port + 1)
    t.defer(other.close)
    second = t.mount(version="3", options="noac", port=other.port)
    stage.responder.call("arm", "held")
    before = stage.mount.connects()
    reader = Worker(held_read, stage)
    wait.until(lambda: stage.responder.call("log")[0] == 0, ENV.patience(10), "the call is held")
    handle, _, offset = stage.responder.call("segments")[0]
    status = other.call("touch", handle, offset)
    t.note(f"key of another connection: {status}")
    equal(status, "rem_access", "access by another connection")
    os.statvfs(second.where)
    stage.responder.call("release")
    reader.join(ENV.patience(20))
    equal(stage.mount.connects(), before, "connections of the mount whose key it was")
    stage.undisturbed()
