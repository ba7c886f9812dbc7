# SPDX-License-Identifier: GPL-2.0
"""Sources of information for administrators: the tools of nfs-utils, sysfs and tracepoints."""

import collections
import errno
import mmap
import os
import pathlib

from lib import faults, pattern, tracing, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait
from lib.tracing import output
from lib.workers import Worker

MIB = 1 << 20
CREDITS, CALLS = 4, 12
LONG_US = 1 << 18


def work(t, mount, number):
    """Makes small calls, and large calls whose data are placed directly, in both directions."""
    here, there = t.directory(mount).path("file")
    content, buffer = pattern.data(number, 0, MIB), Buffer(MIB)
    fd = os.open(here, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    buffer.write(fd, content, 0)
    check(buffer.read(fd, MIB, 0) == content, "the data")
    os.close(fd)
    t.server.expect(there, content)


def traced():
    """Returns a dictionary from the name of each tracepoint of our client to the list of its
    events. An event is a dictionary of its fields."""
    found = collections.defaultdict(list)
    for name, fields in tracing.stop():
        found[name.removeprefix("xprtrdma_")].append(fields)
    return found


# covers: Tracepoints report the life of each connection and call. trace-cmd and perf can read them.
@case(clients=("ours",), seconds=60)
def tracepoints_tell_the_life_of_a_call(t):
    tracing.start(t, "xprtrdma_rs")
    mount = t.mount()
    number = int(xprt.transports()[0].name)
    work(t, mount, 1)
    before = mount.connects()
    xprt.force_disconnect()
    xprt.wait_reconnected_by(mount, before, lambda: os.stat(f"{mount.where}/case"))
    mount.remove()
    found = traced()
    ours = [e for events in found.values() for e in events if e["xprt"] == str(number)]
    check(len(ours) > 20, f"{len(ours)} events of transport {number}")
    check(len(found["connected"]) >= 2, f"connected: {found['connected']}")
    check('"forced"' in {e["cause"] for e in found["disconnected"]},
          f"disconnected: {found['disconnected']}")
    xids = {name: {e["xid"] for e in found[name]} for name in ("call", "reply", "complete")}
    check(xids["call"], "no call")
    equal(xids["reply"] - xids["call"], set(), "replies without a call")
    equal(xids["complete"], xids["reply"], "calls that ended")
    lengths = {access: max((int(e["len"]) for e in found["register"] if e["access"] == access),
                           default=0) for access in ("read", "write")}
    equal(lengths, {"read": MIB, "write": MIB}, "the largest regions")
    largest = max(found["reply"], key=lambda e: int(e["placed"]))
    equal(int(largest["placed"]), MIB, "most bytes placed by one reply")
    equal(found["discard"], [], "dropped messages")


# covers: V1-106, CM-15: A region never has the same key twice in a row, so a late access of the
# server fails. The address that the server gets is no kernel address. Its lower bits are the offset
# in a page. Its upper bits are random, except the highest bit, which is zero.
@case(versions=("3",), clients=("ours",), seconds=30)
def every_registration_has_a_new_key(t):
    tracing.start(t, "xprtrdma_rs:xprtrdma_register")
    mount = t.mount()
    here, _ = t.directory(mount).path("file")
    size, buffer = 64 << 10, Buffer(64 << 10)
    fd = os.open(here, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    for turn in range(40):
        buffer.write(fd, pattern.data(1, 0, size, turn), 0)
        check(buffer.read(fd, size, 0) == pattern.data(1, 0, size, turn), "the data")
    os.close(fd)
    mount.remove()
    found = traced()["register"]
    check(len(found) >= 80, f"{len(found)} registrations")
    last = {}
    for event in found:
        key = int(event["handle"], 16)
        # The bits of a key above its lowest byte identify the region.
        check(last.get(key >> 8) != key, f"key {key:#x} twice in a row")
        last[key >> 8] = key
    offsets = {int(event["offset"], 16) // mmap.PAGESIZE for event in found}
    equal(len(offsets), len(found), "different offsets")
    check(max(offsets) < (1 << 63) // mmap.PAGESIZE, f"offsets {sorted(map(hex, offsets))[-3:]}")


def stages():
    """Returns, for each stage, a histogram of the times that calls spent in the stage. The limits
    of the histogram's buckets are powers of two, in microseconds."""
    lines = next(xprt.DEBUGFS.glob("*/latency")).read_text().splitlines()
    head, *rows = (line.split() for line in lines)
    return {stage: [int(row[column]) for row in rows] for column, stage in enumerate(head)
            if column}


def takes(file, text):
    """Returns whether a write to a file is accepted."""
    try:
        file.write_text(text)
    except OSError as error:
        equal(error.errno, errno.EINVAL, f"{text!r}")
        return False
    return True


def long_ones(counts, us):
    """Returns how many calls took at least `us` microseconds. `us` must be a power of two."""
    return sum(counts[us.bit_length():])


# covers: While the measurement of the stages of calls is on, the client counts each call once in
# each stage. A wait is counted in the stage in which it happened.
@case(versions=("3",), clients=("ours",), seconds=100)
def time_is_counted_in_the_stage_where_it_was_spent(t):
    switch = xprt.DEBUGFS / "measure_latency"
    t.defer(switch.write_text, "0\n")
    faults.grant(t, CREDITS)
    mount = t.mount("noac", export=ENV.disk)
    top = t.directory(mount)
    t.server.call("create", top.there, CALLS, "f")
    names = [f"{top.here}/f{number}" for number in range(CALLS)]
    for name in names:
        os.stat(name)
    equal(switch.read_text(), "0\n", "off at first")
    equal({sum(counts) for counts in stages().values()}, {0}, "counted while it is off")
    equal([text for text in ("2", "on", "10", "1\n\n", "-") if takes(switch, text)], [], "taken")
    switch.write_text("1")
    switch.write_text("1\n")
    equal(switch.read_text(), "1\n", "on")
    before = mount.xprts()[0]["recvs"]
    for name in names:
        os.stat(name)
    answered = mount.xprts()[0]["recvs"] - before
    check(answered >= CALLS, f"{answered} replies")
    equal({stage: sum(counts) for stage, counts in stages().items()},
          dict.fromkeys(("wait", "register", "answer", "complete"), answered), "calls counted")
    quick = {stage: long_ones(counts, LONG_US) for stage, counts in stages().items()}
    # These calls change file modes. Some of them wait for the server, and the others wait for
    # credits.
    with faults.frozen(t.server):
        users = [Worker(lambda _, name=name: os.chmod(name, 0o600)) for name in names]
        wait.until(lambda: xprt.waiting_for_credits(CREDITS), ENV.patience(10), "waiting calls")
        frozen = wait.Clock()
        wait.until(lambda: frozen.seconds() > 2 * LONG_US / 1e6, 5, "a long time")
    for user in users:
        user.join(ENV.patience(20))
    late = {stage: long_ones(counts, LONG_US) - quick[stage]
            for stage, counts in stages().items()}
    t.note(f"calls of {LONG_US} us and more, by stage: {late}")
    check(late["answer"] >= CREDITS and late["wait"] > 0, str(late))
    equal((late["register"], late["complete"]), (0, 0), "long in stages where nothing waited")
    switch.write_text("0")
    calls = sum(stages()["answer"])
    os.stat(names[0])
    equal(sum(stages()["answer"]), calls, "counted when it is off again")


# covers: The counters of memory regions change when the client allocates, uses and invalidates
# memory regions.
@case(versions=("4.2",), clients=("ours",), seconds=30)
def counters_of_regions_move(t):
    mount = t.mount()
    work(t, mount, 3)
    before = xprt.numbers_of("counters", "local_inv")[0]
    # The memory for the answer begins inside a page, so the call needs several regions. The server
    # invalidates only one of them.
    os.listdir(t.directory(mount).here)
    check(xprt.numbers_of("counters", "local_inv")[0] > before, "nothing was invalidated here")
    check(xprt.numbers_of("counters", "mrs_allocated")[0] > 0, "no region was allocated")
    wait.until(lambda: xprt.numbers_of("counters", "mrs_in_use")[0] == 0, ENV.patience(5),
               "no region in use")
    # The client's private data announce support of remote invalidation, and the lab's server then
    # invalidates regions.
    check(xprt.numbers_of("counters", "reminv_unannounced")[0] > 0, "nothing invalidated by it")
    check("remote invalidation: announced by the server: no; used by it: yes" in
          next(xprt.DEBUGFS.glob("*/state")).read_text(), "state")


# covers: The tools of nfs-utils can read our statistics.
@case(seconds=60)
def tools_of_nfs_utils_understand_the_statistics(t):
    mount = t.mount()
    work(t, mount, 2)
    text = output("mountstats", "mountstats", mount.where)
    for word in ("WRITE:", "READ:", mount.where):
        check(word in text, f"mountstats: no {word}")
    text = output("mountstats", "mountstats", "--xprt", mount.where)
    check("rdma" in text, f"mountstats --xprt: {text[-500:]}")
    text = output("nfsiostat", mount.where)
    check(f"mounted on {mount.where}" in text, f"nfsiostat: {text[-500:]}")
    text = output("nfsstat", "--mounts")
    check(f"{mount.where} from" in text and "proto=rdma" in text, f"nfsstat: {text[-500:]}")


# covers: sysfs shows both addresses of a connection, as it does for every other transport.
@case(seconds=30)
def sysfs_shows_both_ends(t):
    mount = t.mount()
    work(t, mount, 3)
    directory = xprt.directories()[0]
    equal((directory / "dstaddr").read_text().strip(), ENV.server, "dstaddr")
    address = (directory / "srcaddr").read_text().strip()
    text = output("ip", "-brief", "-4", "addr", "show", "dev", "eth0")
    check(f" {address}/" in text, f"srcaddr {address}; {text}")
    check(xprt.info(directory)["src_port"] > 0, "src_port")
    check(pathlib.Path(directory / "xprt_state").read_text(), "xprt_state")


# The function of the work item that handles completions: its name, or a part of its symbol's name.
# In a patched kernel, this function belongs to ib_core. In other kernels the function is
# xprtrdma_rdma::cq::events::work.
ITEM = "ib_cq_poll_work" if ENV.patched else "13xprtrdma_rdma2cq6events4work"


# covers: Replies are handled on a work queue of our own. The administrator can change the settings
# of this queue while connections exist.
@case(clients=("ours",), seconds=60)
def replies_are_handled_on_a_queue_that_can_be_set(t):
    mount = t.mount()
    place = pathlib.Path("/sys/devices/virtual/workqueue/xprtrdma_rs-comp")
    equal((place / "per_cpu").read_text().strip(), "0", "bound to a processor")
    usual = (place / "nice").read_text()
    t.defer((place / "nice").write_text, usual)
    for nice in (usual.strip(), "-20"):
        (place / "nice").write_text(nice)
        tracing.start(t, "workqueue:workqueue_queue_work")
        work(t, mount, 2)
        queues = collections.Counter(
            fields["workqueue"] for _, fields in tracing.stop()
            if ITEM in fields["function"])
        check(queues["xprtrdma_rs-comp"] > 1, f"nice {nice}: completions by queue: {queues}")
    mount.remove()
