# SPDX-License-Identifier: GPL-2.0
"""One virtual machine."""

import json
import socket
import subprocess
import time

from ..artefacts import root
from ..base import chroot, proc
from ..base.paths import REPO
from ..base.ui import LabError
from . import accel, clock, initramfs
from .channel import Channel, MachineDied

# The directory for a machine's sockets and disk, in the root file system in which QEMU runs.
RUN_DIR = "/lab/run"
MONITOR_SECONDS = 30
# Number of ports of the serial device. A virtio serial port other than a console has number 1 or
# higher. QEMU looks at two more files in each round of its main loop for each further port.
PORTS = 2
# Kernel parameters. Mitigations of processor bugs are off, because the machines are only used for
# tests, and mitigations are slow under emulation. An oops causes a panic, and a panic ends QEMU
# immediately. A debug kernel does not run its self-tests at boot, because they do not test our
# module, and because one of the suites makes wrong assumptions about interrupts with PREEMPT_RT.
# The timeout for RCU stalls is long, because a thread that yields to all other threads waits long
# for an emulated processor. khugepaged waited 87 seconds on a busy host.
KERNEL_WORDS = ("loglevel=6 panic=-1 oops=panic mitigations=off audit=0 selinux=0 apparmor=0 "
                "random.trust_cpu=on net.ifnames=0 cryptomgr.notests "
                "rcupdate.rcu_cpu_stall_timeout=180 "
                "kasan_multi_shot kunit.filter_glob=none")


class Machine:
    """A QEMU process, its console log, and the channel that carries commands to the machine."""

    # Directories of the host that the machine mounts, and whether each of them is read-only.
    SHARES: tuple = (("root", "on"), ("modules", "on"), ("repo", "on"), ("results", "off"))
    BOOT_SECONDS = 300

    def __init__(self, role, lab, kernel, memory, addresses, disk=None, plugin=None,
                 processors=1, words=()):
        """Describes a machine. `lab` contains the root file system, the accelerator and the
        directories of the two machines of a test. `addresses` contains the addresses of each
        network interface. There is one interface for each cable."""
        self.plugin, self.processors, self.words = plugin, processors, words
        self.role, self.lab, self.kernel = role, lab, kernel
        self.memory, self.addresses, self.disk = memory, addresses, disk
        self.console = lab.results / f"{role}.console"
        self.process: subprocess.Popen | None = None
        self.line: Channel | None = None

    def start(self, peer, pcap=False):
        """Switches the machine on. Cables connect it to the machine named `peer`."""
        lab = self.lab
        binds = [(lab.run_dir, RUN_DIR), (REPO, "/lab/repo"), (lab.results, "/lab/results"),
                 *self.files()]
        for kind in ("ctl", "mon", *self.cables()):
            (lab.run_dir / f"{self.role}.{kind}").unlink(missing_ok=True)
        with open(lab.results / f"{self.role}.qemu", "ab") as log:
            self.process = proc.spawn(chroot.command(lab.root, self.argv(peer, pcap), binds),
                                      stdout=log, stderr=subprocess.STDOUT)
        self.line = Channel(self.role, lab.run_dir / f"{self.role}.ctl",
                               self.check_alive, lab.serve)

    def cables(self):
        """Returns the names of the cables."""
        return [f"net{number}" for number in range(len(self.addresses))]

    def files(self):
        """Returns the files and directories that QEMU needs for this machine, each with the path at
        which QEMU sees it."""
        files = [(root.guest(self.kernel.arch), "/lab/root"),
                 (self.kernel.modules, "/lab/modules"), (self.kernel.image.parent, "/lab/kernel"),
                 (initramfs.path(self.kernel).parent, "/lab/initramfs")]
        if self.plugin:
            files.append((self.plugin.parent, "/lab/plugin"))
        return files

    def board(self):
        """Returns QEMU's options for the type of machine."""
        return self.kernel.arch.board

    def boot(self, words):
        """Returns QEMU's options for the kernel, with `words` as kernel parameters, and for the
        disk."""
        disk = self.drive(f"{RUN_DIR}/{self.disk}") if self.disk else []
        return ["-kernel", f"/lab/kernel/{self.kernel.image.name}",
                "-initrd", "/lab/initramfs/image", "-append", words, *disk]

    @staticmethod
    def drive(file, more="cache=unsafe"):
        """Returns QEMU's options for a disk."""
        return ["-drive", f"if=virtio,format=raw,{more},file={file}"]

    def setup(self, arguments):
        """Returns the command that sets the machine up for its role, with arguments for
        guest/device-up."""
        return [f"/repo/tools/lablib/guest/{self.role}-up", *arguments]

    @property
    def channel(self):
        """Returns the control line of the machine. Raises an error if the machine was never
        switched on."""
        if not self.line:
            raise LabError(f"{self.role}: the machine was never on")
        return self.line

    def argv(self, peer, pcap):
        """Returns the QEMU command line."""
        lab = self.lab
        role, of = self.role, self.kernel.arch
        how = (accel.choose(lab.root, self.kernel) if not self.plugin else
               accel.COUNTED if self.processors == 1 else accel.COUNTED_BESIDE)
        words = " ".join((of.words, KERNEL_WORDS, *self.words,
                          *(() if how in (accel.COUNTED, accel.KVM) else
                            clock.words(lab.root, of)),
                          f"lab.role={role}",
                          *(f"lab.addr{number}={','.join(pair)}"
                            for number, pair in enumerate(self.addresses)),
                          f"lab.repo={REPO}"))
        argv = [of.qemu, "-name", role, "-nodefaults", "-no-user-config",
                "-display", "none", "-no-reboot", *self.board(),
                *how,
                "-smp", str(self.processors), "-m", str(self.memory),
                *self.boot(words),
                "-chardev", f"file,id=console,path=/lab/results/{self.console.name},append=on",
                "-serial", "chardev:console",
                "-device", f"virtio-serial-pci,max_ports={PORTS}",
                "-chardev", f"socket,id=ctl,path={RUN_DIR}/{role}.ctl,server=on,wait=off",
                "-device", "virtserialport,chardev=ctl,name=lab",
                "-chardev", f"socket,id=mon,path={RUN_DIR}/{role}.mon,server=on,wait=off",
                "-mon", "chardev=mon,mode=control"]
        for number, net in enumerate(self.cables()):
            argv += self.interface(net, number, peer)
        for tag, readonly in self.SHARES:
            argv += ["-fsdev", f"local,id={tag},path=/lab/{tag},security_model=none,"
                               f"readonly={readonly},multidevs=remap",
                     "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        if self.plugin:
            argv += ["-plugin", f"file=/lab/plugin/{self.plugin.name},out=/lab/results"]
        for net in self.cables() if pcap else ():
            argv += ["-object", f"filter-dump,id=dump-{net},netdev={net},maxlen=65536,"
                                f"file=/lab/results/{net}.pcap"]
        return argv

    def interface(self, net, number, peer):
        """Returns QEMU's options for the interface at this end of a cable."""
        return ["-netdev", f"dgram,id={net},local.type=unix,"
                           f"local.path={RUN_DIR}/{self.role}.{net},"
                           f"remote.type=unix,remote.path={RUN_DIR}/{peer}.{net}",
                # Without merged buffers the NIC's driver has no page pool. With a page pool rxe can
                # deadlock: rxe holds the state lock of a failed queue pair while it frees the queue
                # pair's packets. Returning a page to a pool runs the network's softirq, which needs
                # the same lock.
                "-device", f"virtio-net-pci,netdev={net},host_mtu=9000,mrg_rxbuf=off,romfile=,"
                           f"mac=52:54:00:00:{number:02x}:{self.lab.mac(self.role):02x}"]

    def check_alive(self):
        """Raises an error if QEMU has ended."""
        if not self.process or self.process.poll() is not None:
            text = proc.tail(self.lab.results / f"{self.role}.qemu").strip()
            raise MachineDied(f"{self.role}: the machine ended by itself"
                              + (f": {text[-500:]}" if text else " (panic or power-off)"))

    def wait_booted(self):
        start = time.monotonic()
        self.channel.wait_for_agent(self.BOOT_SECONDS)
        return time.monotonic() - start

    def plug(self, cable, into):
        """Connects or disconnects this machine's end of a cable."""
        requests = ({"execute": "qmp_capabilities"},
                    {"execute": "set_link", "arguments": {"name": f"net{cable}", "up": into}})
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(MONITOR_SECONDS)
            line.connect(str(self.lab.run_dir / f"{self.role}.mon"))
            answers = line.makefile()
            answers.readline()  # The first line is QEMU's greeting.
            for request in requests:
                line.sendall(json.dumps(request).encode())
                # QEMU may send events before it sends the answer.
                answer = next(a for a in map(json.loads, answers) if "event" not in a)
                if "error" in answer:
                    raise LabError(f"{self.role}: {answer['error']['desc']}")

    def stop(self):
        """Switches the machine off immediately."""
        if self.process:
            proc.stop(self.process)
