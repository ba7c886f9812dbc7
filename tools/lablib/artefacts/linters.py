# SPDX-License-Identifier: GPL-2.0
"""Installs fixed versions of ruff and mypy, which check the Python programs."""

import importlib.util
import pathlib
import sys

from ..base import cache, proc
from ..base.ui import LabError
from . import archive

VERSIONS = pathlib.Path(__file__).with_name("linters.txt")
SECONDS = 300


def path():
    """Returns the directory with the linters. Creates the directory if it is missing."""
    python = "-".join(map(str, (*sys.version_info[:2], sys.platform)))
    name = f"{python}-{cache.key(sys.base_prefix, VERSIONS.read_text())}"
    return cache.entry("linters", name, install) / "bin"


def install(target):
    """Creates a virtual environment with the packages that the file `VERSIONS` lists."""
    if not importlib.util.find_spec("ensurepip"):
        # Debian's package of Python does not contain the module `venv`, so the separate package is
        # installed.
        archive.install_on_host(f"python3.{sys.version_info[1]}-venv")
    target.parent.mkdir(parents=True, exist_ok=True)
    log = target.with_suffix(".log")
    log.unlink(missing_ok=True)
    try:
        proc.run_logged("making a virtual environment for ruff and mypy",
                        [sys.executable, "-m", "venv", target], log, SECONDS)
        proc.run_logged(f"fetching ruff and mypy with pip (log: {log})",
                        [target / "bin/python", "-m", "pip", "install", "--no-deps",
                         "--disable-pip-version-check", "-r", VERSIONS], log, SECONDS)
    except LabError:
        cache.remove(target)
        raise
