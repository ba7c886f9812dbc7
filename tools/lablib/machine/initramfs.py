# SPDX-License-Identifier: GPL-2.0
"""The initramfs of a lab machine: busybox, the init script, a few modules."""

import pathlib

from ..artefacts import root
from ..base import cache
from ..base.paths import REPO

INIT = REPO / "tools/lablib/guest/init"
# The modules that are needed to reach the root file system over virtio-9p. All other modules are
# loaded from the root file system.
MODULES = ("virtio_pci", "virtio_net", "virtio_blk", "virtio_console",
           "9p", "9pnet_virtio", "overlay")


def path(kernel):
    """Returns the image for this kernel. Creates the image if it is missing."""
    busybox = root.guest(kernel.arch) / "usr/bin/busybox"
    name = f"{kernel.release}-" + cache.key(INIT.read_text(), busybox, kernel.modules, MODULES)
    return cache.entry("initramfs", name, lambda t: write(t, busybox, kernel)) / "image"


def load_order(directory):
    """Returns the module files that insmod must load, in an order in which dependencies come first.
    Built-in modules have no file."""
    depends, by_name = {}, {}
    for line in (directory / "modules.dep").read_text().splitlines():
        file, needs = line.split(":", 1)
        depends[file] = needs.split()
        by_name[pathlib.Path(file).name.removesuffix(".ko")] = file
    order = []
    for name in MODULES:
        file = by_name.get(name)
        if file:
            # In modules.dep the deepest dependency comes last. It must be loaded first, so the list
            # is reversed.
            order += [f for f in [*reversed(depends[file]), file] if f not in order]
    return order


def write(target, busybox, kernel):
    """Writes the archive (cpio "newc", which the kernel can unpack)."""
    directory = kernel.modules / kernel.release
    order = load_order(directory)
    target.mkdir(parents=True)
    with open(target / "image", "wb") as out:
        archive = Cpio(out)
        for name in ("bin", "dev", "proc", "sys", "modules"):
            archive.add(name, 0o040755)
        archive.add("init", 0o100755, INIT.read_bytes())
        archive.add("bin/busybox", 0o100755, busybox.read_bytes())
        names = [pathlib.Path(f).name for f in order]
        archive.add("modules/order", 0o100644, "".join(f"{n}\n" for n in names).encode())
        for file, name in zip(order, names, strict=True):
            archive.add(f"modules/{name}", 0o100644, (directory / file).read_bytes())
        archive.add("TRAILER!!!", 0)


class Cpio:
    """Writes the header, the name and the content of a directory or file in the format of the
    archive."""

    def __init__(self, out):
        self.out, self.inode = out, 0

    def add(self, name, mode, data=b""):
        self.inode += 1
        label = name.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(label), 0)
        self.write(b"070701" + b"".join(b"%08X" % f for f in fields) + label)
        self.write(data)

    def write(self, data):
        self.out.write(data + b"\0" * (-len(data) % 4))
