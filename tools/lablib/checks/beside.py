# SPDX-License-Identifier: GPL-2.0
"""Runs test programs of other projects with the in-tree client and with our client.

If a case passes with the in-tree client and fails with ours, our client has a bug. If a case fails
with both clients, it is run again over TCP. If the case also fails over TCP, the cause is the NFS
client, the server or the program.

Our server is tested with both clients. If a case fails with our server, but is not recorded as
failing with the in-tree server, the program is also run with the in-tree client and the in-tree
server.
"""

import collections
import re
import shutil

from ..artefacts import root
from ..artefacts.programs import PROGRAMS
from ..base import records
from ..base.tally import Tally
from ..base.ui import LabError, say
from ..machine import wire
from ..machine.session import Plan, Session

# The names of the two records for each server. One record lists the programs, the other lists the
# cases that failed. Documentation/programs.rst shows these records. A run replaces only the rows of
# the programs that it runs.
RECORDS = {"intree": ("programs", "program-failures"),
           "ours": ("server-programs", "server-failures")}
CLIENTS = ("intree", "ours")
# The meaning of each word in the column "fails over TCP" of a record. The word is empty if the case
# was not run over TCP.
TCP = {"yes": True, "no": False, "": None}
# Maximum number of runs of a program with each client. A program is run again only if a case fails
# with our client only, or with our server only.
RUNS = 3
# Pattern of counts, sizes and times, which differ from run to run.
COUNTS = re.compile(r"\(\d+ passed, \d+ failed\)|\d+(\.\d+)?")
# Patterns of a Python traceback: the first line, the line of a function (the innermost function
# comes last), and the line of the error.
TRACEBACK = "Traceback (most recent call last):"
FUNCTION = re.compile(r'^\s+File ".*", line \d+, in (?P<name>\w+)$')
TRACED = re.compile(r"^\s+(?P<name>[\w.]+(Error|Exception|Interrupt|Exit)\b.*)$")


def exception(lines, start):
    """Returns the exception whose traceback begins in line `start`, and the function that raised
    it."""
    function = "?"
    for line in lines[start + 1:start + 200]:
        if match := TRACED.match(line):
            return f"{match['name']} in {function}"
        if match := FUNCTION.match(line):
            function = match["name"]
    return "an exception"


class Found:
    """The results of one program in one or more runs."""

    def __init__(self):
        # for each name of a case: how many times the case passed, and how many times it failed
        self.cases = collections.defaultdict(lambda: [0, 0])
        # for each name of a case: the number of runs in which the case failed
        self.failures = collections.Counter()
        self.groups = []
        self.runs = 0

    def add(self, program, output, status):
        """Reads the output of a run."""
        self.runs += 1
        group, failed, lines, verdicts = "", set(), output.splitlines(), 0
        self.groups = []

        def case(name, bad):
            self.cases[name][bad] += 1
            if bad:
                failed.add(name)

        if not program.line:
            case("the program", status != 0)
            lines = []
        for number, line in enumerate(lines):
            if program.group and (match := program.group.match(line)):
                group = COUNTS.sub("N", match["name"]).strip()
                self.groups.append(group)
            elif match := program.line.match(line):
                name = match["name"].strip()
                name = exception(lines, number) if name == TRACEBACK else name
                name = COUNTS.sub("N", name)
                case(f"{group} | {name}" if group else name, match["verdict"].startswith("FAIL"))
                verdicts += 1
        if program.line and (status not in (0, 1) or not verdicts):
            case(f"the program itself (status {status})", True)
        for start, count in program.groups.items():
            seen = sum(name.startswith(start) for name in self.groups)
            if seen < count:
                case(f"the program itself ({seen} of {count} groups named {start})", True)
        self.failures.update(failed)

    def totals(self):
        """Returns how many cases passed and failed in the first run."""
        return [sum(counts[bad] for counts in self.cases.values()) for bad in (0, 1)]


def worse(intree, ours):
    """Returns the cases that fail with our client, and never fail with the in-tree client. Also
    returns the groups of cases that ran with the in-tree client, but not with our client."""
    failing = [name for name in ours.failures if name not in intree.failures]
    return sorted(failing) + [f"{name}: not run" for name in dict.fromkeys(intree.groups)
                              if name not in ours.groups]


def with_our_server(known, found, intree):
    """Returns pairs (client, case) for the cases that fail with our server, but are not known to
    fail with the in-tree server. Also returns a pair for each client that ran fewer groups of cases
    with our server than with the in-tree server. `known` is the program's row in the record of the
    in-tree server, or None. `intree` contains the results of runs with the in-tree client and the
    in-tree server."""
    excused = set(intree.failures)
    if known:
        excused |= {*known["both"], *known["worse"]}
    bad = [(client, name) for client, of_client in found.items()
           for name in sorted(of_client.failures) if name not in excused]
    groups = len(intree.groups) if intree.runs else known["groups"] if known else 0
    return bad + [(client, f"{len(of_client.groups)} of {groups} groups")
                  for client, of_client in found.items() if len(of_client.groups) < groups]


def run(program, client, spec, found, serving="intree"):
    """Runs a program once. `client` names the RDMA client to use; if it is "tcp", the program uses
    NFS over TCP. Returns the problems that the session found, for example kernel reports."""
    say(f"{program.name}, {client}" + (", our server" if serving == "ours" else ""))
    tcp = client == "tcp"
    plan = Plan(client="none" if tcp else client, serving=serving, spec=spec,
                timeout=program.seconds + 60, memory=(2048, program.memory))
    session, status = Session(plan), None
    for file in program.files(root.path(), session.kernel) if program.files else ():
        shutil.copy(file, session.pair.results)
    path = session.pair.results / f"{program.name}.log"
    # The file is not buffered, so that it always contains all output that has arrived so far.
    with open(path, "wb", buffering=0) as log, session:
        status = session.run(["sh", "-c", program.script("tcp" if tcp else "rdma")],
                             lambda kind, data: log.write(data)
                             if kind in (wire.OUT, wire.ERR) else None)
    found.add(program, path.read_text(errors="replace"), status)
    return session.complaints


def judged_run(program, client, spec, found, serving, tally):
    """Runs the program once. Counts one failed test if the session found problems."""
    complaints = run(program, client, spec, found, serving)
    tally.judge(f"{program.name}, {client}, {serving} server: {'; '.join(complaints)[:300]}",
                not complaints)


def compare(program, spec, runs, tally):
    """Runs one program with both clients, several times if necessary. Returns the row of the record
    for this program."""
    found, row = {client: Found() for client in CLIENTS}, {}
    for number in range(runs):
        for client, of_client in found.items():
            judged_run(program, client, spec, of_client, "intree", tally)
        if not number:
            row = {client: found[client].totals() for client in CLIENTS}
        bad = worse(found["intree"], found["ours"])
        if not bad:
            break
        say(f"{program.name}: with ours only, run {number + 1}: {'; '.join(bad)[:300]}")
    ours = found["ours"]
    row |= {"groups": len(ours.groups), "runs": ours.runs,
            "worse": {name: ours.failures[name] for name in bad}}
    row["both"] = {name: None for name in sorted(ours.failures) if name not in row["worse"]}
    return row


def compare_servers(program, spec, runs, tally):
    """Runs one program with our server and both clients. If a case fails, but is not recorded as
    failing with the in-tree server, also runs the program with the in-tree client and the in-tree
    server. Returns the row of the record for this program."""
    known, intree = load("intree").get(program.name), Found()
    found, row = {client: Found() for client in CLIENTS}, {}
    for number in range(runs):
        for client, of_client in found.items():
            judged_run(program, client, spec, of_client, "ours", tally)
        if not number:
            row = {client: found[client].totals() for client in CLIENTS}
        bad = with_our_server(known, found, intree)
        if bad:
            judged_run(program, "intree", spec, intree, "intree", tally)
            bad = with_our_server(known, found, intree)
        if not bad:
            break
        say(f"{program.name}: with our server only, run {number + 1}: {bad}"[:400])
    return row | {"groups": max(len(of_client.groups) for of_client in found.values()),
                  "runs": found["ours"].runs, "both": {},
                  "worse": {f"{client}: {name}": found[client].failures[name] or found[client].runs
                            for client, name in bad}}


def over_tcp(program, spec, row, tally):
    """Records whether each case that fails with both clients also fails over TCP."""
    found = Found()
    complaints = run(program, "tcp", spec, found)
    tally.judge(f"{program.name}, TCP: {'; '.join(complaints)[:300]}", not complaints)
    for name in row["both"]:
        row["both"][name] = name in found.failures
        if not row["both"][name]:
            say(f"{program.name}: fails with both clients, but not over TCP: {name}")


def keep(program, row, serving="intree"):
    """Writes a row to the record. Reads the record first, because another run may have written to
    it."""
    save(load(serving) | {program.name: row}, serving)


def load(serving="intree"):
    """Returns the recorded rows for a server, as a dictionary by the names of the programs."""
    programs, failures = RECORDS[serving]
    record: dict[str, dict] = {}
    for found in records.read(programs):
        record[found["program"]] = {
            client: [int(found[f"{client} {what}"]) for what in ("passed", "failed")]
            for client in CLIENTS} | {"groups": int(found["groups"]), "runs": int(found["runs"]),
                                      "worse": {}, "both": {}}
    for found in records.read(failures):
        row = record[found["program"]]
        if found["times with ours only"]:
            row["worse"][found["case"]] = int(found["times with ours only"])
        else:
            row["both"][found["case"]] = TCP[found["fails over TCP"]]
    return record


def save(record, serving="intree"):
    programs, failures = RECORDS[serving]
    known = {program.name: program.what for program in PROGRAMS}
    records.write(programs, ("program", "what", *(f"{client} {what}" for client in CLIENTS
                                          for what in ("passed", "failed")), "groups", "runs"),
                  [(name, known.get(name, ""),
                   *(number for client in CLIENTS for number in row[client]),
                    row["groups"], row["runs"]) for name, row in record.items()])
    words = {value: word for word, value in TCP.items()}
    records.write(failures, ("program", "case", "times with ours only", "fails over TCP"),
                  [row for name, of_program in record.items() for row in (
                      *((name, case, times, "") for case, times in of_program["worse"].items()),
                      *((name, case, "", words[tcp])
                        for case, tcp in of_program["both"].items()))])


def check(spec, names, write, runs, serving="intree"):
    """Runs the programs. Returns the exit status."""
    unknown = set(names) - {p.name for p in PROGRAMS}
    if unknown:
        raise LabError(f"no such program: {', '.join(sorted(unknown))} (known: "
                       f"{', '.join(p.name for p in PROGRAMS)})")
    tally = Tally()
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        of_clients = compare if serving == "intree" else compare_servers
        row = of_clients(program, spec, runs or RUNS, tally)
        say(f"{program.name}: passed and failed: in-tree client {row['intree']}, "
            f"ours {row['ours']}")
        for name, times in row["worse"].items():
            only = "ours" if serving == "intree" else "our server"
            tally.fail(f"{program.name}: fails with {only} only, in {times} of {row['runs']} "
                       f"runs: {name}")
        if not row["worse"]:
            tally.ok()
        if write:
            keep(program, row, serving)
        if row["both"]:
            over_tcp(program, spec, row, tally)
            if write:
                keep(program, row)
    print(tally.line(), flush=True)
    return 0 if tally.good() else 1
