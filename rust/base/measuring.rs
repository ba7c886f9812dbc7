// SPDX-License-Identifier: GPL-2.0

//! The switch of what is measured on request. While it is off, the question costs a jump that is
//! not taken, like a tracepoint.

use kernel::jump_label::static_branch_unlikely;
use xprtrdma_bindings as bindings;

/// Whether times are taken. In any context.
#[inline(always)]
pub fn is_measured() -> bool {
    // SAFETY: The operand holds a static key that C defines.
    unsafe { static_branch_unlikely!(bindings::xprtrdma_latency, bindings::xprtrdma_switch, key) }
}

/// Switches the measuring of times on or off, for the whole module. Sleeps.
pub fn measure(on: bool) {
    // SAFETY: No requirements but that it may sleep.
    unsafe { bindings::xprtrdma_set_latency(on) };
}
