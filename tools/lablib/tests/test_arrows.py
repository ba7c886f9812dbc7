# SPDX-License-Identifier: GPL-2.0
"""Tests the check of arrows. An arrow is the use of one source file by another. The check reports
arrows between files that use each other in a circle."""

import pathlib
import tempfile
import unittest

from lablib.checks import arrows

ROOT = "rdma/xprtrdma_rdma.rs"


def crates(files):
    """Returns the crates of a source tree. `files` is a dictionary from paths to texts."""
    with tempfile.TemporaryDirectory() as directory:
        rust = pathlib.Path(directory)
        for name, text in files.items():
            (rust / name).parent.mkdir(parents=True, exist_ok=True)
            (rust / name).write_text(text)
        return arrows.Crates(rust)


def found(files):
    """Returns the arrows as short texts such as "a -> b", without the names of items."""
    return {f"{a.partition('/')[2][:-3]} -> {b.partition('/')[2][:-3]}"
            for a, b in crates(files).arrows()}


def tree(**files):
    """Returns the files of a crate that has these modules, as a dictionary from paths to texts."""
    root = "".join(f"mod {name};\n" for name in files)
    return {ROOT: root} | {f"rdma/{name}.rs": text for name, text in files.items()}


class Arrows(unittest.TestCase):
    def test_paths_of_every_form(self):
        for text in ("use crate::b::Thing;\nfn f(_: Thing) {}", "fn f(_: crate::b::Thing) {}",
                     "use crate::b;\nfn f() { b::f() }", "fn f() { super::b::f() }",
                     "use crate::{\n    b::{\n        self,\n        Thing, //\n    },\n};\n"
                     "fn f(_: Thing) {}", "use crate::b::*;\nfn f() {}",
                     "use crate::b::Thing as Other;\nfn f(_: Other) {}"):
            self.assertEqual(found(tree(a=text, b="pub struct Thing;")), {"a -> b"}, text)

    def test_what_is_no_arrow(self):
        for text in ("/// See [`Thing`](crate::b::Thing).\nfn f() {}", "// crate::b::f()\n",
                     "use crate::b::Thing;\n", "fn f() { \"crate::b::f()\" }",
                     "#[cfg(test)]\nmod tests;\n",
                     "use crate::b::Thing;\nfn f<T: Thing>(_: T) {}",
                     "use crate::b::Thing;\nimpl<T> Other<T>\nwhere\n    T: Thing,\n{}"):
            self.assertEqual(found(tree(a=text, b="pub trait Thing {}")), set(), text)

    def test_what_is_handed_on_comes_from_where_it_is(self):
        files = tree(a="use crate::b::Thing;\nfn f(_: Thing) {}", b="mod c;\npub use c::Thing;\n")
        self.assertEqual(found(files | {"rdma/b/c.rs": "pub struct Thing;"}), {"a -> b/c"})

    def test_other_crates(self):
        one = tree(a="use xprtrdma_base::time::Time;\nfn f(_: Time) {}")
        other = {"base/xprtrdma_base.rs": "pub mod time;\n", "base/time.rs": "pub struct Time;"}
        self.assertEqual(found(one | other), {"a -> time"})

    def test_the_drivers_data_is_a_name_of_its_type(self):
        self.assertEqual(found(tree(
            a="fn f(xprt: &Xprt) { xprt.data().g() }",
            b="struct Client;\nimpl Transport for Rdma {\n    type Data = Client;\n}\n")),
            {"a -> b"})

    def test_a_circle_is_told_of(self):
        one = crates(tree(a="fn f() { crate::b::f() }", b="fn f() { crate::c::f() }",
                          c="fn f() { crate::a::f() }", d="fn f() { crate::a::f() }"))
        names = {file.short(one.rust) for file in one.files.values()}
        self.assertEqual([line.partition(":")[2].strip()
                          for line in arrows.circles(names, one.arrows())],
                         ["rdma/a.rs -> rdma/b.rs: f", "rdma/b.rs -> rdma/c.rs: f",
                          "rdma/c.rs -> rdma/a.rs: f"])

    def test_a_circle_of_rooms_without_one_of_files(self):
        one = crates(tree(a="mod x;\nfn f() { crate::b::y::f() }", b="mod y;\nfn f() {}")
                     | {"rdma/a/x.rs": "fn f() {}", "rdma/b/y.rs": "fn f() { crate::a::x::f() }"})
        names = {file.short(one.rust) for file in one.files.values()}
        self.assertEqual(list(arrows.circles(names, one.arrows())), [])
        found_rooms = arrows.rooms(one.arrows())
        self.assertEqual(len(list(arrows.circles(set(map(arrows.room, names)), found_rooms))), 2)

    def test_the_module_itself(self):
        self.assertEqual(arrows.complaints(), [])

    def test_the_picture_has_every_file(self):
        one = arrows.Crates(arrows.REPO / "rust")
        words = arrows.picture(one, one.arrows()).split()
        for file in one.files.values():
            self.assertIn(file.path.stem, words)
        self.assertGreater(len(one.files), 100)


if __name__ == "__main__":
    unittest.main()
