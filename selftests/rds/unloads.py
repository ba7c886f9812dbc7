# SPDX-License-Identifier: GPL-2.0
"""Unloads our module while RDMA operations are in progress in both directions.

A program with a socket keeps the module loaded. So the programs of one machine are killed first.
They are killed while they read and write the memory of the other machine, and while the other
machine reads and writes their memory. Then the module is removed as soon as possible. The program
of the other machine keeps running. Its operations fail. Each failure ends the connection, and a new
connection is made.
"""

import sys
import time

from machines import HERE, LOAD, NAME
from promises import context
from rds import TRANS_IB, Later, until  # type: ignore[attr-defined]

MIB = 1 << 20
KINDS = "qp", "mr", "pd", "cq", "cm_id"
# Prints the number of RDMA objects of each kind, the number of pinned pages, and the used memory in
# KiB.
LOOK = "\n".join((
    f"for kind in {' '.join(KINDS)}; do rdma resource show $kind | wc -l; done",
    "echo 1 > /proc/sys/vm/stat_refresh",
    "awk '/^nr_foll_pin_acquired / { sum += $2 } /^nr_foll_pin_released / { sum -= $2 } "
    "END { print sum }' /proc/vmstat",
    "awk '/^(MemFree|Buffers|Cached):/ { sum -= $2 } /^MemTotal:/ { sum += $2 } "
    "END { print sum }' /proc/meminfo"))
# Kills the programs. Then tries to unload the module until an attempt succeeds. Prints the number
# of attempts.
UNLOAD = f"""
rmmod {NAME} 2> /dev/null && exit 9
cat /sys/module/{NAME}/refcnt
kill -KILL %s
tries=1
until rmmod {NAME} 2> /dev/null; do
    [ $tries -lt 1500 ] || exit 1
    tries=$((tries + 1))
    sleep 0.02
done
echo $tries"""
REFERENCES = f"cat /sys/module/{NAME}/refcnt"
# The maximum number of seconds until a command ends, or a condition becomes true. On a debug kernel
# on a busy machine an operation of 1 MiB takes several seconds.
SECONDS = 300
# The maximum number of seconds until a program starts. A debug kernel on a busy machine needed 40.
START_SECONDS = 150
# `SETTLED` is the number of rounds after which the kernel's caches do not grow any more. `MORE_KIB`
# is the number of KiB by which the used memory may still grow after these rounds.
SETTLED, MORE_KIB = 10, 8 << 10


def done(node, command):
    """Runs a shell command in the machine of a node; returns its output."""
    status, output = node.shell(command, SECONDS)
    if status:
        raise RuntimeError(f"{command}: {status}, {output}")
    return output


def look(node):
    """Returns three values: the number of RDMA objects of each kind, the number of pinned pages,
    and the used memory in KiB."""
    *objects, pinned, used = map(int, done(node, LOOK).split())
    return dict(zip(KINDS, objects, strict=True)), pinned, used


def wait_until(condition, what):
    """Waits until a condition is true. Raises an exception if it does not become true."""
    if not until(condition, SECONDS):
        raise RuntimeError(f"never: {what}")


class Unloads:
    """The two machines. `ends` is a dictionary from the name of each machine to its node and its
    address."""

    def __init__(self, ends):
        self.ends, self.used = ends, {name: [] for name in ends}
        self.idle, self.empty = {}, {}
        self.agent = ends["there"][0]
        self.works()
        for name, (node, _) in ends.items():
            node.close_all()
            self.idle[name] = look(node)[:2]
        for name, (node, _) in ends.items():
            done(node, f"rmmod {NAME}")
            self.empty[name] = look(node)[:2]
            done(node, " ".join(LOAD["ours"]))

    def works(self):
        """Checks that the manual page's client and server transfer data in both directions."""
        t = context(self.ends["here"][1], self.ends["there"][1], self.agent.where)
        t.pair()
        for write in (False, True):
            found = t.transfer(write, 123, MIB)
            if found is not True:
                raise RuntimeError(f"a transfer afterwards: {found}")
        t.a.close_all()
        t.b.close_all()

    def start(self, what, node, own, other, port):
        """Starts a program in the machine of a node; returns its process number."""
        return done(node, f"{sys.executable} -B {HERE}/rds.py {what} --local {own} --peer {other} "
                    f"--port {port} > /dev/null 2>&1 & echo $!").strip()

    def load(self, x, own, y, other):
        """Starts programs in the machine `x`, and makes both machines access each other's memory.
        Returns the process numbers, and the call of pump(), which is still in progress in the
        machine `y`."""
        port = y.open("s", other, 0, transport=TRANS_IB)[1]
        own_port = y.open("o", other, 0, transport=TRANS_IB)[1]
        y.buffer("l", MIB, 2)
        y.buffer("m", MIB, 1)
        processes = [self.start("offer", x, own, other, port),
                     self.start("take", x, own, other, own_port)]
        offered, asked = (y.recv(name, START_SECONDS) for name in ("s", "o"))
        if not offered or not asked:
            raise RuntimeError(f"programs did not send: {offered}, {asked}")
        y.send("o", *asked["from"], b"req".hex(), [
            {"type": "map", "buf": "m", "off": 0, "len": MIB, "flags": 0}])
        before = y.peek("m", 0, 8)
        pumping = Later(y.pump, "s", *offered["from"], offered["cookie"], MIB)
        wait_until(lambda: y.peek("m", 0, 8) != before, "the killed machine's program writes")
        wait_until(lambda: y.pumped().get("SUCCESS"), "the other machine's operations succeed")
        return processes, pumping

    def round(self, number, victim):
        """Unloads and loads the module of a machine once. Returns a text that describes the result.
        """
        (x, own), = (end for name, end in self.ends.items() if name == victim)
        (keeper, (y, other)), = ((name, end) for name, end in self.ends.items() if name != victim)
        processes, pumping = self.load(x, own, y, other)
        time.sleep(0.01 * (number % 8))
        references, tries = done(x, UNLOAD % " ".join(processes)).split()
        *left, used = look(x)
        if tuple(left) != self.empty[victim]:
            raise RuntimeError(f"left behind: {left}, {self.empty[victim]} expected")
        if int(references) < len(processes):
            raise RuntimeError(f"{references} references with {len(processes)} sockets")
        self.used[victim].append(used)
        done(x, " ".join(LOAD["ours"]))
        y.rest()
        statuses = pumping.wait()
        y.close_all()
        told = sum(count for status, count in statuses.items() if status != "SUCCESS")
        if "dead" in statuses or "none" in statuses or not told:
            raise RuntimeError(f"statuses of the operations: {statuses}")
        self.works()
        wait_until(lambda: done(y, REFERENCES).strip() == "0", "no reference to the other module")
        objects, pinned = look(y)[:2]
        idle, idle_pinned = self.idle[keeper]
        if (objects["mr"], pinned) != (idle["mr"], idle_pinned):
            raise RuntimeError(f"regions and pinned pages of the other machine: {objects['mr']}, "
                               f"{pinned}; {idle['mr']}, {idle_pinned} expected")
        return f"statuses {statuses}, rmmod at try {tries}, {used} KiB in use"


def unload(ends, rounds):
    """Unloads the modules of both machines in turn; returns true if every round succeeded."""
    test, good = Unloads(ends), True
    for number in range(rounds):
        start, victim = time.monotonic(), ("here", "there")[number % 2]
        try:
            note, fault = test.round(number, victim), ""
        except (RuntimeError, TypeError, KeyError) as error:
            note, fault = "", repr(error)
        print(f"{'not ok' if fault else 'ok'} unload-{number + 1}-{victim} "
              f"({time.monotonic() - start:.1f} s) [basic]\n"
              f"    {f'FAILED: {fault}' if fault else f'note: {note}'}", flush=True)
        if fault:
            return False
    for name, used in test.used.items():
        more = max(used[SETTLED:], default=0) - max(used[:SETTLED], default=0)
        bad = len(used) > SETTLED and more > MORE_KIB
        good &= not bad
        print(f"{'not ok' if bad else 'ok'} unloads-memory-{name} (0.0 s) [basic]\n"
              f"    {'FAILED' if bad else 'note'}: KiB in use: {used}", flush=True)
    return good
