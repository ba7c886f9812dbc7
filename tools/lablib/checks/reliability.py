# SPDX-License-Identifier: GPL-2.0
"""The page of faults survived, made from what runs of `torture` wrote."""

import itertools
import re
import statistics

from ..base import records, rst
from ..base.paths import REPO
from ..machine.session import NAMES
from . import killed, paused

PAGE = REPO / "Documentation/reliability.rst"
# What the page says, of the runs that were written to it: the runs themselves, what came of each
# fault with each version, what failed, and what the faults are.
RUNS, ROWS, FAILURES, FAULTS = ("torture-runs", "torture-rows", "torture-failures",
                                "torture-faults")
MIB = 1 << 20
# Where a console lies, in a kernel report as `judge` words it: of no use on another machine.
CONSOLE = re.compile(r" \(all in [^)]*\)")
VERSIONS = ("3", "4.2")
# Of one client in a table.
COLUMNS = 2 + len(VERSIONS)


def keep(found):
    """Add a run to the record and make the page anew."""
    runs = [*load(), found]
    save(runs)
    write()


def write():
    """Make the page anew, as the records have it."""
    PAGE.write_text(page(load(), killed.load(), paused.load()))


def name_of(run, taken):
    """A name that no other run has."""
    name = "-".join([run["date"], run["client"], *(["debug"] if run["debug"] else []),
                     str(run["seed"])])
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def save(runs):
    """Write the record."""
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
    """The runs of the record, each as `torture` writes it."""
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
    """(Fault, version) -> the sum of the rows of several runs."""
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
    """Median and worst recovery, as text."""
    seconds = row["recovery"]
    return (f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}") if seconds \
        else ("–", "–")


def text(found):
    """One run for the terminal."""
    lines = [f"{'fault':22}{'NFS':>5}{'rounds':>8}{'failed':>8}{'errors':>8}{'splats':>8}"
             f"{'median s':>10}{'worst s':>10}{'MiB':>8}"]
    for (name, version), row in summed([found]).items():
        median, worst = times(row)
        lines.append(f"{name:22}{version:>5}{rounds(row):8}{row['failed']:8}{row['errors']:8}"
                     f"{row['splats']:8}{median:>10}{worst:>10}{row['bytes'] // MIB:8}")
    return "\n".join(lines)


HEADER = """\
.. SPDX-License-Identifier: GPL-2.0

.. Written by tools/lab torture --write.

===========
Reliability
===========

What happens to the files of applications when machines, servers, wires and memory fail, with our
client and with the in-tree client. @VERDICT@

The load
========

One hard mount with NFSv3 and one with NFSv4.2, at the same time, of an ext4 file system on the
server's disk, which survives power cuts (exported ``sync``). On each mount three processes write
and read back for as long as the run lasts: 32 KiB past the page cache, 8 KiB with ``fsync``,
1000 bytes with open and close each time. A fourth asks for attributes. Every 512 bytes carry the
number of the file, the offset and the generation.

One fault follows the other, in random order at random times from a printed seed. After each:

* each of the four processes must have a call answered, a writer a whole write; the time from the
  end of the fault until then is the *recovery time*;
* then all rest, and each file is compared with the server's own: at each place the generation that
  was acknowledged last, and nothing else;
* there must be as many queue pairs, completion queues, protection domains and connection
  identifiers as before, and no report of the kernel.

At the end both machines are looked over for what is left, with kmemleak on the debug kernel.
A round has *failed* if anything was not as it must be. *Errors* counts rounds in which a process of
a hard mount saw an error, *splats* those with a report of a kernel.

::

    make torture MINUTES=30 SEED=1              # the last line: N passed, N failed, N skipped
    make torture MINUTES=30 SEED=1 DEBUG=1      # debug kernel, allocations fail too
    make torture MINUTES=30 SEED=1 CLIENT=both  # beside it in-tree: told, not judged
    tools/lab torture --fault silence           # one row; --write adds the run to this page
    tools/lab torture --rdma-version 2          # over version two: below
    selftests/torture --list                    # the rows

The same seed gives the same faults in the same order with the same durations. A run goes through
the table again and again, cheap faults more often than expensive ones.

"""

FOOTER = """\
Many times over
===============

::

    make check-endurance    # debug kernel, half an hour: the figures below are of its run
    make check-shutdown     # restarts under live mounts, part of make check

* 100 lives of the module (load, mount, I/O, unmount, unload), half of them with each version;
  under load 1000 connections broken by the client and 500 by restarts of the server: 7 passed,
  0 failed, nothing left, kmemleak and both kernels silent.
* A client that restarts while NFSv3 and 4.2 mounts are written to, at once or after its network
  went, is down within 20 s, by its kernel's own restart, both kernels silent.

Over version two
================

``tools/lab torture --rdma-version 2`` does the same over version two alone (``rdma_version=3``).
The server that speaks it is the responder of the selftests, a process in the server's machine that
hands the calls to knfsd: it ends with the machine, with its device, and in a row of its own
(``responder-restart``); ``version-change`` has it speak version one from one call to the next. Each
round also ends with every connection in version two and no complaint of the responder about a
message. ``server-address`` and what needs IPv6 are left out: it listens at one address.

* ours, stock kernel, 8 minutes: 34 rounds, every row of a stock kernel among them, none failed,
  nothing left behind.

The responder does one thing after the other. When a connection has gone in the midst of an RDMA
Read or Write it waits some four seconds for its device to give up, and the others wait with it.

Known limits
============

Faults of others
----------------

rxe, packets lost or late
  rxe has two faults, seen with either client. When it sends a request again, it executes the
  registrations behind it in the queue again; that fails, and the queue pair with it (our log says
  "flushed"). And when the acknowledgement of an earlier Send comes once more amid the answer to an
  RDMA Read, rxe reports the Read as done although the rest of its data is missing, and the
  connection ends. In the server a WRITE may then store what the memory held before. The kernel
  says so once, "WARNING: ... rxe_comp.c:827 at rxe_completer", which is told but fails no run.
  ``tools/lab torture --fault late-duplicates``, which no run has unless it is named, shows the
  report within a minute with either client. It changed four files in some 100 rounds with ours,
  none in 63 with in-tree, which connects again less often, and none in 52 with ours over an rxe
  whose completer was changed in one line, so that such a Read got an error, as 50 did.
rxe, packets that cannot be sent
  When rxe cannot send a packet (no carrier, no route, its only address gone, a queue of the
  interface added or removed), the device's management queue pair fails for good and neither client
  can connect. So a cable or an address comes back with a new device here, packets are lost, delayed
  and changed where they come in, and the lab makes its queues before there is traffic.
knfsd on iWARP
  When a connection ends amid the server's RDMA Reads, the server can lose regions, with either
  client, and says so once, "WARNING: ... verbs.c:2164 at ib_destroy_qp_user", below
  ``svc_rdma_free``. That is told but fails no run.
The in-tree client
  After allocations failed during a reconnect it passes the error to applications, and uses freed
  memory when its device is taken away; such a run is over after its first round. With
  ``client-address`` neither mount came back within five minutes, and it was not measured. Two
  rounds failed on a machine that had too much to do: a mount in a namespace was refused, and
  behind ``signals`` no process got an answer for three minutes.

Limits of the tests
-------------------

* knfsd grants no fewer than four credits. One credit is what every connection begins with.
* Idle connections are closed at once here, again and again. That the five minutes work is a test
  in full size (``disconnects.idle_connection_is_closed_and_comes_back``).
* With the debug kernel packets are lost, delayed and changed where the server receives them, not
  where the client does. It has no second interface for a namespace, nor memory for fifty mounts.
* ``umount -f`` ends what waits with NFSv3. With NFSv4 the NFS client says goodbye to the server
  first, whatever the transport, and waits for the answer.
* RDMA objects are counted after each round; memory is looked over by kmemleak once, at the end of
  a run with the debug kernel.
* Fifty mounts at a time share connections as the NFS client has it: two addresses, four versions.
"""


def wrong(row):
    """What was not as it must be, in words."""
    return ", ".join(f"{row[what]} {what}" for what in ("failed", "errors", "splats")
                     if row[what])


def cells(versions):
    """The cells of one client and one fault, from its rows by NFS version."""
    if not versions:
        return ["–"] * COLUMNS
    # A round is about both mounts.
    worst = max(versions.values(), key=lambda row: (rounds(row), row["failed"]))
    count = f"{rounds(worst)}: {wrong(worst)}" if wrong(worst) else rounds(worst)
    return [count, *(", ".join(times(versions[v])) if v in versions else "–" for v in VERSIONS),
            sum(row["bytes"] for row in versions.values()) // MIB]


def table(runs):
    """Rows of one kernel, both clients side by side."""
    clients = [client for client in NAMES if any(run["client"] == client for run in runs)]
    totals = {client: summed(r for r in runs if r["client"] == client) for client in clients}
    what = {name: text for run in runs for name, text in run["faults"].items()}
    # In the order of the program's own table.
    lines = [[f"``{name}``: {words}",
              *(cell for client in clients
                for cell in cells({v: totals[client][name, v] for v in VERSIONS
                                   if (name, v) in totals[client]}))]
             for name, words in what.items()
             if any((name, v) in totals[client] for client in clients for v in VERSIONS)]
    head = [f"{NAMES[client]}: {words}" for client in clients
            for words in ("rounds", *(f"NFSv{v}" for v in VERSIONS), "MiB verified")]
    return rst.table(("Fault", *head), lines)


def turns(run):
    """The rounds of a run, each of which is about both mounts."""
    return sum(max(map(rounds, versions.values())) for versions in run["rows"].values())


def verdict(runs):
    """All runs in a sentence for each client."""
    said = []
    for client in NAMES:
        mine = [run for run in runs if run["client"] == client]
        bad = [fault for run in mine for fault, versions in run["rows"].items()
               for _ in range(max(row["failed"] for row in versions.values()))]
        what = f" ({', '.join(f'``{fault}``' for fault in dict.fromkeys(bad))})" if bad else ""
        said.append(f"{NAMES[client]}: {sum(map(turns, mine))} rounds, {len(bad)} failed{what}")
    return "All runs below together:\n\n" + "\n".join(f"* {line}" for line in said) + \
        "\n\n`Known limits`_ tells why."


def summary(runs, client):
    """What the runs of one client were, and what they left, in a line."""
    runs = [run for run in runs if run["client"] == client]
    kernels = ", ".join(sorted({run["kernel"] for run in runs}))
    two = sum(run.get("processors", 1) == 2 for run in runs)
    left = sorted({complaint.strip() for run in runs for complaint in run["complaints"]})
    left = [a for a, b in itertools.pairwise([*left, ""]) if not b.startswith(a)]
    said = [f"* {NAMES[client]}, {kernels}: {len(runs)} runs",
            *([f"{two} of them with two processors"] if two else []),
            f"{sum(run['minutes'] for run in runs):.0f} minutes", f"{sum(map(turns, runs))} rounds"]
    broken = sum(not run["ended"] for run in runs)
    return ", ".join(said) + (f"; {broken} did not end" if broken else "") + \
        f"; left behind: {'; '.join(left) or 'nothing'}\n"


def page(runs, kills=(), pauses=()):
    """The whole page."""
    out = HEADER.replace("@VERDICT@", verdict(runs))
    for debug, title in ((False, "Stock kernel"), (True, "Debug kernel")):
        some = [r for r in runs if r["debug"] == debug]
        if not some:
            continue
        out += f"{title}\n{'=' * len(title)}\n\n"
        out += "".join(summary(some, client) for client in NAMES
                       if any(run["client"] == client for run in some))
        out += "\nRecovery times are in seconds: median, worst.\n\n" + table(some) + "\n"
        # What came again is told once.
        bad = dict.fromkeys(f"* {NAMES[run['client']]}, ``{failure['fault']}``: "
                            f"``{reason(failure['text'])}``\n"
                            for run in some for failure in run["failures"])
        if bad:
            out += f"What failed:\n\n{''.join(bad)}\n"
    return out + killed.page(kills) + paused.page(pauses) + FOOTER


def reason(text):
    """The line that says why: of a kernel report the first, of Python's traces the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    report = next((n for n, line in enumerate(lines) if line.endswith("kernel report:")), None)
    if report is not None:
        return lines[report + 1][:160]
    errors = [line for line in lines if line.split(":")[0].endswith(("Error", "Timeout"))]
    return (errors or lines or ["?"])[-1][:160]
