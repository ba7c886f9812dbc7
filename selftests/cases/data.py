# SPDX-License-Identifier: GPL-2.0
"""Data integrity: each byte that was written can be read again.

A test writes many pieces to one file. Every write also changes a copy in memory. At the end the
server's own file must be equal to the copy.
"""

import hashlib
import mmap
import os
import random

from lib import pattern, xprt
from lib.buffers import PAGE, Buffer
from lib.case import ENV, case, check, equal

KIB, MIB = 1 << 10, 1 << 20
OP_GETATTR = 9
SMALL = tuple(range(71))
# Sizes of data, in bytes: near the usual inline thresholds (1024 and 4096), near the size of a
# page, and near the size of two pages.
EDGES = sorted({*range(1016, 1033), *range(4088, 4105), *range(PAGE - 8, PAGE + 9),
                *range(2 * PAGE - 4, 2 * PAGE + 5)})
LARGE = tuple(base + delta for base in (64 * KIB, MIB) for delta in (-1, 0, 1, 2, 3))
HUGE = (MIB - PAGE, MIB + PAGE, MIB + 5000, 2 * MIB, 2 * MIB + 1)


def threshold_sizes():
    """Returns sizes of data with which a Call or a Reply is slightly shorter than 4096 bytes,
    exactly 4096 bytes long, or slightly longer.

    The lengths of headers and credentials depend on the NFS version and the client. So the sizes
    are spread over a wide range, and have every remainder modulo four.
    """
    return range(3500, 4100, ENV.pick(small=5, full=1, debug=13))


class Model:
    """A file, and a copy in memory of the file's expected content."""

    def __init__(self, t, mount, name, number):
        self.server, self.number, self.generation = t.server, number, 0
        self.here, self.there = t.directory(mount).path(name)
        self.content = bytearray()

    def piece(self, offset, length):
        """Returns new data for a range of the file, and stores the data in `self.content`, a copy
        of the file's content."""
        self.generation += 1
        data = pattern.data(self.number, offset, length, self.generation)
        if len(self.content) < offset:
            self.content += bytes(offset - len(self.content))
        self.content[offset:offset + length] = data
        return data

    def compare(self, found, offset, length, what):
        """Compares the result of a read with `self.content`. The read may have reached the end of
        the file."""
        expected = bytes(self.content[offset:offset + length])
        problem = pattern.difference(found, expected, offset)
        check(problem is None, f"{what} of {length} bytes at {offset}: {problem}")

    def check_server(self):
        self.server.expect(self.there, bytes(self.content))


def forget(fd):
    """Drops the file's cached pages, so that the next read asks the server."""
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def direct(model):
    return os.open(model.here, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)


def round_trips(model, sizes, shift, odd):
    """Writes and reads each size with direct I/O, one after the other.

    User buffers begin `shift` bytes after the start of a page. If `odd` is true, the transfers
    leave gaps in the file, so that file offsets have every remainder modulo four.
    """
    fd, buffer = direct(model), Buffer(3 * MIB)
    offset = odd
    for size in sizes:
        buffer.write(fd, model.piece(offset, size), offset, shift)
        model.compare(buffer.read(fd, size, offset, shift), offset, size, "direct read")
        offset += size + odd
    os.close(fd)
    model.check_server()


# covers: MAL-094
# covers: V1-037, V1-044, V1-045, V1-052, V1-053, V1-069, ULB-37, ULB-39: Direct transfers of every
# small size arrive intact, with and without padding.
@case(seconds=90)
def direct_transfers_of_every_small_size(t):
    mount = t.mount()
    round_trips(Model(t, mount, "aligned", 1), SMALL, 0, 0)
    round_trips(Model(t, mount, "unaligned", 2), SMALL, 3, 1)


# covers: V1-027, V1-060, V1-064, V1-071, V1-130, ULB-38: Transfers around the inline thresholds
# arrive intact, inline or in a chunk.
@case(seconds=120, slow=True)
def direct_transfers_around_the_inline_thresholds(t):
    mount = t.mount()
    round_trips(Model(t, mount, "aligned", 3), (*EDGES, *threshold_sizes()), 0, 0)
    round_trips(Model(t, mount, "odd", 4), threshold_sizes(), 1, 5)


# covers: V1-030, V1-051, V1-062: Transfers arrive intact if their size is near a page border or
# near 1 MiB, or is larger than one NFS transfer.
@case(seconds=120, slow=True)
def direct_transfers_around_page_and_mebibyte_borders(t):
    mount = t.mount()
    few = LARGE[5:] if ENV.debug and not ENV.full else LARGE
    round_trips(Model(t, mount, "aligned", 5), (*few, *HUGE), 0, 0)
    round_trips(Model(t, mount, "unaligned", 6), (*few, HUGE[2]), 1234, PAGE - 1)


# covers: V1-030, CM-15: A user buffer may begin at any offset in a page, and may contain page
# borders.
@case(seconds=90)
def user_buffers_may_begin_anywhere(t):
    model = Model(t, t.mount(), "shifts", 7)
    fd, buffer = direct(model), Buffer(MIB)
    step = ENV.pick(small=331, full=61, debug=1021)
    for shift in (1, 2, 3, 4, 511, 512, 513, *range(PAGE - 4, PAGE), *range(5, PAGE, step)):
        size = 9000 + shift % 7
        offset = shift * 3
        buffer.write(fd, model.piece(offset, size), offset, shift)
        model.compare(buffer.read(fd, size, offset, PAGE - shift), offset, size, "read")
    os.close(fd)
    model.check_server()


# covers: V1-058, V1-062, ULB-09, X-08: A READ at the end of a file returns fewer bytes than the
# client asked for.
@case(seconds=90, slow=True)
def short_reads_at_the_end_of_a_file(t):
    model = Model(t, t.mount(), "growing", 8)
    fd, buffer = direct(model), Buffer(MIB)
    sizes = (*SMALL, *EDGES[::2], *threshold_sizes()[::5], *LARGE[:5])
    at = 0
    for size in sizes:
        if size > at:
            buffer.write(fd, model.piece(at, size - at), at, 0)
            at = size
        for asked in (size + 1, 8 * KIB + 1, 128 * KIB):
            model.compare(buffer.read(fd, asked, 0, 0), 0, asked, "short read")
    model.compare(buffer.read(fd, 4 * KIB, at, 0), at, 4 * KIB, "read at the end")
    model.compare(buffer.read(fd, 4 * KIB, at + MIB, 0), at + MIB, 4 * KIB, "read beyond it")
    os.close(fd)
    model.check_server()


# covers: V1-031, V1-050: The page cache divides reads and writes in its own way. All pieces arrive
# intact.
@case(seconds=120)
def buffered_transfers_of_many_sizes(t):
    model = Model(t, t.mount(), "buffered", 9)
    fd = os.open(model.here, os.O_RDWR | os.O_CREAT, 0o644)
    offset, places = 0, []
    for size in (*SMALL[::5], *EDGES[::3], *threshold_sizes()[::4], *LARGE, MIB + 5000):
        data = model.piece(offset, size)
        equal(os.pwrite(fd, data, offset), size, "written")
        if size % 2:
            os.fdatasync(fd)
        places.append((offset, size))
        offset += size + (13 if size % 3 else 0)
    forget(fd)
    for offset, size in places:
        model.compare(os.pread(fd, size, offset), offset, size, "buffered read")
    os.close(fd)
    model.check_server()


# covers: V1-037, V1-044, V1-045, V1-053: A call may contain operations after its data, and the
# server executes them. After a write from its page cache the client asks for the attributes of the
# file, unless it has a delegation.
@case(versions=("4.2",), seconds=60)
def what_follows_the_data_arrives(t):
    leases = "/proc/sys/fs/leases-enable"
    t.server.call("text", leases, "0")
    t.defer(t.server.call, "text", leases, "1")
    mount = t.mount()
    top = t.directory(mount)

    def asked():
        """Returns the number of calls with a GETATTR, and the number of GETATTRs that the server
        has counted."""
        rows = t.server.call("text", "/proc/net/rpc/nfsd").splitlines()
        found = next(row.split()[2:] for row in rows if row.startswith("proc4ops "))
        calls = xprt.operations(mount.where)
        return calls["WRITE"][0] + calls["GETATTR"][0], int(found[OP_GETATTR])

    for size in (8189, 8190, 8191, 8192, 70001, 200003):
        here, there = top.path(f"file{size}")
        content = pattern.data(16, 0, size)
        with open(here, "wb", buffering=0) as file:
            before = asked()
            file.write(content)
            os.fsync(file.fileno())
            calls, found = (now - then for now, then in zip(asked(), before, strict=True))
        t.server.expect(there, content)
        t.note(f"{size} bytes: {calls} calls that ask for attributes, {found} answered")
        # If the server did not execute the GETATTR that follows the data of a WRITE, the client
        # would still work. So the test compares the number of executed GETATTRs.
        equal(found, calls, f"operations behind the data, of {size} bytes")
    written = xprt.operations(mount.where)["WRITE"]
    equal(written[0], written[1], "calls sent, and their transmissions")


# covers: Buffered and direct writes overwrite each other at random places. Each read returns the
# data that were written last.
@case(seconds=120, full_seconds=1200, slow=True)
def random_overwrites_leave_the_newest(t):
    model = Model(t, t.mount(), "random", 10)
    chance = random.Random(t.random.random())
    cached, fd = os.open(model.here, os.O_RDWR | os.O_CREAT, 0o644), direct(model)
    buffer = Buffer(MIB)
    for _ in range(ENV.pick(small=250, full=5000, debug=50)):
        size = chance.choice((1, 70, 512, 3800, 4096, 4097, 30000, 200000)) + chance.randrange(9)
        offset, shift = chance.randrange(2 * MIB), chance.randrange(PAGE)
        kind = chance.randrange(4)
        if kind == 0:
            buffer.write(fd, model.piece(offset, size), offset, shift)
        elif kind == 1:
            os.pwrite(cached, model.piece(offset, size), offset)
        elif kind == 2:
            model.compare(buffer.read(fd, size, offset, shift), offset, size, "direct read")
        else:
            model.compare(os.pread(cached, size, offset), offset, size, "buffered read")
    os.fsync(cached)
    os.close(cached)
    os.close(fd)
    model.check_server()


# covers: Pages that are written through a memory mapping reach the server.
@case(seconds=90)
def mapped_files_reach_the_server(t):
    model = Model(t, t.mount(), "mapped", 11)
    size = ENV.pick(small=3, full=32, debug=1) * MIB + 8765
    fd = os.open(model.here, os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, size)
    model.content = bytearray(size)
    with mmap.mmap(fd, size) as memory:
        for offset in (0, 1, PAGE - 1, PAGE, 100001, MIB - 3, size - 5000):
            data = model.piece(offset, 5000)
            memory[offset:offset + 5000] = data
        memory.flush()
        model.check_server()
    forget(fd)
    with mmap.mmap(fd, size, access=mmap.ACCESS_READ) as memory:
        model.compare(memory[:], 0, size, "mapped read")
    os.close(fd)


# covers: V1-012, V1-113: A large file is written and read back through the page cache. Its checksum
# is right on the server and on the client.
@case(seconds=120, full_seconds=1200, slow=True)
def one_large_file(t):
    here, there = t.directory(t.mount()).path("large")
    size, written = ENV.pick(small=64, full=1024, debug=8) * MIB, hashlib.sha256()
    with open(here, "wb", buffering=0) as file:
        for offset in range(0, size, MIB):
            data = pattern.data(13, offset, MIB)
            written.update(data)
            file.write(data)
        os.fsync(file.fileno())
        forget(file.fileno())
    equal(t.server.call("digest", there, seconds=ENV.patience(120)),
          [size, written.hexdigest()], "size and checksum on the server")
    with open(here, "rb", buffering=0) as file:
        equal(hashlib.file_digest(file, "sha256").hexdigest(), written.hexdigest(),
              "checksum of what is read back")


# covers: Two file descriptors append to one file in turn. Each piece is added at the end of the
# file.
@case(seconds=90)
def appended_pieces_follow_each_other(t):
    model = Model(t, t.mount(), "appended", 12)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    fds = [os.open(model.here, flags, 0o644), os.open(model.here, flags | os.O_SYNC)]
    for size in (*SMALL[::3], 1024, 1025, 3800, 3901, 4095, 4097, 70001, MIB + 1):
        data = model.piece(len(model.content), size)
        fd = fds[size % 2]
        equal(os.write(fd, data), size, "appended")
        if size % 3:
            os.fsync(fd)
    for fd in fds:
        os.close(fd)
    model.check_server()


# covers: Holes read as zeros. Truncation cuts a file at the exact byte. A file that grows again
# shows no old data.
@case(seconds=90)
def holes_and_truncation(t):
    model = Model(t, t.mount(), "sparse", 13)
    fd, buffer = direct(model), Buffer(MIB)
    for offset in (0, 70001, 3 * MIB + 11, 64 * MIB + 5):
        buffer.write(fd, model.piece(offset, 3000), offset, 0)
    for offset, length in ((0, MIB), (69000, 5000), (3 * MIB - 1, 200000)):
        model.compare(buffer.read(fd, length, offset), offset, length, "read with holes")
    for size in (64 * MIB + 6, 3 * MIB + 1000, 4097, 4096, 70, 1, 0, 5001):
        os.ftruncate(fd, size)
        del model.content[size:]
        model.content += bytes(size - len(model.content))
        equal(os.fstat(fd).st_size, size, "size after truncation")
        model.compare(buffer.read(fd, 8192, max(size - 4000, 0)), max(size - 4000, 0), 8192,
                      f"read after truncation to {size}")
    os.close(fd)
    model.check_server()


# covers: The client reads what the server's programs wrote last, and no older data.
@case(seconds=60)
def changes_on_the_server_are_seen(t):
    mount = t.mount("noac" if t.version == "3" else "")
    here, there = t.directory(mount).path("theirs")
    for generation, size in enumerate((1, 70, 3850, 4096, 70001, MIB, 17, 0)):
        content = pattern.data(14, 0, size, generation)
        t.server.call("rmtree", there)
        t.server.write(there, b"")
        t.server.call("run", ["truncate", "-s", "0", there])
        t.server.write(there, content)
        fd = os.open(here, os.O_RDONLY | os.O_DIRECT)
        found = Buffer(2 * MIB).read(fd, 2 * MIB, 0)
        os.close(fd)
        problem = pattern.difference(found, content)
        check(problem is None, f"generation {generation}: {problem}")


# covers: A file of 1 GiB is written with direct I/O and read through the page cache.
@case(seconds=300, full_only=True, full_seconds=1800)
def a_file_of_one_gibibyte(t):
    mount = t.mount(export=ENV.disk)
    here, there = t.directory(mount).path("large")
    block = pattern.data(15, 0, MIB)
    fd, buffer = os.open(here, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644), Buffer(MIB)
    for number in range(1024):
        buffer.write(fd, number.to_bytes(8, "big") + block[8:], number * MIB)
    os.close(fd)
    with open(here, "rb") as data:
        for number in range(1024):
            expected = number.to_bytes(8, "big") + block[8:]
            problem = pattern.difference(data.read(MIB), expected, number * MIB)
            check(problem is None, f"buffered read: {problem}")
    whole = hashlib.sha256()
    for number in range(1024):
        whole.update(number.to_bytes(8, "big") + block[8:])
    equal(t.server.call("digest", there, seconds=600), [1 << 30, whole.hexdigest()],
          "the server's file")
