# SPDX-License-Identifier: GPL-2.0
"""Determines the frequency of an emulated machine's time stamp counter, by a measurement of the
host's counter. Both counters have the same frequency."""

import ctypes
import functools
import time

from ..artefacts import native
from ..base import arch

# When a kernel boots, it measures the frequency of the processor's time stamp counter with a timer
# of the board. On a busy host the emulator may pause during the measurement. The emulated machine's
# clock is then many times too fast or too slow until the machine is switched off. So the lab
# measures the frequency, and passes it to the kernel as a parameter.
SECONDS = 0.05
TRIES = 20


def read(counter):
    """Returns the value of the counter and the time in nanoseconds. Reads both as closely together
    as possible."""
    found = []
    for _ in range(TRIES):
        before = time.perf_counter_ns()
        ticks = counter()
        found.append((time.perf_counter_ns() - before, ticks, before))
    _, ticks, before = min(found)
    return ticks, before


@functools.cache
def kilohertz(root):
    """Returns the frequency of the host's time stamp counter in kHz."""
    counter = ctypes.CDLL(str(native.build(root, "tsc", arch.of_host()))).tsc_read
    counter.restype = ctypes.c_ulonglong
    ticks, began = read(counter)
    time.sleep(SECONDS)
    more, ended = read(counter)
    return round((more - ticks) * 1_000_000 / (ended - began))


def words(root, of):
    """Returns the kernel parameters for an emulated machine of this architecture."""
    # If the host has another type of processor than the machine, the emulator computes the time
    # stamp counter, and the kernel needs no parameter.
    if of is not arch.AMD64 or not of.is_host:
        return ()
    return (f"tsc_early_khz={kilohertz(root)}",)
