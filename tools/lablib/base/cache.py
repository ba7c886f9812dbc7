# SPDX-License-Identifier: GPL-2.0
"""Artefacts that are slow to make, kept under a key made from their inputs."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil

from .ui import say


def directory():
    """Where artefacts live; `XPRTRDMA_CACHE` overrides it."""
    own = os.environ.get("XPRTRDMA_CACHE")
    if own:
        return pathlib.Path(own).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base).resolve() / "xprtrdma_rs"


def key(*inputs):
    """A short name that changes when any input does."""
    digest = hashlib.sha256()
    for item in inputs:
        digest.update(str(item).encode() + b"\0")
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def locked(path):
    """Hold an exclusive lock on `path`.lock; say so when another lab has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another lab that makes {path}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(kind, name, make):
    """The directory `kind`/`name`, made by `make(temporary)` when missing.

    It appears under its name only when complete, and one lab makes it at a
    time; a half-made one of a lab that died is removed.
    """
    final = directory() / kind / name
    if final.is_dir():
        return final
    with locked(final):
        if final.is_dir():
            return final
        building = final.with_name(f"{final.name}.tmp")
        remove(building)
        make(building)
        os.rename(building, final)
    return final


def remove(path):
    """Delete a tree that may be missing."""
    if path.exists():
        shutil.rmtree(path)


def clear():
    """Delete all artefacts; the directory is ours alone."""
    say(f"removing {directory()}")
    remove(directory())
