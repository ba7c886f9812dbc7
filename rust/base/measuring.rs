// SPDX-License-Identifier: GPL-2.0

//! The switch for measurements on request. While it is off, the test costs one branch that is not
//! taken, as with a tracepoint.

use kernel::jump_label::static_branch_unlikely;
use xprtrdma_bindings as bindings;

/// Returns whether measuring is switched on. May be called in any context.
#[inline(always)]
pub fn is_measured() -> bool {
    // SAFETY: The operand refers to a static key that C code defines.
    unsafe { static_branch_unlikely!(bindings::xprtrdma_latency, bindings::xprtrdma_switch, key) }
}

/// Switches measuring on or off for the whole module. Sleeps.
pub fn measure(on: bool) {
    // SAFETY: The function's only requirement is that the caller may sleep.
    unsafe { bindings::xprtrdma_set_latency(on) };
}
