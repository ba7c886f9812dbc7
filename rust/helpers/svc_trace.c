// SPDX-License-Identifier: GPL-2.0
/* The tracepoints of svc_trace.h, with entry functions that Rust calls. */
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "svc_trace.h"
