# SPDX-License-Identifier: GPL-2.0
"""The host's end of a machine's control line, which runs commands in the machine."""

import itertools
import json
import queue
import signal
import socket
import sys
import threading
import time

from ..base.ui import LabError
from . import wire

# The exit status of a command whose machine went down.
LOST = 255


class MachineDied(LabError):
    """Raised if the machine ends while a caller waits for it."""


class Command:
    """A command that was started in a machine, and whose result is not known yet."""

    def __init__(self, channel, stream, sink, on_exit):
        self.channel, self.stream, self.sink = channel, stream, sink
        self.ended, self.on_exit = threading.Event(), on_exit
        self.status = None

    def wait(self, timeout, attend=None):
        """Waits until the command has ended, and calls `attend` repeatedly during the wait. Returns
        the exit status of the command. Raises an error if the machine ends, or if `timeout` seconds
        have passed."""
        deadline = time.monotonic() + timeout
        while not self.ended.wait(0.2):
            self.channel.check_alive()
            if attend:
                attend()
            if time.monotonic() > deadline:
                raise TimeoutError
        if self.status is None:
            self.channel.check_alive()
            raise MachineDied(f"{self.channel.name}: control line closed")
        return self.status

    def write(self, data):
        """Sends `data` to the command's standard input. If `data` is empty, ends the standard
        input."""
        for start in range(0, len(data), wire.CHUNK):
            self.channel.send(wire.IN, self.stream, data[start:start + wire.CHUNK])
        if not data:
            self.channel.send(wire.IN, self.stream)

    def kill(self, number=signal.SIGKILL):
        self.channel.send(wire.SIGNAL, self.stream, bytes([number]))


class Channel:
    """The control line of one machine. A separate thread reads the line."""

    def __init__(self, name, path, check_alive, serve):
        """Connects to the control line of the machine. When a program in the guest starts a command
        outside the guest, `serve(request, reply)` is called. `serve` returns a function that
        receives the later frames of that command."""
        self.name, self.check_alive, self.serve = name, check_alive, serve
        self.numbers = itertools.count(2, 2)
        self.commands, self.served = {}, {}
        self.hello = threading.Event()
        self.outgoing = queue.SimpleQueue()
        self.socket = self.connect(path)
        for job in (self.read, self.transmit):
            threading.Thread(target=job, daemon=True).start()

    def connect(self, path):
        """Waits for the socket, which QEMU creates before it starts the machine."""
        deadline = time.monotonic() + 60
        while True:
            try:
                line = socket.socket(socket.AF_UNIX)
                line.connect(str(path))
                return line
            except (FileNotFoundError, ConnectionRefusedError):
                line.close()
                self.check_alive()
                if time.monotonic() > deadline:
                    raise MachineDied(f"{self.name}: QEMU did not start") from None
                time.sleep(0.02)

    def wait_for_agent(self, timeout):
        deadline = time.monotonic() + timeout
        while not self.hello.wait(0.1):
            self.check_alive()
            if time.monotonic() > deadline:
                raise MachineDied(f"{self.name}: not booted within {timeout} s")

    def start(self, argv, sink=None, env=None, cwd="/", use_pty=False, stdin=b"",
              on_exit=None):
        """Starts a command. `sink(kind, data)` is called with each piece of the command's output.

        `stdin` is the whole input of the command. With None the input stays open for `write`.
        """
        stream = next(self.numbers)
        command = Command(self, stream, sink or to_terminal, on_exit)
        self.commands[stream] = command
        self.send(wire.RUN, stream, {"argv": [str(a) for a in argv], "env": env or {},
                                     "cwd": cwd, "pty": use_pty})
        if stdin is not None:
            if stdin:
                command.write(stdin)
            command.write(b"")
        return command

    def call(self, argv, timeout=60, **options):
        """Runs a command and waits until it has ended. Returns (status, complete output)."""
        parts = []
        command = self.start(argv, lambda kind, data: parts.append(data), **options)
        try:
            status = command.wait(timeout)
        except TimeoutError:
            command.kill()
            raise LabError(f"{self.name}: {' '.join(map(str, argv))}: no end after "
                           f"{timeout} s") from None
        return status, b"".join(parts).decode(errors="replace")

    def check_call(self, argv, timeout=60, **options):
        """Runs a command like `call`, but raises an error if the command fails. Returns the output.
        """
        status, text = self.call(argv, timeout, **options)
        if status:
            raise LabError(f"{self.name}: {' '.join(map(str, argv))}: exit status "
                           f"{status}:\n{text.strip()[-2000:]}")
        return text

    def send(self, kind, stream, payload=b""):
        self.outgoing.put(wire.encode(kind, stream, payload))

    def transmit(self):
        """Writes the queued frames to the line. A separate thread runs this method, so that reading
        never waits for writing."""
        try:
            while True:
                self.socket.sendall(self.outgoing.get())
        except OSError:
            pass

    def read(self):
        decoder = wire.Decoder()
        try:
            while data := self.socket.recv(65536):
                for frame in decoder.feed(data):
                    self.handle(*frame)
        except OSError:
            pass
        for command in list(self.commands.values()):
            command.ended.set()
            if command.on_exit:
                command.on_exit(LOST)

    def handle(self, kind, stream, payload):
        if kind == wire.HELLO:
            self.hello.set()
        elif kind == wire.RUN:
            def reply(what, data=b""):
                self.send(what, stream, data)
                if what == wire.EXIT:
                    self.served.pop(stream, None)
            self.served[stream] = self.serve(json.loads(payload), reply)
        elif stream in self.served:
            self.served[stream](kind, payload)
        elif stream in self.commands:
            command = self.commands[stream]
            if kind == wire.EXIT:
                command.status = json.loads(payload)["status"]
                del self.commands[stream]
                command.ended.set()
                if command.on_exit:
                    command.on_exit(command.status)
            else:
                command.sink(kind, payload)


def to_terminal(kind, data):
    """Writes the output of a command to standard output and standard error of this process. This is
    the default sink."""
    out = sys.stderr.buffer if kind == wire.ERR else sys.stdout.buffer
    out.write(data)
    out.flush()
