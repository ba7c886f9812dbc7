# SPDX-License-Identifier: GPL-2.0
"""Tests the check that reads the compiler's warnings about unused items. If the compiler gives no
warnings at all, the check must fail."""

import pathlib
import tempfile
import unittest

from lablib.base.paths import REPO
from lablib.checks import unused

TREE = "   --> /repo/build/unused/rust/client/../proto"
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
OTHERS = f"""warning: fields `credits` and `offset` are never read
{TREE}/inbound.rs:82:9
warning: variant `Retransmit` is never constructed
{TREE}/conn/event.rs:171:5
"""


class Unused(unittest.TestCase):

    def test_what_the_compiler_says(self):
        self.assertEqual(unused.found(CANARY), [])
        self.assertEqual(unused.found(CANARY + SEVERAL + OTHERS), [
            "rust/proto/chunk.rs:351:12: multiple methods are never used: total, room",
            "rust/proto/conn/event.rs:171:5: variant `Retransmit` is never constructed"])

    def test_silence_is_a_complaint(self):
        self.assertEqual(len(unused.found("")), 1)
        self.assertEqual(len(unused.found(OTHERS)), 2)

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
        with tempfile.TemporaryDirectory() as name:
            tree = pathlib.Path(name) / "tree"
            unused.fold(REPO, tree)
            rust = tree / "rust"
            for path in [*rust.glob("proto/**/*.rs"), *rust.glob("client/**/*.rs")]:
                self.assertNotRegex(path.read_text(), r"(?m)^use (xprtrdma_proto|crate::error)\b",
                                    path)
            core = (rust / "proto/xprtrdma_proto.rs").read_text()
            self.assertIn(unused.CANARY, core)
            self.assertIn("mod xprtrdma_proto;",
                          (rust / "client/xprtrdma_client.rs").read_text())
            flags = [line for line in (rust / "Kbuild").read_text().splitlines()
                     if line.startswith("RUSTFLAGS_client/")]
            self.assertEqual(len(flags), 1)
            self.assertNotIn("call use,proto", flags[0])
            self.assertFalse((rust / "proto/tests").exists())


if __name__ == "__main__":
    unittest.main()
