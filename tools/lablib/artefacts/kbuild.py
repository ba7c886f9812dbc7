# SPDX-License-Identifier: GPL-2.0
"""Copies a part of a kernel tree. An emulated machine uses the copy to build one of the kernel's
modules.

The tree contains the files of a headers package. Headers that the module does not use are left out,
because copying files to the emulated machine is slow. The module is also built on this machine. For
this build the tree is mounted at the path that it has in the emulated machine. Both builds must
produce exactly the same bytes.
"""

import os

from ..base import cache, chroot, proc

# A small module of the kernel: a file system with three source files. It is small because the
# compiler is slow in an emulated machine.
SOURCE, MODULE = "fs/bfs", "bfs.ko"
LEFT_OUT = ("include/config", "scripts/atomic", "scripts/coccinelle", "scripts/dtc",
            "scripts/gdb", "scripts/kconfig", "scripts/sbom")
PARTS = ("Makefile", ".config", "Module.symvers", "include", "scripts", "arch/x86/include",
         "tools/objtool/objtool")
MORE = "include/config/auto.conf include/config/kernel.release arch/x86/Makefile*"
NAME = os.path.basename(SOURCE)
# The command that builds the module. Its working directory contains the kernel tree and the
# module's source.
BUILD = f"make -s -C tree M=\"$PWD/{NAME}\" modules"
RECIPE = f"""\
set -eux
mkdir -p "$3"
mount --bind "$2" "$3"
cd "$3"
tar -c -C "$1" {' '.join(f'--exclude={part}' for part in LEFT_OUT)} {' '.join(PARTS)} > parts
mkdir tree
tar -x -C tree -f parts
(cd "$1" && tar -c {MORE}) | tar -x -C tree
cp -r "$1/{SOURCE}" .
{BUILD}
grep -hoE '(include|arch/x86/include)/[^ )]*[.]h' {NAME}/.*.cmd | sort -u > read
find tree/include tree/arch/x86/include -name '*.h' | sed 's|^tree/||' | sort > there
comm -13 read there | grep -v generated/ | sed 's|^|tree/|' | xargs rm
rm -r {NAME}
cp -r "$1/{SOURCE}" .
tar -c --sort=name --owner=0 --group=0 -f tree.tar tree {NAME}
find tree {NAME} -type f | sort | xargs sha256sum > tree.sums
{BUILD}
mv {NAME}/{MODULE} .
rm -r tree {NAME} parts read there
"""


def files(base, kernel, place):
    """Builds the module in a kernel tree that is mounted at the path `place`. Returns the paths of
    three files: an archive of the kernel tree and the module's source, the checksums of the
    archived files, and the built module."""
    def make(target):
        target.mkdir(parents=True)
        log = target.with_suffix(".log")
        log.unlink(missing_ok=True)
        argv = ["sh", "-c", RECIPE, "sh", kernel.tree, target, place]
        proc.run_logged(f"a kernel tree to carry away (log: {log})",
                        chroot.command(base, argv, [cache.directory()]), log, 600)

    path = cache.entry("kbuild", cache.key(RECIPE, kernel.release, kernel.tree, place), make)
    return [path / "tree.tar", path / "tree.sums", path / MODULE]
