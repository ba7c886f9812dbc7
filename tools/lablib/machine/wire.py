# SPDX-License-Identifier: GPL-2.0
"""The frames between the host and the agent inside a machine.

Either side can start a command on the other side with RUN and a new stream number: the host uses
even numbers, a guest odd ones. A command's frames contain its stream number in both directions
until EXIT ends the command.
"""

import json
import struct

# fields: length of the payload, kind of the frame, number of the stream
HEADER = struct.Struct("!IBI")
CHUNK = 16384

HELLO = 0   # sent by the guest: its agent runs, and the control line can be used
RUN = 1     # payload is JSON: argv, cwd, env, pty, where
IN = 2      # payload is bytes for standard input; if empty, the input ends
SIGNAL = 3  # payload is one byte: a signal number for the command's process group
OUT = 4     # payload is bytes of standard output
ERR = 5     # payload is bytes of standard error
EXIT = 6    # payload is JSON: status (as a shell shows it), or error


def encode(kind, stream, payload=b""):
    """Returns one frame as bytes. A payload that is a dict is sent as JSON."""
    if isinstance(payload, dict):
        payload = json.dumps(payload).encode()
    return HEADER.pack(len(payload), kind, stream) + payload


class Decoder:
    """Cuts a byte stream into frames."""

    def __init__(self):
        self.pending = bytearray()

    def feed(self, data):
        """Adds bytes to the stream. Yields every frame that these bytes complete."""
        self.pending += data
        while len(self.pending) >= HEADER.size:
            length, kind, stream = HEADER.unpack_from(self.pending)
            end = HEADER.size + length
            if len(self.pending) < end:
                return
            payload = bytes(self.pending[HEADER.size:end])
            del self.pending[:end]
            yield kind, stream, payload
