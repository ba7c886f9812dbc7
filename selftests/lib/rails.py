# SPDX-License-Identifier: GPL-2.0
"""Rails: two devices of this machine, two addresses of the server, and the faults of a rail."""

import contextlib
import mmap
import os
import pathlib
import re
import struct
import subprocess
import time

from . import faults, namespace, wait, xprt
from .buffers import Buffer
from .case import ENV, check
from .env import PORT
from .workers import Crew

SERVERS = os.environ.get("NFS_SERVERS", "").split()
SERVERS6 = os.environ.get("NFS_SERVERS6", "").split()
DEVICES = ENV.devices
TABLES = pathlib.Path("/proc/sys/sunrpc")
GROUPS = " ".join("=".join(group) for group in (SERVERS, SERVERS6))
RECORD = 4096
LATE_SECONDS = 1
# Number of times that a flapping rail fails and returns.
TURNS = 8
DOUBLE = struct.Struct("=d")
RAIL = re.compile(r"^rail: (\S+) \((\S+)/\d+\) to (\S+): (\w+) for \S+ s, (\d+) connections",
                  re.MULTILINE)


def set_up(locals_="auto", servers=GROUPS):
    """Writes the settings for rails in this network namespace: the local rails and the server
    addresses."""
    for server in SERVERS + SERVERS6:
        # The first packets over a cable may get no answer. A rail over that cable would then be
        # treated as dead for a minute. So packets are sent over each cable before the rails are
        # configured.
        wait.until(lambda address=server: not subprocess.run(
            ("ping", "-q", "-c1", "-W1", address), stdout=subprocess.DEVNULL,
            timeout=ENV.patience(10), check=False).returncode,
                   ENV.patience(20), f"an answer of {server}")
    (TABLES / "rdma_rail_servers").write_text(f"{servers}\n")
    (TABLES / "rdma_rails").write_text(f"{locals_}\n")


def states():
    """Returns the debugfs files of this project's transports."""
    texts = []
    for file in sorted(xprt.DEBUGFS.glob("*/state")):
        # A transport may end here. Its files then disappear before they are read.
        with contextlib.suppress(OSError):
            texts.append(file.read_text())
    return texts


def devices():
    """Returns the name of the device of each existing connection."""
    return re.findall(r"^device: (\S+), port", "\n".join(states()), re.MULTILINE)


def spread():
    """Returns the number of connections on each device."""
    found = devices()
    return [found.count(device) for device in DEVICES]


def is_even():
    """Returns whether all connections exist and are spread evenly: the connection counts of the
    devices differ by at most one."""
    numbers = spread()
    return sum(numbers) == len(states()) and max(numbers) - min(numbers) <= 1


def standing():
    """Returns a dictionary from the device of each rail to the state of the rail."""
    return {device: word for _, device, _, word, _ in RAIL.findall("\n".join(states()))}


def counter(name):
    """Returns a counter, summed over all transports."""
    texts = "\n".join(file.read_text() for file in xprt.DEBUGFS.glob("*/counters"))
    return sum(map(int, re.findall(rf"^{name}: (\d+)$", texts, re.MULTILINE)))


def traffic():
    """Returns the number of packets and the number of bytes of each rail. Each number is the sum of
    both directions. The network interface counts the bytes. An rxe device counts the packets. A siw
    device has no counters, so with siw the network interface counts the packets, too."""
    found = []
    for number, device in enumerate(DEVICES):
        interface = pathlib.Path(f"/sys/class/net/{faults.interface(number)}/statistics")
        counters = pathlib.Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters")
        packets = [counters / "sent_pkts", counters / "rcvd_pkts"] if device.startswith("rxe") \
            else [interface / "tx_packets", interface / "rx_packets"]
        found.append([sum(int(file.read_text()) for file in files)
                      for files in (packets, [interface / "tx_bytes", interface / "rx_bytes"])])
    return found


def shares(before):
    """Returns the traffic since an earlier call of `traffic`, which returned `before`: first the
    packets of each rail, then the bytes of each rail."""
    pairs = zip(traffic(), before, strict=True)
    return list(zip(*([now - then for now, then in zip(*pair, strict=True)] for pair in pairs),
                    strict=True))


# The next functions are faults of a rail. Each function gets the server and the number of the rail.

def device_anew(number):
    """Deletes the RDMA device of a rail, and creates it again. This is needed because an rxe device
    fails permanently if it cannot send a packet while the port has no link."""
    faults.remove_client_device(number)
    faults.add_client_device(number)


@contextlib.contextmanager
def cable_out(_, number):
    """Disconnects the cable at this machine's end."""
    faults.lab("client", "unplug", str(number))
    try:
        yield
    finally:
        faults.lab("client", "plug", str(number))
        device_anew(number)


@contextlib.contextmanager
def port_down(_, number):
    """Sets an interface of this machine down, as an administrator does."""
    interface = faults.interface(number)
    # Without this setting the interface would lose its IPv6 addresses for good.
    keep = pathlib.Path(f"/proc/sys/net/ipv6/conf/{interface}/keep_addr_on_down")
    keep.write_text("1")
    namespace.run("ip", "link", "set", interface, "down")
    try:
        yield
    finally:
        namespace.run("ip", "link", "set", interface, "up")
        keep.write_text("0")
        device_anew(number)


@contextlib.contextmanager
def silence(server, number):
    """Makes the server drop all RDMA packets that arrive over a cable. The link states do not
    change."""
    table = f"rail{number}"
    server.run("nft", "-f", "-", stdin=f"""
table inet {table} {{
    chain in {{
        type filter hook input priority 0
        iifname "{faults.interface(number)}" udp dport {faults.ROCE_PORT} drop
        iifname "{faults.interface(number)}" tcp dport {PORT} drop
    }}
}}
""")
    try:
        yield
    finally:
        server.run("nft", "delete", "table", "inet", table)


@contextlib.contextmanager
def device_gone(_, number):
    """Deletes a device of this machine, and creates it again."""
    faults.remove_client_device(number)
    try:
        yield
    finally:
        faults.add_client_device(number)


@contextlib.contextmanager
def server_address_gone(server, number):
    """Removes the server's address at a cable."""
    address = f"{SERVERS[number]}/24", "dev", faults.interface(number)
    server.run("ip", "addr", "del", *address)
    try:
        yield
    finally:
        server.run("ip", "addr", "add", *address)
        # An rxe device is created again. It has failed, because it could not send packets from the
        # removed address. A siw device is not created again, because the server still has regions
        # of ended connections on the device. The kernel would log warnings about these regions if
        # the device were removed.
        if not DEVICES[number].startswith("siw"):
            faults.remove_server_device(server, number)
            faults.add_server_device(server, number)


@contextlib.contextmanager
def flapping(server, number):
    """Makes a device of this machine disappear and return each second for some time."""
    for _ in range(TURNS):
        with device_gone(server, number):
            pass_by(0.5)
        pass_by(0.5)
    yield


@contextlib.contextmanager
def both_gone(server, number, seconds):
    """Removes both RDMA devices of this machine. Creates device `number` again after `seconds`, and
    the other device at the end of the `with` block."""
    with device_gone(server, 1 - number):
        with device_gone(server, number):
            pass_by(seconds)
        yield


def pass_by(seconds):
    """Waits for `seconds` seconds while a fault lasts."""
    clock = wait.Clock()
    wait.until(lambda: clock.seconds() > seconds, ENV.patience(seconds + 1), f"{seconds} s")


# The next classes measure how long calls take.

class Pulses:
    """Processes that each write a record and read it back from time to time. They record the
    longest time of a write or a read, and the number of calls that took longer than a second."""

    WORDS = LONGEST, BEGUN, COUNT, LATE = range(4)

    def __init__(self, top, count):
        self.top, self.count = top, count
        self.memory = mmap.mmap(-1, len(self.WORDS) * DOUBLE.size * count)
        self.crew = Crew(ENV.patience(60))

    def place(self, number, word):
        return (len(self.WORDS) * number + word) * DOUBLE.size

    def get(self, number, word):
        return DOUBLE.unpack_from(self.memory, self.place(number, word))[0]

    def set(self, number, word, value):
        DOUBLE.pack_into(self.memory, self.place(number, word), value)

    def beat(self, stopped, number):
        """Writes a record and reads it back from time to time. Each process runs this function."""
        fd = os.open(f"{self.top}/pulse{number}", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
        buffer, generation = Buffer(RECORD), 0
        while not stopped():
            generation += 1
            data = generation.to_bytes(8, "big") * (RECORD // 8)
            self.timed(number, lambda data=data: buffer.write(fd, data, 0, 0))
            read = self.timed(number, lambda: buffer.read(fd, RECORD, 0, 0))
            check(read == data, "another record came back")
            self.set(number, self.COUNT, generation)
            time.sleep(wait.PAUSE_SECONDS)
        os.close(fd)

    def timed(self, number, call):
        """Makes a call and notes how long it took."""
        begun = time.monotonic()
        self.set(number, self.BEGUN, begun)
        result = call()
        taken = time.monotonic() - begun
        self.set(number, self.BEGUN, 0)
        self.set(number, self.LONGEST, max(taken, self.get(number, self.LONGEST)))
        if taken > LATE_SECONDS:
            self.set(number, self.LATE, self.get(number, self.LATE) + 1)
        return result

    def longest(self):
        """Returns the duration of the longest write or read since `reset`. A write or read that is
        still in progress is included."""
        self.crew.check()
        now, spans = time.monotonic(), []
        for number in range(self.count):
            begun = self.get(number, self.BEGUN)
            spans += [self.get(number, self.LONGEST), now - begun if begun else 0]
        return max(spans)

    def late(self):
        """Returns the number of calls since `reset` that took longer than a second."""
        return int(sum(self.get(number, self.LATE) for number in range(self.count)))

    def reset(self):
        for number in range(self.count):
            self.set(number, self.LONGEST, 0)
            self.set(number, self.LATE, 0)

    def counts(self):
        return [self.get(number, self.COUNT) for number in range(self.count)]

    def all_beat(self, seconds):
        """Waits until each process has written one more record. Returns how many seconds the wait
        took."""
        before, clock = self.counts(), wait.Clock()
        wait.until(lambda: all(now > then for now, then in zip(self.counts(), before, strict=True)),
                   seconds, "each writes again")
        return clock.seconds()

    def __enter__(self):
        for number in range(self.count):
            self.crew.start(self.beat, number)
        self.all_beat(ENV.patience(30))
        return self

    def __exit__(self, *failure):
        self.crew.__exit__(*failure)


class Looks(Pulses):
    """Processes that request the attributes of a file again and again. The mount must not cache
    attributes."""

    def beat(self, stopped, number):
        asked = 0
        while not stopped():
            self.timed(number, lambda: os.stat(self.top))
            asked += 1
            self.set(number, self.COUNT, asked)
            time.sleep(wait.PAUSE_SECONDS)
