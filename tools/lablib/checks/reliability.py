# SPDX-License-Identifier: GPL-2.0
"""The page of faults survived, made from what runs of `torture` wrote."""

import json
import re
import statistics

from ..base import rst
from ..base.paths import REPO
from ..machine.session import NAMES

PAGE = REPO / "Documentation/reliability.rst"
# What the page says: the runs that were written to it, one a line.
RECORD = REPO / "tools/lablib/reliability.json"
MIB = 1 << 20
# Where a console lies, in a kernel report as `judge` words it: of no use on another machine.
CONSOLE = re.compile(r" \(all in [^)]*\)")
COLUMNS = ("rounds, failed, errors, splats", "recovery in s: median, worst", "MiB verified")


def keep(found):
    """Add a run to the record and make the page anew."""
    runs = load() + [json.loads(CONSOLE.sub("", json.dumps(found)))]
    RECORD.write_text("[\n" + ",\n".join(map(json.dumps, runs)) + "\n]\n")
    PAGE.write_text(page(runs))


def load():
    return json.loads(RECORD.read_text()) if RECORD.exists() else []


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

What happens to the files of applications when machines, servers, wires and memory fail, with
our client and with the in-tree client.

The load
========

One mount with NFSv3 and one with NFSv4.2, hard, at the same time, of a file system on the
server's disk (ext4, exported ``sync``), which survives power cuts. On each mount three processes
write and read back for as long as the run lasts: 32 KiB past the page cache, 8 KiB with
``fsync``, 1000 octets with open and close each time; a fourth asks for attributes. Every 512
octets carry the number of the file, the offset and the generation, and the rest depends on them.

One fault follows the other, in random order at random times from a printed seed. After each:

* each of the four processes must have a call answered, a writer a whole write: until then it is the
  *recovery time*, counted from the end of the fault;
* then all rest, and each file is compared with the server's own: the generation that was
  acknowledged last at each place, and nothing else;
* there must be as many queue pairs, completion queues, protection domains and connection
  identifiers as before, and no report of the kernel.

At the end everything is unmounted and unloaded, and both machines are looked over for what is
left, with kmemleak on the debug kernel. *Errors* counts rounds in which a process of a hard mount
saw an error, *failed* rounds in which anything was not as it must be.

How to repeat it
================

::

    make torture MINUTES=30 SEED=1              # the last line: N passed, N failed, N skipped
    make torture MINUTES=30 SEED=1 DEBUG=1      # debug kernel, allocations fail too
    make torture MINUTES=30 SEED=1 CLIENT=both  # beside it in-tree: told, not judged
    tools/lab torture --fault silence           # one row; --write adds the run to this page
    selftests/torture --list                    # the rows

The same seed gives the same faults in the same order with the same durations; what the machines
do at that moment differs. A run goes through the table again and again, cheap faults more often
than expensive ones.

"""

FOOTER = """\
Many times over
===============

::

    make check-endurance    # debug kernel, half an hour: the figures below are of its run
    make check-shutdown     # restarts under live mounts, part of make check

* 100 lives of the module (load, mount, I/O, unmount, unload), half of them with NFSv3, half with
  4.2.
* 1000 connections broken with the client's switch under load, 500 with each version.
* 500 connections ended by the server, that is, 250 restarts of it with each version, under load.
* 7 passed, 0 failed; nothing left, kmemleak and both kernels silent.
* A client that restarts while NFSv3 and 4.2 mounts are written to, at once or after its network
  went, is down within 20 s, by its kernel's own restart, both kernels silent.

What is not shown here
======================

* knfsd grants no fewer than four credits. One credit is what every connection begins with.
* An idle connection is given up after five minutes; here it is closed at once instead,
  again and again. That the five minutes work is a test in full size
  (``disconnects.idle_connection_is_closed_and_comes_back``).
* When rxe's only IPv4 address goes and comes back, neither client can connect any more. By rxe's
  source the same must be expected whenever it cannot send a packet (no carrier, no route): the
  queue pair fails, and the device's management queue pair for good. So a cable or an address that
  comes back comes back with a new device, and packets are lost, delayed and changed where they
  come in.
* A queue that is added to the interface, or taken away, is such a moment too: with 5 % of the
  packets duplicated by a queue made for that under load, the client's management queue pair failed
  with either client, and nobody connected any more. The lab makes the way by which packets come in
  before there is traffic.
* rxe has two faults of its own, which packets that are lost or late bring out with either client.
  When it sends a request again, it executes the registrations behind it in the queue again; that
  fails, and the queue pair with it (in our log: "flushed"). And it takes the acknowledgement of an
  earlier Send that comes once more, amid the answer to an RDMA Read, for an error without a number:
  the Read is reported as done although the rest of its data is missing, and the connection ends. In
  the server that means that a WRITE may store what the memory held before. It says so once,
  "WARNING: ... rxe_comp.c:827 at rxe_completer", which is told but does not fail a run. One file of
  the runs above was changed by it, in the run with seed 9602, which did nothing else.
  ``tools/lab torture --fault late-duplicates``, which is no part
  of a run unless it is named, shows the report within a minute, with ``--client intree`` as well.
  Four such files were seen in some 100 rounds of it with ours, none in 63 with in-tree, which
  connects again less often; and none in 52 with ours over an rxe whose completer was changed in one
  line, so that it gave such a Read an error: 50 times it did.
* The server has a fault on iWARP, also with either client: when a connection ends amid its RDMA Reads, it
  can lose the regions of one, and says so once, "WARNING: ... verbs.c:2164 at ib_destroy_qp_user", below
  ``svc_rdma_free``. That is told but does not fail a run; with the in-tree client it came in one of four runs
  of ``tools/lab run --provider siw --client intree -- ./selftests/run --client intree --filter
  ^disconnects.server_restarts``, in the one that had another pair of machines beside it.
* Two rounds failed with the in-tree client: a mount in a namespace was refused as unreachable at
  its first attempt, and behind ``signals`` no process of its mounts got an answer for three
  minutes. Both were on a machine that had too much to do.
* The in-tree client was not measured with ``client-address``: neither mount came back within five
  minutes, and the run was ended.
* With the debug kernel packets are lost, delayed and changed where the server receives them, not
  where the client does; and there is no second interface for a namespace, nor memory for fifty
  mounts at a time.
* ``umount -f`` ends what waits with NFSv3. With NFSv4 it says goodbye to the server first, whatever
  the transport, and waits for the answer.
* Leaks have no column of their own: RDMA objects are counted after each round, and one too many
  fails it; memory is looked over by kmemleak once, at the end of a run with the debug kernel.
* After allocations failed during a reconnect, the in-tree client passes the error on to
  applications, and uses freed memory when its device is taken away afterwards, which then never
  ends: such a run is over after its first round.
* Fifty mounts at a time share connections as the NFS client has it: two addresses, four versions.
"""


def table(runs):
    """Rows of one kernel, both clients side by side."""
    totals = {client: summed(r for r in runs if r["client"] == client) for client in NAMES}
    what = {name: text for run in runs for name, text in run["faults"].items()}
    lines = []
    # In the order of the program's own table.
    for name, version in sorted(set().union(*totals.values()),
                                key=lambda key: (list(what).index(key[0]), key[1])):
        cells = [f"``{name}``: {what[name]}", version]
        for client in NAMES:
            row = totals[client].get((name, version))
            cells += [", ".join(str(n) for n in (rounds(row), row["failed"], row["errors"],
                                                 row["splats"])),
                      ", ".join(times(row)), row["bytes"] // MIB] if row else ["–"] * 3
        lines.append(cells)
    head = ("Fault", "NFS", *(f"{NAMES[c]}: {words}" for c in NAMES for words in COLUMNS))
    return rst.table(head, lines)


def page(runs):
    """The whole page."""
    out = HEADER if runs else HEADER + "No run has been written to this page yet.\n\n"
    for debug, title in ((False, "Stock kernel"), (True, "Debug kernel")):
        some = [r for r in runs if r["debug"] == debug]
        if not some:
            continue
        out += f"{title}\n{'=' * len(title)}\n\nRuns:\n\n"
        for run in some:
            count = sum(max(map(rounds, v.values())) for v in run["rows"].values())
            left = "; ".join(run["complaints"]) if run["complaints"] else "nothing" \
                if run["ended"] else "see below"
            cpus = ", 2 processors" if run.get("processors", 1) == 2 else ""
            out += (f"* {run['date']}, {NAMES[run['client']]}, {run['kernel']}{cpus}, seed "
                    f"{run['seed']}, {run['minutes']:g} minutes, {count} rounds; left behind: "
                    f"{left}\n")
        out += f"\n{table(some)}\n"
        bad = [(run, failure) for run in some for failure in run["failures"]]
        if bad:
            out += "What failed:\n\n"
            for run, failure in bad:
                out += (f"* {NAMES[run['client']]}, seed {run['seed']}, ``{failure['fault']}``: "
                        f"``{reason(failure['text'])}``\n")
            out += "\n"
    return out + FOOTER


def reason(text):
    """The line that says why: of a kernel report the first, of Python's traces the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    report = next((n for n, line in enumerate(lines) if line.endswith("kernel report:")), None)
    if report is not None:
        return lines[report + 1][:160]
    errors = [line for line in lines if line.split(":")[0].endswith(("Error", "Timeout"))]
    return (errors or lines or ["?"])[-1][:160]
