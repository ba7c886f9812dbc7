// SPDX-License-Identifier: GPL-2.0
/* The plugin of instructions.c that looks at memory, too, and takes its time. */

#define MEMORY true

#include "instructions.c"
