// SPDX-License-Identifier: GPL-2.0
/* Reads this machine's time stamp counter, which an emulated machine uses, too. */

#include <x86intrin.h>

__attribute__((visibility("default"))) unsigned long long tsc_read(void)
{
	return __rdtsc();
}
