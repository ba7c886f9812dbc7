// SPDX-License-Identifier: GPL-2.0
/* The plugin of instructions.c that also counts cache lines, and is slower. */

#define MEMORY true

#include "instructions.c"
