# SPDX-License-Identifier: GPL-2.0
"""The server machine and the client machine of one run."""

import contextlib
import datetime
import os
import pathlib
import queue
import shutil
import tempfile

from ..base import chroot, proc
from ..base.paths import REPO
from ..base.ui import LabError, say, step
from . import accel, judge, wire
from .qemu import Machine

RUNS = REPO / "build/runs"
KEEP_RUNS = 20
# The networks of the cables. In each network the server is host 1, and the client is host 2.
NETWORKS = (("192.0.2.", "2001:db8::"), ("198.51.100.", "2001:db8:1::"))
HOSTS = {"server": 1, "client": 2}
DISK_BYTES = 8 << 30
SETUP_SECONDS = 300
LEFTOVERS_SECONDS = 600
# The command that runs a module of lablib/guest in a machine.
GUEST_PROGRAM = ("env", "PYTHONPATH=/repo/tools", "python3", "-B", "-m")
# The RDMA devices for each value of --provider: the device on the first cable, and the device on
# the second.
PROVIDERS = {"rxe": ("rxe", "rxe"), "siw": ("siw", "siw"), "mixed": ("rxe", "siw")}


def addresses(role, rails):
    """Returns the addresses of a machine at each cable's interface, with the prefix lengths."""
    return [(f"{four}{HOSTS[role]}/24", f"{six}{HOSTS[role]}/64")
            for four, six in NETWORKS[:rails]]


def environment(provider, rails):
    """Returns environment variables that describe the machines to programs in the client."""
    server4, server6 = zip(*([a.partition("/")[0] for a in pair]
                             for pair in addresses("server", rails)), strict=True)
    kinds = PROVIDERS[provider][:rails]
    return {"NFS_SERVER": server4[0], "NFS_SERVER6": server6[0],
            "NFS_SERVERS": " ".join(server4), "NFS_SERVERS6": " ".join(server6),
            "NFS_EXPORT_MEM": "/srv/mem", "NFS_EXPORT_DISK": "/srv/disk",
            "NFS_MOUNT": "/mnt/nfs", "LAB_PROVIDER": kinds[0],
            "LAB_DEVICES": " ".join(f"{kind}{n}" for n, kind in enumerate(kinds))}


def new_results():
    """Creates a results directory. Of the older results directories, keeps the KEEP_RUNS newest
    ones and deletes all others."""
    RUNS.mkdir(parents=True, exist_ok=True)
    for old in sorted(p for p in RUNS.iterdir() if p.is_dir())[:-KEEP_RUNS]:
        shutil.rmtree(old, ignore_errors=True)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = RUNS / f"{stamp}-{os.getpid()}"
    path.mkdir()
    return path


def forget_the_dead():
    """Removes the run directories of labs that were killed."""
    for path in pathlib.Path(tempfile.gettempdir()).glob("lab-[0-9]*-*"):
        if not os.path.exists(f"/proc/{path.name.split('-')[1]}"):
            shutil.rmtree(path, ignore_errors=True)


class Pair:
    """Both machines, booted and joined by one or two cables. The object is a context manager."""

    def __init__(self, root, server_kernel, client_kernel, results=None,
                 memory=(2048, 2048), pcap=False, provider="rxe", plugin=None,
                 detour=False, processors=1, words=(), rails=1, client=Machine, serving=None,
                 serving_words="", counted="client"):
        """Prepares both machines.

        - `client`: the Python class of the client machine
        - `serving`: the file of our server module
        - `serving_words`: the parameters of our server module
        - `counted`: the name of the machine that gets `plugin`, `words` and `processors`
        - `plugin`: a QEMU plugin
        - `words`: parameters of the kernel
        - `processors`: the number of processors; the other machine has one
        """
        special = {"plugin": plugin, "words": words, "processors": processors}
        self.root, self.results = root, pathlib.Path(results or new_results()).resolve()
        self.results.mkdir(parents=True, exist_ok=True)
        self.devices = [*(["detour"] if detour else []), *PROVIDERS[provider][:rails]]
        self.serving, self.serving_words = serving, serving_words
        self.pcap, self.accel = pcap, accel.choose(root, client_kernel)
        self.stack, self.requests = contextlib.ExitStack(), queue.SimpleQueue()
        forget_the_dead()
        self.run_dir = pathlib.Path(self.stack.enter_context(
            tempfile.TemporaryDirectory(prefix=f"lab-{os.getpid()}-")))
        with open(self.run_dir / "disk", "wb") as disk:
            disk.truncate(DISK_BYTES)
        self.server = Machine("server", self, server_kernel, memory[0],
                              addresses("server", rails), disk="disk",
                              **(special if counted == "server" else {}))
        self.client = client("client", self, client_kernel, memory[1],
                             addresses("client", rails),
                             **(special if counted == "client" else {}))
        self.machines = (self.server, self.client)

    def mac(self, role):
        return HOSTS[role]

    def __enter__(self):
        try:
            self.boot()
        except LabError as error:
            self.stack.close()
            reports = [r for m in self.machines for r in judge.verdict(m)]
            raise LabError("\n".join([str(error), *reports])) from None
        except BaseException:
            self.stack.close()
            raise
        return self

    def boot(self):
        """Switches both machines on, and sets them up as server and client."""
        proc.run_logged("formatting the server's disk",
                        chroot.command(self.root, ["mkfs.ext4", "-q", "-F", "/lab/run/disk"],
                                       [(self.run_dir, "/lab/run")]),
                        self.results / "mkfs.log", 60)
        with step(f"booting both machines ({self.accel[1].split(',')[0]}, "
                  f"results: {self.results})"):
            for machine, peer in ((self.server, "client"), (self.client, "server")):
                self.stack.callback(machine.stop)
                machine.start(peer, self.pcap and machine is self.client)
            for machine in self.machines:
                machine.wait_booted()
            jobs = [(machine, self.start_setup(machine)) for machine in self.machines]
            for machine, job in jobs:
                self.finish_setup(machine, job)

    def start_setup(self, machine):
        env = {}
        if self.serving and machine is self.server:
            env["LAB_SERVER_MODULE"] = f"/repo/{self.serving}"
            env["LAB_SERVER_WORDS"] = self.serving_words
        return machine.channel.start(machine.setup(self.devices), self.log_sink(machine.role),
                                     env=env)

    def finish_setup(self, machine, job):
        try:
            status = job.wait(SETUP_SECONDS)
        except TimeoutError:
            status = f"no end after {SETUP_SECONDS} s"
        if status:
            log = self.results / f"{machine.role}.setup"
            raise LabError(f"{machine.role}-up: {status}:\n{proc.tail(log)}")

    def log_sink(self, role):
        """Returns a sink that collects a machine's set-up messages in a file."""
        log = self.stack.enter_context(open(self.results / f"{role}.setup", "ab",  # noqa: SIM115
                                            buffering=0))
        return lambda kind, data: log.write(data)

    def serve(self, request, reply):
        """Serves a request that a program in one machine has sent. Such a request asks for a
        command to be run in the other machine or in the lab."""
        if request["where"] == "lab":
            self.requests.put((request["argv"], reply))
            return lambda kind, payload: None
        target = {"server": self.server, "client": self.client}[request["where"]].channel
        command = target.start(
            request["argv"], reply, env=request.get("env"), cwd=request.get("cwd", "/"),
            stdin=None, on_exit=lambda status: reply(wire.EXIT, {"status": status}))
        return lambda kind, payload: target.send(kind, command.stream, payload)

    def attend(self):
        """Executes the requests that programs in the machines have sent to the lab itself. Only the
        main thread calls this function, because only this thread can start machines."""
        while not self.requests.empty():
            argv, reply = self.requests.get()
            try:
                self.power(*argv)
                status = 0
            except (LabError, KeyError, TypeError, ValueError, OSError, StopIteration) as error:
                reply(wire.ERR, f"lab: {' '.join(argv)}: {error}\n".encode())
                status = 1
            reply(wire.EXIT, {"status": status})

    def power(self, role, action, cable="0"):
        """Switches the server on or off, or plugs in or unplugs a machine's end of a cable. If the
        server is switched on, waits until it is set up."""
        machine = {"server": self.server, "client": self.client}[role]
        if action in ("plug", "unplug"):
            machine.plug(int(cable), action == "plug")
        else:
            {("server", "off"): self.server.stop,
             ("server", "on"): lambda: self.switch_on(self.server)}[role, action]()

    def switch_on(self, machine):
        with step(f"switching the {machine.role} on again"):
            machine.start("client")
            machine.wait_booted()
            self.finish_setup(machine, self.start_setup(machine))

    def blocked_tasks(self):
        """Makes the kernel of each machine print the stacks of its blocked tasks and of its
        processors to the log. Ignores machines that do not respond. Used after a hang."""
        for machine in self.machines:
            with contextlib.suppress(LabError, TimeoutError):
                machine.channel.call(["sh", "-c", "echo w > /proc/sysrq-trigger; "
                                      "echo l > /proc/sysrq-trigger"], 10)

    def judge(self):
        """Returns complaints about both machines: objects that were left behind, and kernel reports
        in the consoles."""
        complaints = []
        for machine in self.machines:
            try:
                everything = ["everything"] if machine is self.client or self.serving else []
                status, text = machine.channel.call(
                    [*GUEST_PROGRAM, "lablib.guest.leftovers", *everything], LEFTOVERS_SECONDS)
                if status:
                    complaints += [f"{machine.role}: {line}" for line in text.splitlines()]
                _, text = machine.channel.call(["dmesg"], 30)
                (self.results / f"{machine.role}.dmesg").write_text(text)
                for known in judge.foreign(text)[1]:
                    say(f"{machine.role}: a report that is not ours: {known.reason} "
                        f"(as with {known.shown_by})")
            except LabError as error:
                complaints.append(str(error))
            complaints += judge.verdict(machine)
        return complaints

    def __exit__(self, kind, error, trace):
        self.stack.close()
