# SPDX-License-Identifier: GPL-2.0
"""Deployment: after the administrator's installation, mount -o rdma uses this module."""

import os
import pathlib
import subprocess

from lib import module, pattern
from lib.case import ENV, case, check
from lib.env import REPO

RELEASE = os.uname().release
PARENT = pathlib.Path("/usr/lib/modules")
MODULES = PARENT / RELEASE
SECONDS = 120


def run(*argv):
    """Runs a command, and returns its output. If the command fails, the test case fails with a
    message that contains the output."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=ENV.patience(SECONDS), check=False)
    check(done.returncode == 0, f"{' '.join(map(str, argv))}: {done.stdout.strip()}")
    return done.stdout


def writable_modules(t):
    """Mounts a writable file system for the kernel's modules. The file system need not contain
    modules that are already loaded.
    """
    intree = next(MODULES.rglob("rpcrdma.ko*"))
    place = intree.relative_to(MODULES)
    content = intree.read_bytes()
    run("mount", "-t", "tmpfs", "tmpfs", PARENT)
    t.defer(run, "umount", PARENT)
    (MODULES / place).parent.mkdir(parents=True)
    (MODULES / place).write_bytes(content)
    run("depmod", RELEASE)


def mount_and_tell(t):
    """Mounts as a user does, while no transport module is loaded. Returns which client modules the
    kernel then loaded.
    """
    mount = t.mount(version="4.2")
    loaded = [client for client in ("ours", "intree") if module.loaded(client)]
    here, there = mount.path("installed")
    content = pattern.data(6, 0, 20000)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)
    os.unlink(here)
    mount.remove()
    for client in loaded:
        module.unload(client)
    return loaded


CONF = "xprtrdma_rs.conf"
# The two directories for modprobe's configuration: the first is for the administrator's files, the
# second for files of packages.
ETC, LIB = pathlib.Path("/etc/modprobe.d"), pathlib.Path("/usr/lib/modprobe.d")
TOLD = ("xprtrdma_rs: not loaded, NFS over RDMA uses the in-tree rpcrdma",)


def put(t, source, target):
    """Installs a file until the test ends. The test may remove the file earlier."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(pathlib.Path(source).read_bytes())
    t.defer(lambda: target.unlink(missing_ok=True))


def falls_back(t, why, *words):
    """Checks that a mount loads the in-tree module, and that the log says so and contains `words`.
    """
    t.log.mark()
    found = mount_and_tell(t)
    check(found == ["intree"], f"{why} a mount loads {found}")
    t.log.expect(*TOLD, *words)


# covers: peer.md 1.2: Without our modprobe configuration, mount -o rdma loads the in-tree module.
# With our configuration, mount loads our module. If our module is missing or cannot be loaded,
# mount still works with the in-tree module.
@case(versions=None, clients=("ours",), loaded=False, seconds=300)
def a_mount_loads_this_module_or_falls_back(t):
    writable_modules(t)
    found = mount_and_tell(t)
    check(found == ["intree"], f"before anything is installed a mount loads {found}")

    missing = f"Module xprtrdma_rs not found in directory /lib/modules/{RELEASE}"
    for place in (ETC, LIB):
        put(t, REPO / "tools/packaging" / CONF, place / CONF)
        falls_back(t, f"with the file in {place} and without the module", missing)
        if place == ETC:
            (place / CONF).unlink()

    ours = MODULES / "updates/xprtrdma_rs.ko"
    put(t, ENV.module_file, ours)
    run("depmod", RELEASE)
    t.log.mark()
    found = mount_and_tell(t)
    check(found == ["ours"], f"with the module a mount loads {found}")
    check(not t.log.find(*TOLD), "the log tells of a fall-back that was none")

    # The test calls modprobe with each name and alias of the transport modules while no module is
    # in use.
    for name, client in (("rpcrdma", "ours"), ("rpcrdma6", "ours"), ("xprtrdma", "ours"),
                         ("xprtrdma_rs", "ours"), ("svcrdma", "intree")):
        t.log.mark()
        for wanted in (name, "rpcrdma", "svcrdma"):
            run("modprobe", wanted)
            # The module that was loaded first stays loaded, even if modprobe is then called with
            # another name.
            loaded = [known for known in ("ours", "intree") if module.loaded(known)]
            check(loaded == [client], f"modprobe {wanted}, after {name}, loads {loaded}")
        if client == "ours":
            t.log.expect("xprtrdma_rs: loaded, so this host cannot serve NFS over RDMA")
        run("modprobe", "-r", "rpcrdma")
        check(not module.loaded(client), f"modprobe -r rpcrdma leaves {client}")

    local = ETC / "local.conf"
    t.defer(lambda: local.unlink(missing_ok=True))
    # modprobe obeys the administrator's settings for our module and for the in-tree module.
    for text, words in (("options xprtrdma_rs slots=1", "Invalid argument"),
                        ("blacklist xprtrdma_rs", "it is blacklisted"),
                        ("install xprtrdma_rs /bin/false", "xprtrdma_rs")):
        local.write_text(f"{text}\n")
        falls_back(t, f"with '{text}'", words)
        local.unlink()
    local.write_text("blacklist xprtrdma_rs\ninstall rpcrdma /bin/false\n")
    status, _ = module.modprobe("rpcrdma")
    check(status and not module.loaded("intree"), "a module is loaded that nobody may load")
    local.unlink()

    # The kernel refuses a truncated module file, as it refuses a module for another kernel or a
    # module without a valid signature.
    ours.write_bytes(ours.read_bytes()[:5000])
    falls_back(t, "with a module that the kernel refuses", "Exec format error")

    t.log.mark()
    ours.unlink()
    (LIB / CONF).unlink()
    run("depmod", RELEASE)
    found = mount_and_tell(t)
    check(found == ["intree"], f"after all is removed a mount loads {found}")
    check(not t.log.find(*TOLD), "the log tells of a fall-back although nothing is installed")


TRANSPORTS = ("xprtrdma_rs", "svcrdma_rs", "rpcrdma")


def loaded():
    """Returns which of our two modules and the in-tree module are loaded."""
    return [name for name in TRANSPORTS if pathlib.Path(f"/sys/module/{name}").is_dir()]


def unload_all():
    """Unloads our two modules and the in-tree module."""
    for name in loaded():
        run("rmmod", name)


def loads(wanted, *expected):
    """Calls modprobe with a name, and checks that afterwards exactly the expected modules are
    loaded."""
    run("modprobe", wanted)
    check(loaded() == list(expected), f"modprobe {wanted} loads {loaded()}, not {list(expected)}")


# covers: If the administrator has configured svcrdma_rs, a request for the server's transport loads
# svcrdma_rs. If svcrdma_rs is not configured or cannot be loaded, the request loads the in-tree
# module.
@case(versions=None, clients=("ours",), server="ours", loaded=False, seconds=120)
def a_server_loads_the_module_that_was_asked_for(t):
    t.defer(unload_all)
    writable_modules(t)
    put(t, REPO / "tools/packaging" / CONF, LIB / CONF)
    wish = ETC / "local.conf"
    t.defer(lambda: wish.unlink(missing_ok=True))
    updates = MODULES / "updates"
    put(t, ENV.module_file, updates / "xprtrdma_rs.ko")
    put(t, os.environ["LAB_SERVER_MODULE"], updates / "svcrdma_rs.ko")
    run("depmod", RELEASE)

    loads("svcrdma", "rpcrdma")
    run("modprobe", "-r", "rpcrdma")

    wish.write_text("alias nfs-rdma-server svcrdma_rs\n")
    loads("svcrdma", "svcrdma_rs")
    loads("rpcrdma", "xprtrdma_rs", "svcrdma_rs")
    loads("svcrdma", "xprtrdma_rs", "svcrdma_rs")
    run("modprobe", "-r", "svcrdma_rs", "xprtrdma_rs")
    loads("rpcrdma", "xprtrdma_rs")
    loads("svcrdma", "xprtrdma_rs", "svcrdma_rs")
    run("modprobe", "-r", "svcrdma_rs", "xprtrdma_rs")

    # While rpcrdma is loaded, svcrdma_rs cannot be loaded, and a log message names rpcrdma. This is
    # tested with an alias and with the name svcrdma_rs.
    t.log.mark()
    run("modprobe", "-C", "/dev/null", "rpcrdma")
    loads("svcrdma", "rpcrdma")
    t.log.expect("svcrdma_rs: not loaded, the in-tree rpcrdma is there")
    done = subprocess.run(["modprobe", "svcrdma_rs"], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, timeout=ENV.patience(SECONDS), check=False)
    check(done.returncode, "svcrdma_rs is loaded beside the server of rpcrdma")
    t.log.expect("svcrdma_rs: another module (rpcrdma?) serves")
    run("modprobe", "-C", "/dev/null", "-r", "rpcrdma")

    t.log.mark()
    (updates / "svcrdma_rs.ko").unlink()
    run("depmod", RELEASE)
    loads("svcrdma", "rpcrdma")
    t.log.expect("svcrdma_rs: not loaded:", "not found")
    run("modprobe", "-r", "rpcrdma")
