# SPDX-License-Identifier: GPL-2.0
"""Makes the tables of the documentation from the records in tools/results and from the source."""

import csv
import itertools
import pathlib
import re
import statistics
import sys
import tomllib

TOP = pathlib.Path(__file__).resolve().parent.parent
TOOLS = TOP / "tools"
CLIENTS = {"ours": "ours", "intree": "in-tree"}
VERSIONS = ("3", "4.2")
WRONG = ("failed", "errors", "splats")
NONE = "–"
# Counts of an RPC that `make bench` records: a column of the record, and its title in the table.
PROVIDER = {"work_requests": "work requests", "posts": "post-send calls",
            "completions": "completions", "recv_posts": "post-recv calls"}
KERNEL = {"service": "the transport and what it calls", "copies": "of that, copying",
          "kernel": "whole kernel", "switches": "task switches", "wakeups": "wake-ups",
          "works": "works queued", "allocations": "allocations of the transport"}
MEMORY = {"atomics": "atomic instructions", "fences": "fences", "code": "lines of code",
          "data": "lines of data", "written": "of them written", "l1d": "missed, L1 data",
          "l2": "missed, L2"}
# Counts of an RPC that `tools/lab count --server` records.
SERVER = {"passes": "passes of nfsd threads", "work_requests": "work requests",
          "posts": "post-send calls", "completions": "completions, with the Receive",
          "pages": "pages allocated", "kmalloc": "kmalloc", "transport": "own instructions",
          "service": "with what they call", "atomics": "atomic instructions",
          "kernel": "whole kernel"}
# Counts of a message or an operation that `tools/lab count --rds` records.
RDS = {"work_requests": "work requests", "completions": "completions",
       "transport": "own instructions", "service": "with what they call",
       "own-atomics": "own atomic instructions", "wakeups": "wake-ups", "kernel": "whole kernel"}
# Pattern of a counter of the module, with its comment.
COUNTER = re.compile(r'((?:^    /// .*\n)+)^    \w+ = "(\w+)",$', re.MULTILINE)
# Patterns of a variant of an enum with its comment, of the name of a variant, and of a tracepoint
# with its comment.
VARIANT = re.compile(r"((?:^    /// .*\n)+)^    (\w+)(?:\(.*\))?,$", re.MULTILINE)
NAME = re.compile(r'^            Self::(\w+) => "([^"]+)",$', re.MULTILINE)
TRACE = re.compile(r"((?:^/// .*\n)+)^#\[inline\(always\)\]\npub fn (\w+)", re.MULTILINE)
# Pattern of a counter of the server's limits, with its comment.
BOUND = re.compile(r'((?:^/// .*\n)+).*static \w+: Count = Count::new\("(\w+)"\);$',
                   re.MULTILINE)
# Patterns of a log message with its comment, and of a value in a log message.
LOG = re.compile(r"""^ *// LOG: ((?:.*\n *// )*.*)\n.*pr_\w+!\(\s*"((?:[^"\\]|\\[\s\S])*)",?"""
                 r"""(?:\s*Show\(&(Named\(xprt\)|name|xprt)\))?""", re.MULTILINE)
HOLES = re.compile(r"(?:\{([^{}:]*)[^{}]*\})+")
NAMES = {"": "…", "e": "ERROR"}
# Pattern of a comment in a function, or of a line that the function writes.
LINE = re.compile(r"""((?:^ *// .*\n)+)|"([A-Za-z][\w' ]*): """, re.MULTILINE)
# Pattern of a parameter in the manual page, with its range and its text.
PARAMETER = re.compile(r'^\.BR (\w+) " (\([^"]*\))"\n(.*?)(?=^\.TP|^\.SH)',
                       re.MULTILINE | re.DOTALL)
# Pattern of requirement numbers. The pages leave these numbers out of a comment.
IDS = re.compile(r" \((?:[A-Z]+\d?-\d+(?:, )?|ground rule \d+)+\)")
# Maps each flag of a planted fault to a text that says where a test must notice the fault.
WHERE = {"suites": "KUnit", "debug": "debug kernel", "full": "full size", "host": "on the host",
         "rails": "two cables"}


def read(name):
    """Returns the records of a table in tools/results, each as a dictionary of texts."""
    with open(TOOLS / f"results/{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def cell(content):
    """Returns one cell of a csv-table."""
    text = str(content)
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\n]|^\s', text) else text


def text_of(head, rows):
    """Returns a csv-table, as lines of reStructuredText."""
    return [".. csv-table::", "   :header-rows: 1", "",
            *(f"   {', '.join(map(cell, row))}" for row in (head, *rows))]


def picked(name, **columns):
    """Returns some columns of a record as a table. Each keyword is a title on the page, and its
    value is a column of the record."""
    return tuple(title.replace("_", " ") for title in columns), [
        [CLIENTS.get(row[column], row[column]) or NONE for column in columns.values()]
        for row in read(name)]


class Torture:
    """The runs of `tools/lab torture` on one kind of kernel."""

    def __init__(self, debug):
        self.runs = {row["run"]: row for row in read("torture-runs") if row["debug"] == debug}
        self.rows = [row for row in read("torture-rows") if row["run"] in self.runs]

    def client(self, row):
        """Returns the client to which the row's run belongs."""
        return self.runs[row["run"]]["client"]

    def clients(self):
        """Returns the clients that have runs, ours first."""
        return [client for client in CLIENTS
                if any(run["client"] == client for run in self.runs.values())]

    def rounds(self):
        """Returns a dictionary from (run, fault) to (number of rounds, number of failed rounds).
        Each round tests two mounts, but counts once."""
        found = {}
        for row in self.rows:
            failed = int(row["failed"])
            here = len(row["recovery"].split()) + failed, failed
            before = found.get((row["run"], row["fault"]), (0, 0))
            found[row["run"], row["fault"]] = tuple(map(max, before, here))
        return found

    def summary(self):
        """Yields a row for each client: its runs, and the complaints about what the runs left
        behind."""
        rounds = self.rounds()
        for client in self.clients():
            runs = {name: run for name, run in self.runs.items() if run["client"] == client}
            mine = {key: value for key, value in rounds.items() if key[0] in runs}
            failed = sum(bad for _, bad in mine.values())
            bad = dict.fromkeys(f"``{fault}``" for (_, fault), (_, bad) in mine.items() if bad)
            left = sorted({complaint.strip() for run in runs.values()
                           for complaint in run["complaints"].split("; ") if complaint})
            # If a complaint is the beginning of the next one, only the longer one is kept.
            left = [one for one, two in itertools.pairwise([*left, ""]) if not two.startswith(one)]
            yield (CLIENTS[client], ", ".join(sorted({run["kernel"] for run in runs.values()})),
                   len(runs), round(sum(float(run["minutes"]) for run in runs.values())),
                   sum(count for count, _ in mine.values()),
                   f"{failed}: {', '.join(bad)}" if bad else failed, "; ".join(left) or "nothing")

    def cells(self, client, fault):
        """Returns the table cells that describe the runs of one client with one fault."""
        rows = [row for row in self.rows if (self.client(row), row["fault"]) == (client, fault)]
        if not rows:
            return [NONE] * 4
        totals = {version: [row for row in rows if row["vers"] == version] for version in VERSIONS}
        worst = max(totals.values(), key=lambda some: sum(
            len(row["recovery"].split()) + int(row["failed"]) for row in some))
        count = sum(len(row["recovery"].split()) + int(row["failed"]) for row in worst)
        wrong = ", ".join(f"{number} {what}" for what in WRONG
                          if (number := max(sum(int(row[what]) for row in some)
                                            for some in totals.values())))
        times = []
        for some in totals.values():
            seconds = [float(text) for row in some for text in row["recovery"].split()]
            times.append(f"{statistics.median(seconds):.1f}, {max(seconds):.1f}"
                         if seconds else NONE)
        return [f"{count}: {wrong}" if wrong else count, *times,
                sum(int(row["bytes"]) for row in rows) >> 20]

    def table(self):
        """Returns a table with one line for each fault, in the order of the record. A line contains
        the results of both clients."""
        clients = self.clients()
        head = [f"{CLIENTS[client]}: {words}" for client in clients
                for words in ("rounds", *(f"NFSv{version}" for version in VERSIONS),
                              "MiB verified")]
        seen = {row["fault"] for row in self.rows}
        return ("Fault", *head), [
            [f"``{row['fault']}``: {row['what']}",
             *(text for client in clients for text in self.cells(client, row["fault"]))]
            for row in read("torture-faults") if row["fault"] in seen]


def torture_runs():
    """Returns a summary of all runs, a row for each client and kind of kernel."""
    return ("Client", "kernel", "runs", "minutes", "rounds", "failed", "left behind"), [
        row for debug in "01" for row in Torture(debug).summary()]


def torture_failures():
    """Returns the reasons of failed rounds, each only once."""
    runs = {row["run"]: row for row in read("torture-runs")}
    return ("Client", "fault", "reason"), dict.fromkeys(
        (CLIENTS[runs[row["run"]]["client"]], f"``{row['fault']}``", f"``{row['reason']}``")
        for row in read("torture-failures"))


def program_failures():
    """Returns the cases that fail with both clients. For each case, also returns the number of
    groups in which the case fails."""
    found = {}
    for row in read("program-failures"):
        if not row["times with ours only"]:
            key = row["program"], row["case"].rpartition(" | ")[2]
            found.setdefault(key, []).append(row["fails over TCP"])
    over = {frozenset(["yes"]): "fails", frozenset(["no"]): "passes", frozenset([""]): "not run"}
    return ("Program", "case", "times", "over TCP"), [
        (f"``{program}``", case, len(said),
         over.get(frozenset(said), f"fails in {said.count('yes')}"))
        for (program, case), said in found.items()]


def server_programs():
    """Returns the results of programs with our server. For comparison, also returns their results
    with the in-tree client and server."""
    known = {row["program"]: row for row in read("programs")}
    verdicts = tuple(f"{client} {what}" for client in CLIENTS for what in ("passed", "failed"))
    return ("Program", "in-tree client, in-tree server: passed", "failed",
            "our server, our client: passed", "failed", "in-tree client: passed", "failed"), [
        (row["program"], *(known.get(row["program"], {}).get(f"intree {what}", NONE)
                           for what in ("passed", "failed")), *(row[key] for key in verdicts))
        for row in read("server-programs")]


def plain(pattern):
    """Returns a pattern without its escapes and anchors."""
    return re.sub(r"\\(.)", r"\1", pattern.strip("^$"))


def mutants():
    """Returns a table of the faults that are planted in the module, with the tests that notice each
    fault."""
    faults = tomllib.loads((TOOLS / "lablib/checks/mutants.toml").read_text())["fault"]
    noticed = {row["fault"] for row in read("mutants")}
    rows = []
    for fault in faults:
        tests = ", ".join(f"``{plain(test)}``" for test in fault.get("tests", ()))
        where = next((f" ({words})" for flag, words in WHERE.items() if fault.get(flag)), "")
        if fault["name"] not in noticed:
            where += "; not planted yet"
        rows.append((f"``{fault['name']}``: {fault['what']}",
                     f"``{fault['file'].removeprefix('rust/')}``",
                     tests + where if tests else f"nothing: {fault['why']}"))
    return ("Fault", "file", "noticed by"), rows


def counters():
    """Returns the counters of the module with their comments."""
    text = (TOP / "rust/proto/error.rs").read_text()
    return ("Counter", "meaning"), [
        (f"``{name}``", " ".join(about.replace("///", "").split()).replace("`", "``"))
        for about, name in COUNTER.findall(text)]


def sentence(comment):
    """Returns the text of a comment as a page shows it."""
    text = IDS.sub("", " ".join(comment.replace("///", "").split()))
    return text.replace("`", "``")


def first(pattern, text):
    """Returns the first match of a pattern, which must match."""
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise ValueError(f"nothing matches {pattern}")
    return found


def variants(path, enum):
    """Returns the names that the log uses for the variants of an enum, with their comments."""
    text = (TOP / "rust" / path).read_text()
    body = first(rf"(?s)^pub enum {enum} {{\n(.*?)^}}", text)[1]
    names = dict(NAME.findall(first(rf"(?s)^impl {enum} {{\n(.*?)^}}", text)[1]))
    return [(f"``{names[variant]}``", sentence(comment))
            for comment, variant in VARIANT.findall(body) if variant in names]


def causes():
    """Returns a table of the causes for the end of a connection. A cause is a decision of the
    module, or the status of a failed work request."""
    work = [row for row in variants("proto/wc.rs", "WcStatus") if row[0] != "``success``"]
    return ("Cause", "meaning and what to do"), variants("proto/conn/cause.rs", "Cause") + work


def tracepoints(path, system):
    """Returns the tracepoints of a module with their comments."""
    return ("Event", "meaning"), [
        (f"``{system}_{name}``", sentence(comment))
        for comment, name in TRACE.findall((TOP / "rust" / path).read_text())]


def log(*crates):
    """Returns a table of the log messages of these crates with their comments. In a message, a name
    or dots stand for each value."""
    rows = []
    for crate in crates:
        for path in (TOP / "rust" / crate).rglob("*.rs"):
            for about, literal, names_transport in LOG.findall(path.read_text()):
                text = re.sub(r"\\\n\s*", "", literal).replace('\\"', '"').removesuffix("\\n")
                if names_transport:
                    text = f"XPRT{text.removeprefix('{}')}"
                text = HOLES.sub(lambda found: NAMES.get(found[1], found[1].upper()), text)
                rows.append((f"``{text}``", sentence(re.sub(r"\n *// ", " ", about))))
    return ("Message", "meaning and what to do"), sorted(rows)


def bounds():
    """Returns the counters of the server's limits."""
    return ("Counter", "what is counted"), [
        (f"``{name}``", sentence(about))
        for about, name in BOUND.findall((TOP / "rust/server/count.rs").read_text())]


def columns():
    """Returns the columns of the transport's line in mountstats."""
    text = (TOP / "rust/client/observe/mountstats.rs").read_text()
    head, _, *rows = [[sentence(text) for text in line.strip(" |").split(" | ")]
                      for line in re.findall(r"^/// (\|.*\|)$", text, re.MULTILINE)]
    return head, rows


def stages():
    """Returns the stages of a call in the server."""
    text = (TOP / "rust/server/latency.rs").read_text().partition("enum Stage {")[2]
    return ("Stage", "what happens"), [
        (variant.lower(), sentence(comment))
        for comment, variant in VARIANT.findall(text.partition("\n}")[0])]


def written(path, owner, function):
    """Returns the lines that a function writes, each with the comment in front of it."""
    text = (TOP / "rust" / path).read_text()
    text = text[text.index(owner):]
    body = first(rf"(?s)^( *)fn {function}\(.*?\n\1}}\n", text)[0]
    rows, comment = [], None
    for before, label in LINE.findall(body):
        if before:
            comment = re.sub("^ *//", "", before, flags=re.MULTILINE)
        elif comment:
            rows.append((f"``{label}``", sentence(comment)))
            comment = None
    return ("Line", "meaning"), rows


def parameters():
    """Returns the parameters of the module from their manual page."""
    text = (TOP / "Documentation/xprtrdma_rs.4").read_text()
    rows = []
    for name, values, about in PARAMETER.findall(text.partition(".SH PARAMETERS")[2]):
        lines = []
        for line in about.splitlines():
            macro, *words = line.split()
            if not macro.startswith("."):
                lines.append(line)
            elif macro == ".BR" and words[1].startswith("("):
                lines.append("".join(words))
            elif macro == ".BR":
                lines.append(f"``{words[0]}``{''.join(words[1:])}")
            else:
                lines.append(f"``{' '.join(words).strip(chr(34))}``")
        rows.append((f"``{name}``", values.strip("()"), " ".join(lines)))
    return ("Parameter", "values", "meaning"), rows


def patches():
    """Returns a table of the kernel patches. The table says which code of this project each patch
    replaces."""
    titles = {path.name[:4]: first(r"^Subject: \[PATCH\] (.*\n(?: .*\n)*)", path.read_text())[1]
              for path in (TOP / "Documentation/upstream").glob("*.patch")}
    head, rows = whole("patches")
    return (head[0], "title", *head[1:]), [
        (row[0], " ".join(titles[row[0]].split()), *row[1:]) for row in rows]


def whole(name):
    """Returns all columns of a record as a table, with the record's own titles."""
    rows = read(name)
    return tuple(rows[0]), [[text or NONE for text in row.values()] for row in rows]


def number(text):
    """Returns a count with two decimals, or without decimals if it is large."""
    value = float(text)
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def counts(columns, name="bench-counts", key="client"):
    """Returns a table of the counts of an RPC, one line for each operation. Each cell contains our
    count and the count of the in-tree module."""
    found = {client: {row["load"]: row for row in read(name) if row[key] == client}
             for client in CLIENTS}
    return ("operation", *columns.values()), [
        (load, *(f"{number(row[one])} / {number(found['intree'][load][one])}" for one in columns))
        for load, row in found["ours"].items() if all(row[one] for one in columns)]


def server():
    """Returns a table of the counts of an RPC in a server. Each cell contains our count and the
    count of the in-tree server. The last column is the ratio of the two counts for the whole
    kernel."""
    head, rows = counts(SERVER, "server-counts", "server")
    found = {(row["server"], row["load"]): float(row["kernel"]) for row in read("server-counts")}
    return (*head, "ratio"), [
        (*row, f"{found['ours', row[0]] / found['intree', row[0]]:.2f}") for row in rows]


def times(name="bench-times"):
    """Returns elapsed times in microseconds."""
    return ("", "operation", "ours", "in-tree", "TCP", "ours/in-tree", "scatter"), [
        (row["axis"], row["load"], *(number(row[key]) for key in ("ours", "in-tree", "tcp")),
         f"{float(row['ratio']):.3f}{' (worse)' if row['worse'] == '1' else ''}"
         + (f" (at first {float(row['first']):.3f})" if row["first"] else ""),
         f"±{100 * float(row['scatter']):.1f} %") for row in read(name)]


TABLES = {
    "counters": counters,
    "causes": causes,
    "reasons": lambda: (("Reason", "meaning and what to do"),
                        variants("proto/conn/cause.rs", "ConnectError")),
    "work-requests": lambda: (("Work request", "what it does"),
                              variants("proto/conn/failure_details.rs", "Opcode")),
    "queue-pair-events": lambda: (("Event", "meaning"),
                                  variants("proto/conn/failure_details.rs", "QpEvent")),
    "device-events": lambda: (("Event", "meaning"),
                              variants("proto/conn/device.rs", "DeviceEvent")),
    "client-tracepoints": lambda: tracepoints("sunrpc/trace.rs", "xprtrdma"),
    "server-tracepoints": lambda: tracepoints("svc/trace.rs", "svcrdma"),
    "adapter-counts": lambda: whole("adapter-counts"),
    "message-sizes": lambda: whole("message-sizes"),
    "longer-messages": lambda: whole("longer-messages"),
    "fairness": lambda: whole("fairness"),
    "export-again": lambda: whole("export-again"),
    "ci-minutes": lambda: whole("ci-minutes"),
    "parameters": parameters,
    "state": lambda: written("client/observe/debugfs.rs", "fn show_state(", "show_state"),
    "server-connection": lambda: written("server/board.rs", "impl Seen {", "show"),
    "bounds": bounds,
    "columns": columns,
    "log": lambda: log("client", "rdma", "sunrpc"),
    "server-log": lambda: log("server"),
    "rds-log": lambda: log("rds_transport", "rds"),
    "server-causes": lambda: (("Cause", "meaning"), variants("proto/served/cause.rs", "Cause")),
    "server-stages": stages,
    "other-counters": lambda: written("client/observe/debugfs.rs", "fn show_counters(",
                                      "show_counters"),
    "patches": patches,
    "patch-counts": lambda: whole("patch-counts"),
    "kernels": lambda: whole("kernels"),
    "rds-promises": lambda: whole("rds-promises"),
    "torture-runs": torture_runs,
    "torture-stock": lambda: Torture("0").table(),
    "torture-debug": lambda: Torture("1").table(),
    "torture-failures": torture_failures,
    "kills": lambda: picked(
        "kills", Client="client", NFS="vers", kills="kills", new_connections="connects",
        longest_pause_in_s="pause", RPCs="rpcs", seconds="seconds", problem="problem"),
    "pauses": lambda: picked("rail-pauses", Client="client", fault="what", rounds="rounds",
                             median_in_s="median", worst_in_s="worst", no_answer="lost"),
    "programs": lambda: picked("programs", Program="program", what_it_does="what",
                               passed_in_tree="intree passed", failed_in_tree="intree failed",
                               passed_with_ours="ours passed", failed_with_ours="ours failed"),
    "program-failures": program_failures,
    "server-programs": server_programs,
    "mutants": mutants,
    "findings": lambda: picked("findings", Found_by="found by", what_was_wrong="what",
                               test="test", how_it_is_known="how"),
    "host-instructions": lambda: picked("host-instructions", rustc="rustc", shape="shape",
                                        plan="plan", encode="encode", judge="judge"),
    "long-checks": lambda: picked("long-checks", command="command", last_run="date",
                                  minutes="minutes", passed="passed", failed="failed",
                                  skipped="skipped"),
    "bench-provider": lambda: counts(PROVIDER),
    "bench-kernel": lambda: counts(KERNEL),
    "bench-memory": lambda: counts(MEMORY),
    "bench-scale": lambda: picked("bench-scale", load="load", ours="ours", in_tree="in-tree"),
    "bench-times": times,
    "server-counts": server,
    "server-times": lambda: times("server-times"),
    "rds-counts": lambda: counts(RDS, "rds-counts", "module"),
    "processors": lambda: picked("processors", load="load", instructions="kernel",
                                 wake_ups="wake-ups", interrupts="interrupts",
                                 spin_locks_found_taken="contended"),
}


def lines(name):
    """Returns the table with this name, as lines of reStructuredText."""
    return text_of(*TABLES[name]())


def expanded(text):
    """Returns the text of a page with its tables, for readers of the source."""
    return re.sub(r"^\.\. results:: (\S+)$", lambda found: "\n".join(lines(found[1])), text,
                  flags=re.MULTILINE)


if __name__ == "__main__":
    for page in map(pathlib.Path, sys.argv[1:]):
        page.write_text(expanded(page.read_text()))
