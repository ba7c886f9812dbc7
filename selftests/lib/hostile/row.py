# SPDX-License-Identifier: GPL-2.0
"""What a row of the tables is: which call is met with what, and how the client must react."""

import dataclasses
import errno

from . import rpc
from .message import word

# Which call: what it is, and the chunk that it offers.
SMALL, READ, LIST, WRITE = "small", "read", "list", "write"
# The first message of a connection, which asks whether the peer speaks version two.
PROBE = "probe"
# The same, several at once.
TWO, CROWD = "two", "crowd"
AT_ONCE = 8  # calls of a crowd


@dataclasses.dataclass(frozen=True)
class Reaction:
    """How the client must react, as section 5.1 of the requirements has it."""

    errno: int = 0        # what the system call returns
    counters: tuple = ()  # (name or names, how often); all others stay
    lost: str = ""        # why connections ended, if any did: a cause or "any"
    times: int = 1        # how many ended
    refused: int = 0      # error messages that the client sends; None: that is its affair
    answered: int = 0     # callbacks that the client answers; None: that is its affair
    refusal: str = "ERR_CHUNK"  # which error its error messages have

    def by(self, protocol):
        """The same with what the counters of that version are called."""
        if protocol == 1:
            return self
        return dataclasses.replace(self, counters=tuple(
            ([IN_VERSION_TWO.get(name, name) for name in names], times)
            for names, times in self.counters))


# RDMA2_ERR_BAD_HEADER has the part of ERR_CHUNK.
IN_VERSION_TWO = {"err_chunk": "err_bad_header"}


def reaction(counters, **more):
    """A counter by its name has moved once, a pair says how often (or from, to); `|`: or."""
    pairs = [(c, 1) if isinstance(c, str) else c for c in counters]
    return Reaction(counters=tuple(
        (names.split("|"), times if isinstance(times, tuple) else (times, times))
        for names, times in pairs), **more)


def ignored(*counters, **more):
    """I: processed as if nothing were odd, or D without a call that waits for it."""
    return reaction(counters, **more)


def dropped(counter):
    """D, and the call is sent again on a new connection (X-03)."""
    return reaction([counter], lost="bad reply to a pending call")


def failed(number, *counters):
    """F: the call ends with this error, once."""
    return reaction(counters, errno=number)


def ended(cause, *counters, **more):
    """T: the connection ends, the call is sent again."""
    return reaction(counters, lost=cause, **more)


REMOTE_VERSION = failed(errno.EPROTONOSUPPORT, "err_vers")
REMOTE_CHUNK = failed(errno.EREMOTEIO, "err_chunk")
DDP_VIOLATION = failed(errno.EIO, "ddp_violation")
BAD_PAYLOAD = failed(errno.EIO, "bad_payload")


@dataclasses.dataclass(frozen=True)
class Row:
    """One misbehaviour."""

    name: str
    rules: str            # of the requirements
    on: str               # which call it meets
    deed: object          # a function of an `Exchange`
    reaction: Reaction
    times: int = 1        # number of calls, or how often one call is sent
    stage: str = "reply"  # or "call": before knfsd has seen it
    full: bool = False    # in full size only
    protocol: int | None = None  # the version that it is about; None: every one

    def matches(self, exchange):
        """Whether a call is one of those that it meets."""
        call, what = exchange.call, rpc.procedure(exchange.rpc)
        if self.on == PROBE:
            return call.wire == 2 and exchange.client.calls == 1
        if self.on in (SMALL, CROWD):
            return what in SMALL_CALLS and not call.segments()
        if self.on in (READ, TWO):
            return bool(call.writes and call.writes[0])
        if self.on == LIST:
            return bool(call.reply)
        return bool(call.reads)


# The small call of the tests, which no client answers from memory: FSSTAT, or its COMPOUND.
SMALL_CALLS = ((rpc.NFS, 3, 18), (rpc.NFS, 4, 1))


# Deeds.

def altered(change, **more):
    """Answer with `change(message, exchange)`: a Message or bytes."""
    def deed(exchange):
        message, placed = exchange.answer(**more)
        exchange.place(placed)
        exchange.send(change(message, exchange))

    return deed


def fields(**changes):
    """Answer with some fields of the message changed."""
    return altered(lambda message, _: message.but(**changes))


FIXED_WORDS = 4  # that the header has in every version


def place(number, wire):
    """Where a word of the header of version one is: version two has its direction before it."""
    return number + (number >= FIXED_WORDS and wire == 2)


def patched(number, value, **more):
    """Answer with one word of the message changed; numbers are those of version one."""
    return altered(lambda message, _: replaced(message, number, value), **more)


def replaced(message, number, value):
    """The bytes of a message with one word changed."""
    octets = bytearray(message.octets())
    at = 4 * place(number, message.wire)
    octets[at:at + 4] = word(value)
    return bytes(octets)


def cut(length):
    """Answer with the first bytes only, as many as version one would need for the same words."""
    def change(message, _):
        return message.octets()[:4 * place(length // 4, message.wire) + length % 4]

    return altered(change)


def payload(change):
    """Answer with the RPC message changed."""
    return altered(lambda message, _: message.but(payload=change(message.payload)))


def error(name, low=0, high=0, **changes):
    """Answer with an error message."""
    return altered(lambda message, _: message.but(kind="RDMA_ERROR", payload=b"",
                                                  error=(name, low, high), **changes))


def header(message, procedure, *more):
    """A header with the xid and in the version of a message."""
    return word(message.xid, message.wire, 32, procedure, *more)


def raw(make):
    """Answer with the bytes that `make(answer)` gives."""
    return altered(lambda message, _: make(message))


def before(*things):
    """Send these, messages or functions of the exchange that give some, and then the right answer.
    """
    def deed(exchange):
        for thing in things:
            exchange.send(made(thing, exchange))
        exchange.honest()

    return deed


def made(thing, exchange):
    """A message, bytes, or what a function of the exchange gives."""
    return thing(exchange) if callable(thing) else thing


def one_by_one(*deeds):
    """Another deed each time."""
    def deed(exchange):
        deeds[exchange.turn](exchange)

    return deed
