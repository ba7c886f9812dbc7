# SPDX-License-Identifier: GPL-2.0
"""Tests that frames are decoded correctly if the stream arrives in pieces of any length."""

import unittest

from lablib.machine import wire

FRAMES = [(wire.RUN, 2, b'{"argv": ["true"]}'), (wire.IN, 2, b""),
          (wire.OUT, 4, bytes(range(256))), (wire.EXIT, 2, b'{"status": 0}')]


class Decoding(unittest.TestCase):
    def test_any_cut_gives_the_same_frames(self):
        stream = b"".join(wire.encode(*frame) for frame in FRAMES)
        for size in range(1, len(stream) + 1):
            decoder, found = wire.Decoder(), []
            for start in range(0, len(stream), size):
                found += decoder.feed(stream[start:start + size])
            self.assertEqual(found, FRAMES, f"pieces of {size}")

    def test_half_a_frame_is_no_frame(self):
        frame = wire.encode(wire.OUT, 1, b"abc")
        self.assertEqual(list(wire.Decoder().feed(frame[:-1])), [])


if __name__ == "__main__":
    unittest.main()
