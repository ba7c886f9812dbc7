# SPDX-License-Identifier: GPL-2.0
"""Tests that the load of the fault tests detects lost, torn and stale writes."""

import contextlib
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "selftests"))

from lib import case, load, pattern, server, server_agent
from lib.workers import Worker

SIZE = 4096


class Here(server.Server):
    """Replaces the helper in the server machine. Runs the helper's functions in this process, on
    local files."""

    def __init__(self):
        pass

    def call(self, name, *args, seconds=0):  # noqa: ARG002
        return getattr(server_agent, name)(*args)


class Context:
    def __init__(self, top):
        self.top, self.server = top, Here()

    def directory(self, _mount, name):
        os.makedirs(f"{self.top}/{name}")
        return case.Directory(f"{self.top}/{name}", f"{self.top}/{name}")


class Noticing(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.load = load.Load(Context(place.name), None, kinds=((load.Synced, SIZE),) * 2)
        self.load.start()
        self.addCleanup(self.end)
        self.load.wait_progress(60, load.PLACES)
        self.file = f"{place.name}/case/w1"

    def end(self):
        for worker in self.load.crew.workers:
            if not worker.reaped():
                worker.kill()
                # If the worker detected the changed data before it was killed, join() raises an
                # error.
                with contextlib.suppress(AssertionError):
                    worker.join(killed=True)

    def spoil(self, offset, data):
        with open(self.file, "r+b") as file:
            file.seek(offset)
            file.write(data)

    def test_what_was_acknowledged_is_there(self):
        for _ in range(3):
            with self.load.resting():
                before = self.load.written()
                self.load.verify()
                self.assertEqual(self.load.written(), before)
            self.load.wait_progress(60, 3)
        self.assertGreater(self.load.verified(), 6 * load.PLACES * SIZE)

    def test_a_torn_record(self):
        with self.load.resting():
            self.spoil(5000, b"?")
            with self.assertRaisesRegex(AssertionError, "byte 5000: found a torn record of file 1"):
                self.load.verify()

    def test_a_lost_write(self):
        with self.load.resting():
            done = self.load.boards[1].done()[3]
            self.spoil(3 * SIZE, pattern.data(1, 3 * SIZE, SIZE, done - load.PLACES))
            with self.assertRaisesRegex(AssertionError, f"generation {done - load.PLACES}, "
                                        f"expected file 1 offset {3 * SIZE} generation {done}"):
                self.load.verify()

    def test_a_short_file(self):
        with self.load.resting():
            os.truncate(self.file, SIZE)
            with self.assertRaisesRegex(AssertionError, f"{SIZE} bytes instead of"):
                self.load.verify()

    def test_the_readers_look_too(self):
        writer = self.load.crew.workers[1]
        with self.assertRaisesRegex(AssertionError, "file 1: first difference"):
            # On a busy machine it may take some time until the writer checks the damaged block.
            deadline = time.monotonic() + 60
            while not writer.ended() and time.monotonic() < deadline:
                self.spoil(7 * SIZE, bytes(SIZE))
            self.load.crew.check()

    def test_every_worker_learns_to_end(self):
        younger = Worker(load.look, "/", load.Board())
        self.addCleanup(younger.join)
        for worker in self.load.crew.workers:
            worker.join(30)


if __name__ == "__main__":
    unittest.main()
