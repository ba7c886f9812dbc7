# SPDX-License-Identifier: GPL-2.0
"""A requester that sends correct and incorrect messages of version two to our server.

After each test of a message, calls in version one check that the server's connections still work.
"""

from ..hostile.message import CALL, REPLY, word
from ..hostile.row import replaced
from . import calls, tables
from .row import REFUSED, Reaction, Row, anything, dropped, refused, served

OPTION = 0xff01         # number of an option that is not defined
INFORMATION = b"hello"  # information of an option, whose length needs padding
HEADER = 32
OPTIONS = 100           # number of options in a flood

wrong_version = Reaction(REFUSED, "ERR_VERS", versions=(1, 2))
wrong_option = Reaction(REFUSED, "ERR_OPTION")


def two(deed=None, **fields):
    """Builds the message that `deed` builds, but in version two. Without `deed`, builds a NULL call
    in version two."""
    def sent(client):
        message = deed(client) if deed else client.message()
        return message.but(**{"wire": 2, "direction": CALL} | fields)

    return sent


def patched(number, value):
    """Builds a NULL call, and changes one word of the message."""
    return lambda client: replaced(two()(client), number, value)


def payload(make, **fields):
    """Builds a message whose payload is the result of `make(xid)`."""
    return two(lambda client: client.message(payload=make), **fields)


def option(direction=CALL, **fields):
    """Builds an option of a type that is not defined. The option has no payload unless `fields`
    contains a payload."""
    return two(kind="RDMA_OPTIONAL", direction=direction, option=(OPTION, INFORMATION),
               **{"payload": b""} | fields)


def cut_option(client):
    return option()(client).octets()[:-4]


def flood(client):
    client.connection.send_many(option()(client).octets(), OPTIONS)


def in_version(number):
    """Checks that the version of the answer is `number`."""
    def judge(stage, client, answer):
        if answer.vers != number:
            raise AssertionError(f"answered in version {answer.vers} instead of {number}")
        tables.null_reply(stage, client, answer)

    return judge


def a_reply(xid):
    return word(xid, REPLY, 0, 0, 0, 0)


TWO = [
    Row("NULL in version two", two(), served(in_version(2))),
    Row("NULL in version one", tables.null(), served(in_version(1))),
    Row("version 3", two(vers=3), wrong_version),
    *(Row(f"direction {number:#x}", patched(4, number), refused) for number in (2, 0xffffffff)),
    Row("direction of a call, payload of a reply", payload(a_reply), refused),
    Row("direction of a reply, payload of a call", two(direction=REPLY), dropped),
    Row("a reply that nobody asked for", payload(a_reply, direction=REPLY), dropped),
    Row("no payload", two(payload=b""), refused),
    Row("31 octets", lambda client: two()(client).octets()[:HEADER - 1], dropped),
    *(Row(f"procedure {number:#x}", patched(3, number), refused)
      for number in (2, 3, *range(6, 14), 0xffffffff)),
    *(Row(f"error of {4 * count} bytes", lambda client, count=count:
          (word(client.next(), 2, 32, 4) + word(2, *[1] * 8))[:4 * count], dropped)
      for count in (4, 5, 6, 8, 10)),
    Row("first message above 1024 bytes",
        payload(lambda xid: calls.null(xid) + bytes(2000)), served(in_version(2))),
    Row("second message before the first answer", tables.twice(two()), anything),
    Row("unknown option", option(), wrong_option),
    Row("unknown option with a call", option(payload=calls.null(1)), wrong_option),
    Row("option that is cut", cut_option, refused),
    Row("option that answers", option(REPLY), dropped),
    Row("flood of options", flood, anything),
    Row("WRITE", two(tables.Writing()), served(tables.written(tables.BLOCK))),
    Row("READ", two(tables.reading(tables.BLOCK, write=tables.BLOCK)),
        served(tables.read_into("RDMA_MSG", tables.BLOCK))),
    Row("READ into the Reply chunk", two(tables.reading(tables.BLOCK, reply=2 * tables.BLOCK)),
        served(tables.read_into("RDMA_NOMSG", tables.BLOCK))),
    Row("long call", two(tables.long_call()), served(in_version(2))),
]
