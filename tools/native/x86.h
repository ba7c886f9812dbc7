/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds the x86 instructions that order memory between processors.
 *
 * Atomic: instructions with a lock prefix, and xchg with memory, which needs no
 * prefix.  Without the prefix, cmpxchg and xadd are atomic only for the processor that
 * executes them, and are cheap.
 * Fence: mfence, lfence, sfence, and the locked addition of zero to the stack, which
 * the kernel prefers.
 */
#ifndef LAB_PLUGIN_X86_H
#define LAB_PLUGIN_X86_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define X86_BYTES 15		/* the length of the longest instruction */

enum x86_order {
	X86_PLAIN,
	X86_ATOMIC,
	X86_FENCE,
};

static bool x86_is_prefix(uint8_t byte)
{
	static const uint8_t prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65,
					    0x66, 0x67, 0xf0, 0xf2, 0xf3 };

	return memchr(prefixes, byte, sizeof(prefixes));
}

static enum x86_order x86_order(const uint8_t *code, size_t length)
{
	/* The instructions addl $0, -4(%rsp) and addl $0, (%rsp). */
	static const uint8_t below[] = { 0x83, 0x44, 0x24, 0xfc, 0x00 };
	static const uint8_t top[] = { 0x83, 0x04, 0x24, 0x00 };
	bool locked = false;
	const uint8_t *modrm;

	for (; length && x86_is_prefix(*code); code++, length--)
		locked |= *code == 0xf0;
	if (locked)
		return (length == sizeof(below) && !memcmp(code, below, length)) ||
		       (length == sizeof(top) && !memcmp(code, top, length)) ?
		       X86_FENCE : X86_ATOMIC;
	if (length && (*code & 0xf0) == 0x40) {	/* REX */
		code++;
		length--;
	}
	if (length < 2)
		return X86_PLAIN;
	modrm = &code[1];
	if ((code[0] == 0x86 || code[0] == 0x87) && *modrm < 0xc0)
		return X86_ATOMIC;
	if (length == 3 && code[0] == 0x0f && code[1] == 0xae &&
	    (code[2] == 0xe8 || code[2] == 0xf0 || code[2] == 0xf8))
		return X86_FENCE;
	return X86_PLAIN;
}

#endif
