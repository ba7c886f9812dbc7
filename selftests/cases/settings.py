# SPDX-License-Identifier: GPL-2.0
"""The settings that name rails. Each network namespace has its own settings, and our kernel module
checks them.
"""

import errno
import pathlib
import socket
import subprocess

from lib import module
from lib.case import ENV, Skip, case, check, equal
from lib.env import REPO

SYSCTLS = pathlib.Path("/proc/sys/sunrpc")
RAILS, SERVERS = SYSCTLS / "rdma_rails", SYSCTLS / "rdma_rail_servers"
SPACE = "settings"
# The length in bytes of the longest text that a settings file accepts.
LONGEST = 4096
COMMAND = REPO / "tools/xprtrdma-rails"
# A second address of the server, and an address of this machine.
SECOND, OURS = "192.0.2.7", "192.0.2.2"
CLIENTS = "cat /proc/fs/nfsd/clients/*/info || true"
EXPORTS, PIPES = pathlib.Path("/etc/exports"), pathlib.Path("/var/lib/nfs/rpc_pipefs")
PREPARE = f"""
mount -t nfsd nfsd /proc/fs/nfsd
mkdir -p {PIPES} /run/export
mount -t rpc_pipefs rpc_pipefs {PIPES}
echo '/run/export *(ro,fsid=9)' > {EXPORTS}
exportfs -ra
"""


def run(*argv, okay=True):
    """Runs a command; returns its output."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=ENV.patience(30), check=False)
    equal(done.returncode == 0, okay, f"{argv}: {done.stdout}")
    return done.stdout


def there(script, okay=True):
    """Runs a script in another network namespace."""
    return run("ip", "netns", "exec", SPACE, "sh", "-ec", script, okay=okay)


def refused(file, text):
    """Checks that writing a text is refused."""
    try:
        file.write_bytes(text)
    except OSError as error:
        equal(error.errno, errno.EINVAL, f"{file.name}: {text[:40]!r}")
    else:
        raise AssertionError(f"{file.name} takes {text[:40]!r}")


# A settings file returns the text that was written to it. If a text contains a bad entry, the text
# is refused, a log line names the entry, and the file keeps the previous text.
@case(versions=None, clients=("ours",), loaded=False)
def bad_entries_are_refused_and_named(t):
    module.insmod()
    equal((RAILS.read_text(), SERVERS.read_text()), ("\n", "\n"), "at first")
    good = {RAILS: ("auto", "off", "", "192.0.2.2,2001:db8::2 rxe0 rxe1/1"),
            SERVERS: ("192.0.2.1=198.51.100.1", "", "192.0.2.1=198.51.100.1 2001:db8::1=192.0.2.7")}
    bad = {RAILS: ("192.0.2.2 fe80::1", "rxe0/0", "auto rxe0", "rxe0 a;b"),
           SERVERS: ("192.0.2.1", "192.0.2.1=nowhere", "192.0.2.1=192.0.2.7,192.0.2.1=192.0.2.9")}
    named = {RAILS: ("fe80::1", "rxe0/0", "rxe0", "a;b"),
             SERVERS: ("192.0.2.1", "nowhere", "192.0.2.1")}
    for file, texts in good.items():
        for text in texts:
            # The text is written with a newline, as echo writes it, and without one. An empty write
            # never reaches the module.
            for written in (f"{text}\n", text):
                file.write_text(written)
                equal(file.read_text(), f"{text}\n", file.name)
        for text, word in zip(bad[file], named[file], strict=True):
            t.log.mark()
            refused(file, text.encode())
            t.log.expect(f"{file.name.removeprefix('rdma_')} refused", word)
            equal(file.read_text(), f"{texts[-1]}\n", f"{file.name} after {text}")
        for raw in (b"\xff", b"x" * (LONGEST + 1), b"rxe0\0", b"rxe0\0rxe1"):
            t.log.mark()
            refused(file, raw)
            t.log.expect(f"{file.name.removeprefix('rdma_')} refused")
        equal(file.read_text(), f"{texts[-1]}\n", f"{file.name} in the end")
        longest = texts[-1].ljust(LONGEST)
        file.write_text(longest)
        equal(file.read_text(), f"{longest}\n", "the longest text")
    # A text must be written with a single write, because only a whole text can be checked.
    with open(RAILS, "wb", buffering=0) as halves:
        halves.write(b"auto")
        try:
            halves.write(b"rxe0")
        except OSError as error:
            equal(error.errno, errno.EINVAL, "the second half")
        else:
            raise AssertionError("a text is taken in pieces")
    equal(RAILS.read_text(), "auto\n", "after half a text")
    module.unload()
    check(not RAILS.exists() and not SERVERS.exists(), "files are left")


# The module parameters are the initial settings of each network namespace. The module checks the
# parameters in the same way as a text that is written to a settings file.
@case(versions=None, clients=("ours",), loaded=False)
def parameters_are_the_first_texts(t):
    for bad in ("rails=rxe0/x", "rails=off,auto", "rail_servers=192.0.2.1",
                "rail_servers=192.0.2.1=192.0.2.1"):
        t.log.mark()
        try:
            module.insmod(bad)
        except OSError as error:
            equal(error.errno, errno.EINVAL, bad)
        else:
            raise AssertionError(f"insmod takes {bad}")
        check(not module.loaded(), f"{bad}: the module stays")
        t.log.expect(f"{bad.partition('=')[0]} refused")
    module.insmod("rails=192.0.2.2,rxe1 rail_servers=192.0.2.1=198.51.100.1")
    equal((RAILS.read_text(), SERVERS.read_text()),
          ("192.0.2.2,rxe1\n", "192.0.2.1=198.51.100.1\n"), "first texts")
    RAILS.write_text("auto")
    parameters = pathlib.Path(f"/sys/module/{module.name()}/parameters")
    equal((parameters / "rails").read_text(), "192.0.2.2,rxe1\n", "the parameter")
    module.unload()


# Each network namespace has its own settings, which end together with the namespace. A new
# namespace starts with the module parameters. The module can be unloaded while a file in a
# namespace is open.
@case(versions=None, clients=("ours",), loaded=False)
def namespaces_have_texts_of_their_own(t):
    if not pathlib.Path("/proc/self/ns/net").exists():
        raise Skip("no network namespaces")
    t.defer(subprocess.run, ["ip", "netns", "del", SPACE], stderr=subprocess.DEVNULL, check=False)
    run("ip", "netns", "add", SPACE)
    module.insmod("rails=auto")
    # The test uses a namespace that existed before the module was loaded, and then a new namespace.
    for turn in range(2):
        equal(there(f"cat {RAILS} {SERVERS}"), "auto\n\n", f"at first, {turn}")
        there(f"echo rxe0 > {RAILS}; echo 192.0.2.1=192.0.2.3 > {SERVERS}")
        there(f"echo rxe0/0 > {RAILS}", okay=False)
        equal(there(f"cat {RAILS} {SERVERS}"), "rxe0\n192.0.2.1=192.0.2.3\n", "there")
        equal((RAILS.read_text(), SERVERS.read_text()), ("auto\n", "\n"), "here")
        RAILS.write_text("off")
        equal(there(f"cat {RAILS}"), "rxe0\n", "there still")
        RAILS.write_text("auto")
        run("ip", "netns", "del", SPACE)
        run("ip", "netns", "add", SPACE)
    # An open file delays neither the end of the namespace nor the unloading of the module.
    reader = subprocess.Popen(["ip", "netns", "exec", SPACE, "sh", "-c",
                               f"exec 3< {RAILS}; echo open; read wait; cat <&3"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    t.defer(reader.kill)
    assert reader.stdout
    equal(reader.stdout.readline(), "open\n", "the other namespace's file")
    module.unload()
    text, _ = reader.communicate("\n", timeout=ENV.patience(30))
    check("auto" not in text, f"a file of no module: {text}")
    check(not RAILS.exists(), "files are left")
    there(f"test ! -e {RAILS}")


def asked(*groups):
    """Returns the exit status and the output of `COMMAND`."""
    done = subprocess.run([COMMAND, *groups], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=ENV.patience(60), check=False)
    return done.returncode, done.stdout


def serve(t):
    """Makes this machine an NFS server, but without nfsd threads, until the test case ends."""
    run("modprobe", "nfsd")
    t.defer(EXPORTS.unlink, missing_ok=True)
    t.defer(run, "sh", "-c", f"exportfs -ua; umount /proc/fs/nfsd {PIPES}")
    run("sh", "-ec", PREPARE)
    # Daemons from which the kernel's NFS server requests information about its clients and their
    # addresses.
    for argv in (("nfsdcld", "--foreground"), ("rpc.mountd", "--foreground")):
        daemon = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        t.defer(daemon.wait, ENV.patience(10))
        t.defer(daemon.terminate)


# xprtrdma-rails recognises whether addresses belong to one server or to two, even if both servers
# have the same name. Afterwards the server has no record of xprtrdma-rails as an NFS client. The
# test does not run on the debug kernel, which has no NFS server.
@case(versions=None, clients=("ours",), stock_only=True, seconds=90)
def servers_are_told_apart(t):
    t.server.run("ip", "addr", "add", f"{SECOND}/24", "dev", "eth0")
    t.defer(t.server.run, "ip", "addr", "del", f"{SECOND}/24", "dev", "eth0")
    group = f"{ENV.server}={SECOND}={ENV.server6}"
    equal(asked(), (0, "no server has more than one address in the table\n"), "an empty table")
    t.defer(SERVERS.write_text, "\n")
    SERVERS.write_text(group)
    for groups in ((), (group,)):
        code, text = asked(*groups)
        t.note(text)
        equal((code, text.count("the same server"), f"{group}: one server" in text), (0, 2, True),
              text)
    check("xprtrdma-rails" not in t.server.run("sh", "-c", CLIENTS), "a client is left")
    code, text = asked(f"{ENV.server}={OURS}")
    equal((code, f"{OURS}: cannot be told: connection refused" in text), (2, True), text)
    # This machine acts as another server: first with its own name, then with the name of the first
    # server.
    serve(t)
    name = socket.gethostname()
    t.defer(socket.sethostname, name)
    for its_name, said in ((name, "ANOTHER SERVER: owner"),
                           (t.server.run("hostname").strip(), "it calls itself the same")):
        socket.sethostname(its_name)
        t.defer(run, "rpc.nfsd", "0")
        run("rpc.nfsd", "--no-nfs-version", "3", "1")
        code, text = asked(f"{ENV.server}={OURS}", f"{OURS}={SECOND}", group)
        t.note(text)
        equal((code, text.count("NOT one server"), text.count(said), text.count("one server\n")),
              (1, 2, 2, 1), text)
        run("rpc.nfsd", "0")
