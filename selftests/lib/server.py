# SPDX-License-Identifier: GPL-2.0
"""Sends requests to a helper process in the server machine, over the lab's control line.

One process serves many requests: in these machines the start of a process takes longer than most
requests.
"""

import base64
import hashlib
import json
import pathlib
import select
import socket
import time

from lablib.machine import wire

from . import pattern

LOCAL_SOCKET = "/run/lab.sock"
SOURCE = pathlib.Path(__file__).with_name("server_agent.py").read_text()
STREAM = 0
START_SECONDS = 60
BLOCK = 65536


class ServerError(Exception):
    """Raised if a request has failed in the server."""

    def __init__(self, text, number=None):
        super().__init__(text)
        self.errno = number


class Server:
    """Sends requests to the helper, one at a time. Forked child processes may use the same object.
    """

    def __init__(self, argv=("python3", "-B", "-c", SOURCE)):
        self.argv = argv
        self.start()

    def start(self):
        """Starts the helper. Can be called again after the server machine was restarted."""
        self.line = socket.socket(socket.AF_UNIX)
        self.line.connect(LOCAL_SOCKET)
        self.decoder, self.text, self.number = wire.Decoder(), b"", 0
        self.line.sendall(wire.encode(wire.RUN, STREAM, {"where": "server", "argv": list(self.argv),
                                                         "env": {}}))
        if self.answer(START_SECONDS) != b"ready":
            raise ServerError("the helper did not start")

    def answer(self, seconds):
        """Returns the next line that the helper wrote."""
        deadline = time.monotonic() + seconds
        errors = b""
        while b"\n" not in self.text:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.line], [], [], left)[0]:
                raise ServerError(f"no answer from the server's helper within {seconds:.0f} s")
            data = self.line.recv(65536)
            if not data:
                raise ServerError("the lab's control line closed")
            for kind, _, payload in self.decoder.feed(data):
                if kind == wire.OUT:
                    self.text += payload
                elif kind == wire.ERR:
                    errors += payload
                elif kind == wire.EXIT:
                    raise ServerError(f"the helper ended: {errors.decode()[-500:]}")
        line, self.text = self.text.split(b"\n", 1)
        return line

    def send(self, name, *args):
        """Sends a request without waiting for the answer. `take` returns the answer."""
        self.number += 1
        request = json.dumps([self.number, name, args]).encode() + b"\n"
        for start in range(0, len(request), wire.CHUNK):
            self.line.sendall(wire.encode(wire.IN, STREAM, request[start:start + wire.CHUNK]))
        return self.number

    def take(self, number, seconds=120):
        """Returns the result of an earlier request."""
        while True:
            answer = json.loads(self.answer(seconds))
            if answer["id"] != number:
                # This answer belongs to an earlier request. The process that sent the request ended
                # before it read the answer.
                continue
            if "error" in answer:
                raise ServerError(f"on the server: {answer['error']}", answer["errno"])
            return answer["value"]

    def call(self, name, *args, seconds=120):
        return self.take(self.send(name, *args), seconds)

    def run(self, *argv, stdin=""):
        """Runs a command that must succeed, and returns its output."""
        status, text = self.call("run", argv, stdin)
        if status:
            raise ServerError(f"{' '.join(argv)}: {status}: {text.strip()}")
        return text

    def read(self, path, offset, length):
        return base64.b64decode(self.call("read", path, offset, length))

    def write(self, path, data, offset=0):
        for start in range(0, len(data), BLOCK):
            piece = base64.b64encode(data[start:start + BLOCK]).decode()
            self.call("write", path, offset + start, piece)

    def getxattr(self, path, name):
        return base64.b64decode(self.call("getxattr", path, name))

    def setxattr(self, path, name, value):
        self.call("setxattr", path, name, base64.b64encode(value).decode())

    def expect(self, path, content):
        """Raises an error unless the content of the file on the server is exactly `content`."""
        found = self.call("digest", path)
        if found == [len(content), hashlib.sha256(content).hexdigest()]:
            return
        text = f"{found[0]} bytes instead of {len(content)}"
        for number, checksum in enumerate(self.call("blocks", path, BLOCK)):
            start = number * BLOCK
            expected = bytes(content[start:start + BLOCK])
            if hashlib.sha256(expected).hexdigest() != checksum:
                difference = pattern.difference(self.read(path, start, BLOCK), expected, start)
                text = difference or text
                break
        raise AssertionError(f"on the server {path}: {text}")

    def close(self):
        """Stops the helper. The helper's locks are then released."""
        self.line.close()
