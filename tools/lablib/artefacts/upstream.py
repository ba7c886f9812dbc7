# SPDX-License-Identifier: GPL-2.0
"""Applies the kernel patches of Documentation/upstream. Builds rxe with the patches that change
rxe, and the debug kernel with the patches that change modules."""

import dataclasses
import pathlib
import shutil
import subprocess
import tempfile

from ..base import cache, chroot, proc
from ..base.paths import REPO
from ..base.ui import LabError, say
from . import siw

PATCHES = REPO / "Documentation/upstream"
# The kernel series to which the patches apply.
OF = "7.3"
# The patches name commits of the kernel. checkpatch.pl finds commits only in the kernel's history,
# which the lab does not have. So checkpatch.pl must not report unknown commits.
CHECKPATCH = ("--strict", "--quiet", "--no-summary", "--terse", "--ignore", "UNKNOWN_COMMIT_ID")
RXE = "drivers/infiniband/sw/rxe"
# Increase this number when the recipes below change what the results contain.
RECIPE = 1
# Directories of modules that are built again for the patched debug kernel. The patches change these
# modules, or change a structure whose members these modules use. All other modules stay as they
# are, because they only pass pointers to such a structure.
PARTS = ("drivers/infiniband/core", RXE, siw.SOURCE, "net/sunrpc", "fs/nfs")
# Patches that change only files in these directories are built into the modules of the patched
# debug kernel.
BUILT = (*PARTS, "include/")
# These directories contain the source of the kernel crate, which is part of the kernel image. If a
# patch changes only files in these directories, the lab does not build the image again. It builds
# only the crate's metadata, which contain the generic and inlined functions that our module uses.
# If the compiler writes no object, the metadata lack some of these functions. So the recipe below
# makes the compiler write an object.
OF_CRATE = ("rust/", "samples/")
# Our module calls the functions in `INLINED`, which are in the file `ENTRY`, but the image does not
# export them. So the lab marks these functions as inlined.
ENTRY = "rust/kernel/debugfs/entry.rs"
INLINED = ("    pub(crate) fn dynamic_dir(",)
CRATE = """\
always-y := libkernel.rmeta

$(obj)/libkernel.rmeta: private is-kernel-object := y
$(obj)/libkernel.rmeta: FORCE
	OBJTREE=$(objtree) $(RUSTC) $(rust_flags) -L$(objtree)/rust \\
		--extern ffi --extern pin_init --extern build_error --extern macros \\
		--extern bindings --extern uapi --extern zerocopy --extern zerocopy_derive \\
		--emit=metadata=$@ --emit=obj=$(obj)/kernel.o --crate-type rlib --crate-name kernel \\
		--sysroot=/dev/null -Zunstable-options $(objtree)/rust/kernel/lib.rs
"""
PARTS_SECONDS = 3600
# In the directory $2, replaces the modules of the release $3 with the modules that were built in
# the directory $1.
INSTALL = """
cd "$1"
find . -name "*.ko" | while read -r file; do
    if [ -e "$2/$3/kernel/$file" ]; then
        strip --strip-debug -o "$2/$3/kernel/$file" "$file"
    fi
done
"""


def series():
    """Returns all patches in order."""
    return sorted(PATCHES.glob("*.patch"))


def files(patch):
    """Returns the files that a patch changes."""
    return [line.split()[1].removeprefix("b/") for line in patch.read_text().splitlines()
            if line.startswith("+++ b/")]


def apply(root, patch, tree):
    """Returns the complaints of patch(1) when it applies a patch in `tree`. patch(1) also complains
    if a line is at another position than the patch states."""
    argv = ["patch", "--strip=1", "--fuzz=0", "--batch", "--no-backup-if-mismatch",
            f"--directory={tree}", f"--input={patch}"]
    run = subprocess.run(
        [str(word) for word in chroot.command(root, argv, [cache.directory(), REPO, tree])],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    return [line for line in run.stdout.splitlines() if not line.startswith("patching file")] or (
        [f"patch: exit status {run.returncode}"] if run.returncode else [])


def check(root, kernel):
    """Yields complaints about the series of patches: each patch must apply after the patches that
    precede it, and the kernel's own checker must find nothing. Yields nothing if the kernel does
    not belong to the kernel series OF."""
    if not kernel.release.startswith(f"{OF}."):
        return
    with tempfile.TemporaryDirectory(dir=cache.directory()) as place:
        for name in {name for patch in series() for name in files(patch)}:
            target = pathlib.Path(place, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(kernel.tree / name, target)
        for patch in series():
            yield from (f"{patch.name}: {line}" for line in apply(root, patch, place))
            argv = ["perl", kernel.tree / "scripts/checkpatch.pl", f"--root={kernel.tree}",
                    *CHECKPATCH, patch]
            run = subprocess.run(
                [str(word) for word in chroot.command(root, argv,
                                                      [cache.directory(), REPO], place)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                check=False)
            yield from (f"{patch.name}: {line}" for line in run.stdout.splitlines())


def build(root, kernel):
    """Builds rdma_rxe.ko with our patches if it is missing. Returns the built file, whose name
    contains the release of the kernel."""
    ours = [patch for patch in series() if any(name.startswith(RXE) for name in files(patch))]

    def make(target):
        log = target.with_suffix(".log")
        log.unlink(missing_ok=True)
        # A copy is built, because building in place would change the kernel tree in the cache.
        shutil.copytree(kernel.tree / RXE, target / RXE)
        for patch in ours:
            if found := apply(root, patch, target):
                raise LabError(f"{patch.name}: {found[0]}")
        argv = ["make", "-C", kernel.tree, *kernel.make_words(), f"M={target}/{RXE}",
                "CONFIG_RDMA_RXE=m", "-j2", "modules"]
        proc.run_logged(f"building rxe with {len(ours)} patches for {kernel.release} (log: {log})",
                        chroot.command(root, argv, [cache.directory()]), log, siw.SECONDS)
        shutil.copy(target / RXE / "rdma_rxe.ko", target / f"rdma_rxe-{kernel.release}.ko")
        cache.remove(target / pathlib.PurePath(RXE).parts[0])

    key = cache.key(RECIPE, kernel.release, kernel.tree, *(path.read_text() for path in ours))
    return cache.entry("upstream", key, make) / f"rdma_rxe-{kernel.release}.ko"


def changes_only(patch, places):
    """Returns whether a patch changes only files in these directories."""
    return all(name.startswith(places) for name in files(patch))


def patched(root, stock, debug):
    """Returns the debug kernel with the patches, and prints the names of the patches that are left
    out. Builds the parts that are missing: the changed modules, and the headers and metadata for
    our module."""
    left = [patch for patch in series()
            if not changes_only(patch, BUILT) and not changes_only(patch, OF_CRATE)]
    if left:
        say(f"left out: {', '.join(patch.name for patch in left)} (they change other modules)")
    return with_crate(root, stock, with_modules(root, stock, debug))


def runner(root, target):
    """Returns a function that runs a shell script in the lab's root file system, and writes its
    output to the log of the artefact `target`."""
    log = target.with_suffix(".log")
    log.unlink(missing_ok=True)

    def run(text, script, *args):
        proc.run_logged(f"{text} (log: {log})", chroot.command(
            root, ["sh", "-euxc", script, "sh", *args], [cache.directory()]),
            log, PARTS_SECONDS)

    return run


def with_modules(root, stock, debug):
    """Returns the debug kernel with the patches that change modules."""
    ours = [patch for patch in series() if changes_only(patch, BUILT)]

    def make(target):
        tree, source, run = target / "tree", target / "source", runner(root, target)
        shutil.copytree(debug.tree, tree, symlinks=True)
        shutil.copytree(debug.modules, target / "modules", symlinks=True)
        for part in PARTS:
            shutil.copytree(stock.tree / part, tree / part)
        for patch in ours:
            if found := apply(root, patch, tree):
                raise LabError(f"{patch.name}: {found[0]}")
        # The modules are built outside the tree, because the tree has no objects of the kernel
        # image. The changed sources also stay in the tree, because some tracepoints include their
        # header from the tree.
        for part in PARTS:
            shutil.copytree(tree / part, source / part)
        (source / "Kbuild").write_text(f"obj-m := {' '.join(f'{part}/' for part in PARTS)}\n")
        words = [*debug.make_words(), "KCFLAGS=-w", f"M={source}", "-j2", "modules"]
        run(f"building modules with {len(ours)} patches for {debug.release}",
            'cd "$1"; shift; make "$@"', tree, *words)
        run("installing the modules", INSTALL, source, target / "modules", debug.release)
        symbols = {}
        for place in (tree, source):
            for line in (place / "Module.symvers").read_text().splitlines(keepends=True):
                symbols[line.split("\t")[1]] = line
        (tree / "Module.symvers").write_text("".join(symbols.values()))
        for place in (source, *(tree / part for part in PARTS)):
            cache.remove(place)

    key = cache.key(RECIPE, debug.tree, INSTALL, *PARTS, *(path.read_text() for path in ours))
    path = cache.entry("upstream-debug", key, make)
    return dataclasses.replace(debug, tree=path / "tree", modules=path / "modules")


def with_crate(root, stock, debug):
    """Returns this kernel with the patches that change the kernel crate. The image stays as it is.
    """
    ours = [patch for patch in series() if changes_only(patch, OF_CRATE)]

    def make(target):
        tree, source, run = target / "tree", target / "source", runner(root, target)
        shutil.copytree(debug.tree, tree, symlinks=True)
        for patch in ours:
            for name in files(patch):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(stock.tree / name, tree / name)
        for patch in ours:
            if found := apply(root, patch, tree):
                raise LabError(f"{patch.name}: {found[0]}")
        text = (tree / ENTRY).read_text()
        for line in INLINED:
            if text.count(line) != 1:
                raise LabError(f"{ENTRY} has no line '{line}'")
            text = text.replace(line, f"    #[inline]\n{line}")
        (tree / ENTRY).write_text(text)
        source.mkdir()
        (source / "Kbuild").write_text(CRATE)
        run(f"building the kernel crate with {len(ours)} patches for {debug.release}",
            'cd "$1"; shift; make "$@"', tree, *debug.make_words(), f"M={source}", "modules")
        shutil.copy(source / "libkernel.rmeta", tree / "rust")
        cache.remove(source)

    key = cache.key(RECIPE, debug.tree, CRATE, *INLINED, *(path.read_text() for path in ours))
    path = cache.entry("upstream-crate", key, make)
    return dataclasses.replace(debug, tree=path / "tree")
