# SPDX-License-Identifier: GPL-2.0
"""Creates rust-project.json and the pages of rustdoc for the crates of the module.

kbuild neither knows the dependencies between our crates nor documents an external module. The
dependencies are read from rust/Kbuild, which defines them. The options of rustdoc are taken from
the compiler commands that kbuild has saved.
"""

import json
import re
import shlex
import shutil

from ..base import cache, chroot, proc
from ..base.paths import REPO
from ..base.ui import LabError, say
from . import kernel, module, root

CRATES = ("proto", "bindings", "base", "rdma", "sunrpc", "client")
CRATE = "xprtrdma_{}"
# The options that kbuild passes to every crate of an external module.
GIVEN = ("core", "kernel", "pin_init", "zerocopy", "zerocopy_derive")
# Compiler options that rustdoc does not accept. `ALONE` contains the beginnings of options that are
# single arguments. `WITH_VALUE` contains options whose value is the next argument.
ALONE = ("--emit", "-Zbinary_dep_depinfo", "-Cembed-bitcode", "--out-dir=")
WITH_VALUE = ("--crate-type", "--out-dir", "-o")
SECONDS = 300


def edges():
    """Reads rust/Kbuild. Returns a dictionary from each crate to the crates that it uses."""
    found = {}
    for line in (REPO / "rust/Kbuild").read_text().splitlines():
        flags = re.match(r"RUSTFLAGS_(\w+)/\w+\.o\s*:?=(.*)", line)
        if flags:
            found[flags[1]] = re.findall(r"\$\(call use,(\w+)\)", flags[2])
    return found


def rust_analyzer(spec):
    """Writes rust-project.json at the top of the repository."""
    base = root.path()
    target = kernel.get(base, spec)
    module.build(base, target)  # The build generates the bindings.
    objects = module.directory(target)
    log = objects / "rust-analyzer.log"
    argv = module.make(target, objects, "rust-analyzer")
    proc.run_logged("asking kbuild for rust-project.json",
                    chroot.command(base, argv, [cache.directory(), REPO], REPO), log, SECONDS)
    made = objects / "rust-project.json"
    if not made.exists():
        raise LabError(f"kbuild wrote no rust-project.json; see {log}")
    project = json.loads(made.read_text())
    # Changes the paths of the root file system's tools so that they are valid outside the root file
    # system.
    for key in ("sysroot", "sysroot_src"):
        if project.get(key, "").startswith("/usr"):
            project[key] = f"{base}{project[key]}"
    for crate in project["crates"]:
        if crate["root_module"].startswith("/usr"):
            crate["root_module"] = f"{base}{crate['root_module']}"
    connect(project["crates"], objects)
    (REPO / "rust-project.json").write_text(json.dumps(project, indent=1) + "\n")
    say("wrote rust-project.json")
    return 0


def connect(crates, objects):
    """Adds our crates and their dependencies to the rust-analyzer project, because kbuild does not
    find our crates."""
    numbers = {crate["display_name"]: n for n, crate in enumerate(crates)}
    like = crates[numbers["kernel"]]
    for name in CRATES:
        full = CRATE.format(name)
        source = objects / "rust/bindings" if name == "bindings" else REPO / "rust" / name
        if full not in numbers:
            crate = dict(like, display_name=full, root_module=str(source / f"{full}.rs"),
                         is_workspace_member=True,
                         deps=[{"crate": numbers[dep], "name": dep} for dep in GIVEN])
            crate.pop("source", None)
            numbers[full] = len(crates)
            crates.append(crate)
    for name, uses in edges().items():
        deps = crates[numbers[CRATE.format(name)]]["deps"]
        for used in uses:
            full = CRATE.format(used)
            if full not in (dep["name"] for dep in deps):
                deps.append({"crate": numbers[full], "name": full})


def saved_command(objects, crate):
    """Returns the compiler command that kbuild used for a crate, in two parts: the environment
    variables that the command sets, and the arguments of the compiler."""
    full = CRATE.format(crate)
    text = (objects / f"rust/{crate}/.{full}.o.cmd").read_text()
    found = re.match(r"savedcmd_\S+ := (.*)", text)
    if not found:
        raise LabError(f"no command for {full} in the build; run make clean and make")
    words = shlex.split(found[1].split(";")[0].replace("$(pound)", "#"))
    start = next(n for n, word in enumerate(words) if word.endswith("rustc"))
    return words[:start], words[start + 1:]


def rustdoc_words(words):
    """Returns the compiler options in the form that rustdoc accepts."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in WITH_VALUE:
            skip = True
        elif not word.startswith(ALONE):
            kept.append(word)
    return kept


def doc(spec):
    """Runs rustdoc for our crates. The result is in build/doc."""
    base = root.path()
    target = kernel.get(base, spec)
    module.build(base, target)
    objects, out = module.directory(target), REPO / "build/doc"
    shutil.rmtree(out, ignore_errors=True)
    log = objects / "doc.log"
    log.unlink(missing_ok=True)
    for crate in CRATES:
        settings, words = saved_command(objects, crate)
        argv = ["env", *settings, "RUSTC_BOOTSTRAP=1", "rustdoc", *rustdoc_words(words),
                "-Zunstable-options", "--document-private-items", "--crate-name",
                CRATE.format(crate), "--out-dir", str(out)]
        proc.run_logged(f"documenting {CRATE.format(crate)}",
                        chroot.command(base, argv, [cache.directory(), REPO], objects),
                        log, SECONDS)
    say(f"start reading at {out}/xprtrdma_client/index.html")
    return 0
