# SPDX-License-Identifier: GPL-2.0
"""The form of a row in the tables of misbehaviours: the calls to which the row is applied, the
responder's misbehaviour, and the reaction that the client must show.
"""

import dataclasses
import errno

from . import rpc
from .message import word

# The kinds of calls, with the chunk that each of them offers.
SMALL, READ, LIST, WRITE = "small", "read", "list", "write"
# The first message of a connection, which asks whether the peer supports version two.
PROBE = "probe"
# Kinds of rows that apply to several calls in flight at the same time.
TWO, CROWD = "two", "crowd"
AT_ONCE = 8  # number of calls in a "crowd"


@dataclasses.dataclass(frozen=True)
class Reaction:
    """How the client must react, as section 5.1 of the requirements says."""

    errno: int = 0        # errno of the system call
    # A pair for each counter that must change: a list of alternative names of the counter, and a
    # pair of the minimum and the maximum number of events. All other counters must not change.
    counters: tuple = ()
    # the expected reason why connections end; "any" if every reason is right; empty if no
    # connection ends
    lost: str = ""
    times: int = 1        # number of connections that ended
    refused: int = 0      # number of error messages of the client; None: any number
    answered: int = 0     # number of callbacks that the client answers; None: any number
    refusal: str = "ERR_CHUNK"  # error that the client reports in RDMA_ERROR messages

    def by(self, protocol):
        """Returns the same reaction with the counters' names in version `protocol`."""
        if protocol == 1:
            return self
        return dataclasses.replace(self, counters=tuple(
            ([IN_VERSION_TWO.get(name, name) for name in names], times)
            for names, times in self.counters))


# RDMA2_ERR_BAD_HEADER corresponds to ERR_CHUNK.
IN_VERSION_TWO = {"err_chunk": "err_bad_header"}


def reaction(counters, **more):
    """Returns a reaction in which these counters rise. Each of `counters` has one of these forms:

    - a name: the counter rises by one.
    - a pair of a name and a number: the counter rises by this number.
    - a pair of a name and a tuple: the counter rises by at least the first and at most the second
      number of the tuple.

    In a name, `|` separates alternative names.
    """
    pairs = [(c, 1) if isinstance(c, str) else c for c in counters]
    return Reaction(counters=tuple(
        (names.split("|"), times if isinstance(times, tuple) else (times, times))
        for names, times in pairs), **more)


def ignored(*counters, **more):
    """Returns reaction I of the requirements: the client processes the message as if nothing were
    wrong. If no call waits for the message, this is reaction D: the client drops the message.
    """
    return reaction(counters, **more)


def dropped(counter):
    """Returns reaction D of the requirements: the client drops the message, and sends the call
    again on a new connection (X-03)."""
    return reaction([counter], lost="bad reply to a pending call")


def failed(number, *counters):
    """Returns reaction F of the requirements: the call ends with this error, and is not sent again.
    """
    return reaction(counters, errno=number)


def ended(cause, *counters, **more):
    """Returns reaction T of the requirements: the connection ends, and the client sends the call
    again."""
    return reaction(counters, lost=cause, **more)


REMOTE_VERSION = failed(errno.EPROTONOSUPPORT, "err_vers")
REMOTE_CHUNK = failed(errno.EREMOTEIO, "err_chunk")
DDP_VIOLATION = failed(errno.EIO, "ddp_violation")
BAD_PAYLOAD = failed(errno.EIO, "bad_payload")


@dataclasses.dataclass(frozen=True)
class Row:
    """One misbehaviour of the responder."""

    name: str
    rules: str            # numbers of the requirements that the row tests
    on: str               # kind of call to which the misbehaviour happens
    deed: object          # the misbehaviour: a function of an `Exchange`
    reaction: Reaction
    # number of received calls to which the misbehaviour happens; a call that the client sends again
    # counts again
    times: int = 1
    # The moment of the misbehaviour: "reply" means after knfsd has replied to the call, and "call"
    # means before knfsd gets the call.
    stage: str = "reply"
    full: bool = False    # whether the row runs in full size only
    protocol: int | None = None  # protocol version for which the row is made; None: every version

    def matches(self, exchange):
        """Returns whether this row's misbehaviour applies to a call of this kind."""
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


# The small calls of the tests, as (program, version, procedure): FSSTAT of NFSv3, and COMPOUND of
# NFSv4. No client answers the small calls of the tests from its caches.
SMALL_CALLS = ((rpc.NFS, 3, 18), (rpc.NFS, 4, 1))


# A misbehaviour is a function that takes an `Exchange`. Each of the following functions is a
# misbehaviour or returns one.

def altered(change, **more):
    """Returns a misbehaviour: the responder answers with the result of `change(message, exchange)`.
    The result is a `Message` or bytes."""
    def deed(exchange):
        message, placed = exchange.answer(**more)
        exchange.place(placed)
        exchange.send(change(message, exchange))

    return deed


def fields(**changes):
    """Answers with a message in which some fields are changed."""
    return altered(lambda message, _: message.but(**changes))


FIXED_WORDS = 4  # number of words with which the header begins in every version


def place(number, wire):
    """Returns the position of a word in a header of version `wire`. `number` is the position of the
    word in version one. In version two the direction follows the fixed part, so the positions of
    all later words are higher by one."""
    return number + (number >= FIXED_WORDS and wire == 2)


def patched(number, value, **more):
    """Answers with a message in which one word is changed. `number` is the position of the word in
    version one."""
    return altered(lambda message, _: replaced(message, number, value), **more)


def replaced(message, number, value):
    """Returns the bytes of a message with one word changed."""
    octets = bytearray(message.octets())
    at = 4 * place(number, message.wire)
    octets[at:at + 4] = word(value)
    return bytes(octets)


def cut(length):
    """Answers with only the first `length` bytes of the message. If these bytes contain the whole
    fixed part of the header, the answer is one word longer in version two. The additional word is
    the direction, which follows the fixed part."""
    def change(message, _):
        return message.octets()[:4 * place(length // 4, message.wire) + length % 4]

    return altered(change)


def payload(change):
    """Answers with a changed RPC message."""
    return altered(lambda message, _: message.but(payload=change(message.payload)))


def error(name, low=0, high=0, **changes):
    """Answers with an error message."""
    return altered(lambda message, _: message.but(kind="RDMA_ERROR", payload=b"",
                                                  error=(name, low, high), **changes))


def header(message, procedure, *more):
    """Returns a header with the xid and the version of a message."""
    return word(message.xid, message.wire, 32, procedure, *more)


def raw(make):
    """Answers with the bytes that `make(answer)` returns."""
    return altered(lambda message, _: make(message))


def before(*things):
    """Sends several messages, and then the correct answer. Each argument is a message, or a
    function that takes the exchange and returns a message."""
    def deed(exchange):
        for thing in things:
            exchange.send(made(thing, exchange))
        exchange.honest()

    return deed


def made(thing, exchange):
    """Returns `thing`, or the result of `thing(exchange)` if `thing` is a function. The result is a
    message or bytes."""
    return thing(exchange) if callable(thing) else thing


def one_by_one(*deeds):
    """Returns a misbehaviour that applies the first of `deeds` to the first call, the second to the
    second call, and so on."""
    def deed(exchange):
        deeds[exchange.turn](exchange)

    return deed
