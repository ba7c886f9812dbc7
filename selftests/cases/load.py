# SPDX-License-Identifier: GPL-2.0
"""The client module is loaded and unloaded, and leaves no trace in the kernel."""

import contextlib
import errno
import ipaddress
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from lib import faults, guide, module, mounts, pattern, xprt
from lib.case import ENV, Skip, case, check, equal, wait
from lib.env import PORT

REGISTERED = "RPC: Registered rdma transport module"
UNREGISTERED = "RPC: Unregistered rdma transport module"


# covers: V1-114: The transport is registered with sunrpc exactly as long as the module is loaded.
@case(versions=None, loaded=False)
def transport_is_registered_while_loaded(t):
    t.log.mark()
    module.load()
    t.log.expect(REGISTERED)
    check(not t.log.find(UNREGISTERED), "the transport went away by itself")
    module.unload()
    t.log.expect(UNREGISTERED)


# covers: ULB-15, V1-114: A user types only -o rdma or -o proto=rdma. The mount uses port 20049 and
# needs no rpcbind.
@case(versions=None)
def mount_needs_no_more_than_o_rdma(t):
    for options in ("rdma", "proto=rdma"):
        mount = t.mount(options, raw=True)
        found = mount.active()
        check("proto=rdma" in found, f"-o {options}: {found}")
        check("port=20049" in found, f"-o {options}: {found}")
        os.statvfs(mount.where)
        mount.remove()


# covers: rmmod fails while a mount exists, and the mount still works.
@case()
def rmmod_is_refused_while_mounted(t):
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    for _ in range(3):
        check(module.references() > 0, "the module is not in use although mounted")
        module.rmmod_is_refused()
    content = pattern.data(1, 0, 100000)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)


# covers: An open debugfs file keeps the module loaded, because operations on the open file call the
# module's code.
@case(seconds=60)
def an_open_file_keeps_the_module(t):
    mount = t.mount()
    module_files = [xprt.DEBUGFS / name for name in ("parameters", "measure_latency")]
    mount_files = [file for file in next(xprt.DEBUGFS.glob("*/state")).parent.iterdir()
                   if file.name != "disconnect"]
    equal(len(mount_files), 3, "readable files of a transport")
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(open(file)) for file in mount_files]
        mount.remove()
        xprt.wait_gone()
        # The files have been removed while they are open. They cannot be read any more, but they
        # still keep the module loaded.
        for file in files:
            try:
                file.read()
            except OSError as error:
                equal(error.errno, errno.EIO, "errno of a read behind the removal")
            else:
                check(False, f"{file.name} could be read behind its removal")
        module.rmmod_is_refused()
    for name in module_files:
        with open(name) as file:
            check(file.read(), f"{name} is empty")
            module.rmmod_is_refused()
    module.unload()


# covers: Open files of the module in procfs and sysfs do not keep the module loaded. Reading these
# files after the module was unloaded does no harm.
@case(versions=("3",), clients=("ours",), seconds=30)
def other_open_files_do_not_keep_the_module(t):
    mount = t.mount()
    places = {"/proc/sys/sunrpc": "rdma_*",
              f"/sys/module/{module.name()}/parameters": "*",
              "/sys/devices/virtual/workqueue": "xprtrdma_rs*/max_active"}
    found = {place: list(pathlib.Path(place).glob(names)) for place, names in places.items()}
    check(all(found.values()), f"files: {found}")
    with contextlib.ExitStack() as opened:
        held = [opened.enter_context(open(file, "rb", buffering=0)) for files in found.values()
                for file in files]
        mount.remove()
        module.unload()
        for file in held:
            with contextlib.suppress(OSError):
                file.read(100)


# covers: V1-102, V1-110: Unmounting releases every object of the RDMA device.
@case()
def nothing_is_left_after_unmount(t):
    before = module.resources()
    mount = t.mount()
    here, there = t.directory(mount).path("file")
    content = pattern.data(2, 0, 3 << 20)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)
    mount.remove()
    xprt.wait_gone()
    module.wait_resources(before)
    wait.until(lambda: module.references() == 0, 20, "no reference to the module")
    module.unload()
    check(not list(xprt.DEBUGFS.parent.glob("xprtrdma_rs*")), "debugfs entries are left")


# covers: The module is loaded, used and unloaded several times. A leak or a stale pointer in the
# module would cause an error after several rounds.
@case(seconds=150, full_seconds=1800, loaded=False, slow=True)
def module_survives_many_lives(t):
    content = pattern.data(3, 0, 70000)
    before = module.resources()
    for life in range(ENV.pick(small=5, full=50, debug=3)):
        module.load()
        mount = mounts.Mount(t.version)
        t.defer(mount.remove)
        mount.make()
        here, there = mount.path(f"life-{life}")
        pathlib.Path(here).write_bytes(content)
        t.server.expect(there, content)
        equal(pathlib.Path(here).read_bytes(), content, "read back")
        os.unlink(here)
        mount.remove()
        module.unload()
    module.wait_resources(before)


# covers: peer.md 1.2: Only one module can own the transport. The log names the other module and the
# remedy.
@case(versions=None, clients=("ours",), loaded=False)
def insmod_names_the_conflict_with_the_intree_module(t):
    status, text = module.modprobe("rpcrdma")
    check(not status, f"modprobe rpcrdma: {text}")
    t.defer(module.unload, "intree")
    try:
        module.insmod()
    except OSError as error:
        check(error.errno in (errno.EEXIST, errno.EBUSY), f"insmod: {error}")
    else:
        raise AssertionError("insmod beside rpcrdma succeeded")
    check(not module.loaded("ours"), "the module stays although it failed")
    t.log.expect("xprtrdma_rs", "rpcrdma")
    # The message in the log also names the command that solves the problem.
    t.log.expect("xprtrdma_rs", "rmmod rpcrdma")
    mount = mounts.Mount("4.2")
    t.defer(mount.remove)
    mount.make()
    os.statvfs(mount.where)
    mount.remove()
    module.unload("intree")
    t.log.mark()
    module.load()
    t.log.expect(REGISTERED)


# covers: The in-tree module cannot be loaded while our module is loaded. The failed attempt does
# not disturb our module.
@case(versions=None, clients=("ours",))
def intree_module_is_kept_out_while_loaded(t):
    mount = t.mount(version="4.2")
    status, text = module.modprobe("rpcrdma")
    check(status and not module.loaded("intree"), f"rpcrdma loads beside ours: {text}")
    here, there = t.directory(mount).path("file")
    content = pattern.data(4, 0, 50000)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)


# covers: sysfs, modinfo and the log show the same version of the module, so that a bug report can
# name this version.
@case(versions=None, clients=("ours",), loaded=False)
def the_version_is_told_everywhere(t):
    t.log.mark()
    module.load()
    version = pathlib.Path("/sys/module/xprtrdma_rs/version").read_text().strip()
    check(re.fullmatch(r"\d+\.\d+\.\d+(\+\d+\.g[0-9a-f]+(\.dirty)?)?", version),
          f"version {version!r}")
    t.log.expect("xprtrdma_rs", "registered", f"version {version}")
    done = subprocess.run(["modinfo", "-F", "version", ENV.module_file], stdout=subprocess.PIPE,
                          text=True, timeout=60, check=True)
    equal(done.stdout.strip(), version, "the file's version")


# The modules of the RDMA stack. Each module is listed before the modules that use it.
STACK = ("ib_core", "rdma_cm")
# OWN is a field that modpost writes only into the kernel's own modules. SIGNED is the text with
# which the file of a signed module ends.
OWN, SIGNED = b"\0intree=Y\0", b"~Module signature appended~\n"


def as_if_foreign(name, where):
    """Copies a module of the kernel, and changes the copy so that it looks as if it was built
    outside the kernel, for instance by OFED.
    """
    path = next(pathlib.Path("/usr/lib/modules", os.uname().release).rglob(f"{name}.ko"))
    content = path.read_bytes()
    check(content.count(OWN) == 1, f"{path} does not say once that it is the kernel's own")
    copy = pathlib.Path(where, path.name)
    copy.write_bytes(content.replace(OWN, OWN.replace(b"intree", b"others")).removesuffix(SIGNED))
    return copy


def command(*argv):
    """Runs a command that must succeed."""
    subprocess.run(argv, timeout=ENV.patience(60), check=True)


def own_stack_and_device():
    """Loads the kernel's own RDMA modules again, and creates the RDMA device again."""
    command("modprobe", "-ra", *reversed(STACK))
    command("modprobe", "-a", "rdma_rxe", "rdma_cm")
    faults.add_client_device()


# covers: Our module refuses to load if a module of the RDMA stack is not the kernel's own. The
# module loader does not compare the layouts of structures. So our module checks that the modules of
# the stack are the kernel's own.
@case(versions=None, clients=("ours",), loaded=False)
def foreign_rdma_stack_is_refused(t):
    if ENV.patched:
        raise Skip("the lab builds the patched RDMA stack outside the kernel's tree")
    where = tempfile.mkdtemp()
    t.defer(shutil.rmtree, where)
    faults.remove_client_device()
    t.defer(own_stack_and_device)
    for foreign in STACK:
        command("modprobe", "-ra", "rdma_rxe", *reversed(STACK))
        # The kernel's own module is loaded once, so that modprobe loads its dependencies.
        command("modprobe", foreign)
        command("rmmod", foreign)
        module.insmod(file=as_if_foreign(foreign, where))
        command("modprobe", "-a", *STACK)
        for name in STACK:
            check(("O" in pathlib.Path(f"/sys/module/{name}/taint").read_text())
                  == (name == foreign), f"taint of {name} with a foreign {foreign}")
        t.log.mark()
        try:
            module.insmod()
        except OSError as error:
            equal(error.errno, errno.ENOEXEC, f"insmod beside a foreign {foreign}")
        else:
            module.unload()
            raise AssertionError(f"insmod beside a foreign {foreign} succeeded")
        check(not module.loaded(), "the module stays although it failed")
        t.log.expect(f"xprtrdma_rs: {foreign} is not the kernel's own", "OFED", "rpcrdma")


def said(*argv):
    """Returns the output of a command that fails."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=ENV.patience(60), check=False)
    check(done.returncode, f"{' '.join(map(str, argv))} succeeded")
    return done.stdout.strip()


# covers: Each message that insmod, modprobe, rmmod and sysctl print is explained in the guide.
@case(versions=None, clients=("ours",), loaded=False, stock_only=True)
def commands_say_what_the_guide_says(t):
    heard = set()

    def insmod(*words, file=ENV.module_file):
        heard.add(guide.explained("insmod", said("insmod", file, *words)))

    insmod("slots=0")
    where = pathlib.Path(tempfile.mkdtemp())
    t.defer(shutil.rmtree, where)
    content, mark = pathlib.Path(ENV.module_file).read_bytes(), b"\0vermagic="
    check(content.count(mark) == 1, "the module is not for one kernel")
    other = where / "other.ko"
    other.write_bytes(content.replace(mark, mark + b"0", 1)[:-1])
    insmod(file=other)
    command("modprobe", "-r", "rdma_cm")
    t.defer(command, "modprobe", "rdma_cm")
    insmod()
    command("modprobe", "rdma_cm")
    command("modprobe", "rpcrdma")
    t.defer(module.unload, "intree")
    insmod()
    module.unload("intree")
    module.load()
    insmod()
    equal(heard, set(guide.texts("insmod")), "texts of insmod")
    t.mount(version="4.2")
    slots = SYSCTLS / "rdma_slot_table_entries"
    for name, argv in (("modprobe", ("modprobe", "rpcrdma")), ("modprobe", ("modprobe", "svcrdma")),
                       ("modprobe", ("modprobe", "xprtrdma_rs")),
                       ("rmmod", ("rmmod", module.name())),
                       ("sysctl", ("sysctl", "-w", f"sunrpc.{slots.name}=1")),
                       ("echo", ("sh", "-c", f"echo 1 > {slots}"))):
        guide.explained(name, said(*argv))


# covers: Each message that mount(8) prints is explained in the guide.
@case(versions=None, clients=("ours",), loaded=False, stock_only=True, seconds=150)
def mount_says_what_the_guide_says(t):
    heard, where = set(), tempfile.mkdtemp()
    t.defer(os.rmdir, where)
    absent = str(ipaddress.ip_address(ENV.server) + 75)

    def mount(options, host=ENV.server, path=ENV.mem):
        text = said("mount", "-t", "nfs", "-o", f"{options},retry=0", f"{host}:{path}", where)
        heard.add(guide.explained("mount", text))

    nothing = pathlib.Path("/etc/modprobe.d/selftests.conf")
    nothing.write_text("install rpcrdma /bin/false\n")
    try:
        mount("rdma,vers=4.2")
    finally:
        nothing.unlink()
    module.load()
    for refused in ("nconnect=17", "max_connect=17", "xprtsec=tls", "vers=3,mountproto=rdma",
                    "remoteports=1"):
        mount(f"rdma,{refused}")
    mount(f"rdma,vers=4.2,port={PORT + 1}")
    mount(f"rdma,vers=4.2,port={PORT}", absent)
    mount("rdma,vers=4.2", "127.0.0.1")
    # This mount uses TCP and a port without a listener.
    mount(f"port={PORT}")
    mount("rdma", f"[{ENV.server6}]")
    mount("rdma6")
    mount("proto=rmda")
    mount("rdma,vers=5")
    mount("rdma,vers=4.3")
    mount("rdma", "nowhere.invalid")
    mount("rdma,vers=2")
    mount("rdma,vers=4.2", path="/nowhere")
    mount("rdma,vers=3", path="/nowhere")
    mount("rdma", path="/nowhere")
    # The program rpc.gssd is not running here, so mounts with Kerberos fail.
    mount("rdma,vers=4.2,sec=krb5")
    mount("rdma,sec=krb5")
    version = SYSCTLS / "rdma_version"
    version.write_text("3")
    try:
        mount("rdma,vers=4.2")
    finally:
        version.write_text("1")
    faults.remove_client_device()
    try:
        mount("rdma,vers=4.2")
    finally:
        faults.add_client_device()
    equal(heard, set(guide.texts("mount")), "texts of mount")
    # mount accepts these options without a message. If options contradict each other, the last
    # option counts. All mounts of a server use the transport of the first mount.
    proto(where, "rdma,proto=tcp", "tcp")
    t.mount(version="4.2")
    proto(where, "proto=tcp,vers=4.2", "rdma")


def proto(where, options, wanted):
    """Checks which transport a mount with these options uses."""
    command("mount", "-t", "nfs", "-o", options, f"{ENV.server}:{ENV.mem}", where)
    try:
        line, = (line for line in pathlib.Path("/proc/mounts").read_text().splitlines()
                 if line.split()[1] == where)
        check(f"proto={wanted}," in line, f"mount -o {options}: {line}")
    finally:
        command("umount", where)


# Pattern of a parameter with its range and default in the output of modinfo.
PARAMETER = re.compile(r"^(\w+):.*\((\d+)-(\d+), default (\d+)\)", re.MULTILINE)


def parameters():
    """Returns name, smallest value, largest value and default of each parameter of our module."""
    done = subprocess.run(["modinfo", "-F", "parm", ENV.module_file], stdout=subprocess.PIPE,
                          text=True, timeout=60, check=True)
    return [(name, *map(int, numbers)) for name, *numbers in PARAMETER.findall(done.stdout)]


# covers: A module parameter with a bad value is refused. The log names the parameter, and the
# module is not loaded.
@case(versions=None, clients=("ours",), loaded=False)
def bad_parameters_are_refused(t):
    known = parameters()
    check(known, "modinfo shows no parameter with a range")
    for name, least, most, _ in known:
        out_of_range = [str(most + 1), "4294967295"] + ([str(least - 1)] if least else [])
        for value in (*out_of_range, "-1", "many", "", "4294967296"):
            t.log.mark()
            try:
                module.insmod(f"{name}={value}")
            except OSError as error:
                check(error.errno in (errno.EINVAL, errno.ERANGE),
                      f"insmod {name}={value}: {error}")
            else:
                raise AssertionError(f"insmod accepts {name}={value}")
            check(not module.loaded(), f"{name}={value}: the module stays")
            # If the value is not a number, the kernel itself logs the module and the parameter.
            t.log.expect("xprtrdma_rs", name)


# covers: A mount works with the smallest and the largest documented value of each parameter.
@case(versions=None, clients=("ours",), loaded=False)
def parameters_at_their_borders_work(t):
    content = pattern.data(5, 0, 30000)
    for name, least, most, default in parameters():
        # The value 3 of `rdma_version` works only with servers that speak version two
        # (version_two.no_version_in_common).
        for value in (least, 2 if name == "rdma_version" else most, default):
            module.insmod(f"{name}={value}")
            mount = t.mount(version="4.2")
            here, there = mount.path("borders")
            try:
                pathlib.Path(here).write_bytes(content)
                t.server.expect(there, content)
                os.unlink(here)
            except (OSError, AssertionError) as error:
                raise AssertionError(f"{name}={value}: {error}") from error
            mount.remove()
            module.unload()


SYSCTLS = pathlib.Path("/proc/sys/sunrpc")
# Columns: name, smallest value and largest value of a sysctl.
RANGES = (("rdma_slot_table_entries", 4, 4096), ("rdma_max_inline_read", 1024, 65536),
          ("rdma_max_inline_write", 1024, 65536), ("rdma_version", 1, 3))


def state_line(name):
    """Returns the text of a line in the debugfs file `state` of the only transport."""
    text = next(xprt.DEBUGFS.glob("*/state")).read_text()
    found = re.findall(rf"^{name}: (.*)$", text, re.MULTILINE)
    check(found, f"no line '{name}' in {text}")
    return found[0]


# covers: peer.md 1.6: The sysctls affect the next connection, and refuse values out of range.
@case(versions=None, clients=("ours",), loaded=False)
def sysctls_rule_what_is_connected_next(t):
    module.insmod("slots=77 inline_size=8192")
    found = {name: int((SYSCTLS / name).read_text()) for name, _, _ in RANGES}
    equal(list(found.values()), [77, 8192, 8192, 1], "first values are the parameters")
    for name, least, most in RANGES:
        for value in (least - 1, most + 1, -1, "many"):
            try:
                (SYSCTLS / name).write_text(str(value))
            except OSError as error:
                equal(error.errno, errno.EINVAL, f"{name}={value}")
            else:
                raise AssertionError(f"{name} accepts {value}")
        equal(int((SYSCTLS / name).read_text()), found[name], f"{name} after bad values")
    for name, value in (("rdma_slot_table_entries", 16), ("rdma_max_inline_read", 2048),
                        ("rdma_max_inline_write", 1024)):
        (SYSCTLS / name).write_text(str(value))
    mount = t.mount(version="4.2")
    here, there = t.directory(mount).path("file")
    content = pattern.data(7, 0, 200000)
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)
    equal(state_line("inline"), "1024 out, 2048 in", "sizes of the connection")
    check(state_line("credits").startswith("16 requested"), state_line("credits"))
    # If the size in the sysctl is increased, the next connection uses the new size. If the size is
    # decreased, the next connection keeps the earlier size. The reason is that the client told the
    # server, when it created the NFSv4 session, that callbacks may have the earlier size. The
    # number of requests does not exceed the number of the mount's slots.
    (SYSCTLS / "rdma_slot_table_entries").write_text("64")
    for size in (4096, 1024):
        (SYSCTLS / "rdma_max_inline_read").write_text(str(size))
        before = mount.connects()
        xprt.force_disconnect()
        xprt.wait_reconnected_by(mount, before, lambda: os.statvfs(mount.where))
        equal(pathlib.Path(here).read_bytes(), content, "read back")
        equal(state_line("inline"), "1024 out, 4096 in", f"sizes with {size} set")
        check(state_line("credits").startswith("16 requested"), state_line("credits"))
    mount.remove()
    module.unload()
    check(not any((SYSCTLS / name).exists() for name, _, _ in RANGES), "files are left")
