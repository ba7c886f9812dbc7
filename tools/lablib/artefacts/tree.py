# SPDX-License-Identifier: GPL-2.0
"""A kernel tree that the user has built: the options that it must have, and its modules."""

import dataclasses
import pathlib
import re

from ..base import arch, cache, chroot, proc
from ..base.paths import REPO
from ..base.ui import LabError

# Options that the machines need. The options that the tests need are in selftests/config.
MACHINE = ("64BIT", "BLK_DEV_INITRD", "DEVTMPFS", "MODULES", "NET_9P_VIRTIO", "9P_FS", "OVERLAY_FS",
           "RUST", "TMPFS", "VIRTIO_CONSOLE", "VIRTIO_NET", "VIRTIO_PCI")
CONFIG = REPO / "selftests/config"
# Our client does not need the options that follow this line of selftests/config.
CLIENT_ENDS = "# in-tree client"
SECONDS = 600
INSTALL = """
make -s -C "$1" INSTALL_MOD_PATH="$2/root" INSTALL_MOD_STRIP=1 modules_install
mv "$2/root/lib/modules" "$2/modules"
rm -rf "$2/root" "$2"/modules/*/build "$2"/modules/*/source
"""


@dataclasses.dataclass(frozen=True)
class Tree:
    """A kernel source tree that has all required options."""

    directory: pathlib.Path
    release: str
    arch: arch.Arch
    config: dict

    @property
    def image(self):
        return self.directory / self.arch.boot

    def has(self, name):
        """Returns whether an option is on, built in or as a module."""
        return self.config.get(name) in ("y", "m")


def is_named(spec):
    """Returns whether `spec` is the path of a directory. If not, `spec` begins with a kernel
    version such as 7.3."""
    return bool(spec) and ("/" in spec or not re.match(r"\d", spec))


def look(spec):
    """Returns the tree in a directory. If the tree lacks something, raises an error that describes
    what is missing."""
    directory = pathlib.Path(spec).resolve()
    if not directory.is_dir():
        raise LabError(f"--kernel {spec}: no such directory, and no series or release either")
    release = directory / "include/config/kernel.release"
    built = directory / "include/config/auto.conf"
    if not (release.exists() and built.exists()):
        raise LabError(f"{directory} is no built kernel tree (looked for {release.name} and "
                       f"{built.name} in include/config): run 'make' there first")
    config = options(built.read_text())
    target = arch.ARM64 if config.get("ARM64") == "y" else arch.AMD64
    tree = Tree(directory, release.read_text().strip(), target, config)
    lacking = [name for name in (*MACHINE, *client_options()) if not tree.has(name)]
    if lacking:
        raise LabError(f"the kernel in {directory} lacks what the machines and the tests need: "
                       + ", ".join(f"CONFIG_{name}" for name in lacking))
    for file, remedy in ((target.boot, f"make {target.boot.rpartition('/')[2]}"),
                         ("modules.order", "make modules"),
                         ("Module.symvers", "make modules"),
                         ("rust/libkernel.rmeta", "make modules_prepare")):
        if not (directory / file).exists():
            raise LabError(f"{directory} has no {file}: run '{remedy}' there")
    return tree


def options(text):
    """Returns the options that a configuration sets, as a dictionary. The keys are the names of the
    options without the prefix CONFIG_, and the values are the values of the options."""
    return dict(re.findall(r"^CONFIG_(\w+)=(.*)$", text, re.MULTILINE))


def client_options():
    """Returns the options that a client must have, according to selftests/config."""
    return sorted(options(CONFIG.read_text().partition(CLIENT_ENDS)[0]))


def modules(root, tree):
    """Returns the directory of the tree's modules. If the tree was built again, installs its
    modules into the cache again."""
    def make(target):
        target.mkdir(parents=True)
        proc.run_logged(f"installing the modules of {tree.directory}",
                        chroot.command(root, ["sh", "-euc", INSTALL, "sh", tree.directory, target],
                                       [cache.directory(), tree.directory]),
                        target.with_suffix(".log"), SECONDS)

    times = [(tree.directory / name).stat().st_mtime_ns
             for name in (tree.arch.boot, "modules.order", "Module.symvers")]
    name = f"{tree.release}-{cache.key(tree.directory, *times)}"
    return cache.entry("tree", name, make) / "modules"
