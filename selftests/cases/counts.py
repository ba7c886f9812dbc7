# SPDX-License-Identifier: GPL-2.0
"""Work per operation, counted at the RDMA provider and not by the transport."""

import pathlib

from lib.case import case, check

import count

# Counts are averages: a lease renewal may fall between two operations.
SLACK = 1.03


def at_most(found, operation, counter, most):
    value = found[operation][counter]
    check(value <= most * SLACK, f"{operation}: {value:.2f} {counter}, at most {most} wanted")


# covers: V1-108, CM-18, ULB-26, X-08: one region, one post, no invalidation by us.
@case(versions=("3", "4.2"), clients=("ours",), stock_only=True, seconds=180)
def a_mebibyte_takes_two_work_requests_and_one_post(t):
    mount = t.mount()
    top = t.directory(mount)
    with count.Probe() as probe:
        found = count.measure(mount.where, probe)
    for operation, numbers in found.items():
        t.note(f"{operation}: " + ", ".join(f"{v:.2f} {c}" for c, v in numbers.items()))
    check(pathlib.Path(top.here).is_dir(), "the mount is gone")
    at_most(found, "GETATTR", "work_requests", 2)
    for operation in ("READ 4 KiB", "WRITE 4 KiB", "READ 1 MiB", "WRITE 1 MiB"):
        at_most(found, operation, "work_requests", 2)
    for operation in found:
        at_most(found, operation, "posts", 1)
    # Every transfer was freed by the server: nothing was invalidated here.
    numbers = mount.xprts()[0]
    check(numbers["local_inv_needed"] == 0,
          f"{numbers['local_inv_needed']} regions invalidated locally")
