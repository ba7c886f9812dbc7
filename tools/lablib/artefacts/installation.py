# SPDX-License-Identifier: GPL-2.0
"""Makes a Debian installation in a directory, and runs an administrator's commands in it.

apt installs Debian from the package archive that this machine uses. A virtual machine that boots
the installation is the client of the lab: it has a static address, Soft-RoCE on its network device,
a mount in /etc/fstab, and the lab's agent as a service.
"""

import hashlib
import os
import pathlib
import shutil
import stat
import subprocess

from ..base import cache, chroot, proc
from . import archive, root

PACKAGES = ("ca-certificates", "dbus", "grub-efi-amd64-signed", "initramfs-tools", "iproute2",
            "kmod", "nfs-common", "python3", "rdma-core", "shim-signed", "systemd-sysv", "udev",
            "zstd")
# The boot programs that the firmware starts, and their paths on the firmware's disk.
LOADERS = {"usr/lib/shim/shimx64.efi.signed": "EFI/BOOT/BOOTX64.EFI",
           "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed": "EFI/BOOT/grubx64.efi"}
# Increase this number when a change of the recipe alters the contents of an installation.
RECIPE = 1
SECONDS = 1800
IMAGE_BYTES = 8 << 30
# The path of our packages inside the installation.
DEBS = "/mnt"
FILES = {
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n"
                 "repo /repo 9p trans=virtio,version=9p2000.L,ro 0 0\n"
                 "results /results 9p trans=virtio,version=9p2000.L 0 0\n"
                 "192.0.2.1:/srv/mem /mnt/nfs nfs rdma,vers=4.2,_netdev 0 0\n",
    "etc/hostname": "client\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 client\n",
    "etc/systemd/network/eth0.network":
        "[Match]\nName=eth0\n[Link]\nMTUBytes=9000\n[Network]\n"
        "Address=192.0.2.2/24\nAddress=2001:db8::2/64\n",
    "etc/systemd/system/soft-roce.service":
        "[Unit]\nRequires=sys-subsystem-net-devices-eth0.device\n"
        "After=sys-subsystem-net-devices-eth0.device\n"
        "Wants=remote-fs-pre.target\nBefore=remote-fs-pre.target\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=modprobe rdma_rxe\n"
        "ExecStart=rdma link add rxe0 type rxe netdev eth0\n"
        "[Install]\nWantedBy=multi-user.target\n",
    "etc/systemd/system/lab.service":
        "[Unit]\nRequiresMountsFor=/repo\n"
        "[Service]\nExecStart=python3 -B /repo/tools/lablib/guest/agent.py\n"
        "KillSignal=SIGKILL\n[Install]\nWantedBy=multi-user.target\n",
}
ENABLE = 'chroot "$1" systemctl enable systemd-networkd.service soft-roce.service lab.service'


def plain():
    """Returns the directory of an installation without a kernel. Creates the directory if it is
    missing."""
    root.need_root()
    name = f"{archive.RELEASE}-{cache.key(RECIPE, PACKAGES, FILES)}"
    return cache.entry("installation", name, bootstrap)


def bootstrap(target):
    """Installs everything except a kernel."""
    overlay = target.with_suffix(".files")
    for name, text in FILES.items():
        path = overlay / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("repo", "results", "mnt/nfs"):
        (overlay / name).mkdir(parents=True, exist_ok=True)
    mirror = archive.mirror()
    suites = (archive.RELEASE, archive.KERNEL_SUITE)
    root.unpack(target, PACKAGES,
                ["--variant=minbase", f"--essential-hook={root.NO_SERVICES}",
                 f"--customize-hook=copy-in {' '.join(str(p) for p in overlay.iterdir())} /",
                 f"--customize-hook={ENABLE}"],
                [f"deb {mirror} {suite} main" for suite in suites] if mirror else [])
    cache.remove(overlay)


class Installation:
    """A copy of the installation, in which commands run."""

    def __init__(self, tree, debs, log):
        """Copies the installation to the directory `tree`. The directory `debs` contains the
        packages that can be installed in the copy."""
        self.tree, self.debs, self.log = tree, debs, log
        proc.run_logged("copying the installation", ["cp", "-a", plain(), self.tree], self.log,
                        SECONDS)

    def command(self, argv):
        """Returns the argument list that runs a command in the copy."""
        return chroot.command(self.tree, argv, [(self.debs, DEBS)])

    def run(self, text, *argv):
        """Runs a command that must succeed."""
        proc.run_logged(text, self.command(argv), self.log, SECONDS)

    def apt(self, text, *argv):
        """Runs apt-get, which must succeed."""
        self.run(text, "apt-get", "-y", "-q", "-o", "Dpkg::Use-Pty=0", *argv)

    def ask(self, *argv):
        """Runs a command. Returns the exit status and the output."""
        done = subprocess.run(self.command(argv), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
        return done.returncode, done.stdout

    def state(self):
        """Returns a dictionary from the path of each file to its type, permissions, owner, group
        and content."""
        found = {}
        for top, directories, names in os.walk(self.tree):
            for name in directories + names:
                path = pathlib.Path(top, name)
                meta = path.lstat()
                kind = stat.S_IFMT(meta.st_mode)
                content = os.readlink(path) if kind == stat.S_IFLNK else \
                    hashlib.sha256(path.read_bytes()).hexdigest() if kind == stat.S_IFREG else ""
                found[str(path.relative_to(self.tree))] = (
                    oct(meta.st_mode), meta.st_uid, meta.st_gid, content)
        return found

    def image(self, base, target):
        """Writes a disk image of the copy, and the kernels with their initramfs images, to the
        directory `target`."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        with open(target / "disk", "wb") as disk:
            disk.truncate(IMAGE_BYTES)
        proc.run_logged("writing its disk", chroot.command(
            base, ["mkfs.ext4", "-q", "-F", "-d", "/lab/tree", "/lab/image/disk"],
            [(self.tree, "/lab/tree"), (target, "/lab/image")]), self.log, SECONDS)
        for file in (self.tree / "boot").iterdir():
            if file.name.startswith(("vmlinuz-", "initrd.img-")):
                shutil.copyfile(file, target / file.name)

    def boot_files(self, target, release):
        """Copies into the directory `target` the files that a firmware and its boot loaders need.
        """
        found = LOADERS | {f"boot/{name}-{release}": f"{name}-{release}"
                           for name in ("vmlinuz", "initrd.img")}
        for source, name in found.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.tree / source, target / name)
