# SPDX-License-Identifier: GPL-2.0
"""Runs some parts of `tools/lab check` in parallel with other parts. This saves time, because the
virtual machines are often idle."""

import re
import shutil
import sys
import time

from ..base import proc
from ..base.paths import REPO
from ..base.tally import Tally, of_closing_line

LOG = "build/check-beside.log"
LOOK_SECONDS = 0.5
# Pattern of the line that is printed at the end of each part of the check.
ENDED = re.compile(r"^lab: ([a-z0-9-]+): .*, ([0-9.]+) minutes$", re.MULTILINE)


class Lane:
    """A separate process that runs some parts of the check, one after the other.

    The output of the separate process goes to a file. When the main process has no part left to
    run, the main process copies this file to the terminal.
    """

    def __init__(self, parts, spec, upstream=False):
        self.parts, self.path = parts, REPO / LOG
        self.path.parent.mkdir(exist_ok=True)
        options = [*([f"--kernel={spec}"] if spec else []), *(["--upstream"] if upstream else [])]
        with open(self.path, "wb") as log:
            self.child = proc.spawn([REPO / "tools/lab", "check", *options, *parts],
                                    stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        proc.stop(self.child)

    def minutes(self):
        """Returns a dictionary from each part of the check to its duration in minutes. This method
        is called when the process has ended."""
        return minutes(self.path.read_text(errors="replace"))

    def finish(self):
        """Copies the output of the process to the terminal until the process ends. Returns the
        tally of results."""
        with open(self.path, "rb") as log:
            ended = False
            while not ended:
                ended = self.child.poll() is not None
                shutil.copyfileobj(log, sys.stdout.buffer)
                sys.stdout.flush()
                if not ended:
                    time.sleep(LOOK_SECONDS)
        tally = of_closing_line(proc.tail(self.path))
        if tally is None:
            tally = Tally()
            tally.fail(f"{', '.join(self.parts)}: exit status {self.child.returncode}, no figures")
        elif tally.failed:
            tally.notes.append(f"{', '.join(self.parts)}: the failures are named in {LOG}")
        elif self.child.returncode:
            tally.fail(f"{', '.join(self.parts)}: exit status {self.child.returncode}")
        return tally


def minutes(text):
    """Returns a dictionary from each part of the check to its duration in minutes. Parts that have
    not ended are left out."""
    return {part: float(took) for part, took in ENDED.findall(text)}
