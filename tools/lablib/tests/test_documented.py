# SPDX-License-Identifier: GPL-2.0
"""Tests of the check that the pages describe every required item, and no other item. The check
accepts the real pages, and detects wrong pages."""

import pathlib
import tempfile
import unittest

from lablib.checks import documented

ITEMS = """\
pub(crate) trait Room<T>: Sized {
    type Sized;
    fn area(&self) -> u32;
}

impl<'a, T: Into<Vec<T>>> Room<T>
    for Hall<'a, T>
where
    T: Copy,
{
    fn area(&self) -> u32 {
        let doors = self.later(3);
        fn inner() {}
    }
}

impl<T> Hall<'_, T> {
    pub(super) const WIDTH: u32 = 3;

    #[inline(always)]
    pub const fn new() -> Self {
        Hall { width: 1 }
    }
}

struct Hall<'a, T> {
    pub width: &'a T,
}

enum Door {
    Open,
    Shut(u32),
    Locked { by: u32 },
}

struct Key(u32);

unsafe extern "C" fn enter() {}
const LIMIT: u32 = 1;
"""


class Documented(unittest.TestCase):

    def test_guide_has_everything(self):
        self.assertEqual(list(documented.missing()), [])

    def test_every_kind_is_missed(self):
        guide = documented.guide()
        for gone in ("fast registration", "late_replies", "stale connection at the peer",
                     "receives posted", "xprtrdma_discard", "svcrdma_refused", "region_pages",
                     "rail_servers"):
            self.assertIn(gone, guide)
            self.assertTrue(list(documented.missing(guide.replace(gone, "gone"))), gone)

    def test_pages_name_what_there_is(self):
        for page in documented.PAGES:
            self.assertEqual(list(documented.stale(page.read_text())), [], page.name)

    def test_every_kind_of_name_is_looked_up(self):
        for name in ("rpc/nowhere.rs", "rpc/send.rs:send_nothing", "Qp::nothing_at_all",
                     "rdma::no_such_room", "NoSuchType", "no_such_function()"):
            self.assertEqual(len(list(documented.stale(f"``{name}`` of the page"))), 1, name)

    def test_a_word_of_the_source_is_no_item(self):
        """A name is out of date if no item has it, even if every word of the name occurs in a
        source file. The documentation contained the names below long after their items had been
        removed."""
        for name in ("Client::send", "Client::stop", "Client::abandon", "Client::revoke",
                     "Client::timed_out", "rpc/receive.rs:answer", "XdrBuf::read",
                     "class.rs:set_strings", "send::send_callback_reply"):
            self.assertEqual(len(list(documented.stale(f"``{name}`` of the page"))), 1, name)

    def test_items_are_found_where_they_are_declared(self):
        found = documented.items_of(ITEMS)
        self.assertEqual(found.members, {
            ("Room", "Sized"), ("Room", "area"), ("Hall", "area"), ("Hall", "new"),
            ("Hall", "WIDTH"), ("Hall", "width"), ("Door", "Open"), ("Door", "Shut"),
            ("Door", "Locked")})
        self.assertTrue(found.names >= {"Room", "Hall", "Door", "enter", "LIMIT", "inner"})
        self.assertFalse(found.names & {"doors", "later", "T"})

    def test_names_that_are_there_are_found(self):
        for name in ("rpc/send.rs", "rpc/send.rs:send_call", "Qp::busy_poll", "base::spin",
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
