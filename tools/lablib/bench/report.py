# SPDX-License-Identifier: GPL-2.0
"""Implements `make demo` and `make count`, which make measurements and print the results."""

import dataclasses
import json
import pathlib
import statistics
import textwrap

from ..artefacts import root
from ..base.paths import REPO
from ..base.ui import LabError, say
from ..machine import wire
from ..machine.pair import GUEST_PROGRAM
from ..machine.session import NAMES, Plan, Session
from . import instructions, source


@dataclasses.dataclass(frozen=True)
class Pair:
    """A comparison of two ways to use our client. `ways` contains the names of the two ways, which
    guest/instructions.py defines. The other fields are the settings of the comparison."""

    ways: tuple[str, str]
    most: float | None
    mount: str
    cables: int = 1
    serving: str = "intree"


OPERATIONS_SECONDS = 600
COUNT_SECONDS = 3600
# Memory of the server and of the client in MiB. The server needs more memory, because it may answer
# 1024 calls at a time.
MEMORY = (3072, 2048)
PROFILE = 60  # number of functions whose counts are kept
# Names of the instruction counts that are shown for a measurement with several processors.
BESIDE = ("kernel", "spinning")
# Groups of code whose waits for spin locks are shown separately.
WAITING = ("transport", "sunrpc", "ib_core", "rxe")
# If this word replaces the options of a mount, several loads are measured: from one call to many
# calls at a time, and from one mount to many mounts.
SCALE = "scale"
CLIENTS = ("ours", "intree")
# Pairs of ways to use our client. `most` is the maximum ratio of the instructions of the second way
# to those of the first way. Only instructions of the transport and of the code that it calls are
# compared. The rest of the kernel is left out, because it needs fewer instructions if messages are
# longer. This decrease would hide an increase in the transport.
PAIRS = {
    "versions": Pair(("version 1", "version 2"), 1.02, "vers=3,nolock,rdma"),
    "versions-served": Pair(("version 1", "version 2"), 1.02, "vers=3,nolock,rdma",
                            serving="ours"),
    "messages": Pair(("messages of 4 KiB", "messages of 8 KiB"), None, "vers=3,nolock,rdma",
                     serving="ours"),
    "rails": Pair(("rails off", "rails on"), 1.01, "vers=4.2,rdma,port=20049", cables=2),
}
COLUMNS = (("work_requests", "work requests"), ("posts", "post-send calls"),
           ("completions", "completions"), ("recv_posts", "post-recv calls"))


def options(version):
    return f"vers={version},rdma,port=20049"


def in_client(spec, words, program, client="ours", timeout=OPERATIONS_SECONDS, **more):
    """Runs, in the client, a program that prints JSON. Returns three results: the JSON, the
    session, and the status of the program."""
    plan = Plan(client=client, spec=spec, load=False, timeout=timeout, **more)
    session, output, status = Session(plan), [], None

    def sink(kind, data):
        if kind == wire.OUT:
            output.append(data)
        else:
            say(data.decode(errors="replace").rstrip())

    with session:
        status = session.run([*GUEST_PROGRAM, f"lablib.guest.{program}", *words], sink)
    try:
        found = json.loads(b"".join(output))
    except ValueError:
        raise LabError(f"{program}: exit status {status}, no report") from None
    return found, session, status


def with_clients(spec, client, program, *words, **more):
    """Runs, in the client machine, a program that prints JSON. The last arguments of the program
    name what it measures: client modules, or ways to use our client. Returns the result of
    `in_client`."""
    clients: tuple[str, ...] = CLIENTS if client == "both" else (client,)
    if client in PAIRS:
        pair = PAIRS[client]
        clients, more["rails"], more["serving"] = pair.ways, pair.cables, pair.serving
        # The server accepts both versions, so a client that only knows version one can connect.
        more["serving_words"] = "rdma_version=2"
    return in_client(spec, [*words, *clients], program,
                     "intree" if client == "intree" else "ours", **more)


def count_table(results):
    """Returns a table of the counts per RPC, with a line for each operation. The counts of the
    clients are next to each other."""
    clients = list(results)
    width = 14
    operations = [name for name, counts in results[clients[0]].items() if COLUMNS[0][0] in counts]
    first = max(map(len, operations)) + 2
    lines = ["per RPC".ljust(first) + "".join(
        title.center(width * len(clients)) for _, title in COLUMNS)]
    lines.append(" " * first + "".join(NAMES[c].rjust(width - 2).ljust(width)
                                       for _ in COLUMNS for c in clients))
    for operation in operations:
        cells = (f"{results[c][operation][key]:.2f}".rjust(width - 2).ljust(width)
                 for key, _ in COLUMNS for c in clients)
        lines.append(operation.ljust(first) + "".join(cells))
    return "\n".join(line.rstrip() for line in lines)


def count(spec, client, version, inline, processors):
    """Prints a table of the counts per RPC."""
    found, session, status = with_clients(spec, client, "count_clients", options(version),
                                          inline=inline, processors=processors)
    print(count_table(found))
    return 1 if status or session.complaints else 0


def measure_instructions(spec, client, mount, rounds, functions, inline=0, memory=False, **more):
    """Prints the number of instructions per RPC, by the address of the code and by the purpose for
    which the code runs. `mount` contains the options of the mount. If `mount` is the constant
    SCALE, several loads with one to many mounts are measured. If `memory` is true, also prints how
    many cache lines are touched and missed per RPC. `more` contains further arguments of the
    machines' `Plan`.

    Returns three results: the medians of these numbers; a dictionary from client and operation to
    the functions that ran for the transport; and whether all measurements succeeded.
    """
    plugin = "cache" if memory else "instructions"
    entries, session, status = with_clients(spec, client, "instructions", plugin, mount,
                                            str(rounds), timeout=COUNT_SECONDS, plugin=plugin,
                                            inline=inline, memory=MEMORY, **more)
    found = instructions.load(session, entries)
    rows = instructions.medians(found)
    print(instructions.table(rows), flush=True)
    if memory:
        print(f"\n{instructions.table(rows, instructions.MEMORY)}", flush=True)
    if functions and "ours" in found:
        print_source(session, found["ours"], functions)
    for name, operations in found.items() if functions else ():
        for operation, counted in operations.items():
            for title, key, kinds, of in (
                    ("transport and what it calls", "service", {instructions.TRANSPORT},
                     "functions"),
                    ("atomic instructions of these", "atomics", {instructions.TRANSPORT},
                     "atomics"),
                    ("whole kernel", "kernel", instructions.KERNEL, "functions")):
                print(f"\n{name}, {operation}, {title}:")
                print(instructions.listing(
                    instructions.top(root.path(), counted[-1], kinds, functions, of),
                    rows[name][operation][key]), flush=True)
    profile = {name: {operation: instructions.top(root.path(), counted[-1],
                                                  {instructions.TRANSPORT}, PROFILE)
                      for operation, counted in operations.items()}
               for name, operations in found.items()}
    return rows, profile, not status and not session.complaints


def called(way):
    """Returns the label that the report prints for this way of using our client."""
    return NAMES.get(way, way)


def each_way(rows, operation, columns):
    """Returns the lines of a table with the counts of an operation: one line for each module or
    setting."""
    return [operation.ljust(26) + called(way).ljust(10) + "".join(
        (f"{row[c]:.2f}" if row[c] < 100 else f"{row[c]:,.0f}").rjust(14)
        for row in (rows[way][operation],) for c in columns) for way in rows]


def tell(rows, executed, functions, output):
    """Prints, for each way to use our client and each operation, the functions that execute the
    most instructions. Only functions of the transport and of the code that it calls are considered.
    `functions` is the number of functions to print. If `output` is given, writes the rows to this
    file."""
    for way, operations in executed.items() if functions else ():
        for operation, counted in operations.items():
            print(f"\n{called(way)}, {operation}, transport and what it calls:")
            print(instructions.listing(
                instructions.top(root.path(), counted[-1], {instructions.TRANSPORT}, functions),
                rows[way][operation]["service"]), flush=True)
    if output:
        pathlib.Path(output).write_text(json.dumps(rows, indent=1) + "\n")


def compare(spec, name, rounds):
    """Compares the instruction counts of two ways to use our client. PAIRS[name] contains the two
    ways, and the limit `most` for the ratio of their instruction counts in the transport. Returns
    true if the measurement succeeded and no operation exceeds the limit. The limit does not apply
    to transfers of one mebibyte."""
    pair = PAIRS[name]
    rows, _, good = measure_instructions(spec, name, pair.mount, rounds, 0)
    one, two = (rows[way] for way in pair.ways)
    for operation in one:
        ratios = {column: two[operation][column] / one[operation][column]
                  for column in ("service", "kernel")}
        # The count for a transfer of one mebibyte depends on the positions of its pages.
        over = pair.most and ratios["service"] > pair.most and "MiB" not in operation
        good = good and not over
        print(f"{operation}: instructions of {pair.ways[1]} to those of {pair.ways[0]}: "
              f"{ratios['service']:.3f} in the transport and what it calls, "
              f"{ratios['kernel']:.3f} in the whole kernel"
              + (f"; MORE THAN {pair.most}" if over else ""), flush=True)
    return good


def print_source(session, counted, number):
    """Prints the lines of our source to which the executed instructions of the module belong."""
    code = source.Source(root.path(), REPO / session.module)
    for operation, rounds in counted.items():
        for what, found in zip(("function", "line"), code.profile(rounds[-1]), strict=True):
            print(f"\nours, {operation}, the module alone, by {what}:")
            total = sum(found.values())
            print(instructions.listing([[name[:instructions.NAME], "", count] for name, count
                                        in found.most_common(number)], total), flush=True)


def count_instructions(spec, client, mount, rounds, functions, inline, memory, output, **more):
    """Prints a table of the instructions per RPC. If `memory` is true, the table also contains the
    cache lines."""
    rows, profile, good = measure_instructions(spec, client, mount, rounds, functions, inline,
                                               memory, **more)
    if output:
        pathlib.Path(output).write_text(
            json.dumps({"counts": rows, "profile": profile}, indent=1) + "\n")
    return 0 if good else 1


def measure_processors(spec, client, processors, rounds):
    """Measures with each number of processors in `processors`. Returns three results:

    - The counts per RPC, by client, operation (with the number of processors) and counter. Each
      count is the median of the rounds.
    - The number of waits for spin locks per RPC, by client, operation and waiting function. Each
      number is the median of the rounds.
    - Whether all measurements succeeded.
    """
    found, waits, good = {}, {}, True
    for number in processors:
        seen, session, status = with_clients(spec, client, "processors", str(rounds),
                                             processors=number, timeout=COUNT_SECONDS,
                                             memory=MEMORY, plugin="instructions")
        good &= not status and not session.complaints
        if seen["processors"] != number:
            raise LabError(f"the client has {seen['processors']} processors, not {number}")
        executed = instructions.medians(instructions.load(session, seen["instructions"]))
        for name, operations in seen["counts"].items():
            for operation, rows in operations.items():
                load = f"{operation}, {number} CPU"
                found.setdefault(name, {})[load] = {
                    column: executed[name][operation][column] for column in BESIDE
                } | medians(rows) | medians(map(by_group, seen["waits"][name][operation]))
                waits.setdefault(name, {})[load] = medians(seen["waits"][name][operation])
    return found, waits, good


def by_group(waits):
    """Returns, for each group of code, how many times this code found a spin lock held by another
    processor. The keys of `waits` have the form `function [module]`."""
    found = dict.fromkeys((f"{group} waits" for group in WAITING), 0.0)
    for code, times in waits.items():
        group = instructions.GROUPS.get(code.partition(" [")[2].rstrip("]"))
        if group in WAITING:
            found[f"{group} waits"] += times
    return found


def medians(rows):
    """Returns a dictionary with the median of each number in these dictionaries. A missing number
    counts as 0."""
    rows = list(rows)
    return {key: statistics.median(row.get(key, 0) for row in rows)
            for key in dict.fromkeys(key for row in rows for key in row)}


def processors_table(found):
    """Returns a table with a line for each load. The counts of the clients are next to each
    other."""
    clients, width = list(found), 12
    operations = found[clients[0]]
    columns = list(next(iter(operations.values())))
    first = max(map(len, operations)) + 2

    def cell(number):
        return f"{number:,.0f}" if number >= 1000 else f"{number:.2f}"

    lines = ["per RPC".ljust(first) + "".join(
        title.center(width * len(clients)) for title in columns),
        " " * first + "".join(NAMES[c].rjust(width) for _ in columns for c in clients)]
    lines += [operation.ljust(first) + "".join(
        cell(found[c][operation][key]).rjust(width) for key in columns for c in clients)
        for operation in operations]
    return "\n".join(line.rstrip() for line in lines)


def count_processors(spec, client, processors, rounds, functions, output):
    """Measures with several numbers of processors, and prints a table of the counts. Then prints,
    for each client and load, the code that waited most for spin locks."""
    found, waits, good = measure_processors(spec, client, processors, rounds)
    print(processors_table(found))
    for name, operations in waits.items() if functions else ():
        for operation, waited in operations.items():
            print(f"\n{NAMES[name]}, {operation}, locks found taken by:")
            most = sorted(waited.items(), key=lambda one: -one[1])[:functions]
            readable = instructions.readable(root.path(), [code for code, _ in most])
            print("\n".join(f"{times:12.3f}  {readable[code]}" for code, times in most))
    if output:
        pathlib.Path(output).write_text(
            json.dumps({"processors": found, "waits": waits}, indent=1) + "\n")
    return 0 if good else 1


def demo(spec, client, version):
    """Prints the whole demonstration as a page of text."""
    found, session, status = with_clients(spec, client, "demo", options(version))
    package = session.stock.package
    image = [f"{name} {package['version']}\n             sha256 {checksum}"
             for name, checksum in package["packages"].items()
             if "image" in name or "binary" in name or "modules" in name]
    print("\nNFS over RDMA, client in Rust" if "ours" in found else "\nNFS over RDMA")
    print("=" * 78)
    print(f"kernel       {session.stock.release}, unmodified, in both machines")
    print("packages     " + "\n             ".join(image))
    if session.module:
        print(f"module       {session.module}")
    for name, one in found.items():
        print(f"\n{'our client' if name == 'ours' else 'in-tree client, same run'}")
        print(f"  mount      {one['mount']}")
        for line in one["log"]:
            print(f"  log        {line}")
        print(f"  copied     {one['files']} files both ways")
        for what, equal in one["equal"].items():
            print(f"  checksums  {what}: {'equal' if equal else 'DIFFERENT'}")
        print("  xprtrdma-status, while 4096 bytes at a time were written and synchronised:")
        print(textwrap.indent(one["status"].strip(), "    "))
    print("\nTimes and rates in these machines, whose RDMA devices are software, tell nothing of "
          "a\nclient. Counts do:\n")
    print(count_table({name: one["counts"] for name, one in found.items()}))
    equal = all(all(one["equal"].values()) for one in found.values())
    good = equal and not status and not session.complaints
    print(f"\n{'Everything as it should be.' if good else 'FAILED, see above.'}")
    return 0 if good else 1
