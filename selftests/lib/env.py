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

    # kind of NFS/RDMA client: ours or intree
    client: str = os.environ.get("LAB_CLIENT", "ours")
    # kind of NFS/RDMA server: ours or intree
    serving: str = os.environ.get("LAB_SERVER", "intree")
    debug: bool = bool(os.environ.get("LAB_DEBUG"))
    # whether the client's kernel has patches of Documentation/upstream; see also `patched`
    upstream: bool = bool(os.environ.get("LAB_UPSTREAM"))
    module_file: str = os.environ.get("LAB_MODULE", "")
    # file of the module with the KUnit suites
    suites_file: str = os.environ.get("LAB_SUITES", "")
    provider: str = os.environ.get("LAB_PROVIDER", "rxe")    # kind of RDMA device: rxe or siw
    # names of the RDMA devices, one device for each cable
    devices: tuple = tuple(os.environ.get("LAB_DEVICES", "rxe0").split())
    server: str = os.environ.get("NFS_SERVER", "")
    server6: str = os.environ.get("NFS_SERVER6", "")
    # exported directory on a file system in memory
    mem: str = os.environ.get("NFS_EXPORT_MEM", "/srv/mem")
    # exported directory on a disk
    disk: str = os.environ.get("NFS_EXPORT_DISK", "/srv/disk")
    size: str = "small"
    versions: tuple = ("3", "4.2")
    # whether each case runs with only one NFS version; successive cases use different versions
    one_version: bool = False
    # whether slow cases run with every NFS version, too
    every_version: bool = False
    parameters: tuple = ()                                   # module parameters for insmod
    seed: int = 0
    # factor by which every time limit is multiplied
    factor: float = 3

    @property
    def ours(self):
        return self.client == "ours"

    @property
    def patched(self):
        """Whether the client's kernel has all patches. Only a debug kernel can have all of them. In
        another kernel only rxe can be patched."""
        return self.upstream and self.debug

    @property
    def full(self):
        return self.size == "full"

    def pick(self, small, full, debug=None):
        """Returns `small` or `full`, depending on the size of this run. On a debug kernel, returns
        `debug` instead of `small` if `debug` is given."""
        if self.full:
            return full
        return small if debug is None or not self.debug else debug

    def patience(self, seconds):
        """Returns a time limit that is exceeded only if something hangs, even on a busy machine."""
        return seconds * self.factor * (3 if self.debug else 1)


ENV = Environment()
