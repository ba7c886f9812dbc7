# SPDX-License-Identifier: GPL-2.0
"""Searches the crates with unsafe code for public types that no example in the documentation uses.

Builds of the modules with clippy compile the examples (`rust/kunit/examples.awk`), so the build
fails if an example does not fit its crate. This check only searches the examples for the names of
the types.
"""

import re

CRATES = ("base", "rdma", "sunrpc")
TYPE = re.compile(r"^pub (?:unsafe )?(?:struct|enum|trait) (\w+)", re.MULTILINE)
COMMENT = re.compile(r"\s*//[/!] ?(.*)")


def examples(text):
    """Yields the lines of the examples in a source."""
    kind = None
    for line in text.splitlines():
        comment = COMMENT.match(line)
        if not comment:
            kind = None
        elif comment[1].startswith("```"):
            kind = None if kind else comment[1].strip("`").strip() or "rust"
        elif kind == "rust":
            yield comment[1]


def check(rust):
    """Yields a line for each type of the crates below `rust` that no example uses."""
    files = {path.relative_to(rust): path.read_text()
             for crate in CRATES for path in sorted((rust / crate).rglob("*.rs"))
             if not path.relative_to(rust / crate).parts[0].startswith("tests")}
    used = {word for text in files.values() for line in examples(text)
            for word in re.findall(r"\w+", line)}
    for name, text in files.items():
        for found in TYPE.finditer(text):
            if found[1] not in used:
                line = text.count("\n", 0, found.start()) + 1
                yield f"rust/{name}:{line}: no example uses {found[1]}"
