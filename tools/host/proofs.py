# SPDX-License-Identifier: GPL-2.0
"""Proofs that the tests check the rules. A proof is a fault that breaks a rule, and the test that
notices the fault.

proofs.toml contains the proofs. `read` checks that they fit the sources. `prove` plants the faults
once more, in a copy of the protocol core, and runs the tests.
"""

import concurrent.futures
import csv
import dataclasses
import fnmatch
import queue
import random
import re
import shutil
import subprocess
import time
import tomllib

import common
from common import REPO, HostError, say

DATA = REPO / "tools/host/proofs.toml"
PLANTED = REPO / "tools/lablib/checks/mutants.toml"
# The record of how each planted fault was noticed when it was planted the last time.
RECORD = REPO / "tools/results/mutants.csv"
# The protocol cores. Each fault and its test belong to one of these crates.
CRATES = ("proto", "rds_proto")
BUILD_SECONDS, TEST_SECONDS = 900, 180
MODULE = re.compile(r"mod (\w+);$")
# Names of the test modules that other test modules use.
SHARED = ("common", "rig", "responder_rig", "fuzz_replay", "random", "extensions")
OUTCOME = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Proof:
    """A fault, the one test that notices the fault, and the requirements that the fault violates.
    """

    kind: str             # kind of the entry: fault, planted, by_hand or not_run
    what: str             # description of what is broken
    test: str             # name of the test on the conformance page
    rows: tuple
    name: str = ""        # name of a planted fault
    file: str = ""
    old: str = ""
    new: str = ""
    noticed: bool = False  # whether a test noticed the fault when it was planted the last time

    @property
    def crate(self):
        """The name of the protocol core (a crate) that contains the fault, if the entry is of the
        kind `fault`."""
        return self.file.split("/")[1] if self.file.startswith("rust/") else ""

    @property
    def case(self):
        """The name of the test in the crate's own test program."""
        return self.test.removeprefix(f"{self.crate}/")

    @property
    def status(self):
        """The status that the conformance page shows for the rows of this proof."""
        if self.kind == "fault":
            return "done"
        return "done in machines" if self.noticed else "not run"


def tables():
    """Returns two results: the entries of proofs.toml by kind, and the other contents of the
    file."""
    found = tomllib.loads(DATA.read_text())
    return {kind: found.pop(kind, []) for kind in ("fault", "planted", "by_hand", "not_run")}, found


def read(errors):
    """Returns all proofs. Adds a line to `errors` for each error in the data."""
    entries, unknown = tables()
    errors += [f"{DATA.name}: unknown kind {name}" for name in unknown]
    planted = {entry["name"]: entry for entry in tomllib.loads(PLANTED.read_text())["fault"]}
    with RECORD.open() as file:
        recorded = {row["fault"] for row in csv.DictReader(file)}
    proofs = []
    for entry in entries["fault"]:
        proof = Proof("fault", **entry | {"rows": tuple(entry["rows"])})
        proofs.append(dataclasses.replace(proof, test=f"{proof.crate}/{proof.test}"))
    for kind in ("by_hand", "not_run"):
        proofs += [Proof(kind, noticed=kind == "by_hand",
                         **entry | {"rows": tuple(entry["rows"])}) for entry in entries[kind]]
    for entry in entries["planted"]:
        fault = planted.get(entry["fault"])
        if not fault:
            errors.append(f"{DATA.name}: no fault {entry['fault']} in {PLANTED.name}")
            continue
        if not names(fault, entry["test"]):
            errors.append(f"{DATA.name}: {entry['fault']} is not for {entry['test']}")
        proofs.append(Proof("planted", fault["what"], entry["test"], tuple(entry["rows"]),
                            name=entry["fault"], noticed=entry["fault"] in recorded))
    for proof in proofs:
        errors += filter(None, [misplaced(proof)])
    return proofs


def names(fault, test):
    """Returns whether `test` is one of the tests that must notice a planted fault."""
    file, _, case = test.partition("::")
    if fault.get("rds"):
        return case.replace("_", "-") in fault["tests"]
    label = f"{file.rpartition('/')[2]}.{case}"
    return any(re.match(pattern.split(" ")[0], label) for pattern in fault.get("tests", ()))


def misplaced(proof):
    """Returns why a fault cannot be planted in its file, or None if it can be planted."""
    if not proof.file:
        return None
    if proof.kind == "fault" and (proof.crate not in CRATES or "/tests/" in proof.file):
        return f"{DATA.name}: {proof.file} is not of a protocol core"
    path = REPO / proof.file
    count = path.read_text().count(proof.old) if path.exists() else 0
    if count != 1:
        return (f"{DATA.name}: {count} times in {proof.file}, not once: {proof.old!r} "
                f"({proof.what})")
    if proof.old == proof.new:
        return f"{DATA.name}: changes nothing: {proof.what}"
    return None


def chosen(proofs, patterns, sample, seed):
    """Chooses the requirements that match the patterns. If `sample` is not zero, chooses at most
    `sample` of these requirements at random. Returns two lists: the faults that violate the chosen
    requirements, and the chosen requirements."""
    rows = sorted(row for proof in proofs if proof.kind == "fault" for row in proof.rows)
    if patterns:
        rows = [row for row in rows if any(fnmatch.fnmatch(row, p) for p in patterns)]
    if sample:
        rows = sorted(random.Random(seed).sample(rows, min(sample, len(rows))))
    wanted = set(rows)
    return [proof for proof in proofs if proof.kind == "fault" and wanted & set(proof.rows)], rows


class Copy:
    """A copy of a protocol core (a crate) and of its compiled objects. One fault at a time is
    planted in the copy."""

    def __init__(self, number, crate, modules):
        self.where = common.cache() / f"proofs/{number}"
        self.target = self.where / "target"
        tree = self.where / crate
        shutil.rmtree(tree, ignore_errors=True)
        # The copied files get the current time, so that cargo compiles them again. Otherwise cargo
        # might reuse objects of an earlier run, which may contain a fault and be newer than the
        # source files.
        shutil.copytree(REPO / "rust" / crate, tree, copy_function=shutil.copyfile,
                        ignore=shutil.ignore_patterns("target", "benches"))
        manifest = tree / "Cargo.toml"
        text = re.sub(r"\[\[bench\]\]\n(?:.+\n)+", "", manifest.read_text())
        text = text.replace("opt-level = 2", "opt-level = 0\ndebug = false\nincremental = true")
        manifest.write_text(text + "\n[workspace]\n")
        # The test program contains only the modules that are needed, so that it is compiled within
        # seconds for each fault.
        program = tree / "tests/it/main.rs"
        program.write_text("".join(
            line for line in program.read_text().splitlines(keepends=True)
            if not (found := MODULE.match(line)) or found[1] in {*SHARED, *modules}))
        self.tree = tree

    def cargo(self, words, seconds):
        """Runs cargo in the copy. Returns (status, output), or (None, "") if cargo took too long.
        """
        argv = ["cargo", "test", "--quiet", "--test", "it", *words]
        env = common.environment(CARGO_TARGET_DIR=str(self.target), RUST_BACKTRACE="0")
        try:
            done = subprocess.run(argv, cwd=self.tree, env=env, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout

    def build(self):
        status, output = self.cargo(["--no-run"], BUILD_SECONDS)
        if status is None:
            raise HostError("the compiler takes too long")
        return status, output

    def baseline(self, tests):
        """Runs the tests in the copy while it contains no fault. Raises `HostError` unless all of
        the tests pass. `tests` contains the full names of the tests."""
        status, output = self.build()
        if status:
            raise HostError(f"the core does not build\n{common.tail(output)}")
        status, output = self.cargo(["--", "--exact", *tests], TEST_SECONDS)
        counts = OUTCOME.search(output)
        if status or not counts or counts.groups() != (str(len(tests)), "0"):
            raise HostError(f"not all tests pass without a fault\n{common.tail(output)}")

    def plant(self, proof):
        """Plants a fault, and runs its test. Returns None if the test failed. Otherwise returns why
        the fault was not noticed."""
        path = self.tree / proof.file.removeprefix(f"rust/{proof.crate}/")
        original = path.read_text()
        try:
            path.write_text(original.replace(proof.old, proof.new))
            status, output = self.build()
            if status:
                return f"does not build\n{common.tail(output, 15)}"
            status, output = self.cargo(["--", "--exact", proof.case], TEST_SECONDS)
            if status is None:
                return None    # A test that does not end counts as failed.
            counts = OUTCOME.search(output)
            if status and counts and counts.groups() == ("0", "1"):
                return None
            return "its test passes" if not status else f"no result\n{common.tail(output, 15)}"
        finally:
            path.write_text(original)


def prove(proofs, patterns, sample, seed, jobs):
    """Chooses faults of the protocol cores and plants them again. Returns how many of these faults
    no test noticed."""
    faults, rows = chosen(proofs, patterns, sample, seed)
    if not faults:
        raise HostError("no row with a fault in the core matches")
    if sample:
        say(f"rows: {' '.join(rows)}")
    missed = sum(prove_of(crate, [proof for proof in faults if proof.crate == crate], rows, jobs)
                 for crate in CRATES)
    say(f"{len(faults)} faults for {len(rows)} rows, {missed} not noticed")
    return missed


def prove_of(crate, faults, rows, jobs):
    """Plants the faults of one protocol core, and runs the tests. Returns how many faults no test
    noticed."""
    if not faults:
        return 0
    tests = sorted({proof.case for proof in faults})
    copies = queue.SimpleQueue()
    modules = {test.partition("::")[0] for test in tests}
    for number in range(jobs):
        copies.put(Copy(number, crate, modules))

    def one(proof):
        copy, started = copies.get(), time.monotonic()
        try:
            wrong = copy.plant(proof)
        finally:
            copies.put(copy)
        mine = " ".join(row for row in proof.rows if row in rows)
        took = f"{time.monotonic() - started:.0f} s"
        say(f"{'NOT noticed' if wrong else 'ok'}: {proof.what}: {proof.test}: {mine} ({took})"
            + (f"\n    {wrong}" if wrong else ""))
        return bool(wrong)

    first = copies.get()
    first.baseline(tests)
    copies.put(first)
    say(f"{crate}: {len(tests)} tests pass without a fault")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return sum(pool.map(one, faults))
