#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Send RDS messages between two machines, and test what rds-rdma(7) promises.

  rds.py ping   --local ADDR --peer ADDR            RDS ping (port 0), answered by the peer's kernel
  rds.py agent  [--control HOST:PORT]               obey a tester: run this on the other machine
  rds.py test   --local ADDR --peer ADDR --control HOST:PORT [NAME ...]
  rds.py stress --local ADDR --peer ADDR --control HOST:PORT [--seconds S ...]
  rds.py list                                       the tests, and the requirements they show
  rds.py info   [WHAT ...]                          the kernel's RDS tables and counters

`test` controls both ends.  It calls its own process directly, and the peer's agent over a TCP
connection.  If a test cuts the link of RDS, the TCP connection should use another link.  The
program needs only the standard library.  Every system call goes through libc, so Python need not
know AF_RDS.
"""

import argparse
import collections
import contextlib
import ctypes
import errno
import hashlib
import ipaddress
import itertools
import json
import mmap
import os
import pathlib
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback

LIBC = ctypes.CDLL(None, use_errno=True)

# Maximum number of seconds to wait for a message. On a busy machine a first connection took six
# seconds.
MESSAGE_SECONDS = 20.0

AF_RDS = 21
SOL_RDS = 276
# Numbers of socket options.
CANCEL_SENT_TO, GET_MR, FREE_MR, RECVERR, GET_MR_FOR_DEST, TRANSPORT = 1, 2, 3, 5, 7, 8
TRANS_IB = 0
TRANS_TCP = 2
SIOCRDSSETTOS = 0x89E0
# The types of control messages, by the names that this file uses.
CMSG = {"args": 1, "dest": 2, "map": 3, "status": 4, "cong": 5, "fadd": 6, "cswp": 7,
        "masked_fadd": 8, "masked_cswp": 9}
# Flags of RDMA structures.
READWRITE, FENCE, INVALIDATE, USE_ONCE, DONTWAIT, NOTIFY_ME, SILENT = 1, 2, 4, 8, 16, 32, 64
STATUS = {0: "SUCCESS", 1: "REMOTE_ERROR", 2: "CANCELED", 3: "DROPPED", 4: "OTHER_ERROR"}
PAGE = mmap.PAGESIZE

# Layouts of include/uapi/linux/rds.h, in native byte order, as the kernel reads them.
IOVEC = struct.Struct("@QQ")                # fields: addr, bytes
GET_MR_ARGS = struct.Struct("@QQQQ")        # fields: vec (two words), cookie_addr, flags
GET_MR_FOR_DEST_ARGS = struct.Struct("@128sQQQQ")
FREE_MR_ARGS = struct.Struct("@QQ")         # fields: cookie, flags
# fields: cookie, remote vec, local vec, nr_local, flags, token
RDMA_ARGS = struct.Struct("@QQQQQQQ")
# fields: cookie, local, remote, 4 operands, flags, token
ATOMIC_ARGS = struct.Struct("@QQQQQQQQQ")
NOTIFY = struct.Struct("@Qi4x")             # fields: user_token, status
COOKIE = struct.Struct("@Q")
CMSGHDR = struct.Struct("@Nii")              # fields: cmsg_len, level, type


class Msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint32),
                ("iov", ctypes.c_void_p), ("iovlen", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


class CIovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def check(result, what):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {errno_name(code)}")
    return result


def errno_name(code):
    return "EOPNOTSUPP" if code == errno.EOPNOTSUPP else errno.errorcode.get(code, str(code))


def pack_addr(host, port):
    """Returns a sockaddr for an IPv4 or IPv6 address."""
    if ":" in host:
        host, _, scope = host.partition("%")
        index = int(scope) if scope.isdigit() else socket.if_nametoindex(scope) if scope else 0
        return struct.pack("@H", socket.AF_INET6) + struct.pack("!HI", port, 0) + \
            socket.inet_pton(socket.AF_INET6, host) + struct.pack("@I", index)
    return struct.pack("@H", socket.AF_INET) + struct.pack("!H", port) + \
        socket.inet_aton(host) + bytes(8)


def unpack_addr(raw):
    if len(raw) < 16:
        return None
    family, = struct.unpack_from("@H", raw)
    port, = struct.unpack_from("!H", raw, 2)
    if family == socket.AF_INET6:
        return [socket.inet_ntop(socket.AF_INET6, raw[8:24]), port]
    return [socket.inet_ntoa(raw[4:8]), port]


def pack_cmsgs(messages):
    """Packs pairs of (type, payload) into ancillary data. Each pair becomes a control message of
    level SOL_RDS."""
    out = b""
    for kind, payload in messages:
        body = CMSGHDR.pack(CMSGHDR.size + len(payload), SOL_RDS, kind) + payload
        out += body + bytes(-len(body) % 8)
    return out


def unpack_cmsgs(raw):
    found, at = [], 0
    while at + CMSGHDR.size <= len(raw):
        length, level, kind = CMSGHDR.unpack_from(raw, at)
        if length < CMSGHDR.size:
            break
        found.append((level, kind, raw[at + CMSGHDR.size:at + length]))
        at += length + (-length % 8)
    return found


class Rds:
    """One RDS socket."""

    def __init__(self):
        self.fd = check(LIBC.socket(AF_RDS, socket.SOCK_SEQPACKET, 0), "socket")

    def close(self):
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            check(LIBC.close(fd), "close")

    def bind(self, host, port=0):
        raw = pack_addr(host, port)
        check(LIBC.bind(self.fd, raw, len(raw)), "bind")
        return self.name()

    def name(self):
        raw, size = ctypes.create_string_buffer(128), ctypes.c_uint32(128)
        check(LIBC.getsockname(self.fd, raw, ctypes.byref(size)), "getsockname")
        return unpack_addr(raw.raw[:size.value])

    def setopt(self, option, value, level=SOL_RDS):
        check(LIBC.setsockopt(self.fd, level, option, value, len(value)), "setsockopt")

    def getopt(self, option, size=4, level=SOL_RDS):
        raw, length = ctypes.create_string_buffer(size), ctypes.c_uint32(size)
        check(LIBC.getsockopt(self.fd, level, option, raw, ctypes.byref(length)), "getsockopt")
        return raw.raw[:length.value]

    def send(self, host, port, data=b"", cmsgs=(), flags=0):
        """Calls sendmsg(). `cmsgs` contains pairs of (type, payload). The buffers exist until
        sendmsg() returns."""
        address = pack_addr(host, port) if host else b""
        control = pack_cmsgs(cmsgs)
        data_buffer = ctypes.create_string_buffer(bytes(data), max(1, len(data)))
        address_buffer = ctypes.create_string_buffer(address, max(1, len(address)))
        control_buffer = ctypes.create_string_buffer(control, max(1, len(control)))
        vector = CIovec(ctypes.addressof(data_buffer), len(data))
        message = Msghdr(ctypes.addressof(address_buffer), len(address), ctypes.addressof(vector),
                         1, ctypes.addressof(control_buffer) if control else None, len(control), 0)
        return check(LIBC.sendmsg(self.fd, ctypes.byref(message), flags), "sendmsg")

    def recv(self, size=1 << 20, timeout=MESSAGE_SECONDS, control_size=4096, flags=0):
        """Returns one message or notification as a dict, or None if nothing arrives in time.

        poll() also returns when a congestion map has changed. In this case there is nothing to
        receive.
        """
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            if not self.poll(left):
                return None
            message = self.recv_now(size, control_size, flags)
            if message is not None or left <= 0:
                return message

    def recv_now(self, size=1 << 20, control_size=4096, flags=0):
        """Calls recvmsg() once without waiting. Returns a dict, or None."""
        data = ctypes.create_string_buffer(max(1, size))
        control = ctypes.create_string_buffer(max(1, control_size))
        address = ctypes.create_string_buffer(128)
        vector = CIovec(ctypes.addressof(data), size)
        message = Msghdr(ctypes.addressof(address), 128, ctypes.addressof(vector), 1,
                         ctypes.addressof(control), control_size, 0)
        try:
            got = check(LIBC.recvmsg(self.fd, ctypes.byref(message), flags | socket.MSG_DONTWAIT),
                        "recvmsg")
        except BlockingIOError:
            return None
        out = {"data": data.raw[:min(got, size)], "length": got, "flags": message.flags,
               "from": unpack_addr(address.raw[:message.namelen]) if message.namelen else None,
               "status": [], "cookie": None, "cong": None}
        for level, kind, payload in unpack_cmsgs(control.raw[:message.controllen]):
            if (level, kind) == (SOL_RDS, CMSG["status"]):
                token, status = NOTIFY.unpack(payload)
                out["status"].append([token, STATUS.get(status, status)])
            elif (level, kind) == (SOL_RDS, CMSG["dest"]):
                out["cookie"], = COOKIE.unpack(payload)
            elif (level, kind) == (SOL_RDS, CMSG["cong"]):
                out["cong"], = COOKIE.unpack(payload)
        return out

    def poll(self, timeout, events=select.POLLIN):
        poller = select.poll()
        poller.register(self.fd, events)
        ready = poller.poll(max(0, timeout * 1000))
        return ready[0][1] if ready else 0

    def get_mr(self, address, length, flags, cookie_address=None, dest=None):
        """Calls RDS_GET_MR, or RDS_GET_MR_FOR_DEST if `dest` is a (host, port). Returns the
        cookie."""
        cookie = ctypes.c_uint64(0)
        where = ctypes.addressof(cookie) if cookie_address is None else cookie_address
        if dest:
            self.setopt(GET_MR_FOR_DEST, GET_MR_FOR_DEST_ARGS.pack(
                pack_addr(*dest), address, length, where, flags))
        else:
            self.setopt(GET_MR, GET_MR_ARGS.pack(address, length, where, flags))
        return cookie.value

    def free_mr(self, cookie, flags=0):
        self.setopt(FREE_MR, FREE_MR_ARGS.pack(cookie, flags))

    def set_tos(self, tos):
        value = ctypes.c_uint8(tos)
        check(LIBC.ioctl(self.fd, SIOCRDSSETTOS, ctypes.byref(value)), "SIOCRDSSETTOS")


INFO = {  # The kernel's tables, by name: socket option, layout of one row, names of the fields.
    "counters": (10000, "=32sQ", "name value"),
    "connections": (10001, "=QQ4s4s16sBB",
                    "next_tx_seq next_rx_seq laddr faddr transport flags tos"),
    "send": (10003, "=QI4s4s2s2sBB", "seq len laddr faddr lport fport flags tos"),
    "retrans": (10004, "=QI4s4s2s2sBB", "seq len laddr faddr lport fport flags tos"),
    "recv": (10005, "=QI4s4s2s2sBB", "seq len laddr faddr lport fport flags tos"),
    "sockets": (10006, "=I4s4s2s2sIQ", "sndbuf bound_addr connected_addr bound_port "
                "connected_port rcvbuf inum"),
    "ib": (10008, "=4s4s16s16sIIIIIBBxxI", "src_addr dst_addr src_gid dst_gid max_send_wr "
           "max_recv_wr max_send_sge rdma_mr_max rdma_mr_size tos sl cache_allocs"),
    "connections6": (10011, "=QQ16s16s16sB", "next_tx_seq next_rx_seq laddr faddr transport flags"),
    "ib6": (10017, "=16s16s16s16sIIIIIBBxxI", "src_addr dst_addr src_gid dst_gid max_send_wr "
            "max_recv_wr max_send_sge rdma_mr_max rdma_mr_size tos sl cache_allocs"),
}


def info(what):
    """Returns one of the kernel's tables as a list of dicts."""
    option, layout, names = INFO[what]
    sock = Rds()
    try:
        size = 1 << 16
        while True:
            raw, length = mmap.mmap(-1, size), ctypes.c_uint32(size)
            where = ctypes.addressof(ctypes.c_char.from_buffer(raw))
            each = LIBC.getsockopt(sock.fd, SOL_RDS, option, ctypes.c_void_p(where),
                                   ctypes.byref(length))
            if each >= 0:
                break
            if ctypes.get_errno() != errno.ENOSPC:
                check(each, f"RDS_INFO {what}")
            size = max(2 * size, length.value)
    finally:
        sock.close()
    rows = []
    for at in range(0, length.value, each):
        values = struct.unpack_from(layout, raw, at)
        rows.append({name: shown(name, value)
                     for name, value in zip(names.split(), values, strict=True)})
    return rows


def shown(name, value):
    """Returns a value from one of the kernel's tables as text or number."""
    if name in ("name", "transport"):
        return value.rstrip(b"\0").decode()
    if name.endswith("addr"):
        return socket.inet_ntop(socket.AF_INET if len(value) == 4 else socket.AF_INET6, value)
    if name.endswith("port"):
        return struct.unpack("!H", value)[0]
    return value.hex() if name.endswith("gid") else value


def pattern(seed, size):
    """Returns reproducible octets. A shorter pattern is the beginning of a longer one with the same
    seed."""
    return random.Random(seed).randbytes(size + -size % 4)[:size] if size else b""


class Node:
    """One end of a test. The sockets and the memory of the end have names. The command `test` calls
    the methods directly, or through an agent.

    Every method takes and returns JSON values. A system call that fails returns {"error":
    "EINVAL"}, so a test can compare errors like other results.
    """

    def __init__(self):
        self.sockets, self.buffers, self.local_vectors = {}, {}, []
        self.resting, self.statuses = threading.Event(), collections.Counter()

    # The next methods handle memory.

    def buffer(self, name, size, seed=None, guard=PAGE):
        """Makes anonymous memory, and fills it with the pattern of `seed` if `seed` is given.
        Returns the page-aligned address of the memory."""
        memory = mmap.mmap(-1, size + guard)
        if seed is None:
            # Each page is written, so that it is not the kernel's shared zero page.
            memory[:] = bytes(len(memory))
        else:
            memory[:] = pattern(seed, len(memory))
        self.buffers[name] = memory
        return self.address(name)

    def address(self, name, offset=0):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.buffers[name])) + offset

    def peek(self, name, offset, size):
        return bytes(self.buffers[name][offset:offset + size]).hex()

    def poke(self, name, offset, data):
        data = bytes.fromhex(data)
        self.buffers[name][offset:offset + len(data)] = data

    def digest(self, name, offset, size):
        return hashlib.sha256(self.buffers[name][offset:offset + size]).hexdigest()

    # The next methods handle sockets.

    def open(self, name, host=None, port=0, transport=None, recverr=None, sndbuf=None, rcvbuf=None,
             tos=None):
        sock = self.sockets[name] = Rds()
        if transport is not None:
            sock.setopt(TRANSPORT, struct.pack("@i", transport))
        for option, value in ((socket.SO_SNDBUF, sndbuf), (socket.SO_RCVBUF, rcvbuf)):
            if value is not None:
                sock.setopt(option, struct.pack("@i", value), socket.SOL_SOCKET)
        if host:
            sock.bind(host, port)
        if tos is not None:
            sock.set_tos(tos)
        if recverr is not None:
            sock.setopt(RECVERR, struct.pack("@i", recverr))
        return sock.name()

    def close(self, name):
        start = time.monotonic()
        self.sockets.pop(name).close()
        return round(time.monotonic() - start, 3)

    def close_all(self):
        for name in list(self.sockets):
            self.close(name)
        self.buffers.clear()
        self.local_vectors.clear()

    def setopt(self, name, option, value, level=SOL_RDS):
        self.sockets[name].setopt(option, bytes.fromhex(value), level)

    def getopt(self, name, option, size=4, level=SOL_RDS):
        return self.sockets[name].getopt(option, size, level).hex()

    def cmsg(self, spec):
        """Packs a control message from its description, {"type": ..., ...}."""
        kind = spec["type"]
        if kind == "raw":
            return spec["kind"], bytes.fromhex(spec["payload"])
        if kind == "dest":
            return CMSG[kind], COOKIE.pack(spec["cookie"])
        if kind == "map":
            where = spec.get("cookie_addr")
            if where is None:
                where = self.address(spec["cookie_buf"]) if spec.get("cookie_buf") else 0
            return CMSG[kind], GET_MR_ARGS.pack(
                spec["addr"] if "addr" in spec else self.address(spec["buf"], spec.get("off", 0)),
                spec["len"], where, spec.get("flags", 0))
        if kind == "args":
            vector = b"".join(IOVEC.pack(self.address(name, offset) if isinstance(name, str)
                                         else name + offset, size)
                              for name, offset, size in spec["local"])
            holder = ctypes.create_string_buffer(vector, max(1, len(vector)))
            self.local_vectors = [*self.local_vectors[-100:], holder]
            total = sum(size for _, _, size in spec["local"])
            return CMSG[kind], RDMA_ARGS.pack(
                spec["cookie"], spec.get("remote_off", 0), spec.get("remote_bytes", total),
                spec.get("vec_addr", ctypes.addressof(holder)),
                spec.get("nr_local", len(spec["local"])), spec.get("flags", 0),
                spec.get("token", 0))
        operands = (spec.get("operands", []) + [0] * 4)[:4]
        return CMSG[kind], ATOMIC_ARGS.pack(
            spec["cookie"], self.address(spec["buf"], spec.get("off", 0)),
            spec.get("remote_off", 0), *operands, spec.get("flags", 0), spec.get("token", 0))

    def send(self, name, host, port, data="", cmsgs=(), flags=0):
        return self.sockets[name].send(host, port, bytes.fromhex(data),
                                       [self.cmsg(spec) for spec in cmsgs], flags)

    def send_pattern(self, name, host, port, seed, size, flags=0, cmsgs=()):
        return self.sockets[name].send(host, port, pattern(seed, size),
                                       [self.cmsg(spec) for spec in cmsgs], flags)

    def recv(self, name, timeout=MESSAGE_SECONDS, size=1 << 20, control_size=4096, keep=64):
        """Returns a message with at most `keep` octets of its data, and the digest of all data."""
        message = self.sockets[name].recv(size, timeout, control_size)
        if message is not None:
            message["sha"] = hashlib.sha256(message["data"]).hexdigest()
            message["data"] = message["data"][:keep].hex()
        return message

    def drain(self, name, seconds):
        """Returns all messages that arrive in the next `seconds` seconds."""
        found, end = [], time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if (message := self.recv(name, left)) is not None:
                found.append(message)
        return found

    def wait_status(self, name, token, timeout=10.0):
        """Waits for the notification with this token. Returns a list: the seconds until the
        notification, its status, and the statuses of further notifications with this token."""
        start, statuses = time.monotonic(), []
        after = 0.0
        while True:
            now = time.monotonic()
            limit = start + timeout if not statuses else after + 0.3
            if now >= limit:
                break
            message = self.recv(name, limit - now)
            for got, status in (message or {}).get("status", []):
                if got == token:
                    if not statuses:
                        took, after = time.monotonic() - start, time.monotonic()
                    statuses.append(status)
        return [round(took, 3), *statuses] if statuses else None

    def get_mr(self, name, buf, off, size, flags=0, dest=None, cookie_addr=None, addr=None):
        return self.sockets[name].get_mr(self.address(buf, off) if addr is None else addr, size,
                                         flags, cookie_addr, dest)

    def free_mr(self, name, cookie, flags=0):
        start = time.monotonic()
        self.sockets[name].free_mr(cookie, flags)
        return round(time.monotonic() - start, 4)

    def cancel(self, name, host, port):
        start = time.monotonic()
        self.sockets[name].setopt(CANCEL_SENT_TO, pack_addr(host, port))
        return round(time.monotonic() - start, 3)

    def info(self, what):
        return info(what)

    def ping(self, host, peer, count=1, timeout=MESSAGE_SECONDS, tos=None):
        """Sends pings to port 0. Returns the round-trip times in seconds, with None for a ping
        without an answer."""
        sock = Rds()
        times = []
        try:
            sock.bind(host, 0)
            if tos is not None:
                sock.set_tos(tos)
            for _ in range(count):
                start = time.monotonic()
                sock.send(peer, 0)
                end, answer = start + timeout, None
                while answer is None and (left := end - time.monotonic()) > 0:
                    answer = sock.recv(64, left)
                times.append(None if answer is None else round(time.monotonic() - start, 5))
        finally:
            sock.close()
        return times

    def pump(self, name, host, port, cookie, size, most=4):
        """Reads and writes the memory of the handle `cookie`, with a few operations at a time,
        until rest() is called. Returns the number of operations by status."""
        self.resting.clear()
        self.statuses.clear()
        sock, outstanding, end = self.sockets[name], 0, None
        for flags in itertools.cycle((READWRITE, 0, FENCE, READWRITE | SILENT)):
            if self.resting.is_set():
                end = end or time.monotonic() + 60
                if not outstanding or time.monotonic() > end:
                    break
            elif outstanding < most:
                try:
                    sock.send(host, port, b"", [self.cmsg(
                        {"type": "args", "cookie": cookie, "local": [["l", 0, size]], "token": 1,
                         "flags": flags | NOTIFY_ME})], socket.MSG_DONTWAIT)
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                        raise
                else:
                    outstanding += 1
                    continue
            for _, status in (sock.recv(64, 0.1) or {}).get("status", ()):
                self.statuses[status] += 1
                outstanding -= 1
        told = dict(self.statuses) | ({"none": outstanding} if outstanding else {})
        # Without this line, pumped() would return the old numbers until the next pump() has begun.
        self.statuses.clear()
        return told

    def pumped(self):
        """Returns the statuses that pump() has counted so far. Returns nothing if pump() does not
        run."""
        return dict(self.statuses)

    def rest(self):
        """Ends pump() when all of its operations have a status, or after a minute."""
        self.resting.set()

    # The next methods run commands, and transfer many messages.

    def shell(self, command, timeout=30):
        done = subprocess.run(["sh", "-c", command], check=False,
                              stdin=subprocess.DEVNULL, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return [done.returncode, done.stdout.decode(errors="replace")]

    def shell_later(self, command):
        """Starts a command and does not wait for the end of the command. Such a command cuts a link
        and mends it later, for example."""
        subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def blast(self, name, host, port, count, size, seed, timeout=60.0):
        """Sends `count` numbered messages of up to `size` octets. Waits while the send buffer in
        the kernel is full."""
        start, choose = time.monotonic(), random.Random(seed)
        sock, sent = self.sockets[name], 0
        for number in range(count):
            length = choose.choice((0, 1, size // 2, size - 1, size)) if size else 0
            body = struct.pack("!I", number) + pattern(seed + number, max(0, length - 4))
            while True:
                try:
                    sock.send(host, port, body, flags=socket.MSG_DONTWAIT)
                    break
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                        raise
                    if time.monotonic() - start > timeout:
                        return [sent, round(time.monotonic() - start, 3)]
                    time.sleep(0.002)
            sent += 1
        return [sent, round(time.monotonic() - start, 3)]

    def sink(self, name, count, size, seed, timeout=60.0, pause=0.0):
        """Receives and verifies the messages that blast() sends. Returns [number of received
        messages, description of the first fault or None, seconds]."""
        start, choose = time.monotonic(), random.Random(seed)
        sock = self.sockets[name]
        for number in range(count):
            length = choose.choice((0, 1, size // 2, size - 1, size)) if size else 0
            body = struct.pack("!I", number) + pattern(seed + number, max(0, length - 4))
            message = None
            while message is None and time.monotonic() - start < timeout:
                message = sock.recv(1 << 20, 1.0)
            if message is None:
                return [number, "nothing came", round(time.monotonic() - start, 3)]
            if message["data"] != body:
                return [number, f"message {number} differs: {message['data'][:8].hex()}",
                        round(time.monotonic() - start, 3)]
            if pause:
                time.sleep(pause)
        return [count, None, round(time.monotonic() - start, 3)]


def call(node, method, arguments):
    """Runs a method of a Node. If a system call fails, returns its error as a value."""
    try:
        return getattr(node, method)(*arguments[0], **arguments[1])
    except OSError as error:
        return {"error": errno_name(error.errno)}


class Local:
    """Calls methods of a Node of this process."""

    def __init__(self, node=None):
        self.node = node or Node()

    def __getattr__(self, method):
        return lambda *a, **k: call(self.node, method, (a, k))


class Remote:
    """Calls methods of an agent's Node. Each calling thread uses a separate TCP connection."""

    def __init__(self, host, port):
        self.where, self.lines = (host, port), threading.local()

    def __getattr__(self, method):
        return lambda *a, **k: self.request(method, a, k)

    def request(self, method, arguments, named):
        stream = getattr(self.lines, "stream", None)
        if stream is None:
            link = socket.create_connection(self.where, 10)
            link.settimeout(300)
            stream = self.lines.stream = link.makefile("rw")
        stream.write(json.dumps([method, arguments, named]) + "\n")
        stream.flush()
        answer = json.loads(stream.readline() or '{"dead": true}')
        if "dead" in answer:
            raise RuntimeError(f"agent: {answer['dead']}")
        return answer["result"]


def serve(host, port):
    """Executes the requests of testers, and never returns. All testers share one Node."""
    node = Node()
    listener = socket.create_server((host, port))
    print(f"agent on {host}:{port}", flush=True)

    def obey(link):
        with link, link.makefile("rw") as stream:
            for line in stream:
                method, positional, named = json.loads(line)
                try:
                    answer = {"result": call(node, method, (positional, named))}
                except Exception:  # noqa: BLE001 - a fault of the test; the tester reports it
                    answer = {"dead": traceback.format_exc()}
                stream.write(json.dumps(answer) + "\n")
                stream.flush()

    while True:
        link, _ = listener.accept()
        threading.Thread(target=obey, args=(link,), daemon=True).start()


class Later:
    """Calls a method in a separate thread."""

    def __init__(self, function, *arguments, **named):
        self.result = None

        def work():
            try:
                self.result = function(*arguments, **named)
            except Exception as error:  # noqa: BLE001 - the thread's result
                self.result = {"dead": repr(error)}
        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def wait(self, timeout=120):
        self.thread.join(timeout)
        return {"dead": "not done in time"} if self.thread.is_alive() else self.result


def until(condition, seconds):
    """Waits until a condition is true, for this number of seconds at most. Returns whether it is
    true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


# ---------------------------------------------------------------------------------------------
# Tests. Each of them checks a promise of the interface. The kernel's socket layer breaks three
# promises, with every transport. D11: the error for memory that is too large is EMSGSIZE instead of
# EINVAL. D12: an operation whose remote memory is longer than its local memory is accepted. D13:
# unknown flags are accepted.

TESTS = []
CORE = {"D11", "D12", "D13"}


def test(rows, slow=False, fault=False):
    def add(function):
        TESTS.append((function.__name__.replace("_", "-"), rows, slow, fault, function))
        return function
    return add


class Context:
    """The two ends of one test. `a` is this process, the client of the manual page. `b` is the
    agent, the server of the manual page."""

    def __init__(self, options):
        self.options = options
        self.known = set() if options.strict else set(CORE)
        self.a, self.b = Local(), Remote(*options.control)
        self.a_addr, self.b_addr = options.local, options.peer
        self.failures, self.deviations, self.notes = [], [], []
        self.port = 4000

    def want(self, name, got, expected, deviation=None):
        """Checks that `got` is `expected`. `deviation` is a pair: the number of a deviation, and
        the value (or a list of values) that is seen instead of `expected`."""
        number, seen = deviation or (None, [])
        seen = seen if isinstance(seen, list) else [seen]
        known = number in self.known
        if got == expected:
            if deviation and known and expected not in seen:
                self.failures.append(f"{name}: {got!r}, though {number} is known")
            return True
        text = f"{name}: {got!r}, promised {expected!r}"
        if got in seen:
            self.deviations.append(f"{number} {text}")
            if known:
                return False
        self.failures.append(text)
        return False

    def note(self, text):
        self.notes.append(text)

    def pair(self, a=None, b=None, warm=True, tos=None):
        """Opens a bound socket "s" at each end. Returns (port of a, port of b). A test that may
        make its connection unusable passes a `tos` that no other test uses, so that the test has a
        separate connection."""
        self.a.close_all()
        self.b.close_all()
        ports = []
        tos = self.options.tos if tos is None else tos
        for node, host, more in ((self.a, self.a_addr, a), (self.b, self.b_addr, b)):
            name = node.open("s", host, 0, transport=TRANS_IB, tos=tos, **(more or {}))
            if isinstance(name, dict):
                raise RuntimeError(f"no socket on {host}: {name}")
            ports.append(name[1])
        if warm:
            self.warm(*ports)
        self.pa, self.pb = ports
        return ports

    def warm(self, port_a, port_b):
        """Establishes the connection by sending a message in each direction."""
        for _ in range(3):
            self.a.send("s", self.b_addr, port_b, b"hello".hex())
            if (self.b.recv("s", 10) or {}).get("data") == b"hello".hex():
                break
        else:
            raise RuntimeError("no connection to the peer")
        self.b.send("s", self.a_addr, port_a, b"hello".hex())
        if not self.a.recv("s", 10):
            raise RuntimeError("no answer from the peer")

    def cut_for(self, seconds):
        """Makes both ends drop all packets of the RDMA link for `seconds` seconds. Does not wait
        for the end of this time."""
        for node in (self.a, self.b):
            status, text = node.shell(self.options.cut)
            self.want(f"{self.options.cut}: {text}", status, 0)
        for node in (self.a, self.b):
            node.shell_later(f"sleep {seconds}; {self.options.mend}")

    def offer(self, off=0, size=PAGE, flags=0, seed=1, buf="m", make=True, data="req", acked=True,
              **more):
        """Acts as the client: maps `size` octets at `off`, and sends the request. Returns the
        cookie that the server receives.

        The server answers, so the request is acknowledged and no longer holds the region.
        """
        if make:
            self.a.buffer(buf, off + size, seed)
        self.a.buffer("cookie", 8)
        sent = self.a.send("s", self.b_addr, self.pb, data.encode().hex(), [
            {"type": "map", "buf": buf, "off": off, "len": size, "flags": flags,
             "cookie_buf": "cookie", **more}])
        if isinstance(sent, dict):
            return sent["error"]
        got = self.b.recv("s", 10)
        if got and acked:
            self.b.send("s", self.a_addr, self.pa, b"ok".hex())
            self.a.recv("s", 10)
        return got and got["cookie"]

    def rdma(self, cookie, size, flags=0, remote_off=0, local=None, token=7, data="ack", **more):
        """Acts as the server: transfers bytes between the cookie's memory and the server's own
        buffer "l", and sends the ACK."""
        return self.b.send("s", self.a_addr, self.pa, data.encode().hex(), [
            {"type": "args", "cookie": cookie, "remote_off": remote_off,
             "local": local or [["l", 0, size]], "flags": flags, "token": token, **more}])

    def transfer(self, write, off=0, size=PAGE, map_flags=0, flags=0, remote_off=0, local_off=0):
        """Makes one transfer as the manual page describes it: the client sends a request with MAP,
        and the server makes an RDMA operation and sends an ACK. Returns True if the correct octets
        were transferred."""
        cookie = self.offer(off, size + remote_off, map_flags, seed=11)
        if not isinstance(cookie, int) or not cookie:
            return f"no cookie: {cookie}"
        self.b.buffer("l", local_off + size, 22)
        sent = self.rdma(cookie, size, flags | (READWRITE if write else 0) | NOTIFY_ME, remote_off,
                         [["l", local_off, size]])
        if isinstance(sent, dict):
            return sent["error"]
        ack = self.a.recv("s", 10)
        if not ack or ack["data"] != b"ack".hex():
            return f"no ACK: {ack}, status {self.b.wait_status('s', 7, 2)}"
        at_ack = self.a.digest("m", off + remote_off, size)
        status = self.b.wait_status("s", 7, 10)
        if not status or status[1:] != ["SUCCESS"]:
            return f"status {status}"
        there = self.b.digest("l", local_off, size)
        if at_ack != there:
            return "octets differ"
        want = hashlib.sha256(pattern(22, local_off + size)[local_off:] if write else
                              pattern(11, off + remote_off + size)[off + remote_off:]).hexdigest()
        return True if there == want else "octets of the wrong side"


@test("basic")
def ping(t):
    for first, node, host, peer in (("a", t.a, t.a_addr, t.b_addr), ("b", t.b, t.b_addr, t.a_addr)):
        times = node.ping(host, peer, 5)
        t.want(f"five pings from {first} answered", isinstance(times, list) and None not in times,
               True)
        t.note(f"pings from {first}: {times}")


@test("basic")
def datagrams(t):
    t.pair()
    for size in (0, 1, 47, 4095, 4096, 4097, 8192, 65535, 65536, 65537, 1 << 20):
        snd = struct.pack("@i", 1 << 21).hex()
        for node in (t.a, t.b):
            node.setopt("s", socket.SO_SNDBUF, snd, socket.SOL_SOCKET)
            node.setopt("s", socket.SO_RCVBUF, snd, socket.SOL_SOCKET)
        for one, other, host, port in ((t.a, t.b, t.b_addr, t.pb), (t.b, t.a, t.a_addr, t.pa)):
            sent = one.send_pattern("s", host, port, size, size)
            if size > 400000 and sent == {"error": "EMSGSIZE"}:
                t.note(f"{size} octets: EMSGSIZE, the send buffer's limit is smaller")
                continue
            t.want(f"sendmsg {size}", sent, size)
            got = other.recv("s", 20)
            t.want(f"{size} octets arrive as sent", got and (got["length"], got["sha"]),
                   (size, hashlib.sha256(pattern(size, size)).hexdigest()))
    t.want("1 MiB + 1", t.a.send_pattern("s", t.b_addr, t.pb, 1, (1 << 20) + 1),
           {"error": "EMSGSIZE"})


def all_arrive(t, sender, receiver, to, count, length, seed=5, seconds=90.0, reader="s"):
    """Sends `count` messages from the sender's socket "s" to an address and port. Checks that all
    messages arrive at the receiver's socket `reader` in order and with the correct content."""
    receiving = Later(receiver.sink, reader, count, length, seed, seconds)
    sent = sender.blast("s", *to, count, length, seed, seconds)
    got = receiving.wait()
    t.want(f"{count} messages in order and right", got[:2] if isinstance(got, list) else got,
           [count, None])
    t.note(f"sent {sent}, received {got}")


@test("basic")
def tables(t):
    """rds-info shows the connection at both ends, with the same two GIDs. It also shows
    counters."""
    t.pair()
    name, family = ("ib6", 6) if ":" in t.a_addr else ("ib", 4)
    tos = t.options.tos or 0
    ends = [[row for row in node.info(name)
             if (row["src_addr"], row["dst_addr"], row["tos"]) == (own, peer, tos)]
            for node, own, peer in ((t.a, t.a_addr, t.b_addr), (t.b, t.b_addr, t.a_addr))]
    t.want("rows of each end", [len(rows) for rows in ends], [1, 1])
    (here,), (there,) = ends
    t.want("GIDs", (here["src_gid"], here["dst_gid"]), (there["dst_gid"], there["src_gid"]))
    t.want("GIDs that are not zero", "0" * 32 in (here["src_gid"], here["dst_gid"]), False)
    if family == 4:
        t.want("the GID of the address", here["src_gid"][-8:], socket.inet_aton(t.a_addr).hex())
        t.want("rows of the table with IPv6",
               len(t.a.info("ib6")) >= len(t.a.info("ib")), True)
    for field in ("max_send_wr", "max_recv_wr", "max_send_sge", "rdma_mr_max", "rdma_mr_size"):
        t.want(field, here[field] > 0, True)
    # The counters' names are those of the in-tree transport.
    before = events(t)
    t.a.buffer("m", PAGE, 1)
    t.a.free_mr("s", t.a.get_mr("s", "m", 0, PAGE), INVALIDATE)
    for event in ("ib_rdma_mr_1m_alloc", "ib_rdma_mr_1m_free"):
        t.want(event, events(t)[event] - before[event], 1)
    # The client's message has a handle, so the server acknowledges it immediately.
    there = events(t, t.b)["ib_ack_sent"]
    t.offer(acked=False)
    t.want("ib_ack_sent", until(lambda: events(t, t.b)["ib_ack_sent"] > there, 5), True)


def events(t, node=None):
    """Returns the counters of an end, by default those of the client."""
    return {row["name"]: row["value"] for row in (node or t.a).info("counters")}


@test("basic", slow=True)
def blast(t):
    t.pair()
    for one, other, to in ((t.a, t.b, (t.b_addr, t.pb)), (t.b, t.a, (t.a_addr, t.pa))):
        all_arrive(t, one, other, to, 2000, 8192)


@test("basic", slow=True)
def congestion(t):
    """If a receiver does not read, the sender gets an error. When the receiver has space again, the
    sender can send again."""
    t.pair(b={"rcvbuf": 32768})
    sent = error = None
    for sent in range(2000):
        error = t.a.send_pattern("s", t.b_addr, t.pb, sent, 4096, socket.MSG_DONTWAIT)
        if isinstance(error, dict):
            if error["error"] == "ENOBUFS":
                break
            time.sleep(0.02)
    t.want("sendmsg to a congested port", error, {"error": "ENOBUFS"})
    other = t.b.open("other", t.b_addr, 0, transport=TRANS_IB)[1]
    t.want("another port of the same host is not congested",
           t.a.send("s", t.b_addr, other, b"x".hex(), (), socket.MSG_DONTWAIT), 1)
    blocked = Later(t.a.send_pattern, "s", t.b_addr, t.pb, 77, 4096)
    time.sleep(0.5)
    t.want("a blocking sender waits", blocked.thread.is_alive(), True)
    got = 0
    while t.b.recv("s", 2) is not None:
        got += 1
    t.want("the blocked sender goes on", blocked.wait(10), 4096)
    t.note(f"{sent} messages until ENOBUFS, {got} drained")


@test("basic", slow=True)
def recv_memory(t):
    """This machine may store only a few unread messages. A peer sends more, and this machine
    refuses those that it cannot store. The peer sends the refused messages again later, so no
    message is lost."""
    if not os.path.isdir("/sys/module/rds_rdma_rs"):
        t.note("the in-tree transport counts buffers, not messages")
        return
    count, most = 24, 8
    t.pair(a={"rcvbuf": 4 << 20}, b={"sndbuf": 4 << 20})
    former, limited = ruled("max_recv_allocation", most), events(t)["ib_rx_alloc_limit"]
    for index in range(count):
        t.b.send_pattern("s", t.a_addr, t.pa, index, 4096)
    t.want("a message found no room",
           until(lambda: events(t)["ib_rx_alloc_limit"] > limited, 30), True)
    # During this pause the peer sends the refused messages again.
    time.sleep(1)
    waiting = [row for row in info("recv") if row["lport"] == t.pa]
    t.want("no more wait than may", len(waiting) <= most, True)
    ruled("max_recv_allocation", former)
    for index in range(count):
        got = t.a.recv("s", 10)
        if not t.want(f"message {index}", got and got["data"], pattern(index, 4096)[:64].hex()):
            break


def ruled(name, value):
    """Sets a sysctl of the transport in this machine. Returns the previous value."""
    path = f"/proc/sys/net/rds/ib/{name}"
    try:
        with open(path, encoding="ascii") as place:
            former = place.read().strip()
        with open(path, "w", encoding="ascii") as place:
            place.write(f"{value}\n")
    except FileNotFoundError:
        return None
    return former


@test("basic", slow=True)
def to_itself(t):
    """Both ends have the same address. A port at this address becomes congested, and stops being
    congested, as with any other peer."""
    t.a.close_all()
    t.b.close_all()
    here = t.a_addr
    port = t.a.open("r", here, 0, transport=TRANS_IB, rcvbuf=32768)[1]
    t.a.open("s", here, 0, transport=TRANS_IB)
    for turn in range(8):
        for index in range(200):
            error = t.a.send_pattern("s", here, port, index, 4096, socket.MSG_DONTWAIT)
            if isinstance(error, dict) and error["error"] == "ENOBUFS":
                break
            time.sleep(0.001)
        t.want(f"turn {turn}: the port is full", error, {"error": "ENOBUFS"})
        got = 0
        while got < index and t.a.recv("r", 10) is not None:
            got += 1
        if not t.want(f"turn {turn}: nothing is lost", got, index):
            break
        again = Later(t.a.send_pattern, "s", here, port, 7, 4096)
        if not t.want(f"turn {turn}: and has room again", again.wait(5), 4096):
            break
        t.a.recv("r", 5)


@test("basic", slow=True)
def flow_control(t):
    """With flow control both ends grant credits, and the peer of our transport uses more credits
    than it initially has. Without flow control neither end grants credits."""
    def updates():
        return [events(t, node)["ib_rx_credit_updates"] for node in (t.a, t.b)]

    sizes, setting = {"sndbuf": 4 << 20, "rcvbuf": 4 << 20}, "net.rds.ib.flow_control"
    former = [node.shell(f"sysctl -n {setting}")[1].strip() for node in (t.a, t.b)]
    try:
        for on, tos in ((0, 30), (1, 31)):
            for node in (t.a, t.b):
                status, text = node.shell(f"sysctl -w {setting}={on}")
                t.want(f"flow_control={on}: {text.strip()}", status, 0)
            t.pair(a=sizes, b=sizes, tos=tos)
            before = updates()
            # About 600 frames are sent in each direction. Our transport initially grants its peer
            # only 128 credits, so the peer needs more grants.
            back = Later(all_arrive, t, t.b, t.a, (t.a_addr, t.pa), 20, 262144, 6, 40.0)
            all_arrive(t, t.a, t.b, (t.b_addr, t.pb), 20, 262144, seconds=40.0)
            t.want("the other direction", back.wait(), None)
            now = updates()
            t.want(f"grants of credits arrive, flow_control={on}",
                   [new > old for new, old in zip(now, before, strict=True)], 2 * [bool(on)])
            t.note(f"flow_control={on}: grants {before}, then {now}")
    finally:
        for node, value in zip((t.a, t.b), former, strict=True):
            node.shell(f"sysctl -w {setting}={value}")


@contextlib.contextmanager
def second_address(t):
    """Adds another address to this machine, on the network device that has the first address.
    Yields the new address."""
    code, text = t.a.shell(f"ip -o -4 addr show to {t.a_addr}")
    device, other = text.split()[1], str(ipaddress.ip_address(t.a_addr) + 100)
    code, text = t.a.shell(f"ip addr add {other}/32 dev {device}")
    t.want("a second address", (code, text), (0, ""))
    try:
        yield other
    finally:
        t.a.close_all()
        t.a.shell(f"ip addr del {other}/32 dev {device}")


@test("basic", slow=True)
def to_another_address(t):
    """Both ends are addresses of this machine. A port becomes congested many times. Each congestion
    ends soon, so all messages arrive."""
    t.a.close_all()
    t.b.close_all()
    with second_address(t) as other:
        port = t.a.open("r", other, 0, transport=TRANS_IB, rcvbuf=8192)[1]
        t.a.open("s", t.a_addr, 0, transport=TRANS_IB)
        all_arrive(t, t.a, t.a, (other, port), 500, 4096, seed=3, seconds=60.0, reader="r")


@test("basic", slow=True)
def foreign_socket(t):
    """A socket of the TCP transport has received a message from our transport. Our module can be
    unloaded only after the message was read."""
    from machines import LOAD, NAME  # noqa: PLC0415 - imports this file
    t.a.close_all()
    t.b.close_all()
    t.a.shell("modprobe rds_tcp")
    port = t.a.open("f", t.a_addr, 0, transport=TRANS_TCP)[1]
    t.b.open("s", t.b_addr, 0, transport=TRANS_IB)
    t.b.send("s", t.a_addr, port, b"kept".hex())
    until(lambda: [row for row in info("recv") if row["lport"] == port], MESSAGE_SECONDS)
    t.b.close_all()
    with subprocess.Popen(["rmmod", NAME]) as removal:
        time.sleep(3)
        t.want("rmmod waits", removal.poll(), None)
        t.want("the message", (t.a.recv("f") or {}).get("data"), b"kept".hex())
        t.want("rmmod", removal.wait(), 0)
    t.a.close_all()
    t.a.shell("rmmod rds_tcp")
    subprocess.run(LOAD["ours"], check=True)
    t.pair()
    t.want("transfers afterwards", t.transfer(True), True)


@test("basic", slow=True)
def foreign_ack(t):
    """An RDMA ACK for a region of our transport arrives over TCP. The kernel handles it where it
    must not sleep. The region ends, as it does after any RDMA ACK."""
    t.a.close_all()
    t.b.close_all()
    # RDS over TCP accepts a connection only from the end with the lower address.
    (peer, _), (node, addr) = sorted(((t.a, t.a_addr), (t.b, t.b_addr)),
                                     key=lambda end: ipaddress.ip_address(end[1]))
    node.shell("modprobe rds_tcp")
    port = node.open("r", addr, 0, transport=TRANS_IB)[1]
    node.buffer("m", 2 * PAGE)
    cookie = node.get_mr("r", "m", 0, 2 * PAGE, USE_ONCE | INVALIDATE)
    ack = struct.pack("!BI", 2, cookie & 0xffffffff)
    data = struct.pack("!QQIHHBB4xH16s", 1, 0, 6, 7, port, 0, 0, 0, ack) + b"forged"
    # The other end sends a ping when it is ready. Data that arrive afterwards are handled at once,
    # and not by a thread of RDS.
    program = ("import socket, sys, time; tcp = socket.create_connection((sys.argv[1], 16385)); "
               "tcp.recv(48); tcp.sendall(bytes.fromhex(sys.argv[2])); time.sleep(2)")
    t.want("the peer sends", peer.shell(f"python3 -c '{program}' {addr} {data.hex()}"), [0, ""])
    t.want("the message", (node.recv("r") or {}).get("data"), b"forged".hex())
    t.want("the region has ended", node.free_mr("r", cookie), {"error": "EINVAL"})
    node.close_all()
    node.shell("rmmod rds_tcp")
    t.pair()
    t.want("transfers afterwards", t.transfer(True), True)


@test("RDS-01 RDS-02 RDS-03 RDS-04 RDS-05 RDS-06 RDS-09 RDS-11 RDS-12 RDS-20 RDS-31 RDS-33 RDS-35"
      " RDS-36 RDS-40 RDS-58")
# covers: RDS-04 RDS-06 RDS-12 RDS-33
def map_and_transfer(t):
    t.pair()
    for write in (False, True):
        for off, size in ((0, 4096), (0, 1), (1, 1), (4095, 2), (123, 4096), (0, 65536),
                          (17, 65521), (0, 1 << 20), (4095, 1 << 20)):
            t.want(f"{'write' if write else 'read'} {size} at offset {off}",
                   t.transfer(write, off, size, USE_ONCE | INVALIDATE, FENCE), True)
    t.want("window within the region", t.transfer(True, 100, 5000, USE_ONCE, 0, 3000, 55), True)


# covers: RDS-30 RDS-31
@test("RDS-30 RDS-32 RDS-52")
def local_vectors(t):
    t.pair()
    cookie = t.offer(5, 100000, 0, seed=3)
    t.b.buffer("l", 200000, 4)
    pieces: list = [["l", 7, 1], ["l", 5000, 4097], ["l", 20000, 70000], ["l", 150001, 11]]
    total = sum(piece[2] for piece in pieces)
    t.want("read into four pieces", t.rdma(cookie, 0, NOTIFY_ME | FENCE, 9, pieces), 3)
    t.want("its status", (t.b.wait_status("s", 7) or [0])[1:], ["SUCCESS"])
    got = "".join(t.b.peek("l", off, size) for _, off, size in pieces)
    t.want("the pieces", got == pattern(3, 100005 + PAGE)[14:14 + total].hex(), True)
    for name, more, expected, known in (
            ("remote shorter than local", {"remote_bytes": 10}, "EINVAL", None),
            ("remote longer than local", {"remote_bytes": 2000}, "EINVAL", ("D12", 3)),
            ("no local vector", {"nr_local": 0}, "EINVAL", None),
            ("1025 local vectors", {"nr_local": 1025}, "EMSGSIZE", None),
            ("local vector not readable", {"vec_addr": 16}, "EFAULT", None),
            ("more than 1 MiB", {"remote_bytes": (1 << 20) + 1}, "EMSGSIZE", None)):
        got = t.rdma(cookie, 1000, READWRITE, **more)
        t.want(name, got["error"] if isinstance(got, dict) else got, expected, known)
    for name, vector, expected in (("empty piece", [["l", 0, 0]], "EINVAL"),
                                   ("piece not mapped", [[4096, 0, 100]], "EFAULT"),
                                   ("piece wraps", [[(1 << 64) - 10, 0, 100]], "EINVAL")):
        got = t.rdma(cookie, 0, READWRITE, local=vector)
        t.want(name, got["error"] if isinstance(got, dict) else got, expected)
    # Receives the messages of the previous operations, because `transfer` would mistake one of
    # these messages for its own message.
    t.a.drain("s", 0.3)
    t.want("the connection still works", t.transfer(True), True)


# covers: RDS-16
@test("RDS-08 RDS-16 RDS-17 RDS-19 RDS-22 RDS-23 RDS-25 RDS-45")
def get_mr(t):
    t.pair()
    t.a.buffer("m", 70000, 5)
    for name, dest in (("GET_MR", None), ("GET_MR_FOR_DEST", [t.b_addr, t.pb])):
        cookie = t.a.get_mr("s", "m", 77, 60000, USE_ONCE, dest)
        if not t.want(name, isinstance(cookie, int) or cookie["error"], True):
            continue
        t.want("offset in the cookie", cookie >> 32, 77)
        t.a.free_mr("s", cookie)
        cookie = t.a.get_mr("s", "m", 77, 60000, 0, dest)
        t.a.send("s", t.b_addr, t.pb, "01", [{"type": "dest", "cookie": cookie}])
        got = t.b.recv("s")
        t.want("cookie by RDMA_DEST", got["cookie"], cookie)
        t.b.buffer("l", 60000, 6)
        t.rdma(cookie, 60000, READWRITE | NOTIFY_ME)
        t.want("ACK", (t.a.recv("s") or {}).get("data"), b"ack".hex())
        t.want("status", (t.b.wait_status("s", 7) or [0])[1:], ["SUCCESS"])
        t.want("octets", t.a.digest("m", 77, 60000), t.b.digest("l", 0, 60000))
        t.want("FREE_MR", isinstance(t.a.free_mr("s", cookie, INVALIDATE), float), True)
        t.want("FREE_MR twice", t.a.free_mr("s", cookie), {"error": "EINVAL"})
    for name, arguments, expected in (
            ("no length", {"size": 0}, "EINVAL"),
            ("wraps", {"size": 100, "addr": (1 << 64) - 50}, "EINVAL"),
            ("not mapped", {"size": 100, "addr": 4096}, "EFAULT"),
            ("larger than 1 MiB", {"size": (1 << 20) + 2 * PAGE}, "EINVAL")):
        got = t.a.get_mr("s", "m", 0, **arguments)
        t.want(name, got.get("error") if isinstance(got, dict) else got, expected,
               ("D11", "EMSGSIZE") if name.startswith("larger") else None)
    got = t.a.get_mr("s", "m", 0, 100, 0, None, 16)
    t.want("cookie_addr not writable", got, {"error": "EFAULT"})
    t.want("level other than SOL_RDS", t.a.setopt("s", GET_MR, bytes(32).hex(), SOL_RDS - 1),
           {"error": "ENOPROTOOPT"})
    t.want("optlen too short", t.a.setopt("s", GET_MR, bytes(31).hex()), {"error": "EINVAL"})
    t.a.open("unbound")
    t.want("socket not bound", t.a.get_mr("unbound", "m", 0, 100), {"error": "ENOTCONN"})


@test("RDS-16")
def get_mr_cold(t):
    """Registration needs no connection, so it works before the first message to the peer."""
    t.a.close_all()
    t.a.buffer("m", PAGE, 5)
    t.a.open("s", t.a_addr, 0, transport=TRANS_IB)
    got = t.a.get_mr("s", "m", 0, PAGE)
    t.want("GET_MR before any message", isinstance(got, int) or got["error"], True)


@test("RDS-09 RDS-49")
def map_cold(t):
    """The first message to a peer contains MAP. The memory is registered, and the message is sent
    and delivered."""
    t.pair(warm=False, tos=9)
    t.a.buffer("m", PAGE, 5)
    a_map = {"type": "map", "buf": "m", "len": 100}
    sent = t.a.send("s", t.b_addr, t.pb, "01", [a_map])
    t.want("MAP on a connection that is down", sent, 1)
    tries = 1
    while isinstance(sent, dict) and tries < 500:
        time.sleep(0.01)
        sent = t.a.send("s", t.b_addr, t.pb, "01", [a_map])
        tries += 1
        if isinstance(sent, dict) and sent["error"] != "EAGAIN":
            t.note(f"try {tries}: {sent}")
    got = t.b.recv("s", 5)
    t.want("the cookie arrives", bool(got and got["cookie"]), True)
    t.note(f"sent at try {tries}")


@test("RDS-10 RDS-11")
def dest(t):
    t.pair()
    cookie = t.offer(33, 5000, 0)
    for number in range(3):
        t.want("send with RDMA_DEST", t.a.send("s", t.b_addr, t.pb, "aa", [
            {"type": "dest", "cookie": cookie}]), 1)
        t.want("cookie delivered", (t.b.recv("s") or {}).get("cookie"), cookie)
        t.b.buffer("l", 5000, number)
        t.rdma(cookie, 5000, READWRITE | NOTIFY_ME, token=number)
        t.want("status", (t.b.wait_status("s", number) or [0])[1:], ["SUCCESS"])
        t.a.recv("s")
        t.want("octets", t.a.digest("m", 33, 5000), t.b.digest("l", 0, 5000))
    t.want("unknown cookie", t.a.send("s", t.b_addr, t.pb, "aa", [
        {"type": "dest", "cookie": cookie ^ 0xff00}]), {"error": "EINVAL"})
    t.want("another socket's cookie", (t.a.open("other", t.a_addr, 0) and t.a.send(
        "other", t.b_addr, t.pb, "aa", [{"type": "dest", "cookie": cookie}])),
           {"error": "EINVAL"})
    t.want("FREE_MR by another socket", t.a.free_mr("other", cookie), {"error": "EINVAL"})
    t.want("FREE_MR", isinstance(t.a.free_mr("s", cookie, INVALIDATE), float), True)


@test("RDS-50 RDS-51 RDS-54 RDS-23 RDS-28 RDS-32")
def conflicts(t):
    t.pair()
    cookie = t.offer(0, 5000, 0)
    t.b.buffer("l", PAGE, 1)
    t.a.buffer("big", (1 << 20) + 2 * PAGE)
    a_map = {"type": "map", "buf": "m", "len": 100}
    a_dest = {"type": "dest", "cookie": cookie}
    an_args = {"type": "args", "cookie": cookie, "local": [["m", 0, 100]], "flags": READWRITE}
    for name, cmsgs, expected, known in (
            ("two MAPs", [a_map, a_map], "EINVAL", None),
            ("MAP and DEST", [a_map, a_dest], "EINVAL", None),
            ("two DESTs", [a_dest, a_dest], "EINVAL", None),
            ("MAP and ARGS", [a_map, an_args], "EINVAL", None),
            ("DEST and ARGS", [a_dest, an_args], "EINVAL", None),
            ("two ARGS", [an_args, an_args], "EINVAL", None),
            ("MAP without length", [{**a_map, "len": 0}], "EINVAL", None),
            ("MAP too large", [{**a_map, "buf": "big", "len": (1 << 20) + 2 * PAGE}], "EINVAL",
             ("D11", "EMSGSIZE")),
            ("MAP of 1 MiB and one", [{**a_map, "buf": "big", "len": (1 << 20) + 1}], "EINVAL",
             None),
            ("MAP not mapped", [{**a_map, "addr": 4096}], "EFAULT", None),
            ("MAP cookie_addr bad", [{**a_map, "cookie_addr": 16}], "EFAULT", None),
            ("MAP unknown flag", [{**a_map, "flags": 1 << 20}], "EINVAL", ("D13", 1)),
            ("MAP with DONTWAIT", [{**a_map, "flags": DONTWAIT}], 1, None),
            ("unknown control message", [{"type": "raw", "kind": 99, "payload": "00" * 8}],
             "EINVAL", None),
            ("short ARGS", [{"type": "raw", "kind": 1, "payload": "00" * 40}], "EINVAL", None),
            ("short MAP", [{"type": "raw", "kind": 3, "payload": "00" * 24}], "EINVAL", None),
            ("short DEST", [{"type": "raw", "kind": 2, "payload": "00" * 4}], "EINVAL", None),
            ("STATUS on send", [{"type": "raw", "kind": 4, "payload": "00" * 16}], "EINVAL",
             None)):
        got = t.a.send("s", t.b_addr, t.pb, "aa", cmsgs)
        t.want(name, got["error"] if isinstance(got, dict) else got, expected, known)
    t.b.drain("s", 0.3)
    t.want("the connection still works", t.transfer(False), True)


@test("RDS-13 RDS-14 RDS-37 RDS-38 RDS-39")
def notifications(t):
    t.pair()
    cookie = t.offer(0, 65536, 0)
    t.b.buffer("l", 65536, 9)
    t.rdma(cookie, 100, READWRITE, token=1)
    t.a.recv("s")
    t.want("none unless asked for", t.b.recv("s", 1.0), None)
    for token in range(100, 110):
        t.rdma(cookie, 100 * (token - 99), (READWRITE if token & 1 else FENCE) | NOTIFY_ME,
               token=token if token < 109 else (1 << 64) - 2)
    for _ in range(10):
        t.a.recv("s")
    time.sleep(0.5)
    got = t.b.recv("s")
    t.want("an empty message", got and (got["length"], got["from"]), (0, None))
    statuses = list(got["status"]) if got else []
    while len(statuses) < 10 and (message := t.b.recv("s", 2)):
        statuses += message["status"]
    t.want("each once, tokens as given", sorted(statuses),
           [[token, "SUCCESS"] for token in range(100, 109)] + [[(1 << 64) - 2, "SUCCESS"]])
    t.want("nothing more", t.b.recv("s", 0.5), None)
    t.rdma(cookie, 100, READWRITE | NOTIFY_ME, token=5)
    t.rdma(cookie, 100, READWRITE | NOTIFY_ME, token=6)
    t.a.recv("s"), t.a.recv("s")
    time.sleep(0.5)
    t.a.send("s", t.b_addr, t.pb, b"data".hex())
    time.sleep(0.5)
    first = t.b.recv("s", 3, 1 << 20, 40)
    t.want("room for one status: one status", first and first["status"], [[5, "SUCCESS"]])
    second = t.b.recv("s")
    t.want("then the other", second and second["status"], [[6, "SUCCESS"]])
    third = t.b.recv("s")
    t.want("then the message", third and third["data"], b"data".hex())


def bad_access(t, name, cookie, size, flags, remote_off, recverr, known=None):
    """Makes one faulty RDMA operation. Checks its status, and that the connection works again
    afterwards."""
    t.pair(b={"recverr": recverr})
    good = t.offer(0, 65536, 0)
    t.b.buffer("l", max(size, PAGE), 1)
    start = time.monotonic()
    t.rdma(cookie(good), size, flags, remote_off, None, 42)
    status = t.b.wait_status("s", 42, 3)
    # The status may be delayed while the client holds the region. So the region is freed here.
    t.a.free_mr("s", good, INVALIDATE)
    status = status or t.b.wait_status("s", 42, 15)
    t.want(name, status and status[1:], ["REMOTE_ERROR"], known)
    ack = t.a.recv("s", 0.3)
    t.want(f"{name}: no ACK", ack and ack["data"], None)
    messages_go_on(t)
    t.note(f"{name}: {status}, next message {time.monotonic() - start:.1f} s after the RDMA")


@test("RDS-05 RDS-07 RDS-43", slow=True)
def fault_with_region(t):
    """A faulty RDMA operation must not stop the messages of a client that holds a region."""
    t.pair()
    good = t.offer(0, 65536, 0, acked=False)
    t.b.buffer("l", PAGE, 1)
    t.rdma(good ^ 0x5500, 100, READWRITE | NOTIFY_ME, token=42)
    t.want("status", (t.b.wait_status("s", 42, 15) or [0])[1:], ["REMOTE_ERROR"])
    t.a.send("s", t.b_addr, t.pb, b"on".hex())
    got = t.b.recv("s", 20)
    t.want("the next message, with the region held", got and got["data"], b"on".hex())
    start = time.monotonic()
    t.a.free_mr("s", good, INVALIDATE)
    if not got:
        got = t.b.recv("s", 20)
        t.note(f"{time.monotonic() - start:.1f} s after FREE_MR: {got and got['data']}")


# covers: RDS-35
@test("RDS-05 RDS-07 RDS-41 RDS-59", slow=True)
def remote_errors(t):
    def wrong_key(cookie):
        return cookie ^ 0x5500

    def same(cookie):
        return cookie

    bad_access(t, "write, unknown key, 1 page", wrong_key, 100, READWRITE | NOTIFY_ME, 0, 0)
    bad_access(t, "read, unknown key, 1 page", wrong_key, 100, FENCE | NOTIFY_ME, 0, 0)
    bad_access(t, "write, unknown key, 9 pages", wrong_key, 9 * PAGE, READWRITE | NOTIFY_ME, 0, 0)
    bad_access(t, "read, unknown key, 9 pages", wrong_key, 9 * PAGE, FENCE | NOTIFY_ME, 0, 0)
    bad_access(t, "write, unknown key, 257 pages", wrong_key, 1 << 20, READWRITE | NOTIFY_ME, 0, 0)
    bad_access(t, "write behind the region", same, 100, READWRITE | NOTIFY_ME, 65536, 0)
    bad_access(t, "write across the end", same, 2 * PAGE, READWRITE | NOTIFY_ME, 65536 - PAGE, 0)
    bad_access(t, "read across the end", same, 2 * PAGE, FENCE | NOTIFY_ME, 65536 - PAGE, 0)


@test("RDS-15 RDS-18", slow=True)
def recverr(t):
    t.pair()
    t.want("default", t.b.getopt("s", RECVERR), "00000000")
    t.b.setopt("s", RECVERR, "05000000")
    t.want("set and get", t.b.getopt("s", RECVERR), "01000000")
    t.want("too short", t.b.setopt("s", RECVERR, "01"), {"error": "EINVAL"})
    bad_access(t, "RECVERR alone, write, unknown key", lambda cookie: cookie ^ 0x5500, 100,
               READWRITE, 0, 1)
    t.pair(b={"recverr": 1})
    cookie = t.offer(0, PAGE, 0)
    t.b.buffer("l", PAGE, 1)
    t.rdma(cookie, 100, READWRITE, token=3)
    t.a.recv("s")
    t.want("RECVERR is silent about success", t.b.wait_status("s", 3, 1.5), None)


def reachable(t, cookie, size=8, remote_off=0, write=False):
    """Makes the peer execute an RDMA operation with this cookie. Returns the status of the
    operation."""
    t.b.buffer("probe", max(PAGE, size), 99)
    t.rdma(cookie, size, NOTIFY_ME | (READWRITE if write else FENCE), remote_off,
           [["probe", 0, size]], 4711, "probe")
    status = t.b.wait_status("s", 4711, 15)
    return status[1] if status else None


# covers: RDS-01
@test("RDS-01 RDS-20", slow=True)
def bounds(t):
    """A handle gives access to the memory for which it was made, and to no other memory."""
    for name, off, size, remote_off in (("the octet before", 100, 200, -1),
                                        ("the octet behind", 100, 200, 200),
                                        ("the start of the page", 100, 200, -100),
                                        ("the end of the page", 100, 200, PAGE - 101)):
        t.pair()
        cookie = t.offer(off, size, 0)
        got = reachable(t, cookie, 1, remote_off & ((1 << 64) - 1))
        t.want(name, got, "REMOTE_ERROR")


@test("RDS-24 RDS-27", slow=True)
def use_once(t):
    for name, flags in (("USE_ONCE|INVALIDATE", USE_ONCE | INVALIDATE), ("USE_ONCE", USE_ONCE)):
        t.pair()
        cookie = t.offer(0, PAGE, flags)
        t.b.buffer("l", PAGE, 1)
        t.rdma(cookie, 100, READWRITE | NOTIFY_ME)
        t.a.recv("s")
        t.want(f"{name}: FREE_MR after the ACK", t.a.free_mr("s", cookie), {"error": "EINVAL"})
        t.want(f"{name}: DEST after the ACK", t.a.send("s", t.b_addr, t.pb, "00", [
            {"type": "dest", "cookie": cookie}]), {"error": "EINVAL"})
        if flags & INVALIDATE:
            time.sleep(0.5)
            t.want(f"{name}: second use half a second later", reachable(t, cookie), "REMOTE_ERROR")
        else:
            t.note(f"{name}: second use at once: {reachable(t, cookie)}")


@test("RDS-24 RDS-27", slow=True)
def use_once_at_ack(t):
    """With INVALIDATE, the peer can no longer access the memory after the application has received
    the ACK.

    The peer then immediately tries to write with the same cookie. The memory must not change.
    """
    late = 0
    for _ in range(10):
        t.pair()
        cookie = t.offer(0, PAGE, USE_ONCE | INVALIDATE)
        t.b.buffer("l", PAGE, 1)
        t.b.buffer("probe", PAGE, 2)
        t.rdma(cookie, 100, READWRITE | NOTIFY_ME)
        ack = t.a.recv("s")
        before = t.a.digest("m", 0, PAGE)
        t.b.send("s", t.a_addr, t.pa, b"probe".hex(), [
            {"type": "args", "cookie": cookie, "local": [["probe", 0, PAGE]], "token": 8,
             "flags": READWRITE | NOTIFY_ME}])
        t.b.wait_status("s", 8, 10)
        late += bool(ack) and t.a.digest("m", 0, PAGE) != before
    t.want("times the peer wrote after the ACK had been received", late, 0)


@test("RDS-26 RDS-46 RDS-47 RDS-48", slow=True)
def free_mr(t):
    for name, acked in (("", True), (", the request not answered", False)):
        t.pair()
        cookie = t.offer(0, PAGE, 0, acked=acked)
        time.sleep(0.3)
        took = t.a.free_mr("s", cookie, INVALIDATE)
        t.want(f"FREE_MR with INVALIDATE{name}", isinstance(took, float), True)
        t.want(f"access after it{name}", reachable(t, cookie), "REMOTE_ERROR")
    t.pair()
    cookie = t.offer(0, PAGE, 0)
    t.a.free_mr("s", cookie)
    t.note(f"access after FREE_MR without INVALIDATE: {reachable(t, cookie)}")
    t.pair()
    cookie = t.offer(0, PAGE, 0)
    kept = t.offer(0, PAGE, 0, buf="m2")
    t.a.free_mr("s", cookie)
    took = t.a.free_mr("s", 0, INVALIDATE)
    t.want("FREE_MR of cookie 0 with INVALIDATE", isinstance(took, float), True)
    t.want("a region still held survives it", reachable(t, kept), "SUCCESS")
    t.want("access to the released one after it", reachable(t, cookie), "REMOTE_ERROR")
    t.want("unknown cookie", t.a.free_mr("s", 0x123456789), {"error": "EINVAL"})


@test("RDS-25")
def close_releases(t):
    t.pair()
    cookie = t.offer(0, PAGE, 0)
    t.a.close("s")
    t.a.open("s", t.a_addr, t.pa, transport=TRANS_IB)
    t.want("access after close of the owner", reachable(t, cookie), "REMOTE_ERROR")


@test("RDS-34 RDS-59")
def fence(t):
    """With FENCE, the ACK never arrives before the RDMA Read is complete. So the client may
    overwrite the memory as soon as it has the ACK.
    """
    t.pair()
    cookie = t.offer(0, 1 << 20, 0, seed=31)
    for _ in range(5):
        t.b.buffer("l", 1 << 20, 1)
        t.rdma(cookie, 1 << 20, FENCE | NOTIFY_ME)
        got = t.a.recv("s", 20)
        t.a.poke("m", 0, bytes(1 << 20).hex())
        t.want("ACK", got and got["data"], b"ack".hex())
        t.want("status", (t.b.wait_status("s", 7) or [0])[1:], ["SUCCESS"])
        t.want("octets as they were", t.b.digest("l", 0, 1 << 20),
               hashlib.sha256(pattern(31, 1 << 20)).hexdigest())
        t.a.poke("m", 0, pattern(31, 1 << 20).hex())


@test("RDS-42")
def cancel(t):
    t.pair()
    t.b.buffer("l", PAGE, 1)
    cookie = t.offer(0, PAGE, 0)
    host = t.options.dead
    sent = t.b.send("s", host, 7777, "00", [{"type": "args", "cookie": cookie, "token": 12,
                                            "local": [["l", 0, 100]], "flags": NOTIFY_ME}])
    t.want("RDMA to an absent host is queued", sent, 1)
    t.want("CANCEL_SENT_TO", isinstance(t.b.cancel("s", host, 7777), float), True)
    t.want("status", (t.b.wait_status("s", 12, 5) or [0])[1:], ["CANCELED"])
    t.want("nothing left in the send queue",
           [row for row in t.b.info("send") if row["faddr"] == host], [])


@test("basic")
def silent(t):
    """An operation with SILENT is sent without a payload. No message is delivered, but the
    notification arrives."""
    t.pair(tos=20)
    cookie = t.offer(0, PAGE, 0)
    t.b.buffer("l", PAGE, 77)
    t.want("send", t.rdma(cookie, 100, READWRITE | SILENT | NOTIFY_ME, data="", token=9), 0)
    t.want("status", (t.b.wait_status("s", 9, 3) or [0])[1:], ["SUCCESS"])
    t.want("octets", t.a.digest("m", 0, 100), t.b.digest("l", 0, 100))
    t.want("no message", t.a.recv("s", 0.5), None)
    took = Later(t.b.close, "s").wait(8)
    t.want("close returns", isinstance(took, float), True)


@test("basic", fault=True)
def atomics(t):
    t.pair(tos=21)
    cookie = t.offer(0, PAGE, 0)
    t.b.buffer("l", PAGE, 1)
    got = t.b.send("s", t.a_addr, t.pa, "00", [{"type": "fadd", "cookie": cookie, "buf": "l",
                                               "operands": [5], "flags": NOTIFY_ME, "token": 3}])
    t.want("atomic on a device without masked atomics", got, {"error": "EOPNOTSUPP"})
    t.want("the connection still works", t.b.send("s", t.a_addr, t.pa, b"on".hex()), 2)
    got = t.a.recv("s", 5)
    t.want("message delivered", got and got["data"], b"on".hex())


@test("RDS-49 RDS-56", fault=True, slow=True)
def region_limit(t):
    """The transport's parameter limits the number of regions. At most --limit regions of two pages
    can be made."""
    limit = t.options.limit
    t.pair()
    t.a.buffer("m", PAGE, 1)
    error = None
    for count in range(limit + limit // 4 + 8):
        error = t.a.send("s", t.b_addr, t.pb, "00", [{"type": "map", "buf": "m", "len": 8}])
        if isinstance(error, dict):
            break
        if count % 64 == 63:
            t.b.drain("s", 0.05)
    t.want("MAP beyond the limit", error, {"error": "EAGAIN"})
    t.note(f"{count} regions mapped, then {error}")


@test("basic RDS-57", slow=True)
def largest_operation(t):
    """Transfers 1 MiB with the iovecs that need the most scatter/gather elements: 255 pieces that
    each touch three pages, and 769 pieces that each cross a page boundary."""
    t.pair(tos=22)
    cookie = t.offer(0, 1 << 20, 0, seed=1)
    t.b.buffer("l", 256 * 3 * PAGE + 769 * 2 * PAGE, 2)
    local: list = [["l", n * 3 * PAGE + PAGE - 1, PAGE + 2] for n in range(255)]
    base = 256 * 3 * PAGE
    local += [["l", base + n * 2 * PAGE + PAGE - 1, 2] for n in range(769)]
    total = sum(piece[2] for piece in local)
    t.want("send", t.rdma(cookie, 0, READWRITE | NOTIFY_ME, 0, local, 21), 3)
    t.want("status", (t.b.wait_status("s", 21, 10) or [0])[1:], ["SUCCESS"])
    got = t.a.recv("s", 3)
    t.want("ACK", got and got["data"], b"ack".hex())
    t.note(f"{total} octets in {len(local)} pieces")


@test("RDS-07 RDS-43", fault=True, slow=True)
def link_cut(t):
    """The link is down for some seconds while no region is held. Afterwards messages are
    transferred again."""
    t.pair()
    stale = events(t, t.b)["ib_listen_closed_stale"]
    t.cut_for(10)
    t.a.send("s", t.b_addr, t.pb, b"later".hex())
    start = time.monotonic()
    got = t.b.recv("s", 60)
    t.want("message delivered after the cut", got and got["data"], b"later".hex())
    t.note(f"delivered {time.monotonic() - start:.1f} s after it was sent, cut for 10 s")
    # The server sent nothing during the cut, so it did not notice the loss of the connection. When
    # the client requested a new connection, the server still had the former one.
    t.want("the server's former connection is counted",
           events(t, t.b)["ib_listen_closed_stale"] > stale, True)


@test("RDS-43", fault=True, slow=True)
def link_cut_in_transfer(t):
    """If the link goes down during an RDMA operation, the operation is reported as DROPPED, and
    only once."""
    t.pair()
    cookie = t.offer(0, 1 << 20, 0)
    t.b.buffer("l", 1 << 20, 1)
    for node in (t.a, t.b):
        node.shell(t.options.cut)
    try:
        t.want("send", t.rdma(cookie, 1 << 20, READWRITE | NOTIFY_ME, token=31), 3)
        time.sleep(float(t.options.cut_seconds))
    finally:
        for node in (t.a, t.b):
            node.shell(t.options.mend)
    t.a.send("s", t.b_addr, t.pb, b"wake".hex())
    status = t.b.wait_status("s", 31, 60)
    t.want("status", status and status[1:], ["DROPPED"])
    t.note(f"status {status}")


@test("RDS-43 RDS-07", fault=True, slow=True)
def link_cut_with_region(t):
    """A region that the client still holds must not prevent a new connection."""
    t.pair()
    cookie = t.offer(0, PAGE, 0)
    t.cut_for(8)
    t.a.send("s", t.b_addr, t.pb, b"later".hex())
    t.b.send("s", t.a_addr, t.pa, b"later".hex())
    start = time.monotonic()
    got = t.b.recv("s", 45)
    t.want("message of the holder delivered", got and got["data"], b"later".hex())
    t.note(f"after {time.monotonic() - start:.1f} s: {got and got['data']}")
    got = t.a.recv("s", 5)
    t.want("message to the holder delivered", got and got["data"], b"later".hex())
    for name, release in (("FREE_MR", lambda: t.a.free_mr("s", cookie)),
                          ("FREE_MR of cookie 0", lambda: t.a.free_mr("s", 0, INVALIDATE))):
        if not got:
            start = time.monotonic()
            release()
            got = t.b.recv("s", 8)
            t.note(f"{time.monotonic() - start:.1f} s after {name}: {got and got['data']}")


def statuses(t, count):
    """Returns the statuses of `count` operations of the server. Checks that all of them arrive."""
    told, end = {}, time.monotonic() + 120
    while len(told) < count and time.monotonic() < end:
        told.update((t.b.recv("s", 5) or {}).get("status", []))
    t.want("operations with a status", len(told), count)
    return told


@test("RDS-12 RDS-48", fault=True, slow=True)
def kill_in_transfer(t):
    """The client's socket is closed while the client's memory is offered. The server gets a status
    for its operation, and no process hangs."""
    t.pair()
    cookie = t.offer(0, 1 << 20, 0)
    t.b.buffer("l", 1 << 20, 1)
    for token in range(20):
        t.rdma(cookie, 1 << 20, READWRITE | NOTIFY_ME, token=50 + token)
    took = t.a.close("s")
    t.want("close returns in 5 s", isinstance(took, float) and took < 5, True)
    told = statuses(t, 20)
    # If all operations succeeded, the socket was closed too late, and the test has shown nothing.
    t.want("some of them failed", set(told.values()) != {"SUCCESS"}, True)
    t.note(f"close took {took}, statuses {sorted(told.values())}")


@test("RDS-43 RDS-07", fault=True, slow=True)
def link_cuts(t):
    """The link is cut for short and for long times while a region is held. Afterwards messages are
    transferred again, and the region can be used."""
    for seconds in (1, 3, 30):
        t.pair()
        cookie = t.offer(0, PAGE)
        t.cut_for(seconds)
        t.a.send("s", t.b_addr, t.pb, b"later".hex())
        start = time.monotonic()
        got = t.b.recv("s", seconds + 30)
        t.want(f"cut for {seconds} s: message", got and got["data"], b"later".hex())
        t.note(f"cut for {seconds} s: delivered {time.monotonic() - start:.1f} s after it was sent")
        t.want(f"cut for {seconds} s: the region", reachable(t, cookie), "SUCCESS")


@test("RDS-12 RDS-25", fault=True, slow=True)
def kill_the_client(t):
    """The server reads and writes the memory of a process. The process is killed with kill -9.
    Afterwards the server can no longer access the pages."""
    for number in range(5):
        t.pair()
        victim = subprocess.Popen([sys.executable, "-B", __file__, "offer", "--local", t.a_addr,
                                   "--peer", t.b_addr, "--port", str(t.pb)],
                                  stdout=subprocess.PIPE)
        got = t.b.recv("s", 20)
        cookie, (host, port) = got["cookie"], got["from"]
        t.b.buffer("l", 1 << 20, 1)
        for token in range(8):
            t.b.send("s", host, port, b"ack".hex(), [
                {"type": "args", "cookie": cookie, "local": [["l", 0, 1 << 20]],
                 "token": 100 + token, "flags": NOTIFY_ME | (READWRITE if token & 1 else FENCE)}])
        time.sleep(0.02 * number)
        victim.kill()
        victim.wait()
        t.want("the first operation is told", bool(t.b.wait_status("s", 100, 20)), True)
        # The earlier operations fail, and therefore the connection ends. A new operation is dropped
        # if it begins before the connection has ended. In that case the test tries again.
        told, tries = [0, "DROPPED"], 0
        while told and told[1] == "DROPPED" and tries < 10:
            t.b.send("s", host, port, b"late".hex(), [
                {"type": "args", "cookie": cookie, "local": [["l", 0, 8]], "token": 99,
                 "flags": NOTIFY_ME | READWRITE}])
            told, tries = t.b.wait_status("s", 99, 20), tries + 1
        t.want("a write after the end of the process", told and told[1], "REMOTE_ERROR")
        messages_go_on(t)


@test("basic", fault=True)
def simultaneous_connects(t):
    """Both ends send their first message at the same time. The test does this several times, each
    time with a new connection."""
    times, before = [], [events(t, node)["ib_connect_raced"] for node in (t.a, t.b)]
    for tos in range(150, 162):
        t.pair(warm=False, tos=tos)
        start = time.monotonic()
        first = Later(t.a.send, "s", t.b_addr, t.pb, b"a".hex())
        second = Later(t.b.send, "s", t.a_addr, t.pa, b"b".hex())
        first.wait(), second.wait()
        there = Later(t.b.recv, "s", 20)
        here = t.a.recv("s", 20)
        got = (there.wait() or {}).get("data"), (here or {}).get("data")
        t.want(f"both messages arrive, tos {tos}", got, (b"a".hex(), b"b".hex()))
        times.append(round(time.monotonic() - start, 2))
    t.note(f"seconds: {times}")
    raced = [events(t, node)["ib_connect_raced"] for node in (t.a, t.b)]
    t.want("some requests crossed", raced != before, True)
    t.note(f"requests that crossed: {before}, then {raced}")


@test("basic", fault=True)
def full_both_ways(t):
    """Each end sends until it cannot send any more, because the other end does not read. Then both
    ends read, and all messages arrive."""
    t.pair(a={"rcvbuf": 32768}, b={"rcvbuf": 32768})
    sent = {}
    for one, host, port in ((t.a, t.b_addr, t.pb), (t.b, t.a_addr, t.pa)):
        count = 0
        for number in range(2000):
            done = one.send_pattern("s", host, port, number, 4096, socket.MSG_DONTWAIT)
            if not isinstance(done, dict):
                count += 1
            elif done["error"] == "ENOBUFS":
                break
            else:
                time.sleep(0.02)
        t.want("a sender is told that the receiver is full", done, {"error": "ENOBUFS"})
        sent[one] = count
    for one, other in ((t.a, t.b), (t.b, t.a)):
        got = 0
        while got < sent[other] and one.recv("s", 5):
            got += 1
        t.want("all messages arrive", got, sent[other])
    t.want("the connection still works", t.transfer(True), True)


@test("RDS-43 RDS-49", fault=True, slow=True)
def device_leaves(t):
    """The client's device is removed while the server reads and writes the client's memory. Later
    the device is added again."""
    for _ in range(3):
        cookies, pumping = transferring(t, 9)
        # This region is released before the device is removed. So the module removes the region
        # from its table.
        t.a.free_mr("s", cookies.pop(3), INVALIDATE)
        with without_device(t, t.a):
            told = t.a.get_mr("s", "m", 0, PAGE)
            t.want("GET_MR without a device", isinstance(told, dict), True)
            t.note(f"GET_MR without a device: {told}")
            for cookie in cookies:
                t.want("FREE_MR of a region that was on it",
                       isinstance(t.a.free_mr("s", cookie, INVALIDATE), float), True)
        goes_on(t, pumping)


@test("RDS-43", fault=True, slow=True)
def device_of_the_server_leaves(t):
    """The server's device is removed while the server reads and writes the client's memory. Later
    the device is added again. The client's region can then be used as before."""
    for _ in range(3):
        (cookie,), pumping = transferring(t, 1)
        with without_device(t, t.b):
            pass
        goes_on(t, pumping)
        t.want("the region afterwards", reachable(t, cookie), "SUCCESS")
        t.want("FREE_MR", isinstance(t.a.free_mr("s", cookie, INVALIDATE), float), True)


def transferring(t, count):
    """Registers `count` regions of the client's memory. Starts operations with which the server
    reads and writes the first region; `goes_on` ends them. Returns the cookies, and the call of
    pump() that is still running."""
    t.pair()
    cookies = [t.offer(0, 1 << 20), *(t.a.get_mr("s", "m", 0, PAGE) for _ in range(count - 1))]
    t.b.buffer("l", 1 << 20, 1)
    pumping = Later(t.b.pump, "s", t.a_addr, t.pa, cookies[0], 1 << 20)
    t.want("operations succeed", until(lambda: t.b.pumped().get("SUCCESS"), 60), True)
    return cookies, pumping


@contextlib.contextmanager
def without_device(t, node):
    """Removes the device of one end during the `with` block, and adds it again afterwards. While
    the device is being added, this end has no address, so no packet reaches the device."""
    address = t.a_addr if node is t.a else t.b_addr
    status, text = node.shell(f"ip -o addr show to {address}")
    t.want(f"the address {address}: {text}", status, 0)
    _, device, _, whole, *_ = text.split()
    status, text = node.shell(t.options.unplug)
    t.want(f"{t.options.unplug}: {text}", status, 0)
    try:
        yield
    finally:
        plug = f"ip addr del {whole} dev {device}; {t.options.plug}; status=$?; "
        status, text = node.shell(plug + f"ip addr add {whole} dev {device} && exit $status")
        t.want(f"{t.options.plug}: {text}", status, 0)


def messages_go_on(t):
    """Sends a message to the server, and waits up to a minute for it: a new connection may be
    needed. Returns the seconds until the message arrived."""
    t.a.send("s", t.b_addr, t.pb, b"on".hex())
    start, data = time.monotonic(), ""
    while time.monotonic() - start < 60 and data != b"on".hex():
        data = (t.b.recv("s", 5) or {}).get("data", "")
    t.want("messages go on", data, b"on".hex())
    return time.monotonic() - start


def goes_on(t, pumping):
    """Ends the operations. Checks that each operation has a status, that some operations failed,
    and that messages arrive again."""
    t.b.rest()
    told = pumping.wait()
    t.note(f"statuses: {told}")
    t.want("operations without a status", {"dead", "none"} & set(told), set())
    t.want("some of them failed", set(told) != {"SUCCESS"}, True)
    t.note(f"{messages_go_on(t):.1f} s after the device came back")


@test("RDS-43", fault=True, slow=True)
def loss(t):
    """Both ends lose three of a thousand packets. All messages arrive once and in order. An
    operation transfers all its octets, or its status is DROPPED."""
    t.pair()
    cookie, told = t.offer(0, 1 << 20), []
    t.b.buffer("l", 1 << 20, 2)
    for node in (t.a, t.b):
        status, text = node.shell(t.options.lose)
        t.want(f"{t.options.lose}: {text}", status, 0)
    try:
        all_arrive(t, t.a, t.b, (t.b_addr, t.pb), 500, 8192, seconds=100.0)
        for token in range(300, 310):
            t.b.poke("l", 0, pattern(token, 1 << 20).hex())
            t.rdma(cookie, 1 << 20, READWRITE | NOTIFY_ME, token=token)
            status = t.b.wait_status("s", token, 60)
            told += status[1:] if status else ["no status"]
            if status and status[1:] == ["SUCCESS"]:
                t.want("the octets moved", t.a.digest("m", 0, 1 << 20),
                       hashlib.sha256(pattern(token, 1 << 20)).hexdigest())
    finally:
        lost = [node.shell(f"{t.options.lost}; {t.options.mend}")[1].strip()
                for node in (t.a, t.b)]
    t.want("one status for each operation", len(told), 10)
    t.want("statuses", set(told) <= {"SUCCESS", "DROPPED"}, True)
    t.want(f"lost packets: {lost}", any(int(number or 0) for number in lost), True)
    t.note(f"{lost} packets lost; {told.count('DROPPED')} of 10 operations dropped")
    t.pair()
    t.want("the connection still works", t.transfer(True), True)


@test("RDS-12 RDS-48", fault=True, slow=True)
def kill_the_server(t):
    """A process of the server reads and writes the client's memory, and is killed with kill -9.
    Afterwards no more data are written, and other sockets of the server's machine can use the
    memory."""
    for number in range(3):
        t.pair()
        t.b.shell_later(f"{sys.executable} -B {__file__} take --local {t.b_addr}"
                        f" --peer {t.a_addr} --port {t.pa}")
        host, port = t.a.recv("s", 60)["from"]
        t.a.buffer("m", 1 << 20, 1)
        t.a.buffer("cookie", 8)
        t.a.send("s", host, port, b"req".hex(), [
            {"type": "map", "buf": "m", "off": 0, "len": 1 << 20, "flags": 0,
             "cookie_buf": "cookie"}])
        cookie = int.from_bytes(bytes.fromhex(t.a.peek("cookie", 0, 8)), sys.byteorder)
        start, offered = time.monotonic(), hashlib.sha256(pattern(1, 1 << 20)).hexdigest()
        while t.a.digest("m", 0, 1 << 20) == offered and time.monotonic() < start + 20:
            pass
        time.sleep(0.02 * number)
        t.want("kill -9", t.b.shell("pkill -KILL -f 'rds.py [t]ake'")[0], 0)
        until(lambda: t.b.shell("pgrep -f 'rds.py [t]ake'")[0] != 0, 60)
        t.want("it wrote", t.a.digest("m", 0, 1 << 20) == offered, False)
        # During this pause the device completes the operations that it is executing.
        time.sleep(5)
        t.a.poke("m", 0, pattern(3, 1 << 20).hex())
        time.sleep(1)
        t.want("it writes no more", t.a.digest("m", 0, 1 << 20),
               hashlib.sha256(pattern(3, 1 << 20)).hexdigest())
        t.want("another socket reads the memory", reachable(t, cookie), "SUCCESS")
        t.want("FREE_MR", isinstance(t.a.free_mr("s", cookie, INVALIDATE), float), True)
        t.pair()
        t.want("messages and operations go on", t.transfer(True), True)


class Failures(contextlib.ExitStack):
    """Makes allocations of the module fail on this machine, which must run the debug kernel."""

    def __enter__(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
        from lib import injection  # noqa: PLC0415 - only some machines have it

        self.defer, self.function = self.callback, injection.function
        self.injection = injection.Injection(self)
        self.injection.only_module("rds_rdma_rs")
        return self


def try_all(t):
    """Makes every kind of call that a program can make to a transport, and ignores the results."""
    for one, other, host, port, back in ((t.a, t.b, t.b_addr, t.pb, (t.a_addr, t.pa)),
                                         (t.b, t.a, t.a_addr, t.pa, (t.b_addr, t.pb))):
        one.send_pattern("s", host, port, 1, 10000, socket.MSG_DONTWAIT)
        other.recv("s", 0.3)
        cookie = one.get_mr("s", "m", 5, 1 << 18)
        if isinstance(cookie, int):
            one.free_mr("s", cookie, INVALIDATE)
        one.send("s", host, port, b"req".hex(), [
            {"type": "map", "buf": "m", "len": 1 << 18, "flags": USE_ONCE}], socket.MSG_DONTWAIT)
        cookie = (other.recv("s", 0.3) or {}).get("cookie")
        if cookie:
            for flags in (NOTIFY_ME, NOTIFY_ME | READWRITE):
                other.send("s", *back, b"ack".hex(), [
                    {"type": "args", "cookie": cookie, "local": [["m", 7, 1 << 17]],
                     "flags": flags}], socket.MSG_DONTWAIT)
        other.drain("s", 0.2)
        one.drain("s", 0.2)


@test("basic", fault=True)
def failing_allocations(t):
    """Some allocations of the client's module fail. The module works again when its allocations
    succeed again."""
    met = []
    with Failures() as failures:
        for number, nth in enumerate((1, 2, 3, 7, 19)):
            # The first message is sent while allocations fail, so the connection is made in that
            # time.
            t.pair(warm=False, tos=170 + number)
            for node in (t.a, t.b):
                node.buffer("m", 1 << 19, 1)
            failures.injection.every(nth)
            try_all(t)
            met.append(failures.injection.stop())
            t.a.send("s", t.b_addr, t.pb, b"on".hex())
            end, data = time.monotonic() + 3 * MESSAGE_SECONDS, ""
            while time.monotonic() < end and data != b"on".hex():
                data = (t.b.recv("s") or {}).get("data", "")
            t.want(f"every {nth}th fails: messages go on", data, b"on".hex())
            # New sockets are opened, so that late notifications of the earlier operations do not
            # reach these sockets.
            t.pair(tos=170 + number)
            for write in (False, True):
                t.want(f"every {nth}th fails: transfers afterwards", t.transfer(write), True)
    t.want("some failed each time", all(met), True)
    t.note(f"failures: {met}")


def kept():
    """Returns the number of regions of this machine's devices, and the number of pinned pages."""
    regions = subprocess.run(["rdma", "resource", "show", "mr"], check=True, capture_output=True)
    pathlib.Path("/proc/sys/vm/stat_refresh").write_text("1\n", encoding="ascii")
    lines = pathlib.Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    pins = {name: int(number) for name, number in map(str.split, lines)}
    return (len(regions.stdout.splitlines()),
            pins["nr_foll_pin_acquired"] - pins["nr_foll_pin_released"])


def no_region_is_made(t, error):
    """Checks that each attempt of the client to register memory fails with `error`, and that
    messages are still transferred."""
    for number in range(3):
        t.want("GET_MR", t.a.get_mr("s", "m", 5, 1 << 17), {"error": error})
        t.want("MAP", t.a.send("s", t.b_addr, t.pb, b"req".hex(), [
            {"type": "map", "buf": "m", "len": 1 << 17, "flags": USE_ONCE}]), {"error": error})
        text = f"message {number}".encode().hex()
        t.a.send("s", t.b_addr, t.pb, text)
        t.want("a message arrives", (t.b.recv("s") or {}).get("data"), text)


@test("basic", fault=True)
def failing_registrations(t):
    """The client's device cannot allocate regions. Each attempt to register memory fails. Messages
    are still transferred, and no memory is leaked."""
    t.pair()
    t.a.buffer("m", 1 << 18, 1)
    t.a.free_mr("s", t.a.get_mr("s", "m", 5, 1 << 17), INVALIDATE)
    before = kept()
    with Failures() as failures:
        failures.injection.only_within(failures.function("ib_alloc_mr", "ib_core"))
        failures.injection.every(1)
        no_region_is_made(t, "ENOMEM")
        t.want("some failed each time", failures.injection.stop() >= 6, True)
    t.want("regions and pinned pages", kept(), before)
    cookie = t.a.get_mr("s", "m", 5, 1 << 17)
    t.want("a region is seen", kept()[0], before[0] + 1)
    t.a.free_mr("s", cookie, INVALIDATE)
    for write in (False, True):
        t.want("transfers afterwards", t.transfer(write), True)


@contextlib.contextmanager
def unmappable(parameter):
    """While the body of the `with` statement runs, no memory can be mapped in this machine, which
    must have the debug kernel."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    from lib import module  # noqa: PLC0415 - not everywhere

    with module.unmapped(parameter) as switch:
        switch.write_text("1", encoding="ascii")
        try:
            yield
        finally:
            switch.write_text("0", encoding="ascii")


def resets():
    """Returns how many connections have ended in this machine."""
    return next(row["value"] for row in info("counters") if row["name"] == "conn_reset")


# covers: RDS-53
@test("RDS-53", fault=True)
def failing_mappings(t):
    """The client's device cannot map memory. Each attempt to register memory fails. Messages
    are still transferred, and no memory is leaked."""
    t.pair()
    t.a.buffer("m", 1 << 18, 1)
    t.a.free_mr("s", t.a.get_mr("s", "m", 5, 1 << 17), INVALIDATE)
    before = kept()
    for parameter in ("unmapped", "unlisted"):
        with unmappable(parameter):
            no_region_is_made(t, "EBUSY")
        t.want(f"{parameter}: regions and pinned pages", kept(), before)
    for write in (False, True):
        t.want("transfers afterwards", t.transfer(write), True)


@test("RDS-05 RDS-15 RDS-35 RDS-44", fault=True)
def unmapped_operations(t):
    """If an operation's memory cannot be mapped, only this operation and its message fail."""
    size = 1 << 16
    # No message requests an acknowledgement, and together the messages are larger than the send
    # buffer. So all of them can be sent only if failed messages leave the send buffer.
    t.pair(a={"sndbuf": 1 << 15})
    t.a.buffer("m", size, 1)
    t.b.buffer("m", size, 2)
    cookie = t.b.get_mr("s", "m", 0, size)
    t.a.send("s", t.b_addr, t.pb, b"plain".hex())
    t.want("the plain message", (t.b.recv("s") or {}).get("data"), b"plain".hex())
    with unmappable("unlisted"):
        for token in range(100, 140):
            sent, limit = None, time.monotonic() + 10
            while sent != 1 << 13 and time.monotonic() < limit:
                sent = t.a.send("s", t.b_addr, t.pb, "ab" * (1 << 13), [
                    {"type": "args", "cookie": cookie, "local": [["m", 0, size]],
                     "flags": READWRITE | NOTIFY_ME, "token": token}], socket.MSG_DONTWAIT)
                time.sleep(0.05)
            t.want(f"sendmsg {token}", sent, 1 << 13)
            if sent != 1 << 13:
                break
            t.want(f"status {token}", (t.a.wait_status("s", token, 10) or [0])[1:],
                   ["OTHER_ERROR"])
    limit = time.monotonic() + 10
    while True:
        waiting = [row for kind in ("send", "retrans") for row in t.a.info(kind)
                   if row["lport"] == t.pa]
        if not waiting or time.monotonic() > limit:
            break
        time.sleep(0.1)
    t.want("messages that wait", waiting, [])
    for recverr, notify in ((0, NOTIFY_ME), (1, NOTIFY_ME), (1, 0), (0, 0)):
        t.pair(a={"recverr": recverr})
        t.a.buffer("m", size, 1)
        t.b.buffer("m", size, 2)
        cookie = t.b.get_mr("s", "m", 0, size)
        ends, before, token = resets(), kept(), 20
        with unmappable("unlisted"):
            for flags in (0, READWRITE, FENCE, SILENT, READWRITE | SILENT):
                token += 1
                data = "" if flags & SILENT else b"ack".hex()
                t.want("sendmsg", t.a.send("s", t.b_addr, t.pb, data, [
                    {"type": "args", "cookie": cookie, "local": [["m", 0, size]],
                     "flags": flags | notify, "token": token}]), len(data) // 2)
                told = t.a.wait_status("s", token, 10 if recverr or notify else 1)
                t.want(f"RECVERR {recverr}, flags {flags | notify}", told and told[1:],
                       ["OTHER_ERROR"] if recverr or notify else None)
                text = f"message {token}".encode().hex()
                t.a.send("s", t.b_addr, t.pb, text)
                t.want("the next message arrives, and no RDMA ACK before it",
                       (t.b.recv("s") or {}).get("data"), text)
        t.want("connections that ended", resets(), ends)
        for where, machine, seed in (("here", t.a, 1), ("there", t.b, 2)):
            t.want(f"octets {where}", machine.digest("m", 0, size),
                   hashlib.sha256(pattern(seed, size)).hexdigest())
        # The message "ok" acknowledges all earlier messages, including the messages that were
        # replaced by an empty frame.
        t.b.send("s", t.a_addr, t.pa, b"ok".hex())
        t.a.recv("s")
        t.want("regions and pinned pages", kept(), before)
        t.want("an operation afterwards", t.a.send("s", t.b_addr, t.pb, b"ack".hex(), [
            {"type": "args", "cookie": cookie, "local": [["m", 0, size]],
             "flags": READWRITE | NOTIFY_ME, "token": 9}]), 3)
        t.want("its status", (t.a.wait_status("s", 9) or [0])[1:], ["SUCCESS"])
        t.want("its RDMA ACK", (t.b.recv("s") or {}).get("data"), b"ack".hex())
        t.want("its octets", t.b.digest("m", 0, size),
               hashlib.sha256(pattern(1, size)).hexdigest())


@test("basic", fault=True)
def hostile_peer(t):
    """This machine refuses a hostile peer or ends the peer's connection. No other peer is
    disturbed."""
    from hostile import attack  # noqa: PLC0415 - needs pyverbs
    attack(t)


def offer_for_ever(options):
    """Offers memory, and waits until the process is killed."""
    node = Node()
    node.open("s", options.local, 0, transport=TRANS_IB)
    node.buffer("m", 1 << 20, 1)
    node.send("s", options.peer, options.port, b"req".hex(), [
        {"type": "map", "buf": "m", "len": 1 << 20, "flags": 0}])
    while True:
        node.recv("s", 60)


def take_for_ever(options):
    """Requests memory from the client, and reads and writes this memory until the process is
    killed."""
    node = Node()
    node.open("s", options.local, 0, transport=TRANS_IB)
    node.buffer("l", 1 << 20, 2)
    node.send("s", options.peer, options.port, b"take".hex())
    cookie = None
    while cookie is None:
        cookie = (node.recv("s", 60) or {}).get("cookie")
    # The messages have no data, so they take no space at the receiver. Only a few operations are in
    # progress at a time, so the last operations complete soon after the process was killed.
    outstanding = 0
    for flags in itertools.cycle((READWRITE, 0)):
        node.send("s", options.peer, options.port, "", [
            {"type": "args", "cookie": cookie, "remote_off": 0, "local": [["l", 0, 1 << 20]],
             "flags": flags | NOTIFY_ME, "token": 1}])
        outstanding += 1
        while outstanding > 2:
            outstanding -= len((node.recv("s", 60) or {}).get("status", ()))


def run_tests(options):
    names = options.names or [name for name, _, slow, fault, _ in TESTS
                              if (options.slow or not slow) and (options.fault or not fault)]
    passed = failed = 0
    for name, rows, _, _, function in TESTS:
        if name not in names:
            continue
        t, start = Context(options), time.monotonic()
        try:
            function(t)
            for node in (t.a, t.b):
                node.close_all()
        except Exception as error:  # noqa: BLE001 - the other tests run
            t.failures.append(f"stopped: {error!r}")
            if options.verbose:
                traceback.print_exc()
        verdict = "not ok" if t.failures else "ok"
        passed, failed = passed + (not t.failures), failed + bool(t.failures)
        print(f"{verdict} {name} ({time.monotonic() - start:.1f} s) [{rows}]")
        for kind, lines in (("FAILED", t.failures), ("deviates", t.deviations), ("note", t.notes)):
            for line in lines:
                print(f"    {kind}: {line}")
        sys.stdout.flush()
    print(f"{passed} passed, {failed} failed")
    return failed != 0


def stress(options):
    """Transfers in both directions with random sizes and flags, and verifies all data."""
    t = Context(options)
    t.pair()
    end, count, octets, faults = time.monotonic() + options.seconds, 0, 0, []
    choose = random.Random(options.seed)
    t.a.buffer("m", (1 << 20) + PAGE, 1)
    t.b.buffer("l", (1 << 20) + PAGE, 2)
    while time.monotonic() < end and not faults:
        off, size = choose.randrange(PAGE), choose.choice((1, 4096, 65536, 1 << 20))
        write = choose.random() < 0.5
        flags = choose.choice((0, USE_ONCE, USE_ONCE | INVALIDATE))
        cookie = t.offer(off, size, flags, make=False)
        if not isinstance(cookie, int):
            faults.append(f"no cookie: {cookie}")
            break
        seed = choose.randrange(1 << 30)
        (t.b if write else t.a).poke("l" if write else "m", 0 if write else off,
                                     pattern(seed, size).hex())
        sent = t.rdma(cookie, size, FENCE | NOTIFY_ME | (READWRITE if write else 0))
        ack = t.a.recv("s", 20)
        status = t.b.wait_status("s", 7, 20)
        if not ack or not status or status[1:] != ["SUCCESS"]:
            faults.append(f"round {count}: {sent} {ack} {status}")
        elif t.a.digest("m", off, size) != t.b.digest("l", 0, size):
            faults.append(f"round {count}: octets differ")
        if not flags & USE_ONCE:
            t.a.free_mr("s", cookie, choose.choice((0, INVALIDATE)))
        count, octets = count + 1, octets + size
    print(f"{count} rounds, {octets} octets, faults: {faults or 'none'}")
    return bool(faults)


def where(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    ends = argparse.ArgumentParser(add_help=False)
    ends.add_argument("--local", required=True, help="this machine's RDS address")
    ends.add_argument("--peer", required=True, help="the peer's RDS address")
    tester = argparse.ArgumentParser(add_help=False, parents=[ends])
    tester.add_argument("--control", type=where, required=True, help="HOST:PORT of the agent")
    tester.add_argument("--strict", action="store_true", help="do not even expect the deviations"
                        " that rds.ko forces on any transport")
    tester.add_argument("--dead", default="10.9.0.77", help="an address that no machine has")
    tester.add_argument("--tos", type=int, help="type of service of the tests' sockets")
    tester.add_argument("--limit", type=int, default=64, help="regions allowed")
    tester.add_argument("--cut", default="tc qdisc replace dev eth1 root netem loss 100%",
                        help="stop one end's packets (rxe does not survive `ip link set down`)")
    tester.add_argument("--mend", default="tc qdisc del dev eth1 root")
    tester.add_argument("--cut-seconds", default="8")
    tester.add_argument("--lose", default="tc qdisc replace dev eth1 root netem loss 0.3%",
                        help="lose some of one end's packets, until --mend")
    tester.add_argument("--lost", default="tc -s qdisc show dev eth1 | "
                        "sed -n 's/.*dropped \\([0-9]*\\).*/\\1/p'",
                        help="print how many packets were lost")
    tester.add_argument("--unplug", default="rdma link delete rxe0", help="remove the device")
    tester.add_argument("--plug", default="rdma link add rxe0 type rxe netdev eth0")
    one = commands.add_parser("ping", parents=[ends])
    one.add_argument("--count", type=int, default=5)
    one.add_argument("--tos", type=int)
    one = commands.add_parser("offer", parents=[ends])
    one.add_argument("--port", type=int, required=True)
    one = commands.add_parser("take", parents=[ends])
    one.add_argument("--port", type=int, required=True)
    one = commands.add_parser("agent")
    one.add_argument("--control", type=where, default=("0.0.0.0", 18700))
    one = commands.add_parser("test", parents=[tester])
    one.add_argument("--slow", action="store_true", help="also the slow tests")
    one.add_argument("--fault", action="store_true", help="also those that cut links or may"
                     " leave a connection unusable")
    one.add_argument("--verbose", action="store_true")
    one.add_argument("names", nargs="*")
    one = commands.add_parser("stress", parents=[tester])
    one.add_argument("--seconds", type=float, default=10)
    one.add_argument("--seed", type=int, default=1)
    commands.add_parser("list")
    one = commands.add_parser("info")
    one.add_argument("what", nargs="*", default=["connections", "counters"])
    options = parser.parse_args()

    if options.command == "ping":
        times = Node().ping(options.local, options.peer, options.count, tos=options.tos)
        print(*(f"{1e6 * t:.0f} us" if t is not None else "no answer" for t in times), sep="\n")
        return None in times
    does = {"offer": offer_for_ever, "take": take_for_ever, "test": run_tests, "stress": stress}
    if options.command in does:
        return does[options.command](options)
    if options.command == "agent":
        return serve(*options.control)
    if options.command == "list":
        for name, rows, slow, fault, _ in TESTS:
            print(f"{name:22} {'slow' if slow else '':5}{'fault' if fault else '':6}{rows}")
        return 0
    for what in options.what:
        print(f"{what}:")
        for row in info(what):
            print("  " + " ".join(f"{key}={value}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
