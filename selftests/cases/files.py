# SPDX-License-Identifier: GPL-2.0
"""Tests of names, links and many files. The tests make small calls of every kind."""

import errno
import hashlib
import os
import pathlib
import stat

from lib import pattern
from lib.attributes import attribute
from lib.case import ENV, case, check, equal


def checksums(contents):
    """Returns size and checksum of each file, in the form in which the server's helper reports a
    tree."""
    return {name: [len(data), hashlib.sha256(data).hexdigest()]
            for name, data in contents.items()}


def refused(number, function, *args):
    """Checks that a call fails with a given errno."""
    try:
        function(*args)
    except OSError as error:
        equal(error.errno, number, f"errno of {function.__name__}")
    else:
        raise AssertionError(f"{function.__name__}{args} succeeds")


# covers: V1-012, V1-113: Thousands of calls share a few slots, and no call is lost.
@case(seconds=120, full_seconds=1200, slow=True)
def many_small_files(t):
    top = t.directory(t.mount())
    contents = {}
    for number in range(ENV.pick(small=500, full=5000, debug=80)):
        name = f"d{number % 7}/f{number}"
        contents[name] = pattern.data(number, 0, number * 37 % 6000)
    for number in range(7):
        os.mkdir(f"{top.here}/d{number}")
    for name, data in contents.items():
        pathlib.Path(top.here, name).write_bytes(data)
    equal(t.server.call("tree", top.there), checksums(contents), "tree on the server")
    for name in list(contents)[::10]:
        equal(pathlib.Path(top.here, name).read_bytes() == contents[name], True, name)


# covers: V1-064, V1-067, V1-128: The server answers READDIR with as many bytes as the client asks
# for. Listings of large directories are complete.
@case(seconds=90, full_seconds=600)
def large_directories_are_listed_whole(t):
    top = t.directory(t.mount())
    count = ENV.pick(small=1000, full=10000, debug=300)
    prefix = "a-name-of-some-length-so-that-replies-are-long-" * 2
    t.server.call("create", top.there, count, prefix)
    expected = sorted(f"{prefix}{number}" for number in range(count))
    equal(sorted(os.listdir(top.here)) == expected, True, "names, each once")
    with os.scandir(top.here) as entries:
        inodes = {entry.name: entry.inode() for entry in entries}
    equal(sorted(inodes) == expected, True, "names of a second listing")
    equal(len(set(inodes.values())), count, "different inode numbers")
    # The client notices that the directory has changed, and lists it again with READDIRPLUS, which
    # also returns the attributes.
    for name in expected[::10]:
        os.unlink(f"{top.here}/{name}")
    with os.scandir(top.here) as entries:
        sizes = {entry.name: entry.stat().st_size for entry in entries}
    del expected[::10]
    equal(sorted(sizes) == expected, True, "names after removals")
    equal(set(sizes.values()), {0}, "sizes")


# covers: ULB-01, ULB-02, ULB-37, V1-028: Texts of symbolic links arrive intact, inline or in a
# chunk.
@case()
def symbolic_links_of_every_length(t):
    top = t.directory(t.mount())
    for length in (1, 2, 3, 4, 5, 70, 255, 1000, 1001, 1002, 1003, 1020, 1021, 1022, 1023):
        text = ("./" + "x" * 250 + "/" + "y" * 4000)[:length] if length > 4 else "abcd"[:length]
        here, there = top.path(f"link-{length}")
        os.symlink(text, here)
        equal(t.server.call("readlink", there), text, "link on the server")
        other = text[::-1].replace("/", "_")
        t.server.run("ln", "-sfn", other, f"{there}-2")
        equal(os.readlink(f"{here}-2"), other, "link read")


def user_attributes(path):
    """Returns the extended attributes that a user has set on a file."""
    return sorted(name for name in os.listxattr(path) if name.startswith("user."))


# covers: ULB-03, V1-029: Extended attributes may be long. They are never placed directly.
@case(versions=("4.2",), seconds=90)
def extended_attributes_up_to_64_kibibytes(t):
    here, there = t.directory(t.mount()).path("file")
    pathlib.Path(here).write_bytes(b"x")
    values = {}
    for size in (0, 1, 2, 3, 4, 70, 1000, 3500, 3800, 3900, 4000, 4096, 16384, 65535, 65536):
        name = f"user.size-{size}"
        values[name] = pattern.data(20, 0, size)
        os.setxattr(here, name, values[name])
    equal(t.server.call("listxattr", there), sorted(values), "attributes on the server")
    equal(user_attributes(here), sorted(values), "attributes listed")
    t.server.setxattr(there, "user.theirs", b"theirs")
    for name, value in values.items():
        equal(t.server.getxattr(there, name) == value, True, f"{name} on the server")
        equal(attribute(here, name) == value, True, f"{name} read")
    for name in values:
        os.removexattr(here, name)
    equal(t.server.call("listxattr", there), ["user.theirs"], "attributes left")


# covers: ULB-03, V1-064: A list of attribute names is so long that it needs a Reply chunk.
@case(versions=("4.2",))
def many_extended_attributes_are_listed(t):
    here, there = t.directory(t.mount()).path("file")
    pathlib.Path(here).write_bytes(b"x")
    expected = sorted(f"user.{number:04}-" + "n" * 200 for number in range(80))
    for name in expected:
        t.server.setxattr(there, name, b"x")
    equal(user_attributes(here), expected, "names")


def posix_acl(users):
    """Returns a POSIX ACL with an entry for each of some users, as bytes."""
    def entry(tag, permissions, who=0xffffffff):
        return (tag.to_bytes(2, "little") + permissions.to_bytes(2, "little")
                + who.to_bytes(4, "little"))

    return (b"\x02\0\0\0" + entry(1, 6) + b"".join(entry(2, 4 + n % 2, 1000 + n)
                                                  for n in range(users))
            + entry(4, 4) + entry(0x10, 7) + entry(0x20, 4))


# covers: ULB-04, ULB-07, ULB-11, V1-129: The NFSACL protocol shares the connection with NFS. The
# transport must provide the pages for the NFSACL reply.
@case(versions=("3",))
def posix_acls_over_the_side_protocol(t):
    top = t.directory(t.mount())
    for users in (1, 2, 30, 300):
        here, there = top.path(f"file-{users}")
        pathlib.Path(here).write_bytes(b"x")
        acl = posix_acl(users)
        os.setxattr(here, "system.posix_acl_access", acl)
        equal(t.server.getxattr(there, "system.posix_acl_access") == acl, True,
              f"ACL of {users} users on the server")
        fresh = f"{here}-2"
        t.server.run("cp", "--preserve=all", there, f"{there}-2")
        equal(os.getxattr(fresh, "system.posix_acl_access") == acl, True,
              f"ACL of {users} users read")


# covers: ULB-16: An NFSv4 ACL is an attribute of unlimited size.
@case(versions=("4.0", "4.1", "4.2"))
def nfs4_acls_are_read(t):
    top = t.directory(t.mount())
    for users in (1, 40):
        here, there = top.path(f"file-{users}")
        t.server.write(there, b"x")
        t.server.setxattr(there, "system.posix_acl_access", posix_acl(users))
        acl = os.getxattr(here, "system.nfs4_acl")
        check(int.from_bytes(acl[:4], "big") >= users, f"{len(acl)} bytes for {users} users")
        os.setxattr(here, "system.nfs4_acl", acl)
        equal(os.getxattr(here, "system.nfs4_acl") == acl, True, "ACL set and read again")


# covers: If the client creates, renames or removes a name, the server makes the same change, and
# makes it only once.
@case()
def rename_link_and_unlink(t):
    top = t.directory(t.mount())
    here, there = top.path("a")
    content = pattern.data(21, 0, 5000)
    pathlib.Path(here).write_bytes(content)
    os.link(here, f"{top.here}/b")
    equal(t.server.call("stat", there)["nlink"], 2, "links")
    os.mkdir(f"{top.here}/d")
    os.rename(here, f"{top.here}/d/c")
    equal(t.server.call("names", top.there), ["b", "d"], "names")
    equal(t.server.call("names", f"{top.there}/d"), ["c"], "names below")
    pathlib.Path(f"{top.here}/e").write_bytes(b"to be replaced")
    os.rename(f"{top.here}/b", f"{top.here}/e")
    t.server.expect(f"{top.there}/e", content)
    # An unlinked file exists until it is closed.
    with open(f"{top.here}/e", "rb") as data:
        os.unlink(f"{top.here}/e")
        os.unlink(f"{top.here}/d/c")
        equal(data.read() == content, True, "content of an unlinked file")
    refused(errno.ENOENT, os.stat, f"{top.here}/e")
    refused(errno.ENOTEMPTY, os.rmdir, top.here)
    os.rmdir(f"{top.here}/d")
    equal(t.server.call("names", top.there), [], "names in the end")


# covers: A second exclusive creation of a file fails. Attributes that the client sets are visible
# on the server.
@case()
def exclusive_creation_and_attributes(t):
    here, there = t.directory(t.mount()).path("file")
    os.close(os.open(here, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))
    refused(errno.EEXIST, os.open, here, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
    equal(stat.S_IMODE(t.server.call("stat", there)["mode"]), 0o640, "mode")
    os.chmod(here, 0o604)
    equal(stat.S_IMODE(t.server.call("stat", there)["mode"]), 0o604, "mode after chmod")
    os.truncate(here, 12345)
    equal(t.server.call("stat", there)["size"], 12345, "size")
    os.utime(here, (1, 1000000000))
    equal(os.stat(here).st_mtime, 1000000000, "time")
    refused(errno.ENOENT, os.stat, f"{here}-none")
    refused(errno.ENAMETOOLONG, os.stat, f"{here}-" + "x" * 256)


# covers: ULB-29: An error from the server reaches the application unchanged, whatever chunks the
# call has.
@case()
def errors_of_the_server_arrive(t):
    mount = t.mount(export=ENV.disk)
    top = t.directory(mount)
    here, there = top.path("file")
    # The server creates the file itself. If this machine created the file, the server might
    # delegate it to this machine, and the delegation would delay chattr.
    t.server.write(there, bytes(100))
    t.server.run("chattr", "+i", there)
    t.defer(t.server.run, "chattr", "-i", there)
    refused(errno.EPERM, os.unlink, here)
    refused(errno.ENOTDIR, os.stat, f"{here}/below")
    refused(errno.EISDIR, os.open, top.here, os.O_WRONLY)
    equal(os.stat(here).st_size, 100, "size")


# covers: After fsync the server's file contains the data.
@case()
def fsync_reaches_the_server(t):
    mount = t.mount(export=ENV.disk)
    here, there = t.directory(mount).path("file")
    content = bytearray()
    fd = os.open(here, os.O_RDWR | os.O_CREAT, 0o644)
    for number, size in enumerate((1, 4000, 4096, 70000, 1 << 20)):
        piece = pattern.data(22, len(content), size, number)
        os.write(fd, piece)
        content += piece
        os.fsync(fd)
        t.server.expect(there, bytes(content))
    os.close(fd)


# covers: V1-064, V1-067, ULB-16: statfs works on a path of many components.
@case()
def deep_paths(t):
    top = t.directory(t.mount())
    path = top.here
    for depth in range(40):
        path += f"/{depth:02}" + "p" * 60
        os.mkdir(path)
    pathlib.Path(path, "file").write_bytes(pattern.data(23, 0, 999))
    t.server.expect(f"{top.there}{path.removeprefix(top.here)}/file", pattern.data(23, 0, 999))
    check(os.statvfs(path).f_blocks > 0, "statvfs")
