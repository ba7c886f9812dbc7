# SPDX-License-Identifier: GPL-2.0
"""The operations that are counted and timed: system calls in loops of C (tools/native/load.c)."""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import typing

LIBRARY = "/results/load.so"
KIB, MIB = 1 << 10, 1 << 20
FILE_BYTES = 32 * MIB
DIRECTORY_ENTRIES = 10_000
DEPTHS = (1, 16, 64)
THREADS = (1, 4, 16)


class Transfers(ctypes.Structure):
    """The structure `transfers` of load.c."""

    _fields_ = [("fds", ctypes.POINTER(ctypes.c_int))] + [
        (name, ctypes.c_long) for name in
        ("fd_count", "size", "area", "depth", "writes", "random")]


class Library:
    """The functions of load.c. Each of them returns the nanoseconds that it took, or raises an
    error."""

    def __init__(self):
        self.functions = ctypes.CDLL(LIBRARY)

    def __getattr__(self, name):
        function = getattr(self.functions, f"load_{name}")
        function.restype = ctypes.c_int64

        def call(*args):
            found = function(*(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
            if found < 0:
                raise OSError(-found, f"{name}: {os.strerror(-found)}")
            return found

        return call


@dataclasses.dataclass(frozen=True)
class Load:
    """A load: a loop of system calls, with a name."""

    name: str
    count: int                  # number of operations for a precise measurement
    # function that performs a given number of operations and returns the elapsed nanoseconds
    run: typing.Callable
    before: typing.Callable = lambda count: None  # function that prepares what the loop needs
    after: typing.Callable = lambda count: None


def statistics(mount):
    """Returns the lines of a mount in mountstats as text."""
    text = pathlib.Path("/proc/self/mountstats").read_text()
    return text.split(f" mounted on {mount} ", 1)[1].split("\ndevice ", 1)[0]


def transports(mount, column):
    """Returns the sum of a counter over the transports of a mount."""
    return sum(int(line.split()[column]) for line in statistics(mount).splitlines()
               if line.strip().startswith("xprt:"))


def rpcs(mount):
    """Returns the number of RPCs that the transports of a mount have sent so far.

    The number includes the client's own RPCs, such as the renewal of a lease. The statistics of
    each operation in mountstats do not include these RPCs.
    """
    return transports(mount, 7)


def connects(mount):
    """Returns the number of connections that the transports of a mount have made so far."""
    return transports(mount, 4)


def hold_still():
    """Turns off khugepaged and DAMON, which combine or examine pages. If one of them runs during a
    measured transfer, it can take as much time as the transfer itself."""
    for path, word in (("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
                       ("/sys/module/damon_stat/parameters/enabled", "N")):
        if os.path.exists(path):
            pathlib.Path(path).write_text(word)


def drop_caches():
    """Drops all cached data of the mounts, so that the server must answer."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def human(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


class Bed:
    """Provides loads, and the files that the loads use: one file on each mount. The object is a
    context manager, which makes the files and deletes them at the end."""

    def __init__(self, *mounts):
        self.library, self.mounts = Library(), mounts
        self.paths = [f"{mount}/load-{number}.data" for number, mount in enumerate(mounts)]
        self.area = max(FILE_BYTES // len(mounts) // MIB, 1) * MIB
        self.used = 0  # number of names that were used so far

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for path in self.paths:
                with open(path, "wb") as data:
                    stack.callback(os.unlink, path)
                    data.writelines(bytes(MIB) for _ in range(self.area // MIB))
            self.fds = [os.open(path, os.O_RDWR | os.O_DIRECT) for path in self.paths]
            for fd in self.fds:
                stack.callback(os.close, fd)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def getattr(self, count):
        return Load("GETATTR", count, lambda n: self.library.getattr(
            os.fsencode(self.paths[0]), n))

    def getattrs(self, count, depth):
        """Returns a load with `depth` GETATTRs at a time."""
        def run(number):
            with concurrent.futures.ThreadPoolExecutor(depth) as pool:
                return max(pool.map(lambda _: self.getattr(0).run(number // depth), range(depth)))

        return Load(f"GETATTR, {depth} at a time", count, run)

    def fresh(self, count):
        """Reserves `count` new paths, and returns a prefix and a number n. The paths consist of the
        prefix followed by n, n + 1 and so on."""
        self.used += count
        return os.fsencode(f"{self.mounts[0]}/name-"), self.used - count

    def lookup(self, count):
        return Load("LOOKUP", count, lambda n: self.library.lookup(*self.fresh(n), n))

    def create(self, count):
        made = []

        def run(number):
            made.append((*self.fresh(number), number))
            return self.library.create(*made[-1])

        return Load("CREATE", count, run, after=lambda n: self.library.unlink(*made.pop()))

    def unlink(self, count):
        made = []

        def before(number):
            made.append((*self.fresh(number), number))
            self.library.create(*made[-1])

        return Load("UNLINK", count, lambda n: self.library.unlink(*made.pop()), before)

    def readdir(self, directory):
        """Returns a load in which each operation reads a whole directory of the mount."""
        path = os.fsencode(f"{self.mounts[0]}/{directory}")
        return Load(f"READDIR {DIRECTORY_ENTRIES}", 1,
                    lambda _: self.library.readdir(path, DIRECTORY_ENTRIES + 2),
                    lambda _: drop_caches())

    def buffered(self, count, write):
        """Returns a load that reads or writes a file through the page cache, 1 MiB at a time."""
        def run(number):
            fd = os.open(self.paths[0], os.O_RDWR)
            try:
                return self.library.buffered(fd, MIB, write, number)
            finally:
                os.close(fd)

        return Load(f"buffered {'WRITE' if write else 'READ'} 1 MiB", count, run,
                    lambda _: drop_caches())

    def transfer(self, count, size, write, depth=1, random=False):
        """Returns a load of direct reads or writes that use the mounts in turn. `depth` reads or
        writes are in progress at a time."""
        fds = (ctypes.c_int * len(self.fds))(*self.fds)
        wanted = Transfers(fds, len(self.fds), size, self.area, depth, write, random)
        name = (f"{'random ' if random else ''}{'WRITE' if write else 'READ'} "
                f"{human(size)}")
        return Load(name + (f", {depth} at a time" if depth > 1 else ""), count,
                    lambda n: self.library.transfer(ctypes.byref(wanted), n))

    def by_threads(self, count, size, write, threads):
        """Returns a load of direct reads or writes by several threads. Each thread waits for the
        end of its own call. If there are enough files, no two threads use the same file at a time.
        """
        fds = (ctypes.c_int * len(self.fds))(*self.fds)
        wanted = Transfers(fds, len(self.fds), size, self.area, threads, write, False)
        return Load(f"{'WRITE' if write else 'READ'} {human(size)}, {threads} "
                    f"thread{'s' if threads > 1 else ''}", count,
                    lambda n: self.library.threads(ctypes.byref(wanted), n))

    def threads(self, fewest):
        """Returns loads with small operations for an increasing number of threads, beginning with
        `fewest`."""
        return [self.by_threads(256 if threads > 1 else 128, 4 * KIB, write, threads)
                for threads in THREADS if threads >= fewest for write in (0, 1)]

    def single(self):
        """Returns loads with one operation at a time and one RPC for each operation."""
        return [self.getattr(128), *(self.transfer(128, 4 * KIB, write) for write in (0, 1)),
                *(self.transfer(32, MIB, write) for write in (0, 1))]

    def deep(self):
        """Returns loads with many small operations at a time. The number of operations is so large
        that the first operations of a run hardly influence the result."""
        return [self.transfer(1024, 4 * KIB, write, depth)
                for depth in DEPTHS[1:] for write in (0, 1)]

    def by_sixteen(self):
        """Returns loads with 16 operations at a time and one RPC for each operation."""
        return [self.getattrs(1024, 16),
                *(self.transfer(1024, 4 * KIB, write, 16) for write in (0, 1)),
                *(self.transfer(64, MIB, write, 16) for write in (0, 1))]

    def deepest(self):
        """Returns loads with many small operations at a time. The data of these operations together
        exceed the usual size of a processor cache."""
        return [self.transfer(2048, 4 * KIB, write, 256) for write in (0, 1)]

    def everything(self, directory):
        """Yields typical uses of one mount."""
        yield from (self.getattr(400), self.lookup(300), self.create(120), self.unlink(120),
                    self.readdir(directory))
        for size in (4 * KIB, 8 * KIB, 64 * KIB):
            for depth in DEPTHS:
                count = {1: 256, 16: 512, 64: 1024}[depth] // (4 if size == 64 * KIB else 1)
                for write in (0, 1):
                    yield self.transfer(count, size, write, depth, random=True)
        for write in (0, 1):
            yield self.transfer(24, MIB, write)
            yield self.buffered(24, write)

    def several(self):
        """Returns loads that show whether additional connections increase the speed."""
        return [self.getattr(400), *(self.transfer(1024, 4 * KIB, write, 64, random=True)
                                     for write in (0, 1)),
                *(self.transfer(32, MIB, write, 8) for write in (0, 1))]

    def outstanding(self):
        """Returns pairs (number of simultaneous reads, load). The loads consist of small reads. The
        highest number of simultaneous reads is the maximum number of calls in flight on a
        connection.
        """
        return [(depth, self.transfer(2048, 4 * KIB, 0, depth))
                for depth in (1, 16, 64, 256, 1024)]

    def one_at_a_time(self):
        """Returns a list with one pair (number of mounts, load). The load consists of small reads
        that use the mounts in turn."""
        return [(len(self.mounts), self.transfer(1024, 4 * KIB, 0))]
