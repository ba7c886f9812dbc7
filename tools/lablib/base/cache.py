# SPDX-License-Identifier: GPL-2.0
"""A cache of artefacts that take long to create. Each artefact is stored under a key that is
computed from its inputs."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil

from .ui import say


def directory():
    """Returns the directory of the artefacts. The environment variable `XPRTRDMA_CACHE` overrides
    the default."""
    own = os.environ.get("XPRTRDMA_CACHE")
    if own:
        return pathlib.Path(own).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base).resolve() / "xprtrdma_rs"


def key(*inputs):
    """Returns a short name that changes when any input changes."""
    digest = hashlib.sha256()
    for item in inputs:
        digest.update(str(item).encode() + b"\0")
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def locked(path):
    """Holds an exclusive lock on the file `path`.lock during the `with` block. Prints a message if
    another tools/lab process holds the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another lab that makes {path}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(kind, name, make):
    """Returns the directory `kind`/`name`. If it is missing, `make(temporary)` creates it.

    The directory gets its final name only when it is complete. Only one tools/lab process at a time
    creates it. If that process is killed, the next process that needs the directory removes the
    incomplete directory.
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
    """Deletes a tree if it exists."""
    if path.exists():
        shutil.rmtree(path)


def clear():
    """Deletes the directory with all artefacts."""
    say(f"removing {directory()}")
    remove(directory())
