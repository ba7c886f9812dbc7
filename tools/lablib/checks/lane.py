# SPDX-License-Identifier: GPL-2.0
"""Runs parts of a check at the same time as other parts, because the machines wait more than they
compute."""

import re
import shutil
import sys
import time

from ..base import proc
from ..base.paths import REPO
from ..base.tally import Tally, of_closing_line

LOG = "build/check-beside.log"
LOOK_SECONDS = 0.5
# Pattern of the line that is printed at the end of a part.
ENDED = re.compile(r"^lab: ([a-z0-9-]+): .*, ([0-9.]+) minutes$", re.MULTILINE)


class Lane:
    """A separate process that checks some parts, one after the other.

    Its output goes to a file. When this process has no part left, it copies the file to the
    terminal.
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
        """Returns how long each part took. This method is called when the process has ended."""
        return minutes(self.path.read_text(errors="replace"))

    def finish(self):
        """Copies the output of the process to the terminal until the process ends. Returns the
        tally."""
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
    """Returns how many minutes each part took. Only parts that have ended according to the output
    are included."""
    return {part: float(took) for part, took in ENDED.findall(text)}
