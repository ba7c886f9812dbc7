# SPDX-License-Identifier: GPL-2.0
"""Building our kernel module with the toolchain of the root."""

import pathlib
import shutil

from . import cache, chroot, proc
from .ui import LabError, say

REPO = pathlib.Path(__file__).resolve().parents[2]
NAME = "xprtrdma_rs.ko"
BUILD_SECONDS = 900


def directory(kernel, clippy=False):
    """Where the objects for this kernel go."""
    return REPO / "build" / (kernel.release + ("-clippy" if clippy else ""))


def make(kernel, objects, *words):
    """kbuild's command line for this module."""
    argv = ["make", "-C", kernel.tree, f"KERNELRELEASE={kernel.release}",
            f"M={REPO}", f"MO={objects}"]
    return argv + (["LLVM=1"] if kernel.llvm else []) + list(words)


def build(root, kernel, clippy=False, show=False):
    """Build the module; the file, relative to the repository.

    `show` puts make's output on the terminal; it is in the log in any case.
    """
    if not (REPO / "Kbuild").exists():
        raise LabError(f"no module to build: {REPO}/Kbuild is missing; "
                       "use --client intree or none")
    objects = directory(kernel, clippy)
    with cache.locked(objects):
        objects.mkdir(exist_ok=True)
        log = objects / "build.log"
        log.unlink(missing_ok=True)
        words = ["-j2", "modules"] + (["CLIPPY=1"] if clippy else [])
        argv = chroot.command(root, make(kernel, objects, *words),
                              [cache.directory(), REPO], REPO)
        run = proc.run_shown if show else proc.run_logged
        text = f"building {NAME} for {kernel.release}{' with clippy' if clippy else ''}"
        run(text, argv, log, BUILD_SECONDS)
        # kbuild puts it beside the Kbuild file that names it.
        shutil.copy(objects / "rust" / NAME, objects / NAME)
    return (objects / NAME).relative_to(REPO)


def warnings(kernel, clippy=False):
    """What the tools complained about in the last build."""
    text = (directory(kernel, clippy) / "build.log").read_text()
    return [line for line in text.splitlines() if "warning" in line.lower()]


def clean():
    """Forget everything that was built, but not the runs."""
    build_directory = REPO / "build"
    for path in build_directory.iterdir() if build_directory.exists() else ():
        if path.name != "runs":
            say(f"removing {path.relative_to(REPO)}")
            shutil.rmtree(path) if path.is_dir() else path.unlink()
