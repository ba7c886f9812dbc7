# SPDX-License-Identifier: GPL-2.0
"""The kernel packages in the archive, as apt in the lab's root file system sees them."""

import json
import re
import time

from ..base import arch, cache, chroot, proc
from ..base.ui import LabError, say
from . import archive

FRESH_SECONDS = 24 * 3600
# The oldest series with the Rust interfaces that the module uses.
OLDEST = "7.2"
IMAGE = re.compile(r"linux-image-(\d+\.\d+\.\d+[^-]*-(?:(?:cloud|rt)-)?(?:amd64|arm64(?:-16k)?))$")


class Archive:
    """The package lists of the suite from which kernels are taken. They are separate from the
    package lists of the root file system."""

    def __init__(self, root, of=None):
        """Prepares the package lists for the architecture `of`. If `of` is missing, the lists are
        for this machine's architecture."""
        self.root = root
        self.foreign = None if of is None or of.is_host else of.debian
        self.state = state(of)
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "lists/partial").mkdir(parents=True, exist_ok=True)
        self.sources = self.state / "sources.list"
        mirror = archive.mirror() or self.mirror_of_root()
        self.sources.write_text(f"deb {mirror} {archive.KERNEL_SUITE} main\n")
        self.where = f"{archive.KERNEL_SUITE} of {mirror}"

    def mirror_of_root(self):
        """Returns the archive that mmdebstrap has selected for the root file system. The lab uses
        this archive if this machine's configuration names no archive."""
        found = re.search(r"^deb (?:\[.*\] )?(\S+) ",
                          (self.root / "etc/apt/sources.list").read_text(), re.MULTILINE)
        if not found:
            raise LabError("no Debian archive in this machine's apt configuration")
        return found[1]

    def apt(self, *argv, cwd="/"):
        """Returns the argument list of an apt command that uses these lists."""
        options = ["-o", f"Dir::Etc::sourcelist={self.sources}",
                   "-o", "Dir::Etc::sourceparts=/dev/null",
                   "-o", f"Dir::State::lists={self.state}/lists",
                   "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
                   "-o", "APT::Sandbox::User=root"]
        if self.foreign:
            options += ["-o", f"APT::Architecture={self.foreign}",
                        "-o", f"APT::Architectures={self.foreign}"]
        for line in archive.apt_options():
            name, value = line.rstrip(";").split(" ", 1)
            options += ["-o", f"{name}={value.strip(chr(34))}"]
        return chroot.command(self.root, [argv[0], *options, *argv[1:]],
                              binds=[cache.directory()], cwd=cwd)

    def packages(self):
        """Updates the package lists. Returns a dictionary from (name, version) of each kernel
        package to the fields of the package."""
        log = self.state / "update.log"
        proc.run_logged(f"reading the package lists of {self.where}",
                        self.apt("apt-get", "update"), log, 300)
        names = proc.output(self.apt("apt-cache", "pkgnames", "linux-")).split()
        wanted = [n for n in names if re.match(r"linux-[a-z]+-\d", n)]
        if not wanted:
            raise LabError(f"no kernel package in {self.where}; see {log}")
        text = proc.output(self.apt("apt-cache", "show", "--all-versions", *wanted), 120)
        found = {}
        for stanza in text.split("\n\n"):
            fields = dict(re.findall(r"^(\w[\w-]*): (.*)$", stanza, re.MULTILINE))
            if "Package" in fields:
                found[fields["Package"], fields["Version"]] = fields
        return found


def number(text):
    """Returns the sort key of a kernel release."""
    return [int(n) for n in re.findall(r"\d+", text)]


def series_of(release):
    """Returns the series, such as 7.3, of a release or of a package (given by its name)."""
    return ".".join(re.findall(r"\d+", release)[:2])


def needed(packages, image, version):
    """Returns two lists: the packages of a kernel that must be downloaded, and the packages that
    the archive lacks."""
    release = image.removeprefix("linux-image-")
    series = series_of(release)
    names = {image, f"linux-headers-{release}", f"linux-source-{series}"}
    # Newer image packages are empty, and depend on packages of the same version.
    depends = packages[image, version].get("Depends", "")
    names |= set(re.findall(rf"(linux-\w+-{re.escape(release)}) \(= ", depends))
    missing = sorted(n for n in names if (n, version) not in packages)
    return sorted(names), missing


def resolve(root, spec):
    """Returns the newest complete kernel that `spec` names: a series, a release, or a series with a
    flavour, such as 7.3-rt-amd64.

    The answer is stored for a day, so that a build with a filled cache needs no network.
    """
    of = arch_of(spec)
    memory = state(of) / f"resolved-{spec}.json"
    known = json.loads(memory.read_text()) if memory.exists() else None
    if known and 0 <= time.time() - memory.stat().st_mtime < FRESH_SECONDS:
        return known
    try:
        source = Archive(root, of)
        with cache.locked(source.state / "lists"):
            packages = source.packages()
    except LabError as error:
        if not known:
            raise
        say(f"keeping {known['release']}: {str(error).splitlines()[0]}")
        return known
    choice = choose(packages, spec, source.where)
    memory.write_text(json.dumps(choice, indent=1))
    return choice


def release_of(spec):
    """Returns the series or release of `spec`, and the flavour, which follows the first hyphen.

    If `spec` contains no flavour, returns the ordinary flavour of this machine's architecture.
    """
    version, _, flavour = spec.partition("-")
    return version, flavour or arch.of_host().debian


def arch_of(spec):
    """Returns the architecture of the kernel that `spec` names, as for `resolve`. If `spec` is
    missing, returns this machine's architecture."""
    if not spec:
        return arch.of_host()
    found = arch.of_flavour(release_of(spec)[1])
    if found is None:
        known = " and ".join(one.debian for one in arch.ALL)
        raise LabError(f"{spec!r} is no kernel of Debian's archive, whose names end in an "
                       f"architecture (the lab knows {known}): for a kernel of another "
                       f"distribution or of your own use make modules "
                       f"KDIR=/lib/modules/{spec}/build, with its headers installed")
    return found


def state(of=None):
    """Returns the directory of the package lists for an architecture."""
    foreign = "" if of is None or of.is_host else f"-{of.debian}"
    return cache.directory() / f"apt{foreign}"


def sorted_out(packages):
    """Returns two lists: the complete kernels, and the incomplete kernels. Each kernel is a tuple
    of the release, the version, the packages and the missing packages.
    """
    complete, partial = [], []
    for name, version in packages:
        found = IMAGE.match(name)
        if found:
            names, missing = needed(packages, name, version)
            (partial if missing else complete).append((found[1], version, names, missing))
    return complete, partial


def choose(packages, spec, where):
    """Selects a kernel from the lists. If no kernel matches, raises an error of one line that tells
    the user what to do."""
    complete, partial = sorted_out(packages)
    complete.sort(key=lambda item: (number(item[0]), number(item[1])))
    wanted, flavour = release_of(spec)

    def matches(item):
        version, is_of = release_of(item[0])
        of_series = version.startswith((f"{wanted}.", f"{wanted}+"))
        return is_of == flavour and (version == wanted or of_series)

    chosen = [item for item in complete if matches(item)]
    if not chosen:
        raise LabError(f"no complete kernel {spec!r} (image, headers and source of one "
                       f"version) in {where}{nearly(filter(matches, partial))}{too_old(spec)}; "
                       "use KERNEL= one of: "
                       f"{', '.join(i[0] for i in complete if ordinary(i[0]))}; or, for any "
                       f"kernel from {OLDEST} on that has CONFIG_RUST=y, make modules KDIR= its "
                       "headers, if they have the Rust metadata, or a prepared tree")
    release, version, names, _ = chosen[-1]
    sums = {n: packages[n, version]["SHA256"] for n in names}
    return {"release": release, "version": version, "packages": sums}


def series(root):
    """Returns two lists of kernel series in the archive. In the first list are the series with a
    complete kernel of the ordinary flavour. In the second list are the series that have only
    incomplete kernels of this flavour."""
    source = Archive(root)
    with cache.locked(source.state / "lists"):
        packages = source.packages()
    whole, lacking = ({series_of(item[0]) for item in items if ordinary(item[0])}
                      for items in sorted_out(packages))
    return sorted(whole, key=number), sorted(lacking - whole, key=number)


def nearly(partial):
    """Returns the end of an error message. `partial` contains matching kernels with missing
    packages. The returned text names the newest of these kernels and its missing packages. The text
    is empty if `partial` is empty."""
    found = sorted(partial, key=lambda item: number(item[0]))
    return f"; {found[-1][0]} lacks {', '.join(found[-1][3])}" if found else ""


def too_old(spec):
    """Returns why the module cannot be built for an old kernel, as part of a sentence."""
    old = re.match(r"\d+\.\d+", spec) and number(spec)[:2] < number(OLDEST)
    return f"; the module needs the Rust interfaces of {OLDEST} or newer" if old else ""


def ordinary(release):
    """Returns whether a release is the ordinary flavour of its architecture."""
    return release_of(release)[1] in {of.debian for of in arch.ALL}


def is_real_time(release):
    """Returns whether a release is the flavour with PREEMPT_RT."""
    return release_of(release)[1] in {of.rt for of in arch.ALL}
