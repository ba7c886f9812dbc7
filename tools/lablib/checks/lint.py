# SPDX-License-Identifier: GPL-2.0
"""Checks the source text, and the warnings of a clean build."""

import itertools
import re
import shutil
import subprocess

from ..artefacts import linters, module, upstream
from ..base import cache, chroot, proc
from ..base.paths import REPO
from ..base.tally import Tally
from ..base.ui import LabError, say
from . import arrows, examples, unused, words

# The paths of files that need not name a licence: files in formats without comments, files that we
# must not change, and binary files.
NO_SPDX = re.compile(r"(^COPYING|/debian/(copyright|source/format|.*\.doc-base)|\.json|\.csv"
                     r"|^Documentation/upstream/.*\.patch|(^|/)Cargo\.lock|(^|/)corpus/.*|\.bin|\.proptest-regressions)$")
SPDX = "SPDX-License-Identifier: GPL-2.0"
SPDX_LINES = 5
# The crates that must not contain unsafe code.
SAFE = ("rust/proto", "rust/rds_proto", "rust/rds_transport", "rust/client", "rust/server/")
# The width of a comment in Rust; rustfmt does not check it.
WIDTH = 100
PYTHON = re.compile(rb"#!.*\bpython")
CHECKPATCH = ("--no-tree", "--terse", "--no-summary", "--strict", "--file")


# Commands that check the packages. Debian's checker runs with the options that Debian's archive
# uses. RPM's checker exits with 0 even if it prints warnings, so its output is searched for
# warnings.
PACKAGES = """
rm -rf "$2"
tools/packaging/build "$1" "$3" "$4" --out "$2" > /tmp/made
lintian --allow-root --display-info "$2"/*.deb
tools/packaging/build --rpm --out "$2" >> /tmp/made
rpmlint -c tools/packaging/rpmlint.toml "$2"/*.rpm > /tmp/rpmlint || status=$?
if [ "${status-0}" != 0 ] || grep -q ': [WE]: ' /tmp/rpmlint; then cat /tmp/rpmlint; fi
"""
# Builds the modules from the package, without the directories that DKMS keeps on this machine.
DKMS = """
dpkg-deb -x "$1"/xprtrdma-rs-dkms_*.deb /tmp/dkms
name=$(basename /tmp/dkms/usr/src/*)
mkdir /tmp/dkms/tree
dkms build "${name%-*}/${name##*-}" -k "$2" --kernelsourcedir "$3" \\
    --sourcetree /tmp/dkms/usr/src --dkmstree /tmp/dkms/tree ||
    { cat /tmp/dkms/tree/*/*/build/make.log; exit 1; }
test -e /tmp/dkms/tree/*/*/"$2"/*/module/xprtrdma_rs.ko*
test -e /tmp/dkms/tree/*/*/"$2"/*/module/svcrdma_rs.ko*
test -e /tmp/dkms/tree/*/*/"$2"/*/module/rds_rdma_rs.ko*
"""


class Lint:
    """The linters in the directory `root`. They check the files of the repository."""

    def __init__(self, root, kernel):
        self.root, self.kernel = root, kernel
        listed = proc.output(self.inside(
            ["git", "-c", f"safe.directory={REPO}", "ls-files", "-z", "--cached",
             "--others", "--exclude-standard"]))
        self.files = [REPO / name for name in listed.split("\0")
                      if name and (REPO / name).is_file()]

    def inside(self, argv):
        return chroot.command(self.root, argv, [cache.directory(), REPO], REPO)

    def named(self, *endings):
        return [path for path in self.files if path.name.endswith(endings)]

    def spdx(self):
        """Every file names its licence."""
        for path in self.files:
            name = str(path.relative_to(REPO))
            if NO_SPDX.search(name):
                continue
            with open(path, errors="replace") as text:
                head = "".join(itertools.islice(text, SPDX_LINES))
            if SPDX not in head:
                yield f"{name}: no {SPDX} in the first {SPDX_LINES} lines"

    def rustfmt(self):
        """rustfmt would change no Rust source."""
        sources = self.named(".rs")
        if not sources:
            return ["no Rust source found"]
        return printed(self.inside(["rustfmt", "--check", "-l", "--edition", "2021",
                                    *map(str, sources)]))

    def comments(self):
        """No comment line of a Rust source is longer than `WIDTH` columns."""
        for path in self.named(".rs"):
            name = str(path.relative_to(REPO))
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if len(line) > WIDTH and line.lstrip().startswith("//"):
                    yield f"{name}:{number}: {len(line)} columns"

    def words(self):
        """Comments and pages are plain English."""
        return words.check(REPO, self.files)

    def examples(self):
        """Public types of the crates with unsafe code have an example."""
        return examples.check(REPO / "rust")

    def no_unsafe(self):
        """The protocol and the drivers contain no unsafe code."""
        for path in self.named(".rs"):
            name = str(path.relative_to(REPO))
            if not name.startswith(SAFE):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(r"\bunsafe\b", line) and "unsafe_code" not in line:
                    yield f"{name}:{number}: {line.strip()}"

    def safe_roots(self):
        """The crates without unsafe code forbid unsafe code in their root files."""
        for name, crate in (("proto", "xprtrdma_proto"), ("rds_proto", "xprtrdma_rds_proto"),
                            ("rds_transport", "xprtrdma_rds_transport"),
                            ("client", "xprtrdma_client"),
                            ("server", "xprtrdma_server")):
            path = REPO / "rust" / name / f"{crate}.rs"
            if not path.exists():
                yield f"{path.relative_to(REPO)}: missing"
            elif "#![forbid(unsafe_code)]" not in path.read_text():
                yield f"{path.relative_to(REPO)}: does not forbid unsafe code"

    def checkpatch(self):
        """C sources satisfy the kernel's own checker."""
        sources = self.named(".c", ".h")
        if not sources:
            return ["no C source found"]
        script = self.kernel.tree / "scripts/checkpatch.pl"
        return printed(self.inside(["perl", script, *CHECKPATCH, *map(str, sources)]))

    def upstream(self):
        """The patches of Documentation/upstream apply, and the kernel's checker finds nothing."""
        return upstream.check(self.root, self.kernel)

    def python(self):
        """Returns the Python files. Programs without a suffix are recognised by their first line.
        """
        return [path for path in self.files if path.suffix == ".py"
                or (not path.suffix and PYTHON.match(path.read_bytes()[:80]))]

    def ruff(self):
        """Python programs keep the rules of pyproject.toml."""
        return printed([linters.path() / "ruff", "check", "--quiet", "--no-fix",
                        "--output-format", "concise", *self.python()], cwd=REPO)

    def mypy(self):
        """mypy finds no error in the Python programs."""
        # mypy refuses two files with the same name in one call, and two of the programs have the
        # same name.
        rounds = [{}]
        for path in self.python():
            name = path if path.suffix and path.parent.name != ".ci" else path.stem
            free = next((seen for seen in rounds if name not in seen), None)
            if free is None:
                rounds.append(free := {})
            free[name] = path
        for files in rounds:
            yield from printed([linters.path() / "python", "-m", "mypy", "--no-error-summary",
                                *files.values()], cwd=REPO)

    def pages(self):
        """The command `make htmldocs` builds the pages without a warning."""
        return printed(self.inside(["make", "--silent", "htmldocs"]))

    def arrows(self):
        """No file of the module uses a file of a higher layer, and no file is too long."""
        return arrows.complaints()

    def build(self):
        """A clean build of the client's module with clippy prints no warning."""
        return self.anew("client")

    def server(self):
        """A clean build of the server's module with clippy prints no warning."""
        return self.anew("server")

    def rds(self):
        """A clean build of the RDS module with clippy prints no warning."""
        return self.anew("rds")

    def anew(self, variant):
        """Makes a clean build of a variant of the module. Returns the warnings of clippy and of the
        compiler."""
        shutil.rmtree(module.directory(self.kernel, clippy=True, variant=variant),
                      ignore_errors=True)
        return self.warnings(variant, clippy=True)

    def others(self):
        """The modules of the server and of RDS build without a warning."""
        return [line for variant in ("server", "rds")
                for line in self.warnings(variant)]

    def warnings(self, variant, clippy=False):
        """Builds a variant of the module. Returns the warnings of the compiler, and of clippy if
        `clippy` is true."""
        try:
            module.build(self.root, self.kernel, clippy=clippy, variant=variant)
        except LabError as error:
            return [str(error)]
        return module.warnings(self.kernel, clippy=clippy, variant=variant)

    def no_panic(self):
        """The protocol core, compiled by the kernel's compiler, refers to no function that panics.
        """
        core = module.directory(self.kernel, clippy=True) / "rust/proto/xprtrdma_proto.o"
        wanted = proc.output(self.inside(["nm", "--undefined-only", "--demangle", core]))
        return [line.strip() for line in wanted.splitlines() if "panic" in line]

    def unused(self):
        """The modules use every public item of their protocol cores."""
        return unused.check(self.root, self.kernel)

    def packages(self):
        """Packages can be made, and lintian and rpmlint find nothing."""
        return printed(self.inside(
            ["sh", "-ec", PACKAGES, "sh", self.built(), self.packed(),
             module.directory(self.kernel, clippy=True, variant="server") / module.SERVER,
             module.directory(self.kernel, clippy=True, variant="rds") / module.RDS]))

    def dkms(self):
        """DKMS builds the modules from the DKMS package."""
        done = subprocess.run(
            self.inside(["sh", "-ec", DKMS, "dkms", self.packed(), self.kernel.release,
                         self.kernel.tree]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=module.BUILD_SECONDS, check=False)
        return done.stdout.splitlines()[-20:] if done.returncode else []

    def built(self):
        """Returns the path of the module that the linters have built with clippy."""
        return module.directory(self.kernel, clippy=True) / module.NAME

    def packed(self):
        """Returns the directory of the packages that this check has built."""
        return module.directory(self.kernel, clippy=True) / "packages"


def printed(argv, cwd=None):
    """Returns all lines that a checker prints. If the checker prints no line and fails, returns its
    exit status."""
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, check=False, cwd=cwd)
    lines = sorted(set(done.stdout.splitlines()))
    return lines or ([f"exit status {done.returncode}"] if done.returncode else [])


def run(root, kernel):
    """Runs every check of this file as a test."""
    lint, tally = Lint(root, kernel), Tally()
    for check in (lint.spdx, lint.rustfmt, lint.comments, lint.words, lint.examples,
                  lint.no_unsafe, lint.safe_roots, lint.checkpatch, lint.upstream, lint.ruff,
                  lint.mypy, lint.pages, lint.arrows, lint.build, lint.server, lint.rds,
                  lint.no_panic, lint.unused, lint.packages, lint.dkms):
        found = list(check())
        say(f"{'not ok' if found else 'ok'}: {check.__doc__}")
        for line in found[:20]:
            say(f"    {line}")
        tally.judge(check.__doc__, not found)
    return tally
