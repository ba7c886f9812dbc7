# SPDX-License-Identifier: GPL-2.0
"""Checks that no files of the module use each other in a circle, and that no folders use each other
in a circle.

A use of one file by another file is called an arrow. Each file has a storey, which is one above the
highest storey of the files that it uses. So every arrow points down. Files and folders that use
each other in a circle have no storey, and the check fails. The check also fails if a file is too
long.

To find the arrows, the check looks at each path in a `use` declaration or in code. It follows the
path, through modules and re-exports of our crates, to the file that declares the item. A call of
`xprt.data()` counts as a use of the type that `data()` returns.

The following uses do not count as arrows:

- uses in tests and in documentation;
- uses in the bounds of type parameters. For example, a method of the trait `Transport` may name the
  type `Call<T: Transport>`. If the bound counted, the files of the trait and of the type would form
  a circle.
- calls of a method through a value, unless the file names the type of the value.
"""

import dataclasses
import pathlib
import re

from ..base.paths import REPO
from ..base.ui import say

# The crates, from the lowest to the highest. Kbuild determines which crate may use which other
# crate.
CRATES = ("base", "proto", "rdma", "sunrpc", "svc", "client", "server", "rds_proto", "rds",
          "rds_transport")
PREFIX = "xprtrdma_"
LONGEST = 500

# Modules that the module! macro makes in the root file. They contain the values of parameters. The
# check ignores uses of these modules.
GENERATED = {"module_parameters"}
# Patterns for Rust source. `DATA` finds the function call by which a driver gets its own data from
# a transport of the RPC client. `DATA_TYPE` finds the declaration of the type of these data.
DATA = re.compile(r"\.data\(\)")
DATA_TYPE = re.compile(r"^\s*type Data = (\w+);", re.MULTILINE)

# Pattern of comments, strings and character literals, but not of lifetimes.
NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"'
    r"|b?'(?:\\[^\n]{1,8}?|[^'\\])'", re.DOTALL)
MOD = re.compile(r"^\s*(?:pub(?:\([a-z ]+\))? )?mod (\w+);", re.MULTILINE)
INNER = re.compile(r"\b(?:pub(?:\([a-z ]+\))? )?mod (\w+)\s*\{")
USE = re.compile(r"\b(pub(?:\([a-z ]+\))? )?use ([^;]+);")
PATH = re.compile(r"(?<![\w:.'])(?:\$?\w+::)+(?:\w+|\*)|(?<![\w:.'])[A-Za-z_]\w*")
TESTS = re.compile(r"#\[cfg\((?:test|xprtrdma_kunit)\)\]\s*(?:(?:pub(?:\([a-z ]+\))? )?mod \w+"
                   r"(?P<end>;)|)")
BOUND = re.compile(r"(?:(?:^|[<,(\s])'?[A-Z]\w*\s*:|\+)\s*(?:\w+::)*$")


@dataclasses.dataclass
class Use:
    """Describes one name that a `use` declaration imports."""

    path: tuple
    name: str
    public: bool


@dataclasses.dataclass(eq=False)
class File:
    """A source file, which is one module, with the items that it declares and uses."""

    path: pathlib.Path
    module: tuple
    text: str = ""
    uses: list = dataclasses.field(default_factory=list)
    children: set = dataclasses.field(default_factory=set)

    def short(self, rust):
        """Returns the path of the file, relative to rust/."""
        return str(self.path.relative_to(rust))


def leaves(tree, prefix=()):
    """Yields (path, name) for each leaf of the tree in a `use` declaration. The text of the tree
    must not contain blanks, except around `as`."""
    depth = begin = 0
    parts = []
    for at, letter in enumerate(tree):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append(tree[begin:at])
            begin = at + 1
    for part in filter(None, (*parts, tree[begin:])):
        head, brace, rest = part.partition("{")
        path = (*prefix, *(word for word in head.rstrip(":").split("::") if word))
        if brace:
            yield from leaves(rest[:-1], path)
            continue
        last, _, alias = path[-1].partition(" as ")
        path = (*path[:-1], last)
        if last == "self":
            path = path[:-1]
        yield path, alias or path[-1]


class Crates:
    """All modules of our crates."""

    def __init__(self, rust):
        self.rust = rust
        self.files = {}
        for crate in CRATES:
            root = rust / crate / f"{PREFIX}{crate}.rs"
            if root.exists():
                self.read(root, (PREFIX + crate,), root.parent)
        self.data = {file.module[0]: (*file.module, found[1]) for file in self.files.values()
                     if (found := DATA_TYPE.search(file.text))}

    def read(self, path, module, below):
        """Reads a module and the modules that it declares. The files of the declared modules are in
        the directory `below`."""
        file = File(path, module, NOT_CODE.sub(lambda found: '""' if found[0][-1:] == '"' else "",
                                               path.read_text()))
        file.text = TESTS.sub("", file.text)
        for public, tree in USE.findall(file.text):
            tidy = re.sub(r"\s*\bas\s+", " as ", " ".join(tree.split()))
            tidy = re.sub(r"\s*([{},]|::)\s*", r"\1", tidy)
            file.uses += [Use(found, name, bool(public)) for found, name in leaves(tidy)]
        self.files[module] = file
        for name in MOD.findall(file.text):
            child = next((found for found in (below / f"{name}.rs", below / name / "mod.rs")
                          if found.exists()), None)
            if child:
                file.children.add(name)
                self.read(child, (*module, name), below / name)

    def absolute(self, file, path):
        """Returns a path in the form that begins with the crate. Returns None if the path does not
        lead to an item of our crates, or cannot be resolved."""
        module, first = file.module, path[0].lstrip("$")
        if first == "crate":
            return (module[0], *path[1:])
        if first in {"self", "super"}:
            while path and path[0] in {"self", "super"}:
                module = module[:-1] if path[0] == "super" else module
                path = path[1:]
            return (*module, *path)
        if (first,) in self.files:
            return path
        if first in file.children:
            return (*module, *path)
        return None

    def home(self, path, seen=()):
        """Follows all re-exports of an item. Returns the file that declares the item."""
        for at in range(len(path), 0, -1):
            file = self.files.get(path[:at])
            if file:
                break
        else:
            return None
        if at == len(path) or path in seen:
            return file
        name, rest = path[at], path[at + 1:]
        for use in file.uses:
            target = self.absolute(file, use.path)
            if target and use.name == name:
                return self.home((*target, *rest), (*seen, path)) or file
        for use in file.uses:
            target = use.name == "*" and use.public and self.absolute(file, use.path[:-1])
            if target and re.search(rf"\b{name}\b", self.files[target].text
                                    if target in self.files else ""):
                return self.home((*target, name, *rest), (*seen, path))
        return file

    def named(self, file):
        """Yields the path of each item of our crates that a file uses. The path begins with the
        crate."""
        known = {use.name: self.absolute(file, use.path) for use in file.uses if not use.public}
        stars = [target for use in file.uses if use.name == "*"
                 if (target := self.absolute(file, use.path[:-1]))]
        code = USE.sub(lambda found: "\n" * found[0].count("\n"), file.text)
        yield from stars
        for found in PATH.finditer(code):
            path = tuple(found[0].split("::"))
            if BOUND.search(code[max(0, found.start() - 80):found.start()]):
                continue
            target = known.get(path[0])
            if target:
                target = (*target, *path[1:])
            elif len(path) > 1:
                target = self.absolute(file, path)
            if target and not GENERATED & set(target):
                yield target
        data = self.data.get(file.module[0])
        if data and DATA.search(code):
            yield data

    def arrows(self):
        """Returns, for each pair of files, the names of the second file's items that the first file
        uses."""
        found = {}
        for file in self.files.values():
            for path in self.named(file):
                home = self.home(path)
                if home and home is not file:
                    below = path[len(home.module):] if path[:len(home.module)] == home.module \
                        else path[-1:]
                    found.setdefault((file, home), set()).update(below[:1])
        return {(a.short(self.rust), b.short(self.rust)): names for (a, b), names in found.items()}


def room(path):
    """Returns the room of a file. A room is a folder directly below a crate. A file belongs to the
    room that contains the file, or that has the same name as the file."""
    crate, *inside = pathlib.PurePath(path).with_suffix("").parts
    return "/".join((crate, *inside[:1]))


def rooms(arrows):
    """Returns the arrows (uses) between rooms (folders of files), which follow from the arrows
    between files."""
    found = {}
    for (a, b), names in arrows.items():
        if room(a) != room(b):
            found.setdefault((room(a), room(b)), set()).update(names)
    return found


def storeys(names, arrows):
    """Returns the storey of each name, which is one above the highest storey of the names that it
    uses. The lowest storey is 1. Also returns the sets of names that use each other in a circle."""
    below = {name: {b for a, b in arrows if a == name} for name in names}
    circles = [one for one in strong(below) if len(one) > 1]
    tied = set().union(*circles)
    level = {}

    def of(name):
        if name not in level:
            level[name] = 1 + max((of(other) for other in below[name] - tied), default=0)
        return level[name]

    for name in set(names) - tied:
        of(name)
    return level, circles


def strong(below):
    """Returns the strongly connected parts of a graph, by Tarjan's algorithm. The graph contains
    for each name the names that it uses."""
    index, low, stack, parts = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(below[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part = set()
            while name not in part:
                part.add(stack.pop())
            parts.append(part)

    for name in sorted(below):
        if name not in index:
            visit(name)
    return parts


def circles(names, arrows):
    """Yields a line of text for each use (arrow) that is part of a circle of uses."""
    for circle in storeys(names, arrows)[1]:
        for (a, b), what in sorted(arrows.items()):
            if a in circle and b in circle:
                yield f"circle: {a} -> {b}: {', '.join(sorted(what))}"


def too_long(crates):
    """Yields a line for each file that is too long."""
    for file in crates.files.values():
        lines = len(file.path.read_text().splitlines())
        if lines >= LONGEST:
            yield f"rust/{file.short(crates.rust)}: {lines} lines, less than {LONGEST} wanted"


def floors(level):
    """Yields a list of the names on each storey, from the highest storey to the lowest storey."""
    for floor in sorted(set(level.values()), reverse=True):
        yield sorted(name for name, at in level.items() if at == floor)


def picture(crates, arrows):
    """Returns lines that show the rooms (folders) of each crate and the files of each room, from
    top to bottom.

    A name uses no name in a higher line, and no name in the same line.
    """
    names = {file.short(crates.rust) for file in crates.files.values()}
    lines = []
    for crate in reversed(CRATES):
        inside = {name for name in names if name.startswith(f"{crate}/")}
        between = rooms({(a, b): what for (a, b), what in arrows.items()
                         if a in inside and b in inside})
        level, _ = storeys({room(name) for name in inside}, between)
        lines.append(f"  {crate}")
        for floor in floors(level):
            single = []
            for one in floor:
                files = {name for name in inside if room(name) == one}
                if len(files) == 1:
                    single.append(one.partition("/")[2])
                    continue
                within = {(a, b): what for (a, b), what in arrows.items()
                          if a in files and b in files}
                title = f"{one.partition('/')[2]}/"
                for stage in floors(storeys(files, within)[0]):
                    what = "  ".join(pathlib.PurePath(name).stem for name in stage)
                    lines.append(f"    {title:<14}{what}")
                    title = ""
            if single:
                lines.append(f"    {'  '.join(single)}")
        lines.append("")
    return "\n".join(lines)


def complaints(rust=REPO / "rust"):
    """Returns a line for each arrow (use) between files, or between rooms, that use each other in a
    circle. Also returns a line for each file that is too long."""
    crates = Crates(rust)
    arrows = crates.arrows()
    names = {file.short(rust) for file in crates.files.values()}
    return [*circles(names, arrows),
            *circles({room(name) for name in names}, rooms(arrows)), *too_long(crates)]


def show():
    """Implements `tools/lab arrows`: prints all arrows (uses) between files. Fails if files or
    rooms use each other in a circle, or if a file is too long."""
    crates = Crates(REPO / "rust")
    arrows = crates.arrows()
    for (a, b), names in sorted(arrows.items()):
        print(f"{a} -> {b}: {', '.join(sorted(names))}")
    print()
    print(picture(crates, arrows))
    found = complaints()
    for line in found:
        say(line)
    between = len(rooms(arrows))
    say(f"{len(crates.files)} files, {len(arrows)} arrows among them, {between} among rooms; "
        f"{len(found)} complaints")
    return 1 if found else 0
