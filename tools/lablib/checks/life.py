# SPDX-License-Identifier: GPL-2.0
"""The life of the packages in a plain Debian installation: what make check-packages shows.

Installed for one kernel, mounted by /etc/fstab at boot; the kernel is upgraded and the machine
boots again; a kernel without the module; removal, after which everything is as before.
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
# A program of the machines.
LOOK = "lablib.guest.installed"
LOOK_SECONDS = 300
# An initramfs for each kernel, by an emulated processor.
PURGE_SECONDS = 1500
OFF_SECONDS = 180
BUILD = REPO / "build/life"
NAME = "xprtrdma_rs"
# In the certificate that dkms generate_mok makes.
SIGNER = "DKMS module signing key"
# The aliases that rpcrdma.ko has in itself.
INTREE_NAMES = ("rpcrdma6", "svcrdma", "xprtrdma")
FALL_BACK = "xprtrdma_rs: not loaded, NFS over RDMA uses the in-tree rpcrdma"
# What apt, dpkg and others write down whatever is installed.
NOTES = re.compile(r"var/(log|cache|lib/(apt|dpkg|systemd|ucf))(/|$)|etc/ld\.so\.cache|run(/|$)"
                   r"|tmp(/|$)|root(/|$)|boot/initrd\.img-|var/lib/initramfs-tools(/|$)")

# Of the kernel's packages, without its release in the name.
OF_KERNELS = ("boot", "vmlinuz", "vmlinuz.old", "initrd.img", "initrd.img.old")


class Life:
    """The installation, what was found of it so far, and what is needed to go on."""

    def __init__(self, spec, where):
        self.tally, self.where, self.log = Tally(), pathlib.Path(where), BUILD / "log"
        self.root = root.path()
        self.stock = kernel.get(self.root, spec)
        self.old = packages.resolve(self.root, OLD)
        self.debs = self.make_packages()
        self.system = Installation(self.where / "tree", self.debs, self.log)
        self.version = proc.output([REPO / "rust/version.sh"]).strip()

    def judge(self, text, good, more=""):
        """A finding."""
        say(f"{'ok' if good else 'not ok'}: {text}{'' if good else f': {more}'}")
        self.tally.judge(f"{text}: {more}", good)

    def make_packages(self):
        """The packages of this source."""
        built = module.build(self.root, self.stock)
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
        say(f"what apt and others say: {self.log}")
        proc.run_logged("making the packages", chroot.command(
            self.root, ["tools/packaging/build", built, "--out", BUILD],
            [cache.directory(), REPO], REPO), self.log, 600)
        return BUILD

    def install(self, text, choice, *more):
        """Install a kernel with its headers and its source, in one go."""
        release, version = choice["release"], choice["version"]
        names = [name for name in choice["packages"]
                 if name.startswith(("linux-image-", "linux-headers-", "linux-source-"))]
        self.system.apt(f"{text} {release}", "install", "-t", archive.KERNEL_SUITE,
                        "--no-install-recommends", *(f"{name}={version}" for name in names),
                        f"linux-source={version}", *more)

    def ours(self, *names):
        """Install packages of ours as files, as an administrator does."""
        wanted = [f"{DEBS}/{path.name}" for name in names
                  for path in self.debs.glob(f"{name}_*.deb")]
        self.system.apt(f"installing {', '.join(names)}", "install", "--no-install-recommends",
                        *wanted)

    def dkms(self, release):
        """What DKMS says of a kernel."""
        return self.system.ask("dkms", "status", "-m", NAME, "-k", release)[1].strip()

    def disk(self):
        """A disk with all there is now."""
        image = self.where / "image"
        self.system.image(self.root, image)
        return image

    @contextlib.contextmanager
    def machine(self, release, image, kind=installed.Installed):
        """Boot this kernel from a disk, with the lab's server; yields the control line."""
        pair = installed.pair(self.root, self.stock, image, release, kind)
        with pair:
            yield pair.client.channel
            pair.client.channel.call(["systemctl", "poweroff", "--no-block"])
            try:
                pair.client.process.wait(OFF_SECONDS)
            except subprocess.TimeoutExpired:
                self.judge(f"{release}: the machine goes down", False,
                           f"still up after {OFF_SECONDS} s")
        reports = [report for machine in pair.machines for report in judge.verdict(machine)]
        self.judge(f"{release}: both kernels are silent", not reports, "\n".join(reports))

    def look(self, channel, text, release, transport, told, *words):
        """The mount of /etc/fstab is there by this transport; the log tells of a fall-back or
        does not."""
        report = json.loads(channel.check_call([*GUEST_PROGRAM, LOOK, *words],
                                               LOOK_SECONDS).splitlines()[-1])
        fallen = [line for line in report["log"] if FALL_BACK in line]
        good = (report["release"] == release and report["loaded"] == [transport]
                and report["used"] and bool(fallen) == told and not report["failed"])
        self.judge(f"{release}: {text}: the mount is there with {transport}"
                   f"{', and the log tells why' if told else ''}", good,
                   json.dumps(report, indent=1))
        for line in fallen:
            say(f"    {line}")
        return report


def changed(before, after):
    """What differs between two states, but for what is written down whatever happens."""
    return sorted(name for name in before.keys() | after.keys()
                  if before.get(name) != after.get(name) and not NOTES.match(name))


def run(spec, _part):
    """All of it, in order; returns the tally."""
    with tempfile.TemporaryDirectory(dir=cache.directory()) as where:
        life = Life(spec, where)
        live(life)
        return life.tally


def live(life):
    """From a machine with the older kernel to one that never had our packages."""
    prepare(life)
    plain = life.system.state()
    begin(life)
    upgrade(life)
    secure_boot(life)
    without(life)
    life.system.apt("removing all of it", "purge", "xprtrdma-rs-dkms", "xprtrdma-rs")
    removed(life, plain)
    packed(life)


def prepare(life):
    """A machine with the older kernel and what DKMS needs."""
    system = life.system
    system.apt("reading the package lists", "update")
    _, needs = system.ask("sh", "-c", f"dpkg-deb -f {DEBS}/*-dkms_*.deb Depends")
    needs = ",".join(need for need in needs.split(",") if "xprtrdma-rs" not in need)
    # Not from backports, whose rustc is newer than that which built the kernel.
    system.apt("installing what DKMS needs to build it", "satisfy", "--no-install-recommends",
               needs)
    # What of backports comes with a kernel, here and not with the upgrade.
    life.install("a machine with kernel", life.old, "dkms", "libelf-dev", "linux-libc-dev")
    system.run("making the key with which DKMS signs", "dkms", "generate_mok")


def begin(life):
    """Our packages are installed, and the machine boots."""
    old = life.old["release"]
    life.ours("xprtrdma-rs", "xprtrdma-rs-dkms")
    life.judge(f"{old}: DKMS has built and installed the module from Debian's headers",
               "installed" in life.dkms(old), life.dkms(old))
    with life.machine(old, life.disk()) as channel:
        report = life.look(channel, "after a boot", old, NAME, False)
        life.judge(f"{old}: DKMS has signed the module", report["signer"] == SIGNER,
                   report["signer"])


def upgrade(life):
    """The kernel is upgraded, and a machine boots it; it keeps the mount when the packages go."""
    new = life.stock.release
    life.install("upgrading to kernel", packages.resolve(life.root, new))
    life.judge(f"{new}: the kernel's upgrade has built and installed the module",
               "installed" in life.dkms(new), life.dkms(new))
    with life.machine(new, life.disk()) as channel:
        life.look(channel, "after the upgrade and a boot", new, NAME, False)
        channel.check_call(["dpkg", "--purge", "xprtrdma-rs-dkms", "xprtrdma-rs"], PURGE_SECONDS)
        life.look(channel, "after the packages are gone", new, NAME, False)
        life.look(channel, "mounted again", new, "rpcrdma", False, "again")


def without(life):
    """There are our packages, but no module of ours for the newer kernel."""
    new = life.stock.release
    life.system.run("taking the module away", "dkms", "uninstall", f"{NAME}/{life.version}",
                    "-k", new)
    with life.machine(new, life.disk()) as channel:
        life.look(channel, "without the module, after a boot", new, "rpcrdma", True)


ENROL = """
cd /lab/image
openssl x509 -inform DER -in mok.pub -out mok
virt-fw-vars --input /usr/share/OVMF/OVMF_VARS_4M.ms.fd --output "$1" --sb \\
    ${2:+--add-mok "$(cat /proc/sys/kernel/random/uuid)" mok}
"""


def secure_boot(life):
    """Under Secure Boot a module with DKMS's signature is loaded if the key was enrolled, else the
    in-tree module."""
    release, image = life.stock.release, life.disk()
    life.system.boot_files(image / Secure.ESP, release)
    (image / Secure.ESP / Secure.MENU).parent.mkdir()
    shutil.copy(life.system.tree / "var/lib/dkms/mok.pub", image)
    for enrolled in ("", "enrolled"):
        key = f"DKMS's key {enrolled or 'unknown'}"
        proc.run_logged(f"the firmware's variables, {key}", chroot.command(
            life.root, ["sh", "-exc", ENROL, "sh", Secure.VARIABLES, enrolled],
            [(image, "/lab/image")]), life.log, 120)
        with life.machine(release, image, Secure) as channel:
            lockdown = channel.check_call(["cat", "/sys/kernel/security/lockdown"])
            life.judge(f"{release}: the kernel was booted by Secure Boot",
                       "[integrity]" in lockdown, lockdown)
            life.look(channel, f"under Secure Boot, {key}", release,
                      NAME if enrolled else "rpcrdma", not enrolled)


def removed(life, plain):
    """After the purge only the new kernel is new."""
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
    """What modprobe is told about either transport."""
    _, text = life.system.ask("modprobe", "-S", life.stock.release, "-c")
    return [line for line in text.splitlines()
            if "rpcrdma" in line or "svcrdma" in line or "xprtrdma" in line]


def packed(life):
    """The packages with a built module come and go without a trace."""
    new, system = life.stock.release, life.system
    before = system.state()
    life.ours("xprtrdma-rs", f"xprtrdma-rs-modules-{new.split('-')[-1]}",
              f"xprtrdma-rs-modules-{new}")
    _, where = system.ask("modinfo", "-k", new, "-n", NAME)
    life.judge(f"{new}: the packages with the built module have modprobe find it",
               where.strip().endswith(f"/{new}/updates/{module.NAME}"), where)
    system.apt("removing them", "purge", "xprtrdma-rs", "xprtrdma-rs-modules-*")
    left = changed(before, system.state())
    life.judge("their purge leaves every file as it was", not left, ", ".join(left[:20]))
