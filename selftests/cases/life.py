# SPDX-License-Identifier: GPL-2.0
"""Events in the life of a mount: slow and dead servers, suspension of the machine, swap files."""

import os
import pathlib
import re
import subprocess

from lib import faults, xprt
from lib.case import ENV, case, check, equal, wait
from lib.load import RECOVERY_SECONDS, Load
from lib.workers import Crew, Worker

KIB = 1 << 10
# Without an upper limit, the pause after this number of failed attempts in a row would be 15
# seconds or longer.
MANY = 7


def held_up(_, path):
    """Writes to a frozen file system of the server. Returns the duration of the write in seconds.
    """
    clock = wait.Clock()
    with open(path, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"slow", 0)
        os.fsync(file.fileno())
    return clock.seconds()


# covers: peer.md 4.4: A slow server is not treated as dead, because its device still acknowledges
# packets.
@case(versions=("3", "4.2"), seconds=90, slow=True)
def a_slow_server_is_left_alone(t):
    mount = t.mount(export=ENV.disk)
    top = t.directory(mount)
    t.server.call("create", top.there, 4, "f")
    os.statvfs(mount.where)
    with Crew(ENV.patience(30)) as crew, faults.frozen(t.server):
        for number in range(4):
            crew.start(held_up, f"{top.here}/f{number}")
        # The server's file system stays frozen for 20 seconds. The client would end the connection
        # to a silent peer in less time.
        clock = wait.Clock()
        wait.until(lambda: clock.seconds() > 20, 21, "twenty seconds")
        equal([worker.ended() for worker in crew.workers], [False] * 4, "writers that ended")
    check(min(map(float, crew.results)) > 18, f"held up for {crew.results} seconds only")
    equal(mount.connects(), 1, "connections")


# covers: peer.md 4.4: When the server is dead, the client notices this within seconds. The test
# checks this with a call in flight, and then on an idle connection.
@case(versions=("3",), clients=("ours",), seconds=150)
def a_dead_server_is_noticed_within_seconds(t):
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    t.server.write(there, b"x")
    os.stat(here)
    for idle in (False, True):
        faults.silence(t.server)
        t.defer(faults.speak, t.server)
        clock = wait.Clock()
        waiting = None if idle else Worker(held_up, here)
        wait.until(lambda: not xprt.connected(), ENV.patience(60), "the connection is given up")
        taken = clock.seconds()
        t.note(f"{'idle' if idle else 'busy'}: noticed after {taken:.1f} s")
        check(taken < (45 if idle else 20) * (2 if ENV.debug else 1),
              f"noticed after {taken:.0f} s only")
        faults.speak(t.server)
        if waiting:
            waiting.join(ENV.patience(60))
        os.statvfs(mount.where)


def look_again(stopped, path):
    while not stopped():
        os.statvfs(path)


def failures():
    """Returns for each transport how many of its attempts to connect failed in a row."""
    return {d.name: int(re.findall(r"failures in a row: (\d+)", (d / "state").read_text())[0])
            for d in xprt.transports()}


# covers: MAL-150: The RPC client sets the maximum pause between connection attempts, and no pause
# is longer. With NFSv4 the maximum is half a lease time. For a data server of pNFS there is a
# separate maximum. The third transport of this test has the maximum from the beginning. The other
# transports get it later.
@case(versions=("4.2",), clients=("ours",), seconds=120)
def pauses_between_attempts_are_as_short_as_wished_for(t):
    mount = t.mount("noac,nconnect=2")
    (xprt.directories()[0].parent / "add_xprt").write_text("1")
    with Crew(ENV.patience(60)) as crew:
        for _ in range(9):
            crew.start(look_again, mount.where)
        wait.until(lambda: sum("CONNECTED" in words for words in xprt.states()) == 3,
                   ENV.patience(20), "three connections")
        faults.stop_nfsd(t.server)
        t.defer(faults.start_nfsd, t.server)
        seen, clock = {}, wait.Clock()

        def failed_again():
            for number, count in failures().items():
                seen.setdefault((number, count), clock.seconds())
            return sum(count == MANY + 1 for _, count in seen) == 3

        wait.until(failed_again, ENV.patience(60), "failures of each transport")
        faults.start_nfsd(t.server)
    pauses = [seen[number, MANY + 1] - seen[number, MANY] for number in failures()]
    t.note(f"pauses: {[f'{pause:.1f}' for pause in pauses]}")
    check(max(pauses) < 10, f"pauses: {pauses}")


# Causes of disconnects that are not the fault of our client. On a machine that is too busy, the
# data of an RDMA Read may arrive late. The server then sends the Read again. If the call has
# completed by then, its region is invalid. The client's rxe executes the repeated Read, finds a
# wrong key, and fails the queue pair. Another possibility is that retries are used up.
OF_THE_FABRIC = {"flushed", "peer closed", "peer does not acknowledge"}


# covers: Calls are in flight while user space is frozen, as for a suspend, and thawed again. The
# freeze itself does not end the connection.
@case(versions=("3", "4.2"), seconds=90, stock_only=True, slow=True)
def suspending_with_a_live_mount(t):
    mount = t.mount()
    test, state = pathlib.Path("/sys/power/pm_test"), pathlib.Path("/sys/power/state")
    test.write_text("freezer")
    t.defer(test.write_text, "none")
    with Load(t, mount, 32 * KIB) as load:
        # The write to /sys/power/state returns after five seconds.
        state.write_text("freeze")
        load.wait_progress(RECOVERY_SECONDS, 2)
    lost = mount.connects() - 1
    t.note(f"connection lost {lost} times")
    check(lost < 2, f"connection lost {lost} times")
    if ENV.ours:
        causes = xprt.disconnects()
        for cause, details in causes:
            t.note(f"{cause}{details}")
        equal({cause for cause, _ in causes} - OF_THE_FABRIC, set(), "why the connection ended")


# covers: A swap file is refused, and the log says why. The test does not use NFSv4. With NFSv4 the
# kernel's NFS client would treat a refused file as an active swap file. Such a client never stops
# its state manager and never closes its connection.
@case(versions=("3",), clients=("ours",), seconds=30)
def a_swap_file_is_refused(t):
    here, _ = t.directory(t.mount()).path("swap")
    with open(here, "wb") as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    os.chmod(here, 0o600)
    subprocess.run(["mkswap", here], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   timeout=ENV.patience(30), check=True)
    t.defer(subprocess.run, ["swapoff", here], stderr=subprocess.DEVNULL,
            timeout=ENV.patience(30), check=False)
    done = subprocess.run(["swapon", here], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=ENV.patience(30), check=False)
    check(done.returncode, "swapon succeeds")
    t.note(done.stdout.strip())
    t.log.expect("swap files on NFS over RDMA are not supported")
