# SPDX-License-Identifier: GPL-2.0
"""NFS calls that Kerberos protects (RFC 2203). The GSS library of this machine protects the calls.
"""

import ctypes

from ..env import ENV
from ..hostile import rpc
from ..hostile.message import CALL, numbers, word
from . import calls

FLAVOUR, DATA, INIT = 6, 0, 1
# The three services of RPCSEC_GSS. `AUTHENTICATION` signs the header of a call. `INTEGRITY` also
# signs the arguments. `PRIVACY` encrypts the arguments.
AUTHENTICATION, INTEGRITY, PRIVACY = 1, 2, 3
COMPLETE, CONTINUE_NEEDED = 0, 1
MUTUAL, CONFIDENTIAL, INTEGRAL = 2, 16, 32
# Time in seconds within which the server's daemon must accept a context.
CONTEXT_SECONDS = 30


class Octets(ctypes.Structure):
    """A `gss_buffer_desc`."""

    _fields_ = (("length", ctypes.c_size_t), ("value", ctypes.c_void_p))

    @classmethod
    def of(cls, octets):
        return cls(len(octets), ctypes.cast(ctypes.c_char_p(octets), ctypes.c_void_p))

    def __bytes__(self):
        return ctypes.string_at(self.value, self.length)


class Library:
    """The functions of the GSS library that a context needs."""

    def __init__(self):
        self.file = ctypes.CDLL("libgssapi_krb5.so.2")

    def call(self, function, *args):
        """Calls a function of the library, and returns the function's major status."""
        minor = ctypes.c_uint32()
        major = getattr(self.file, function)(ctypes.byref(minor), *args)
        if major & 0xffff0000:
            raise AssertionError(f"{function}: {major:#x}, {minor.value:#x}")
        return major

    def pointer(self, name):
        """Returns a pointer that the library exports."""
        return ctypes.c_void_p.in_dll(self.file, name)

    def made(self, function, *args):
        """Calls a function of the library that fills the buffer in its last argument. Returns the
        bytes in the buffer."""
        out = Octets()
        self.call(function, *args, ctypes.byref(out))
        return bytes(out)


class Context:
    """An RPCSEC_GSS context with the server, established over the connection of `client`."""

    def __init__(self, client, service):
        self.client, self.library, self.sequence = client, Library(), 0
        self.context, self.name = ctypes.c_void_p(), ctypes.c_void_p()
        self.library.call(
            "gss_import_name", ctypes.byref(Octets.of(service.encode())),
            self.library.pointer("GSS_C_NT_HOSTBASED_SERVICE"), ctypes.byref(self.name))
        self.handle, token = self.exchange(self.step(b""))
        if self.step(token):
            raise AssertionError("a token too many")

    def step(self, token):
        """Processes a token from the server. Returns the next token for the server."""
        out = Octets()
        self.library.call(
            "gss_init_sec_context", None, ctypes.byref(self.context), self.name,
            self.library.pointer("gss_mech_krb5"), MUTUAL | CONFIDENTIAL | INTEGRAL, 0, None,
            ctypes.byref(Octets.of(token)), None, ctypes.byref(out), None, None)
        return bytes(out)

    def exchange(self, token):
        """Sends the first token. Returns the handle of the context, and the token of the server."""
        xid = self.client.next()
        call = calls.call(xid, calls.NULL, calls.opaque(token),
                          credential=credential(INIT, 0, AUTHENTICATION, b""))
        self.client.send(self.client.message(payload=call, xid=xid))
        found = self.client.receive(ENV.patience(CONTEXT_SECONDS))
        at = found and rpc.results(found.payload)
        if at is None:
            raise AssertionError(f"a context is answered by {found}")
        handle, length, at = rpc.opaque(found.payload, at)
        major, minor, _ = numbers(found.payload, at, 3)
        if major not in (COMPLETE, CONTINUE_NEEDED):
            raise AssertionError(f"the server has no context: {major:#x}, {minor:#x}")
        start, size, _ = rpc.opaque(found.payload, at + 12)
        return found.payload[handle:handle + length], found.payload[start:start + size]

    def compound(self, xid, service, path, *operations):
        """Builds a call with a compound that acts on the file `path`. A GSS service protects the
        call."""
        self.sequence += 1
        header = (word(xid, CALL, 2, rpc.NFS, 4, calls.COMPOUND)
                  + credential(DATA, self.sequence, service, self.handle))
        body = calls.body(path, *operations)
        if service == INTEGRITY:
            whole = word(self.sequence) + body
            body = calls.opaque(whole) + calls.opaque(self.mark(whole))
        elif service == PRIVACY:
            body = calls.opaque(self.library.made(
                "gss_wrap", self.context, 1, 0,
                ctypes.byref(Octets.of(word(self.sequence) + body)), None))
        return header + word(FLAVOUR) + calls.opaque(self.mark(header)) + body

    def mark(self, octets):
        """Returns the checksum of some bytes."""
        return self.library.made("gss_get_mic", self.context, 0, ctypes.byref(Octets.of(octets)))

    def results(self, reply, service):
        """Returns the results in a reply, without their protection."""
        at = rpc.results(reply)
        if at is None:
            raise AssertionError(f"not executed: {calls.outcome(reply)}")
        if service == AUTHENTICATION:
            return reply[at:]
        start, length, _ = rpc.opaque(reply, at)
        found = reply[start:start + length]
        if service == PRIVACY:
            found = self.unwrapped(found)
        if numbers(found, 0) != (self.sequence,):
            raise AssertionError("the results of another call")
        return found[4:]

    def unwrapped(self, octets):
        out = Octets()
        self.library.call("gss_unwrap", self.context, ctypes.byref(Octets.of(octets)),
                          ctypes.byref(out), None, None)
        return bytes(out)


def credential(procedure, sequence, service, handle):
    body = word(1, procedure, sequence, service) + calls.opaque(handle)
    return word(FLAVOUR) + calls.opaque(body)
