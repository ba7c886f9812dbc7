# SPDX-License-Identifier: GPL-2.0
"""Plants faults in the module, and checks that the selftests notice them.

`mutants.toml` contains the faults: a text that occurs exactly once in a source file, and its
replacement. Each fault is built in a copy of the source. The module with the fault is loaded in the
client machine, or in the server machine if the fault is in the server's module. Before the fault is
planted, its tests must pass with the unchanged module.

The fault counts as noticed in each of these cases:

- A test of the fault fails or does not end.
- The kernel reports a problem.
- The module leaves objects behind.

`tools/host/mutants` does the same with the protocol core and its host tests, but a generator makes
the faults.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import time
import tomllib

from ..artefacts import kernel, module, root
from ..base import cache, records
from ..base.paths import REPO
from ..base.tally import Tally
from ..base.ui import LabError, say
from ..machine import judge, wire
from ..machine.session import UNSERVE, Plan, Session
from .check import LineSplitter

TABLE = REPO / "tools/lablib/checks/mutants.toml"
# The name of the record that says how each fault was noticed in its last run.
RECORD = "mutants"
WHERE = REPO / "build/mutants"
# The sources of the module, except the directories in NOT_SOURCE. These directories are used only
# on the host, and are not copied.
SOURCE = ("Kbuild", "rust")
NOT_SOURCE = [REPO / "rust/proto" / name
              for name in ("fuzz", "tests", "benches", "examples", "target")]
# The time limit of a run with a fault is TIMES times the duration of a run without a fault, plus
# MORE_SECONDS. On the debug kernel the time limit is twice as long.
TIMES, MORE_SECONDS = 3, 30
VERSIONS = "3,4.2"
# Commands that replace the module of a running server. The previous run may have unloaded the old
# module already.
SERVE = f"""\
if [ -d /sys/module/svcrdma_rs ]; then
    {UNSERVE}
fi
insmod "$1"
rpc.nfsd 8
echo "rdma 20049" > /proc/fs/nfsd/portlist"""
BASELINE_SECONDS = 25 * 60
HOST_SECONDS = 600
HOST_FAILED = re.compile(r"thread '(\S+)' .*panicked at (\S+):\d+:\d+:")
RESULT = re.compile(r"^(ok|not ok) \d+ (.*?)(?: # SKIP.*)?$")
RDS_RESULT = re.compile(r"^(ok|not ok) (\S+) \((\d+\.\d) s\)")
RDS_REASON = re.compile(r"^ +FAILED: (.*)$")
SECONDS = re.compile(r"^# (\d+\.\d) s$")
# Pattern of the line that says why a test failed: the last line of a traceback, or a message of the
# test runner.
REASON = re.compile(r"^# ([\w.]*(?:Error|Timeout|Exception|Refused): .*|no end after .*"
                    r"|kernel report:.*|left mounted: .*|ended with status .*)")


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault that mutants.toml describes."""

    name: str
    what: str             # description of what is broken
    file: str
    find: str             # text that occurs exactly once in the file
    put: str              # text that replaces it
    tests: tuple = ()     # patterns of the selftests that must notice the fault
    debug: bool = False   # whether the fault needs the debug kernel
    full: bool = False    # whether the tests must run in full size
    suites: bool = False  # whether the fault is planted in the module with the KUnit suites
    host: bool = False    # whether the fault is in the protocol, whose tests on the host notice it
    rails: bool = False   # whether the fault needs two cables
    rds: bool = False     # whether the fault is in the module of RDS, and selftests/rds notices it
    server: bool = False  # whether the fault is planted in the server's module
    siw: bool = False     # whether the tests of the fault need iWARP devices
    why: str = ""         # reason why no test can notice the fault

    @property
    def kind(self):
        return (self.debug or self.suites, self.full, self.suites, self.host, self.rails, self.rds,
                self.server, self.siw)

    def applied(self, text):
        """Returns the text of the source file with the fault."""
        count = text.count(self.find)
        if count != 1:
            raise LabError(f"fault {self.name}: its text is {count} times in {self.file}, "
                           "not once; mend tools/lablib/checks/mutants.toml")
        return text.replace(self.find, self.put)


def table():
    """Returns all faults, in the order of mutants.toml."""
    entries = tomllib.loads(TABLE.read_text())["fault"]
    faults = [Fault(**entry | {"tests": tuple(entry.get("tests", ()))}) for entry in entries]
    for fault in faults:
        fault.applied((REPO / fault.file).read_text())
        if bool(fault.tests) == bool(fault.why):
            raise LabError(f"fault {fault.name}: it has either tests or a reason to have none")
    if len({fault.name for fault in faults}) != len(faults):
        raise LabError(f"{TABLE.name}: a name is there twice")
    return faults


class Builder:
    """A copy of the source, and its compiled objects for one kernel. Every fault is planted in this
    copy and built with these objects."""

    tree = WHERE / "tree"

    def __init__(self, base, target, variant):
        self.base, self.target, self.variant = base, target, variant
        self.objects = WHERE / f"{target.release}-{variant}"
        self.clean = self.objects.with_name(f"{self.objects.name}.clean")
        if self.clean.exists():
            # If the previous run was killed, the object files may have been built from a source
            # with a fault. So the object files are restored from the saved copy.
            replace(self.clean, self.objects)
        self.file = self.module()
        replace(self.objects, self.clean)

    @classmethod
    def copy_source(cls):
        """Updates the copy of the source. Changed files get a new modification time, so that they
        are compiled again.
        """
        wanted = {pathlib.Path(SOURCE[0])}
        for top, names, files in os.walk(REPO / SOURCE[1]):
            names[:] = [name for name in names if pathlib.Path(top, name) not in NOT_SOURCE]
            wanted |= {pathlib.Path(top, name).relative_to(REPO) for name in files}
        for path in cls.tree.rglob("*"):
            if path.is_file() and path.relative_to(cls.tree) not in wanted:
                path.unlink()
        for name in wanted:
            content, copy = (REPO / name).read_bytes(), cls.tree / name
            if not copy.exists() or copy.read_bytes() != content:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)

    def module(self):
        """Builds the module from the copy of the source. Returns the path of the module's file
        relative to the repository."""
        return module.build(self.base, self.target, tree=self.tree, objects=self.objects,
                            variant=self.variant)

    @contextlib.contextmanager
    def planted(self, fault):
        """Plants a fault in the module, and yields the file of that module. The file can be used
        until the `with` block ends."""
        source = self.tree / fault.file
        original, times = source.read_bytes(), source.stat()
        try:
            source.write_text(fault.applied(original.decode()))
            # The file of each fault has a name of its own, because a machine that is used for
            # several faults may have cached the file of an earlier fault.
            file = WHERE / f"{fault.name}.ko"
            shutil.copy(REPO / self.module(), file)
            yield file.relative_to(REPO)
        finally:
            # The fault is removed here. The source and the object files get back the modification
            # times that they had before the fault was planted. So the next build does not compile
            # them again.
            source.write_bytes(original)
            os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
            replace(self.clean, self.objects)


def replace(source, target):
    """Replaces a directory by a copy of another directory. If the copying is interrupted, no
    incomplete copy is left in place of the directory."""
    making = target.with_name(f"{target.name}.tmp")
    cache.remove(making)
    shutil.copytree(source, making, symlinks=True)
    cache.remove(target)
    making.rename(target)


class Machines:
    """The server and client machines. They are booted when a run needs them, and are used again by
    the next run unless something is wrong with them."""

    def __init__(self, spec, debug, suites, rails, server, siw):
        # Each run loads its own module, so the session does not load a module. Tests on the debug
        # kernel may also need the module with the KUnit suites.
        self.plan = Plan(client="ours" if server else "none", spec=spec, debug=debug,
                         suites=debug and not server, load=False, rails=2 if rails else 1,
                         serving="ours" if server else "intree",
                         provider="siw" if siw else "rxe")
        self.suites = suites
        self.session: Session | None = None

    def booted(self):
        """Returns the session with both machines."""
        if not self.session:
            session = Session(self.plan)
            session.__enter__()
            self.session = session
        return self.session

    def run(self, argv, limit, file):
        """Runs the selftests with a module. Returns a pair: the output, and the reason why the
        tests did not end. If the tests ended, returns `None` as the reason."""
        def sink(kind, data):
            if kind == wire.OUT:
                parts.append(data)
                for line in filter(RESULT.match, lines.feed(data)):
                    say(f"  {line}")

        session, parts, lines = self.booted(), [], LineSplitter()
        if session.pair.serving:
            session.pair.server.channel.check_call(["sh", "-c", SERVE, "sh", f"/repo/{file}"])
        else:
            session.environment |= {"LAB_CLIENT": "ours", "LAB_MODULE": f"/repo/{file}"}
        if self.suites:
            session.environment["LAB_SUITES"] = f"/repo/{file}"
        command = session.channel.start(argv, sink, env=session.environment, cwd="/repo")
        try:
            command.wait(limit, session.pair.attend)
            broken = None
        except TimeoutError:
            broken = f"no end after {limit:.0f} s"
        except LabError as error:
            broken = f"the machine died: {str(error).splitlines()[0]}"
        return b"".join(parts).decode(errors="replace"), broken

    def complaints(self, ended):
        """Checks the machines. Returns a list of the problems. The machines are used for the next
        run only if the list is empty and the tests of this run have ended (`ended`)."""
        session = self.booted()
        if ended:
            with session.recorded():
                session.clean_up()
                session.complaints += session.pair.judge()
            found = session.complaints
        else:
            found = [text for machine in session.pair.machines for text in judge.verdict(machine)]
        if found or not ended:
            self.stop()
        return found

    def stop(self):
        if self.session:
            self.session.stack.close()
            self.session = None


def results(output):
    """Returns a dictionary in the order of the run. The keys are the names of the cases. Each value
    is a tuple: whether the case passed, its duration in seconds, and the reason if it failed."""
    found, seconds, reason = {}, 0.0, ""
    for line in output.splitlines():
        if match := RESULT.match(line):
            found[match[2]] = (match[1] == "ok", seconds, reason)
            seconds, reason = 0.0, ""
        elif match := SECONDS.match(line):
            seconds = float(match[1])
        elif match := REASON.match(line):
            reason = match[1]
    return found


def command(tests, full, stop=True):
    # The tests run with both NFS versions in VERSIONS, even on a debug kernel. On a debug kernel
    # the runner would otherwise choose one NFS version for each case.
    argv = ["./selftests/run", "--vers", VERSIONS,
            *(["--stop"] if stop else []), *(["--size", "full"] if full else [])]
    for test in tests:
        argv += ["--filter", test]
    return argv


def splat(complaint):
    """Returns the most informative line of an error report."""
    lines = complaint.splitlines()
    return next((line for line in lines if judge.SPLAT.search(line)), lines[0])


def one_line(text):
    """Removes time stamps, addresses and process numbers, which differ from run to run."""
    text = re.sub(r"^(\w+: )?\[ *\d+\.\d+\]\s*(\[ *T\d+\]\s*)?", "", text.strip())
    return re.sub(r"\s+", " ", text)[:160]


class Campaign:
    """Plants faults that need the same kernel and the same test configuration, and runs the
    tests."""

    def __init__(self, spec, kind):
        self.debug, self.full, suites, _, rails, rds, server, siw = kind
        base = root.path()
        target = kernel.get(base, spec)
        target = kernel.debug(base, target) if self.debug else target
        variant = "rds" if rds else "suites" if suites else "server" if server else "client"
        self.builder = Builder(base, target, variant)
        self.machines = Machines(spec, self.debug, suites, rails, server, siw)
        self.seconds = {}

    def baseline(self, faults):
        """Runs all tests with the unchanged module. Returns a description of the problems."""
        tests = sorted({test for fault in faults for test in fault.tests})
        output, broken = self.machines.run(self.command(tests, stop=False),
                                           BASELINE_SECONDS, self.builder.file)
        complaints = self.machines.complaints(ended=not broken)
        found = self.results(output)
        self.seconds = {name: seconds for name, (good, seconds, _) in found.items() if good}
        return [*(f"{name}: {reason}" for name, (good, _, reason) in found.items() if not good),
                *filter(None, [broken]), *map(splat, complaints)]

    def plant(self, fault):
        """Plants a fault. Returns whether the tests noticed the fault, and how they noticed it."""
        mine = [name for name in self.seconds
                if any(re.search(test, name) for test in fault.tests)]
        if not all(any(re.search(test, name) for name in mine) for test in fault.tests):
            return False, "its tests do not pass without it"
        limit = TIMES * sum(self.seconds[name] for name in mine) + MORE_SECONDS
        limit *= 2 if self.debug else 1
        with self.builder.planted(fault) as file:
            output, broken = self.machines.run(self.command(fault.tests), limit, file)
            complaints = self.machines.complaints(ended=not broken)
        (WHERE / f"{fault.name}.ktap").write_text(output)
        found = self.results(output)
        how = [f"{name} fails: {reason}" for name, (good, _, reason) in found.items() if not good]
        if broken:
            at = next((name for name in mine if name not in found), "the end")
            how.append(f"{at}: {broken}")
        how += map(splat, complaints)
        return bool(how), "; ".join(map(one_line, how[:2]))

    def command(self, tests, stop=True):
        """Returns the command that runs these tests."""
        return command(tests, self.full, stop)

    def results(self, output):
        """Returns the results of the tests in the output of the command."""
        return results(output)

    def close(self):
        self.machines.stop()


class RdsCampaign(Campaign):
    """Plants faults in the module for RDS. Both machines load this module. The runner of these
    tests accepts only full names of tests."""

    def command(self, tests, stop=True):  # noqa: ARG002 - this runner has no such option
        return ["./selftests/rds/run", "--", *tests]

    def results(self, output):
        return rds_results(output)


def rds_results(output):
    """Returns the results in the output of rds.py."""
    found, name = {}, ""
    for line in output.splitlines():
        if match := RDS_RESULT.match(line):
            name = match[2]
            found[name] = (match[1] == "ok", float(match[3]), "")
        elif (match := RDS_REASON.match(line)) and not found.get(name, (True,))[0]:
            found[name] = (*found[name][:2], found[name][2] or match[1])
    return found


class HostCampaign:
    """Plants faults in a copy of the protocol core. This needs cargo, but no virtual machine."""

    top = WHERE / "host"

    def __init__(self):
        # In the copy the files have the same relative paths as in the repository, because the tests
        # refer to other files of the repository. The compiled objects are in a separate directory,
        # because cargo would confuse them with the objects of the repository. All copied files get
        # a new modification time, so that cargo compiles them again after a fault was removed.
        for name in ("rust/proto", "tools/host"):
            shutil.copytree(REPO / name, self.top / name, dirs_exist_ok=True,
                            copy_function=shutil.copyfile,
                            ignore=shutil.ignore_patterns("target"))

    def cargo(self, *words):
        return subprocess.run(
            ("cargo", "test", "--quiet", "--test", "it", *words), cwd=self.top / "rust/proto",
            env=os.environ | {"CARGO_TARGET_DIR": str(WHERE / "host-target")},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HOST_SECONDS,
            check=False)

    def baseline(self, faults):
        """Runs all tests with the unchanged protocol core. Returns a description of the problems.
        """
        done = self.cargo("--", *{test for fault in faults for test in fault.tests})
        return [] if not done.returncode else [one_line(done.stdout[-160:])]

    def plant(self, fault):
        """Plants a fault. Returns whether the tests noticed the fault, and how they noticed it."""
        source = self.top / fault.file
        original = source.read_text()
        try:
            source.write_text(fault.applied(original))
            if self.cargo("--no-run").returncode:
                return False, "it cannot be built"
            done = self.cargo("--", *fault.tests)
        finally:
            source.write_text(original)
        failed = HOST_FAILED.search(done.stdout)
        how = f"{failed[1]} fails: {failed[2]}" if failed else ""
        return bool(done.returncode and failed), how

    def close(self):
        """Does nothing: only files are left, and files need no clean-up."""


def check(spec, names, write):
    """Plants the faults. The exit status is 0 if each fault was noticed."""
    faults, tally = table(), Tally()
    unknown = set(names) - {fault.name for fault in faults}
    if unknown:
        raise LabError(f"no such fault: {', '.join(sorted(unknown))}")
    wanted = [fault for fault in faults if not names or fault.name in names]
    record, start = recorded(), time.monotonic()
    Builder.copy_source()
    for kind in sorted({fault.kind for fault in wanted if not fault.why}):
        group = [fault for fault in wanted if fault.kind == kind and not fault.why]
        campaign = (HostCampaign() if group[0].host else
                    RdsCampaign(spec, kind) if group[0].rds else Campaign(spec, kind))
        try:
            say(f"the tests of {len(group)} faults, without them")
            wrong = "; ".join(campaign.baseline(group))
            tally.judge(f"without a fault: {wrong}", not wrong)
            for number, fault in enumerate(group, 1):
                say(f"{number} of {len(group)}: {fault.name}: {fault.what}")
                noticed, how = judged(campaign, fault)
                took = f"({time.monotonic() - start:.0f} s so far)"
                say(f"{'noticed: ' + how if noticed else 'NOT NOTICED: ' + how} {took}")
                tally.judge(f"{fault.name}: {how or 'not noticed'}", noticed)
                if noticed:
                    record[fault.name] = how
                    save(faults, record, write)
        finally:
            campaign.close()
    for fault in wanted:
        if fault.why:
            tally.skip(f"{fault.name}: {fault.why}")
    save(faults, record, write)
    for note in tally.notes:
        say(note)
    print(tally.line(), flush=True)
    return 0 if tally.good() else 1


def recorded():
    """Returns how each fault was noticed, by the names of the faults."""
    return {row["fault"]: row["noticed"] for row in records.read(RECORD)}


def save(faults, record, write):
    """Saves how each fault was noticed, in the order of mutants.toml."""
    if write:
        records.write(RECORD, ("fault", "noticed"), [
            (fault.name, record[fault.name]) for fault in faults if fault.name in record])


def judged(campaign, fault):
    """Plants a fault. If the fault cannot be built, or if a machine does not boot, the fault counts
    as not noticed."""
    try:
        return campaign.plant(fault)
    except LabError as error:
        campaign.close()
        return False, f"could not be tried: {str(error).splitlines()[0]}"
