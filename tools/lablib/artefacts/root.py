# SPDX-License-Identifier: GPL-2.0
"""The root file system: toolchain, QEMU and user land of both machines."""

import os
import pathlib
import shutil

from ..base import cache, proc
from ..base.ui import LabError
from . import archive

PACKAGES = pathlib.Path(__file__).with_name("packages.txt")
# Raise when the recipe below changes what a finished root contains.
RECIPE = 1
BUILD_SECONDS = 1200

# Services must not start while packages are configured in a chroot.
NO_SERVICES = ('printf "#!/bin/sh\\nexit 101\\n" > "$1/usr/sbin/policy-rc.d"; '
               'chmod 755 "$1/usr/sbin/policy-rc.d"')


def packages():
    """The package names of packages.txt."""
    lines = PACKAGES.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def path():
    """The directory of the root, made first when missing."""
    need_root()
    name = f"{archive.RELEASE}-{cache.key(RECIPE, *packages())}"
    return cache.entry("root", name, bootstrap)


def need_root():
    """Everything below mounts, chroots or boots: say early that root is needed."""
    if os.geteuid() != 0:
        raise LabError("the lab makes chroots and mount namespaces: run it as root")


def bootstrap(target):
    """Make the root with mmdebstrap."""
    if not shutil.which("mmdebstrap"):
        archive.install_on_host("mmdebstrap")
    target.parent.mkdir(parents=True, exist_ok=True)
    # dpkg's fsync calls cost minutes and protect nothing here: a root that
    # did not get finished is thrown away.
    argv = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory",
            "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
            f"--include={','.join(packages())}", f"--essential-hook={NO_SERVICES}"]
    argv += [f"--aptopt={line}" for line in archive.apt_options()]
    argv += [archive.RELEASE, target]
    mirror = archive.mirror()
    if mirror:
        argv.append(f"deb {mirror} {archive.RELEASE} main")
    log = target.with_suffix(".log")
    log.unlink(missing_ok=True)
    try:
        proc.run_logged(f"making the root file system ({len(packages())} packages and "
                        f"what they need; log: {log})", argv, log, BUILD_SECONDS)
    except LabError:
        cache.remove(target)
        raise
    adjust(target)


def adjust(target):
    """What NFS servers and the machines' mounts expect and packages leave out."""
    for directory in ("var/lib/nfs/nfsdcld",
                      "var/lib/nfs/rpc_pipefs", "var/lib/nfs/sm", "var/lib/nfs/sm.bak",
                      "var/lib/nfs/v4recovery"):
        (target / directory).mkdir(parents=True, exist_ok=True)
    (target / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
