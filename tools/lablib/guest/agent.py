# SPDX-License-Identifier: GPL-2.0
"""The first process of a lab machine: runs commands for the host.

The agent also lets programs inside the machine run commands elsewhere (`on-server`). These programs
connect to a local socket, and the agent forwards their frames to the host. The agent has one thread
with one select loop. As process 1 it reaps every orphan.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import pty
import selectors
import signal
import socket
import subprocess
import sys
import termios

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from lablib.machine import wire

LOCAL_SOCKET = "/run/lab.sock"
# If more bytes than this are queued for a connection, the agent reads no more output of the
# commands that the connection has requested.
QUEUE_BYTES = 1 << 20
# Signals that the agent ignores, because the first process of a machine must not end.
DEAF = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MOUNTS = (
    ("tmpfs", "/run", "mode=755"), ("tmpfs", "/tmp", "mode=1777"),
    ("tmpfs", "/dev/shm", "mode=1777"), ("devpts", "/dev/pts", "mode=620,ptmxmode=666"),
    ("debugfs", "/sys/kernel/debug", ""), ("tracefs", "/sys/kernel/tracing", ""),
    ("bpf", "/sys/fs/bpf", ""), ("cgroup2", "/sys/fs/cgroup", ""),
)
ENVIRONMENT = {
    "PATH": "/repo/tools/lablib/guest/bin:/usr/local/sbin:/usr/local/bin:"
            "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
    "LAB_RESULTS": "/results",
}


def parameters():
    """Returns the lab.* words of the kernel command line."""
    words = pathlib.Path("/proc/cmdline").read_text().split()
    return dict(w[4:].split("=", 1) for w in words if w.startswith("lab."))


def mount_all():
    """Mounts the kernel's file systems without starting a process for each."""
    libc = ctypes.CDLL(None, use_errno=True)
    known = pathlib.Path("/proc/filesystems").read_text().split()
    for kind, where, options in MOUNTS:
        if kind not in known:
            # A debug kernel may lack a file system. In that case a test that needs the file system
            # reports the problem.
            print(f"lab: no {kind}", flush=True)
            continue
        os.makedirs(where, exist_ok=True)
        if libc.mount(kind.encode(), where.encode(), kind.encode(), 0, options.encode()):
            print(f"lab: no {kind}: {os.strerror(ctypes.get_errno())}", flush=True)


def repository_at_own_path(path):
    """Makes the repository visible under its path on the host, too."""
    if path and not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink("/repo", path)


def network(given):
    """Sets the static addresses of the interfaces. There is one interface for each cable: lab.addr0
    contains the addresses of eth0."""
    batch = "link set lo up\n"
    for name, addresses in given.items():
        if name.startswith("addr"):
            interface = f"eth{name.removeprefix('addr')}"
            batch += f"link set {interface} up mtu 9000\n"
            for address in addresses.split(","):
                nodad = " nodad" if ":" in address else ""
                batch += f"addr add {address} dev {interface}{nodad}\n"
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)


def open_port():
    """Opens the virtio-serial port named "lab". The port is found in sysfs. A link with this name
    does not exist, because udev does not run."""
    for port in pathlib.Path("/sys/class/virtio-ports").iterdir():
        if (port / "name").read_text().strip() == "lab":
            return os.open(f"/dev/{port.name}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    raise FileNotFoundError("no virtio-serial port named lab")


class Line:
    """A connection that transports messages (frames): the port to the host, or a local socket."""

    def __init__(self, agent, fd):
        self.agent, self.fd = agent, fd
        self.decoder, self.queue = wire.Decoder(), bytearray()

    def send(self, kind, stream, payload=b""):
        self.queue += wire.encode(kind, stream, payload)
        self.flush()

    def flush(self):
        while self.queue:
            try:
                sent = os.write(self.fd, self.queue[:65536])
            except BlockingIOError:
                break
            except OSError:
                # The other end of this connection is closed, so the queued data are discarded. The
                # agent closes its own end when its next read reports the end of the data.
                self.queue.clear()
                break
            del self.queue[:sent]
        self.agent.watch(self, bool(self.queue))


class Command:
    """A process group that was started for a requester."""

    def __init__(self, line, stream, request):
        self.line, self.stream = line, stream
        # A key is the agent's end of a pipe. Its value is the kind of the frames that carry the
        # data of the pipe.
        self.outputs = {}
        if request.get("pty"):
            master, slave = pty.openpty()
            child_fds, own = (slave, slave, slave), [master]
            self.input = os.dup(master)
            self.outputs[master] = wire.OUT
        else:
            in_r, in_w = os.pipe()
            out_r, out_w = os.pipe()
            err_r, err_w = os.pipe()
            child_fds, own = (in_r, out_w, err_w), [out_r, err_r]
            self.input = in_w
            self.outputs.update({out_r: wire.OUT, err_r: wire.ERR})
        for fd in (*own, self.input):
            os.set_blocking(fd, False)
        self.pending_input, self.input_ends = bytearray(), False
        self.pid = os.fork()
        if not self.pid:
            self.become(child_fds, request)
        for fd in set(child_fds):
            os.close(fd)

    @staticmethod
    def become(fds, request):
        """Executes the command in the child process. Never returns."""
        try:
            os.setsid()
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
            if request.get("pty"):
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.closerange(3, 1024)
            # The agent ignores these signals, and a new program inherits ignored signals. So the
            # default actions are restored. Otherwise the signals would not end the program.
            for number in (signal.SIGPIPE, *DEAF):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            os.chdir(request.get("cwd") or "/")
            environment = ENVIRONMENT | request.get("env", {})
            os.execvpe(request["argv"][0], request["argv"], environment)
        except BaseException as error:  # noqa: BLE001  # a child must end here
            os.write(2, f"lab: {request.get('argv')}: {error}\n".encode())
        os._exit(127)


class Agent:
    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.commands = {}   # running commands, by (line, stream)
        self.forwarded = {}  # (line, stream) of a local program, by the stream on the port
        self.next_stream = 1
        wake_r, wake_w = os.pipe()
        for fd in (wake_r, wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_w)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in DEAF:
            signal.signal(number, signal.SIG_IGN)
        self.register(wake_r, lambda: self.reap(wake_r))
        self.port = Line(self, open_port())
        self.register(self.port.fd, lambda: self.read_line(self.port), self.port.flush)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(LOCAL_SOCKET)
        self.listener.listen()
        self.register(self.listener.fileno(), self.accept)

    def register(self, fd, readable, writable=None):
        self.selector.register(fd, selectors.EVENT_READ, (readable, writable))

    def watch(self, line, writable):
        """Selects the events of the connection `line` for which the agent waits: the arrival of
        data and, if `writable` is true, space for data to be sent."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writable else 0)
        self.selector.modify(line.fd, events, self.selector.get_key(line.fd).data)

    def run(self):
        self.port.send(wire.HELLO, 0)
        while True:
            for key, mask in self.selector.select():
                readable, writable = key.data
                if mask & selectors.EVENT_WRITE and writable:
                    writable()
                if mask & selectors.EVENT_READ and key.fd in self.selector.get_map():
                    readable()

    def accept(self):
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        line = Line(self, connection.detach())
        self.register(line.fd, lambda: self.read_line(line), line.flush)

    def read_line(self, line):
        try:
            data = os.read(line.fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if line is not self.port:
                self.drop(line)
            return
        for frame in line.decoder.feed(data):
            self.handle(line, *frame)

    def drop(self, line):
        """Stops the commands that a disconnected local program has requested."""
        self.selector.unregister(line.fd)
        os.close(line.fd)
        for stream, (owner, _) in list(self.forwarded.items()):
            if owner is line:
                del self.forwarded[stream]
                self.port.send(wire.SIGNAL, stream, bytes([signal.SIGKILL]))

    def handle(self, line, kind, stream, payload):
        if line is not self.port:
            self.forward(line, kind, stream, payload)
        elif stream in self.forwarded:
            owner, own_stream = self.forwarded[stream]
            owner.send(kind, own_stream, payload)
            if kind == wire.EXIT:
                del self.forwarded[stream]
        elif kind == wire.RUN:
            command = Command(line, stream, json.loads(payload))
            self.commands[line, stream] = command
            for fd in command.outputs:
                self.register(fd, lambda c=command, f=fd: self.pump(c, f))
        elif (line, stream) in self.commands:
            self.steer(self.commands[line, stream], kind, payload)

    def forward(self, line, kind, stream, payload):
        """Forwards a frame from a local program to the host. The agent replaces the stream number
        of the program by a number of its own."""
        if kind == wire.RUN:
            number, self.next_stream = self.next_stream, self.next_stream + 2
            self.forwarded[number] = (line, stream)
            self.port.send(kind, number, payload)
            return
        for number, owner in self.forwarded.items():
            if owner == (line, stream):
                self.port.send(kind, number, payload)

    def steer(self, command, kind, payload):
        """Handles input or a signal for a running command."""
        if kind == wire.SIGNAL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.pid, payload[0])
        elif kind == wire.IN:
            command.pending_input += payload
            command.input_ends |= not payload
            self.feed(command)

    def feed(self, command):
        """Writes as much data to the command's standard input as the pipe accepts now."""
        if command.input is None:
            return
        try:
            while command.pending_input:
                sent = os.write(command.input, command.pending_input[:65536])
                del command.pending_input[:sent]
        except BlockingIOError:
            if command.input not in self.selector.get_map():
                self.selector.register(command.input, selectors.EVENT_WRITE,
                                       (None, lambda: self.feed(command)))
            return
        except OSError:
            command.pending_input.clear()
            command.input_ends = True
        if command.input in self.selector.get_map():
            self.selector.unregister(command.input)
        if command.input_ends:
            os.close(command.input)
            command.input = None

    def pump(self, command, fd):
        """Forwards output of a command to the connection that requested the command."""
        if len(command.line.queue) > QUEUE_BYTES:
            return
        try:
            data = os.read(fd, wire.CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:  # A terminal without processes returns EIO.
                raise
            data = b""
        if data:
            command.line.send(command.outputs[fd], command.stream, data)
        else:
            self.close_output(command, fd)

    def close_output(self, command, fd):
        self.selector.unregister(fd)
        os.close(fd)
        del command.outputs[fd]

    def reap(self, wake_fd):
        with contextlib.suppress(BlockingIOError):
            os.read(wake_fd, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for command in [c for c in self.commands.values() if c.pid == pid]:
                self.finish(command, os.waitstatus_to_exitcode(status))

    def finish(self, command, code):
        """Sends the data in the pipes, and then the status.

        A daemon may keep a pipe open forever, so only data that have already arrived are sent.
        """
        for fd in list(command.outputs):
            while fd in command.outputs:
                try:
                    data = os.read(fd, wire.CHUNK)
                except BlockingIOError:
                    data = b""
                except OSError:
                    data = b""
                if data:
                    command.line.send(command.outputs[fd], command.stream, data)
                else:
                    self.close_output(command, fd)
        command.pending_input.clear()
        command.input_ends = True
        self.feed(command)
        del self.commands[command.line, command.stream]
        status = 128 - code if code < 0 else code
        command.line.send(wire.EXIT, command.stream, {"status": status})


def be_init():
    """Sets up the machine if the agent is its first process: mounts file systems, and sets the
    addresses and the host name."""
    mount_all()
    given = parameters()
    repository_at_own_path(given.get("repo", ""))
    network(given)
    pathlib.Path("/proc/sys/kernel/hostname").write_text(given["role"])


def main():
    os.environ.update(ENVIRONMENT)
    # In an installed system the agent is a service and not the first process. It then does not set
    # up the machine.
    if os.getpid() == 1:
        be_init()
    # Kernel messages of all levels go to the console, so that a kernel report is complete.
    pathlib.Path("/proc/sys/kernel/printk").write_text("8 4 1 7")
    Agent().run()


main()
