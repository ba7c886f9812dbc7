# SPDX-License-Identifier: GPL-2.0
"""A run of the lab: two machines, a transport module, a mount if requested, a command, and a
verdict."""

import contextlib
import dataclasses
import pathlib
import shutil

from ..artefacts import kernel, module, native, root, siw, upstream
from ..base import arch
from ..base.ui import LabError, say, step
from . import judge, pair

MOUNT_SECONDS = 120
# The names of the clients in the output.
NAMES = {"ours": "ours", "intree": "in-tree"}
# The file that sets the maximum length of inline messages. A change applies only to connections
# that the server accepts afterwards.
SERVER_INLINE = "/proc/sys/sunrpc/svc_rdma/max_req_size"
UMOUNT = "if mountpoint -q /mnt/nfs; then umount /mnt/nfs; fi"
# Kernel parameter for runs with the KUnit suites, whose device needs bounce buffers. The other
# devices also work with this parameter.
BOUNCE = ("swiotlb=force",)
# Kernel parameter for machines whose instructions are counted. Without it, a kernel on a single
# processor removes the lock prefix from its atomic instructions.
ATOMICS = ("noreplace-smp",)
# A command that tries to unload the module until this succeeds. The first attempts can fail,
# because sunrpc releases a transport only some time after the unmount.
RMMOD = """\
for module in xprtrdma_rs rpcrdma; do
    if [ -d /sys/module/$module ]; then
        timeout 20 sh -c "until rmmod $module 2> /tmp/rmmod; do sleep 0.2; done" ||
            { cat /tmp/rmmod; exit 1; }
    fi
done"""

# A command that unloads our server's module. It first stops the threads of nfsd, which use the
# module.
UNSERVE = """\
echo 0 > /proc/fs/nfsd/threads
timeout 30 sh -c "until rmmod svcrdma_rs 2> /tmp/rmmod; do sleep 0.2; done" ||
    { cat /tmp/rmmod; exit 1; }"""


@dataclasses.dataclass
class Plan:
    """A run as the command line describes it."""

    client: str = "ours"        # the transport module of the client: ours, intree or none
    serving: str = "intree"     # transport module of the server: intree or ours
    serving_words: str = ""     # parameters of our server's module
    load: bool = True           # whether the lab loads the module; otherwise the command loads it
    spec: str | None = None     # name of the client's kernel, see packages.resolve
    # name of the server's kernel; None means the kernel that `spec` names, or the default kernel if
    # `spec` names a tree of the user
    server: str | None = None
    # whether the client runs the debug kernel; a server with our module then runs it as well
    debug: bool = False
    # whether `debug` also applies to a server with the in-tree module
    alike: bool = False
    # whether to build the KUnit suites, which only a debug kernel can run
    suites: bool = False
    version: str | None = None  # NFS version of the lab's own mount
    options: str = ""           # more options of the lab's own mount
    export: str = "mem"
    memory: tuple = (2048, 2048)
    provider: str = "rxe"       # rxe, siw, or mixed: rxe on the first cable, siw on the second
    rails: int = 1              # number of cables between the machines, each with an RDMA device
    detour: bool = False        # whether packets take a detour for tc-netem, see guest/device-up
    timeout: float = 600
    pcap: str | None = None
    results: str | None = None
    plugin: str | None = None   # plugin of tools/native that counts what a machine executes
    counted: str = "client"     # machine whose instructions are counted: client or server
    processors: int = 1         # number of processors in the machine `counted`
    upstream: bool = False      # whether the client has the patches of Documentation/upstream
    inline: int = 0             # largest inline message of both ends in bytes; 0 means the default


class Session:
    """A run of both machines: boots them on entry, and shuts them down on exit. `complaints` is the
    verdict."""

    def __init__(self, plan):
        self.plan, self.complaints = plan, []
        of = kernel.arch_of(plan.spec)
        base = root.path(of)
        self.stock = kernel.get(base, plan.spec)
        server = self.stock
        if plan.server or not self.stock.package:
            # A kernel tree of the user may lack what a server needs, so the server gets another
            # kernel.
            server = kernel.get(base, plan.server)
        self.kernel = kernel.debug(base, self.stock) if plan.debug else self.stock
        if plan.debug and (plan.serving == "ours" or plan.alike) and not plan.server:
            server = self.kernel
        if plan.upstream and plan.debug:
            self.kernel = upstream.patched(base, self.stock, self.kernel)
        variant = ("client" if not plan.upstream else
                   "upstream" if plan.debug else "upstream-rxe")
        self.module = (module.build(base, self.kernel, variant=variant)
                       if plan.client == "ours" else None)
        # The KUnit suites test the code for an unpatched kernel, so they do not build for a patched
        # kernel.
        self.suites = (module.build(base, self.kernel, variant="suites")
                       if plan.suites and not plan.upstream else None)
        serving = (module.build(base, server, variant="server")
                   if plan.serving == "ours" else None)
        self.pair = pair.Pair(base, server, self.kernel, plan.results, plan.memory,
                              pcap=bool(plan.pcap), provider=plan.provider, detour=plan.detour,
                              processors=plan.processors, rails=plan.rails, serving=serving,
                              serving_words=plan.serving_words,
                              words=(BOUNCE if plan.suites else
                                     ATOMICS if plan.plugin else ()),
                              plugin=native.build(base, plan.plugin, arch.of_host())
                              if plan.plugin else None, counted=plan.counted)
        shutil.copy(native.build(base, "load", of), self.pair.results)
        # The debug kernel contains siw, so the lab does not build siw for it.
        if plan.provider != "rxe" and not server.debug:
            shutil.copy(siw.build(base, server) / "siw.ko", self.pair.results)
        if plan.upstream and not plan.debug:
            shutil.copy(upstream.build(base, self.kernel), self.pair.results)
        self.environment = pair.environment(plan.provider, plan.rails) | {
            "LAB_CLIENT": plan.client, "LAB_SERVER": plan.serving,
            "LAB_DEBUG": "1" if self.kernel.debug else "",
            "LAB_UPSTREAM": "1" if plan.upstream else "",
            "LAB_SERVER_MODULE": f"/repo/{serving}" if serving else "",
            "LAB_MODULE": f"/repo/{self.module}" if self.module else "",
            "LAB_SUITES": f"/repo/{self.suites}" if self.suites else "",
            "LAB_KERNEL": self.kernel.release,
            "LAB_INLINE_SIZE": str(plan.inline or "")}

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(self.pair)
        try:
            dirty = [report for machine in self.pair.machines for report in judge.verdict(machine)]
            if dirty:
                raise LabError("void: a kernel was not clean before anything was loaded\n"
                               + "\n".join(dirty))
            if self.plan.inline:
                self.pair.server.channel.check_call(
                    ["sh", "-c", f"echo {self.plan.inline} > {SERVER_INLINE}"])
            if self.plan.load and self.plan.client != "none":
                self.load()
            if self.plan.version or self.plan.options:
                self.mount()
        except LabError as error:
            self.complaints.append(str(error))
            self.finish()
            self.tell()
            raise LabError("the session did not start") from None
        except BaseException:
            self.stack.close()
            raise
        return self

    @property
    def channel(self):
        """The control channel of the client machine."""
        return self.pair.client.channel

    def load(self):
        """Loads the transport module. Our module is loaded with insmod, as a user does."""
        command = ["modprobe", "rpcrdma"] if self.plan.client == "intree" else \
            ["insmod", self.environment["LAB_MODULE"]]
        self.channel.check_call(command)

    def mount(self):
        """Makes the lab's own mount, /mnt/nfs."""
        options = ",".join(filter(None, (f"vers={self.plan.version or '4.2'}", "rdma",
                                         "port=20049", self.plan.options)))
        source = f"{self.environment['NFS_SERVER']}:/srv/{self.plan.export}"
        with step(f"mount -o {options} {source} /mnt/nfs"):
            self.channel.check_call(["mount", "-t", "nfs", "-o", options, source, "/mnt/nfs"],
                                    MOUNT_SECONDS)

    def run(self, argv, sink=None, **options):
        """Runs a command in the client and waits until it has ended. Returns the exit status, or
        None if the command does not end in time."""
        command = self.channel.start(argv, sink, env=self.environment,
                                     cwd=options.pop("cwd", "/repo"), **options)
        try:
            return command.wait(self.plan.timeout, self.pair.attend)
        except TimeoutError:
            self.complaints.append(f"no end after {self.plan.timeout:.0f} s: "
                                   f"{' '.join(map(str, argv))}")
            self.pair.blocked_tasks()
            command.kill()
            return None

    def clean_up(self):
        """Removes the lab's own mount and the modules. Tests may already have removed them."""
        todo = [(self.pair.client, UMOUNT), (self.pair.client, RMMOD)]
        if self.pair.serving:
            todo.append((self.pair.server, UNSERVE))
        for machine, undo in todo:
            status, text = machine.channel.call(["sh", "-c", undo], MOUNT_SECONDS)
            if status:
                self.complaints.append(f"{machine.role}: cleaning up: {text.strip()}")

    def finish(self):
        """Collects the complaints about the machines, and powers the machines off."""
        try:
            with step("judging and powering off"):
                with self.recorded():
                    self.clean_up()
                self.complaints += self.pair.judge()
        finally:
            self.stack.close()
            if self.plan.pcap:
                with self.recorded():
                    self.keep_captures(pathlib.Path(self.plan.pcap))

    def keep_captures(self, file):
        """Moves the capture of the first cable to `file`, and the captures of other cables to
        numbered files in the same directory."""
        for number, net in enumerate(self.pair.client.cables()):
            target = file.with_stem(f"{file.stem}-{number}") if number else file
            shutil.move(self.pair.results / f"{net}.pcap", target)

    @contextlib.contextmanager
    def recorded(self):
        """If the `with` block raises an error, adds the error to the list of complaints and does
        not raise it again."""
        try:
            yield
        except (LabError, OSError) as error:
            self.complaints.append(str(error))

    def __exit__(self, kind, error, trace):
        if error and not isinstance(error, LabError):
            # The run was interrupted, so the machines are switched off immediately, without a
            # verdict.
            self.stack.close()
            return False
        if error:
            self.complaints.append(str(error))
        self.finish()
        self.tell()
        return True

    def tell(self):
        """Prints the verdict."""
        for complaint in self.complaints:
            say(f"FAILED: {complaint}")
