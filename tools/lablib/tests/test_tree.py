# SPDX-License-Identifier: GPL-2.0
"""Tests that a kernel tree of the user is accepted, or that an error says what the tree lacks."""

import pathlib
import tempfile
import unittest

from lablib.artefacts import tree
from lablib.base import arch
from lablib.base.ui import LabError


class Looking(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.where = pathlib.Path(where.name)
        self.on = [*tree.MACHINE, *tree.client_options()]
        self.put("include/config/kernel.release", "7.3.4-mine\n")
        self.configure("X86_64")
        for name in ("arch/x86/boot/bzImage", "modules.order", "Module.symvers",
                     "rust/libkernel.rmeta"):
            self.put(name, "")

    def put(self, name, text):
        path = self.where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def configure(self, *more):
        self.put("include/config/auto.conf",
                 "".join(f"CONFIG_{name}=y\n" for name in (*self.on, *more)))

    def refused(self, *words):
        with self.assertRaises(LabError) as caught:
            tree.look(str(self.where))
        for word in (str(self.where), *words):
            self.assertIn(word, str(caught.exception))

    def test_a_built_tree_is_taken(self):
        found = tree.look(str(self.where))
        self.assertEqual((found.release, found.arch), ("7.3.4-mine", arch.AMD64))
        self.assertEqual(found.image, self.where.resolve() / "arch/x86/boot/bzImage")

    def test_its_architecture_is_read_from_it(self):
        self.configure("ARM64")
        self.refused("arch/arm64/boot/Image", "make Image")
        self.put("arch/arm64/boot/Image", "")
        self.assertEqual(tree.look(str(self.where)).arch, arch.ARM64)

    def test_what_is_missing_is_named_with_its_remedy(self):
        for name, remedy in (("include/config/kernel.release", "make"),
                             ("arch/x86/boot/bzImage", "make bzImage"),
                             ("modules.order", "make modules"),
                             ("rust/libkernel.rmeta", "make modules_prepare")):
            (self.where / name).unlink()
            self.refused(pathlib.Path(name).name, remedy)
            self.put(name, "7.3.4-mine\n")

    def test_options_that_are_off_are_listed(self):
        for name in ("RUST", "RDMA_RXE", "NET_9P_VIRTIO"):
            self.on.remove(name)
        self.configure("X86_64")
        self.refused("CONFIG_RUST", "CONFIG_RDMA_RXE", "CONFIG_NET_9P_VIRTIO")

    def test_a_series_is_no_directory(self):
        for spec, named in ((None, False), ("7.3", False), ("7.3.4+deb13-rt-amd64", False),
                            ("./7.3", True), ("linux", True), ("/usr/src/linux", True)):
            self.assertEqual(tree.is_named(spec), named, spec)
        with self.assertRaises(LabError) as caught:
            tree.look(str(self.where / "absent"))
        self.assertIn("no such directory", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
