# SPDX-License-Identifier: GPL-2.0
"""A Kerberos realm: key server, service and users, in the lab's two machines."""

import os
import pathlib
import subprocess
import tempfile

from . import mounts, namespace, wait
from .env import ENV
from .server_agent import open_files

REALM, DOMAIN = "LAB.TEST", "lab.test"
SERVICE, MACHINE = f"nfs/server.{DOMAIN}", f"nfs/client.{DOMAIN}"
USER, PASSWORD = "alice", "correct horse"
# The user has different user ids on the two machines, so that only the name identifies the user.
UID_HERE, UID_THERE = 3001, 2001
EXPORT_OPTIONS = "rw,no_root_squash,no_subtree_check,insecure,fsid=1,async"
PIPES = "/var/lib/nfs/rpc_pipefs"
KDC_CONF = f"""\
[realms]
    {REALM} = {{
        database_name = /run/krb5/principal
        key_stash_file = /run/krb5/stash
    }}
"""
SET_UP = f"""
mkdir -p /run/krb5
kdb5_util create -r {REALM} -s -P lab
kadmin.local -q 'addprinc -randkey {SERVICE}'
kadmin.local -q 'addprinc -randkey {MACHINE}'
kadmin.local -q 'addprinc -pw "{PASSWORD}" {USER}'
kadmin.local -q 'ktadd -k /etc/krb5.keytab {SERVICE}'
kadmin.local -q 'ktadd -k /run/krb5/client.keytab {MACHINE}'
modprobe rpcsec_gss_krb5
"""
LOG = "/run/krb5/log"
KDC_PORT = 88
# rpc.gssd prints this name when it receives a request of the kernel through a pipe for requests in
# the old format.
OLD_PIPE = "handle_krb5_upcall"
# The command of each daemon on the server, and the kernel file that the daemon holds open while it
# works. The key server holds no kernel file open. The daemons run in the foreground. So their
# process ids are known, and the case can end them.
SERVER_PROGRAMS = (("krb5kdc -n", None),
                   ("rpc.svcgssd -f -n -vv -rr", "auth.rpcsec.init/channel"),
                   ("rpc.idmapd -f -S", "nfs4.idtoname/channel"))


def files(server, client):
    """Returns the files that the realm needs on both machines, as a dictionary from the names of
    the files to their contents."""
    return {
        "/etc/krb5.conf": f"""\
[libdefaults]
    default_realm = {REALM}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    rdns = false
[realms]
    {REALM} = {{
        kdc = {server}
    }}
[domain_realm]
    .{DOMAIN} = {REALM}
[logging]
    kdc = STDERR
""",
        "/etc/hosts": f"""\
127.0.0.1 localhost
{server} server.{DOMAIN} server
{client} client.{DOMAIN} client
""",
        "/etc/idmapd.conf": f"""\
[General]
Domain = {DOMAIN}
Local-Realms = {REALM}
[Mapping]
Nobody-User = nobody
Nobody-Group = nogroup
""",
    }


class Realm:
    """The programs and files that `sec=krb5` needs during a case. The files on the server stay
    after the case."""

    def __init__(self, t):
        self.t = t
        self.gssd: subprocess.Popen | None = None
        self.log = t.stack.enter_context(tempfile.TemporaryFile("a+"))  # noqa: SIM115
        own = namespace.addresses()[0].partition("/")[0]
        for name, text in files(ENV.server, own).items():
            self.keep(name)
            pathlib.Path(name).write_text(text)
            t.server.call("text", name, text)
        self.keep("/etc/passwd")
        with_user(pathlib.Path("/etc/passwd").read_text, pathlib.Path("/etc/passwd").write_text,
                  UID_HERE)
        with_user(lambda: t.server.call("text", "/etc/passwd"),
                  lambda text: t.server.call("text", "/etc/passwd", text), UID_THERE)
        self.serve()
        self.join()
        self.export(f"{EXPORT_OPTIONS},sec=sys:krb5:krb5i:krb5p")
        t.defer(self.export, f"{EXPORT_OPTIONS},sec=sys")

    def keep(self, name):
        """Restores a file of this machine at the end of the case."""
        path = pathlib.Path(name)
        if path.exists():
            self.t.defer(path.write_bytes, path.read_bytes())
        else:
            self.t.defer(path.unlink)

    def export(self, options):
        self.t.server.run("exportfs", "-o", options, f"*:{ENV.mem}")

    def serve(self):
        """Starts the key server, the server's daemon for GSS contexts, and the server's daemon for
        the names of users."""
        server = self.t.server
        server.call("text", "/etc/krb5kdc/kdc.conf", KDC_CONF)
        # The realm is created once for each boot of the machine.
        server.run("sh", "-ec", f"[ -e /run/krb5/client.keytab ] || {{ {SET_UP} }}")
        server.run("sh", "-c", f"> {LOG}")
        self.t.on_failure(lambda: server.call("text", LOG))
        for program, file in SERVER_PROGRAMS:
            pid = server.run("sh", "-c", f"{program} >> {LOG} 2>&1 & echo $!").strip()
            self.t.defer(self.end, pid)
            wait.until(lambda p=pid, f=file: self.at_work(p, f), ENV.patience(20),
                       f"{program} is there")

    def at_work(self, pid, file):
        """Returns whether the daemon with this process id accepts requests."""
        if file:
            return file in self.t.server.call("open_files", pid)
        listeners = self.t.server.run("ss", "-Hltnp", "sport", "=", f":{KDC_PORT}")
        return f"pid={pid}," in listeners

    def end(self, pid):
        """Stops the program, and waits until it has ended. A program that is started later can then
        use the same port, and receives all requests.
        """
        server = self.t.server
        server.call("run", ["kill", pid])
        wait.until(lambda: server.call("run", ["kill", "-0", pid])[0], ENV.patience(20),
                   "a daemon of the server is gone")

    def join(self):
        """Installs the key of this machine. Starts rpc.gssd, from which the kernel requests
        security contexts.
        """
        self.keep("/etc/krb5.keytab")
        keytab = self.t.server.read("/run/krb5/client.keytab", 0, 1 << 16)
        pathlib.Path("/etc/krb5.keytab").write_bytes(keytab)
        subprocess.run(["modprobe", "rpcsec_gss_krb5"], timeout=ENV.patience(30), check=True)
        os.makedirs(PIPES, exist_ok=True)
        if not os.listdir(PIPES):
            subprocess.run(["mount", "-t", "rpc_pipefs", "rpc_pipefs", PIPES],
                           timeout=ENV.patience(30), check=True)
            self.t.defer(mounts.umount, PIPES)
        self.t.on_failure(self.said)
        self.t.defer(self.end_gssd)
        self.start_gssd()

    def start_gssd(self):
        self.log.truncate(0)
        self.gssd = subprocess.Popen(["rpc.gssd", "-f", "-vv", "-rr", "-p", PIPES],
                                     stdout=self.log, stderr=self.log)
        # The kernel knows that the daemon runs, because the daemon holds the pipe open.
        wait.until(lambda: "clntXX/gssd" in open_files(self.gssd.pid), ENV.patience(20),
                   "rpc.gssd is there")

    def end_gssd(self):
        if self.gssd:
            self.gssd.terminate()
            self.gssd.wait(ENV.patience(10))

    def said(self):
        """Returns the text that rpc.gssd has logged since it was started."""
        self.log.seek(0)
        return self.log.read()

    def mount(self, flavour, options="", **more):
        """Mounts with Kerberos. If rpc.gssd has opened the wrong pipe, starts rpc.gssd again and
        repeats the mount.

        For each client the kernel creates two pipes: one for requests in the new format, and one
        for requests in the old format. rpc.gssd looks for the new pipe, and then for the old pipe.
        If the kernel creates the pipes between these two steps, the daemon opens the old pipe. As
        long as the old pipe is open, the kernel sends requests in the old format, which name no
        encryption types. The daemon then uses its default encryption types. The daemon's library
        does not know the default types, so the mount fails (gssd_scan_clnt and limit_krb5_enctypes,
        nfs-utils 2.8).
        """
        options = f"sec={flavour},{options}" if options else f"sec={flavour}"
        try:
            return self.t.mount(options, **more)
        except mounts.Refused:
            if OLD_PIPE not in self.said():
                raise
        self.t.note("rpc.gssd took a client's old pipe: started again")
        self.end_gssd()
        self.start_gssd()
        return self.t.mount(options, **more)

    @staticmethod
    def log_in():
        """Gets a ticket for the user, in the file that the daemon reads."""
        cache = f"/tmp/krb5cc_{UID_HERE}"
        subprocess.run(["kinit", "-c", cache, USER], input=f"{PASSWORD}\n", text=True,
                       stdout=subprocess.DEVNULL, timeout=ENV.patience(60), check=True)
        os.chown(cache, UID_HERE, UID_HERE)
        return cache


def with_user(read, write, uid):
    """Adds the user to /etc/passwd on one machine, unless that file contains the user. `read`
    returns the text of the file, and `write` replaces the text."""
    text = read()
    if f"\n{USER}:" not in text:
        write(f"{text}{USER}:x:{uid}:{uid}::/tmp:/bin/sh\n")


__all__ = ["UID_HERE", "UID_THERE", "Realm"]
