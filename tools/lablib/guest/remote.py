# SPDX-License-Identifier: GPL-2.0
"""Runs commands in another virtual machine. Programs inside a virtual machine use this module.

A Python test imports this module, so it needs no process to run a command:

    sys.path.insert(0, "/repo/tools")
    status, output = Remote("server").call(["sha256sum", "/srv/mem/file"])
"""

import json
import os
import socket
import sys
import threading

from ..machine import wire

LOCAL_SOCKET = "/run/lab.sock"
STREAM = 0


class Remote:
    """The destination of commands: "server", "client" or "lab".

    "lab" executes commands for power and cables:

    - ["server", "off"] switches the server off. ["server", "on"] switches the server on, and
      returns when it serves again.
    - ["client", "unplug"] and ["client", "plug"] disconnect and connect the client's end of a
      cable. The same commands with "server" are for the server's end. A third word is the number of
      the cable, which is 0 by default.
    """

    def __init__(self, where):
        self.where = where

    def frames(self, argv, env, stdin):
        """Starts a command. Yields frames with the output of the command, and then a frame with its
        exit status. `stdin` is a file descriptor for the command's input."""
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(LOCAL_SOCKET)
            request = {"where": self.where, "argv": list(argv), "env": env or {}}
            line.sendall(wire.encode(wire.RUN, STREAM, request))
            feeder = threading.Thread(target=self.feed, args=(line, stdin), daemon=True)
            feeder.start()
            decoder = wire.Decoder()
            while data := line.recv(65536):
                yield from decoder.feed(data)

    @staticmethod
    def feed(line, stdin):
        """Sends the input, and then a frame that marks the end of the input."""
        try:
            while stdin is not None and (data := os.read(stdin, wire.CHUNK)):
                line.sendall(wire.encode(wire.IN, STREAM, data))
            line.sendall(wire.encode(wire.IN, STREAM))
        except OSError:
            pass  # The command ended without reading all of its input.

    def run(self, argv, stdin=None, env=None):
        """Runs a command, and writes its output to the output of this process. Returns the exit
        status."""
        for kind, _, payload in self.frames(argv, env, stdin):
            if kind == wire.EXIT:
                return json.loads(payload)["status"]
            out = sys.stderr.buffer if kind == wire.ERR else sys.stdout.buffer
            out.write(payload)
            out.flush()
        raise ConnectionError("the lab went away")

    def call(self, argv, stdin=None, env=None):
        """Runs a command and collects its output. Returns (exit status, output as bytes)."""
        output = b""
        for kind, _, payload in self.frames(argv, env, stdin):
            if kind == wire.EXIT:
                return json.loads(payload)["status"], output
            output += payload
        raise ConnectionError("the lab went away")


class Program:
    """A program of lablib.guest in another machine. The program answers each line of JSON with a
    line of JSON."""

    def __init__(self, where, module, *words, env=None):
        there, self.pipe = os.pipe()
        self.where, self.text = where, b""
        self.frames = Remote(where).frames(
            [sys.executable, "-B", "-m", f"lablib.guest.{module}", *words],
            {"PYTHONPATH": "/repo/tools"} | (env or {}), there)

    def ask(self, *words):
        """Sends a request. Returns the answer."""
        os.write(self.pipe, json.dumps(words).encode() + b"\n")
        for kind, _, payload in self.frames:
            if kind == wire.OUT:
                self.text += payload
                if self.text.endswith(b"\n"):
                    answer, self.text = json.loads(self.text), b""
                    return answer
            elif kind == wire.ERR:
                sys.stderr.buffer.write(payload)
                sys.stderr.flush()
            else:
                break
        raise RuntimeError(f"the {self.where} machine: no answer to {' '.join(map(str, words))}")


def obey(target):
    """Executes the requests that arrive on standard input, and prints the answers. A program that
    another machine has started as a `Program` calls this function. Each request is a line of JSON
    with the name of a method of `target` and its arguments."""
    for line in sys.stdin:
        what, *words = json.loads(line)
        print(json.dumps(getattr(target, what)(*words)), flush=True)
