# SPDX-License-Identifier: GPL-2.0
"""A client machine that boots an installed Debian from its own disk."""

import functools

from .pair import Pair
from .qemu import Machine

# Time limit for booting. The limit is long, because systemd's units take longer on a busy host.
WORDS = ("root=/dev/vda", "rw", "systemd.log_color=0", "systemd.default_device_timeout_sec=600",
         "systemd.default_timeout_start_sec=600")
# The path under which QEMU sees the directory with the machine's disk and the other files of
# `image`.
BESIDE = "/lab/image"
# The command that waits until systemd has started all units, or has stopped trying to start some
# units.
SETTLED = "timeout 280 systemctl is-system-running --wait || true"


class Installed(Machine):
    """A machine whose kernel, initramfs and file system come from the installation on the disk.

    `image` is the directory with the disk and its kernels; `release` is the kernel to boot.
    """

    SHARES = (("repo", "on"), ("results", "off"))
    BOOT_SECONDS = 900

    def __init__(self, image, release, *args, **options):
        super().__init__(*args, **options | {"words": WORDS})
        self.image, self.release = image, release

    def files(self):
        return [(self.image, BESIDE)]

    def boot(self, words):
        return ["-kernel", f"{BESIDE}/vmlinuz-{self.release}",
                "-initrd", f"{BESIDE}/initrd.img-{self.release}", "-append", words,
                *self.drive(f"{BESIDE}/disk")]

    def setup(self, _arguments):
        return ["sh", "-c", SETTLED]


class Secure(Installed):
    """A machine that boots an installed Debian with firmware and Secure Boot: the firmware verifies
    shim, and shim verifies GRUB and the kernel.

    shim, GRUB and the kernel are in a directory of `image`, which the firmware sees as a file
    system. The file with the firmware's variables is in `image`, too.
    """

    FIRMWARE = "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
    ESP = "esp"
    MENU = "EFI/debian/grub.cfg"
    VARIABLES = "variables.fd"

    def board(self):
        # The firmware uses system management mode to protect its variables.
        return "-M", "q35,smm=on"

    def boot(self, words):
        (self.image / self.ESP / self.MENU).write_text(
            f"linux /vmlinuz-{self.release} {words}\n"
            f"initrd /initrd.img-{self.release}\nboot\n")
        return [*self.drive(f"{BESIDE}/disk"),
                *self.drive(f"fat:{BESIDE}/{self.ESP}", "readonly=on"),
                "-global", "driver=cfi.pflash01,property=secure,value=on",
                "-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={self.FIRMWARE}",
                "-drive", f"if=pflash,unit=1,format=raw,file={BESIDE}/{self.VARIABLES}"]


def pair(root, stock, image, release, kind=Installed):
    """Returns the lab's server with the stock kernel, and a client that boots an installation."""
    return Pair(root, stock, stock, client=functools.partial(kind, image, release))
