# SPDX-License-Identifier: GPL-2.0
"""The pages have everything and nothing else; and the checks notice when they have not."""

import pathlib
import tempfile
import unittest

from lablib.checks import documented


class Documented(unittest.TestCase):

    def test_guide_has_everything(self):
        self.assertEqual(list(documented.missing()), [])

    def test_every_kind_is_missed(self):
        guide = documented.guide()
        for gone in ("fast registration", "late_replies", "stale connection at the peer",
                     "receives posted", "xprtrdma_discard", "region_pages", "rail_servers"):
            self.assertIn(gone, guide)
            self.assertTrue(list(documented.missing(guide.replace(gone, "gone"))), gone)

    def test_pages_name_what_there_is(self):
        for page in documented.PAGES:
            self.assertEqual(list(documented.stale(page.read_text())), [], page.name)

    def test_every_kind_of_name_is_looked_up(self):
        for name in ("rpc/nowhere.rs", "rpc/send.rs:send_nothing", "Qp::nothing_at_all",
                     "rdma::no_such_room", "NoSuchType", "no_such_function()"):
            self.assertEqual(len(list(documented.stale(f"``{name}`` of the page"))), 1, name)
        for name in ("rpc/send.rs", "rpc/send.rs:send_call", "Qp::busy_poll", "rdma::spin",
                     "SendLock", "send_call", "xprt_transmit", "two words_here"):
            self.assertEqual(list(documented.stale(f"``{name}`` of the page")), [], name)

    def test_links_lead_somewhere(self):
        rst = (documented.REPO / "Documentation").glob("*.rst")
        for page in (*documented.REPO.glob("*.md"), *rst):
            self.assertEqual(list(documented.dead(page)), [], page.name)

    def test_dead_links_are_found(self):
        text = ("Known\n=====\n\n`Known`_ and `Unknown`_, :doc:`lab` and :doc:`bal`,\n"
                "[a](index.rst), [b](https://nowhere.example), [c](none.rst)\n")
        with tempfile.TemporaryDirectory() as directory:
            page = pathlib.Path(directory) / "page.rst"
            for name in ("lab.rst", "index.rst"):
                page.with_name(name).touch()
            page.write_text(text)
            self.assertEqual(sorted(documented.dead(page)), [
                "Unknown: no such section", "bal: no such page", "none.rst: no such page"])


if __name__ == "__main__":
    unittest.main()
