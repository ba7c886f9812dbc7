# SPDX-License-Identifier: GPL-2.0
"""Counts work requests, posts and completions per operation at the RDMA device.

The program works with any client that has made the mount, and does not depend on functions of the
client.

    count.py MOUNT   prints JSON {operation: {counter: per RPC}}
"""

import json
import pathlib
import signal
import subprocess
import sys

from . import loads

SCRIPT = pathlib.Path(__file__).with_name("count.bt")
# The script count.bt contains names of functions of rxe. For each other type of device, this table
# contains the names of the corresponding functions.
OTHERS = {"siw": {"rxe_post_send": "siw_post_send", "rxe_post_recv": "siw_post_receive",
                  "rxe_poll_cq": "siw_poll_cq"}}
DEVICES = pathlib.Path("/sys/class/infiniband")
COUNTERS = ("work_requests", "posts", "completions", "recvs", "recv_posts", "polls")


def script():
    """Returns the bpftrace program for the device of this machine."""
    text = SCRIPT.read_text()
    for prefix, names in OTHERS.items():
        if any(DEVICES.glob(f"{prefix}*")):
            for ours, theirs in names.items():
                text = text.replace(f":{ours} ", f":{theirs} ")
    return text


class Probe:
    """Runs bpftrace with count.bt during the body of the `with` statement."""

    def __enter__(self):
        # The output goes to a pipe. The output must be line-buffered, because otherwise the lines
        # would arrive too late.
        self.process = subprocess.Popen(["bpftrace", "-B", "line", "-e", script()],
                                        stdout=subprocess.PIPE, text=True)
        self.expect("ready")
        return self

    def expect(self, word):
        """Returns the text after `word` in the next line that begins with `word`."""
        for line in self.process.stdout or ():
            if line.startswith(word):
                return line[len(word):]
        raise RuntimeError(f"bpftrace ended (status {self.process.wait()})")

    def take(self):
        """Returns the counts since the last call of this function."""
        self.process.send_signal(signal.SIGUSR1)
        return dict(zip(COUNTERS, map(int, self.expect("counts").split()), strict=True))

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


def measure(mount, probe, deep=False):
    """Returns counts per RPC for each operation with one call at a time. With `deep`, also returns
    counts for many calls at a time."""
    result = {}
    with loads.Bed(mount) as bed:
        for load in bed.single() + (bed.deep() if deep else []):
            load.run(load.count // 2)  # The first run is not counted.
            probe.take()
            before = loads.rpcs(mount)
            load.run(load.count)
            counts, calls = probe.take(), loads.rpcs(mount) - before
            result[load.name] = {c: counts[c] / calls for c in COUNTERS} | {
                "rpcs_per_operation": calls / load.count}
    return result


if __name__ == "__main__":
    with Probe() as only:
        print(json.dumps(measure(sys.argv[1], only)))
