# SPDX-License-Identifier: GPL-2.0
"""Tests that each kernel report is recognised, and that other output is not treated as a report."""

import unittest

from lablib.machine import judge

REPORTS = (
    "BUG: KASAN: slab-use-after-free in rpcrdma_x+0x10/0x20",
    "WARNING: CPU: 0 PID: 1 at net/core/dev.c:1",
    "Oops: general protection fault, 0000 [#1]",
    "INFO: task cp:12 blocked for more than 120 seconds.",
    "WARNING: possible circular locking dependency detected",
    "INFO: possible recursive locking detected",
    "WARNING: suspicious RCU usage",
    "Disabling lock debugging due to kernel taint",
    "rcu: INFO: rcu_preempt self-detected stall on CPU",
    "watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
    "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "unreferenced object 0xffff888000000000 (size 64):",
    "BUG xprtrdma (Tainted: G O): Objects remaining on __kmem_cache_shutdown()",
    "Kernel panic - not syncing: Attempted to kill init!",
    "DMA-API: rxe0: device driver frees DMA memory with wrong function",
    "ODEBUG: free active (active state 0) object",
    "list_del corruption. prev->next should be 1, but was 2",
    "refcount_t: underflow; use-after-free.",
    "rust_kernel: panicked at rust/client/send.rs:1:1:",
    "BUG: sleeping function called from invalid context at mm/x.c:1",
)
CALM = (
    "Command line: console=ttyS0 panic=-1 oops=panic kasan_multi_shot",
    "kasan: KernelAddressSanitizer initialized (generic)",
    "kmemleak: Kernel memory leak detector initialized (mem pool available: 15000)",
    "xprtrdma_rs: loading out-of-tree module taints kernel.",
    "xprtrdma_rs: module verification failed: signature and/or required key missing",
    "DMA-API: preallocated 65536 debug entries",
    "DMA-API: debugging enabled by kernel config",
    "rxe0: qp#17 make_send_cqe: non-flush error status = 12",
)


class Splats(unittest.TestCase):
    def test_every_kind_of_report_is_seen(self):
        for text in REPORTS:
            with self.subTest(text):
                self.assertIsNotNone(judge.splats(f"[    1.000000] {text}\n[    2.0] more"))

    def test_a_report_comes_with_what_follows(self):
        text = "[    1.0] quiet\n[    2.0] BUG: bad\n[    3.0] trace"
        self.assertEqual(judge.splats(text), "[    2.0] BUG: bad\n[    3.0] trace")

    def test_a_foreign_report_is_none_of_ours(self):
        foreign = ("[    1.0] ------------[ cut here ]------------\n"
                   f"[    1.1] {judge.FOREIGN[0].signature}0xb8e/0xee0 [rdma_rxe]\n"
                   "[    1.2] Modules linked in: rdma_rxe\n")
        end = "[    1.3] ---[ end trace 0000000000000000 ]---\n"
        self.assertIsNone(judge.splats(f"quiet\n{foreign}{end}quiet"))
        self.assertEqual(judge.foreign(f"a\n{foreign}{end}b"), ("a\nb", [judge.FOREIGN[0]]))
        # A foreign report is a known report that is not counted. These reports are counted:
        # - a report after a foreign report, or inside it,
        # - a report that resembles a foreign report, but has no end or names another source line.
        self.assertIsNotNone(judge.splats(f"{foreign}[    1.2] BUG: bad\n{end}"))
        self.assertIsNotNone(judge.splats(f"{foreign}[    1.2] Modules linked in: rxe\n{end}"))
        self.assertIn("BUG: bad", judge.splats(f"{foreign}{end}BUG: bad"))
        self.assertIsNotNone(judge.splats(foreign))
        self.assertIsNotNone(judge.splats(f"{foreign}{end}".replace(":827", ":828")))

    def test_a_foreign_report_has_a_caller(self):
        known = judge.FOREIGN[1]
        for caller, excused in ((known.caller, True), ("rdma_destroy_qp+", False)):
            with self.subTest(caller):
                found = judge.splats(f"[    1.0] {known.signature}0x1db/0x210 [ib_core]\n"
                                     f"[    1.1]  {caller}0x84/0x120\n"
                                     "[    1.2] ---[ end trace 0000000000000000 ]---\n")
                self.assertEqual(found is None, excused)

    def test_ordinary_lines_are_no_report(self):
        for text in CALM:
            with self.subTest(text):
                self.assertIsNone(judge.splats(f"[    1.000000] {text}"))


if __name__ == "__main__":
    unittest.main()
