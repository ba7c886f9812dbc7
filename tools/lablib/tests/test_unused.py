# SPDX-License-Identifier: GPL-2.0
"""Tests the check that reads the compiler's warnings about unused items. If the compiler gives no
warnings at all, the check must fail."""

import pathlib
import tempfile
import unittest

from lablib.base.paths import REPO
from lablib.checks import unused

CLIENT, SERVER, RDS = unused.DRIVERS
TREE = "   --> /repo/build/unused/client/rust/client/../proto"
CANARY = f"""warning: function `{unused.CANARY}` is never used
{TREE}/xprtrdma_proto.rs:9:8
   |
"""
SEVERAL = f"""warning: multiple methods are never used
{TREE}/chunk.rs:351:12
    |
349 | impl Segments<'_> {{
    | ----------------- methods in this implementation
350 |     pub fn total(&self) {{}}
    |            ^^^^^
352 |     pub const fn room(&self) {{}}
    |                  ^^^^

warning: unused import: `HISTORY`
{TREE}/conn.rs:78:9
"""
OF_SERVER = f"""warning: method `room` is never used
{TREE}/responder/reply.rs:112:9
"""
OTHERS = f"""warning: fields `credits` and `offset` are never read
{TREE}/inbound.rs:82:9
warning: variant `Retransmit` is never constructed
{TREE}/conn/event.rs:171:5
"""


class Unused(unittest.TestCase):

    def test_what_the_compiler_says(self):
        self.assertEqual(unused.found(CANARY, CLIENT), [])
        self.assertEqual(unused.found(CANARY + SEVERAL + OF_SERVER + OTHERS, CLIENT), [
            "rust/proto/chunk.rs:351:12: multiple methods are never used: total, room",
            "rust/proto/conn/event.rs:171:5: variant `Retransmit` is never constructed"])

    def test_each_driver_uses_its_part_of_the_core(self):
        log = CANARY + SEVERAL + OF_SERVER + OTHERS
        self.assertEqual(unused.found(log, SERVER), [
            "rust/proto/responder/reply.rs:112:9: method `room` is never used"])
        log = log.replace("client/../proto", "rds_transport/../rds_proto")
        self.assertEqual(len(unused.found(log, SERVER)), 1)
        self.assertEqual(len(unused.found(log, RDS)), 3)

    def test_silence_is_a_complaint(self):
        for driver in unused.DRIVERS:
            self.assertEqual(len(unused.found("", driver)), 1)
        self.assertEqual(len(unused.found(OTHERS, CLIENT)), 2)

    def test_nothing_is_excused(self):
        with tempfile.TemporaryDirectory() as name:
            rust = pathlib.Path(name)
            (rust / "proto").mkdir()
            (rust / "proto/a.rs").write_text(
                "fn a() {}\n#[allow(dead_code, reason = \"later\")]\nfn b() {}\n")
            self.assertEqual(list(unused.excuses(rust)),
                             ["rust/proto/a.rs:2: excused from being used"])
        self.assertEqual(list(unused.excuses(REPO / "rust")), [])

    def test_nothing_hides_behind_the_server(self):
        condition = "#[cfg(any(not(CONFIG_RUST), xprtrdma_server))]\n"
        with tempfile.TemporaryDirectory() as name:
            rust = pathlib.Path(name)
            (rust / "proto").mkdir()
            (rust / "proto/a.rs").write_text(
                "#![cfg_attr(not(CONFIG_RUST), no_std)]\n"
                f"{condition}pub mod served;\n{condition}pub mod cellar;\n"
                f"{condition}pub fn f() {{}}\n#[cfg(not(CONFIG_RUST))]\nfn g() {{}}\n"
                "fn h() { cfg!(CONFIG_RUST); cfg!(xprtrdma_server) }\n")
            about = "hidden from the client's module, and no room of the server"
            self.assertEqual(list(unused.hidden(rust)), [
                f"rust/proto/a.rs:{line}: {about}" for line in (4, 6, 8, 10)])
        self.assertEqual(list(unused.hidden(REPO / "rust")), [])

    def test_the_core_becomes_a_part_of_the_driver(self):
        for driver in unused.DRIVERS:
            with self.subTest(driver.variant), tempfile.TemporaryDirectory() as name:
                tree = pathlib.Path(name) / "tree"
                unused.fold(REPO, tree, driver)
                self.judge(tree / "rust", driver)

    def judge(self, rust, driver):
        core = f"xprtrdma_{driver.core}"
        for room in (driver.core, driver.name):
            for path in rust.glob(f"{room}/**/*.rs"):
                self.assertNotRegex(path.read_text(), rf"(?m)^use ({core}|crate::error)\b", path)
        self.assertIn(unused.CANARY, (rust / f"{driver.core}/{core}.rs").read_text())
        self.assertIn(f"mod {core};",
                      (rust / f"{driver.name}/xprtrdma_{driver.name}.rs").read_text())
        self.assertFalse((rust / driver.core / "tests").exists())


    def test_the_stored_command_is_changed(self):
        with tempfile.TemporaryDirectory() as name:
            stored, top = pathlib.Path(name) / "stored", pathlib.Path("/copy/driver.rs")
            stored.write_text(
                "savedcmd_rust/server/xprtrdma_server.o := A=1 clippy-driver "
                "-Zcrate-attr='f(a,b)' "
                "--extern xprtrdma_proto=rust/proto/libxprtrdma_proto.rmeta "
                "--extern kernel --emit=obj=rust/server/xprtrdma_server.o "
                "/repo/rust/server/xprtrdma_server.rs \n\n")
            self.assertEqual(unused.command(stored, top, SERVER), [
                "env", "RUSTC_BOOTSTRAP=1", "A=1", "rustc", "-Zcrate-attr=f(a,b)", "--extern",
                "kernel", "--cfg", "xprtrdma_server", "--cap-lints=warn", "-Aunreachable_pub",
                "--emit=metadata=/copy/driver.rmeta", "/copy/driver.rs"])


if __name__ == "__main__":
    unittest.main()
