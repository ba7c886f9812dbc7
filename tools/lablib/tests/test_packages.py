# SPDX-License-Identifier: GPL-2.0
"""Tests which kernel is chosen from the package lists, and what is printed if a kernel is
missing."""

import unittest

from lablib.artefacts import packages
from lablib.base import arch
from lablib.base.ui import LabError


def archive(*kernels):
    """Returns package lists with these kernels (release, version, parts)."""
    found = {}
    for release, version, parts in kernels:
        series = ".".join(release.split(".")[:2])
        names = {"image": f"linux-image-{release}", "headers": f"linux-headers-{release}",
                 "source": f"linux-source-{series}"}
        for part in parts:
            found[names[part], version] = {"SHA256": f"{part} {version}"}
    return found


ALL = ("image", "headers", "source")
LISTS = archive(("7.2.9+deb13-amd64", "7.2.9-1", ALL), ("7.2.12+deb13-amd64", "7.2.12-1", ALL),
                ("7.2.12+deb13-cloud-amd64", "7.2.12-1", ALL),
                ("7.2.30+deb13-amd64", "7.2.30-1", ("image", "headers")),
                ("7.20.1+deb13-amd64", "7.20.1-1", ALL), ("7.1.1+deb13-amd64", "7.1.1-1",
                                                          ("image",)))


class Choosing(unittest.TestCase):
    def test_newest_complete_ordinary_kernel_of_the_series(self):
        choice = packages.choose(LISTS, "7.2", "here")
        self.assertEqual(choice["release"], "7.2.12+deb13-amd64")
        self.assertEqual(choice["packages"]["linux-source-7.2"], "source 7.2.12-1")

    def test_a_release_by_name(self):
        for release in ("7.2.9+deb13-amd64", "7.2.12+deb13-cloud-amd64"):
            self.assertEqual(packages.choose(LISTS, release, "here")["release"], release)

    def test_the_newest_of_a_flavour(self):
        lists = LISTS | archive(("7.2.9+deb13-rt-amd64", "7.2.9-1", ALL))
        for flavour, release in (("rt-amd64", "7.2.9+deb13-rt-amd64"),
                                 ("cloud-amd64", "7.2.12+deb13-cloud-amd64"),
                                 ("amd64", "7.2.12+deb13-amd64")):
            self.assertEqual(packages.choose(lists, f"7.2-{flavour}", "here")["release"], release)
            self.assertEqual(packages.is_real_time(release), flavour == "rt-amd64")

    def test_a_flavour_tells_the_architecture(self):
        for spec, of, real_time in (("7.3-amd64", arch.AMD64, False),
                                    ("7.3-rt-amd64", arch.AMD64, True),
                                    ("7.3-arm64-16k", arch.ARM64, False),
                                    ("7.3.4+deb13-rt-arm64", arch.ARM64, True),
                                    ("7.3", arch.of_host(), False), (None, arch.of_host(), False)):
            self.assertEqual(packages.arch_of(spec), of, spec)
            self.assertEqual(bool(spec) and packages.is_real_time(spec), real_time, spec)

    def test_a_kernel_of_another_distribution_leads_to_its_headers(self):
        for spec in ("7.3.4-arch1-1", "7.3.4-200.fc44.x86_64", "7.3.0-12-generic",
                     "7.3.4-default", "7.3-riscv64"):
            with self.assertRaises(LabError) as caught:
                packages.arch_of(spec)
            self.assertIn("no kernel of Debian's archive", str(caught.exception))
            self.assertIn(f"make modules KDIR=/lib/modules/{spec}/build", str(caught.exception))

    def test_a_foreign_kernel_comes_from_its_own_lists(self):
        lists = archive(("7.3.4+deb13-arm64", "7.3.4-1", ALL),
                        ("7.3.4+deb13-arm64-16k", "7.3.4-1", ALL))
        for flavour in ("arm64", "arm64-16k"):
            self.assertEqual(packages.choose(lists, f"7.3-{flavour}", "here")["release"],
                             f"7.3.4+deb13-{flavour}")
        foreign = next(of for of in arch.ALL if not of.is_host)
        self.assertNotEqual(packages.state(foreign), packages.state(arch.of_host()))

    def test_what_is_missing_is_said_in_one_line(self):
        with self.assertRaises(LabError) as caught:
            packages.choose(LISTS, "7.1", "here")
        text = str(caught.exception)
        for part in ("'7.1'", "here", "linux-headers-7.1.1+deb13-amd64", "KERNEL=",
                     "7.2.12+deb13-amd64"):
            self.assertIn(part, text)
        self.assertNotIn("\n", text)

    def test_what_is_too_old_is_said_and_what_else_can_be_done(self):
        for spec, old in (("6.18.44-fc-v595", True), ("6.12", True), ("7.1", True),
                          ("7.4", False), ("9.1.1-arch1-1", False), ("newest", False)):
            with self.assertRaises(LabError) as caught:
                packages.choose(LISTS, spec, "here")
            text = str(caught.exception)
            self.assertIn("KDIR=", text)
            self.assertIn(f"from {packages.OLDEST} on", text)
            self.assertEqual(old, f"interfaces of {packages.OLDEST} or newer" in text, text)

    def test_new_images_need_their_parts(self):
        image, version = "linux-image-7.3.4+deb13-amd64", "7.3.4-1"
        lists = archive(("7.3.4+deb13-amd64", version, ALL))
        lists[image, version]["Depends"] = "x, linux-modules-7.3.4+deb13-amd64 (= 7.3.4-1)"
        with self.assertRaises(LabError):
            packages.choose(lists, "7.3", "here")
        lists["linux-modules-7.3.4+deb13-amd64", version] = {"SHA256": "m"}
        choice = packages.choose(lists, "7.3", "here")
        self.assertIn("linux-modules-7.3.4+deb13-amd64", choice["packages"])


if __name__ == "__main__":
    unittest.main()
