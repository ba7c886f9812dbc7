# SPDX-License-Identifier: GPL-2.0
"""Tests how measurements are evaluated: counts that rose, scatter, and the classes of
instructions."""

import pathlib
import random
import tempfile
import unittest
from typing import ClassVar

from lablib.base.ui import LabError
from lablib.bench import baseline, bench, instructions, report
from lablib.guest import histogram, processors

SYMBOLS = """\
ffffffff80000000 T _stext
ffffffff80001000 T __pfx_first
ffffffff80001010 T first
ffffffff80001100 t second
ffffffffc0000000 t call\t[rpcrdma]
ffffffffc0001000 d data\t[rpcrdma]
"""


class Instructions(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)
        (self.path / "symbols").write_text(SYMBOLS)
        self.symbols = instructions.Symbols(self.path / "symbols")

    def counts(self, text, rpcs=10):
        (self.path / "counts").write_text(text)
        return instructions.Counts(self.path / "counts", self.symbols, rpcs)

    def test_an_address_belongs_to_the_function_before_it(self):
        self.assertEqual(self.symbols.find(0xffffffff800010ff), ("first", ""))
        self.assertEqual(self.symbols.find(0xffffffff80001100), ("second", ""))
        self.assertEqual(self.symbols.find(0xffffffffc0002000), ("call", "rpcrdma"))

    def test_instructions_go_to_who_is_served_and_to_where_they_are(self):
        # This line counts instructions that the function `first` executed for a transport.
        found = self.counts("ffffffff80001010 5 2 1 1 10\n"
                            # This line counts instructions that the function `second` executed
                            # while no transport had called it.
                            "ffffffff80001104 3 1 1 0 20\n"
                            # This line counts instructions of the transport's own function `call`.
                            "ffffffffc0000000 7 1 0 1 10\n"
                            "ffffffff80001010 100 9 0 4 10\n"  # Instructions of the timer.
                            # Instructions that wait for a lock.
                            "ffffffff80001010 90 9 0 5 10\n"
                            "ffffffff80001010 100 9 0 7 10\n"  # Instructions of an idle processor.
                            # Instructions of the driver rxe.
                            "ffffffff80001010 0 9 0 2 10\n"
                            "lines own-written 40\n"
                            "end 0\n").row()
        self.assertEqual(found["kernel"], 5 + 6 + 7)
        self.assertEqual(found["service"], 5 + 7)
        self.assertEqual(found["transport"], 7)
        self.assertEqual(found["rest"], 5 + 6)
        self.assertEqual((found["timer"], found["spinning"]), (100, 90))
        self.assertEqual((found["atomics"], found["own-atomics"], found["fences"]), (3, 1, 1))
        self.assertEqual(found["all-atomics"], 2 + 2 + 1)
        self.assertEqual(found["own-written"], 4)

    def test_a_call_is_the_first_block_of_a_function(self):
        found = self.counts("ffffffff80001100 3 0 0 0 20\nffffffff80001104 3 0 0 0 50\nend 0\n")
        self.assertEqual(found.called("second"), 2)

    def test_cut_off_counts_are_refused(self):
        for text in ("", "ffffffff80001010 5 0 0 1 10\n", "ffffffff80001010 5 0 0 1 10\nend 3\n"):
            with self.assertRaises(LabError):
                self.counts(text)


class Processors(unittest.TestCase):
    """Tests how the kernel's counters of wake-ups and of interrupts between processors are read."""

    def test_interrupts_that_time_sends_are_apart(self):
        found = histogram.parse("""\
{ common_stacktrace:
         ttwu_queue_wakelist+0x9/0x20
         rxe_cq_post+0x31/0x130 [rdma_rxe]
} hitcount:          7
{ common_stacktrace:
         smp_call_function_single_async+0x9/0x20
         sysvec_apic_timer_interrupt+0x31/0x130
} hitcount:          4

Totals:
    Hits: 11
    Entries: 2
    Dropped: 0
""")
        self.assertEqual(processors.interrupts(found), (7, 4))

    def test_a_wake_up_on_the_waker_is_not_remote(self):
        self.assertEqual(processors.wakes(
            "version 17\ntimestamp 4294899672\n"
            "cpu0 0 0 900 300 70 50 16951092914 2336664385 8024\n"
            "domain0 MC 3 0 0 0 0 0 0 0 0 0 0 0 0\n"
            "cpu1 0 0 800 200 30 10 16951092914 2336664385 8024\n"), (100, 40))

    STACKS = """\
# event histogram
#
# trigger info: hist:keys=common_stacktrace:vals=hitcount:sort=hitcount:size=16384 [active]
#

{ common_stacktrace:
         kprobe_ftrace_handler+0x143/0x1d0
         0xffffffffc07e00da
         native_queued_spin_lock_slowpath+0x9/0x2c0
         _raw_spin_lock_irqsave+0x3e/0x50
         rxe_poll_cq+0x31/0x130 [rdma_rxe]
         __ib_process_cq+0x59/0x170 [ib_core]
} hitcount:        429
{ common_stacktrace:
         native_queued_spin_lock_slowpath+0x9/0x2c0
         rust_helper_spin_lock+0x9/0x10
         _RNvNtCs1_4sync4lock+0x8/0x20
         send+0x58/0x1b0 [xprtrdma_rs]
} hitcount:         10
{ common_stacktrace:
         native_queued_spin_lock_slowpath+0x9/0x2c0
         process_one_work+0x1cd/0x3c0
} hitcount:          1

Totals:
    Hits: 440
    Entries: 3
    Dropped: %d
"""

    def test_a_lock_is_found_taken_by_who_takes_it(self):
        found = processors.waits(histogram.parse(self.STACKS % 0))
        self.assertEqual(found, {("rxe_poll_cq", "rdma_rxe"): 429, ("send", "xprtrdma_rs"): 10,
                                 ("process_one_work", ""): 1})

    def test_waits_are_grouped_by_module(self):
        self.assertEqual(report.by_group({"rxe_poll_cq [rdma_rxe]": 4.5, "send [xprtrdma_rs]": 1,
                                          "do_work [rdma_rxe]": 2, "process_one_work": 3}), {
            "transport waits": 1, "sunrpc waits": 0, "ib_core waits": 0, "rxe waits": 6.5})

    def test_a_histogram_that_dropped_something_is_refused(self):
        for text in (self.STACKS % 1, "", self.STACKS.split("Totals")[0]):
            with self.assertRaises(RuntimeError):
                histogram.parse(text)

    def test_switches(self):
        self.assertEqual(processors.switches("cpu  1 2 3\nctxt 123456\nbtime 1\n"), 123456)


class Times(unittest.TestCase):
    @staticmethod
    def legs(ours, first, second):
        return {bench.OURS: ours, bench.FIRST: first, bench.SECOND: second,
                bench.TCP: [1, 1, 1]}

    def test_worse_is_more_than_the_scatter(self):
        steady = bench.judge(self.legs([105, 105, 105], [99, 99, 99], [101, 101, 101]))
        self.assertTrue(steady["worse"])
        self.assertAlmostEqual(steady["scatter"], 0.02)
        noisy = bench.judge(self.legs([115, 115, 115], [90, 90, 90], [110, 110, 110]))
        self.assertFalse(noisy["worse"])
        self.assertAlmostEqual(noisy["ratio"], 1.15)

    def test_only_what_looks_worse_is_measured_again(self):
        found = bench.doubtful({"one": {"a": {"worse": True}, "b": {"worse": False}},
                                "two": {"c": {"worse": False}}})
        self.assertEqual(found, {"one": ["a"]})

    def test_of_equal_loads_few_are_called_worse(self):
        chance = random.Random(1)
        worse = sum(bench.judge(self.legs(*([chance.lognormvariate(0, 0.1) for _ in range(7)]
                                            for _ in range(3))))["worse"] for _ in range(500))
        self.assertLess(worse, 60)

    def test_a_drift_weighs_on_both(self):
        found = bench.judge(self.legs([200, 400, 600], [100, 300, 500], [300, 500, 700]))
        self.assertAlmostEqual(found["ratio"], 1)


class Baseline(unittest.TestCase):
    recorded: ClassVar = {"GETATTR": {"posts": 1.0, "service": 3000.0}}

    def test_equal_and_fewer_pass(self):
        self.assertEqual(list(baseline.rises(self.recorded, self.recorded)), [])
        fewer = {"GETATTR": {"posts": 0.5, "service": 2000.0}}
        self.assertEqual(list(baseline.rises(self.recorded, fewer)), [])

    def test_goals(self):
        good = {load: {"work_requests": 2.0, "completions": 1.031, "service": 50,
                       "transport": 60, "kernel": 95} for load in baseline.GOALS}
        intree = {load: dict.fromkeys(baseline.BESIDE, 100) for load in baseline.GOALS}
        self.assertEqual(list(baseline.missed(good, intree)), [])
        bad = good | {"READ 4 KiB": {"work_requests": 4.0, "completions": 1.05, "service": 61,
                                     "transport": 86, "kernel": 98}}
        self.assertEqual(len(list(baseline.missed(bad, intree))), 5)

    def test_goals_with_several_processors(self):
        load, other = "READ 4 KiB, 16 threads, nconnect=4, 4 CPU", "READ 4 KiB, 16 threads, 4 CPU"
        intree = {load: {"kernel": 100}, other: {"kernel": 100}}
        for ours, lines in ((95, 0), (99, 1)):
            rows = {load: {"kernel": ours}, other: {"kernel": 120}}
            self.assertEqual(len(list(baseline.missed_by_many(rows, intree))), lines)
        found = list(baseline.rises({load: {"kernel": 100}}, {load: {"kernel": 111}},
                                    baseline.WIDE))
        self.assertEqual(len(found), 1)

    def test_a_server_is_held_to_its_table_and_to_the_other_one(self):
        before, _ = baseline.recorded_served()
        self.assertEqual(list(baseline.rises(before, before, baseline.SERVED)), [])
        more = {load: row | {"transport": row["transport"] * 1.1} for load, row in before.items()}
        found = list(baseline.rises(before, more, baseline.SERVED))
        # A rise of 10 % is reported for every load except transfers of one mebibyte, whose counts
        # may rise by more.
        self.assertEqual(len(found), len([load for load in before if "1 MiB" not in load]))
        for kernel, lines in ((96, 0), (98, 1)):
            self.assertEqual(len(list(baseline.missed_by_server(
                {"GETATTR v3": {"kernel": kernel}}, {"GETATTR v3": {"kernel": 100}}))), lines)

    def test_a_rise_is_named(self):
        found = list(baseline.rises(self.recorded, {"GETATTR": {"posts": 2.0, "service": 3000.0}}))
        self.assertEqual(found, ["GETATTR: posts rose from 1.00 to 2.00"])

    def test_what_was_not_measured_is_no_success(self):
        self.assertEqual(len(list(baseline.rises(self.recorded, {}))), 1)
        self.assertEqual(len(list(baseline.rises(self.recorded, {"GETATTR": {"posts": 1.0}}))), 1)
