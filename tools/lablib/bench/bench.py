# SPDX-License-Identifier: GPL-2.0
"""Implements `make bench`: measures elapsed times and exact counts of our client beside those of
the in-tree client, and elapsed times of our server beside those of the in-tree server."""

import dataclasses
import json
import statistics

from ..artefacts import kernel, root
from ..base.ui import LabError, say
from . import instructions, report

# The settings of mounts that guest/bench.py measures. They are called axes. The first axis is the
# usual case.
AXES = ("one mount", "nconnect=4", "nconnect=16", "10 connections", "50 connections",
        "1024 slots")
# Our server grants at most 64 calls, so the last axis is not measured with servers.
SERVER_AXES = AXES[:-1]
SECONDS = 3600
FIRST, OURS, SECOND, TCP = "in-tree", "ours", "in-tree again", "tcp"


@dataclasses.dataclass(frozen=True)
class Scope:
    """How much is measured: the axes, how many rounds, and the scale of the loads."""

    axes: tuple = AXES
    rounds: int = 7
    long_rounds: int = 3
    scale: float = 1.0
    count_rounds: int = 3
    scale_rounds: int = 1

    @classmethod
    def quick(cls):
        return cls(axes=AXES[:1], rounds=2, long_rounds=1, scale=0.25, count_rounds=1,
                   scale_rounds=0)


def judge(legs):
    """Returns the median durations of a load, and whether our module is slower than the in-tree
    module. A difference within the scatter of the measurements does not count as slower."""
    bases = [(a + b) / 2 for a, b in zip(legs[FIRST], legs[SECOND], strict=True)]
    ratios = [ours / base for ours, base in zip(legs[OURS], bases, strict=True)]
    # Each round measures the in-tree module twice. The scatter is the difference of these two
    # measurements.
    scatter = statistics.median(abs(a - b) / base
                                for a, b, base in zip(legs[FIRST], legs[SECOND], bases,
                                                      strict=True))
    ratio = statistics.median(ratios)
    return {"microseconds": {leg: statistics.median(values) / 1e3
                             for leg, values in legs.items()},
            "ratio": ratio, "ratios": ratios, "scatter": scatter,
            "worse": ratio > 1 + scatter}


def table(judged):
    """Returns a text with one line for each load."""
    width = max(map(len, judged)) + 2
    lines = ["microseconds".ljust(width) + "".join(
        title.rjust(14) for title in (OURS, FIRST, TCP, "ours/in-tree", "scatter"))]
    for load, found in judged.items():
        took = found["microseconds"]
        base = (took[FIRST] + took[SECOND]) / 2
        lines.append(load.ljust(width) + "".join(
            f"{number:14,.0f}" for number in (took[OURS], base, took[TCP]))
            + f"{found['ratio']:14.3f}     ±{100 * found['scatter']:6.1f} %"
            + ("  worse" if found["worse"] else "")
            + (f"  (at first {found['first']:.3f})" if "first" in found else ""))
    return "\n".join(lines)


def measure_times(spec, compare, rounds, long_rounds, scale, axes):
    """Measures loads and compares the results. `compare` is "clients" or "servers". `axes` maps
    each axis to a list of loads; an empty list means all loads of the axis. Returns the comparisons
    by axis and load, and whether all measurements succeeded."""
    plan = {"compare": compare, "rounds": rounds, "long_rounds": long_rounds, "scale": scale,
            "axes": axes}
    of_servers = compare == "servers"
    found, session, status = report.in_client(
        spec, [json.dumps(plan)], "bench", client="intree" if of_servers else "ours",
        serving="ours" if of_servers else "intree", timeout=SECONDS, memory=report.MEMORY)
    judged = {axis: {load: judge(legs) for load, legs in loads.items()}
              for axis, loads in found.items()}
    return judged, not status and not session.complaints


def doubtful(judged):
    """Returns, for each axis, the loads with which our module looks slower. Among fifty loads with
    equal speed, a few look slower by chance.
    """
    found = {axis: [load for load, one in loads.items() if one["worse"]]
             for axis, loads in judged.items()}
    return {axis: loads for axis, loads in found.items() if loads}


def times(spec, scope, compare="clients"):
    """Measures all loads with both clients, or with both servers. Returns the comparisons by axis
    and load, and whether all measurements succeeded.

    A load with which our module looks slower is measured a second time. For the second measurement
    a long load has as many rounds as a short load. Only the second result of such a load counts.
    """
    judged, good = measure_times(spec, compare, scope.rounds, scope.long_rounds, scope.scale,
                                 dict.fromkeys(scope.axes, ()))
    again = doubtful(judged)
    if again:
        say("again, for it looks worse: " + "; ".join(
            f"{axis}: {', '.join(loads)}" for axis, loads in again.items()))
        repeated, fine = measure_times(spec, compare, scope.rounds, scope.rounds, scope.scale,
                                       again)
        good &= fine
        for axis, loads in repeated.items():
            for load, one in loads.items():
                judged[axis][load] = one | {"first": judged[axis][load]["ratio"]}
    return judged, good


def servers(spec, scope):
    """Compares the durations of loads with both servers, and prints tables. Returns (all results
    for a JSON file, whether all measurements succeeded)."""
    axes = tuple(axis for axis in scope.axes if axis in SERVER_AXES)
    judged, good = times(spec, dataclasses.replace(scope, axes=axes), "servers")
    for axis, loads in judged.items():
        print(f"\n{axis}\n{table(loads)}", flush=True)
    return {"kernel": kernel.get(root.path(), spec).release, "servers": judged}, good


def counts(spec, version, rounds, client="both", functions=0):
    """Returns three results:

    - the exact counts per RPC by client, load and counter
    - the profile of the counts
    - whether all measurements succeeded

    Cache lines are counted in a separate run. In that run, the loads that make many operations at a
    time make even more operations at a time.
    """
    mount = report.options(version)
    merged, profile, good = report.measure_instructions(spec, client, mount, rounds, functions)
    seen, session, status = report.with_clients(spec, client, "count_clients", mount)
    lines, _, fine = report.measure_instructions(spec, client, mount, 1, 0, memory=True)
    for name, loads in lines.items():
        for load, numbers in loads.items():
            merged[name].setdefault(load, {}).update(
                {column: numbers[column] for column in instructions.MEMORY})
    for name, loads in seen.items():
        for load, numbers in loads.items():
            merged[name][load] |= numbers
    return merged, profile, good and fine and not status and not session.complaints


def run(spec, version, scope, with_times, with_counts, functions):
    """Measures and prints the tables. Returns (all results for a JSON file, whether all
    measurements succeeded).

    If a measurement fails, the results of the earlier measurements are kept.
    """
    result, good = {"kernel": kernel.get(root.path(), spec).release}, True

    def take_times():
        result["times"], fine = times(spec, scope)
        for axis, judged in result["times"].items():
            print(f"\n{axis}\n{table(judged)}", flush=True)
        return fine

    def measure_counts():
        result["counts"], profile, fine = counts(spec, version, scope.count_rounds,
                                                 functions=functions)
        result["profile"] = profile["ours"]
        print("\n" + report.count_table(result["counts"]), flush=True)
        return fine

    def measure_scale():
        result["scale"], _, fine = report.measure_instructions(spec, "both", report.SCALE,
                                                               scope.scale_rounds, 0)
        return fine

    for wanted, measure in ((with_times, take_times), (with_counts, measure_counts),
                            (with_counts and scope.scale_rounds, measure_scale)):
        if wanted:
            try:
                good &= measure()
            except LabError as error:
                say(f"error: {error}")
                good = False
    return result, good
