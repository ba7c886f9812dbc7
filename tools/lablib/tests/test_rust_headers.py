# SPDX-License-Identifier: GPL-2.0
"""Tests the program that checks a kernel's headers for DKMS. If a file or an option is missing, the
program prints what is missing and which package to install."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from lablib.base.paths import REPO

PROGRAM = REPO / "tools/packaging/rust-headers"
RELEASE, VERSION = "7.3.4+deb13-amd64", "7.3.4-1~bpo13+1"
COMPILER = "rustc 1.85.1 (4eb161250 2025-03-15) (built from a source tarball)"
LIBRARY = "lib/rustlib/src/rust/library/core/src/lib.rs"
# The commands that the program runs.
USED = ("cat", "readlink", "rm", "rmdir", "sed", "sh")
# The commands that the program does not run. The program only checks that they exist.
LOOKED_FOR = ("bc", "bindgen", "bison", "flex", "gcc", "make", "perl", "xz")


class Checking(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.top = pathlib.Path(where.name)
        self.put("headers/include/config/auto.conf", "")
        self.put("headers/.config", f'CONFIG_RUST=y\nCONFIG_RUSTC_VERSION_TEXT="{COMPILER}"\n')
        self.put("src/linux-source-7.3.tar.xz", "")
        self.put(LIBRARY, "")
        for name in USED:
            (self.top / "bin").mkdir(exist_ok=True)
            (self.top / "bin" / name).symlink_to(shutil.which(name) or name)
        for name in LOOKED_FOR:
            self.tool(name, "exit 1")
        self.compiler(COMPILER)
        self.packages({f"linux-headers-{RELEASE}": VERSION, "linux-source-7.3": VERSION})

    def put(self, name, text):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def tool(self, name, does):
        self.put(f"bin/{name}", f"#!/bin/sh\n{does}\n").chmod(0o755)

    def compiler(self, says):
        self.tool("rustc", f"case $1 in --version) echo '{says}';; *) echo '{self.top}';; esac")

    def packages(self, versions):
        """Replaces dpkg-query by a program that knows only these packages."""
        cases = "".join(f"{name}) printf '%s' '{version}';;\n"
                        for name, version in versions.items())
        self.tool("dpkg-query", f"case $4 in\n{cases}*) exit 1;;\nesac")

    def run_it(self, *argv):
        done = subprocess.run(
            [PROGRAM, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=60, check=False,
            env=os.environ | {"PATH": str(self.top / "bin"),
                              "XPRTRDMA_SOURCES": str(self.top / "src"),
                              "XPRTRDMA_HEADERS": str(self.top / "cache")})
        return done.returncode, done.stdout

    def check(self):
        return self.run_it("check", RELEASE, str(self.top / "headers"))

    def refused(self, *words):
        """Checks that the program refuses the headers, and prints one line that contains these
        words."""
        status, text = self.check()
        self.assertEqual(status, 1, text)
        self.assertEqual(len(text.splitlines()), 1, text)
        for word in words:
            self.assertIn(word, text)

    def test_a_source_of_the_same_version_will_do(self):
        self.assertEqual(self.check(), (0, ""))

    def test_headers_with_metadata_need_nothing_else(self):
        self.put("headers/rust/libkernel.rmeta", "")
        self.packages({})
        for name in ("bison", "flex"):
            (self.top / "bin" / name).unlink()
        self.assertEqual(self.check(), (0, ""))

    def test_metadata_that_were_made_before_will_do(self):
        (self.top / "src/linux-source-7.3.tar.xz").unlink()
        self.put(f"cache/{RELEASE}/version", f"{VERSION}\n")
        self.assertEqual(self.check(), (0, ""))
        # Metadata of a different version of the same kernel release are not accepted.
        self.put(f"cache/{RELEASE}/version", "7.3.4-1~bpo13+0\n")
        self.refused("linux-source-7.3")

    def test_no_headers(self):
        shutil.rmtree(self.top / "headers/include")
        self.refused(f"linux-headers-{RELEASE}")

    def test_a_kernel_without_rust(self):
        self.put("headers/.config", "# CONFIG_RUST is not set\n")
        self.refused("without Rust")

    def test_another_compiler(self):
        self.compiler("rustc 1.95.0 (0123abcde 2026-04-16)")
        self.refused(COMPILER, "1.95.0", "install")

    def test_the_compiler_by_the_name_with_its_version(self):
        self.compiler("rustc 1.95.0 (0123abcde 2026-04-16)")
        self.tool("rustc-1.85", f"case $1 in --version) echo '{COMPILER}';; "
                                f"*) echo '{self.top}';; esac")
        self.assertEqual(self.check(), (0, ""))

    def test_no_source_package(self):
        (self.top / "src/linux-source-7.3.tar.xz").unlink()
        self.packages({f"linux-headers-{RELEASE}": VERSION})
        self.refused(f"install linux-source-7.3={VERSION}")

    def test_a_source_package_of_another_version(self):
        self.packages({f"linux-headers-{RELEASE}": VERSION, "linux-source-7.3": "7.3.6-1~bpo13+1"})
        self.refused(f"install linux-source-7.3={VERSION}", "7.3.6-1~bpo13+1 is installed")

    def test_headers_of_no_package(self):
        self.packages({})
        self.refused("rust/libkernel.rmeta", "no Debian package")

    def test_tools_that_are_missing(self):
        for name in LOOKED_FOR:
            path = self.top / "bin" / name
            content = path.read_text()
            path.unlink()
            self.refused(f"package {name}")
            path.write_text(content)
            path.chmod(0o755)

    def test_no_library_of_rust(self):
        (self.top / LIBRARY).unlink()
        self.refused("package rust-src")

    def test_dkms_is_told_that_a_build_that_fails_was_skipped(self):
        self.put("headers/rust/libkernel.rmeta", "")
        self.tool("make", "echo no; exit 2")
        self.tool("nproc", "echo 1")
        status, text = self.run_it("build", RELEASE, str(self.top / "headers"))
        self.assertEqual(status, 77, text)
        self.assertIn("failed", text)
        self.tool("make", "exit 0")
        self.assertEqual(self.run_it("build", RELEASE, str(self.top / "headers")), (0, ""))
        self.compiler("rustc 1.95.0 (0123abcde 2026-04-16)")
        self.assertEqual(self.run_it("build", RELEASE, str(self.top / "headers"))[0], 77)

    def test_what_was_made_goes_with_the_headers(self):
        for name in ("here", "gone"):
            (self.top / "cache" / name).mkdir(parents=True)
        (self.top / "cache/here/include").symlink_to(self.top / "headers/include")
        (self.top / "cache/gone/include").symlink_to(self.top / "nowhere/include")
        self.assertEqual(self.run_it("prune"), (0, ""))
        self.assertEqual([path.name for path in (self.top / "cache").iterdir()], ["here"])


if __name__ == "__main__":
    unittest.main()
