# SPDX-License-Identifier: GPL-2.0
"""The KUnit suites of rust/base, rust/rdma and rust/sunrpc. The suites use a fake RDMA device."""

import pathlib
import re
import subprocess

from lablib.checks import ktap
from lib import module
from lib.case import ENV, Skip, case, check, equal
from lib.env import REPO
from lib.injection import Injection

DEBUG = pathlib.Path("/sys/kernel/debug")
SUITES = DEBUG / "kunit"
DMA = DEBUG / "dma-api"
NAMED = re.compile(r"^#\[kunit_tests\((\w+)\)\]", re.MULTILINE)
# The fault injection makes page allocations fail only if their order is at least this number. No
# page allocation has such a high order, so no page allocation fails.
NO_ORDER = 20
# The name of the fake device's parent device.
PARENT = "fake-rdma"
# The parameter that makes the fake device use bounce buffers.
BOUNCE = pathlib.Path("/sys/module/xprtrdma_rs_kunit/parameters/bounce")
BUFFERS = DEBUG / "swiotlb/io_tlb_nslabs"


def named(directory):
    """Returns the names of the suites in the sources below a directory."""
    return sorted(name for path in (REPO / directory).rglob("*.rs")
                  for name in NAMED.findall(path.read_text()))


def judge(suite):
    """Checks that all tests of a suite passed; returns their number."""
    parser = ktap.Parser()
    text = (SUITES / suite / "results").read_text()
    for line in text.splitlines():
        parser.feed(line)
    tally = parser.end(0)
    check(tally.good() and tally.passed and not tally.skipped, f"{suite}:\n{text}")
    return tally.passed


# covers: V1-109, BC-25, MAL-027
# covers: The suites test the contracts of the crates that contain unsafe code. Objects are made,
# used and dropped in every order. The device and the allocator fail at each point. No object and no
# mapping is left. The suites of rust/rdma, which map memory, run a second time with bounce buffers,
# as confidential guests use them. The device then accesses other memory than the memory that was
# mapped.
@case(versions=None, clients=("ours",), loaded=False, debug_only=True, seconds=120)
def every_suite_passes(t):
    if ENV.patched:
        raise Skip("the suites are not built without what the patches replace")
    # A suite makes each allocation of an object fail in turn. Page allocations must not fail,
    # because their number differs between runs.
    Injection(t).write("fail_page_alloc", "min-order", NO_ORDER)
    subprocess.run(["modprobe", "-a", "rdma_cm", "iw_cm", "sunrpc"], timeout=60, check=True)
    errors = (DMA / "error_count").read_text()
    equal((DMA / "disabled").read_text().strip(), "N", "DMA debugging disabled")
    before = module.resources()
    with module.suites():
        found = sorted(path.name for path in SUITES.glob("xprtrdma_*"))
        equal(found, named("rust"), "suites")
        for suite in found:
            t.note(f"{suite}: {judge(suite)} passed")
        check(int(BUFFERS.read_text()),
              "the kernel has no bounce buffers: swiotlb=force is missing")
        BOUNCE.write_text("1")
        for suite in named("rust/rdma"):
            (SUITES / suite / "run").write_text("1")
            judge(suite)
        left = [line for line in (DMA / "dump").read_text().splitlines() if PARENT in line]
        check(not left, f"mapped after the suites: {left}")
    equal((DMA / "error_count").read_text(), errors, "errors of the DMA debugger")
    equal(module.resources(), before, "RDMA objects")
