# SPDX-License-Identifier: GPL-2.0
"""Tests of killed processes and of silent servers: memory is freed, other processes are not
disturbed, soft mounts report errors, and hard mounts wait."""

import contextlib
import errno
import json
import os
import pathlib
import signal
import subprocess
import time

from lib import bystanders, faults, module, mounts, pattern, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait
from lib.workers import Crew, Worker

KIB = 1 << 10
BLOCK, BLOCKS = 256 * KIB, 4
READ, WRITE = 50, 51  # numbers of the files that processes read and write
CREDITS = 4
TRIES = 5
KILLS = pathlib.Path("/results/kills.json")


class Pieces:
    """The blocks of several successive contents ("generations") of a file. The blocks are computed
    once, because computing a block takes longer than transferring it."""

    def __init__(self, number, generations):
        self.blocks = [[pattern.data(number, at, BLOCK, g)
                        for at in range(0, BLOCK * BLOCKS, BLOCK)] for g in generations]


def write_for_ever(_, path, pieces):
    """Writes the blocks of each generation in turn with direct I/O, until the process is ended."""
    fd, buffer = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644), Buffer(BLOCK)
    while True:
        for blocks in pieces.blocks:
            for at, data in enumerate(blocks):
                buffer.write(fd, data, at * BLOCK)


def read_until(stopped, path, pieces):
    """Reads large blocks with direct I/O and compares them. Returns the number of blocks."""
    fd, buffer, turns = os.open(path, os.O_RDONLY | os.O_DIRECT), Buffer(BLOCK), 0
    while not stopped():
        at = turns % BLOCKS
        problem = pattern.difference(buffer.read(fd, BLOCK, at * BLOCK, 77),
                                     pieces.blocks[0][at], at * BLOCK)
        check(problem is None, f"{problem}")
        turns += 1
    os.close(fd)
    return turns


def wait_under_way(mount, more):
    """Waits until the mount has sent `more` additional calls."""
    start = mount.xprts()[0]["sends"]
    wait.until(lambda: mount.xprts()[0]["sends"] > start + more, ENV.patience(30),
               "transfers under way")


# covers: V1-105, V1-113, MAL-104: Processes are killed while they transfer data. The server then
# has no access to their regions, and none of their slots stays in use. The file that they wrote
# contains only whole records.
@case(seconds=120, full_seconds=1200, slow=True)
def killed_readers_and_writers_harm_nobody(t):
    before = module.resources()
    mount = t.mount()
    top = t.directory(mount)
    theirs, ours = Pieces(READ, [5]), Pieces(WRITE, range(4))
    t.server.write(f"{top.there}/read", b"".join(theirs.blocks[0]))
    bystander = Worker(read_until, f"{top.here}/read", theirs)
    for turn in range(ENV.pick(small=12, full=300, debug=3)):
        victims = [Worker(write_for_ever, f"{top.here}/write", ours),
                   Worker(read_until, f"{top.here}/read", theirs)]
        # The processes are killed at a random moment during their transfers.
        wait_under_way(mount, t.random.randrange(3, 40))
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.join(ENV.patience(30), killed=True)
        check(not bystander.ended(), f"the bystander ended in round {turn}")
    turns = int(bystander.join(ENV.patience(30)))
    check(turns > 0, "the bystander got nothing")
    found = t.server.read(f"{top.there}/write", 0, BLOCK)
    problem = pattern.generations(found, WRITE, 0, {None, 0, 1, 2, 3})
    check(problem is None, f"what killed writers wrote: {problem}")
    mount.remove()
    xprt.wait_gone()
    module.wait_resources(before)


def list_for_ever(_, path):
    """Lists a directory again and again. Each listing is requested from the server."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    while True:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.listdir(fd)


def longest_pause(stopped, act):
    """Calls `act` again and again. Returns the longest time between the ends of two successive
    calls, and the number of calls."""
    last, longest, turns = time.monotonic(), 0.0, 0
    while not stopped():
        act()
        now = time.monotonic()
        last, longest, turns = now, max(longest, now - last), turns + 1
    return f"{longest:.3f} {turns}"


def look_on(stopped, path):
    return longest_pause(stopped, lambda: os.stat(path))


def read_on(stopped, path):
    fd, buffer = os.open(path, os.O_RDONLY | os.O_DIRECT), Buffer(32 * KIB)
    return longest_pause(stopped, lambda: buffer.read(fd, 32 * KIB, 0))


def counter(mount):
    """Returns a function that reports how many connections and RPCs a mount has made since
    `counter` was called. The mount must have one transport.

    The function writes each report to the file `KILLS`, which `tools/lab kills` reads. The report
    is written immediately, because the machine may crash after the next kill.
    """
    names = {"connects": "connect_count", "rpcs": "sends"}
    before, clock = mount.xprts()[0], wait.Clock()

    def tell(**found):
        now = mount.xprts()[0]
        found |= {name: now[column] - before[column] for name, column in names.items()}
        found["seconds"] = round(clock.seconds(), 1)
        KILLS.write_text(json.dumps(found))
        return found["connects"]

    return tell


def kill_listings(t, mount, top):
    """Kills processes while the server answers their calls. Returns the number of new connections
    that the kills cause, and the longest pause of other processes.

    Whether a kill comes before the reply depends on chance.
    """
    t.server.call("mkdir", f"{top.there}/many")
    t.server.call("create", f"{top.there}/many", ENV.pick(small=2000, full=5000, debug=1000),
                  "a-name-of-some-length-")
    t.server.write(f"{top.there}/read", b"x" * 32 * KIB)
    slowest, tell = 0.0, counter(mount)
    with Crew(ENV.patience(30)) as others:
        others.start(look_on, f"{top.here}/read")
        others.start(read_on, f"{top.here}/read")
        for kills in range(1, ENV.pick(small=20, full=50, debug=5) + 1):
            victim = Worker(list_for_ever, f"{top.here}/many")
            wait.until(lambda: xprt.waiting_for_replies("READDIR(?:PLUS)?"), ENV.patience(20),
                       "a listing under way")
            clock = wait.Clock()
            victim.kill()
            victim.join(ENV.patience(20), killed=True)
            slowest = max(slowest, clock.seconds())
            tell(kills=kills)
        others.check()
    pause = max(float(result.split()[0]) for result in others.results)
    connects = tell(kills=kills, pause=pause)
    t.note(f"{kills} kills: {connects} new connections; longest pause of the others {pause:.3f} s; "
           f"longest end of a killed process {slowest:.3f} s")
    return connects, pause


def kill_before_the_reply(t, top):
    """Kills a process that lists a directory, while every thread of the server waits for the
    server's disk.

    The disk continues immediately after the kill, so that the reply arrives before the client
    revokes the region of the call. If the client revoked the region during the server's Write, the
    connection would end.

    If the client is slow, the reply arrives even before the killed process has ended. Then the
    reply does not count as late. So the caller repeats this function until a reply is late.
    """
    victim = Worker(list_for_ever, f"{top.here}/many")
    with Crew(ENV.patience(30)) as busy:
        with faults.frozen(t.server):
            for n in range(faults.THREADS):
                busy.start(change_mode, f"{top.here}/f{n}")
            wait.until(lambda: xprt.waiting_for_replies("SETATTR") == faults.THREADS,
                       ENV.patience(20), "no thread of the server free")
            wait.until(lambda: xprt.waiting_for_replies("(?:READDIR(?:PLUS)?|GETATTR|ACCESS)"),
                       ENV.patience(20), "a listing that nobody answers")
            victim.kill()
        victim.join(ENV.patience(20), killed=True)


# covers: V1-105: A process asks for a listing and is killed while the server still writes the
# listing. Other processes keep their connection and are not delayed.
@case(clients=("ours",), seconds=120, full_seconds=400, slow=True)
def killed_listings_cost_the_others_nothing(t):
    mount = t.mount("noac", export=ENV.disk)
    top = t.directory(mount)
    connects, pause = kill_listings(t, mount, top)
    before = mount.xprts()[0]["connect_count"]
    t.server.call("create", top.there, faults.THREADS, "f")
    for _ in range(TRIES):
        kill_before_the_reply(t, top)
        late = xprt.numbers_of("counters", "late_replies")[0]
        if late:
            break
    connects += mount.xprts()[0]["connect_count"] - before
    t.note(f"{late} late replies")
    check(late, "no call was killed while it waited for its reply")
    equal(xprt.numbers_of("counters", "reminv_wrong"), [0], "wrong regions invalidated")
    equal(connects, 0, "new connections")
    check(pause < ENV.patience(2), f"the others had to wait for {pause:.1f} s")


# Kills processes that list a directory with the in-tree client, to compare the in-tree client with
# our client. The result is recorded. The test can crash the machine.
@case(clients=("intree",), full_only=True, full_seconds=400)
def killed_listings_of_the_other_client(t):
    mount = t.mount("noac", export=ENV.disk)
    kill_listings(t, mount, t.directory(mount))


def change_mode(_, path):
    os.chmod(path, 0o600)


def window():
    """Returns the numbers that sunrpc shows in sysfs for the transport. There is one transport."""
    return xprt.info(xprt.directories()[0])


def few_credits(t):
    """Mounts from a server that grants few credits. Creates twice as many files as there are
    credits."""
    faults.grant(t, CREDITS)
    mount = t.mount("noac", export=ENV.disk)
    top = t.directory(mount)
    t.server.call("create", top.there, 2 * CREDITS, "f")
    os.stat(top.here)
    return mount, top


@contextlib.contextmanager
def given_up(t, top):
    """Makes calls of killed processes hold every credit during the `with` block."""
    with faults.frozen(t.server):
        victims = [Worker(change_mode, f"{top.here}/f{n}") for n in range(2 * CREDITS)]
        # Waits until SETATTR calls hold all credits. LOOKUP calls are not counted, because the
        # server still answers them, and an answered call no longer holds a credit.
        wait.until(lambda: xprt.waiting_for_replies("SETATTR") == CREDITS
                   and xprt.waiting_for_credits(CREDITS) >= 2, ENV.patience(20),
                   "every credit used, and calls that wait for one")
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.join(ENV.patience(30), killed=True)
        equal(xprt.numbers_of("state", "credits")[1:], [CREDITS, CREDITS],
              "credits granted, and held by calls that were given up")
        equal((window()["cur_cong"], window()["cong_win"]), (0, 0), "calls in flight, window")
        yield


# covers: V1-113
# covers: V1-011, V1-013: Processes are killed before the server has replied to their calls. The
# calls keep their credits until the replies arrive. These late replies do not end the connection.
# Processes that wait for credits are killed, too. After that, the next call must still get a
# credit.
@case(versions=("3",), clients=("ours",), seconds=60)
def calls_of_killed_processes_keep_their_credits(t):
    mount, top = few_credits(t)
    with given_up(t, top):
        pass
    wait.until(lambda: xprt.numbers_of("state", "credits")[2] == 0, ENV.patience(20),
               "all credits back")
    equal(window()["cong_win"], CREDITS * xprt.CREDIT, "window")
    Worker(change_mode, f"{top.here}/f0").join(ENV.patience(20))
    equal(xprt.numbers_of("counters", "late_replies"), [CREDITS], "late replies")
    equal(xprt.numbers_of("counters", "bad_xid"), [0], "unexplained replies")
    equal(mount.connects(), 1, "connections")
    # The mount must be removed before the server's earlier number of credits is restored.
    mount.remove()


# covers: V1-013: The server never answers the calls of killed processes. Then the client closes the
# connection, and these calls end with it.
@case(versions=("3",), clients=("ours",), full_only=True, full_seconds=200)
def a_connection_without_credits_ends(t):
    mount, top = few_credits(t)
    with given_up(t, top):
        t.log.expect("disconnected: call without reply", seconds=ENV.patience(90))
    Worker(change_mode, f"{top.here}/f0").join(ENV.patience(20))
    equal(mount.connects(), 2, "connections")
    mount.remove()


# covers: peer.md 4.4: A server dies while all calls in flight belong to killed processes. The
# client notices this as early as with calls of living processes, and earlier than on an idle
# connection.
@case(versions=("3",), clients=("ours",), seconds=90)
def a_server_that_dies_owing_replies_is_noticed_within_seconds(t):
    mount, top = few_credits(t)
    with given_up(t, top):
        faults.silence(t.server)
        t.defer(faults.speak, t.server)
        clock = wait.Clock()
        wait.until(lambda: not any("CONNECTED" in words for words in xprt.states()),
                   ENV.patience(60), "the connection is given up")
        taken = clock.seconds()
        t.note(f"noticed after {taken:.1f} s")
        # The client notices the dead server after about 15 s if a call is in flight, and after 40 s
        # on an idle connection.
        check(taken < 30, f"noticed after {taken:.0f} s only")
    faults.speak(t.server)
    Worker(change_mode, f"{top.here}/f0").join(ENV.patience(60))
    mount.remove()


# covers: V1-097, peer.md 1.4: A soft mount returns an error within a limited time.
@case(seconds=200, slow=True)
def soft_mount_fails_when_the_server_is_silent(t):
    mount = t.mount("soft,timeo=50,retrans=1")
    here, there = t.directory(mount).path("file")
    t.server.write(there, b"x" * 5000)
    fd, buffer = os.open(here, os.O_RDWR | os.O_DIRECT), Buffer(8 * KIB)
    buffer.read(fd, 5000, 0)
    faults.silence(t.server)
    t.defer(faults.speak, t.server)
    clock = wait.Clock()
    for action in (lambda: buffer.read(fd, 5000, 0), lambda: buffer.write(fd, b"y" * 5000, 0)):
        try:
            action()
        except OSError as error:
            check(error.errno in (errno.EIO, errno.ETIMEDOUT), f"{error}")
        else:
            raise AssertionError("data from a silent server")
    t.note(f"gave up after {clock.seconds():.1f} s")
    check(clock.seconds() < ENV.patience(120), f"gave up after {clock.seconds():.0f} s only")
    faults.speak(t.server)
    # The soft mount still works after its calls have failed.
    wait.until(lambda: answers(fd, buffer), ENV.patience(60), "an answer again")
    os.close(fd)


def answers(fd, buffer):
    """Returns whether a read succeeds."""
    try:
        return len(buffer.read(fd, 5000, 0)) == 5000
    except OSError:
        return False


# covers: V1-105: A process that waits for a silent server ends as soon as it is killed.
@case(seconds=120)
def a_waiting_process_can_be_killed(t):
    mount = t.mount()
    top = t.directory(mount)
    theirs, ours = Pieces(READ, [5]), Pieces(WRITE, range(4))
    t.server.write(f"{top.there}/read", b"".join(theirs.blocks[0]))
    victims = [Worker(write_for_ever, f"{top.here}/write", ours),
               Worker(read_until, f"{top.here}/read", theirs)]
    wait_under_way(mount, 5)
    faults.silence(t.server)
    t.defer(faults.speak, t.server)
    quiet_since = time.monotonic()
    last = [mount.xprts()[0]["recvs"]]

    def quiet():
        nonlocal quiet_since
        now = mount.xprts()[0]["recvs"]
        if now != last[0]:
            last[0], quiet_since = now, time.monotonic()
        return time.monotonic() - quiet_since > 1

    wait.until(quiet, ENV.patience(20), "nothing comes in any more")
    clock = wait.Clock()
    for victim in victims:
        victim.kill()
        victim.join(ENV.patience(30), killed=True)
    t.note(f"ended after {clock.seconds():.1f} s")
    check(clock.seconds() < ENV.patience(20), f"ended after {clock.seconds():.0f} s only")
    faults.speak(t.server)
    wait.until(lambda: os.statvfs(mount.where), ENV.patience(90), "an answer again")


def set_attribute(_, path):
    os.setxattr(path, "user.large", b"x" * 4000)


# covers: MAL-104
# covers: V1-105: If a process that waits for a slow server is killed, the memory regions of its
# call are released immediately. The connection continues, so no disconnect releases the regions.
# The call is too long for an inline message.
@case(versions=("4.2",), clients=("ours",), seconds=60)
def a_waiting_process_gets_its_memory_back(t):
    mount = t.mount(export=ENV.disk)
    here, there = t.directory(mount).path("file")
    t.server.write(there, b"x")
    os.stat(here)
    in_use = xprt.numbers_of("counters", "mrs_in_use")
    with faults.frozen(t.server):
        victim = Worker(set_attribute, here)
        wait.until(lambda: xprt.numbers_of("counters", "mrs_in_use")[0] > in_use[0],
                   ENV.patience(20), "a call with registered memory")
        victim.kill()
        victim.join(ENV.patience(5), killed=True)
        equal(xprt.numbers_of("counters", "mrs_in_use"), in_use, "regions in use")
        equal(mount.connects(), 1, "connections while the server takes its time")
    wait.until(lambda: os.statvfs(mount.where), ENV.patience(30), "the mount works")


# If the server of a mount is dead, umount -f ends the waiting calls with an error. The test does
# not cover NFSv4.x. With NFSv4.x, umount -f sends a last call to the server and waits for the
# answer. It does so with every transport.
@case(versions=("3",), seconds=150)
def forced_unmount_of_a_silent_server_ends(t):
    before = module.resources()
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    theirs = Pieces(READ, [5])
    t.server.write(there, b"".join(theirs.blocks[0]))
    victim = Worker(read_until, here, theirs)
    wait_under_way(mount, 3)
    faults.silence(t.server)
    t.defer(faults.speak, t.server)

    def forced():
        force(mount)
        return victim.ended()

    wait.until(forced, ENV.patience(60), "the reader ended by umount -f")
    try:
        victim.join(1)
    except AssertionError as error:
        check("Input/output error" in str(error) or "OSError" in str(error), f"{error}")
    faults.speak(t.server)
    mount.remove()
    xprt.wait_gone(90)
    module.wait_resources(before)


# covers: peer.md 1.19: The last mount of a transport is unmounted during a connection attempt. The
# transport ends without waiting for the attempt.
@case(versions=("3",), clients=("ours",), seconds=90)
def unmounting_ends_an_attempt_to_connect(t):
    mount = t.mount("noac")
    os.statvfs(mount.where)
    faults.silence(t.server)
    t.defer(faults.speak, t.server)
    xprt.force_disconnect()
    victim = Worker(bystanders.look_once, [mount.where])
    wait.until(lambda: any("CONNECTING" in words for words in xprt.states()), ENV.patience(10),
               "an attempt to connect")
    victim.kill()
    victim.join(ENV.patience(10), killed=True)
    mounts.umount(mount.where, mounts.MNT_DETACH)
    clock = wait.Clock()
    xprt.wait_gone(3)
    t.note(f"gone after {clock.seconds():.1f} s")


def force(mount):
    """Runs umount -f, which may fail because the mount is still busy."""
    try:
        mounts.umount(mount.where, mounts.MNT_FORCE)
    except OSError as error:
        check(error.errno in (errno.EBUSY, errno.EINVAL), f"umount -f: {error}")


# covers: The case tests the virtual machine: a program ends when it receives SIGTERM, SIGINT or
# SIGHUP. nfstest relies on this, because it ends its packet capture with a signal.
@case(versions=None)
def programs_can_be_told_to_end(_):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with subprocess.Popen(["sleep", "60"]) as program:
            program.send_signal(number)
            equal(program.wait(ENV.patience(10)), -number, "how it ended")
