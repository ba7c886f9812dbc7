# SPDX-License-Identifier: GPL-2.0
"""Finds the package archive and the proxy settings that this machine uses."""

import shutil

from ..base import proc
from ..base.ui import LabError

RELEASE = "trixie"
# Release names of Debian. Before the first `apt-get update`, apt does not know the label of an
# archive. In this case the name of the release shows that the archive is Debian's.
RELEASES = ("bookworm", RELEASE, "forky", "sid", "oldstable", "stable", "testing",
            "unstable")
KERNEL_SUITE = f"{RELEASE}-backports"


def mirror():
    """Returns the address of the Debian archive in this machine's apt configuration.

    Returns None if there is no address: mmdebstrap then uses its own default.
    """
    if not shutil.which("apt-get"):
        return None
    found = proc.output(["apt-get", "indextargets", "--format",
                         "$(REPO_URI)|$(COMPONENT)|$(RELEASE)|$(LABEL)",
                         "Created-By: Packages"])
    for line in found.splitlines():
        uri, component, release, label = line.split("|")
        known = label == "Debian" or (label.startswith("$") and release in RELEASES)
        if known and component == "main":
            return uri.rstrip("/")
    return None


def apt_options():
    """Returns the proxy settings of this machine, as options for apt in another root directory."""
    if not shutil.which("apt-config"):
        return []
    lines = proc.output(["apt-config", "dump", "Acquire"]).splitlines()
    return [line for line in lines
            if "::Proxy" in line and not line.endswith('"";')]


def install_on_host(package):
    """Installs a package that this machine lacks. Raises an error if this machine has no apt-get.
    """
    if not shutil.which("apt-get"):
        raise LabError(f"{package} is missing and this is no Debian: install it by hand")
    log = "/dev/null"
    for argv in (["apt-get", "update"],
                 ["apt-get", "install", "-y", "--no-install-recommends", package]):
        proc.run_logged(f"{' '.join(argv)} (the host lacks {package})", argv, log, 600)
