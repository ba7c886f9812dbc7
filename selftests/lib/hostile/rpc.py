# SPDX-License-Identifier: GPL-2.0
"""Functions that find the procedure of a call and the data item of a reply in RPC messages (RFC
5531, 1813, 8881)."""

from .message import CALL, numbers

NFS = 100003
READLINK3, READ3 = 5, 6
CREDENTIALS = 28  # position of a call's credentials, after the flavour of the credentials
ATTRIBUTES3 = 84
SESSION_ID = 16
SEQUENCE_RESULT = 36
GETATTR4, PUTFH4, READ4, READLINK4, SEQUENCE4 = 9, 22, 25, 27, 53


def direction(rpc):
    """Returns CALL, REPLY, or None if the message is too short."""
    found = numbers(rpc, 4)
    return found[0] if found else None


def procedure(rpc):
    """Returns program, version and procedure of a call, or None."""
    found = numbers(rpc, 0, 6)
    return tuple(found[3:6]) if len(found) == 6 and found[1] == CALL else None


def sequence(call):
    """Returns minor version, session, sequence number and slot of a compound of NFSv4.1 or later.
    """
    _, _, at = opaque(call, CREDENTIALS)
    _, _, at = opaque(call, at + 4)
    _, _, at = opaque(call, at)
    minor, _, _ = numbers(call, at, 3)
    session = call[at + 12:at + 12 + SESSION_ID]
    return minor, session, *numbers(call, at + 12 + SESSION_ID, 2)


def opaque(octets, at):
    """Returns start and length of an opaque item, and the position after the item."""
    length, = numbers(octets, at)
    return at + 4, length, at + 4 + (length + 3) // 4 * 4


def results(reply):
    """Returns the start of the procedure's results, or None if the call was not executed."""
    if numbers(reply, 4, 2) != (1, 0):
        return None
    _, _, at = opaque(reply, 16)
    return at + 4 if numbers(reply, at) == (0,) else None


def item(call, reply):
    """Returns start and length of the reply's data item that may be placed directly into the
    client's memory, or None if there is no such item."""
    at = results(reply)
    program, version, number = procedure(call)
    if at is None or program != NFS:
        return None
    if version == 3:
        return item3(number, reply, at)
    return item4(reply, at)


def item3(number, reply, at):
    if number not in (READ3, READLINK3) or numbers(reply, at) != (0,):
        return None
    follow, = numbers(reply, at + 4)
    at += 8 + (ATTRIBUTES3 if follow else 0)
    return opaque(reply, at + (8 if number == READ3 else 0))[:2]


def item4(reply, at):
    """Returns start and length of the data of a compound's READ or READLINK. Before the READ or
    READLINK, the compound may contain only operations that this function can skip."""
    status, = numbers(reply, at)
    _, _, at = opaque(reply, at + 4)
    count, = numbers(reply, at)
    at += 4
    for _ in range(count if status == 0 else 0):
        operation, _ = numbers(reply, at, 2)
        at += 8
        if operation == READ4:
            return opaque(reply, at + 4)[:2]
        if operation == READLINK4:
            return opaque(reply, at)[:2]
        if operation == SEQUENCE4:
            at += SEQUENCE_RESULT
        elif operation == GETATTR4:
            words, = numbers(reply, at)
            _, _, at = opaque(reply, at + 4 + 4 * words)
        elif operation != PUTFH4:
            return None
    return None
