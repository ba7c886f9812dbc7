# SPDX-License-Identifier: GPL-2.0
"""Finds public items of the protocol core that the module does not use.

The compiler assumes that a crate's public items are used. So a copy of the core is put into a copy
of the driver, as a private module. In that copy the compiler's analysis of dead code begins at the
module's entry points. It follows every call, method, constant and constructed variant, and reports
the items that it does not reach. Tests, benches, fuzzers and examples are left out. The core must
not permit unused items: the check reports each line of the core with `dead_code`.

The core's modules for the server are not compiled into the client's module, so this check does not
see them. Only the server's driver uses them. A cfg attribute excludes these modules from the
client's module. No other code of the core may have such an attribute.

Limits: a trait's methods count as used if the trait is used. Fields and re-exports are not checked.
Code under a condition is checked as the kernel compiles it.
"""

import itertools
import re
import shutil

from ..artefacts import module
from ..base.paths import REPO
from ..base.ui import LabError

# Rust modules of the core that are compiled for the server only, and the attribute above each of
# them.
SERVER = ("responder", "served")
ROOM = re.compile(r"^#\[cfg\(any\(not\(CONFIG_RUST\), xprtrdma_server\)\)\]\n"
                  rf"(?=pub mod (?:{'|'.join(SERVER)});$)", re.MULTILINE)
HIDES = re.compile(r"\bcfg[^\n]*\b(?:xprtrdma_server|not\(CONFIG_RUST\))(?!, no_std)")
CORE = "xprtrdma_proto"
DRIVER = "xprtrdma_client"
# An unused item that must be found: otherwise the check itself does not work.
CANARY = "planted_by_the_lab_and_used_by_nobody"
NOT_SOURCE = shutil.ignore_patterns("target", "tests", "fuzz", "benches", "examples")
NEVER = re.compile(r"^(?:warning|error): (.* never (?:used|constructed))$")
PLACE = re.compile(r"^ *--> .*?/((?:proto|client)/(?!\.\./)(?:(?!/\.\./)\S)+)$")
EXCUSE = re.compile(r"\bdead_code\b")
LABEL = re.compile(r"^ *(\d+)? *\| +(?:pub(?:\([a-z ]+\))? )?(?:const )?"
                   r"(?:fn |const |struct |enum )?(\w+)")


def fold(source, tree):
    """Makes a copy of the module's source below `tree`, in which the core is a part of the driver.
    """
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(source / "rust", tree / "rust", ignore=NOT_SOURCE)
    shutil.copy(source / "Kbuild", tree / "Kbuild")
    rust = tree / "rust"
    for path in (rust / "proto").rglob("*.rs"):
        change(path, r"(?<![\w$])crate(?=::)", f"crate::{CORE}")
    for path in (rust / "client").rglob("*.rs"):
        change(path, rf"(?<![\w:`]){CORE}(?=::)", f"crate::{CORE}")
    core = rust / f"proto/{CORE}.rs"
    change(core, r"^#!\[cfg_attr.*\n", "")
    change(core, r"\Z", f"\npub fn {CANARY}() {{}}\n")
    change(rust / f"client/{DRIVER}.rs", r"\A((?:\s*|//.*|#!\[.*)\n)*",
           rf'\g<0>#[path = "../proto/{CORE}.rs"]\nmod {CORE};\n', 1)
    kbuild = rust / "Kbuild"
    change(kbuild, rf"^\tproto/{CORE}\.o \\\n", "", 1)
    change(kbuild, rf" \$\(obj\)/proto/{CORE}\.o", "", 1)
    change(kbuild, r"^(RUSTFLAGS_client/\S+ :=) \$\(call use,proto\)",
           r"\g<1> --cap-lints=warn -Aunreachable_pub", 1)


def change(path, old, new, times=None):
    """Replaces all matches of a pattern in a file. Raises an error unless there are exactly `times`
    matches."""
    text, count = re.subn(old, new, path.read_text(), count=times or 0, flags=re.MULTILINE)
    if times and count != times:
        raise LabError(f"{path}: no {old}")
    path.write_text(text)


def found(log):
    """Returns the unused items that the log of a build reports, with their files and lines. The
    item that the check has added on purpose is left out."""
    lines, canary, complaints = log.splitlines(), False, []
    for number, line in enumerate(lines):
        never = NEVER.match(line)
        place = PLACE.match("".join(lines[number + 1:number + 2]))
        if not never or not place:
            continue
        if CANARY in line:
            canary = True
            continue
        complaints.append(f"rust/{place[1]}: {never[1]}{names(lines[number + 2:], never[1])}")
    if not canary:
        complaints.append("the compiler did not tell of an unused item that the lab had planted")
    return complaints


def excuses(rust):
    """Yields a line for each item of the core with an attribute that permits the item to be unused.
    """
    for path in sorted((rust / "proto").rglob("*.rs")):
        name = path.relative_to(rust)
        if name.parts[1] in ("target", "tests", "fuzz", "benches", "examples"):
            continue
        text = path.read_text()
        for excuse in EXCUSE.finditer(text):
            line = text.count("\n", 0, excuse.start()) + 1
            yield f"rust/{name}:{line}: excused from being used"


def hidden(rust):
    """Yields a line for each cfg attribute that excludes code of the core from the client's module.
    The attributes of the core's modules for the server are left out."""
    for path in sorted((rust / "proto").rglob("*.rs")):
        name = path.relative_to(rust)
        if name.parts[1] in ("target", "tests", "fuzz", "benches", "examples"):
            continue
        text = ROOM.sub("\n", path.read_text())
        for found in HIDES.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"rust/{name}:{line}: hidden from the client's module, and no room of the server"


def names(lines, what):
    """Returns the names of the unused items if the first line of the compiler's warning does not
    name them.
    """
    if not what.startswith("multiple"):
        return ""
    listed = []
    for line, below in itertools.pairwise(lines):
        if not line.strip():
            break
        if re.match(r"^ *\| +\^+$", below) and (label := LABEL.match(line)):
            listed.append(label[2])
    return f": {', '.join(listed)}"


def check(root, kernel):
    """Builds the copy of the driver that contains the core. Returns a list of problems."""
    tree = REPO / "build/unused"
    objects = tree.with_name("unused-objects")
    fold(REPO, tree)
    shutil.rmtree(objects, ignore_errors=True)
    module.build(root, kernel, tree=tree, objects=objects)
    rust = REPO / "rust"
    return [*excuses(rust), *hidden(rust), *found((objects / "build.log").read_text())]
