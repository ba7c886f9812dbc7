#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Compares the Rust codec with a second codec, which was written from the XDR of the
specifications.

The types below are the XDR of RFC 8166 section 4.1.2 and of the version two
draft section 4.2, in the same order and with the same names.  A few general
functions interpret these types.  Nothing in this file is derived from the Rust
code.

The program compares, field by field:

- the byte vectors;
- random messages that the second codec encodes and the Rust codec decodes;
- random messages that the Rust codec encodes and the second codec decodes;
- messages with random damage.  Both codecs must refuse such a message, or both
  must decode it to the same values.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import common  # noqa: E402
from common import HostError, say  # noqa: E402

VECTORS = common.PROTO / "tests/vectors.json"
SHOWN = 5


# XDR (RFC 4506): every type is a pair of functions, unpack(bytes, at) and pack(value).

class Malformed(Exception):
    """Raised if the bytes are not a value of the type."""


def integer(code, size):
    layout = struct.Struct(code)

    def unpack(octets, at):
        if at + size > len(octets):
            raise Malformed
        return layout.unpack_from(octets, at)[0], at + size

    return unpack, layout.pack


uint32 = integer(">I", 4)
uint64 = integer(">Q", 8)


def enum(*values):
    def unpack(octets, at):
        value, at = uint32[0](octets, at)
        if value not in values:
            raise Malformed
        return value, at

    return unpack, uint32[1]


boolean = enum(0, 1)


def structure(**fields):
    types = list(fields.items())

    def unpack(octets, at):
        value = {}
        for name, (take, _) in types:
            value[name], at = take(octets, at)
        return value, at

    def pack(value):
        return b"".join(put(value[name]) for name, (_, put) in types)

    return unpack, pack


def optional(inner):
    """Makes the XDR type of optional data (`type *name`, RFC 4506, section 4.19)."""
    def unpack(octets, at):
        present, at = boolean[0](octets, at)
        return inner[0](octets, at) if present else (None, at)

    def pack(value):
        return boolean[1](0) if value is None else boolean[1](1) + inner[1](value)

    return unpack, pack


def linked(entry):
    """Makes the XDR type `struct list { type entry; struct list *next; } *name`. A value of this
    type is decoded to a Python list."""
    def unpack(octets, at):
        values = []
        present, at = boolean[0](octets, at)
        while present:
            value, at = entry[0](octets, at)
            values.append(value)
            present, at = boolean[0](octets, at)
        return values, at

    def pack(values):
        return b"".join(boolean[1](1) + entry[1](v) for v in values) + boolean[1](0)

    return unpack, pack


def array(inner):
    """Makes the XDR type `type name<>`: a counted array (RFC 4506, section 4.13)."""
    def unpack(octets, at):
        count, at = uint32[0](octets, at)
        values = []
        for _ in range(count):
            value, at = inner[0](octets, at)
            values.append(value)
        return values, at

    def pack(values):
        return uint32[1](len(values)) + b"".join(inner[1](v) for v in values)

    return unpack, pack


def opaque():
    """Makes the XDR type `opaque name<>`: a counted byte string (RFC 4506, section 4.10)."""
    def unpack(octets, at):
        length, at = uint32[0](octets, at)
        end = at + (length + 3) // 4 * 4
        if end > len(octets):
            raise Malformed
        return octets[at:at + length], end

    def pack(value):
        return uint32[1](len(value)) + value + bytes(-len(value) % 4)

    return unpack, pack


def union(discriminant, **arms):
    """Makes the XDR type `union switch (discriminant)`. An arm is a pair (value, type). A void arm
    has the type `None`."""
    by_value = {value: (name, kind) for name, (value, kind) in arms.items()}
    numbers = {name: value for name, (value, _) in arms.items()}

    def unpack(octets, at):
        value, at = discriminant[0](octets, at)
        if value not in by_value:
            raise Malformed
        name, kind = by_value[value]
        if kind is None:
            return (name, None), at
        inner, at = kind[0](octets, at)
        return (name, inner), at

    def pack(value):
        name, inner = value
        number = numbers[name]
        kind = by_value[number][1]
        return discriminant[1](number) + (kind[1](inner) if kind else b"")

    return unpack, pack


# The types of RFC 8166, section 4.1.2.

xdr_rdma_segment = structure(handle=uint32, length=uint32, offset=uint64)
xdr_read_chunk = structure(position=uint32, target=xdr_rdma_segment)
xdr_write_chunk = structure(target=array(xdr_rdma_segment))
rpc_rdma_header = structure(rdma_reads=linked(xdr_read_chunk),
                            rdma_writes=linked(xdr_write_chunk),
                            rdma_reply=optional(xdr_write_chunk))
rpc_rdma_errvers = structure(rdma_vers_low=uint32, rdma_vers_high=uint32)
rpc_rdma_error = union(enum(1, 2), ERR_VERS=(1, rpc_rdma_errvers), ERR_CHUNK=(2, None))
# RDMA_MSGP and RDMA_DONE are left out, because RFC 8166 says that they are "not to be used".
rdma_body = union(enum(0, 1, 4), RDMA_MSG=(0, rpc_rdma_header), RDMA_NOMSG=(1, rpc_rdma_header),
                  RDMA_ERROR=(4, rpc_rdma_error))
rdma_msg = structure(rdma_xid=uint32, rdma_vers=uint32, rdma_credit=uint32, rdma_body=rdma_body)

# The types of the version two draft, section 4.2.

msg_type = enum(0, 1)
rpcrdma2_chunk_lists = structure(rdma_direction=msg_type, rdma_reads=linked(xdr_read_chunk),
                                 rdma_writes=linked(xdr_write_chunk),
                                 rdma_reply=optional(xdr_write_chunk))
rpcrdma2_error = union(enum(1, 2, 3), RDMA2_ERR_VERS=(1, rpc_rdma_errvers),
                       RDMA2_ERR_BAD_HEADER=(2, None), RDMA2_ERR_INVAL_OPTION=(3, None))
rpcrdma2_optional = structure(rdma_optdir=msg_type, rdma_opttype=uint32, rdma_optinfo=opaque())
rpcrdma2_body = union(enum(0, 1, 4, 5), RDMA2_MSG=(0, rpcrdma2_chunk_lists),
                      RDMA2_NOMSG=(1, rpcrdma2_chunk_lists), RDMA2_ERROR=(4, rpcrdma2_error),
                      RDMA2_OPTIONAL=(5, rpcrdma2_optional))
rpcrdma2_xprt_hdr = structure(rdma_xid=uint32, rdma_vers=uint32, rdma_credit=uint32,
                              rdma_body=rpcrdma2_body)


# Descriptions of messages. For the same message, the Rust program prints the same description.

def decode(octets):
    """Decodes a message from its bytes, and returns its description."""
    try:
        version, _ = uint32[0](octets, 4)
        if version not in (1, 2):
            raise Malformed
        value, at = (rdma_msg if version == 1 else rpcrdma2_xprt_hdr)[0](octets, 0)
    except Malformed:
        return ["malformed"]
    return describe(value, at, len(octets) - at)


def describe(value, header, rest):
    arm, body = value["rdma_body"]
    xid = value["rdma_xid"]
    if arm.endswith("ERROR"):
        err, versions = body
        number = {"ERR_VERS": 1, "ERR_CHUNK": 2, "RDMA2_ERR_VERS": 1, "RDMA2_ERR_BAD_HEADER": 2,
                  "RDMA2_ERR_INVAL_OPTION": 3}[err]
        low, high = versions.values() if versions else (0, 0)
        return ["error", xid, number, low, high, rest > 0]
    if arm == "RDMA2_OPTIONAL":
        # The direction has the same values as in an RPC message: 0 is a call, 1 is a reply. An
        # option with direction 1 should be the answer to an option. But the module sends no
        # options, so it drops such an answer.
        return ["option reply"] if body["rdma_optdir"] else ["option", xid]
    reads = [[c["position"], *c["target"].values()] for c in body["rdma_reads"]]
    writes = [chunk(c) for c in body["rdma_writes"]]
    reply = body["rdma_reply"] and chunk(body["rdma_reply"])
    return ["lists", xid, value["rdma_vers"], value["rdma_credit"], int(arm.endswith("NOMSG")),
            body.get("rdma_direction"), reads, writes, reply, header, rest]


def chunk(value):
    return [list(segment.values()) for segment in value["target"]]


def find_private(octets):
    """Returns the description of private data (RFC 8797 4 and 5.2)."""
    at = octets.find(b"\xf6\xab\x0e\x18")
    while at >= 0:
        rest = octets[at + 4:at + 8]
        if len(rest) == 4 and rest[0] == 1:
            return ["private", bool(rest[1] & 1), (rest[2] + 1) * 1024, (rest[3] + 1) * 1024]
        at = octets.find(b"\xf6\xab\x0e\x18", at + 1)
    return ["none"]


# The next classes and functions make random messages.

class Maker:
    """Makes random values of the XDR types."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def word(self):
        kind = self.random.random()
        if kind < 0.2:
            return self.random.randrange(20)
        if kind < 0.3:
            return 0xffffffff - self.random.randrange(4)
        return self.random.getrandbits(32)

    def segment(self):
        return {"handle": self.word(), "length": self.word(),
                "offset": self.random.getrandbits(64) >> self.random.randrange(64)}

    def chunk(self):
        return {"target": [self.segment() for _ in range(self.random.randrange(9))]}

    def lists(self, version):
        direction = {"rdma_direction": self.random.randrange(2)} if version == 2 else {}
        return {**direction,
                "rdma_reads": [{"position": self.word(), "target": self.segment()}
                               for _ in range(self.random.randrange(6))],
                "rdma_writes": [self.chunk() for _ in range(self.random.randrange(3))],
                "rdma_reply": self.chunk() if self.random.random() < 0.5 else None}

    def body(self, version):
        prefix = "RDMA2_" if version == 2 else "RDMA_"
        kind = self.random.random()
        if kind < 0.7:
            return prefix + self.random.choice(("MSG", "NOMSG")), self.lists(version)
        if version == 2 and kind < 0.8:
            return "RDMA2_OPTIONAL", {"rdma_optdir": self.random.randrange(2),
                                      "rdma_opttype": self.word(),
                                      "rdma_optinfo": self.random.randbytes(
                                          self.random.randrange(20))}
        errors = ("ERR_VERS", "ERR_CHUNK") if version == 1 else (
            "RDMA2_ERR_VERS", "RDMA2_ERR_BAD_HEADER", "RDMA2_ERR_INVAL_OPTION")
        err = self.random.choice(errors)
        versions = {"rdma_vers_low": self.word(), "rdma_vers_high": self.word()} \
            if err.endswith("VERS") else None
        return prefix + "ERROR", (err, versions)

    def message(self):
        """Returns the bytes of a valid message and its description."""
        version = self.random.choice((1, 2))
        value = {"rdma_xid": self.word(), "rdma_vers": version, "rdma_credit": self.word(),
                 "rdma_body": self.body(version)}
        header = (rdma_msg if version == 1 else rpcrdma2_xprt_hdr)[1](value)
        rest = self.random.randbytes(self.random.choice((0, 0, 4, 20, 41)))
        return header + rest, describe(value, len(header), len(rest))

    def private(self):
        """Returns bytes with or without valid private data, and their description."""
        noise = self.random.randbytes(self.random.randrange(12))
        octets = noise + b"\xf6\xab\x0e\x18" + bytes((
            self.random.choice((0, 1, 1, 1, 2)), self.random.getrandbits(8),
            self.random.getrandbits(8), self.random.getrandbits(8)))
        octets = octets[:len(octets) - self.random.choice((0, 0, 0, 1, 5))] + bytes(
            self.random.choice((0, 0, 8)))
        return octets, find_private(octets)

    def damaged(self, octets):
        """Returns the same bytes with some words changed or the end cut off."""
        octets = bytearray(octets)
        for _ in range(self.random.randrange(1, 4)):
            at = self.random.randrange(8, max(9, len(octets))) & ~3
            octets[at:at + 4] = struct.pack(">I", self.random.choice(
                (0, 1, 2, 0x10000000, 0xffffffff, self.word())))
        if self.random.random() < 0.3:
            del octets[self.random.randrange(len(octets)):]
        return bytes(octets)


class Comparison:
    """The result of a comparison: the number of compared messages, and the differences."""

    def __init__(self):
        self.compared = 0
        self.differences = []

    def take(self, octets, ours, theirs):
        self.compared += 1
        if ours != theirs:
            self.differences.append(f"{octets.hex()}\n  here {ours}\n  Rust {theirs}")


def rust_describes(binary, frames):
    """Returns the descriptions that the Rust program prints for the frames. Each frame is a pair
    (kind, bytes)."""
    with tempfile.TemporaryFile() as file:
        for kind, octets in frames:
            file.write(kind + struct.pack(">I", len(octets)) + octets)
        file.seek(0)
        done = subprocess.run([binary, "describe"], stdin=file, stdout=subprocess.PIPE, timeout=120,
                              check=False)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(frames):
        raise HostError(f"{binary} describe: status {done.returncode}, {len(lines)} lines")
    return map(json.loads, lines)


def vectors():
    """Yields each byte vector, and the description of its fields."""
    for vector in json.loads(VECTORS.read_text()):
        octets, said = bytes.fromhex(vector["hex"]), vector["decoded"]
        if "r" in said:
            yield b"p", octets, ["private", said["r"], said["send"], said["recv"]]
        elif "err" in said:
            low, high = said.get("range", (0, 0))
            yield b"m", octets, ["error", said["xid"], said["err"], low, high, False]
        elif "optdir" in said:
            yield b"m", octets, ["option reply"] if said["optdir"] else ["option", said["xid"]]
        else:
            yield b"m", octets, ["lists", said["xid"], said["vers"], said["credit"], said["proc"],
                                 said.get("direction"), said["reads"], said["writes"],
                                 said["reply"], said["hdrlen"], said["payload_len"]]


def compare_vectors(binary, result):
    cases = list(vectors())
    theirs = rust_describes(binary, [(kind, octets) for kind, octets, _ in cases])
    for (kind, octets, said), rust in zip(cases, theirs, strict=True):
        result.take(octets, find_private(octets) if kind == b"p" else decode(octets), said)
        result.take(octets, said, rust)


def compare_ours(binary, seed, count, result):
    """Encodes messages with the codec of this file, and decodes them with the Rust codec. About one
    message in five is also damaged, and the damaged copy is decoded with both codecs."""
    maker = Maker(seed)
    frames, expected = [], []
    for number in range(count):
        if number % 20 == 19:
            octets, said = maker.private()
            kind = b"p"
        else:
            octets, said = maker.message()
            kind = b"m"
        frames.append((kind, octets))
        expected.append(said)
        if kind == b"m" and number % 5 == 0:
            bad = maker.damaged(octets)
            frames.append((b"m", bad))
            expected.append(decode(bad))
    for (_, octets), said, rust in zip(frames, expected, rust_describes(binary, frames),
                                       strict=True):
        result.take(octets, said, rust)


def compare_theirs(binary, seed, count, result):
    """Encodes messages with the Rust codec, and decodes them with the codec of this file."""
    done = subprocess.run([binary, "generate", str(seed), str(count)], stdout=subprocess.PIPE,
                          timeout=120, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != count:
        raise HostError(f"{binary} generate: status {done.returncode}, {len(lines)} lines")
    for line in lines:
        kind, digits, said = json.loads(line)
        octets = bytes.fromhex(digits)
        result.take(octets, find_private(octets) if kind == "p" else decode(octets), said)


def build(toolchain=None):
    """Compiles the Rust program. Returns the path of the program."""
    common.run(common.cargo("build", "--profile", "test", "--locked", "--example", "frames",
                            toolchain=toolchain), 240, cwd=common.PROTO)
    return common.cache() / "cargo/debug/examples/frames"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000,
                        help="random messages in each direction (default: 100000)")
    parser.add_argument("--seed", type=int, default=8166)
    args = parser.parse_args()
    binary = build()
    result = Comparison()
    compare_vectors(binary, result)
    compare_theirs(binary, args.seed, args.count, result)
    compare_ours(binary, args.seed, args.count, result)
    for difference in result.differences[:SHOWN]:
        print(difference, file=sys.stderr)
    say(f"{result.compared} messages compared, {len(result.differences)} differ")
    return 1 if result.differences else 0


if __name__ == "__main__":
    common.main(main)
