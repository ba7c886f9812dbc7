# SPDX-License-Identifier: GPL-2.0
"""The root file system: toolchain, QEMU, and the programs of both machines."""

import os
import pathlib
import shutil

from ..base import arch, cache, chroot, proc
from ..base.ui import LabError
from . import archive

PACKAGES = pathlib.Path(__file__).with_name("packages.txt")
# Increase RECIPE if a change of this file changes the contents of the root file system.
RECIPE = 1
GUEST_RECIPE = 1
BUILD_SECONDS = 1200
# The packages that a machine needs in addition to its part of packages.txt.
GUEST_TOOLS = ("busybox-static", "kmod")
ALTERNATIVES = "/etc/alternatives/"
PLACES = ("media", "mnt", "opt", "srv")

# Services must not start while packages are configured in a chroot.
NO_SERVICES = ('printf "#!/bin/sh\\nexit 101\\n" > "$1/usr/sbin/policy-rc.d"; '
               'chmod 755 "$1/usr/sbin/policy-rc.d"')


def packages(parts=""):
    """Returns the packages in those parts of packages.txt whose heading contains `parts`."""
    wanted, found = False, []
    for line in PACKAGES.read_text().splitlines():
        if line.startswith("#"):
            wanted = parts in line
        elif line and wanted:
            found.append(line)
    return found


def path(target=None):
    """Returns the directory of the root file system. Creates the directory if it is missing.

    If `target` is not this machine's architecture, the root also contains the tools to build for it
    and to emulate it.
    """
    need_root()
    names = [*packages(), *more_packages(target or arch.of_host())]
    name = f"{archive.RELEASE}-{cache.key(RECIPE, *names)}"
    return cache.entry("root", name, lambda where: bootstrap(where, names))


def more_packages(target):
    """Returns the packages that `target` needs in addition to those in packages.txt."""
    emulator = [] if target.emulator in packages() else [target.emulator]
    return emulator + ([] if target.is_host
                       else [target.compiler, f"libc6-dev-{target.debian}-cross"])


def guest(target):
    """Returns the directory of the root for machines of this architecture."""
    if target.is_host:
        return path()
    need_root()
    base = path()
    names = [*essential(base), *GUEST_TOOLS, *packages("Inside the machines")]
    name = f"{archive.RELEASE}-{target.debian}-{cache.key(GUEST_RECIPE, *names)}"
    return cache.entry("root", name, lambda where: extract(where, base, target, names))


def essential(base):
    """Returns the packages that every Debian system has. mmdebstrap omits them when it only unpacks
    packages."""
    listed = proc.output(chroot.command(
        base, ["dpkg-query", "-W", "-f", "${Package} ${Essential}\n"]))
    return [line.split()[0] for line in listed.splitlines() if line.endswith(" yes")]


def need_root():
    """Raises an error unless the lab runs as the user root. The check is made first, because all
    later steps need root's rights for mount, chroot or booting machines."""
    if os.geteuid() != 0:
        raise LabError("the lab makes chroots and mount namespaces: run it as root")


def bootstrap(target, names):
    """Creates the root for this machine's architecture."""
    unpack(target, names, ["--variant=minbase", f"--essential-hook={NO_SERVICES}"])
    adjust(target)


def extract(target, base, foreign, names):
    """Makes a root for a foreign architecture.

    Packages are unpacked and not configured, because their programs do not run here. The files that
    their scripts would make are copied from the root for this machine.
    """
    unpack(target, names, ["--variant=extract", f"--architectures={foreign.debian}"])
    for directory in PLACES:
        (target / directory).mkdir(exist_ok=True)
    proc.output(["cp", "-a", "--no-clobber", f"{base}/etc/.", target / "etc"])
    (target / "etc/ld.so.cache").unlink()
    for directory in ("usr/bin", "usr/sbin"):
        for link in (base / directory).iterdir():
            if link.is_symlink() and os.readlink(link).startswith(ALTERNATIVES):
                (target / directory / link.name).symlink_to(os.readlink(link))
    adjust(target)


def unpack(target, names, options, sources=None):
    """Runs mmdebstrap. `sources` contains lines for sources.list. Without `sources`, the only
    source is the suite RELEASE of the archive."""
    if not shutil.which("mmdebstrap"):
        archive.install_on_host("mmdebstrap")
    target.parent.mkdir(parents=True, exist_ok=True)
    # dpkg must not call fsync, because the calls take minutes and are useless here: an unfinished
    # root file system is discarded.
    argv = ["mmdebstrap", "--mode=root", "--format=directory",
            "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
            f"--include={','.join(names)}", *options]
    argv += [f"--aptopt={line}" for line in archive.apt_options()]
    argv += [archive.RELEASE, target]
    mirror = archive.mirror()
    argv += sources or ([f"deb {mirror} {archive.RELEASE} main"] if mirror else [])
    log = target.with_suffix(".log")
    log.unlink(missing_ok=True)
    try:
        proc.run_logged(f"making the root file system ({len(names)} packages and "
                        f"what they need; log: {log})", argv, log, BUILD_SECONDS)
    except LabError:
        cache.remove(target)
        raise


def adjust(target):
    """Makes files that NFS servers and the machines' mounts need, and that no package contains."""
    for directory in ("var/lib/nfs/nfsdcld",
                      "var/lib/nfs/rpc_pipefs", "var/lib/nfs/sm", "var/lib/nfs/sm.bak",
                      "var/lib/nfs/v4recovery"):
        (target / directory).mkdir(parents=True, exist_ok=True)
    (target / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
