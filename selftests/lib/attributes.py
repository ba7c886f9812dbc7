# SPDX-License-Identifier: GPL-2.0
"""Extended attributes, read with a single request."""

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.getxattr.restype = ctypes.c_ssize_t


def attribute(path, name, room=65536):
    """Returns the value of an extended attribute. Makes only one request, with room for the longest
    value.

    os.getxattr() first makes a request with little room. The GETXATTR operation cannot tell the
    server how much room there is. So the server's reply exceeds the Reply chunk, and the call fails
    over RDMA with any client (with EIO for the in-tree client). Over TCP it would fail with ERANGE.
    """
    value = ctypes.create_string_buffer(room)
    length = LIBC.getxattr(os.fsencode(path), name.encode(), value, room)
    if length < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return value.raw[:length]
