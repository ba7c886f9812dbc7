# SPDX-License-Identifier: GPL-2.0
"""RPC calls of NFS, and the meaning of their replies (RFC 5531, 7530)."""

from ..hostile import rpc
from ..hostile.message import CALL, numbers, padded, word

NULL, COMPOUND = 0, 1
NONE = word(0, 0)
SYS = word(1, 20, 0, 0, 0, 0, 0)  # credentials of root on a machine without a name
# Credentials of RPCSEC_GSS. After the type and the length, the fields are: version 1, procedure
# "data", sequence number 1, service "integrity", and an empty handle.
INTEGRITY = word(6, 20, 1, 0, 1, 2, 0)
LOOKUP, PUTROOTFH, READ, READLINK, WRITE = 15, 24, 25, 27, 38
FILE_SYNC = 2
ANYBODY = bytes(16)  # the stateid that a client uses if it has not opened the file
# The two status fields of the reply to a call that was executed (RFC 5531): `reply_stat` is
# ACCEPTED, and `accept_stat` is SUCCESS.
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
    """Returns the operations that make a file or a directory the current filehandle."""
    return [word(PUTROOTFH), *(word(LOOKUP) + name(part) for part in path.strip("/").split("/"))]


def compound(xid, path, *operations, credential=SYS):
    """Builds a call with a compound of NFSv4.0. The operations act on the file `path`."""
    return call(xid, COMPOUND, body(path, *operations), credential)


def body(path, *operations):
    """Returns the arguments of a compound of NFSv4.0. The operations act on the file `path`."""
    steps = [*choose(path), *operations]
    return word(0, 0, len(steps)) + b"".join(steps)


def write(offset, length):
    """Returns a WRITE operation without its data."""
    return word(WRITE) + ANYBODY + word(0, offset, FILE_SYNC, length)


def read(offset, count):
    return word(READ) + ANYBODY + word(0, offset, count)


def readlink():
    return word(READLINK)


def outcome(reply):
    """Returns the meaning of a reply:

    - ("denied",): the call was denied.
    - ("accepted", accept_stat): the call was accepted but not executed.
    - ("null",): the reply to a NULL call.
    - ("nfs", status): the reply to a compound with this status.
    """
    if numbers(reply, 8) != (ACCEPTED,):
        return ("denied",)
    at = rpc.results(reply)
    if at is None:
        _, _, end = rpc.opaque(reply, 16)
        return ("accepted", *numbers(reply, end))
    return ("nfs", *numbers(reply, at)) if len(reply) > at else ("null",)
