# SPDX-License-Identifier: GPL-2.0
"""Allocations of the client module fail: no data are lost, and no object is left behind."""

import ctypes
import errno
import os

from cases import files
from lib import module, mounts, xprt
from lib.case import ENV, case, check, equal
from lib.env import PORT
from lib.injection import Injection
from lib.load import RECOVERY_SECONDS, Load
from lib.workers import Worker

LIBC = ctypes.CDLL(None, use_errno=True)
KIB = 1 << 10
# Maximum number of allocations that a mount with a few slots makes.
MOST = 400
# The case ends when this number of mounts in a row have succeeded, although an allocation failed
# during each of them. The failed allocations then belong to RPC calls, which are sent again.
ENOUGH = 20
# Maximum number of times that the test breaks the connection until enough allocations have failed.
MOST_TURNS = 60
# Errors of a mount when memory is short. EIO is reported if there is no transport.
SHORT = (errno.ENOMEM, errno.EIO)


def mount_with_failure(_, where, nth):
    """Calls mount(2), and makes the nth memory allocation of the system call fail. Returns two
    numbers. The first is the errno, or 0 if the mount succeeded. The second is 0 if the nth
    allocation failed. If the system call made fewer than n allocations, the second number says how
    many were missing."""
    options = (f"vers=3,nolock,proto=rdma,port={PORT},addr={ENV.server},"
               f"mountproto=tcp,mountaddr={ENV.server}")
    counter = os.open("/proc/thread-self/fail-nth", os.O_RDWR)
    os.write(counter, str(nth).encode())
    failed = LIBC.mount(f"{ENV.server}:{ENV.mem}".encode(), where.encode(), b"nfs", 0,
                        options.encode())
    number = ctypes.get_errno() if failed else 0
    left = int(os.pread(counter, 16, 0))
    os.pwrite(counter, b"0", 0)
    return f"{number} {left}"


# covers: The module makes many allocations during a mount. The test makes many mounts, and in each
# mount another one of these allocations fails. In a run of small size, the test leaves out two of
# every three allocations, and chooses at random which of the first three allocations fails.
@case(versions=None, clients=("ours",), debug_only=True, loaded=False, seconds=200)
def each_allocation_of_a_mount_may_fail(t):
    module.insmod("slots=4")
    before = module.resources()
    where = f"/tmp/nfs-injection-{os.getpid()}"
    os.makedirs(where)
    t.defer(os.rmdir, where)
    injection = Injection(t)
    injection.only_module()
    refused, survived, tried, step = 0, 0, 0, ENV.pick(small=3, full=1)
    for nth in range(1 + t.random.randrange(step), MOST, step):
        tried += 1
        result = Worker(mount_with_failure, where, nth).join(ENV.patience(60))
        number, left = map(int, result.split())
        if number:
            check(not left, f"the mount failed without a reason: {os.strerror(number)}")
            check(number in SHORT, f"allocation {nth}: {os.strerror(number)}")
            refused, survived = refused + 1, 0
        else:
            survived += 1
            os.statvfs(where)
            mounts.remove(where)
        if left or survived >= ENOUGH // step:
            break
    else:
        raise AssertionError(f"more than {MOST} allocations")
    # A mount makes at least these allocations: the transport, its names, its slots and its lists.
    check(refused >= 10 // step, f"{refused} of {tried} mounts refused")
    t.note(f"{refused} of {tried} mounts refused")
    xprt.wait_gone()
    module.wait_resources(before)
    module.unload()


# covers: Allocations fail while connections are broken and made again under load. All acknowledged
# data are on the server, and no application sees an error.
@case(versions=("3", "4.2"), clients=("ours",), debug_only=True, loaded=False, seconds=200)
def allocations_fail_under_load(t):
    module.insmod("slots=8")
    mount = t.mount()
    injection = Injection(t)
    injection.only_module()
    wanted = ENV.pick(small=4, full=20)
    with Load(t, mount, 64 * KIB) as load:
        before = mount.connects()
        # Every 499th allocation fails. An attempt to connect makes slightly fewer than 499
        # allocations, so some attempts succeed.
        injection.every(499)
        for turn in range(MOST_TURNS):  # noqa: B007  # used below
            xprt.force_disconnect()
            load.wait_progress(RECOVERY_SECONDS, 2)
            if injection.met() >= wanted:
                break
        failed = injection.stop()
        found = mount.connects() - before
    check(failed >= wanted, f"{failed} allocations failed in {turn + 1} turns, {wanted} wanted")
    t.note(f"{failed} allocations failed in {turn + 1} turns, {found} connections")


# covers: For a reply of unknown size the client allocates pages when it sends the call. A failed
# allocation ends no call of a hard mount, and no data are lost.
@case(versions=("3",), clients=("ours",), debug_only=True, loaded=False, seconds=100)
def allocations_fail_during_small_calls(t):
    module.insmod("slots=8")
    top = t.directory(t.mount())
    acls = {}
    for number in range(20):
        acls[number] = files.posix_acl(number + 1)
        _, there = top.path(f"f{number}")
        t.server.write(there, b"x")
        t.server.setxattr(there, "system.posix_acl_access", acls[number])
    injection = Injection(t)
    injection.only_module()
    injection.every(3)
    for number, acl in acls.items():
        here, _ = top.path(f"f{number}")
        equal(os.getxattr(here, "system.posix_acl_access"), acl, "the list read")
    failed = injection.stop()
    check(failed, "no allocation failed")
    t.note(f"{failed} allocations failed")
