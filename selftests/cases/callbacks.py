# SPDX-License-Identifier: GPL-2.0
"""Calls of the server to the client. The server requests that the client return delegations."""

import os
import pathlib
import re

from lib import bystanders, faults, namespace, pattern, xprt
from lib.case import ENV, case, check, equal, wait
from lib.workers import Crew, Worker

# Time limit for a recall in seconds, on a machine that runs nothing else. A recall takes a few
# hundredths of a second. The limit is less than the lease time of ten seconds. After the lease
# time, a server that got no answer revokes the delegation.
RECALL_SECONDS = 8
CREDITS = 4


def delegations(t, names):
    """Returns how many files the server has delegated. Only files whose names match the pattern
    `names` are counted. Delegations of directories must not be counted, because opening a file does
    not recall them."""
    return len(re.findall(rf'type: deleg,.*/(?:{names})"', t.server.call("client_states")))


def recall(t, path):
    """Makes a process on the server open a file for writing. Returns how many seconds the open
    took."""
    return t.server.call("open_for_write", path, seconds=60)


def returned(mount):
    """Returns the number of DELEGRETURN operations of a mount, and how many of these operations
    failed."""
    row = xprt.operations(mount.where)["DELEGRETURN"]
    return row[0], row[8]


def check_returned(mount, before, taken, count=1):
    """Checks after recalls that the client has returned at least `count` delegations, in time and
    without errors. The client cannot return a delegation that the server has revoked.

    `before` is the value of `returned` before the recalls. `taken` is the duration of the slowest
    recall in seconds.
    """
    check(taken < ENV.patience(RECALL_SECONDS), f"returned after {taken:.1f} s only")
    wait.until(lambda: returned(mount)[0] >= before[0] + count, ENV.patience(5),
               "returned delegations")
    equal(returned(mount)[1], before[1], "failed returns of delegations")


def wait_delegated(t, path):
    """Opens a file repeatedly until the server delegates the file.

    The server may delegate nothing at first, for two reasons. Before the server delegates files to
    an NFSv4.0 client, it checks that callbacks reach the client. And for half a minute after a
    recall, the server delegates no files with similar file handles.
    """
    name = re.escape(os.path.basename(path))

    def delegated():
        os.close(os.open(path, os.O_RDONLY))
        return delegations(t, name) > 0

    wait.until(delegated, ENV.patience(45), "a delegation")


# covers: MAL-129
# covers: BC-20 (4.0), BC-21, BC-01, BC-12, BC-18: The client answers callbacks of the server
# immediately. With NFSv4.0 the callbacks arrive over TCP. With 4.1 and 4.2 they arrive over our
# connection.
@case(versions=("4.0", "4.1", "4.2"), seconds=90)
def delegations_are_returned_promptly(t):
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    t.server.write(there, pattern.data(1, 0, 5000))
    fd = os.open(here, os.O_RDONLY)
    equal(os.pread(fd, 5000, 0) == pattern.data(1, 0, 5000), True, "content")
    wait_delegated(t, here)
    before = returned(mount)
    taken = recall(t, there)
    t.note(f"returned after {taken:.2f} s")
    check_returned(mount, before, taken)
    t.server.write(there, pattern.data(1, 0, 5000, 1))
    equal(pathlib.Path(here).read_bytes() == pattern.data(1, 0, 5000, 1), True,
          "content that the server wrote")
    os.close(fd)


# covers: BC-08, BC-18, BC-27, BC-33: The server can send callbacks again after the client has
# reconnected.
@case(versions=("4.1", "4.2"), seconds=90)
def callbacks_work_after_a_reconnect(t):
    mount = t.mount()
    top = t.directory(mount)
    for turn in range(ENV.pick(small=5, full=100, debug=2)):
        here, there = top.path(f"file{turn}")
        t.server.write(there, pattern.data(2, 0, 100))
        before = mount.connects()
        xprt.force_disconnect()
        xprt.wait_reconnected_by(mount, before, lambda: os.statvfs(mount.where))
        fd = os.open(here, os.O_RDONLY)
        wait_delegated(t, here)
        before = returned(mount)
        taken = recall(t, there)
        check_returned(mount, before, taken)
        os.close(fd)


# covers: BC-07, BC-29, BC-30, BC-03: The server sends many callbacks at the same time, while the
# client's own calls use every credit.
@case(versions=("4.1", "4.2"), seconds=120)
def many_recalls_under_load_lose_nothing(t):
    recalls_under_load(t, t.mount(), ENV.pick(small=32, full=400, debug=12))


def recalls_under_load(t, mount, count):
    """Makes the server recall `count` delegations in bursts while files are written. Then compares
    all data."""
    top = t.directory(mount)
    t.server.call("create", top.there, count, "f")
    fds = [os.open(f"{top.here}/f{number}", os.O_RDONLY) for number in range(count)]
    found = delegations(t, r"f\d+")
    check(found >= count // 2, f"only {found} delegations of {count}")

    def busy(stopped, number):
        path, generation = f"{top.here}/busy{number}", 0
        while not stopped():
            generation += 1
            pathlib.Path(path).write_bytes(pattern.data(number, 0, 100000, generation))
        return generation

    with Crew(ENV.patience(60)) as crew:
        for number in range(3):
            crew.start(busy, number)
        # Each helper causes one recall at a time. Together the helpers cause bursts of recalls.
        helpers = [t.another_server() for _ in range(4)]
        before, slowest = returned(mount), 0.0
        for turn in range(count // 4):
            asked = [(h, h.send("open_for_write", f"{top.there}/f{turn * 4 + n}"))
                     for n, h in enumerate(helpers)]
            for helper, number in asked:
                slowest = max(slowest, helper.take(number, 60))
        crew.check()
    t.note(f"{found} delegations, the slowest returned after {slowest:.2f} s")
    check_returned(mount, before, slowest, found)
    for number, generation in enumerate(crew.results):
        t.server.expect(f"{top.there}/busy{number}",
                        pattern.data(number, 0, 100000, int(generation)))
    equal(mount.xprts()[0]["connect_count"], 1, "connections")
    for fd in fds:
        os.close(fd)


def write_once(_, path):
    with open(path, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"y" * 4096, 0)
        os.fsync(file.fileno())


# covers: BC-30
# covers: BC-03, BC-18: The client answers a callback even if its own calls use all credits that the
# server granted.
@case(versions=("4.1", "4.2"), seconds=90)
def callbacks_are_answered_while_every_credit_is_used(t):
    faults.grant(t, CREDITS)
    mount, frozen = t.mount(), t.mount(export=ENV.disk)
    here, there = t.directory(mount).path("file")
    stuck = t.directory(frozen, "stuck")
    t.server.call("create", stuck.there, 2 * CREDITS, "f")
    t.server.write(there, b"x")
    wait_delegated(t, here)
    helper = t.another_server()
    with Crew(ENV.patience(30)) as crew:
        with faults.frozen(t.server):
            for number in range(2 * CREDITS):
                crew.start(write_once, f"{stuck.here}/f{number}")
            wait.until(lambda: xprt.waiting_for_credits(CREDITS) >= 2, ENV.patience(10),
                       "every credit used, and calls that wait for one")
            sends = mount.xprts()[0]["sends"]
            t.on_failure(lambda: f"delegations: {t.server.call('client_states')}\n"
                                 f"{xprt.info(xprt.directories()[0])} {xprt.states()}")
            opened = helper.send("open_for_write", there)
            # The client now has no credit for a call. So if another Send is counted, this Send is
            # the answer to the recall.
            wait.until(lambda: mount.xprts()[0]["sends"] > sends, ENV.patience(5),
                       "the callback is answered")
            equal(xprt.info(xprt.directories()[0])["cur_cong"], CREDITS * xprt.CREDIT,
                  "credits in use")
        helper.take(opened, 60)
    equal(mount.connects(), 1, "connections")
    # The file system is unmounted before the server's former number of credits is restored.
    frozen.remove()
    mount.remove()


# covers: ULB-06, ULB-14: NFSv3 has no callbacks. The client sees a change when it asks for the
# attributes again.
@case(versions=("3",))
def conflicts_are_seen_without_callbacks(t):
    mount = t.mount("actimeo=1")
    here, there = t.directory(mount).path("file")
    t.server.write(there, b"before")
    equal(pathlib.Path(here).read_bytes(), b"before", "content")
    check(recall(t, there) < 1, "a v3 client holds up the server")
    t.server.write(there, b"behind")
    wait.until(lambda: pathlib.Path(here).read_bytes() == b"behind", ENV.patience(10),
               "the new content is seen")


# The server recalls a delegation from one client when another client opens the file for writing.
@case(versions=("4.2",), clients=("ours",), server="ours", stock_only=True, seconds=60)
def another_client_has_a_delegation_recalled(t):
    with namespace.beside() as space:
        # Both clients run on this machine. The server treats them as different clients, because
        # their identifiers differ.
        namespace.run("ip", "netns", "exec", space.file.name, "sh", "-c",
                      f"echo {space.file.name} > /sys/fs/nfs/net/nfs_client/identifier")
        near, far = t.mount(), t.unmounted("nosharecache")
        top = t.directory(near)
        Worker(bystanders.in_namespace, space.file, far).join(ENV.patience(60))
        (there, on_server), held = top.path("file"), f"{far.where}/case/file"
        t.server.write(on_server, b"before")
        with open(held, "rb"):
            wait_delegated(t, held)
            clock = wait.Clock()
            with open(there, "r+b") as file:
                taken = clock.seconds()
                equal(delegations(t, "file"), 0, "delegations left")
                file.write(b"behind")
            t.note(f"returned after {taken:.2f} s")
            check(taken < RECALL_SECONDS, f"returned after {taken:.1f} s only")
            equal(pathlib.Path(held).read_bytes(), b"behind", "content that the other client wrote")
        far.remove()
        near.remove()
