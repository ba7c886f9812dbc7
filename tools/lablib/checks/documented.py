# SPDX-License-Identifier: GPL-2.0
"""Whether the guide has what the module says and shows, and pages name what there is."""

import functools
import itertools
import re

from ..base.paths import REPO

RUST = REPO / "rust"
# Those that can print.
CRATES = ("rdma", "sunrpc", "transport")
# The pages for administrators.
GUIDE = tuple(REPO / "Documentation" / name for name in (
    "admin-guide.rst", "messages.rst", "observing.rst"))
PRINT = re.compile(r'\bpr_(?:err|warn|notice|info)!\(\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
# What stands for a value, and how a literal goes on in the next line.
HOLE = re.compile(r"\{[^{}]*\}")
CONTINUED = re.compile(r"\\\n\s*")
COUNTER = re.compile(r'^    \w+ = "(\w+)",$', re.MULTILINE)
NAME = re.compile(r'Self::\w+(?: \{ \.\. \})? => "([^"]+)"')
LABEL = re.compile(r'writeln!\(\s*f,\s*"([a-z][a-z_ ]*): ')
EVENT = re.compile(r"^(?:TRACE_EVENT|DEFINE_EVENT)\((?:\w+, )?(\w+)", re.MULTILINE)
# The status of work that did not fail, which ends no connection.
NEVER_SHOWN = ("success",)
PARAMETER = re.compile(r"^(?:        (?=\w+: u32 \{$)|module_param\()(\w+)\b", re.MULTILINE)
# The pages that tell where things are, and what names a thing there: a file, perhaps with something
# in it, a path, a type, a function.
PAGES = tuple(REPO / "Documentation" / name for name in (
    "architecture.rst", "gotchas.rst", "version-two.rst"))
LITERAL = re.compile(r"``([^`\s]+)``")
FILE = re.compile(r"([\w/]+\.rs)(?::([\w:]+))?")
PATH = re.compile(r"(?:\w+::)+\w+(?:\(\))?|[A-Z]\w+|[a-z]\w*_\w+(?:\(\))?")
# In pages of both kinds: what a link leads to.
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)|:doc:`([\w-]+)`")
SECTION = re.compile(r"(?<!:)`([^`<]+)`_(?!_)")
# Names of the kernel that the source does not have.
KERNEL = {"DEVICE_REMOVAL", "NEED_RECV", "XPRT_CONNECTING", "flush_dcache_page", "ib_client",
          "rq_pin", "xprt_transmit"}


def messages():
    """Each log message: its literal pieces."""
    for path in sorted(path for crate in CRATES for path in (RUST / crate).rglob("*.rs")
                       if "tests" not in path.parts):
        for literal in PRINT.findall(path.read_text()):
            text = CONTINUED.sub("", literal).replace('\\"', '"').replace("\\n", "")
            yield [piece.strip() for piece in HOLE.split(text)]


def names():
    """(kind, name) of everything with a name of its own."""
    for kind, pattern, files in (
            ("counter", COUNTER, ("proto/error.rs",)),
            ("cause", NAME, ("proto/conn/cause.rs", "proto/conn/seen.rs", "proto/conn/device.rs",
                             "proto/wc.rs")),
            ("line of debugfs", LABEL, ("transport/observe/debugfs.rs",)),
            ("tracepoint", EVENT, ("helpers/trace.h",)),
            ("parameter", PARAMETER, ("transport/xprtrdma_transport.rs", "helpers/settings.c"))):
        found = [name for file in files for name in pattern.findall((RUST / file).read_text())]
        if not found:
            yield kind, "(none found in the source: is this check out of date?)"
        yield from ((kind, name) for name in found if name not in NEVER_SHOWN)


def guide():
    """The text of its pages."""
    return "".join(page.read_text() for page in GUIDE)


def missing(text=None):
    """What the guide lacks, a line each."""
    text = " ".join((text or guide()).split())
    for pieces in messages():
        # The guide has words of its own for values, and leaves advice out.
        longest = max(pieces, key=len)
        if longest.split(": ")[0] not in text:
            yield f"log message: {longest}"
    for kind, name in names():
        if not re.search(rf"``[^`]*\b{re.escape(name)}\b[^`]*``", text):
            yield f"{kind}: {name}"


@functools.cache
def source():
    """File below rust/, without that -> the words of its text."""
    return {str(path.relative_to(RUST)): set(re.findall(r"\w+", path.read_text(errors="replace")))
            for ending in ("rs", "c", "h") for path in RUST.rglob(f"*.{ending}")
            if "target" not in path.parts}


def stale(text):
    """Names of a page that the source does not have, each with what is missing."""
    for name in sorted(set(LITERAL.findall(text)) - KERNEL):
        if match := FILE.fullmatch(name):
            path, item = match.groups()
            files = [words for file, words in source().items() if f"/{file}".endswith(f"/{path}")]
            wanted = re.findall(r"\w+", item or "")
            if not files:
                yield f"{name}: no such file"
            elif not any(words.issuperset(wanted) for words in files):
                yield f"{name}: not in that file"
        elif PATH.fullmatch(name):
            crate, *wanted = re.findall(r"\w+", name)
            if not any(file.startswith(f"{crate}/") for file in source()):
                crate, wanted = "", [crate, *wanted]
            # A type and its function are in one file; what is behind the name of a crate is in it.
            if not any(words.issuperset(wanted[-2:]) for file, words in source().items()
                       if file.startswith(crate)):
                yield f"{name}: nowhere in the source"


def dead(path):
    """Links of a page that lead nowhere."""
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
