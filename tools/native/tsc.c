// SPDX-License-Identifier: GPL-2.0
/* The time stamp counter of this machine, which is that of an emulated one, too. */

#include <x86intrin.h>

__attribute__((visibility("default"))) unsigned long long tsc_read(void)
{
	return __rdtsc();
}
