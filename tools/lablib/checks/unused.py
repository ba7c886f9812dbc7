# SPDX-License-Identifier: GPL-2.0
"""Finds public items of the protocol cores that the kernel modules do not use.

The compiler assumes that a crate's public items are used. So a copy of a core is put into a copy of
its driver, as a private module. In that copy the compiler's analysis of dead code begins at the
kernel module's entry points. It follows every call, method, constant and constructed variant, and
reports the items that it does not reach. Tests, benches, fuzzers and examples are left out. A core
must not permit unused items: the check reports each line of a core with `dead_code`.

The compiler runs with the arguments that kbuild has stored when it built the driver. It finds the
other crates of the module in the directory of that build.

The client and the server have the same core. Some of its modules are for the server, and a cfg
attribute excludes them from the client's kernel module. No other code of the core may have such an
attribute. Items of these modules must be used by the server, all other items by the client.

Limits: a trait's methods count as used if the trait is used. Fields and re-exports are not checked.
Conditional code is checked only in the configuration in which the kernel compiles it.
"""

import dataclasses
import itertools
import re
import shlex
import shutil
import subprocess

from ..artefacts import module
from ..base import cache, chroot
from ..base.paths import REPO
from ..base.ui import LabError

# Rust modules of the core that are compiled for the server only, and the attribute above each of
# them.
SERVER = ("responder", "served")
ROOM = re.compile(r"^#\[cfg\(any\(not\(CONFIG_RUST\), xprtrdma_server\)\)\]\n"
                  rf"(?=pub mod (?:{'|'.join(SERVER)});$)", re.MULTILINE)
HIDES = re.compile(r"\bcfg[^\n]*\b(?:xprtrdma_server|not\(CONFIG_RUST\))(?!, no_std)")


@dataclasses.dataclass(frozen=True)
class Driver:
    """A driver with its core. `core` and `name` are directories of crates."""

    variant: str
    core: str
    name: str
    # Arguments with which kbuild compiles the core, but not the driver.
    more: tuple
    # A pattern for the paths of files, relative to the directory of the core. The driver must use
    # the public items of each file whose path matches.
    files: re.Pattern


OF_SERVER = rf"(?:{'|'.join(SERVER)})(?:/|\.rs$)"
DRIVERS = (Driver("client", "proto", "client", (), re.compile(rf"(?!{OF_SERVER})")),
           Driver("server", "proto", "server", ("--cfg", "xprtrdma_server"),
                  re.compile(OF_SERVER)),
           Driver("rds", "rds_proto", "rds_transport", (), re.compile("")))
# The name of an unused item that the check adds to each core. If the compiler does not report this
# item, the check itself does not work.
CANARY = "planted_by_the_lab_and_used_by_nobody"
NOT_SOURCE = shutil.ignore_patterns("target", "tests", "fuzz", "benches", "examples")
NEVER = re.compile(r"^(?:warning|error): (.* never (?:used|constructed))$")
PLACE = re.compile(r"^ *--> .*/rust/(?:[a-z_]+/\.\./)?([a-z_]+)/(\S+?)(:\d+:\d+)$")
EXCUSE = re.compile(r"\bdead_code\b")
LABEL = re.compile(r"^ *(\d+)? *\| +(?:pub(?:\([a-z ]+\))? )?(?:const )?"
                   r"(?:fn |const |struct |enum )?(\w+)")


def fold(source, tree, driver):
    """Makes copies of a driver and its core below `tree`. The copy of the core is a module of the
    driver. Returns the path of the driver's root file."""
    shutil.rmtree(tree, ignore_errors=True)
    core = f"xprtrdma_{driver.core}"
    for name in (driver.core, driver.name):
        shutil.copytree(source / "rust" / name, tree / "rust" / name, ignore=NOT_SOURCE)
    for path in (tree / "rust" / driver.core).rglob("*.rs"):
        change(path, r"(?<![\w$])crate(?=::)", f"crate::{core}")
    for path in (tree / "rust" / driver.name).rglob("*.rs"):
        change(path, rf"(?<![\w:`]){core}(?=::)", f"crate::{core}")
    of_core = tree / f"rust/{driver.core}/{core}.rs"
    change(of_core, r"^#!\[cfg_attr.*\n", "")
    change(of_core, r"\Z", f"\npub fn {CANARY}() {{}}\n")
    top = tree / f"rust/{driver.name}/xprtrdma_{driver.name}.rs"
    change(top, r"\A((?:\s*|//.*|#!\[.*)\n)*",
           rf'\g<0>#[path = "../{driver.core}/{core}.rs"]\nmod {core};\n', 1)
    return top


def command(stored, top, driver):
    """Returns the command that compiles the root file `top` of the copy. `stored` is the file in
    which kbuild has stored how it compiled the driver."""
    words = shlex.split(stored.read_text().splitlines()[0].partition(" := ")[2])
    words = ["rustc" if word == "clippy-driver" else word for word in words]
    core = next(n for n, word in enumerate(words)
                if word.startswith(f"xprtrdma_{driver.core}=") and words[n - 1] == "--extern")
    del words[core - 1:core + 1]
    words = [word for word in words[:-1] if not word.startswith("--emit=")]
    return ["env", "RUSTC_BOOTSTRAP=1", *words, *driver.more, "--cap-lints=warn",
            "-Aunreachable_pub", f"--emit=metadata={top.with_suffix('.rmeta')}", str(top)]


def change(path, old, new, times=None):
    """Replaces all matches of a pattern in a file. Raises an error unless there are exactly `times`
    matches."""
    text, count = re.subn(old, new, path.read_text(), count=times or 0, flags=re.MULTILINE)
    if times and count != times:
        raise LabError(f"{path}: no {old}")
    path.write_text(text)


def found(log, driver):
    """Returns the unused items that the log of a build reports, with their files and lines. Leaves
    out the item CANARY, which the check itself has added."""
    lines, canary, complaints = log.splitlines(), False, []
    for number, line in enumerate(lines):
        never = NEVER.match(line)
        place = PLACE.match("".join(lines[number + 1:number + 2]))
        if not never or not place:
            continue
        crate, path, at = place.groups()
        if CANARY in line:
            canary |= crate == driver.core
            continue
        if crate == driver.name or (crate == driver.core and driver.files.match(path)):
            items = names(lines[number + 2:], never[1])
            complaints.append(f"rust/{crate}/{path}{at}: {never[1]}{items}")
    if not canary:
        complaints.append(f"{driver.name}: the compiler did not tell of an unused item that the "
                          "lab had planted")
    return complaints


def sources(rust):
    """Yields the source files of the cores without their tests: the path, and the path relative to
    `rust`."""
    for core in sorted({driver.core for driver in DRIVERS}):
        for path in sorted((rust / core).rglob("*.rs")):
            name = path.relative_to(rust)
            if name.parts[1] not in ("target", "tests", "fuzz", "benches", "examples"):
                yield path, name


def excuses(rust):
    """Yields a line for each item of a core with an attribute that permits the item to be unused.
    """
    for path, name in sources(rust):
        text = path.read_text()
        for excuse in EXCUSE.finditer(text):
            line = text.count("\n", 0, excuse.start()) + 1
            yield f"rust/{name}:{line}: excused from being used"


def hidden(rust):
    """Yields a line for each cfg attribute that excludes code of a core from the client's module.
    The attributes of the core's modules for the server are left out."""
    for path, name in sources(rust):
        text = ROOM.sub("\n", path.read_text())
        for found in HIDES.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"rust/{name}:{line}: hidden from the client's module, and no room of the server"


def names(lines, what):
    """Returns the names of the unused items as text. Returns an empty text if `what`, the first
    line of the compiler's warning, already contains the name."""
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
    """Compiles copies of the drivers that contain their cores. The modules were built with clippy
    before. Returns a list of problems."""
    rust = REPO / "rust"
    complaints = [*excuses(rust), *hidden(rust)]
    for driver in DRIVERS:
        top = fold(REPO, REPO / "build/unused" / driver.variant, driver)
        objects = module.directory(kernel, clippy=True, variant=driver.variant)
        stored = objects / f"rust/{driver.name}/.xprtrdma_{driver.name}.o.cmd"
        if not stored.exists():
            complaints.append(f"{driver.name}: the build with clippy has failed")
            continue
        argv = chroot.command(root, command(stored, top, driver),
                              [cache.directory(), kernel.tree, REPO], objects)
        done = subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=module.BUILD_SECONDS, check=False)
        if done.returncode:
            complaints += done.stdout.splitlines()[-20:]
        complaints += found(done.stdout, driver)
    return complaints
