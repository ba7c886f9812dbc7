# SPDX-License-Identifier: GPL-2.0
"""The fault matrix has for each kind of run the faults that mean something for it."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "selftests"))

from lib import matrix


def names(transport, by_responder, over_rails=False):
    """The faults of runs in this version of RPC-over-RDMA, through the responder or not."""
    world = types.SimpleNamespace(transport=transport, by_responder=by_responder,
                                  over_rails=over_rails)
    return {fault.name for fault in matrix.FAULTS if fault.belongs(world)}


class Matrix(unittest.TestCase):
    OF_RESPONDER = frozenset(("responder-restart", "version-change"))

    def test_faults_of_the_responder_need_it(self):
        self.assertLessEqual(self.OF_RESPONDER, names(2, True))
        self.assertFalse(self.OF_RESPONDER & names(2, False))
        self.assertEqual(names(2, True) - names(2, False), self.OF_RESPONDER)

    def test_our_server_has_the_faults_of_a_server(self):
        self.assertLessEqual({"power-cut", "knfsd-restart", "few-credits", "server-device"},
                             names(2, False))

    def test_faults_of_a_rail_need_rails(self):
        rails = names(1, False, True) - names(1, False)
        self.assertTrue(rails)
        self.assertTrue(all(name.startswith("rail-") for name in rails))


if __name__ == "__main__":
    unittest.main()
