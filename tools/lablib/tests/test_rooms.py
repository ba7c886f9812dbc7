# SPDX-License-Identifier: GPL-2.0
"""Each room (a package of lablib) uses only the rooms below it."""

import ast
import pathlib
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
# The rooms (packages of lablib) that each room may use, besides itself.
BELOW = {"base": (), "artefacts": ("base",), "machine": ("base", "artefacts"),
         "guest": ("machine",), "bench": ("base", "artefacts", "machine"),
         "checks": ("base", "artefacts", "machine")}


def imports(path):
    """Yields each module of lablib that the file imports, as (room, module). A room is a package of
    lablib."""
    here = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        name = (node.module or "").split(".") if node.module else []
        if node.level:
            whole = [*here[:len(here) + 1 - node.level], *name]
        elif name[:1] == ["lablib"]:
            whole = name[1:]
        else:
            continue
        if len(whole) > 1:
            yield whole[0], whole[1]
        else:
            yield from ((whole[0] if whole else alias.name, alias.name) for alias in node.names)


class Rooms(unittest.TestCase):
    def test_no_arrow_goes_up(self):
        for path in sorted(PACKAGE.glob("*/*.py")):
            room = path.parent.name
            for used, _ in imports(path) if room in BELOW else ():
                self.assertIn(used, (room, *BELOW[room]), path)

    def test_no_circle_in_a_room(self):
        for room in BELOW:
            arrows = {path.stem: {module for used, module in imports(path) if used == room}
                      for path in (PACKAGE / room).glob("*.py")}
            while arrows:
                leaves = [name for name, used in arrows.items() if not used & set(arrows)]
                self.assertTrue(leaves, f"{room}: a circle among {sorted(arrows)}")
                for name in leaves:
                    del arrows[name]

    def test_every_room_is_known(self):
        rooms = {path.parent.name for path in PACKAGE.glob("*/*.py")}
        self.assertEqual(rooms, {*BELOW, "tests"})


if __name__ == "__main__":
    unittest.main()
