# SPDX-License-Identifier: GPL-2.0
"""Programs of other projects that run on the mount, and how they run."""

import dataclasses
import re

from ..base import cache, chroot, proc
from . import kbuild

# The lines that programs print for each checked item.
NFSTEST_LINE = re.compile(r"^\s+(?P<verdict>PASS|FAIL): (?P<name>.*)$")
VERDICT_LINE = re.compile(r"^(?P<name>[\w:-]+)\s+(?P<verdict>ok|FAILED)$")
NFSTEST_GROUP = re.compile(r"^\*\*\* (?P<name>.*)$")
# How NFStest and mount(8) are told which transport to use.
NFSTEST_CARRIER = {"rdma": "--proto rdma --port 20049", "tcp": "--proto tcp --port 2049"}
MOUNT_CARRIER = {"rdma": "rdma,port=20049", "tcp": "proto=tcp"}
# NFStest ends its capture by a signal to the shell that started it. Where sh does not become the
# last command by itself, the capture would run on and its end be missing when it is read.
# NFStest's second process relies on what Python 3.13 no longer does: that names which one exec()
# makes in a function are there in the next. In the machine they are made global.
NFSTEST = """\
ip route replace default via 192.0.2.1 && mkdir -p /mnt/test && cd /tmp &&
sed -i 's/exec(fstr)$/exec(fstr, globals())/' /usr/lib/python3/dist-packages/nfstest/rexec.py &&
PYTHONUNBUFFERED=1 timeout -k 10 {limit} {name} --server 192.0.2.1 --export /srv/mem \
    --nfsversion 4.2 {carrier} --mtpoint /mnt/test --interface eth0 \
    --tcpdump 'exec /usr/bin/tcpdump' {more} < /dev/null
status=$?
umount -f /mnt/test 2> /dev/null
exit $status"""
PLACE = "/mnt/test/programs"
MOUNTED = """\
mkdir -p /mnt/test && mount -t nfs -o vers=4.2,{carrier} 192.0.2.1:/srv/mem /mnt/test &&
mkdir {place} && cd {place} && timeout -k 10 {limit} {command}
status=$?
cd / && rm -rf {place}; umount /mnt/test
exit $status"""
# What tar unpacked and what make built is read back from the server. The module shows its file
# system when it is loaded. Times are not compared: those that tar sets were lost with
# the in-tree client too, for every file.
KBUILD = f"""sh -exc '
tar -xf /results/tree.tar
{kbuild.BUILD}
sync
echo 3 > /proc/sys/vm/drop_caches
sha256sum --quiet -c /results/tree.sums
cmp {kbuild.NAME}/{kbuild.MODULE} /results/{kbuild.MODULE}
insmod {kbuild.NAME}/{kbuild.MODULE}
grep -w {kbuild.NAME} /proc/filesystems
rmmod {kbuild.NAME}'"""

# The file system class of stress-ng without what does not touch the directory it is given, and
# asynchronous I/O. It has statuses for what kernel or file system do not offer.
STRESSORS = """
access acl aio aiol chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify fallocate
fanotify fcntl fiemap file-ioctl filename filerace flock fpunch fsize fstat getdent handle hdd
inode-flags inotify io iomix io-uring lease link locka lockf lockmix lockofd metamix mknod open
readahead rename revio seek symlink sync-file touch umask unlink utime verity xattr"""
SIZES = " ".join(f"--{name}-bytes 16m" for name in
                 ("fallocate", "fpunch", "hdd", "iomix", "readahead", "revio"))
STRESS = f"""sh -c '
for name in {" ".join(STRESSORS.split())}; do
    timeout -k 5 600 stress-ng --temp-path . --timeout 3 --verify --quiet --seek-size 16m \\
        {SIZES} --$name 1
    case $? in
    0) echo "$name ok" ;;
    3 | 4) echo "$name is not to be had" ;;
    *) echo "$name FAILED" ;;
    esac
done'"""
PJDFSTEST = "0.2.2"


def pjdfstest(base, _kernel):
    """Build the program when missing; return the file."""
    def make(target):
        log = target.with_suffix(".log")
        log.unlink(missing_ok=True)
        argv = ["cargo", "install", "--locked", "--root", target, f"pjdfstest@{PJDFSTEST}"]
        proc.run_logged(f"building pjdfstest (log: {log})",
                        chroot.command(base, argv, [cache.directory()],
                                       env={"CARGO_HOME": f"{cache.directory()}/cargo"}),
                        log, 900)

    return [cache.entry("pjdfstest", cache.key(PJDFSTEST), make) / "bin/pjdfstest"]


def kernel_tree(base, kernel):
    """A kernel tree, and a module that was built with the tree on this machine."""
    return kbuild.files(base, kernel, PLACE)


@dataclasses.dataclass
class Program:
    """A program, and how to run it."""

    name: str
    what: str
    seconds: int = 1800          # far more than on an idle machine
    command: str | None = None   # in an empty directory of a mount; else it is of NFStest
    more: str = ""               # options
    memory: int = 4096           # MiB in the client; captures are kept there
    files: object = None         # makes files that are in /results then
    line: object = None          # says how one case went; else the exit status does
    group: object = None         # says what the next cases belong to
    groups: dict = dataclasses.field(default_factory=dict)  # how many groups must begin like this

    def __post_init__(self):
        if not self.command:
            self.line, self.group = NFSTEST_LINE, NFSTEST_GROUP

    def script(self, carrier):
        """The script of the client machine, over rdma or tcp."""
        # On a busy host a machine's clock was seen to run more than three times too fast: the limit
        # that counts is the lab's own.
        limit = 5 * self.seconds
        if self.command:
            return MOUNTED.format(limit=limit, command=self.command, place=PLACE,
                                  carrier=MOUNT_CARRIER[carrier])
        return NFSTEST.format(limit=limit, name=self.name, more=self.more,
                              carrier=NFSTEST_CARRIER[carrier])


PROGRAMS = (
    Program("nfstest_rdma", "what goes over the wire, read from a capture"),
    Program("nfstest_io", "file I/O of four processes, with locks", 300,
            "nfstest_io --datadir io --nprocs 4 --runtime 60 --seed 1 --exiterr"),
    Program("nfstest_posix", "system calls"),
    # Running everything a second time with delegations would double the time.
    Program("nfstest_dio", "direct I/O, read from a capture; without delegations",
            more="--withdeleg false"),
    Program("nfstest_xattr", "extended attributes"),
    Program("nfstest_interop", "NFS versions beside each other"),
    # Running all types of opening a file would take hours.
    Program("nfstest_lock", "locks of several processes, and of the server as the second client",
            more="--opentype rdwr --opentype2 rdwr --client 192.0.2.1,192.0.2.1"),
    # NFStest does not know what NFSv4.2 does with a delegation today (RFC 9754: no open state
    # beside it, times kept by the client), and calls that a failure. The second client speaks
    # NFSv4.0 over TCP and is a client of its own to the server.
    Program("nfstest_delegation", "delegations and their recall by a second client; NFSv4.1",
            more="--nfsversion 4.1", groups={"Basic": 12, "Recall": 54}),
    Program("nfstest_cache", "attribute caches; the server is the second client",
            more="--client 192.0.2.1"),
    Program("fio", "random reads and writes with verification", 300,
            "fio --name=verify --rw=randrw --bs=1k-64k --size=32m --numjobs=2 --iodepth=8 "
            "--ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --group_reporting"),
    Program("dbench", "a file server's load", 120, "dbench -D . -t 30 4"),
    Program("bonnie++", "large files and many small ones", 1200,
            "bonnie++ -d . -s 128:64k -r 64 -n 1 -u root -q"),
    Program("git", "clone, checks and packing of this repository", 600,
            "sh -ec 'git config --global safe.directory \"*\"; git clone -q /repo copy; cd copy; "
            "git fsck --full --strict; git gc -q; git fsck --full --strict; git status'"),
    Program("kernel-module", "unpack a kernel tree, build a module of it, load it",
            command=KBUILD, files=kernel_tree),
    Program("pjdfstest", "system calls, as POSIX has them", 900,
            "env NO_COLOR=1 /results/pjdfstest -c /repo/tools/lablib/guest/pjdfstest.toml -p .",
            files=pjdfstest, line=VERDICT_LINE),
    Program("stress-ng", "file system operations, with verification", 1800,
            STRESS, line=VERDICT_LINE),
)
