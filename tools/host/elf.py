# SPDX-License-Identifier: GPL-2.0
"""The symbols of a 64-bit little-endian ELF object."""

import struct

SYMTAB = 2
UNDEFINED = 0


def symbols(elf):
    """Yields name and section number of every named symbol."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF object")
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3a)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, table + size * n) for n in range(count)]
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != SYMTAB:
            continue
        strings = sections[link][4]
        for at in range(offset, offset + length, 24):
            name, _, _, section = struct.unpack_from("<IBBH", elf, at)
            start = strings + name
            text = elf[start:elf.index(b"\0", start)].decode()
            if text:
                yield text, section


def undefined(elf):
    """Returns the names that the object uses and does not define."""
    return {name for name, section in symbols(elf) if section == UNDEFINED}


def defined(elf):
    """Returns the names that the object defines."""
    return {name for name, section in symbols(elf) if section != UNDEFINED}
