// SPDX-License-Identifier: GPL-2.0
/* The plugin of instructions.c. This slower form also counts cache lines. */

#define MEMORY true

#include "instructions.c"
