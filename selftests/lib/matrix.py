# SPDX-License-Identifier: GPL-2.0
"""The faults of `selftests/torture`. There is one function for each fault. The code before the
function's `yield` starts the fault, and the code after the `yield` ends the fault.

A function gets the `torture.World`. The duration of the fault is a random number from the range
`hold`. The load continues during the fault.
"""

import contextlib
import dataclasses
import errno
import itertools
import pathlib
import signal
from collections.abc import Callable

from . import (
    bystanders,
    faults,
    injection,
    module,
    mounts,
    namespace,
    rails,
    responder,
    wait,
    xprt,
)
from .case import check, equal
from .env import ENV
from .workers import Crew, Worker

# Number of credits that knfsd grants during the fault `few_credits`. Every connection begins with
# one credit.
FEWEST_CREDITS = 4
RECALLED_FILES, RECALL_HELPERS, RECALL_SECONDS = 16, 4, 8
MOUNTS = 50
# Number of idle periods in a round. A day has 288 idle periods of five minutes, so six rounds
# represent a day.
IDLE_CYCLES = 48
SERVER_ADDRESS, CLIENT_ADDRESS = "192.0.2.3", "192.0.2.4"
# The error with which calls end after umount -f, with our client and with the in-tree client. The
# error is meant only for use inside the kernel, but processes see it.
ERESTARTSYS = 512
SOFT = "soft,timeo=30,retrans=1,noac,nosharecache"


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of the matrix, with the runs that can use it."""

    # function that returns a context manager: the fault lasts while the manager's block runs
    function: Callable
    what: str              # description of the fault for the record
    hold: tuple            # minimum and maximum duration of the fault, in seconds
    # number of rounds with this fault in each pass through the table; 0: only on request
    share: int
    debug: bool            # whether the fault needs a debug kernel
    stock: bool            # whether the fault needs a stock kernel
    versions: tuple        # NFS versions with which the fault is meaningful
    transports: tuple      # versions of RPC-over-RDMA with which the fault can run
    server: str | None     # transport of the server that the fault needs
    rails: bool            # whether the fault needs two cables, and mounts over both

    @property
    def name(self):
        return self.function.__name__.replace("_", "-")

    def belongs(self, w):
        """Returns whether the row is suitable for the settings of this run. The type of the kernel
        is not considered."""
        return (w.transport in self.transports and (w.over_rails or not self.rails)
                and self.server in (None, ENV.serving))

    def applies(self, w):
        """Returns whether the fault in this row of the matrix can be tested with the settings of
        this run and with this kernel."""
        return self.belongs(w) and not (
            (self.debug and not ENV.debug) or (self.stock and ENV.debug))

    def wanted(self, names):
        """Returns whether the row was requested. If no names are given, every row is requested
        except those that must be requested by name."""
        return self.name in names if names else self.share > 0


FAULTS = []


def fault(what, hold=(0, 0), share=4, debug=False, stock=False, versions=("3", "4.2"),
          transports=(1, 2), server=None, rails=False):
    """Returns a decorator that adds a generator function to the faults of the matrix."""
    def decorate(function):
        FAULTS.append(Fault(contextlib.contextmanager(function), what, hold, share, debug, stock,
                            versions, transports, server, rails))
        return function
    return decorate


def between(name, what, hold, begin, end, **more):
    """Adds a fault to the matrix. The function `begin` starts the fault, and the function `end`
    ends it. The argument of both functions is the server."""
    def function(w):
        try:
            # `begin` may fail after it has started the fault on one of the machines. The fault must
            # end in this case, too.
            begin(w.server)
            yield
        finally:
            end(w.server)

    function.__name__ = name
    fault(what, hold, **more)(function)


# The next functions inject faults in the server.

@fault("server machine: power cut and boot", hold=(0, 3), share=1)
def power_cut(w):
    w.hang_up()
    faults.lab("server", "off")
    try:
        yield
    finally:
        faults.lab("server", "on")
        w.call_helpers()


between("knfsd_restart", "knfsd stopped and started", (0, 2),
        faults.stop_nfsd, faults.start_nfsd)


# Our server always grants the same number of credits, so this fault needs the in-tree server.
@fault(f"knfsd grants {FEWEST_CREDITS} credits for a while", hold=(1, 4), share=2, server="intree")
def few_credits(w):
    with w.granting(FEWEST_CREDITS):
        yield


@fault("the server's RDMA device deleted and made anew", hold=(0, 2))
def server_device(w):
    # The responder is stopped first, because a process that has the device open would delay the
    # removal of the device.
    with w.without_responder(), faults.server_device_gone(w.server):
        yield


@fault("the server of version two ended and started anew", hold=(0, 2), transports=(2,),
       server="intree")
def responder_restart(w):
    with w.without_responder():
        yield


# An NFSv4 client would detect that the second address belongs to the same server, and use the
# existing connection. So this fault is only for NFSv3.
@fault("a server that speaks version two no more, amid calls", hold=(0, 2), share=2,
       versions=("3",), transports=(2,), server="intree")
def version_change(w):
    with contextlib.ExitStack() as undo:
        other = undo.enter_context(w.another_responder())
        with responder.preferred(responder.TWO):
            mount = w.mount(undo, "3", port=other.port)
        victim = undo.enter_context(w.bystander(mount))
        equal(responder.versions(other.port), ["2"], "versions")
        other.call("speak", 1, 1, 1)
        wait.until(lambda: responder.versions(other.port) == ["1"], ENV.patience(30),
                   "version one spoken")
        yield
        victim.finish()


@fault("the server recalls many delegations at once", share=2, versions=("4.2",))
def callback_storm(w):
    top = w.loads["4.2"].top
    names = [f"s{w.random.randrange(1 << 60):015x}" for _ in range(RECALLED_FILES)]
    for name in names:
        w.server.write(f"{top.there}/{name}", b"x")
    before = w.server.call("client_states").count("type: deleg")
    with Crew(ENV.patience(60)) as crew:
        crew.start(bystanders.hold_open, top.here, names)
        wait.until(lambda: w.server.call("client_states").count("type: deleg")
                   >= before + RECALLED_FILES // 2, ENV.patience(45), "delegations")
        asked = [(helper, helper.send("open_for_write", f"{top.there}/{name}"))
                 for helper, name in zip(itertools.cycle(w.helpers(RECALL_HELPERS)), names,
                                         strict=False)]
        for helper, number in asked:
            taken = helper.take(number, 60)
            check(taken < ENV.patience(RECALL_SECONDS), f"recalled after {taken:.1f} s only")
        yield
    for name in names:
        w.server.call("unlink", f"{top.there}/{name}")


# The next functions inject faults in the network between the machines.

between("silence", "packets to the server's UDP port 4791 dropped", (0.5, 8),
        faults.silence, faults.speak)


def netem(name, what, *words, **more):
    """Adds a fault to the matrix. The fault is a setting of tc-netem for packets in both
    directions."""
    between(name, what, (1, 4), lambda server: faults.worsen(server, *words), faults.better, **more)


netem("loss_1", "1 % of the packets lost", "loss", "1%")
netem("loss_5", "5 % of the packets lost", "loss", "5%")
netem("loss_20", "20 % of the packets lost", "loss", "20%")
netem("duplication", "5 % of the packets twice", "duplicate", "5%")
# The next fault triggers a bug of rxe with our client and with the in-tree client: see
# `lablib.machine.judge`.
netem("late_duplicates", "30 % of the packets twice, all of them up to 6 ms late", "delay", "3ms",
      "3ms", "duplicate", "30%", share=0)
netem("reordering", "25 % of the packets overtake others by 10 ms", "delay", "10ms",
      "reorder", "25%", "50%")
netem("corruption", "2 % of the packets with a flipped bit", "corrupt", "2%")
netem("delay_50", "50 ms delay", "delay", "50ms")


# The next functions inject faults in this machine's link, device and address.

def ip(*argv):
    namespace.run("ip", *argv)


# According to the source of rxe, a queue pair fails if rxe cannot send one of its packets. If this
# happens to the queue pair that rxe uses for management, this queue pair does not recover, and the
# RDMA device must be created again.

def device_anew():
    faults.remove_client_device()
    faults.add_client_device()


@fault("the cable out of the client and in again, then a new RDMA device", hold=(0.2, 6))
def unplugged(_):
    faults.lab("client", "unplug")
    try:
        yield
    finally:
        faults.lab("client", "plug")
        device_anew()


between("client_device", "the client's RDMA device deleted and made anew", (0, 2),
        lambda _: faults.remove_client_device(), lambda _: faults.add_client_device())


@fault("the client's address replaced by another, and back, each with a new RDMA device",
       hold=(0.5, 4))
def client_address(_):
    pathlib.Path(f"/proc/sys/net/ipv4/conf/{faults.interface()}/promote_secondaries").write_text("1")
    first = namespace.addresses()[0]
    other = f"{CLIENT_ADDRESS}/{first.partition('/')[2]}"

    def replace(old, new):
        ip("addr", "add", new, "dev", faults.interface())
        ip("addr", "del", old, "dev", faults.interface())
        device_anew()

    try:
        replace(first, other)
        yield
    finally:
        replace(other, first)


# The responder, which serves version two, listens at only one address. So this fault is only for
# version one.
@fault("the connections moved to another address of the server, and back", hold=(0.5, 4), share=2,
       transports=(1,))
def server_address(w):
    address = f"{SERVER_ADDRESS}/24"
    w.server.run("ip", "addr", "add", address, "dev", faults.interface())
    try:
        for directory in xprt.directories():
            xprt.move(directory, SERVER_ADDRESS)
        yield
    finally:
        for directory in xprt.directories():
            xprt.move(directory, ENV.server)
        w.server.run("ip", "addr", "del", address, "dev", faults.interface())


@fault("a network namespace deleted under a mount with load", hold=(0.5, 3), share=2, stock=True)
def namespace_deletion(w):
    with namespace.beside() as space, contextlib.ExitStack() as undo:
        mount = w.unmounted(undo, w.random.choice(("3", "4.2")), "nolock")
        Worker(bystanders.in_namespace, space.file, mount).join(ENV.patience(60))
        victim = undo.enter_context(w.bystander(mount))
        space.delete()
        yield
        victim.finish()


# The next functions inject a fault in one of two cables. The cable is chosen at random.

def of_a_rail(name, what, hold, trouble):
    """Adds a fault of `lib.rails` to the matrix."""
    def function(w):
        with trouble(w.server, w.random.randrange(len(rails.DEVICES))):
            yield

    function.__name__ = name
    fault(what, hold, transports=(1,), rails=True)(function)


of_a_rail("rail_cable", "one cable out and in again, then a new RDMA device", (0.2, 10),
          rails.cable_out)
of_a_rail("rail_port", "one interface of the client down and up, then a new RDMA device", (0.2, 10),
          rails.port_down)
of_a_rail("rail_silence", "what arrives over one cable dropped", (0.5, 15), rails.silence)
of_a_rail("rail_device", "one RDMA device of the client deleted and made anew", (0, 10),
          rails.device_gone)
of_a_rail("rail_address", "one address of the server gone and back, then a new RDMA device there",
          (0.5, 15), rails.server_address_gone)


# The next functions inject faults in this machine's connections, memory, processes, mounts and
# modules.

@fault("every connection broken by the client")
def forced_disconnect(_):
    xprt.force_disconnect()
    yield


@fault(f"{IDLE_CYCLES} times idle, closed, connected again", share=1)
def idle_cycles(w):
    with contextlib.ExitStack() as stack:
        for load in w.loads.values():
            stack.enter_context(load.resting())
        places = [mount.where for mount in w.mounts.values()]

        def connected(before):
            Worker(bystanders.look_once, places).join(ENV.patience(60))
            return all(mount.connects() > before[v] for v, mount in w.mounts.items())

        for _ in range(IDLE_CYCLES // (6 if ENV.debug else 1)):
            before = {v: mount.connects() for v, mount in w.mounts.items()}
            xprt.force_disconnect()
            wait.until(lambda b=before: connected(b), ENV.patience(30), "connected again")
    yield


@fault("memory nearly all taken, with dirty pages of 16 MiB", hold=(1, 4), share=1)
def memory_pressure(w):
    generation = w.random.randrange(1, 1 << 30)
    with Crew(ENV.patience(120)) as crew:
        writers = [(load, crew.start(bystanders.write_dirty, f"{load.top.here}/dirty", generation))
                   for load in w.loads.values()]
        hog = crew.start(bystanders.take_memory)
        wait.until(lambda: crew.check() or bystanders.available_mib()
                   < 2 * bystanders.LEFT_MIB, ENV.patience(120), "memory taken")
        yield
        hog.stop()
        for load, writer in writers:
            writer.join(ENV.patience(120))
            crew.workers.remove(writer)
            w.server.expect(f"{load.top.there}/dirty", bystanders.dirty_content(generation))


@fault("readers and writers killed by signals", hold=(0.1, 1))
def signals(w):
    with contextlib.ExitStack() as undo:
        victims = [undo.enter_context(w.bystander(mount)) for mount in w.mounts.values()
                   for _ in range(2)]
        yield
        for victim in victims:
            victim.kill(w.random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))


@fault("soft mounts fail while the server is silent", share=1)
def soft_timeout(w):
    with contextlib.ExitStack() as undo:
        soft = [w.mount(undo, version, SOFT) for version in w.mounts]
        faults.silence(w.server)
        undo.callback(faults.speak, w.server)
        with Crew(ENV.patience(60)) as crew:
            workers = [crew.start(bystanders.until_error, mount.where) for mount in soft]
            wait.until(lambda: all(worker.ended() for worker in workers), ENV.patience(90),
                       "the soft mounts give up")
        faults.speak(w.server)
        for _, found in zip(workers, crew.results, strict=True):
            check(int(found) in (errno.EIO, errno.ETIMEDOUT), f"soft mount: errno {found}")
        yield
        for mount in soft:
            Worker(bystanders.until_answered, mount.where).join(ENV.patience(90))


@fault("umount -f of an NFSv3 mount while the server is silent", hold=(0, 1), share=2,
       versions=("3",))
def umount_force(w):
    with contextlib.ExitStack() as undo:
        mount = w.mount(undo, "3", "nosharecache")
        victim = undo.enter_context(w.bystander(mount))
        faults.silence(w.server)
        undo.callback(faults.speak, w.server)

        def forced():
            with contextlib.suppress(OSError):
                mounts.umount(mount.where, mounts.MNT_FORCE)
            return victim.worker.ended()

        wait.until(forced, ENV.patience(60), "the writer ended by umount -f")
        victim.ended_by((errno.EIO, ERESTARTSYS))
        faults.speak(w.server)
        victim.compare_cut()
        yield


@fault("umount -l under load, connections broken meanwhile", hold=(0.2, 2), share=2)
def umount_lazy(w):
    with contextlib.ExitStack() as undo:
        extra = [w.mount(undo, version, "nosharecache") for version in w.mounts]
        victims = [undo.enter_context(w.bystander(mount)) for mount in extra]
        for mount in extra:
            mounts.umount(mount.where, mounts.MNT_DETACH)
        xprt.force_disconnect()
        yield
        for victim in victims:
            victim.finish()


@fault(f"{MOUNTS} mounts made and unmade in parallel", share=1, stock=True)
def parallel_mounts(w):
    top = w.loads["3"].top
    with contextlib.ExitStack() as undo:
        crew = undo.enter_context(Crew(ENV.patience(200)))
        for number in range(MOUNTS):
            crew.start(bystanders.live, top.there, number, w.port)
        wait.until(lambda: all(worker.ended() for worker in crew.workers), ENV.patience(200),
                   "all mounts made and unmade")
    for number in range(MOUNTS):
        w.server.expect(f"{top.there}/m{number}", bystanders.life(number))
    yield


@fault("attempts to unload the transport", hold=(0.2, 1), share=2)
def rmmod(_):
    for _ in range(20):
        module.rmmod_is_refused()
    yield


# The next functions need a debug kernel. They make allocations fail, but only if a function of this
# project's module is among the callers.

@contextlib.contextmanager
def failing(w, nth):
    """Makes every nth allocation fail during the `with` block."""
    with contextlib.ExitStack() as undo:
        context = w.context("4.2")
        undo.callback(context.close)
        switches = injection.Injection(context)
        switches.only_module()
        switches.every(nth)
        undo.callback(switches.stop)
        yield


@fault("every 20th allocation fails during I/O", hold=(2, 6), debug=True)
def allocation_io(w):
    with failing(w, 20):
        yield


@fault("every 7th allocation fails while connecting again", hold=(1, 4), debug=True)
def allocation_reconnect(w):
    with failing(w, 7):
        xprt.force_disconnect()
        yield


@fault("every 7th allocation fails while mounting", share=2, debug=True, transports=(1,))
def allocation_connect(w):
    with contextlib.ExitStack() as undo:
        with failing(w, 7):
            # The kernel may refuse to mount. The refusal must be quick, and must leave no object
            # behind.
            for version in w.mounts:
                mount = w.unmounted(undo, version, "retry=0", netid="rdma6")
                with contextlib.suppress(mounts.Refused):
                    mount.make()
        yield
