# SPDX-License-Identifier: GPL-2.0
"""The guide has everything; and the check notices when it has not."""

import unittest

from lablib.checks import documented


class Documented(unittest.TestCase):

    def test_guide_has_everything(self):
        self.assertEqual(list(documented.missing()), [])

    def test_every_kind_is_missed(self):
        guide = documented.GUIDE.read_text()
        for gone in ("fast registration", "late_replies", "stale connection at the peer",
                     "receives posted", "xprtrdma_discard", "region_pages"):
            self.assertIn(gone, guide)
            self.assertTrue(list(documented.missing(guide.replace(gone, "gone"))), gone)


if __name__ == "__main__":
    unittest.main()
