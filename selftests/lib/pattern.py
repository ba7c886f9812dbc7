# SPDX-License-Identifier: GPL-2.0
"""Data that contains its origin.

A file consists of records of 512 bytes. Each record begins with the number of the file, the offset
and the generation (how many times the record was written). The remaining bytes depend on these
numbers. So bytes that are stale, torn, shifted or from another file are detected, and the message
of a failure can tell where the bytes come from.
"""

import struct

RECORD = 512
HEADER = struct.Struct(">8sIIQ")
MAGIC = b"xprtrdma"
BODY = RECORD - HEADER.size
# Bytes that fill the records. The bytes do not repeat periodically, so a shift by any number of
# bytes is detected.
NOISE = bytes(((i * i * 7 + (i >> 3) * 13 + (i >> 8) * 101) ^ (i * 5)) & 0xff
              for i in range(BODY + 4096))


def record(number, offset, generation):
    """Returns the record at byte `offset` of a file. `offset` is a multiple of the record size."""
    start = (offset // RECORD * 37 + number * 101 + generation * 7) % 4096
    return HEADER.pack(MAGIC, number, generation, offset) + NOISE[start:start + BODY]


def data(number, offset, length, generation=0):
    """Returns the bytes of a file at any offset, of any length."""
    first = offset - offset % RECORD
    end = offset + length
    whole = b"".join(record(number, at, generation) for at in range(first, end, RECORD))
    return whole[offset - first:end - first]


def describe(found):
    """Describes the origin that a record contains: file, offset and generation."""
    if len(found) < HEADER.size:
        return f"{len(found)} bytes: {found.hex()}"
    magic, number, generation, offset = HEADER.unpack_from(found)
    if magic != MAGIC:
        return "zeroes" if not any(found) else f"no record: {found[:24].hex()}"
    if found != record(number, offset, generation)[:len(found)]:
        return f"a torn record of file {number} offset {offset} generation {generation}"
    return f"file {number} offset {offset} generation {generation}"


def difference(found, expected, offset=0):
    """Returns a description of the first difference, or None if the data are equal. `offset` is the
    offset in the file at which the data begin."""
    if found == expected:
        return None
    shared = min(len(found), len(expected))
    at = next((i for i in range(shared) if found[i] != expected[i]), shared)
    place = offset + at
    text = f"first difference at byte {place}"
    if len(found) != len(expected):
        text += f", {len(found)} bytes instead of {len(expected)}"
    start = place - place % RECORD - offset
    if start >= 0 and at < shared:
        text += (f": found {describe(found[start:start + RECORD])},"
                 f" expected {describe(expected[start:start + RECORD])}")
    return text


def generations(found, number, offset, allowed):
    """Checks whole records. Each record may have one of several generations.

    Returns a complaint or None. `allowed` contains the generation numbers that
    are allowed for every record, and None if a record may still be a hole.
    """
    for at in range(0, len(found), RECORD):
        piece = found[at:at + RECORD]
        if None in allowed and not any(piece):
            continue
        if not any(piece == record(number, offset + at, g)[:len(piece)]
                   for g in allowed if g is not None):
            return f"at byte {offset + at}: {describe(piece)}, allowed: {sorted(map(str, allowed))}"
    return None
