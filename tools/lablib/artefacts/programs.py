# SPDX-License-Identifier: GPL-2.0
"""Test programs of other projects that run on an NFS mount, and how they are built and run."""

import dataclasses
import re

from ..base import cache, chroot, proc
from . import kbuild

# Patterns of the lines that the programs print for each checked item.
NFSTEST_LINE = re.compile(r"^\s+(?P<verdict>PASS|FAIL): (?P<name>.*)$")
VERDICT_LINE = re.compile(r"^(?P<name>[\w:-]+)\s+(?P<verdict>ok|FAILED)$")
NFSTEST_GROUP = re.compile(r"^\*\*\* (?P<name>.*)$")
# The options that select a transport, for NFStest and for mount(8).
NFSTEST_CARRIER = {"rdma": "--proto rdma --port 20049", "tcp": "--proto tcp --port 2049"}
MOUNT_CARRIER = {"rdma": "rdma,port=20049", "tcp": "proto=tcp"}
# Two workarounds for NFStest:
# - NFStest stops its packet capture by a signal to the shell that has started the capture. Some
#   shells start their last command as a child process. The capture would then continue, and the
#   last packets would be missing when NFStest reads the capture. So the shell starts the capture
#   with `exec`.
# - NFStest's second process uses a behaviour that Python 3.13 has removed: names that exec()
#   defines in one function were visible in the next function. In the machine these names are made
#   global.
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
# The files that tar has unpacked and the files that make has built are read back from the server.
# The built module registers its file system when it is loaded, which shows that the module works.
# The files' times are not compared, because the times that tar had set were lost for every file.
# This also happened with the in-tree client.
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

# The stressors of stress-ng for asynchronous I/O, and those of its file system class. Stressors
# that do not use the given directory are left out. If the kernel or the file system lacks a feature
# that a stressor needs, stress-ng exits with status 3 or 4. Such a stressor has no verdict.
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
    """Builds the program if it is missing; returns the file."""
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
    """Returns a kernel tree, and a module that was built with the tree on this machine."""
    return kbuild.files(base, kernel, PLACE)


@dataclasses.dataclass
class Program:
    """A program of another project, and how it is run."""

    name: str
    what: str
    # time limit in seconds, which is much longer than the time on an idle machine
    seconds: int = 1800
    # command, which runs in an empty directory of a mount; None means that the program belongs to
    # NFStest
    command: str | None = None
    more: str = ""               # more options for the program
    memory: int = 4096           # memory of the client in MiB; captures are stored there, too
    files: object = None         # function that makes files for /results
    line: object = None          # pattern of a case's verdict; None: the exit status is the verdict
    group: object = None         # pattern of the heading of a group of cases
    # key: beginning of a heading; value: minimum number of groups with such a heading
    groups: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not self.command:
            self.line, self.group = NFSTEST_LINE, NFSTEST_GROUP

    def script(self, carrier):
        """Returns the script for the client machine. `carrier` is the transport of the mount:
        "rdma" or "tcp"."""
        # This time limit inside the virtual machine is much longer than needed, because the
        # machine's clock can be wrong. For example, such a clock ran more than three times too fast
        # on a busy host. A limit on the host ends a program that hangs.
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
    # Delegations are switched off, because with them NFStest would run everything a second time.
    Program("nfstest_dio", "direct I/O, read from a capture; without delegations",
            more="--withdeleg false"),
    Program("nfstest_xattr", "extended attributes"),
    Program("nfstest_interop", "NFS versions beside each other"),
    # The tests open each file in one mode only (for reading and writing). With all modes the tests
    # would take hours.
    Program("nfstest_lock", "locks of several processes, and of the server as the second client",
            more="--opentype rdwr --opentype2 rdwr --client 192.0.2.1,192.0.2.1"),
    # With NFSv4.2 a delegation replaces the open state, and the client maintains the times of the
    # file (RFC 9754). NFStest reports these delegations as failures, so NFSv4.1 is used here.
    # NFStest's second client uses NFSv4.0 over TCP, and the server treats it as another client.
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
