# SPDX-License-Identifier: GPL-2.0
"""Tests the cables between the two machines. Each cable has one end in each machine. A command for
one end of a cable must reach exactly this end.
"""

import types
import unittest
from typing import Any

from lablib.machine import pair, qemu


class End:
    """A machine that records the calls of its methods."""

    def __init__(self):
        self.done = []

    def plug(self, cable, into):
        self.done.append((cable, into))

    def stop(self):
        self.done.append("off")


def ends() -> Any:
    """Returns an object with only those parts of a pair that the commands need."""
    return types.SimpleNamespace(server=End(), client=End())


class Cables(unittest.TestCase):
    def test_one_cable_unless_asked(self):
        found = pair.environment("rxe", 1)
        self.assertEqual(found["NFS_SERVERS"], found["NFS_SERVER"])
        self.assertEqual(found["NFS_SERVERS6"], found["NFS_SERVER6"])
        self.assertEqual((found["LAB_DEVICES"], found["LAB_PROVIDER"]), ("rxe0", "rxe"))

    def test_each_cable_has_networks_and_a_device_of_its_own(self):
        server, client = (pair.addresses(role, 2) for role in ("server", "client"))
        for mine, its in zip(server, client, strict=True):
            for one, other in zip(mine, its, strict=True):
                # Both addresses are in the same network, but belong to different hosts.
                self.assertEqual(one.rpartition("1/")[::2], other.rpartition("2/")[::2])
        self.assertEqual(len({a for end in (server, client) for p in end for a in p}), 8)
        for provider, devices in (("rxe", "rxe0 rxe1"), ("siw", "siw0 siw1"),
                                  ("mixed", "rxe0 siw1")):
            found = pair.environment(provider, 2)
            self.assertEqual(found["LAB_DEVICES"], devices)
            self.assertEqual(found["NFS_SERVERS"].split(), [p[0][:-3] for p in server])
            self.assertEqual(found["NFS_SERVERS6"].split(), [p[1][:-3] for p in server])

    def test_ends_are_joined(self):
        lab = types.SimpleNamespace(mac=pair.HOSTS.get)
        options = {}
        for role, peer in (("server", "client"), ("client", "server")):
            machine: Any = types.SimpleNamespace(role=role, lab=lab)
            options[role] = [qemu.Machine.interface(machine, f"net{n}", n, peer) for n in (0, 1)]
        words = {role: [dict(w.split("=") for w in one[1].split(",")[1:]) for one in both]
                 for role, both in options.items()}
        for mine, its in zip(words["server"], words["client"], strict=True):
            self.assertEqual((mine["local.path"], mine["remote.path"]),
                             (its["remote.path"], its["local.path"]))
        macs = [one[3].rpartition("mac=")[2] for both in options.values() for one in both]
        self.assertEqual(len(set(macs)), 4)

    def test_orders_reach_the_right_end(self):
        for argv, role, done in (
                (("client", "unplug"), "client", (0, False)),
                (("client", "plug", "0"), "client", (0, True)),
                (("client", "unplug", "1"), "client", (1, False)),
                (("server", "plug", "1"), "server", (1, True)),
                (("server", "off"), "server", "off")):
            both = ends()
            pair.Pair.power(both, *argv)
            self.assertEqual({r: getattr(both, r).done for r in ("server", "client")},
                             {"server": [], "client": []} | {role: [done]}, argv)

    def test_other_orders_are_refused(self):
        both = ends()
        for argv in (("client", "off"), ("server", "burn"), ("switch", "plug"),
                     ("client", "plug", "x"), ("client",)):
            with self.assertRaises((KeyError, TypeError, ValueError), msg=argv):
                pair.Pair.power(both, *argv)
        self.assertEqual(both.server.done + both.client.done, [])


if __name__ == "__main__":
    unittest.main()
