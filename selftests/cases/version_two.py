# SPDX-License-Identifier: GPL-2.0
"""Version two of RPC-over-RDMA: client and server negotiate version two, the client falls back to
version one, and everything that works in version one also works in version two.

The only server here that supports version two is the responder of these tests.
"""

import os
import pathlib
import re

from cases import callbacks, data, security
from cases.credits import Watch, crowd
from lib import faults, kerberos, module, mounts, tracing, xprt
from lib.case import ENV, case, check, equal, wait
from lib.hostile import access, chunks, headers, message, reverse, rpc, version_two
from lib.responder import (
    ONE,
    TWO,
    TWO_ONLY,
    Responder,
    Stage,
    forgotten,
    preferred,
    transport,
)

MAGIC = b"\xf6\xab\x0e\x18"
INLINE_READ = pathlib.Path("/proc/sys/sunrpc/rdma_max_inline_read")
PROBE_SIZE = 72
CALLERS = version_two.CALLERS
# Number of options (messages of the type RDMA2_OPTIONAL) that the responder sends one after the
# other. The client can refuse only a smaller number of options at a time.
OPTIONS = 12
ROUND_TRIP_MS = 300
MOST_TRIPS, MOST_MOUNTS = 1.7, 5
# The tracefs directory, and the event with which the kernel's own server reports a message of an
# unknown version.
TRACING, BAD_VERSION = "/sys/kernel/tracing", "svcrdma_decode_badvers_err"
# In a run of small size, the tests of version two use only every third row of the tables that the
# tests of version one use completely.
ROWS_SHARE = 3
ONE_AND_TWO = (1, 2, 1)
# The answers of a server that does not support version two: in the layout of version one, and in
# the layout of version two.
WITHOUT_TWO = ((1, 1, 1), (1, 1, 2))


class Peer:
    """The responder, and the first messages that it received on each connection."""

    def __init__(self, t):
        self.t, self.responder = t, Responder()
        self.port = self.responder.port
        t.defer(self.responder.close)
        t.defer(forgotten)
        self.speak(*ONE_AND_TWO)

    def speak(self, *versions):
        """Makes the responder support only these versions from now on, and clears its log."""
        self.responder.call("speak", *versions)

    def arm(self, row):
        self.responder.call("arm", row.name)

    def log(self):
        return self.responder.call("log")[1]

    def unmounted(self, options="", version=None):
        return self.t.unmounted(options, version=version, port=self.port)

    def mount(self, preference, options="", version=None):
        """Mounts through the responder."""
        mount = self.unmounted(options, version)
        with preferred(preference):
            return mount.make()

    @staticmethod
    def unmount(mount):
        """Unmounts the only mount. The client then forgets what it knows about the server."""
        mount.remove()
        forgotten()

    def firsts(self):
        """Returns the beginning of the first message of each connection."""
        return [bytes.fromhex(line.split()[1]) for line in self.log()
                if line.startswith("first")]

    def versions(self):
        """Returns the version of each connection's first message."""
        return [message.version(octets) for octets in self.firsts()]

    def judge(self):
        """Fails if the responder has logged an error of the client."""
        wrong = [line for line in self.log() if line.startswith("wrong")]
        check(not wrong, "; ".join(wrong))

    def state(self, name):
        return state(self.port, name)


def state(port, name):
    """Returns a line of the state file of the transport to this port."""
    text = (transport(port) / "state").read_text()
    found = re.search(f"^{name}: (.*)", text, re.MULTILINE)
    if not found:
        raise AssertionError(f"no {name} in debugfs: {text}")
    return found[1]


def waiting(procedure):
    """Returns the number of calls of a procedure that have not ended, whatever they wait for."""
    tasks = "".join(file.read_text() for file in xprt.CLIENTS.glob("*/tasks"))
    return tasks.count(f" {procedure} ")


def again(mount):
    """Ends every connection, and waits until the mount has connected again."""
    before = mount.connects()
    xprt.force_disconnect()
    xprt.wait_reconnected_by(mount, before, lambda: os.statvfs(mount.where))


def probe(xid, slots):
    """Returns the probe: a message that contains only a NULL call of NFS without credentials."""
    return message.Message(xid, 2, credit=slots, direction=message.CALL, payload=message.word(
        xid, message.CALL, 2, rpc.NFS, 3, 0, 0, 0, 0, 0)).octets()


# covers: V2-01, V2-02, V2-04, V2-05, V2-06, V2-12, V2-13, V2-17, V2-22, V2-28, V2-31, V2-34, V2-35:
# The server supports version two. The probe has the right bytes. Files are transferred in both
# directions with every kind of chunk, long replies work, and no option is used. The next connection
# sends a probe again, because a server may change.
@case(versions=("3", "4.2"), clients=("ours",), seconds=120, slow=True)
def everything_works_in_version_two(t):
    peer = Peer(t)
    tracing.start(t, "xprtrdma_rs:xprtrdma_connected")
    for preference in (TWO, TWO_ONLY):
        peer.speak(*ONE_AND_TWO)
        mount = peer.mount(preference)
        equal(peer.state("version"), "2", f"version with rdma_version={preference}")
        check(peer.state("version wanted").startswith(str(preference)),
              peer.state("version wanted"))
        first, = peer.firsts()
        slots = int(peer.state("credits").split()[0])
        equal(first, probe(message.numbers(first, 0)[0], slots), "the probe")
        equal(len(first), PROBE_SIZE, "bytes of the probe")
        if preference == TWO:
            security.transfers(t, mount, preference)
            numbers = mount.xprts()[0]
            for name in ("read_segments", "write_segments", "reply_segments"):
                check(numbers[name] > 0, f"no {name}")
            equal((numbers["connect_count"], numbers["bad_reply"]), (1, 0),
                  "connections, bad replies")
        again(mount)
        equal((peer.versions(), peer.state("version")), ([2, 2], "2"), "the next connection")
        peer.judge()
        peer.unmount(mount)
    events = [fields["version"] for name, fields in tracing.stop() if name.endswith("connected")]
    equal(events, ["2"] * 4, "versions in the tracepoint")


# covers: V2-01, V2-29: Messages of all sizes around 4096 bytes arrive in both directions.
@case(versions=("3", "4.2"), clients=("ours",), seconds=120, slow=True)
def messages_around_the_threshold_of_version_two(t):
    peer = Peer(t)
    mount = peer.mount(TWO)
    # In a run of small size, each NFS version is tested with only one of two kinds of transfers
    # (aligned or unaligned), because the tests of RPC-over-RDMA version one use both kinds.
    if ENV.full or t.version == "3":
        data.round_trips(data.Model(t, mount, "aligned", 3), data.threshold_sizes(), 0, 0)
    if ENV.full or t.version == "4.2":
        data.round_trips(data.Model(t, mount, "odd", 4), data.threshold_sizes(), 1, 5)
    largest = peer.responder.call("largest")
    t.note(f"the largest answer had {largest} bytes")
    check(4000 < largest <= 4096, f"the largest answer has {largest} bytes")
    equal((peer.state("version"), mount.connects()), ("2", 1), "version and connections")
    peer.judge()


# covers: V2-01, V2-02, V2-10: The client announces that it receives messages of up to 1024 bytes.
# This limit applies only to version one, so answers in version two may have up to 4096 bytes.
@case(versions=("3",), clients=("ours",), seconds=60)
def answers_larger_than_announced(t):
    before = INLINE_READ.read_text()
    t.defer(INLINE_READ.write_text, before)
    INLINE_READ.write_text("1024")
    peer = Peer(t)
    mount = peer.mount(TWO)
    top = t.directory(mount)
    t.server.call("create", top.there, 10, "name" * 20)
    equal(len(os.listdir(top.here)), 10, "names")
    largest = peer.responder.call("largest")
    t.note(f"{peer.state('inline')}; the largest answer had {largest} bytes")
    check(largest > 1024, f"the largest answer has {largest} bytes")
    equal((peer.state("version"), mount.connects()), ("2", 1), "version and connections")


# covers: V2-11, V2-19, V2-20, V2-33: The server sends callbacks in version two, and the client
# answers them.
@case(versions=("4.1", "4.2"), clients=("ours",), seconds=90)
def delegations_are_returned_in_version_two(t):
    peer = Peer(t)
    mount = peer.mount(TWO)
    here, there = t.directory(mount).path("file")
    t.server.write(there, b"before")
    fd = os.open(here, os.O_RDONLY)
    callbacks.wait_delegated(t, here)
    taken = callbacks.recall(t, there)
    check(taken < callbacks.RECALL_SECONDS, f"returned after {taken:.1f} s only")
    t.server.write(there, b"behind")
    equal(pathlib.Path(here).read_bytes(), b"behind", "content that the server wrote")
    os.close(fd)
    counters = (transport(peer.port) / "counters").read_text()
    check(not re.search("^callbacks: 0$", counters, re.MULTILINE), "no callback came this way")
    equal((peer.state("version"), mount.connects()), ("2", 1), "version and connections")
    peer.judge()


# covers: V2-28, V2-05: Credits limit the calls in flight. Each connection starts again with the
# initial credit.
@case(versions=("3",), clients=("ours",), seconds=100)
def credits_of_version_two(t):
    peer, watch = Peer(t), Watch()
    mount = peer.mount(TWO)
    for turns in (ENV.pick(small=2, full=50), 2):
        crowd(t, mount, 40, turns, watch)
        again(mount)
    t.note(f"at most {watch.most} in flight of {watch.window} granted")
    equal(watch.window, message.GRANT, "credits")
    equal((peer.versions(), peer.state("version")), ([2] * 3, "2"), "versions")
    peer.judge()


# covers: V2-28: Integrity and privacy work in version two, including long calls.
@case(versions=("3", "4.2"), clients=("ours",), seconds=120, slow=True)
def kerberos_in_version_two(t):
    realm, peer = kerberos.Realm(t), Peer(t)
    # In a run of small size, each NFS version is tested with one of the two security flavours,
    # because the tests of RPC-over-RDMA version one use both.
    flavours = ENV.pick(small={"3": ("krb5i",), "4.2": ("krb5p",)}[t.version],
                        full=("krb5i", "krb5p"))
    for number, flavour in enumerate(flavours):
        with preferred(TWO):
            mount = realm.mount(flavour, port=peer.port)
        security.transfers(t, mount, number)
        check(mount.xprts()[0]["nomsg_call"] > 0, f"{flavour}: no long call")
        equal((peer.state("version"), mount.connects()), ("2", 1), "version and connections")
        peer.judge()
        peer.unmount(mount)


# covers: V2-07, V2-12, V2-30, V2-31, V2-32, MAL-160: The kernel's server supports only version one
# and says so. The mount continues in version one on the same connection. Other mounts of this
# server and later connections do not ask for version two again.
@case(versions=("3", "4.2"), clients=("ours",), seconds=90)
def a_server_without_version_two(t):
    asked = questions(t)
    with preferred(TWO):
        mount = t.mount()
        # The next two mounts use the same server. The first of these mounts is of another file
        # system, and uses the existing connection. The second mount uses another NFS version and
        # another connection.
        t.mount(export=ENV.disk)
        other = t.mount(version="3" if t.version != "3" else "4.2")
    port = mounts.PORT
    equal((state(port, "version"), mount.connects()), ("1", 1), "version and connections")
    check("refused" in state(port, "peer's version 2"), state(port, "peer's version 2"))
    security.transfers(t, mount, 1)
    again(mount)
    os.statvfs(other.where)
    equal((state(port, "version"), mount.connects()), ("1", 2), "version and connections")
    equal(asked(), 1, "messages of another version that the server saw")


# covers: V2-07, V2-31: Asking for version two takes one round trip. A busy machine adds a varying
# delay, so the test compares the fastest mounts.
@case(versions=("3",), clients=("ours",), seconds=90, stock_only=True)
def a_question_costs_one_round_trip(t):
    asked, seconds, trips = questions(t), {ONE: [], TWO: []}, float("inf")
    faults.delay(t.server, ROUND_TRIP_MS)
    t.defer(faults.no_delay, t.server)
    while trips > MOST_TRIPS and len(seconds[TWO]) < MOST_MOUNTS:
        for preference in (ONE, TWO):
            clock = wait.Clock()
            with preferred(preference):
                mount = t.mount()
            seconds[preference].append(clock.seconds())
            equal(mount.connects(), 1, "connections")
            mount.remove()
            forgotten()
        trips = (min(seconds[TWO]) - min(seconds[ONE])) * 1000 / ROUND_TRIP_MS
    t.note(f"seconds without and with the question: {seconds}; it costs {trips:.1f} round trips")
    check(trips <= MOST_TRIPS, f"the question costs {trips:.1f} round trips")
    equal(asked(), len(seconds[TWO]), "messages of another version that the server saw")


def questions(t):
    """Begins to count the messages of an unknown version that the kernel's server receives. Returns
    a function that returns the present count."""
    enable, events = f"{TRACING}/events/rpcrdma/{BAD_VERSION}/enable", f"{TRACING}/trace"
    t.server.call("text", events, "")
    t.server.call("text", enable, "1")
    t.defer(t.server.call, "text", enable, "0")
    return lambda: t.server.call("text", events).count(f" {BAD_VERSION}: ")


# covers: V2-07, V2-08, V2-12, V2-31, V2-32, MAL-160, X-02, X-16: The server refuses version two, in
# a message of either version. The following calls use version one on the same connection. No later
# connection asks for version two again.
@case(versions=("3", "4.2"), clients=("ours",), seconds=90, slow=True)
def version_two_is_asked_for_once(t):
    peer = Peer(t)
    for speaks in WITHOUT_TWO:
        peer.speak(*speaks)
        mount = peer.mount(TWO)
        equal((peer.versions(), mount.connects()), ([2], 1), "the first connection")
        for _ in range(2):
            again(mount)
        equal(peer.state("version"), "1", "version")
        # Another transport to the same server does not ask for version two either.
        other = peer.mount(TWO, version="3" if t.version != "3" else "4.2")
        equal(peer.versions(), [2, 1, 1, 1], "first messages of the connections")
        other.remove()
        security.transfers(t, mount, speaks[2])
        peer.judge()
        peer.unmount(mount)


# covers: V2-31: The client does not ask for version two if its setting allows only version one.
@case(versions=("3",), clients=("ours",), seconds=60)
def version_one_asks_nobody(t):
    peer = Peer(t)
    mount = peer.mount(ONE)
    os.statvfs(mount.where)
    equal((peer.versions(), peer.state("version")), ([1], "1"), "versions")
    check("unknown" in peer.state("peer's version 2"), peer.state("peer's version 2"))


def refused(peer, preference, what):
    """Checks that a mount fails because client and server have no common version."""
    try:
        with preferred(preference):
            peer.unmounted("retry=0").make()
    except mounts.Refused as problem:
        peer.t.note(f"{what}: {problem}")
        check("Protocol not supported" in str(problem), f"{what}: {problem}")
    else:
        raise AssertionError(f"mounted although {what}")
    peer.judge()
    forgotten()


# covers: V2-30, V2-31, MAL-161, MAL-162: Client and server have no version in common. mount fails
# and says so.
@case(versions=("3", "4.2"), clients=("ours",), seconds=90, slow=True)
def no_version_in_common(t):
    peer = Peer(t)
    for preference, speaks in ((TWO_ONLY, (1, 1, 1)), (TWO, (3, 9, 2)), (TWO_ONLY, (3, 9, 1))):
        peer.speak(*speaks)
        refused(peer, preference, f"the server speaks {speaks[:2]}")
        equal(set(peer.versions()), {2}, "versions of first messages")
    peer.speak(*ONE_AND_TWO)
    for row in version_two.NOTHING_IN_COMMON:
        peer.arm(row)
        refused(peer, TWO, row.name)


# For each answer to the probe: the number of connections until the mount works, and what the client
# then knows about the server.
ODD_ANSWERS = {
    "probe refused in version one": (1, "refused"),
    "probe refused in version two": (1, "refused"),
    "probe refused, both versions spoken": (1, "doubtful"),
    "probe answered in version one": (2, "doubtful"),
    "probe refused, and the connection ended": (2, "refused"),
    "connection ended instead of an answer to the probe": (2, "doubtful"),
    "probe swallowed": (2, "doubtful"),
}


# covers: V2-07, V2-08, V2-09, V2-30, V2-31, V2-32, V2-35, MAL-160, MAL-162, MAL-163, MAL-164,
# covers: MAL-165: The server sends various wrong answers to the probe. The mount always works in
# version one, and no later connection asks for version two again.
@case(versions=("3",), clients=("ours",), seconds=150)
def odd_answers_to_the_probe(t):
    peer, complaints = Peer(t), []
    for row in version_two.NEGOTIATION:
        if row.name not in ODD_ANSWERS:
            continue
        connections, known = ODD_ANSWERS[row.name]
        peer.arm(row)
        clock = wait.Clock()
        mount = peer.mount(TWO)
        found = (peer.versions(), peer.state("version"), peer.state("peer's version 2"))
        t.note(f"{row.rules}: {row.name}: {clock.seconds():.2f} s, {found}")
        # The client must have continued the same attempt to connect, so no attempt may have failed.
        failed = "last failure" in (transport(peer.port) / "state").read_text()
        again(mount)
        versions = peer.versions()
        if failed:
            complaints.append(f"{row.name}: an attempt failed")
        if (versions, found[1]) != ([2] + [1] * connections, "1") or known not in found[2]:
            complaints.append(f"{row.name}: {found}, then {versions}, instead of {connections} "
                              f"connections and {known}")
        peer.judge()
        peer.unmount(mount)
    check(not complaints, "\n".join(complaints))


# covers: V2-04, V2-05, V2-34, V2-35: The client sends nothing else until the probe is answered. The
# answer grants enough credits for all waiting calls. So these calls are sent before any other
# answer arrives.
@case(versions=(), clients=("ours",), seconds=60)
def calls_wait_for_the_answer_to_the_probe(t):
    stage = Stage(t, protocol=TWO)
    stage.responder.call("arm", "probe held")
    stage.disconnect()
    callers = [stage.caller() for _ in range(CALLERS)]
    wait.until(lambda: stage.responder.call("log")[0] == 0, ENV.patience(10), "the probe is held")
    wait.until(lambda: waiting("FSSTAT") >= CALLERS, ENV.patience(10), "calls that wait")
    equal(stage.responder.call("calls"), 1, "calls before the answer")
    stage.responder.call("arm", "calls held")
    stage.responder.call("release")
    try:
        wait.until(lambda: stage.responder.call("calls") == 1 + CALLERS, ENV.patience(10),
                   "calls at once")
    finally:
        log = stage.responder.call("log")[1]
        # From now on the test row "probe held" makes the responder answer new calls immediately.
        # Each "release" makes the responder answer one of the calls that it holds.
        stage.responder.call("arm", "probe held")
        for _ in range(stage.responder.call("calls") - 1):
            stage.responder.call("release")
    for caller in callers:
        caller.join(ENV.patience(20))
    check(not [line for line in log if line.startswith("wrong")], str(log))
    equal(state(stage.responder.port, "version"), "2", "version")
    stage.undisturbed()


# covers: V2-10, V2-12, MAL-183, V2-05: Other messages arrive shortly before or after the answer to
# the probe. The client refuses an option, receives a message of 4096 bytes, and ignores a second
# answer.
@case(versions=(), clients=("ours",), seconds=60)
def odd_messages_around_the_answer_to_the_probe(t):
    stage = Stage(t, protocol=TWO)
    for name in ("option before the answer to the probe",
                 "long message behind the answer to the probe",
                 "probe answered twice", "probe answered and refused"):
        row, = (row for row in version_two.NEGOTIATION if row.name == name)
        before = stage.counters()
        stage.responder.call("arm", name)
        stage.disconnect()
        equal(stage.ends(stage.small)[0], 0, name)
        left, log = stage.settle(before, row.reaction)
        t.note(f"{row.rules}: {name}: {stage.moved(before)}, {log}")
        equal(left, 0, "calls that the row did not meet")
        stage.judge_counters(stage.moved(before), row.reaction)
        equal(len([line for line in log if line.startswith("first")]), 1, "connections")
        equal(len([line for line in log if line.startswith("refused ERR_OPTION")]),
              row.reaction.refused, "options refused")
        equal(state(stage.responder.port, "version"), "2", "version")
    stage.undisturbed()


# covers: MAL-023, V2-31: A server stops supporting version two and refuses a call in the middle of
# other calls. All calls complete in version one on the next connection.
@case(versions=("3", "4.2"), clients=("ours",), seconds=60, slow=True)
def a_server_that_changes_its_mind(t):
    stage = Stage(t, t.version, protocol=TWO)
    stage.read()
    stage.responder.call("speak", 1, 1, 1)
    for call in (stage.read, stage.write, stage.list):
        equal(stage.ends(call)[0], 0, "a call when the server has changed")
    t.note(f"{stage.causes()}, {stage.responder.call('log')[1]}")
    equal(state(stage.responder.port, "version"), "1", "version")
    equal(len(stage.causes()), 1, f"connections that ended ({stage.causes()})")
    stage.undisturbed()


# covers: MAL-023, MAL-166, MAL-168, MAL-170, MAL-171, MAL-172, MAL-173, MAL-174, MAL-175, MAL-177,
# covers: MAL-178, MAL-179, MAL-180, MAL-181, MAL-182, MAL-184, MAL-185, MAL-187, MAL-188, MAL-189,
# covers: MAL-190, MAL-192, V2-14, V2-21, V2-23, V2-26, V2-27
@case(versions=(), clients=("ours",), seconds=120)
def bad_messages_of_version_two(t):
    Stage(t, protocol=TWO).play_all(version_two.VERSION_TWO)


# covers: MAL-184, V2-23: The client counts a refusal as pending only until the refusal is sent. So
# options that arrive one after the other do not exceed the limit on pending refusals.
@case(versions=(), clients=("ours",), seconds=60)
def options_one_after_the_other_are_no_flood(t):
    stage = Stage(t, protocol=TWO)
    row, = (row for row in version_two.VERSION_TWO if row.name == "unknown option")
    for _ in range(OPTIONS):
        stage.play(row)


# covers: MAL-167, MAL-168, MAL-169, MAL-170, MAL-171, MAL-173, MAL-178, MAL-184, MAL-188, V2-17,
# covers: V2-19, V2-20: The server sends invalid callbacks in version two, and callbacks of version
# one.
@case(versions=("4.2",), clients=("ours",), seconds=120)
def bad_callbacks_of_version_two(t):
    stage = Stage(t, t.version, protocol=TWO)
    stage.play_all(version_two.REVERSE_TWO)
    stage.play_all(reverse.REVERSE, ROWS_SHARE)


# covers: MAL-191, MAL-193, V2-26, V2-28: The server sends invalid chunk lists and payloads in the
# format of version two.
@case(versions=(), clients=("ours",), seconds=120)
def bad_chunk_lists_of_version_two(t):
    stage = Stage(t, protocol=TWO)
    stage.play_all(chunks.CHUNK_LISTS, ROWS_SHARE)
    stage.play_all(chunks.PAYLOAD, ROWS_SHARE)


# covers: MAL-191
@case(versions=(), clients=("ours",), loaded=False, seconds=60)
def bad_chunks_of_several_segments_of_version_two(t):
    module.insmod("region_pages=1 strict=1")
    t.defer(module.unload)
    Stage(t, protocol=TWO).play_all(chunks.SEVERAL_SEGMENTS, ROWS_SHARE)


# covers: MAL-186, V2-28: The server sends two types of messages in version two: messages whose
# Receive completes in an unusual way, and messages with wrong fixed header fields. They are the
# messages of the tests of version one, without those that version two does not have.
@case(versions=(), clients=("ours",), seconds=120)
def bad_fixed_headers_of_version_two(t):
    stage = Stage(t, protocol=TWO)
    stage.play_all(headers.COMPLETIONS, ROWS_SHARE)
    stage.play_all(headers.FIXED_HEADER, ROWS_SHARE)


# covers: V2-28: Wrong accesses to memory, and disconnects, have the same results in version two as
# in version one.
@case(versions=(), clients=("ours",), seconds=120)
def memory_and_ends_in_version_two(t):
    stage = Stage(t, protocol=TWO)
    stage.play_all(access.ACCESS, ROWS_SHARE)
    stage.play_all(access.ENDINGS, ROWS_SHARE)
    # Each row of this table depends on the row before it.
    stage.play_all(access.INVALIDATION)


# covers: X-19, CM-16, CM-21: In version two, the private data still determine whether remote
# invalidation is used.
@case(versions=(), clients=("ours",), seconds=60)
def remote_invalidation_in_version_two(t):
    stage = Stage(t, protocol=TWO)
    stage.responder.call("plan", [{"private": (MAGIC + bytes((1, 1, 3, 3))).hex()}])
    before = stage.counters()
    stage.disconnect()
    stage.read()
    check(stage.counters()["reminv"] > before["reminv"], "no remote invalidation")
    equal(state(stage.responder.port, "version"), "2", "version")
    stage.undisturbed()
