# SPDX-License-Identifier: GPL-2.0
"""Builds our kernel modules with the toolchain of the lab's root file system."""

import shutil

from ..base import cache, chroot, proc
from ..base.paths import REPO
from ..base.ui import LabError, say

NAME = "xprtrdma_rs.ko"
SUITES = "xprtrdma_rs_kunit.ko"
SERVER = "svcrdma_rs.ko"
RDS = "rds_rdma_rs.ko"
BUILD_SECONDS = 900


# The variants that are built from the crates. Each variant is built in a separate object directory.
# A variant consists of the module's name, the arguments for kbuild, and the suffix of the
# directory's name.
VARIANTS = {"client": (NAME, [], ""),
            "suites": (SUITES, ["XPRTRDMA_KUNIT=1"], "-kunit"),
            "server": (SERVER, ["XPRTRDMA_SERVER=1"], "-server"),
            "rds": (RDS, ["XPRTRDMA_RDS=1"], "-rds"),
            "upstream": (NAME, ["XPRTRDMA_UPSTREAM=1"], "-upstream"),
            "upstream-rxe": (NAME, ["XPRTRDMA_UPSTREAM=rxe"], "-upstream-rxe")}


def directory(kernel, clippy=False, variant="client"):
    """Returns the directory for the object files for this kernel."""
    return REPO / "build" / (kernel.release + ("-clippy" if clippy else "")
                             + VARIANTS[variant][2])


def make(kernel, objects, *words, tree=REPO):
    """Returns kbuild's command line for this module."""
    return ["make", "-C", kernel.tree, *kernel.make_words(), f"M={tree}", f"MO={objects}", *words]


def build(root, kernel, clippy=False, show=False, tree=REPO, objects=None, variant="client"):
    """Builds the module. Returns the path of the module's file relative to the repository.

    With `show`, make's output is also printed on the terminal. The log always contains this output.
    If `tree` and `objects` are given, builds the copy of the source in `tree` into the directory
    `objects`. Both directories are in the repository.
    """
    if not (REPO / "Kbuild").exists():
        raise LabError(f"no module to build: {REPO}/Kbuild is missing; "
                       "use --client intree or none")
    objects = objects or directory(kernel, clippy, variant)
    name, of_variant, _ = VARIANTS[variant]
    with cache.locked(objects):
        objects.mkdir(exist_ok=True)
        log = objects / "build.log"
        log.unlink(missing_ok=True)
        words = ["-j2", "modules", *(["CLIPPY=1"] if clippy else []), *of_variant]
        argv = chroot.command(root, make(kernel, objects, *words, tree=tree),
                              [cache.directory(), kernel.tree, REPO], REPO)
        if kernel.compiler not in ("", compiler(root)):
            # The module must be built by the compiler version that built the kernel, because a
            # compiler cannot read the metadata that another version has written. The lab's compiler
            # has another version, so the compiler of this machine is tried.
            if own_compiler() != kernel.compiler:
                raise LabError(f"the kernel in {kernel.tree} was built by '{kernel.compiler}', but "
                               f"the lab has '{compiler(root)}' and this machine "
                               f"'{own_compiler()}': put that compiler first in PATH")
            argv = make(kernel, objects, *words, tree=tree)
        run = proc.run_shown if show else proc.run_logged
        text = f"building {name} for {kernel.release}{' with clippy' if clippy else ''}"
        run(text, argv, log, BUILD_SECONDS)
        # kbuild stores the module beside the Kbuild file that names it, in the directory `rust`.
        shutil.copy(objects / "rust" / name, objects / name)
    return (objects / name).relative_to(REPO)


def compiler(root):
    """Returns the version of the compiler in the lab's root file system."""
    return proc.output(chroot.command(root, ["rustc", "--version"])).strip()


def own_compiler():
    """Returns the version of this machine's compiler."""
    return proc.output(["rustc", "--version"]).strip() if shutil.which("rustc") else "none"


def warnings(kernel, clippy=False, variant="client"):
    """Returns the lines with warnings in the log of the last build."""
    text = (directory(kernel, clippy, variant) / "build.log").read_text()
    return [line for line in text.splitlines() if "warning" in line.lower()]


def clean():
    """Deletes all results of builds, but keeps the results of test runs."""
    build_directory = REPO / "build"
    for path in build_directory.iterdir() if build_directory.exists() else ():
        if path.name != "runs":
            say(f"removing {path.relative_to(REPO)}")
            shutil.rmtree(path) if path.is_dir() else path.unlink()
