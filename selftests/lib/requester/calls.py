# SPDX-License-Identifier: GPL-2.0
"""RPC calls of NFS, and the meaning of their replies (RFC 5531, 7530)."""

from ..hostile import rpc
from ..hostile.message import CALL, numbers, padded, word

NULL, COMPOUND = 0, 1
NONE = word(0, 0)
SYS = word(1, 20, 0, 0, 0, 0, 0)  # credentials of root on a machine without a name
# Credentials of RPCSEC_GSS: version 1, data, sequence number 1, the service, a handle of no bytes.
INTEGRITY = word(6, 20, 1, 0, 1, 2, 0)
LOOKUP, PUTROOTFH, READ, READLINK, WRITE = 15, 24, 25, 27, 38
FILE_SYNC = 2
ANYBODY = bytes(16)  # stateid for a client that has not opened the file
# The numbers in a reply to a call that was executed: it was accepted, and with success.
ACCEPTED, SUCCESS = 0, 0


def call(xid, procedure, arguments=b"", credential=SYS, version=4, program=rpc.NFS):
    """Builds an RPC call."""
    return (word(xid, CALL, 2, program, version, procedure) + credential + NONE + arguments)


def null(xid):
    return call(xid, NULL, credential=NONE)


def opaque(octets):
    return word(len(octets)) + padded(octets)


def name(text):
    return opaque(text.encode())


def choose(path):
    """Returns the operations that choose a file or a directory."""
    return [word(PUTROOTFH), *(word(LOOKUP) + name(part) for part in path.strip("/").split("/"))]


def compound(xid, path, *operations, credential=SYS):
    """Builds a compound of version 4.0 whose operations act on this file."""
    return call(xid, COMPOUND, body(path, *operations), credential)


def body(path, *operations):
    """Returns the arguments of a compound of version 4.0 whose operations act on this file."""
    steps = [*choose(path), *operations]
    return word(0, 0, len(steps)) + b"".join(steps)


def write(offset, length):
    """Returns the beginning of a WRITE, which ends where the data begin."""
    return word(WRITE) + ANYBODY + word(0, offset, FILE_SYNC, length)


def read(offset, count):
    return word(READ) + ANYBODY + word(0, offset, count)


def readlink():
    return word(READLINK)


def outcome(reply):
    """Returns the meaning of a reply: ("denied",), ("accepted", its state) if the call was not
    executed, else ("nfs", the state of the compound).
    """
    if numbers(reply, 8) != (ACCEPTED,):
        return ("denied",)
    at = rpc.results(reply)
    if at is None:
        _, _, end = rpc.opaque(reply, 16)
        return ("accepted", *numbers(reply, end))
    return ("nfs", *numbers(reply, at)) if len(reply) > at else ("null",)
