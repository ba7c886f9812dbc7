# SPDX-License-Identifier: GPL-2.0
"""Implements `make check-packages`: tests the packages in a plain Debian installation, from their
installation to their removal.

The packages are installed for one kernel, and /etc/fstab mounts at boot. The kernel is upgraded,
and the machine boots again. A kernel without the module is booted. The packages are removed, and
every file must be as before. Then the server's module is checked in the same way: the packages are
upgraded and removed while files are written to a mount and to an export.
"""

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

from ..artefacts import archive, kernel, module, packages, root
from ..artefacts.installation import DEBS, Installation
from ..base import cache, chroot, proc
from ..base.paths import REPO
from ..base.tally import Tally
from ..base.ui import say
from ..machine import installed, judge
from ..machine.installed import Secure
from ..machine.pair import GUEST_PROGRAM

OLD = packages.OLDEST
# Path of the program that runs in the machines.
LOOK = "lablib.guest.installed"
LOOK_SECONDS = 300
# The packages make an initramfs for each kernel, which is slow on an emulated processor. So the
# time limits are long.
PURGE_SECONDS = 1500
OFF_SECONDS = 180
BUILD = REPO / "build/life"
NAME, SERVER = "xprtrdma_rs", "svcrdma_rs"
# The name in the certificate that dkms generate_mok makes.
SIGNER = "DKMS module signing key"
# The module aliases that rpcrdma.ko itself contains.
INTREE_NAMES = ("rpcrdma6", "svcrdma", "xprtrdma")
FALL_BACK = "xprtrdma_rs: not loaded, NFS over RDMA uses the in-tree rpcrdma"
# Files that apt, dpkg and other programs change with every installation.
NOTES = re.compile(r"var/(log|cache|lib/(apt|dpkg|systemd|ucf))(/|$)|etc/ld\.so\.cache|run(/|$)"
                   r"|tmp(/|$)|root(/|$)|boot/initrd\.img-|var/lib/initramfs-tools(/|$)")

# Files that make the machine a server with our module.
EXPORT = "/srv/export"
SERVING = {
    "etc/modprobe.d/local.conf": f"alias nfs-rdma-server {SERVER}\n",
    "etc/nfs.conf.d/rdma.conf": "[nfsd]\nrdma=y\nrdma-port=20049\n",
    "etc/exports.d/lab.exports": f"{EXPORT} *(rw,no_root_squash,no_subtree_check,insecure)\n",
}
# `MOUNT` is the mount point of the tested machine. `THERE` is a mount point on the other machine,
# which mounts the export of the tested machine.
MOUNT, THERE = "/mnt/nfs", "/mnt/export"
MOUNT_THERE = f"mkdir -p {THERE}; mount -t nfs -o rdma,vers=4.2 192.0.2.2:{EXPORT} {THERE}"
# A program that writes numbers to files of a mount, and reads each number back from the server. It
# ends when the file /run/enough exists.
WRITE = """
n=0
until [ -e /run/enough ]; do
    n=$((n + 1)) file="$1/life-$((n % 8))"
    echo $n | dd of="$file" conv=fsync status=none
    [ "$(dd if="$file" iflag=direct status=none)" = $n ]
    # The pause leaves the processor to dpkg.
    sleep 0.3
done
echo "files $n"
# Prints how many times each of the mount's connections was established.
awk -v where="$1" '$1 == "device" { at = $5 }
    at == where && $1 == "xprt:" { print "connects", $5 }' /proc/self/mountstats
"""

# Files that belong to the kernel's packages but have no release in their names.
OF_KERNELS = ("boot", "vmlinuz", "vmlinuz.old", "initrd.img", "initrd.img.old")


class Life:
    """The state of the check: the installation, and the results so far."""

    def __init__(self, spec, where):
        self.tally, self.where, self.log = Tally(), pathlib.Path(where), BUILD / "log"
        self.root = root.path()
        self.stock = kernel.get(self.root, spec)
        self.old = packages.resolve(self.root, OLD)
        self.version = proc.output([REPO / "rust/version.sh"]).strip()
        self.debs = self.make_packages()
        self.system = Installation(self.where / "tree", self.debs, self.log)

    def judge(self, text, good, more=""):
        """Records a result."""
        say(f"{'ok' if good else 'not ok'}: {text}{'' if good else f': {more}'}")
        self.tally.judge(f"{text}: {more}", good)

    def make_packages(self):
        """Builds the packages of this source."""
        built = [module.build(self.root, self.stock, variant=variant)
                 for variant in ("client", "server")]
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
        say(f"what apt and others say: {self.log}")
        for version, where in ((self.version, BUILD), (self.newer(), BUILD / "newer")):
            proc.run_logged(f"making the packages, version {version}", chroot.command(
                self.root, ["tools/packaging/build", *built, "--version", version, "--out", where],
                [cache.directory(), REPO], REPO), self.log, 600)
        return BUILD

    def newer(self):
        """Returns the version to which the packages are upgraded."""
        return f"{self.version}+1"

    def install(self, text, choice, *more):
        """Installs a kernel with its headers and its source in one step."""
        release, version = choice["release"], choice["version"]
        names = [name for name in choice["packages"]
                 if name.startswith(("linux-image-", "linux-headers-", "linux-source-"))]
        self.system.apt(f"{text} {release}", "install", "-t", archive.KERNEL_SUITE,
                        "--no-install-recommends", *(f"{name}={version}" for name in names),
                        f"linux-source={version}", *more)

    def ours(self, *names):
        """Installs some of our packages from files, as an administrator does."""
        wanted = [f"{DEBS}/{path.name}" for name in names
                  for path in self.debs.glob(f"{name}_*.deb")]
        self.system.apt(f"installing {', '.join(names)}", "install", "--no-install-recommends",
                        *wanted)

    def dkms(self, release):
        """Returns what DKMS reports about a kernel."""
        return self.system.ask("dkms", "status", "-m", NAME, "-k", release)[1].strip()

    def disk(self):
        """Makes a disk image of the installation."""
        image = self.where / "image"
        self.system.image(self.root, image)
        return image

    @contextlib.contextmanager
    def machine(self, release, image, kind=installed.Installed):
        """Boots this kernel from a disk, together with the lab's server. Yields the control
        channels of both machines."""
        pair = installed.pair(self.root, self.stock, image, release, kind)
        with pair:
            yield pair.client.channel, pair.server.channel
            # The program does not wait for the result of this command, because the machine may be
            # switched off before it reports the result.
            pair.client.channel.start(["systemctl", "poweroff", "--no-block"])
            try:
                pair.client.process.wait(OFF_SECONDS)
            except subprocess.TimeoutExpired:
                self.judge(f"{release}: the machine goes down", False,
                           f"still up after {OFF_SECONDS} s")
        reports = [report for machine in pair.machines for report in judge.verdict(machine)]
        self.judge(f"{release}: both kernels are silent", not reports, "\n".join(reports))

    def look(self, channel, text, release, transport, told, *words, more=()):
        """Checks that the mount that /etc/fstab lists uses `transport`. If `told` is true, the log
        must report that the in-tree transport is used in place of ours. If `told` is false, the log
        must not report this. `more` names further transports that must be loaded."""
        report = json.loads(channel.check_call([*GUEST_PROGRAM, LOOK, *words],
                                               LOOK_SECONDS).splitlines()[-1])
        fallen = [line for line in report["log"] if FALL_BACK in line]
        good = (report["release"] == release and report["loaded"] == [transport, *more]
                and report["used"] and bool(fallen) == told and not report["failed"])
        self.judge(f"{release}: {text}: the mount is there with {transport}"
                   f"{', and the log tells why' if told else ''}", good,
                   json.dumps(report, indent=1))
        for line in fallen:
            say(f"    {line}")
        return report


def changed(before, after):
    """Returns the files that differ between two states, except files that every installation
    changes."""
    return sorted(name for name in before.keys() | after.keys()
                  if before.get(name) != after.get(name) and not NOTES.match(name))


def run(spec, _part):
    """Runs all steps in order. Returns the tally."""
    with tempfile.TemporaryDirectory(dir=cache.directory()) as where:
        life = Life(spec, where)
        live(life)
        return life.tally


def live(life):
    """Runs all steps. At the beginning the machine has the older kernel. At the end the machine
    has no trace of our packages."""
    prepare(life)
    plain = life.system.state()
    begin(life)
    upgrade(life)
    secure_boot(life)
    without(life)
    life.system.apt("removing all of it", "purge", "xprtrdma-rs-dkms", "xprtrdma-rs")
    removed(life, plain)
    packed(life)
    serve(life)
    served(life)


def prepare(life):
    """Makes a machine with the older kernel and the packages that DKMS needs."""
    system = life.system
    system.apt("reading the package lists", "update")
    _, needs = system.ask("sh", "-c", f"dpkg-deb -f {DEBS}/*-dkms_*.deb Depends")
    needs = ",".join(need for need in needs.split(",") if "xprtrdma-rs" not in need)
    # The compiler is not installed from backports: the rustc in backports is newer than the rustc
    # that built the kernel.
    system.apt("installing what DKMS needs to build it", "satisfy", "--no-install-recommends",
               needs)
    # Packages from backports that a kernel package requires are installed now, so that the upgrade
    # does not install them.
    life.install("a machine with kernel", life.old, "dkms", "libelf-dev", "linux-libc-dev")
    system.run("making the key with which DKMS signs", "dkms", "generate_mok")


def begin(life):
    """Installs our packages and boots the machine."""
    old = life.old["release"]
    life.ours("xprtrdma-rs", "xprtrdma-rs-dkms")
    life.judge(f"{old}: DKMS has built and installed the module from Debian's headers",
               "installed" in life.dkms(old), life.dkms(old))
    with life.machine(old, life.disk()) as (channel, _):
        report = life.look(channel, "after a boot", old, NAME, False)
        life.judge(f"{old}: DKMS has signed the module", report["signer"] == SIGNER,
                   report["signer"])


def upgrade(life):
    """Upgrades the kernel and boots it. Then removes our packages, and checks that the mount still
    works."""
    new = life.stock.release
    life.install("upgrading to kernel", packages.resolve(life.root, new))
    life.judge(f"{new}: the kernel's upgrade has built and installed the module",
               "installed" in life.dkms(new), life.dkms(new))
    with life.machine(new, life.disk()) as (channel, _):
        life.look(channel, "after the upgrade and a boot", new, NAME, False)
        channel.check_call(["dpkg", "--purge", "xprtrdma-rs-dkms", "xprtrdma-rs"], PURGE_SECONDS)
        life.look(channel, "after the packages are gone", new, NAME, False)
        life.look(channel, "mounted again", new, "rpcrdma", False, "again")


def without(life):
    """Boots the newer kernel with our packages but without our module."""
    new = life.stock.release
    life.system.run("taking the module away", "dkms", "uninstall", f"{NAME}/{life.version}",
                    "-k", new)
    with life.machine(new, life.disk()) as (channel, _):
        life.look(channel, "without the module, after a boot", new, "rpcrdma", True)


ENROL = """
cd /lab/image
openssl x509 -inform DER -in mok.pub -out mok
virt-fw-vars --input /usr/share/OVMF/OVMF_VARS_4M.ms.fd --output "$1" --sb \\
    ${2:+--add-mok "$(cat /proc/sys/kernel/random/uuid)" mok}
"""


def secure_boot(life):
    """Boots with Secure Boot. Checks that our module is loaded if DKMS's key was enrolled, and that
    the in-tree module is loaded otherwise."""
    release, image = life.stock.release, life.disk()
    life.system.boot_files(image / Secure.ESP, release)
    (image / Secure.ESP / Secure.MENU).parent.mkdir()
    shutil.copy(life.system.tree / "var/lib/dkms/mok.pub", image)
    for enrolled in ("", "enrolled"):
        key = f"DKMS's key {enrolled or 'unknown'}"
        proc.run_logged(f"the firmware's variables, {key}", chroot.command(
            life.root, ["sh", "-exc", ENROL, "sh", Secure.VARIABLES, enrolled],
            [(image, "/lab/image")]), life.log, 120)
        with life.machine(release, image, Secure) as (channel, _):
            lockdown = channel.check_call(["cat", "/sys/kernel/security/lockdown"])
            life.judge(f"{release}: the kernel was booted by Secure Boot",
                       "[integrity]" in lockdown, lockdown)
            life.look(channel, f"under Secure Boot, {key}", release,
                      NAME if enrolled else "rpcrdma", not enrolled)


def removed(life, plain):
    """Checks that only the new kernel is left after the purge."""
    new = life.stock.release
    left = [name for name in changed(plain, life.system.state())
            if not any(word in name for word in (new, new.split("-")[0], "linux-source"))
            and name not in OF_KERNELS]
    life.judge("the purge leaves every file as it was, but for the new kernel", not left,
               ", ".join(left[:20]))
    settings = of_transports(life)
    life.judge("modprobe knows the transport by the names in the in-tree module alone",
               len(settings) == len(INTREE_NAMES) and all(
                   f"alias {name} rpcrdma" in settings for name in INTREE_NAMES), str(settings))


def of_transports(life):
    """Returns the lines of modprobe's configuration that name our transport or the in-tree
    transport."""
    _, text = life.system.ask("modprobe", "-S", life.stock.release, "-c")
    return [line for line in text.splitlines()
            if "rpcrdma" in line or "svcrdma" in line or "xprtrdma" in line]


def with_modules(release):
    """Returns the names of our packages that a machine with this kernel needs if DKMS is not used.
    """
    return ("xprtrdma-rs", f"xprtrdma-rs-modules-{release.split('-')[-1]}",
            f"xprtrdma-rs-modules-{release}")


def packed(life):
    """Installs and removes the packages that contain a built module, and checks that nothing is
    left."""
    new, system = life.stock.release, life.system
    before = system.state()
    life.ours(*with_modules(new))
    _, where = system.ask("modinfo", "-k", new, "-n", NAME)
    life.judge(f"{new}: the packages with the built module have modprobe find it",
               where.strip().endswith(f"/{new}/updates/{module.NAME}"), where)
    system.apt("removing them", "purge", "xprtrdma-rs", "xprtrdma-rs-modules-*")
    left = changed(before, system.state())
    life.judge("their purge leaves every file as it was", not left, ", ".join(left[:20]))


class Writers:
    """Programs that write to the mount of each machine."""

    def __init__(self, life, channels):
        self.life, self.jobs = life, []
        for channel, mount in zip(channels, (MOUNT, THERE), strict=True):
            channel.check_call(["rm", "-f", "/run/enough"])
            output = []
            job = channel.start(["bash", "-euc", WRITE, "bash", mount],
                                lambda _, data, output=output: output.append(data))
            self.jobs.append((channel, job, output))

    def end(self, text):
        """Ends the writers. Checks that each of them has used the same connection all the time."""
        for channel, job, output in self.jobs:
            channel.check_call(["touch", "/run/enough"])
            try:
                status = job.wait(LOOK_SECONDS)
            except TimeoutError:
                status = f"no end after {LOOK_SECONDS} s"
            said = b"".join(output).decode(errors="replace")
            self.life.judge(f"{text}: {channel.name} wrote by one connection",
                            status == 0 and said.endswith("connects 1\n"), f"{status}: {said}")
            say(f"    {said.splitlines()[0] if said else ''}")


def serve(life):
    """Installs the packages with built modules, and configures nfsd to use our module."""
    system = life.system
    system.apt("installing the NFS server", "install", "--no-install-recommends",
               "nfs-kernel-server")
    for name, text in SERVING.items():
        (system.tree / name).parent.mkdir(exist_ok=True)
        (system.tree / name).write_text(text)
    (system.tree / EXPORT[1:]).mkdir()
    life.ours(*with_modules(life.stock.release))


def served(life):
    """Upgrades the packages while the machine has a mount and an export. Both must continue to
    work. Then removes the packages."""
    new = life.stock.release
    with life.machine(new, life.disk()) as channels:
        here, there = channels
        life.look(here, "serving, after a boot", new, NAME, False, more=[SERVER])
        there.check_call(["sh", "-ec", MOUNT_THERE], LOOK_SECONDS)
        writers = Writers(life, channels)
        # The triggers of dpkg make the initramfs, which takes long. So they do not run during this
        # upgrade. They run later, when the packages are removed.
        here.check_call(["dpkg", "--no-triggers", "-i", *(
            f"/repo/{file.relative_to(REPO)}" for name in with_modules(new)
            for file in (BUILD / "newer").glob(f"{name}_*.deb"))], PURGE_SECONDS)
        versions = here.check_call(["dpkg-query", "-Wf", "${Version}\n", *with_modules(new)])
        life.judge(f"{new}: the newer packages are installed",
                   set(versions.split()) == {f"{life.newer()}-1"}, versions)
        writers.end(f"{new}: upgrade with a mount and an export")
        # Neither the mount nor the export is in use, so the newer modules can be loaded.
        there.check_call(["umount", THERE])
        here.check_call(["sh", "-ec", f"systemctl stop nfs-server; rmmod {SERVER}"], LOOK_SECONDS)
        life.look(here, "by the newer package, mounted again", new, NAME, False, "again")
        here.check_call(["systemctl", "start", "nfs-server"], LOOK_SECONDS)
        there.check_call(["sh", "-ec", MOUNT_THERE], LOOK_SECONDS)
        writers = Writers(life, channels)
        here.check_call(["sh", "-c", "dpkg --purge $(dpkg-query -Wf '${Package} ' "
                                     "'xprtrdma-rs-modules-*')"], PURGE_SECONDS)
        writers.end(f"{new}: removal of the modules with a mount and an export")
        there.check_call(["umount", THERE])
        here.check_call(["systemctl", "stop", "nfs-server"], LOOK_SECONDS)
        here.check_call(["dpkg", "--purge", "xprtrdma-rs"], PURGE_SECONDS)
        life.look(here, "the packages are gone, and with them the idle server", new, NAME, False)
        life.look(here, "mounted again", new, "rpcrdma", False, "again")
        here.check_call(["systemctl", "start", "nfs-server"], LOOK_SECONDS)
        there.check_call(["sh", "-ec", MOUNT_THERE], LOOK_SECONDS)
        life.look(here, "serving by the in-tree module", new, "rpcrdma", False)
        there.check_call(["umount", THERE])
