# SPDX-License-Identifier: GPL-2.0
"""The software iWARP device, which Debian's kernels leave out.

The lab builds the module from the source of the stock kernel. The server uses this module, and so
does a client without the debug kernel. siw is a second kind of RDMA device. Its limits and its
connection manager differ from those of RoCE devices.
"""

import shutil

from ..base import cache, chroot, proc

SOURCE = "drivers/infiniband/sw/siw"
SECONDS = 600
# Increase this number if a change of the recipe below changes the result.
RECIPE = 1


def build(root, stock):
    """Builds siw.ko for a stock kernel, if siw.ko does not exist. Returns the directory that
    contains siw.ko."""
    def make(target):
        log = target.with_suffix(".log")
        log.unlink(missing_ok=True)
        # A copy is built, because building in place would change the kernel tree in the cache.
        shutil.copytree(stock.tree / SOURCE, target / "siw")
        argv = ["make", "-C", stock.tree, *stock.make_words(), f"M={target}/siw",
                "CONFIG_RDMA_SIW=m", "-j2", "modules"]
        proc.run_logged(f"building siw for {stock.release} (log: {log})",
                        chroot.command(root, argv, [cache.directory()]), log, SECONDS)
        shutil.copy(target / "siw/siw.ko", target / "siw.ko")
        cache.remove(target / "siw")

    return cache.entry("siw", cache.key(RECIPE, stock.package["version"], stock.release), make)
