# SPDX-License-Identifier: GPL-2.0
"""Builds the C parts of the lab (tools/native) as shared libraries, with the compiler of the root
file system."""


from ..base import cache, chroot, proc
from ..base.paths import REPO

SOURCE = REPO / "tools/native"
FLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
SECONDS = 120


def build(root, name, of):
    """Builds `name`.c for the architecture `of` if a source has changed. Returns the file."""
    compiler = "gcc" if of.is_host else f"{of.cross}gcc"
    files = sorted(SOURCE.glob("*.[ch]"))

    def make(target):
        target.mkdir(parents=True)
        argv = [compiler, *FLAGS, "-o", target / f"{name}.so", SOURCE / f"{name}.c"]
        proc.run_logged(f"building {name}.so",
                        chroot.command(root, argv, [cache.directory(), SOURCE]),
                        target.with_suffix(".log"), SECONDS)

    key = cache.key(root.name, compiler, *FLAGS, *(path.read_text() for path in files))
    return cache.entry("native", f"{name}-{key}", make) / f"{name}.so"
