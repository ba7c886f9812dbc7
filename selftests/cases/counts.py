# SPDX-License-Identifier: GPL-2.0
"""The work that the RDMA device does per operation. The tests count at the device and not in the
transport."""

import os
import pathlib

from lablib.guest import count, loads
from lib import faults, module, pattern, tracing, xprt
from lib.buffers import PAGE, Buffer
from lib.case import ENV, case, check, equal

KIB, MIB = 1 << 10, 1 << 20
# Factor by which a count may exceed the expected number. A count is an average over 32 operations.
# During these operations, two additional work requests are possible: the Send of a lease renewal,
# and the fence that makes rxe finish old registrations. Such a fence is posted once in half a
# minute (`Qp::retire_registrations`).
SLACK = 1.04
COMPLETIONS = 1.04
# Maximum number of regions that the client may invalidate in this test. These regions belong to the
# first calls with a Read chunk: one call for each NFS procedure that sends data.
FIRST = 4
# `SIZES` contains lengths of transfers: three odd lengths, and the largest possible length.
# `SHIFTS` contains offsets in a page at which the memory of a transfer begins.
SIZES = (4 * KIB + 1, 64 * KIB + 1, MIB - 1, MIB)
SHIFTS = (0, 1, PAGE - 1)
TIMES = 16
# The name of the work queue for completions.
QUEUE = "xprtrdma_rs-comp"


def at_most(found, operation, counter, most):
    value = found[operation][counter]
    check(value <= most * SLACK, f"{operation}: {value:.2f} {counter}, at most {most} wanted")


# For each kind of device: the minimum number of work requests, of posts and of completions that an
# RPC needs. On siw a reply does not prove that the server has invalidated a region, so the client
# invalidates each region itself (rust/rdma/device.rs).
FLOORS = {"rxe": (2, 1, COMPLETIONS), "siw": (3, 2, 2 * COMPLETIONS)}


def at_the_floor(found):
    """Checks that each RPC needs only the minimum number of work requests, posts and completions
    that this device allows."""
    floors = list(FLOORS.get(ENV.provider, FLOORS["rxe"]))
    if xprt.fenced():
        # On this connection each registration needs a fence, which is an additional work request
        # before the registration (rust/rdma/qp/fence.rs).
        floors[0] += 1
    for operation in found:
        for counter, most in zip(("work_requests", "posts", "completions"), floors, strict=True):
            at_most(found, operation, counter, most)


# covers: V1-108, CM-18, ULB-26, X-08: A transfer of 1 MiB takes one region, two work requests and
# one post to the send queue. The client invalidates nothing itself, because the server does.
@case(versions=("3", "4.2"), clients=("ours",), stock_only=True, seconds=180, slow=True)
def a_mebibyte_takes_two_work_requests_and_one_post(t):
    mount = t.mount()
    top = t.directory(mount)
    # After the first WRITE the client knows that WRITEs need xids that the server cannot predict.
    # WRITEs that wait to be sent at that moment already have ordinary xids. On a busy machine there
    # can be many such WRITEs. So the test makes a single small WRITE first.
    pathlib.Path(top.here, "first").write_bytes(bytes(8 * KIB))
    with count.Probe() as probe:
        found = count.measure(mount.where, probe)
    for operation, numbers in found.items():
        t.note(f"{operation}: " + ", ".join(f"{v:.2f} {c}" for c, v in numbers.items()))
    check(pathlib.Path(top.here).is_dir(), "the mount is gone")
    at_the_floor(found)
    # The server has invalidated the region of every transfer, except the regions of the first calls
    # with a Read chunk. From these calls the client learns that calls with a Read chunk need xids
    # that the server cannot predict.
    numbers = mount.xprts()[0]
    check(numbers["local_inv_needed"] <= FIRST,
          f"{numbers['local_inv_needed']} regions invalidated locally")


# Calls that are sent at the same time share a post to the send queue. If calls must wait for
# fences, fewer calls share a post. The NFS version makes no difference, so one version is enough.
@case(versions=("4.2",), clients=("ours",), stock_only=True, seconds=180)
def calls_at_a_time_share_posts(t):
    mount = t.mount()
    with count.Probe() as probe:
        found = count.measure(mount.where, probe, deep=True)
    deep = {operation: numbers for operation, numbers in found.items() if "at a time" in operation}
    check(deep, f"nothing at a time among {', '.join(found)}")
    for operation, numbers in deep.items():
        t.note(f"{operation}: " + ", ".join(f"{v:.2f} {c}" for c, v in numbers.items()))
        check(numbers["posts"] < 0.98 or xprt.fenced(),
              f"{operation}: {numbers['posts']:.2f} posts for each call")
    at_the_floor(deep)


def per_call(mount, probe, call):
    """Repeats `call`. Returns the device's counts per RPC during these calls."""
    for number in range(TIMES // 4):
        call(number)
    probe.take()
    before = loads.rpcs(mount.where)
    for number in range(TIMES):
        call(number)
    counts, calls = probe.take(), loads.rpcs(mount.where) - before
    check(calls >= TIMES, f"{calls} RPCs")
    return {name: number / calls for name, number in counts.items()}


# covers: CM-15, CM-16, MAL-013: The client accepts an invalidation by the server if the reply
# contains a secret that only the Send of the call contained. For a WRITE this secret is an xid
# drawn at random. The first WRITE of a mount does not have such an xid yet, so the test does not
# count this WRITE. On siw a reply never proves an invalidation. So the client invalidates its
# regions itself, and does not ask the server to do so.
@case(versions=("3", "4.2"), clients=("ours",), seconds=60, slow=True)
def regions_are_invalidated_where_it_is_proven(t):
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    data = pattern.data(22, 0, 64 * KIB)
    t.server.write(there, data)
    fd, buffer = os.open(here, os.O_RDWR | os.O_DIRECT), Buffer(64 * KIB)
    with open(fd, "r+b", buffering=0):
        buffer.write(fd, data, 0)
        before = mount.xprts()[0]

        def read(_):
            found = buffer.read(fd, len(data), 0)
            problem = pattern.difference(found, data, 0)
            check(problem is None, problem)

        def write(_):
            buffer.write(fd, data, 0)

        if ENV.debug:
            # The debug kernel cannot run the BPF program that counts work requests.
            for number in range(TIMES):
                read(number)
                write(number)
        else:
            with count.Probe() as probe:
                at_the_floor({"READ": per_call(mount, probe, read),
                              "WRITE": per_call(mount, probe, write)})
    after = mount.xprts()[0]
    t.server.expect(there, data)
    used = sum(after[name] - before[name]
               for name in ("read_segments", "write_segments", "reply_segments"))
    here = after["local_inv_needed"] - before["local_inv_needed"]
    there = [xprt.numbers_of("counters", name)[0] for name in ("reminv", "reminv_unannounced")]
    t.note(f"{used} regions, {here} invalidated here; by the server since the mount: {sum(there)}")
    check(used >= 2 * TIMES, "no regions were used")
    if ENV.provider == "siw":
        state = next(xprt.DEBUGFS.glob("*/state")).read_text()
        check("remote invalidation: not asked for, this device" in state, state)
        equal(here, used, "regions invalidated here")
        equal(there, [0, 0], "regions invalidated by the server")
    else:
        equal(here, 0, "regions invalidated here")
        check(sum(there) >= used, "the server invalidated less than it was given")


# covers: V1-064: A call has no Reply chunk, and takes one work request, if its largest possible
# reply fits into a message. With NFSv3 this is true for GETATTR. With NFSv4.2 it is true for
# GETATTR if both sides accept messages of 8 KiB.
@case(versions=("3", "4.2"), clients=("ours",), loaded=False, stock_only=True, slow=True)
def a_reply_that_fits_takes_one_work_request(t):
    if t.version == "3":
        module.insmod()
    else:
        faults.take_messages_of(t, 8 * KIB)
        module.insmod(f"inline_size={8 * KIB}")
    mount = t.mount()
    with loads.Bed(mount.where) as bed, count.Probe() as probe:
        load = next(load for load in bed.single() if load.name == "GETATTR")
        found = {load.name: per_call(mount, probe, lambda _: load.run(1))}
    t.note(", ".join(f"{v:.2f} {c}" for c, v in found["GETATTR"].items()))
    at_most(found, "GETATTR", "work_requests", 1)
    at_the_floor(found)
    mount.remove()
    module.unload()


# covers: V1-108, ULB-26, X-08: An aligned transfer needs a minimum number of work requests. Three
# other kinds of calls need no more work requests: a transfer of odd length, a transfer of memory
# that begins inside a page, and a call with a Reply chunk whose parts meet at page borders.
@case(versions=("3", "4.2"), clients=("ours",), stock_only=True, seconds=180, slow=True)
def odd_shapes_cost_no_more(t):
    mount = t.mount()
    top, buffer, found = t.directory(mount), Buffer(MIB), {}
    here, there = top.path("file")
    t.server.write(there, pattern.data(21, 0, 2 * MIB))
    t.server.call("create", top.there, 100, "name")

    def listing(number):
        """Lists a directory. Before each listing the server adds a file, so that the client must
        ask the server."""
        t.server.call("create", top.there, 1, f"more{number}-")
        os.listdir(top.here)

    fd = os.open(here, os.O_RDWR | os.O_DIRECT)
    with count.Probe() as probe, open(fd, "r+b", buffering=0):
        for size in SIZES:
            data = pattern.data(21, 0, size)
            for shift in SHIFTS:
                found[f"READ {size} at {shift}"] = per_call(
                    mount, probe, lambda _, n=size, s=shift: buffer.read(fd, n, 0, s))
                found[f"WRITE {size} at {shift}"] = per_call(
                    mount, probe, lambda _, d=data, s=shift: buffer.write(fd, d, 0, s))
        # NFSv4 is not tested. The NFSv4 client adds two entries to a listing, so the answer begins
        # inside a page.
        if t.version == "3":
            found["a directory"] = per_call(mount, probe, listing)
    for operation, numbers in found.items():
        t.note(f"{operation}: " + ", ".join(f"{v:.2f} {c}" for c, v in numbers.items()))
    t.server.expect(there, pattern.data(21, 0, 2 * MIB))
    at_the_floor(found)


# The reply of a single call is handled in the thread that waits for the reply, and no work item is
# queued. A worker is needed for several calls at the same time, and for calls for which no system
# call waits.
@case(versions=("3", "4.2"), clients=("ours",), stock_only=True, seconds=60, slow=True)
def a_call_alone_needs_no_worker(t):
    mount = t.mount()
    queued = {}
    with loads.Bed(mount.where) as bed:
        for load in bed.single():
            if load.name not in ("GETATTR", "READ 4 KiB"):
                continue
            load.run(TIMES)
            before = loads.rpcs(mount.where)
            tracing.start(t, "workqueue:workqueue_queue_work")
            load.run(4 * TIMES)
            events = [fields for name, fields in tracing.stop() if name == "workqueue_queue_work"]
            calls = loads.rpcs(mount.where) - before
            ours = sum(fields["workqueue"] == QUEUE for fields in events)
            check(calls >= 4 * TIMES, f"{calls} RPCs")
            check(len(events) > calls, f"{len(events)} works of {calls} RPCs")
            queued[load.name] = ours / calls
    t.note(", ".join(f"{name}: {number:.2f} works for each call"
                     for name, number in queued.items()))
    # The limit is not zero, because workers also handle credits, callbacks and completions of
    # Sends. In addition, on a busy host some replies arrive after the thread of the call has
    # stopped polling. A worker handles these replies. Up to 0.28 work items per call were measured.
    check(queued["GETATTR"] < 0.5, "calls alone were answered by a worker")
    check(queued["READ 4 KiB"] > 0.8, "what is counted is not what answers calls")
