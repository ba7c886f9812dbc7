# SPDX-License-Identifier: GPL-2.0
"""Loading and unloading: the module comes and goes without a trace."""

import errno
import os
import pathlib

from lib import module, mounts, pattern, xprt
from lib.case import ENV, case, check, equal, wait

TRANSPORTS = pathlib.Path("/proc/sys/sunrpc/transports")


def registered():
    """The transports that sunrpc knows, by name."""
    return [line.split()[0] for line in TRANSPORTS.read_text().splitlines() if line]


# covers: V1-114 (netid rdma), the class is there exactly while the module is.
@case(versions=None, loaded=False)
def transport_is_registered_while_loaded(t):
    check("rdma" not in registered(), "transport rdma is registered without the module")
    module.load()
    check("rdma" in registered(), f"transports {registered()}")
    module.unload()
    check("rdma" not in registered(), "transport rdma outlives the module")


# covers: ULB-15 (port 20049 without rpcbind), V1-114: what a user types.
@case(versions=None)
def mount_needs_no_more_than_o_rdma(t):
    for options in ("rdma", "proto=rdma"):
        mount = t.mount(options, raw=True)
        found = mount.active()
        check("proto=rdma" in found, f"-o {options}: {found}")
        check("port=20049" in found, f"-o {options}: {found}")
        os.statvfs(mount.where)
        mount.remove()


# covers: rmmod with mounts is refused and harms nothing.
@case()
def rmmod_is_refused_while_mounted(t):
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    for _ in range(3):
        check(module.references() > 0, "the module is not in use although mounted")
        try:
            module.rmmod()
        except OSError as error:
            check(error.errno in (errno.EBUSY, errno.EWOULDBLOCK), f"rmmod: {error}")
        else:
            raise AssertionError("rmmod with a mount succeeded")
    content = pattern.data(1, 0, 100000)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)


# covers: V1-102, V1-110: unmounting gives back every object of the device.
@case()
def nothing_is_left_after_unmount(t):
    before = module.resources()
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    content = pattern.data(2, 0, 3 << 20)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)
    mount.remove()
    xprt.wait_gone()
    module.wait_resources(before)
    wait.until(lambda: module.references() == 0, 20, "no reference to the module")
    module.unload()
    check(not list(xprt.DEBUGFS.parent.glob("xprtrdma_rs*")), "debugfs entries are left")


# covers: teardown order; a leak or a stale pointer shows after some rounds.
@case(seconds=150, full_seconds=1800, loaded=False)
def module_survives_many_lives(t):
    content = pattern.data(3, 0, 70000)
    before = module.resources()
    for life in range(ENV.pick(small=5, full=50, debug=3)):
        module.load()
        mount = mounts.Mount(t.version)
        t.defer(mount.remove)
        mount.make()
        here, there = mount.path(f"life-{life}")
        pathlib.Path(here).write_bytes(content)
        t.server.expect(there, content)
        equal(pathlib.Path(here).read_bytes(), content, "read back")
        os.unlink(here)
        mount.remove()
        module.unload()
    module.wait_resources(before)


# covers: peer.md 1.2: only one module can own the transport; the log says so.
@case(versions=None, clients=("ours",), loaded=False)
def insmod_names_the_conflict_with_the_intree_module(t):
    status, text = module.modprobe("rpcrdma")
    check(not status, f"modprobe rpcrdma: {text}")
    t.defer(lambda: module.loaded("intree") and module.rmmod("intree"))
    try:
        module.insmod()
    except OSError as error:
        check(error.errno in (errno.EEXIST, errno.EBUSY), f"insmod: {error}")
    else:
        raise AssertionError("insmod beside rpcrdma succeeded")
    check(not module.loaded("ours"), "the module stays although it failed")
    t.log.expect("xprtrdma_rs", "rpcrdma")
    # The remedy is part of the message.
    t.log.expect("xprtrdma_rs", "rmmod")
    mount = mounts.Mount("4.2")
    t.defer(mount.remove)
    mount.make()
    os.statvfs(mount.where)
    mount.remove()
    xprt.wait_gone()
    module.rmmod("intree")
    module.load()
    check("rdma" in registered(), "no transport after the remedy")


# covers: the other way round: the in-tree module cannot disturb ours.
@case(versions=None, clients=("ours",))
def intree_module_is_kept_out_while_loaded(t):
    mount = t.mount(version="4.2")
    status, text = module.modprobe("rpcrdma")
    check(status and not module.loaded("intree"), f"rpcrdma loads beside ours: {text}")
    here, there = t.directory(mount).path("file")
    content = pattern.data(4, 0, 50000)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)


def parameters():
    """The numeric parameters of our module as (name, its present text)."""
    top = pathlib.Path("/sys/module/xprtrdma_rs/parameters")
    found = []
    if top.is_dir():
        for path in sorted(top.iterdir()):
            text = path.read_text().strip()
            if text.isdigit():
                found.append((path.name, text))
    return found


# covers: a bad value is refused, with a line that names it, and nothing stays.
@case(versions=None, clients=("ours",))
def bad_parameters_are_refused(t):
    known = parameters()
    check(known, "the module has no numeric parameter")
    module.unload()
    for name, _ in known:
        for value in ("4294967295", "-1", "many", ""):
            t.log.mark()
            try:
                module.insmod(f"{name}={value}")
            except OSError as error:
                check(error.errno in (errno.EINVAL, errno.ERANGE),
                      f"insmod {name}={value}: {error}")
            else:
                raise AssertionError(f"insmod accepts {name}={value}")
            check(not module.loaded(), f"{name}={value}: the module stays")
            t.log.expect("xprtrdma_rs", name)
    module.load()
    equal(parameters(), known, "parameters after all refusals")


# covers: a parameter that may be changed at run time keeps its old value.
@case(versions=None, clients=("ours",))
def bad_values_at_run_time_change_nothing(t):
    known = parameters()
    for name, old in known:
        path = pathlib.Path("/sys/module/xprtrdma_rs/parameters") / name
        if not path.stat().st_mode & 0o200:
            continue
        for value in ("4294967295", "-1", "many"):
            try:
                path.write_text(value)
            except OSError as error:
                check(error.errno in (errno.EINVAL, errno.ERANGE),
                      f"{name}={value}: {error}")
            else:
                raise AssertionError(f"{name} accepts {value}")
            equal(path.read_text().strip(), old, name)
