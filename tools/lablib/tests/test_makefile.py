# SPDX-License-Identifier: GPL-2.0
"""If a build with KDIR= is impossible, make reports the problem and its remedy before the build."""

import pathlib
import re
import subprocess
import tempfile
import unittest

from lablib.artefacts import kernel, packages
from lablib.base.paths import REPO

COMPILER = "rustc 1.85.1 (4eb161250 2025-03-15) (built from a source tarball)"
OTHER = "rustc 1.95.0 (0123abcde 2026-04-16)"


class Tree:
    """A directory with those files of a prepared kernel that the checks read."""

    def __init__(self, where):
        self.where = pathlib.Path(where)
        self.tools = {"RUSTC": self.tool("rustc", f"echo '{COMPILER}'"),
                      "BINDGEN": self.tool("bindgen", "true")}
        self.put("include/config/kernel.release", "7.3.4-arch1-1\n")
        self.put("include/config/auto.conf",
                 f'CONFIG_RUST=y\nCONFIG_RUSTC_VERSION_TEXT="{COMPILER}"\n')
        self.put("rust/libkernel.rmeta", "")

    def put(self, name, text):
        path = self.where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def tool(self, name, does):
        path = self.put(name, f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)
        return path

    def make(self):
        """Returns (exit status, output) of make for the build. make only prints the commands and
        does not execute them."""
        done = subprocess.run(
            ["make", "-C", REPO, "-n", "modules", f"KDIR={self.where}",
             *(f"{name}={path}" for name, path in self.tools.items())],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
            check=False)
        return done.returncode, done.stdout


class Building(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.tree = Tree(where.name)

    def refused(self, *words):
        """Checks that make stops with a line that contains these words."""
        status, text = self.tree.make()
        self.assertEqual(status, 2, text)
        line = next(line for line in text.splitlines() if " *** " in line)
        for word in words:
            self.assertIn(word, line)

    def test_headers_with_rust_metadata_are_taken(self):
        status, text = self.tree.make()
        self.assertEqual(status, 0, text)
        self.assertIn(f"RUSTC='{self.tree.tools['RUSTC']}'", text)
        self.assertIn("build/7.3.4-arch1-1", text)

    def test_a_kernel_of_clang_is_built_for_with_clang(self):
        self.assertNotIn("LLVM=1", self.tree.make()[1])
        with (self.tree.where / "include/config/auto.conf").open("a") as config:
            config.write("CONFIG_CC_IS_CLANG=y\n")
        self.assertIn("LLVM=1", self.tree.make()[1])

    def test_no_tree(self):
        (self.tree.where / "include/config/kernel.release").unlink()
        self.refused(str(self.tree.where), "kernel.release", "headers", "modules_prepare")

    def test_no_rust(self):
        self.tree.put("include/config/auto.conf", "CONFIG_MODULES=y\n")
        self.refused("CONFIG_RUST is not set", "7.3.4-arch1-1", "rpcrdma")

    def test_no_rust_metadata(self):
        (self.tree.where / "rust/libkernel.rmeta").unlink()
        self.refused("rust/libkernel.rmeta", "KERNEL=7.3.4-arch1-1", "modules_prepare",
                     "linux-lib-rust-7.3.4-arch1-1")

    def test_a_kernel_that_is_too_old(self):
        for release in ("6.12.48+deb13-amd64", "7.1.9"):
            self.tree.put("include/config/kernel.release", release)
            self.refused(release, packages.OLDEST)
        for release in ("7.2.0", "7.2-rc1", "7.10.1", "10.0"):
            self.tree.put("include/config/kernel.release", release)
            self.assertEqual(self.tree.make()[0], 0, release)

    def test_another_compiler(self):
        self.tree.tool("rustc", f"echo '{OTHER}'")
        self.refused(COMPILER, OTHER, "RUSTC=", "rustc-1.85")

    def test_no_compiler(self):
        self.tree.tools["RUSTC"] = self.tree.where / "absent"
        self.refused(COMPILER, "not there", "RUSTC=")

    def test_no_bindgen(self):
        self.tree.tools["BINDGEN"] = self.tree.where / "absent"
        self.refused("bindgen", "install", "BINDGEN=")

    def test_the_oldest_kernel_is_the_same_everywhere(self):
        for file, pattern in (("Makefile", r"^OLDEST := (.*)$"),
                              ("tools/packaging/dkms.conf",
                               r'^BUILD_EXCLUSIVE_KERNEL_MIN="(.*)"$')):
            found = re.findall(pattern, (REPO / file).read_text(), re.MULTILINE)
            self.assertEqual(found, [packages.OLDEST], file)

    def test_dkms_builds_up_to_the_series_that_is_tested(self):
        text = (REPO / "tools/packaging/dkms.conf").read_text()
        self.assertIn(f'BUILD_EXCLUSIVE_KERNEL_MAX="{kernel.DEFAULT}.999"', text)


if __name__ == "__main__":
    unittest.main()
