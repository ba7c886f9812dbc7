# SPDX-License-Identifier: GPL-2.0
"""Checks that the administrator's guide describes everything that the module logs and shows, and
that all items that pages name exist in the source."""

import dataclasses
import functools
import importlib.util
import itertools
import re

from ..base.paths import REPO

RUST = REPO / "rust"
# Crates that log messages.
CRATES = ("rdma", "sunrpc", "client")
# The pages for administrators.
GUIDE = tuple(REPO / "Documentation" / name for name in (
    "admin-guide.rst", "rails.rst", "messages.rst", "observing.rst", "server.rst"))
PRINT = re.compile(r'\bpr_(?:err|warn|notice|info)!\(\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
# Pattern of the placeholder of a value in a message.
HOLE = re.compile(r"\{[^{}]*\}")
# Pattern of the place where a string literal continues on the next line.
CONTINUED = re.compile(r"\\\n\s*")
NAME = re.compile(r'Self::\w+(?: \{ \.\. \})? => "([^"]+)"')
LABEL = re.compile(r'writeln!\(\s*f,\s*"([a-z][a-z_ ]*): ')
EVENT = re.compile(r"^(?:TRACE_EVENT|DEFINE_EVENT)\((?:\w+, )?(\w+)", re.MULTILINE)
# The status of a work request that succeeded. A success ends no connection, so this status is never
# shown as the cause of a disconnect.
NEVER_SHOWN = ("success",)
PARAMETER = re.compile(r"^(?:        (?=\w+: u32 \{$)|module_param\()(\w+)\b", re.MULTILINE)
# Pages that name items of the source.
PAGES = tuple(REPO / "Documentation" / name for name in (
    "architecture.rst", "gotchas.rst", "version-two.rst"))
# Patterns of names in a page: any literal, a file or an item in a file, and a path, type or
# function.
LITERAL = re.compile(r"``([^`\s]+)``")
FILE = re.compile(r"([\w/]+\.rs)(?::([\w:]+))?")
PATH = re.compile(r"(?:\w+::)+\w+(?:\(\))?|[A-Z]\w+|[a-z]\w*_\w+(?:\(\))?")
# Patterns of Rust items in rustfmt's layout: lines that begin a block, and lines within a block.
ITEM = re.compile(r"(?:fn|struct|enum|union|trait|const|static|type|mod|macro_rules!)\s+(?:mut\s+)?"
                  r"(\w+)")
OWNER = re.compile(r"^( *)(?:pub(?:\([^)]*\))? |unsafe )*(impl|trait|enum|struct|union)\b(.*)$")
MEMBER = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:[\w\"]+ )*?(?:fn|const|type) (?!fn )(\w+)"
                    r"|^(?:pub(?:\([^)]*\))? )?(\w+)(?:[,:({]| [={]|$)")
# Directories whose contents are not in the module.
NO_MODULE = {"tests", "fuzz", "benches", "examples"}
# Patterns of the targets of links, in Markdown and in reStructuredText.
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)|:doc:`([\w-]+)`")
SECTION = re.compile(r"(?<!:)`([^`<]+)`_(?!_)")
# Names of kernel items that a page may contain although the source does not contain them.
KERNEL = {"DEVICE_REMOVAL", "NEED_RECV", "XPRT_CONNECTING", "flush_dcache_page", "ib_client",
          "rq_pin", "xprt_transmit"}


def messages():
    """Yields a list for each log message: the pieces of text between its values."""
    for path in sorted(path for crate in CRATES for path in (RUST / crate).rglob("*.rs")
                       if "tests" not in path.parts):
        # Comments are left out, because they contain examples of messages.
        for literal in PRINT.findall(re.sub(r"(?m)^\s*//.*", "", path.read_text())):
            text = CONTINUED.sub("", literal).replace('\\"', '"').replace("\\n", "")
            yield [piece.strip() for piece in HOLE.split(text)]


def names():
    """Yields (kind, name) of the causes of disconnects, the lines of debugfs files, the tracepoints
    and the parameters."""
    for kind, pattern, files in (
            ("cause", NAME, ("proto/conn/cause.rs", "proto/conn/failure_details.rs",
                             "proto/conn/device.rs", "proto/wc.rs")),
            ("line of debugfs", LABEL, ("client/observe/debugfs.rs",)),
            ("tracepoint", EVENT, ("helpers/trace.h", "helpers/svc_trace.h")),
            ("parameter", PARAMETER, ("client/xprtrdma_client.rs", "helpers/settings.c"))):
        found = [name for file in files for name in pattern.findall((RUST / file).read_text())]
        if not found:
            yield kind, "(none found in the source: is this check out of date?)"
        yield from ((kind, name) for name in found if name not in NEVER_SHOWN)


def tables():
    """Returns the Python module that makes the tables of the pages. It belongs to no package, so it
    is loaded by its path."""
    path = REPO / "Documentation/result_tables.py"
    spec = importlib.util.spec_from_file_location("result_tables", path)
    if not spec or not spec.loader:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def guide():
    """Returns the text of the administrator's pages with their tables. The pages write each
    quotation mark in a table twice. The returned text contains it once."""
    made = tables()
    return "".join(made.expanded(page.read_text()) for page in GUIDE).replace('""', '"')


def missing(text=None):
    """Yields a line for each message or name that the guide lacks."""
    text = " ".join((text or guide()).split())
    for pieces in messages():
        # A page for administrators may write the values of a message differently, and may omit the
        # advice at the message's end. So the check looks only for the longest literal part of the
        # message.
        longest = max(pieces, key=len)
        if longest.split(": ")[0] not in text:
            yield f"log message: {longest}"
    for kind, name in names():
        if not re.search(rf"``[^`]*(?<!\w){re.escape(name)}(?!\w)[^`]*``", text):
            yield f"{kind}: {name}"


@functools.cache
def source():
    """Returns, for each file below rust/, the set of words in its text."""
    return {str(path.relative_to(RUST)): set(re.findall(r"\w+", path.read_text(errors="replace")))
            for ending in ("rs", "c", "h") for path in RUST.rglob(f"*.{ending}")
            if "target" not in path.parts}


@dataclasses.dataclass
class Items:
    """The items that a Rust file declares."""

    names: set     # names of all items and members
    # pairs of a type or trait and one of its functions, constants, variants or fields
    members: set


def owner(words):
    """Returns the type of an impl, or the name after `enum` and similar words."""
    # Angle brackets of parameters may be nested.
    while words != (plain := re.sub(r"<[^<>]*>", "", words)):
        words = plain
    words = re.split(r"\bwhere\b", words)[0]
    _, implements, of = words.partition(" for ")
    name, *_ = re.findall(r"\w+(?=[^\w:]|:[^:]|$)", of if implements else words)
    return name


def items_of(text):
    """Returns the declarations of a text. A line that declares a member is indented by four columns
    more than the line that begins its block."""
    found, inside, lines = Items(set(ITEM.findall(text)), set()), [], iter(text.splitlines())
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if match := OWNER.match(line):
            words = match[3]
            while not re.search(r"[{;]\s*$|\}$", words) and (more := next(lines, None)) is not None:
                words += f" {more.strip()}"
            if words.rstrip().endswith("{"):
                inside.append((depth, owner(words.rstrip(" {"))))
            continue
        while inside and line.strip() and depth <= inside[-1][0]:
            inside.pop()
        if inside and depth == inside[-1][0] + 4 and (match := MEMBER.match(line.strip())):
            found.members.add((inside[-1][1], match[1] or match[2]))
    found.names |= {name for _, name in found.members}
    return found


@functools.cache
def items():
    """Returns the declarations in each Rust file of the module, in a dictionary. The keys are the
    paths of the files below rust/."""
    return {file: items_of((RUST / file).read_text()) for file in source()
            if file.endswith(".rs") and not NO_MODULE.intersection(file.split("/"))}


def modules(name):
    """Returns the files of the modules with this name, at any depth."""
    return [file for file in items() if re.search(rf"(^|/){name}(\.rs$|/)", file)]


def declared(path, files):
    """Returns whether one of the files declares the last item of the path. If a type precedes this
    item in the path, the item must be declared in that type.
    """
    *before, last = path
    if before and before[-1][0].isupper():
        return any((before[-1], last) in items()[file].members for file in files)
    if before:
        files = [file for file in files if file in modules(before[-1])]
    return any(last in items()[file].names for file in files)


def of_kernel(path):
    """Returns whether the path probably names an item of a kernel type. This is assumed if one
    source file contains all names of the path, and also `bindings::` followed by the first name."""
    return any(words.issuperset(path) and f"bindings::{path[0]}" in (RUST / file).read_text()
               for file, words in source().items())


def stale(text):
    """Yields a line for each name in a page that the source does not contain."""
    for name in sorted(set(LITERAL.findall(text)) - KERNEL):
        if match := FILE.fullmatch(name):
            path, item = match.groups()
            files = [file for file in items() if f"/{file}".endswith(f"/{path}")]
            wanted = re.findall(r"\w+", item or "")
            if not files:
                yield f"{name}: no such file"
            elif wanted and not (declared(wanted, files) if len(wanted) > 1 else
                                 any(wanted[0] in items()[file].names for file in files)):
                yield f"{name}: not in that file"
        elif PATH.fullmatch(name):
            yield from stale_path(name)


def stale_path(name):
    """Yields a line if the source does not contain `name`, which is a path, a type or a function.
    """
    crate, *wanted = re.findall(r"\w+", name)
    if not any(file.startswith(f"{crate}/") for file in source()):
        crate, wanted = "", [crate, *wanted]
    files = [file for file in items() if file.startswith(crate)]
    if "::" not in name:
        # A field or a constant of the kernel is also accepted.
        if not any(words.issuperset(wanted) for words in source().values()):
            yield f"{name}: nowhere in the source"
    elif not (declared(wanted[-2:], files) or of_kernel(wanted)
              or (name.islower() and any(file in files for file in modules(wanted[-1])))):
        yield f"{name}: nowhere in the source"


def dead(path):
    """Yields the links of a page whose targets do not exist."""
    text = path.read_text()
    for file, page in LINK.findall(text):
        if not (path.parent / (file or f"{page}.rst")).exists():
            yield f"{file or page}: no such page"
    if path.suffix == ".rst":
        lines = text.splitlines()
        titles = {title for title, under in itertools.pairwise(lines)
                  if title and re.fullmatch(r"([-=~])\1*", under) and len(under) >= len(title)}
        for title in {" ".join(found.split()) for found in SECTION.findall(text)} - titles:
            yield f"{title}: no such section"
