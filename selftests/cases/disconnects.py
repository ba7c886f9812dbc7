# SPDX-License-Identifier: GPL-2.0
"""Connections that break: nothing acknowledged is lost, nothing is torn.

Writers write records that carry file, offset and generation.  What a write has
acknowledged must be on the server in the end, and what a read returns must be
of a generation that was written.
"""

import mmap
import os
import struct

from lib import faults, pattern, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, wait
from lib.workers import Crew

KIB, MIB = 1 << 10, 1 << 20
INLINE, BULK = 512, 256 * KIB
PLACES = 16
RECOVERY_SECONDS = 75


COUNT = struct.Struct("=Q")


def rewrite(stopped, path, number, size, progress):
    """Write the places of a file again and again, with reads between.

    Tells how far it is in shared memory.  Returns the generation of each place.
    """
    fd, buffer = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644), Buffer(size)
    done, generation, place = [0] * PLACES, 0, 0
    while not stopped():
        generation += 1
        place = generation % PLACES
        offset = place * size
        buffer.write(fd, pattern.data(number, offset, size, generation), offset, number)
        done[place] = generation
        COUNT.pack_into(progress, number * COUNT.size, generation)
        back = generation * 7 % PLACES
        if done[back]:
            found = buffer.read(fd, size, back * size, generation % 64)
            problem = pattern.difference(
                found, pattern.data(number, back * size, size, done[back]), back * size)
            check(problem is None, f"file {number}: {problem}")
    os.close(fd)
    return ",".join(map(str, done))


def look(stopped, path):
    """Calls without data."""
    turns = 0
    while not stopped():
        os.stat(path)
        os.statvfs(path)
        turns += 1
    return turns


class Load:
    """Writers, readers and lookers on a mount, and the check of what they did."""

    def __init__(self, t, mount, size, writers=2):
        self.t, self.size, self.writers = t, size, writers
        self.top, self.crew = t.directory(mount), Crew(ENV.patience(60))
        self.progress = mmap.mmap(-1, writers * COUNT.size)

    def written(self):
        """How many writes each writer has had acknowledged."""
        return [COUNT.unpack_from(self.progress, n * COUNT.size)[0]
                for n in range(self.writers)]

    def wait_progress(self, seconds, writes):
        """Wait until every writer has done some more writes; how long that took."""
        start, clock = self.written(), wait.Clock()
        wait.until(lambda: all(now >= then + writes for now, then
                               in zip(self.written(), start)), ENV.patience(seconds),
                   f"{writes} more writes by each of {self.writers} writers")
        self.crew.check()
        return clock.seconds()

    def __enter__(self):
        for number in range(self.writers):
            self.crew.start(rewrite, f"{self.top.here}/w{number}", number, self.size,
                            self.progress)
        self.crew.start(look, self.top.here)
        self.crew.__enter__()
        # Every writer is at work before anything is broken.
        self.wait_progress(60, 1)
        return self

    def __exit__(self, *failure):
        if not failure[0]:
            try:
                self.wait_progress(RECOVERY_SECONDS, PLACES)
            except BaseException as error:
                self.crew.__exit__(type(error), error, None)
                raise
        self.crew.__exit__(*failure)
        if failure[0]:
            return
        for number, text in enumerate(self.crew.results[:self.writers]):
            done = list(map(int, text.split(",")))
            content = b"".join(pattern.data(number, p * self.size, self.size, done[p])
                               for p in range(PLACES))
            self.t.server.expect(f"{self.top.there}/w{number}", content)


def break_again_and_again(t, size, rounds):
    """Force disconnects, each only after the last one is repaired."""
    mount = t.mount()
    with Load(t, mount, size) as load:
        for _ in range(rounds):
            before = mount.connects()
            xprt.force_disconnect()
            xprt.wait_reconnected(mount, before)
            load.crew.check()
    found = mount.xprts()[0]
    t.note(f"{found['connect_count']} connections, {found['sends']} sends, "
           f"{found['bad_xids']} bad xids")


# covers: V1-100, V1-014, V1-095, V1-102, BC-08, CM-11, ULB-33, ULB-34.
@case(seconds=150, full_seconds=3600)
def forced_disconnects_under_inline_load(t):
    break_again_and_again(t, INLINE, ENV.pick(small=50, full=500, debug=10))


# covers: V1-100, V1-103, V1-110, MAL-105: exposed memory comes back for each.
@case(seconds=150, full_seconds=3600)
def forced_disconnects_under_bulk_load(t):
    break_again_and_again(t, BULK, ENV.pick(small=50, full=500, debug=10))


# covers: V1-100: every connection of a mount comes back.
@case(versions=("4.1", "4.2", "3"), seconds=120)
def forced_disconnects_with_nconnect(t):
    mount = t.mount("nconnect=4")
    with Load(t, mount, 16 * KIB) as load:
        for _ in range(ENV.pick(small=5, full=100, debug=2)):
            before = [x["connect_count"] for x in mount.xprts()]
            xprt.force_disconnect()
            wait.until(lambda b=before: all(x["connect_count"] > count for x, count
                                            in zip(mount.xprts(), b)),
                       ENV.patience(30), "all four connected again")
            load.crew.check()


def restart_again_and_again(t, export, size, rounds):
    """The server ends every connection and its listener, and comes back."""
    mount = t.mount(export=export)
    with Load(t, mount, size) as load:
        for _ in range(rounds):
            faults.restart_nfsd(t.server)
            faults.end_grace(t.server)
            # What a writer completes now went over a new connection.  The statistics are no way to
            # see that: of an NFSv4.1 mount they must not be read while the server is identified
            # anew, for the kernel shows its name from memory that is then freed.
            load.wait_progress(RECOVERY_SECONDS, 2)
    found = mount.connects()
    check(found > rounds, f"{found} connections after {rounds} restarts")
    t.note(f"{found} connections")


# covers: V1-095, ULB-33: the server ends the connection, its listener returns.
@case(seconds=150)
def server_restarts_under_load(t):
    restart_again_and_again(t, ENV.disk, 32 * KIB, ENV.pick(small=2, full=20, debug=1))


# covers: V1-095, V1-100: the same in the middle of small calls.
@case(seconds=150, full_seconds=3600)
def server_ends_connections_under_inline_load(t):
    restart_again_and_again(t, ENV.mem, INLINE, ENV.pick(small=5, full=250, debug=3))


# covers: V1-100, peer.md R1, R2: nothing comes through for ten seconds; a hard
# mount returns no error and works again.
@case(seconds=180)
def hard_mount_survives_ten_seconds_of_silence(t):
    mount = t.mount()
    with Load(t, mount, 32 * KIB) as load:
        faults.silence(t.server)
        t.defer(faults.speak, t.server)
        clock = wait.Clock()
        wait.until(lambda: clock.seconds() > 10, 11, "ten seconds")
        load.crew.check()
        faults.speak(t.server)
        t.note(f"works again {load.wait_progress(RECOVERY_SECONDS, 1):.1f} s after the silence")


# covers: V1-095: the server's device goes away under load and comes back.
@case(seconds=180)
def server_device_comes_and_goes_under_load(t):
    mount = t.mount()
    with Load(t, mount, 32 * KIB) as load:
        before = mount.connects()
        faults.remove_server_device(t.server)
        faults.add_server_device(t.server)
        xprt.wait_reconnected(mount, before, 90)
        load.crew.check()


# covers: peer.md 1.19: our own device is pulled out under load; the removal ends,
# and the mount works again when there is a device again.
@case(seconds=180)
def client_device_comes_and_goes_under_load(t):
    mount = t.mount()
    with Load(t, mount, 32 * KIB) as load:
        for _ in range(ENV.pick(small=2, full=20, debug=1)):
            before = mount.connects()
            try:
                faults.remove_client_device()
            finally:
                faults.add_client_device()
            xprt.wait_reconnected(mount, before, 90)
            load.crew.check()


# covers: BC-16, V1-020: an idle connection is given up and made again when needed.
# The idle time of sunrpc's RDMA transports is five minutes.
@case(versions=("3",), full_only=True, full_seconds=900)
def idle_connection_is_closed_and_comes_back(t):
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    with open(here, "wb") as data:
        data.write(pattern.data(1, 0, 5000))
    before = mount.connects()
    wait.until(lambda: not any("CONNECTED" in s for s in xprt.states()), 420,
               "the idle connection is closed")
    with open(here, "r+b") as data:
        data.write(pattern.data(1, 0, 5000, 1))
    check(mount.connects() > before, "no new connection")
    t.server.expect(there, pattern.data(1, 0, 5000, 1))
