# SPDX-License-Identifier: GPL-2.0
"""Data integrity on a device with lower limits. Parameters of the module lower the limits of the
device."""

import errno
import os

from lib import faults, module, pattern, xprt
from lib.attributes import attribute
from lib.buffers import PAGE, Buffer
from lib.case import ENV, Skip, case, check, equal, wait
from lib.workers import Worker, together

KIB, MIB = 1 << 10, 1 << 20
# Maximum number of waits for regions per call, on average. A call may wait several times, because
# other calls take the regions that become free.
WAITS = 10
# A call ends with an error after this number of failed attempts to map its memory. The RPC client
# tries the call again after each of the first nine failed attempts, but not after the last one.
MAPPING_TRIES = 9 + 1
# Number of threads. Their calls, with ten work requests each, need more entries than the send queue
# has.
THREADS = 64
SIZES = (1, 3, 1000, 3800, 4096, 4097, 8191, 32768, 32771, 130001, 300003, MIB, MIB + 4097)


def carry(t, mount, number):
    """Transfers data of many sizes, aligned and unaligned, with direct I/O and through the page
    cache."""
    here, there = t.directory(mount).path("file")
    fd, buffer = os.open(here, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644), Buffer(2 * MIB)
    at, whole = 0, bytearray()
    for turn, size in enumerate(SIZES):
        for shift in (0, 3001):
            data = pattern.data(number, at, size, turn)
            buffer.write(fd, data, at, shift)
            whole += data
            problem = pattern.difference(buffer.read(fd, size, at, PAGE - shift), data, at)
            check(problem is None, f"direct read of {size} bytes: {problem}")
            at += size
    os.close(fd)
    t.server.expect(there, bytes(whole))
    with open(here, "rb") as cached:
        os.posix_fadvise(cached.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        problem = pattern.difference(cached.read(), bytes(whole))
        check(problem is None, f"buffered read: {problem}")
    with open(f"{here}-2", "wb") as cached:
        cached.write(whole)
    t.server.expect(f"{there}-2", bytes(whole))
    # The reply to a directory listing is long, but contains no file data.
    t.server.call("create", f"{there.rpartition('/')[0]}", 200, "n" * 100)
    equal(len(os.listdir(here.rpartition("/")[0])), 202, "names listed")


def again_and_again(t, mount, turns, size=64 * KIB, threads=1):
    """Reads the same data again and again. The memory is different each time, and never begins at a
    page border."""
    here, there = t.directory(mount, "again").path("file")
    data = pattern.data(31, 0, size)
    t.server.write(there, data)
    together(threads, lambda _: reread(here, data, turns))


def reread(here, data, turns):
    fd, size, buffer = os.open(here, os.O_RDONLY | os.O_DIRECT), len(data), Buffer(2 * MIB)
    for turn in range(turns):
        problem = pattern.difference(buffer.read(fd, size, 0, turn * 1000 % MIB + 1), data)
        check(problem is None, f"turn {turn}: {problem}")
    os.close(fd)


def capped(t, parameters, turns=0):
    """Loads the module with these parameters, transfers data and unloads it."""
    module.insmod(parameters)
    mount = t.mount()
    options = mount.active()
    t.note(f"{parameters}: {[o for o in options if 'size' in o]}")
    carry(t, mount, 30)
    again_and_again(t, mount, turns)
    found = mount.xprts()[0]
    equal(found["connect_count"], 1, f"connections with {parameters}")
    equal(found["bad_reply"], 0, f"bad replies with {parameters}")
    mount.remove()
    module.unload()


# covers: V1-103, MAL-103
# covers: V1-030, V1-062, CM-17, CM-18, CM-19, ULB-26: With small regions a chunk needs several
# regions. The server's reply invalidates some of them, and the client invalidates the others. The
# Receive buffer with the reply is not used again before the client's invalidation completes. More
# replies of this kind arrive than the client has Receives.
@case(clients=("ours",), loaded=False, seconds=150, slow=True)
def regions_of_few_pages(t):
    for pages in ENV.pick(small=(8, 30), full=(1, 2, 8, 30, 256, 1025), debug=(8,)):
        capped(t, f"region_pages={pages}", turns=400 if pages < 16 else 0)


# covers: V1-097: A call that needs more memory than a chunk can describe fails, but the mount
# continues to work. The log and a counter report the failure.
@case(versions=("4.2",), clients=("ours",), loaded=False, seconds=60)
def a_call_that_cannot_be_carried_is_named(t):
    if PAGE > 4 * KIB:
        raise Skip("the longest value is in fewer pages than a chunk has segments")
    module.insmod("region_pages=1")
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    t.server.write(there, b"x")
    t.server.setxattr(there, "user.long", b"y")
    try:
        # The extended attribute has the maximum length. Each segment is one page here. So the reply
        # may need more segments than one chunk can have.
        attribute(here, "user.long", 64 * KIB)
    except OSError as error:
        equal(error.errno, errno.EIO, "the error")
    else:
        raise AssertionError("it was carried")
    t.log.expect("a request of", "cannot be carried")
    found = mount.xprts()[0]
    check(found["failed_marshal"] > 0, "no refused call was counted")
    equal(found["connect_count"], 1, "connections")
    equal(t.server.read(there, 0, 10), b"x", "the mount works")
    check(os.path.exists(here), "the mount works")
    mount.remove()
    module.unload()


def read_directly(_, path):
    """Reads the file with O_DIRECT."""
    fd, buffer = os.open(path, os.O_RDONLY | os.O_DIRECT), Buffer(64 * KIB)
    try:
        return buffer.read(fd, 64 * KIB, 0) == pattern.data(7, 0, 64 * KIB)
    finally:
        os.close(fd)


# covers: If memory cannot be mapped, the client tries the call again, because the shortage may
# pass. After a few attempts the call ends with an error, and the log says why. Software devices map
# any memory. So this test uses a kretprobe that makes the mapping fail.
@case(versions=("3", "4.2"), clients=("ours",), debug_only=True, seconds=60)
def memory_that_is_never_mapped_ends_its_call(t):
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    t.server.write(there, pattern.data(7, 0, 64 * KIB))
    os.stat(here)
    with module.unmapped() as switch:
        switch.write_text("1")
        try:
            read_directly(None, here)
        except OSError as error:
            equal(error.errno, errno.EIO, "the error")
        else:
            raise AssertionError("it was carried")
        t.log.expect("cannot be carried: Unmappable")
        tries = mount.xprts()[0]["failed_marshal"]
        check(tries <= MAPPING_TRIES, f"tried {tries} times")
        reader = Worker(read_directly, here)
        wait.until(lambda: mount.xprts()[0]["failed_marshal"] > tries + 1, ENV.patience(10),
                   "another call that is tried again")
        switch.write_text("0")
        equal(reader.join(ENV.patience(20)), "True", "what was read when there was room again")
    equal(mount.connects(), 1, "connections")


# covers: V1-030, V1-113: The first calls of a connection need more memory regions than a new
# connection has. All calls together need more regions than one allocation provides. A call that
# gets too few regions waits until regions are free, and does not poll.
@case(versions=("3",), clients=("ours",), loaded=False, seconds=30)
def calls_wait_for_regions(t):
    module.insmod("region_pages=1")
    mount = t.mount()
    again_and_again(t, mount, 8, 32 * KIB, threads=24)
    calls = sum(xprt.operations(mount.where)[name][0] for name in ("READ", "WRITE"))
    waits = xprt.numbers_of("counters", "no_region")[0]
    t.note(f"{waits} waits for regions, {calls} calls")
    check(0 < waits < WAITS * calls, f"{waits} waits for regions, {calls} calls")
    equal(mount.connects(), 1, "connections")
    mount.remove()
    module.unload()


# covers: V1-103, V1-113: If the send queue is full, an invalidation waits for space in the queue.
# The test delays the server's acknowledgements. So the queue is already full of later calls when a
# reply arrives.
@case(versions=("3",), clients=("ours",), loaded=False, seconds=60)
def invalidations_wait_for_the_send_queue(t):
    module.insmod(f"region_pages=1 slots={THREADS}")
    mount = t.mount()

    def counter(name):
        return xprt.numbers_of("counters", name)[0]

    for milliseconds in faults.held_back(t, lambda: counter("send_queue_full")):
        again_and_again(t, mount, ENV.pick(small=2, full=40, debug=2), 32 * KIB, THREADS)
        t.note(f"{milliseconds} ms late: the send queue was full {counter('send_queue_full')} "
               f"times, {counter('local_inv')} regions invalidated here")
    check(counter("send_queue_full") > 0, "the send queue was never full")
    check(counter("local_inv") > 0, "nothing was invalidated here")
    equal(mount.connects(), 1, "connections")
    mount.remove()
    module.unload()


# covers: V1-025, V1-026, V1-027, V1-130, CM-07, CM-23, BC-22: Files are transferred with inline
# thresholds that differ from the default.
@case(clients=("ours",), loaded=False, seconds=150, slow=True)
def inline_thresholds_from_smallest_to_largest(t):
    for size in ENV.pick(small=(1024, 65536), full=(1024, 2048, 8192, 65536), debug=(1024,)):
        capped(t, f"inline_size={size}")


# covers: V1-011, V1-012, V1-113: All transfers work with only four slots.
@case(clients=("ours",), loaded=False, seconds=90, slow=True)
def four_slots(t):
    capped(t, "slots=4")


# covers: MAL-068, MAL-069: The strict checks accept the replies of a correct server.
@case(clients=("ours",), loaded=False, seconds=90, slow=True)
def strict_checks_accept_an_honest_server(t):
    capped(t, "strict=1")
