# SPDX-License-Identifier: GPL-2.0
"""`make bench`: elapsed time and exact counts, ours beside the in-tree client."""

import dataclasses
import json
import statistics

from . import kernel, report, root
from .ui import LabError, say

# Axes of guest/bench.py; the first is the usual case.
AXES = ("one mount", "nconnect=4", "nconnect=16", "10 connections", "50 connections",
        "1024 slots")
SECONDS = 3600
FIRST, OURS, SECOND, TCP = "in-tree", "ours", "in-tree again", "tcp"


@dataclasses.dataclass(frozen=True)
class Scope:
    """How much to measure."""

    axes: tuple = AXES
    rounds: int = 7
    long_rounds: int = 3
    scale: float = 1.0
    count_rounds: int = 3

    @classmethod
    def quick(cls):
        return cls(axes=AXES[:1], rounds=2, long_rounds=1, scale=0.25, count_rounds=1)


def judge(legs):
    """What a load's legs say: medians, and whether ours is worse than scatter explains."""
    bases = [(a + b) / 2 for a, b in zip(legs[FIRST], legs[SECOND])]
    ratios = [ours / base for ours, base in zip(legs[OURS], bases)]
    # The same thing measured twice: how far one leg is from both together.
    scatter = statistics.median(abs(a - base) / base
                                for a, base in zip(legs[FIRST], bases))
    ratio = statistics.median(ratios)
    return {"microseconds": {leg: statistics.median(values) / 1e3
                             for leg, values in legs.items()},
            "ratio": ratio, "ratios": ratios, "scatter": scatter,
            "worse": ratio > 1 + scatter}


def table(judged):
    """Text, one line per load."""
    width = max(map(len, judged)) + 2
    lines = ["microseconds".ljust(width) + "".join(
        title.rjust(14) for title in (OURS, FIRST, TCP, "ours/in-tree", "scatter"))]
    for load, found in judged.items():
        took = found["microseconds"]
        base = (took[FIRST] + took[SECOND]) / 2
        lines.append(load.ljust(width) + "".join(
            f"{number:14,.0f}" for number in (took[OURS], base, took[TCP]))
            + f"{found['ratio']:14.3f}     ±{100 * found['scatter']:6.1f} %"
            + ("  worse" if found["worse"] else ""))
    return "\n".join(lines)


def times(spec, scope):
    """({axis: {load: judged}}, whether all went well)"""
    plan = {"rounds": scope.rounds, "long_rounds": scope.long_rounds, "scale": scope.scale,
            "axes": list(scope.axes)}
    found, session, status = report.in_client(
        spec, [json.dumps(plan)], "bench.py", timeout=SECONDS, memory=(3072, 2048))
    judged = {axis: {load: judge(legs) for load, legs in loads.items()}
              for axis, loads in found.items()}
    return judged, not status and not session.complaints


def counts(spec, version, rounds, client="both", functions=0):
    """Exact counts {client: {load: {what: per RPC}}}, their profile, whether all went well."""
    merged, profile, good = report.measure_instructions(spec, client, version, rounds, functions)
    seen, session, status = report.with_clients(spec, client, "count_clients.py", version)
    for name, loads in seen.items():
        for load, numbers in loads.items():
            merged[name][load] |= numbers
    return merged, profile, good and not status and not session.complaints


def run(spec, version, scope, with_times, with_counts, functions):
    """Measure and print the tables: (everything for a JSON file, whether all went well)

    What has been measured is not lost when the rest fails.
    """
    result, good = {"kernel": kernel.get(root.path(), spec).release}, True

    def measure_times():
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

    for wanted, measure in ((with_times, measure_times), (with_counts, measure_counts)):
        if wanted:
            try:
                good &= measure()
            except LabError as error:
                say(f"error: {error}")
                good = False
    return result, good
