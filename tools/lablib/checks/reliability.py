# SPDX-License-Identifier: GPL-2.0
"""The record of `torture` and similar runs. Documentation/reliability.rst shows this record."""

import itertools
import re
import statistics

from ..base import records

# The four tables of the record: the runs, the result of each fault with each NFS version, the
# failures, and the descriptions of the faults.
RUNS, ROWS, FAILURES, FAULTS = ("torture-runs", "torture-rows", "torture-failures",
                                "torture-faults")
MIB = 1 << 20
# Pattern of the path that `judge` adds to a kernel report: the path of the file with the console's
# output. The path is useless on another machine, so it is not recorded.
CONSOLE = re.compile(r" \(all in [^)]*\)")
VERSIONS = ("3", "4.2")


def keep(found):
    """Adds a run to the record."""
    save([*load(), found])


def name_of(run, taken):
    """Returns a name that no other run has."""
    name = "-".join([run["date"], run["client"], *(["debug"] if run["debug"] else []),
                     str(run["seed"])])
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def save(runs):
    """Overwrites the record with these runs."""
    named, faults = {}, {}
    for run in runs:
        named[name_of(run, named)] = run
        faults |= run["faults"]
    records.write(FAULTS, ("fault", "what"), faults.items())
    records.write(RUNS, ("run", "date", "client", "debug", "kernel", "processors", "seed",
                         "minutes", "ended", "complaints"),
                  [(name, run["date"], run["client"], int(run["debug"]), run["kernel"],
                    run.get("processors", 1), run["seed"], f"{run['minutes']:g}",
                    int(run["ended"]), "; ".join(CONSOLE.sub("", c) for c in run["complaints"]))
                   for name, run in named.items()])
    records.write(ROWS, ("run", "fault", "vers", "failed", "errors", "splats", "bytes",
                         "recovery"),
                  [(name, fault, version, row["failed"], row["errors"], row["splats"],
                    row["bytes"], " ".join(map(str, row["recovery"])))
                   for name, run in named.items() for fault, versions in run["rows"].items()
                   for version, row in versions.items()])
    records.write(FAILURES, ("run", "fault", "reason"),
                  [(name, failure["fault"], reason(CONSOLE.sub("", failure["text"])))
                   for name, run in named.items() for failure in run["failures"]])


def load():
    """Returns the recorded runs, in the form in which `torture` writes them."""
    faults = {row["fault"]: row["what"] for row in records.read(FAULTS)}
    runs = {row["run"]: {
        "date": row["date"], "client": row["client"], "debug": row["debug"] == "1",
        "kernel": row["kernel"], "processors": int(row["processors"]), "seed": int(row["seed"]),
        "minutes": float(row["minutes"]), "ended": row["ended"] == "1",
        "complaints": row["complaints"].split("; ") if row["complaints"] else [],
        "faults": faults, "rows": {}, "failures": []} for row in records.read(RUNS)}
    for row in records.read(ROWS):
        runs[row["run"]]["rows"].setdefault(row["fault"], {})[row["vers"]] = {
            "recovery": [float(seconds) for seconds in row["recovery"].split()],
            **{key: int(row[key]) for key in ("bytes", "failed", "errors", "splats")}}
    for row in records.read(FAILURES):
        runs[row["run"]]["failures"].append({"fault": row["fault"], "text": row["reason"]})
    return list(runs.values())


def summed(runs):
    """Returns the sums of the rows of several runs, by (fault, version)."""
    found = {}
    for run in runs:
        for name, versions in run["rows"].items():
            for version, row in versions.items():
                total = found.setdefault((name, version), {key: type(value)() for key, value
                                                           in row.items()})
                for key, value in row.items():
                    total[key] += value
    return found


def rounds(row):
    return len(row["recovery"]) + row["failed"]


def times(row):
    """Returns the median and the maximum of recovery times as text."""
    seconds = row["recovery"]
    return (f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}") if seconds \
        else ("–", "–")


def text(found):
    """Returns the results of one run as text for the terminal."""
    lines = [f"{'fault':22}{'NFS':>5}{'rounds':>8}{'failed':>8}{'errors':>8}{'splats':>8}"
             f"{'median s':>10}{'worst s':>10}{'MiB':>8}"]
    for (name, version), row in summed([found]).items():
        median, worst = times(row)
        lines.append(f"{name:22}{version:>5}{rounds(row):8}{row['failed']:8}{row['errors']:8}"
                     f"{row['splats']:8}{median:>10}{worst:>10}{row['bytes'] // MIB:8}")
    return "\n".join(lines)


def reason(text):
    """Returns the line that describes why a run failed. It is the first of the following lines that
    the text contains:

    - the first line of a kernel report
    - the last line that names an error, for example the last line of a Python traceback
    - the last line
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    report = next((n for n, line in enumerate(lines) if line.endswith("kernel report:")), None)
    if report is not None:
        return lines[report + 1][:160]
    errors = [line for line in lines if line.split(":")[0].endswith(("Error", "Timeout"))]
    return (errors or lines or ["?"])[-1][:160]
