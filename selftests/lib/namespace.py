# SPDX-License-Identifier: GPL-2.0
"""A network namespace with this machine's interfaces and RDMA devices in it."""

import contextlib
import dataclasses
import pathlib
import subprocess

from . import faults, wait
from .env import ENV

NAME = "selftests"
FILE = pathlib.Path(f"/run/netns/{NAME}")


def addresses(number=0):
    """Returns the addresses of an interface, as the lab assigned them to this machine."""
    words, name = pathlib.Path("/proc/cmdline").read_text().split(), f"lab.addr{number}="
    return next(w for w in words if w.startswith(name)).removeprefix(name).split(",")


def run(*argv):
    subprocess.run(argv, timeout=ENV.patience(30), check=True)


def set_up(*space):
    """Configures this machine's interfaces in a network namespace. `space` contains the arguments
    of ip(8) that select the namespace."""
    run("ip", *space, "link", "set", "lo", "up")
    for number in range(len(ENV.devices)):
        interface = faults.interface(number)
        run("ip", *space, "link", "set", interface, "mtu", "9000", "up")
        for address in addresses(number):
            run("ip", *space, "addr", "replace", address, "dev", interface,
                *(["nodad"] if ":" in address else []))


def enter():
    """Moves the interfaces into a new namespace, and creates the RDMA devices again in that
    namespace."""
    run("ip", "netns", "add", NAME)
    for number in range(len(ENV.devices)):
        faults.remove_client_device(number)
        run("ip", "link", "set", faults.interface(number), "netns", NAME)
    set_up("-n", NAME)
    for number in range(len(ENV.devices)):
        run("ip", "netns", "exec", NAME, *faults.device_add(number))


def delete():
    """Deletes the name of the namespace. The namespace itself exists as long as a mount or a
    process is in it."""
    run("ip", "netns", "del", NAME)


@dataclasses.dataclass
class Beside:
    """A network namespace that has its own network interface and its own RDMA device.

    This machine forwards the packets of the namespace. The namespace's interface is not stacked on
    this machine's interface. The addresses of a stacked interface would also belong to this
    machine's RDMA device. The connection manager would choose this machine's device, which does not
    receive the packets of the namespace.
    """

    file: pathlib.Path = pathlib.Path(f"/run/netns/{NAME}-beside")
    address: str = "192.0.2.5"
    interface: str = "beside"
    way: str = "to-beside"   # interface of this machine at the cable to the namespace

    def make(self):
        run("ip", "netns", "add", self.file.name)
        run("ip", "link", "add", self.way, "type", "veth",
            "peer", "name", self.interface, "netns", self.file.name)
        run("ip", "link", "set", self.way, "mtu", "9000", "up")
        space = ("ip", "-n", self.file.name)
        run(*space, "link", "set", "lo", "up")
        run(*space, "link", "set", self.interface, "mtu", "9000", "up")
        run(*space, "addr", "add", f"{self.address}/24", "dev", self.interface)
        run("ip", "route", "add", self.address, "dev", self.way)
        self.hand_on("1")
        run("ip", "netns", "exec", self.file.name, "rdma", "link", "add", self.interface,
            "type", ENV.provider, "netdev", self.interface)

    def hand_on(self, value):
        """Switches packet forwarding and proxy ARP on or off, on two interfaces of this machine:
        the interface to the network and the interface to the namespace."""
        for interface in (self.way, faults.interface()):
            for name in ("forwarding", "proxy_arp"):
                file = pathlib.Path(f"/proc/sys/net/ipv4/conf/{interface}/{name}")
                if file.exists():
                    file.write_text(value)

    def delete(self):
        """Deletes the name of the namespace. The namespace itself exists as long as a mount or a
        process is in it."""
        if self.file.exists():
            run("ip", "netns", "del", self.file.name)


@contextlib.contextmanager
def beside():
    """Creates the namespace of `Beside`. Deletes it at the end of the block, and waits until the
    kernel has removed it."""
    space = Beside()
    try:
        space.make()
        yield space
    finally:
        space.delete()
        wait.until(lambda: not pathlib.Path(f"/sys/class/infiniband/{space.interface}").exists(),
                   ENV.patience(30), "the namespace's device is gone")
        space.hand_on("0")


def leave():
    """Deletes the namespace that `enter` has created, and undoes all changes of `enter`. When the
    deleted namespace no longer exists, the interfaces are in this machine's main namespace again.
    """
    if FILE.exists():
        delete()
    numbers = range(len(ENV.devices))
    wait.until(lambda: all(pathlib.Path(f"/sys/class/net/{faults.interface(number)}").exists()
                           for number in numbers), ENV.patience(30), "the namespace is gone")
    set_up()
    for number in numbers:
        if not pathlib.Path(f"/sys/class/infiniband/{faults.device(number)}").exists():
            faults.add_client_device(number)
