# SPDX-License-Identifier: GPL-2.0
"""Chooses the accelerator for a machine: KVM if KVM can boot the kernel, or else emulation."""

import os
import pathlib
import subprocess
import tempfile

from ..base import cache, chroot, proc
from ..base.ui import LabError, say
from . import initramfs

KVM = ["-accel", "kvm", "-cpu", "host"]
# Each executed instruction takes 8 ns of the machine's time. While the machine is idle, its time
# advances as on the host. So a machine whose instructions are counted gets the same number of timer
# interrupts on hosts of any speed. Fast string instructions are switched off, because QEMU would
# execute them byte by byte. Without these instructions the kernel copies in loops, and the
# instructions of the loops are counted.
COUNTED_CPU = ["-cpu", "max,la57=off,erms=off,fsrm=off"]
COUNTED = ["-accel", "tcg,thread=single,tb-size=512", *COUNTED_CPU,
           "-icount", "shift=3,sleep=on,align=off"]
# Several processors run in parallel, and time advances as on the host.
COUNTED_BESIDE = ["-accel", "tcg,thread=multi,tb-size=512", *COUNTED_CPU]
PROBE_SECONDS = 10


def choose(root, kernel):
    """Returns QEMU's options for a machine with this kernel.

    Tests whether KVM can boot the kernel, but only once for each kernel and each boot of this host.
    `root` is the root file system that contains QEMU.
    """
    emulated = list(kernel.arch.emulated)
    if not (kernel.arch.is_host and os.access("/dev/kvm", os.R_OK | os.W_OK)):
        return emulated
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    memory = cache.directory() / "accel" / f"{boot}-{kernel.release}"
    if not memory.exists():
        works = probe(root, kernel)
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text("kvm" if works else "tcg")
        say(f"/dev/kvm {'works' if works else 'exists but boots nothing: emulating'}")
    return KVM if memory.read_text() == "kvm" else emulated


def probe(root, kernel):
    """Boots the kernel with KVM. Returns whether its first program starts before a time limit."""
    with tempfile.TemporaryDirectory(prefix="lab-kvm-") as directory:
        console = pathlib.Path(directory) / "console"
        argv = [kernel.arch.qemu, "-nodefaults", "-no-user-config", "-display", "none",
                "-no-reboot", *kernel.arch.board, *KVM, "-m", "512",
                "-kernel", "/lab/kernel/vmlinuz", "-initrd", "/lab/initramfs/image",
                "-append", f"{kernel.arch.words} panic=-1", "-serial", "file:/lab/run/console"]
        binds = [(kernel.image.parent, "/lab/kernel"), (directory, "/lab/run"),
                 (initramfs.path(kernel).parent, "/lab/initramfs")]
        child = proc.spawn(["timeout", "-k", "2", PROBE_SECONDS,
                            *chroot.command(root, argv, binds)],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            child.wait(PROBE_SECONDS + 10)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"KVM probe: {error}") from None
        finally:
            proc.stop(child)
        # The test machine has no shared directories, so the init script prints an error. The error
        # shows that the kernel has started user space.
        return console.exists() and b"lab: no share root" in console.read_bytes()
