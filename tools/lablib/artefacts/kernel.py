# SPDX-License-Identifier: GPL-2.0
"""Kernel artefacts: kernels that the machines boot, and trees to build modules against."""

import dataclasses
import json
import pathlib
import shutil

from ..base import arch, cache, chroot, proc
from ..base.paths import REPO
from ..base.ui import LabError, say
from . import packages, tree

DEFAULT = "7.3"
# Increase RECIPE if a change of this file changes the contents of a built kernel.
RECIPE = 1
DEBUG_RECIPE = REPO / "tools/debug-kernel"
# Options that are added to the debug kernel's configuration for a real-time kernel.
REAL_TIME = DEBUG_RECIPE / "rt.config"
# Time limit for building the debug kernel, in seconds. On an idle machine the build takes ten
# minutes. On two processors that other virtual machines used as well, it took 64 minutes.
DEBUG_SECONDS = 3 * 3600
# Time limit for preparing a kernel, in seconds. On an idle machine the preparation takes a minute.
SECONDS = 2400
# Drivers that no virtual machine needs. Without these drivers, building a kernel takes half the
# time.
NO_MODULES = ("sound", "drivers/gpu", "drivers/media", "drivers/net/wireless",
              "drivers/iio", "drivers/hwmon", "drivers/staging", "drivers/usb",
              "drivers/scsi", "drivers/input", "drivers/net/ethernet")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel in the cache."""

    release: str
    arch: arch.Arch
    image: pathlib.Path
    modules: pathlib.Path  # directory that contains <release>/
    tree: pathlib.Path     # kernel tree that is prepared for external modules
    llvm: bool = False     # whether the kernel was built with clang
    debug: bool = False
    source: pathlib.Path | None = None
    package: dict | None = None
    compiler: str = ""     # compiler of a user's kernel tree, as rustc --version prints it

    def make_words(self):
        """Returns the arguments that kbuild needs."""
        words = [f"KERNELRELEASE={self.release}", *self.arch.make_words()]
        return words + (["LLVM=1"] if self.llvm else [])


def get(root, spec=None):
    """Returns the newest complete stock kernel that `spec` names (see packages.resolve). If `spec`
    names a directory, returns the user's kernel in that directory (see tree).

    `root` must contain the tools for the architecture of the kernel (see root.path).
    """
    if tree.is_named(spec):
        return own(root, tree.look(spec))
    choice = packages.resolve(root, spec or DEFAULT)
    of = packages.arch_of(choice["release"])
    made_by = tools(root, "rustc", "bindgen", "gcc", "pahole",
                    *([] if of.is_host else [of.compiler]))
    name = f"{choice['release']}-{cache.key(RECIPE, choice['version'], made_by)}"
    path = cache.entry("kernel", name, lambda target: make(root, choice, target))
    return Kernel(release=choice["release"], arch=of, image=path / "vmlinuz",
                  modules=path / "modules", tree=path / "tree",
                  source=path / "linux-source.tar.xz",
                  package=json.loads((path / "package.json").read_text()))


def arch_of(spec):
    """Returns the architecture of the kernel with this name. The name None means a kernel for this
    machine's architecture."""
    return tree.look(spec).arch if tree.is_named(spec) else packages.arch_of(spec)


def own(root, found):
    """Returns a kernel that the user has built."""
    return Kernel(release=found.release, arch=found.arch, image=found.image,
                  modules=tree.modules(root, found), tree=found.directory,
                  llvm=found.has("CC_IS_CLANG"), debug=found.has("PROVE_LOCKING"),
                  compiler=found.config.get("RUSTC_VERSION_TEXT", "").strip('"'))


def tools(root, *names):
    """Returns the versions of the tools in the root file system. The key of a kernel in the cache
    contains these versions, because the built files depend on them."""
    return proc.output(chroot.command(
        root, ["dpkg-query", "-W", "-f", "${Package}=${Version}\n", *names]))


def make(root, choice, target):
    """Downloads a kernel's packages, and puts the prepared kernel into the directory `target`."""
    release = choice["release"]
    of = packages.arch_of(release)
    debs, prepared = target / "debs", target / "tree"
    debs.mkdir(parents=True)
    log = target.with_suffix(".log")
    log.unlink(missing_ok=True)
    say(f"kernel {release}, packages {choice['version']}; log: {log}")

    def run(text, argv, cwd="/", timeout=SECONDS):
        proc.run_logged(text, chroot.command(root, argv, [cache.directory()], cwd),
                        log, timeout)

    def shell(text, script, *args, cwd="/"):
        run(text, ["sh", "-euxc", script, "sh", *args], cwd)

    wanted = [f"{name}={choice['version']}" for name in choice["packages"]]
    proc.run_logged(f"downloading {len(wanted)} packages",
                    packages.Archive(root, of).apt("apt-get", "download", *wanted, cwd=debs),
                    log, 600)
    shell("unpacking packages", 'for deb in "$1"/*.deb; do dpkg-deb -x "$deb" "$2"; done',
          debs, target / "files")
    files = target / "files"
    # Newer kernel packages contain the image and the configuration in the directory of the modules.
    beside = f"usr/lib/modules/{release}"
    one_of(files, f"boot/vmlinuz-{release}", f"{beside}/vmlinuz").rename(target / "vmlinuz")
    config = one_of(files, f"boot/config-{release}", f"{beside}/config")
    config.rename(target / "config")
    source = one_of(files, "usr/src/linux-source-*.tar.xz")
    source.rename(target / "linux-source.tar.xz")

    one_of(files, "usr/lib/modules", "lib/modules").rename(target / "modules")
    for link in ("build", "source"):
        (target / "modules" / release / link).unlink(missing_ok=True)
    for part in NO_MODULES:
        cache.remove(target / "modules" / release / "kernel" / part)
    # The modules are unpacked here once, because each machine would need a long time for that.
    shell("unpacking modules",
          'find "$1" -name "*.ko.xz" -print0 | xargs -0 -P2 -n64 xz -d; '
          'mkdir "$3"; mkdir "$3/lib"; ln -s "$1" "$3/lib/modules"; '
          'depmod -b "$3" "$2"; rm -r "$3"',
          target / "modules", release, target / "depmod")

    prepared.mkdir()
    shell("unpacking the source",
          'tar -x --strip-components=1 -C "$2" -f "$1"', target / "linux-source.tar.xz",
          prepared)
    shutil.copy(target / "config", prepared / ".config")
    make_argv = ["make", "-j2", f"KERNELRELEASE={release}", *of.make_words()]
    run("configuring the tree", [*make_argv, "olddefconfig"], prepared)
    run("preparing the tree for modules", [*make_argv, "modules_prepare"], prepared)
    symvers = one_of(files, f"usr/src/linux-headers-{release}/Module.symvers")
    shutil.copy(symvers, prepared / "Module.symvers")
    # Only on amd64 does the kernel image contain a vmlinux that can be extracted.
    if of == arch.AMD64:
        # The BTF of modules is created from the BTF in vmlinux.
        shell("extracting vmlinux", 'scripts/extract-vmlinux "$1" > vmlinux',
              target / "vmlinuz", cwd=prepared)
    cache.remove(files)
    cache.remove(debs)
    (target / "package.json").write_text(json.dumps(choice, indent=1))


def one_of(base, *patterns):
    """Returns the first file below `base` that matches one of the patterns. Several patterns are
    needed because different versions of the packages have the file at different paths."""
    for pattern in patterns:
        for found in base.glob(pattern):
            return found
    raise LabError(f"the kernel packages hold none of {', '.join(patterns)}")


def debug(root, stock):
    """Returns the debug kernel. Builds it from the stock kernel's source if it is missing.

    The debug kernel has PREEMPT_RT if the stock kernel has PREEMPT_RT.
    """
    if not stock.package:
        raise LabError("the debug kernel is built from a stock kernel's source: --debug and a "
                       "tree of your own exclude each other")
    if stock.arch != arch.AMD64:
        raise LabError(f"there is no debug kernel for {stock.arch.debian}")
    more = [REAL_TIME] if packages.is_real_time(stock.release) else []
    recipe = [*sorted(p for p in DEBUG_RECIPE.iterdir() if p.is_file() and p != REAL_TIME), *more]
    name = cache.key(stock.package["version"], tools(root, "rustc", "clang"),
                     *(p.read_text() for p in recipe))

    def build(target):
        log = target.with_suffix(".log")
        target.parent.mkdir(parents=True, exist_ok=True)
        proc.run_logged(f"building the debug kernel (log: {log})",
                        [DEBUG_RECIPE / "build", "--root", root, "--source", stock.source,
                         "--out", target, "--jobs", "2", "--timeout", str(DEBUG_SECONDS),
                         *(word for path in more for word in ("--more", path))],
                        log, DEBUG_SECONDS)

    path = cache.entry("debug-kernel", name, build)
    return Kernel(release=(path / "release").read_text().strip(), arch=stock.arch,
                  image=path / "bzImage",
                  modules=path / "modules/lib/modules", tree=path / "tree", llvm=True,
                  debug=True)
