# SPDX-License-Identifier: GPL-2.0
"""Other people's programs on the mount, with the in-tree client and with ours.

A case that passes with the in-tree client and fails with ours is a bug of ours.
What fails with both is a matter of the NFS client or of the program.
"""

import collections
import dataclasses
import json
import re
import shutil

from . import cache, chroot, module, proc, root, wire
from .session import Plan, Session
from .tally import Tally
from .ui import LabError, say

PAGE = module.REPO / "Documentation/programs.rst"
# What the page says, program by program: not every run is of all of them.
RECORD = module.REPO / "tools/lablib/programs.json"
CLIENTS = ("intree", "ours")
# What programs print for each thing they looked at.
NFSTEST_LINE = re.compile(r"^\s+(?P<verdict>PASS|FAIL): (?P<name>.*)$")
PJDFSTEST_LINE = re.compile(r"^(?P<name>[\w:]+)\s+(?P<verdict>ok|FAILED)$")
# How often, of how much, when: differs from run to run.
COUNTS = re.compile(r"\(\d+ passed, \d+ failed\)|\d+(\.\d+)?")
# NFStest ends its capture by a signal to the shell that started it. Where sh does not become the
# last command by itself, the capture would run on and its end be missing when it is read.
NFSTEST = """\
ip route replace default via 192.0.2.1 && mkdir -p /mnt/test && cd /tmp &&
PYTHONUNBUFFERED=1 timeout -k 10 {seconds} {name} --server 192.0.2.1 --export /srv/mem \
    --nfsversion 4.2 --proto rdma --port 20049 --mtpoint /mnt/test --interface eth0 \
    --tcpdump 'exec /usr/bin/tcpdump' {more} < /dev/null
status=$?
umount -f /mnt/test 2> /dev/null
exit $status"""
MOUNTED = """\
mkdir -p /mnt/test && mount -t nfs -o vers=4.2,rdma,port=20049 192.0.2.1:/srv/mem /mnt/test &&
mkdir /mnt/test/programs && cd /mnt/test/programs && timeout -k 10 {seconds} {command}
status=$?
cd / && rm -rf /mnt/test/programs; umount /mnt/test
exit $status"""


PJDFSTEST = "0.2.2"


def pjdfstest():
    """Build it when missing; the file."""
    base = root.path()

    def make(target):
        log = target.with_suffix(".log")
        log.unlink(missing_ok=True)
        argv = ["cargo", "install", "--locked", "--root", target, f"pjdfstest@{PJDFSTEST}"]
        proc.run_logged(f"building pjdfstest (log: {log})",
                        chroot.command(base, argv, [cache.directory()],
                                       env={"CARGO_HOME": f"{cache.directory()}/cargo"}),
                        log, 900)

    return cache.entry("pjdfstest", cache.key(PJDFSTEST), make) / "bin/pjdfstest"


@dataclasses.dataclass
class Program:
    """One program and how to run it."""

    name: str
    what: str
    seconds: int = 900
    command: str | None = None   # in an empty directory of a mount; else it is of NFStest
    more: str = ""               # options
    memory: int = 4096           # MiB in the client; captures are kept there
    file: object = None          # makes a file that is /results/NAME then
    line: object = None          # says how one case went; else the exit status does

    def script(self):
        if self.command:
            return MOUNTED.format(seconds=self.seconds, command=self.command)
        return NFSTEST.format(seconds=self.seconds, name=self.name, more=self.more)


PROGRAMS = (
    Program("nfstest_rdma", "what goes over the wire, read from a capture"),
    Program("nfstest_io", "file I/O of four processes, with locks", 300,
            "nfstest_io --datadir io --nprocs 4 --runtime 60 --seed 1 --exiterr"),
    Program("nfstest_posix", "system calls"),
    Program("nfstest_dio", "direct I/O, read from a capture"),
    Program("nfstest_xattr", "extended attributes"),
    Program("nfstest_interop", "NFS versions beside each other"),
    Program("nfstest_lock", "locks, read from a capture", 1800),
    Program("nfstest_delegation", "delegations and their recall by a second client", 1800),
    Program("nfstest_cache", "attribute caches; the server is the second client", 1800,
            more="--client 192.0.2.1"),
    Program("fio", "random reads and writes with verification", 300,
            "fio --name=verify --rw=randrw --bs=1k-64k --size=32m --numjobs=2 --iodepth=8 "
            "--ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --group_reporting"),
    Program("dbench", "a file server's load", 120, "dbench -D . -t 30 4"),
    Program("bonnie++", "large files and many small ones", 600,
            "bonnie++ -d . -s 128:64k -r 64 -n 1 -u root -q"),
    Program("git", "clone, checks and packing of this repository", 600,
            "sh -ec 'git config --global safe.directory \"*\"; git clone -q /repo copy; cd copy; "
            "git fsck --full --strict; git gc -q; git fsck --full --strict; git status'"),
    Program("pjdfstest", "system calls, as POSIX has them", 900,
            "env NO_COLOR=1 /results/pjdfstest -c /repo/tools/lablib/guest/pjdfstest.toml -p .",
            file=pjdfstest, line=PJDFSTEST_LINE),
    Program("stress-ng", "file system operations", 300,
            "stress-ng --temp-path . --timeout 5 --sequential 1 --with "
            "access,chmod,dentry,dir,dirdeep,fallocate,filename,flock,fstat,hdd,link,"
            "locka,mmap,rename,seek,sync-file,symlink,utime,xattr"),
)


def cases(program, output, status):
    """Name of a case -> how often it (passed, failed)."""
    found = collections.defaultdict(lambda: [0, 0])
    line = program.line or (None if program.command else NFSTEST_LINE)
    if not line:
        found["the program"][bool(status)] += 1
        return dict(found)
    for match in filter(None, map(line.match, output.splitlines())):
        name = COUNTS.sub("N", match["name"]).strip()
        found[name][match["verdict"].startswith("FAIL")] += 1
    if status not in (0, 1) or not found:
        found[f"the program itself (status {status})"][1] += 1
    return dict(found)


def run(program, client, spec):
    """Run a program with a client: its cases, and what the machines complain about."""
    plan = Plan(client=client, spec=spec, timeout=program.seconds + 60,
                memory=(2048, program.memory))
    session, output = Session(plan), bytearray()
    if program.file:
        shutil.copy(program.file(), session.pair.results)
    status = None
    with session:
        status = session.run(["sh", "-c", program.script()],
                             lambda kind, data: output.extend(data)
                             if kind in (wire.OUT, wire.ERR) else None)
    text = output.decode(errors="replace")
    (session.pair.results / f"{program.name}.log").write_text(text)
    return cases(program, text, status), session.complaints


def worse(intree, ours):
    """The cases that never fail with the in-tree client and fail with ours."""
    return [name for name, (_, failed) in sorted(ours.items())
            if failed and not intree.get(name, (0, 0))[1]]


def check(spec, names, write):
    """Run the programs with both clients; returns the tally."""
    unknown = set(names) - {p.name for p in PROGRAMS}
    if unknown:
        raise LabError(f"no such program: {', '.join(sorted(unknown))} (known: "
                       f"{', '.join(p.name for p in PROGRAMS)})")
    tally, record = Tally(), json.loads(RECORD.read_text())
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        found = {}
        for client in CLIENTS:
            say(f"{program.name}, {client}")
            found[client], complaints = run(program, client, spec)
            tally.judge(f"{program.name}, {client}: {'; '.join(complaints)[:300]}",
                        not complaints)
        row = {client: [sum(c[i] for c in found[client].values()) for i in (0, 1)]
               for client in CLIENTS}
        row["worse"] = worse(found["intree"], found["ours"])
        row["both"] = [name for name, (_, failed) in sorted(found["ours"].items())
                       if failed and name not in row["worse"]]
        record[program.name] = row
        say(f"{program.name}: passed and failed: in-tree {row['intree']}, ours {row['ours']}")
        for name in row["worse"]:
            tally.fail(f"{program.name}: fails with ours only: {name}")
        if not row["worse"]:
            tally.ok()
        if write:
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
            PAGE.write_text(page(record))
    print(tally.line(), flush=True)
    return 0 if tally.good() else 1


HEADER = """\
.. SPDX-License-Identifier: GPL-2.0

.. Written by tools/lab programs --write.

==========================
Other people's programs
==========================

Programs of others on a mount over RDMA (NFSv4.2, rxe, stock kernel and server), each with the
in-tree client and with ours, one after the other in machines of their own: ``make check-programs``.
The numbers count what the program itself calls passed and failed. A case that fails with ours and
not with the in-tree client fails the run.

.. list-table::
   :header-rows: 1

   * - Program
     - what it does
     - in-tree: passed, failed
     - ours: passed, failed
     - worse with ours
"""


def page(record):
    """The committed table."""
    text, both = HEADER, ""
    for program in PROGRAMS:
        row = record.get(program.name)
        if not row:
            continue
        cells = (f"``{program.name}``", program.what,
                 *(f"{row[client][0]}, {row[client][1]}" for client in CLIENTS),
                 "; ".join(row["worse"]) or "nothing")
        text += "".join(f"   {'* ' if i == 0 else '  '}- {cell}\n" for i, cell in enumerate(cells))
        both += "".join(f"* ``{program.name}``: {name}\n" for name in row["both"])
    if both:
        text += f"\nWhat fails with both clients:\n\n{both}"
    return text
