// SPDX-License-Identifier: GPL-2.0
/* The same plugin as instructions.c, but it also counts cache lines and is slower. */

#define MEMORY true

#include "instructions.c"
