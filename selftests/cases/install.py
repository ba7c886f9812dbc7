# SPDX-License-Identifier: GPL-2.0
"""Deployment: what an administrator installs makes mount -o rdma use this module."""

import os
import pathlib
import subprocess
import tempfile

from lib import module, pattern
from lib.case import ENV, case, check
from lib.env import REPO

RELEASE = os.uname().release
PARENT = pathlib.Path("/usr/lib/modules")
MODULES = PARENT / RELEASE
SECONDS = 120


def run(*argv):
    """Run a command; its complaint is the reason of the failure."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=ENV.patience(SECONDS), check=False)
    check(done.returncode == 0, f"{' '.join(map(str, argv))}: {done.stdout.strip()}")
    return done.stdout


def writable_modules(t):
    """A directory of modules that can be written to. What is loaded already need not be there."""
    intree = next(MODULES.rglob("rpcrdma.ko*"))
    place = intree.relative_to(MODULES)
    content = intree.read_bytes()
    run("mount", "-t", "tmpfs", "tmpfs", PARENT)
    t.defer(run, "umount", PARENT)
    (MODULES / place).parent.mkdir(parents=True)
    (MODULES / place).write_bytes(content)
    run("depmod", RELEASE)


def mount_and_tell(t):
    """Mount as a user does, with no transport loaded; the client that the kernel got for it."""
    mount = t.mount(version="4.2")
    loaded = [client for client in ("ours", "intree") if module.loaded(client)]
    here, there = mount.path("installed")
    content = pattern.data(6, 0, 20000)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)
    os.unlink(here)
    mount.remove()
    for client in loaded:
        module.unload(client)
    return loaded


# covers: peer.md 1.2: without the aliases mount -o rdma loads the in-tree module; the Debian
# packages bring them and take them away again.
@case(versions=None, clients=("ours",), loaded=False, seconds=150)
def packages_make_mount_load_this_module(t):
    writable_modules(t)
    found = mount_and_tell(t)
    check(found == ["intree"], f"before the packages are there a mount loads {found}")
    with tempfile.TemporaryDirectory() as where:
        run(REPO / "tools/packaging/build", ENV.module_file, "--out", where)
        # DKMS would build what another test builds.
        packages = sorted(path for path in pathlib.Path(where).glob("*.deb")
                          if "-dkms_" not in path.name)
        names = [path.name.split("_")[0] for path in packages]
        # Again at the end, in case of a failure; dpkg does not mind.
        t.defer(run, "dpkg", "--purge", *names)
        run("dpkg", "--install", *packages)
    found = mount_and_tell(t)
    check(found == ["ours"], f"with the packages a mount loads {found}")
    check("--collect" in run("xprtrdma-status", "--help"), "no xprtrdma-status")
    run("dpkg", "--purge", *names)
    check(not (MODULES / "updates/xprtrdma_rs.ko").exists(), "the module stays")
    found = mount_and_tell(t)
    check(found == ["intree"], f"after the packages are gone a mount loads {found}")
