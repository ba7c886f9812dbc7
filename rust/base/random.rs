// SPDX-License-Identifier: GPL-2.0

//! Random numbers that cannot be foreseen outside of the kernel.

use xprtrdma_bindings as bindings;

/// Draws 64 bits. In any context.
#[inline]
pub fn unforeseen64() -> u64 {
    // SAFETY: No requirements.
    unsafe { bindings::get_random_u64() }
}

/// Draws 16 bits. In any context.
#[inline]
pub fn unforeseen16() -> u16 {
    // SAFETY: No requirements.
    unsafe { bindings::get_random_u16() }
}
