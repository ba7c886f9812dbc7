# SPDX-License-Identifier: GPL-2.0
"""The architectures of machines (`Arch`), with the names that other programs use for them."""

import dataclasses
import platform

from .ui import LabError


@dataclasses.dataclass(frozen=True)
class Arch:
    """One architecture."""

    debian: str      # name of the architecture in Debian; also the flavour of its ordinary kernel
    machine: str     # output of uname -m
    kernel: str      # value of ARCH= for the kernel's makefiles
    boot: str        # path of the kernel image in a kernel tree
    cross: str       # prefix of the cross compiler
    compiler: str    # package of the cross compiler
    emulator: str    # package of QEMU for this architecture
    board: tuple     # options for QEMU's machine
    emulated: tuple  # options for QEMU's accelerator and processor without KVM
    words: str       # words for the kernel's command line
    rt: str          # flavour of Debian's kernel with PREEMPT_RT

    @property
    def qemu(self):
        """Returns the name of QEMU's program."""
        return f"qemu-system-{self.machine}"

    @property
    def is_host(self):
        """Returns whether programs for this architecture run on this machine."""
        return platform.machine() == self.machine

    def make_words(self):
        """Returns the arguments with which the kernel's makefiles build for this architecture on
        this machine.
        """
        if self.is_host:
            return []
        return [f"ARCH={self.kernel}", f"CROSS_COMPILE={self.cross}"]


TCG = ("-accel", "tcg,thread=multi,tb-size=512")
AMD64 = Arch(debian="amd64", machine="x86_64", kernel="x86", boot="arch/x86/boot/bzImage",
             cross="x86_64-linux-gnu-", compiler="gcc-x86-64-linux-gnu",
             emulator="qemu-system-x86", board=("-M", "pc"),
             emulated=(*TCG, "-cpu", "max,la57=off"),
             words="console=ttyS0 no_timer_check tsc=reliable", rt="rt-amd64")
# The emulated processor supports pages of every size. It has no pointer authentication, which is
# slow to emulate.
ARM64 = Arch(debian="arm64", machine="aarch64", kernel="arm64", boot="arch/arm64/boot/Image",
             cross="aarch64-linux-gnu-", compiler="gcc-aarch64-linux-gnu",
             emulator="qemu-system-arm", board=("-M", "virt,gic-version=3"),
             emulated=(*TCG, "-cpu", "neoverse-n1"),
             words="console=ttyAMA0", rt="rt-arm64")
ALL = (AMD64, ARM64)


def of_host():
    """Returns the architecture of this machine's programs."""
    for arch in ALL:
        if arch.is_host:
            return arch
    raise LabError(f"the lab knows {' and '.join(a.machine for a in ALL)}, "
                   f"not {platform.machine()}")


def of_flavour(flavour):
    """Returns the architecture of a flavour of Debian's kernels, such as arm64-16k, or None."""
    return next((arch for arch in ALL if arch.debian in flavour.split("-")), None)
