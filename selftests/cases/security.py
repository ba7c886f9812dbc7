# SPDX-License-Identifier: GPL-2.0
"""Kerberos over RDMA: authentication, integrity and privacy."""

import errno
import os
import pathlib

from lib import kerberos, pattern
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait
from lib.injection import Injection
from lib.responder import Responder
from lib.workers import Worker

KIB, MIB = 1 << 10, 1 << 20
FLAVOURS = ("krb5", "krb5i", "krb5p")


def sizes():
    """Returns lengths of transfers in bytes. The shortest transfers fit into an inline message.
    Most lengths are odd numbers."""
    few = (1, 997, 5003, 200001, MIB + 3)
    return ENV.pick(small=few, debug=few[:4],
                    full=(*few, 3, 4091, 65537, 777777, MIB - 1, MIB, 3 * MIB + 1))


def transfers(t, mount, number):
    """Transfers data by direct and buffered I/O, with large replies and long calls. All data are
    compared on the server."""
    top = t.directory(mount)
    here, there = top.path("direct")
    buffer, content = Buffer(4 * MIB), b""
    fd = os.open(here, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    for size in sizes():
        data = pattern.data(number, len(content), size)
        buffer.write(fd, data, len(content), 5)
        found = buffer.read(fd, size, len(content), 3)
        problem = pattern.difference(found, data, len(content))
        check(problem is None, f"{size} bytes: {problem}")
        content += data
    os.close(fd)
    t.server.expect(there, content)
    here, there = top.path("buffered")
    pathlib.Path(here).write_bytes(content)
    t.server.expect(there, content)
    t.server.call("create", top.there, ENV.pick(small=300, full=5000, debug=60), "f")
    equal(sorted(os.listdir(top.here)), t.server.call("names", top.there), "the directory")
    os.symlink("x" * 1000, f"{top.here}/link")
    equal(t.server.call("readlink", f"{top.there}/link"), "x" * 1000, "the symbolic link")


# covers: V1-118, V1-119, V1-120, V1-121, V1-122, ULB-41: With integrity or privacy no data are
# placed directly. Large calls and replies are sent as a whole, in chunks.
@case(seconds=120, full_seconds=900, slow=True)
def kerberos_carries_everything(t):
    realm = kerberos.Realm(t)
    for number, flavour in enumerate(FLAVOURS):
        mount = realm.mount(flavour)
        options = mount.active()
        check(f"sec={flavour}" in options, f"{flavour}: {options}")
        transfers(t, mount, number)
        if ENV.ours:
            numbers = mount.xprts()[0]
            allowed, direct = flavour == "krb5", numbers["write_segments"] > 0
            equal(numbers["nomsg_call"] == 0, direct, f"{flavour}: no long call")
            # With sec=krb5 the kernel's decision about direct placement of data is random, because
            # gss_create_new() does not initialise `au_flags`. A kernel that clears allocated memory
            # always decides the same.
            if not (allowed and ENV.debug):
                equal(direct, allowed, f"{flavour}: data read directly")
            check(numbers["reply_segments"] > 0, f"{flavour}: no Reply chunk")
            equal(numbers["bad_reply"], 0, f"{flavour}: bad replies")
            equal(numbers["connect_count"], 1, f"{flavour}: connections")
        mount.remove()


def as_user(_, uid, path, content):
    """Writes and reads a file as the user `uid`, in a separate process."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    try:
        with open(path, "wb") as file:
            file.write(content)
        with open(path, "rb") as file:
            return file.read() == content
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def write_directly(_, path, content):
    """Makes one large write, in a separate process."""
    buffer = Buffer(len(content))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644)
    buffer.write(fd, content, 0)
    os.close(fd)


# covers: V1-048
# covers: MAL-104, V1-105: With privacy the kernel encrypts a call into separate pages. When it
# encodes the call again, it first frees these pages, and then may fail to allocate new pages. The
# server must have no access to the freed pages.
@case(versions=(), clients=("ours",), debug_only=True, seconds=100)
def pages_of_a_call_encoded_anew_are_out_of_reach(t):
    realm, responder = kerberos.Realm(t), Responder()
    t.defer(responder.close)
    mount = realm.mount("krb5p", "timeo=50", version="3", port=responder.port)
    here, there = t.directory(mount).path("file")
    # Allocations of pages fail, except allocations of pages for slabs. The checksum of a call needs
    # a slab allocation, and the call would end if that allocation failed.
    injection = Injection(t, ("fail_page_alloc",))
    injection.only_module("auth_rpcgss")
    injection.spare_slabs()
    content = pattern.data(11, 0, 64 * KIB)
    responder.call("arm", "held write")
    writer = Worker(write_directly, here, content)
    wait.until(lambda: responder.call("log")[0] == 0, ENV.patience(20), "the call is held")
    equal(responder.call("again"), "the same", "the call's memory")
    injection.every(1)
    wait.until(injection.met, ENV.patience(20), "encoded anew, without memory")
    equal(responder.call("again"), "RDMA Read: rem_access", "the pages of the last encoding")
    t.note(f"{injection.stop()} allocations failed")
    writer.join(ENV.patience(20))
    t.server.expect(there, content)


# covers: V1-119: A Kerberos ticket names the user. A user without a ticket has no access.
@case(versions=("4.2",), seconds=60)
def users_are_who_their_tickets_say(t):
    realm = kerberos.Realm(t)
    mount = realm.mount("krb5p")
    here, there = t.directory(mount).path("file")
    content = pattern.data(9, 0, 100001)
    stranger = Worker(as_user, kerberos.UID_HERE + 1, here, content)
    equal(stranger.join(ENV.patience(60)), "EACCES", "a user without a ticket")
    t.defer(os.unlink, realm.log_in())
    equal(Worker(as_user, kerberos.UID_HERE, here, content).join(ENV.patience(60)), "True",
          "the user's own data")
    t.server.expect(there, content)
    equal(t.server.call("stat", there)["uid"], kerberos.UID_THERE, "the owner on the server")
    equal(os.stat(here).st_uid, kerberos.UID_HERE, "the owner here")
