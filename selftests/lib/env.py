# SPDX-License-Identifier: GPL-2.0
"""The environment of a run: the server, the client module, the sizes."""

import dataclasses
import os
import pathlib
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
# The tests may be a copy outside our repository. Then the package lablib is in /repo.
LAB = next(p for p in (REPO / "tools", pathlib.Path("/repo/tools")) if p.is_dir())
sys.path.insert(0, str(LAB))
PORT = 20049


@dataclasses.dataclass
class Environment:
    """The settings of a run, from the environment and the command line."""

    client: str = os.environ.get("LAB_CLIENT", "ours")       # the client: ours or intree
    serving: str = os.environ.get("LAB_SERVER", "intree")    # the server's: ours or intree
    debug: bool = bool(os.environ.get("LAB_DEBUG"))
    upstream: bool = bool(os.environ.get("LAB_UPSTREAM"))  # patched rxe, see Documentation/upstream
    module_file: str = os.environ.get("LAB_MODULE", "")
    suites_file: str = os.environ.get("LAB_SUITES", "")      # the module of the KUnit suites
    provider: str = os.environ.get("LAB_PROVIDER", "rxe")    # the kind of RDMA device
    devices: tuple = tuple(os.environ.get("LAB_DEVICES", "rxe0").split())  # one for each cable
    server: str = os.environ.get("NFS_SERVER", "")
    server6: str = os.environ.get("NFS_SERVER6", "")
    mem: str = os.environ.get("NFS_EXPORT_MEM", "/srv/mem")    # export in memory
    disk: str = os.environ.get("NFS_EXPORT_DISK", "/srv/disk")  # export on a disk
    size: str = "small"
    versions: tuple = ("3", "4.2")
    one_version: bool = False                                # per case, by turns
    parameters: tuple = ()                                   # for insmod
    seed: int = 0
    factor: float = 3                                        # for every limit of time

    @property
    def ours(self):
        return self.client == "ours"

    @property
    def full(self):
        return self.size == "full"

    def pick(self, small, full, debug=None):
        """Returns a number by size. `debug` replaces `small` on a slow debug kernel."""
        if self.full:
            return full
        return small if debug is None or not self.debug else debug

    def patience(self, seconds):
        """Returns a time limit that is exceeded only if something hangs, even on a busy machine."""
        return seconds * self.factor * (3 if self.debug else 1)


ENV = Environment()
