// SPDX-License-Identifier: GPL-2.0
/* Reads the time stamp counter of this machine. An emulated machine uses the same counter. */

#include <x86intrin.h>

__attribute__((visibility("default"))) unsigned long long tsc_read(void)
{
	return __rdtsc();
}
