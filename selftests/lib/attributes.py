# SPDX-License-Identifier: GPL-2.0
"""Extended attributes, read with a single request."""

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.getxattr.restype = ctypes.c_ssize_t


def attribute(path, name, room=65536):
    """Returns the value of an attribute; asks once, with room for the largest.

    os.getxattr() first asks with little room. GETXATTR has no argument for that: the server's reply
    then exceeds the Reply chunk, and the call fails over RDMA with any client (in-tree: EIO), where
    it would be ERANGE over TCP.
    """
    value = ctypes.create_string_buffer(room)
    length = LIBC.getxattr(os.fsencode(path), name.encode(), value, room)
    if length < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return value.raw[:length]
