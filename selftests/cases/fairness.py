# SPDX-License-Identifier: GPL-2.0
"""Two clients of one server. Each client sends as many calls as it can."""

import contextlib
import itertools
import mmap
import os
import struct
import time

from lib import bystanders, namespace, wait
from lib.buffers import Buffer
from lib.case import ENV, case, check
from lib.workers import Crew, Worker

KIB, MIB = 1 << 10, 1 << 20
WORD = struct.Struct("=Q")
# `PROCESSES` is the number of processes of each client. `TURNS` is the number of rounds of a
# measurement. Each round consists of two parts, and `SECONDS` is the duration of each part.
PROCESSES, TURNS, SECONDS = 4, 2, 1
# Minimum share of a client. The share is the client's call rate while another client is active,
# divided by half of the rate that the client reaches alone.
LEAST = 0.4


class Load:
    """A call that a client repeats, and the size of its data."""

    def __init__(self, name, call, size):
        self.name, self.call, self.size = name, call, size


def read(fd, buffer, size):
    check(len(buffer.read(fd, size, 0, 0)) == size, "a short read")


def write(fd, buffer, size):
    check(os.pwrite(fd, buffer.memory[:size], 0) == size, "a short write")


SMALL_READS, LARGE_READS, LARGE_WRITES = LOADS = (
    Load("4 KiB read", read, 4 * KIB), Load("1 MiB read", read, MIB),
    Load("1 MiB written", write, MIB))


class Client:
    """One client: a mount with a file for each process, and a counter of calls for each process."""

    def __init__(self, mount, name):
        self.paths = [f"{mount.where}/case/{name}{number}" for number in range(PROCESSES)]
        self.counts = [mmap.mmap(-1, WORD.size) for _ in self.paths]
        for path in self.paths:
            with open(path, "wb") as file:
                file.write(bytes(MIB))

    def done(self):
        return sum(WORD.unpack(count[:])[0] for count in self.counts)

    def work(self, crew, load):
        for path, count in zip(self.paths, self.counts, strict=True):
            crew.start(again_and_again, path, count, load)


def again_and_again(stopped, path, count, load):
    fd, buffer = os.open(path, os.O_RDWR | os.O_DIRECT), Buffer(load.size)
    while not stopped():
        load.call(fd, buffer, load.size)
        count[:] = WORD.pack(WORD.unpack(count[:])[0] + 1)
    os.close(fd)


def rates(clients):
    """Returns the calls per second of each client while all clients send calls."""
    before = [client.done() for client in clients]
    wait.until(lambda: all(c.done() > was for c, was in zip(clients, before, strict=True)),
               ENV.patience(20), "every client has begun")
    clock, before = wait.Clock(), [client.done() for client in clients]
    time.sleep(SECONDS)
    return [(client.done() - was) / clock.seconds()
            for client, was in zip(clients, before, strict=True)]


def share(one, other, mine, others):
    """Measures the call rate of the client `one` while the client `other` makes calls, too. The
    loads of the clients are `mine` and `others`. Returns two ratios: the measured call rate of
    `one`, divided by each of these rates:

    - half of the call rate of `one` while `one` is alone
    - half of the call rate of both clients together
    """
    alone = beside = both = 0
    # Each round measures `one` first alone and then together with `other`, so that other work on
    # the machine disturbs both measurements equally.
    for _ in range(TURNS):
        with Crew(ENV.patience(60)) as crew:
            one.work(crew, mine)
            alone += rates([one])[0]
            other.work(crew, others)
            found = rates([one, other])
            beside, both = beside + found[0], both + sum(found)
    return 2 * beside / alone, 2 * beside / both


@contextlib.contextmanager
def two(t):
    """Provides two clients, each with an address of its own."""
    with namespace.beside() as space:
        near, far = t.mount("nolock"), t.unmounted("nolock,nosharecache")
        t.directory(near)
        Worker(bystanders.in_namespace, space.file, far).join(ENV.patience(60))
        yield Client(near, "near"), Client(far, "far")
        far.remove()
        near.remove()


# Two clients use our server. Each client gets at least 40 % of its fair share, whatever the other
# client sends.
@case(versions=("3",), server="ours", stock_only=True, seconds=60)
def no_client_starves_beside_another(t):
    with two(t) as (near, far):
        for mine, others in (itertools.product(LOADS, LOADS) if ENV.full else
                             ((SMALL_READS, SMALL_READS), (SMALL_READS, LARGE_WRITES))):
            of_alone, of_both = share(near, far, mine, others)
            t.note(f"{mine.name}, beside {others.name}: {of_alone:.2f} of half of what it is alone"
                   + (f", {of_both:.2f} of half of both" if mine is others else ""))
            check(of_alone >= LEAST, f"{mine.name} beside {others.name}: {of_alone:.2f}")
            check(mine is not others or of_both >= LEAST, f"{mine.name}, both: {of_both:.2f}")
