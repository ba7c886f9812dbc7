# SPDX-License-Identifier: GPL-2.0
"""Tests that the fault matrix contains the right faults for each kind of run."""

import pathlib
import sys
import types
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "selftests"))

from lib import matrix
from lib.env import ENV


def names(transport, serving="intree", over_rails=False):
    """Returns the names of the faults that belong to a run with this version of RPC-over-RDMA and
    this kind of server."""
    world = types.SimpleNamespace(transport=transport, over_rails=over_rails)
    with unittest.mock.patch.object(ENV, "serving", serving):
        return {fault.name for fault in matrix.FAULTS if fault.belongs(world)}


class Matrix(unittest.TestCase):
    OF_RESPONDER = frozenset(("responder-restart", "version-change"))

    def test_the_responder_is_there_for_version_two_of_the_kernels_server(self):
        self.assertLessEqual(self.OF_RESPONDER, names(2))
        for transport, serving in ((1, "intree"), (1, "ours"), (2, "ours")):
            self.assertFalse(self.OF_RESPONDER & names(transport, serving))

    def test_our_server_grants_the_same_always(self):
        for transport in (1, 2):
            self.assertEqual(names(transport) - names(transport, "ours") - self.OF_RESPONDER,
                             {"few-credits"})

    def test_faults_of_a_rail_need_rails(self):
        rails = names(1, over_rails=True) - names(1)
        self.assertTrue(rails)
        self.assertTrue(all(name.startswith("rail-") for name in rails))


if __name__ == "__main__":
    unittest.main()
