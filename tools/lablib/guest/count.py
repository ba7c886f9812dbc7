# SPDX-License-Identifier: GPL-2.0
"""Work requests, posts and completions per operation, counted at the provider.

A measurement of whatever client has made the mount: nothing in it is asked.
    count.py MOUNT   prints JSON {operation: {counter: per RPC}}
"""

import ctypes
import json
import mmap
import os
import pathlib
import signal
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).with_name("count.bt")
COUNTERS = ("work_requests", "posts", "completions", "recvs", "recv_posts", "polls")
KIB, MIB = 1 << 10, 1 << 20
AT_FDCWD, AT_STATX_FORCE_SYNC, STATX_BASIC = -100, 0x2000, 0x7ff


class Probe:
    """bpftrace with count.bt, for as long as the context lasts."""

    def __enter__(self):
        # The output is a pipe: without a line-buffered one it would wait.
        self.process = subprocess.Popen(["bpftrace", "-B", "line", str(SCRIPT)],
                                        stdout=subprocess.PIPE, text=True)
        self.expect("ready")
        return self

    def expect(self, word):
        """The rest of the next line that starts with `word`."""
        for line in self.process.stdout:
            if line.startswith(word):
                return line[len(word):]
        raise RuntimeError(f"bpftrace ended (status {self.process.wait()})")

    def take(self):
        """The counts since the last call."""
        self.process.send_signal(signal.SIGUSR1)
        return dict(zip(COUNTERS, map(int, self.expect("counts").split())))

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


def rpcs(mount):
    """RPCs of a mount so far, from its statistics."""
    text = pathlib.Path("/proc/self/mountstats").read_text()
    section = text.split(f" mounted on {mount} ", 1)[1].split("\ndevice ", 1)[0]
    operations = section.split("per-op statistics", 1)[1]
    return sum(int(line.split()[1]) for line in operations.splitlines() if ":" in line)


def getattr_loop(path):
    """One GETATTR per call, attribute cache or not."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(256)
    name = os.fsencode(path)

    def once(_):
        if libc.statx(AT_FDCWD, name, AT_STATX_FORCE_SYNC, STATX_BASIC, buffer):
            raise OSError(ctypes.get_errno(), "statx")

    return once


def io_loop(fd, size, write):
    """One direct READ or WRITE of `size` bytes per call."""
    pages = mmap.mmap(-1, size)  # page-aligned, as direct I/O wants it
    pages.write(os.urandom(4 * KIB) * (size // (4 * KIB)))
    room = 16 * MIB // size

    def once(number):
        offset = number % room * size
        done = os.pwritev(fd, [pages], offset) if write else os.preadv(fd, [pages], offset)
        if done != size:
            raise OSError(f"{done} of {size} bytes")

    return once


def measure(mount, probe):
    """Counts per RPC for every kind of operation."""
    path = f"{mount}/count.data"
    with open(path, "wb") as data:
        data.write(bytes(16 * MIB))
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    cases = (("GETATTR", 256, getattr_loop(path)),
             ("READ 4 KiB", 256, io_loop(fd, 4 * KIB, False)),
             ("WRITE 4 KiB", 256, io_loop(fd, 4 * KIB, True)),
             ("READ 1 MiB", 32, io_loop(fd, MIB, False)),
             ("WRITE 1 MiB", 32, io_loop(fd, MIB, True)))
    result = {}
    for name, rounds, once in cases:
        for number in range(rounds // 4):  # warm up
            once(number)
        probe.take()
        before = rpcs(mount)
        for number in range(rounds):
            once(number)
        counts, calls = probe.take(), rpcs(mount) - before
        result[name] = {c: counts[c] / calls for c in COUNTERS} | {
            "rpcs_per_operation": calls / rounds}
    os.close(fd)
    os.unlink(path)
    return result


if __name__ == "__main__":
    with Probe() as only:
        print(json.dumps(measure(sys.argv[1], only)))
