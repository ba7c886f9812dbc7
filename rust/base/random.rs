// SPDX-License-Identifier: GPL-2.0

//! Random numbers that code outside the kernel cannot predict.

use xprtrdma_bindings as bindings;

/// Returns 64 random bits. May be called in any context.
#[inline]
pub fn unforeseen64() -> u64 {
    // SAFETY: The function has no requirements.
    unsafe { bindings::get_random_u64() }
}

/// Returns 16 random bits. May be called in any context.
#[inline]
pub fn unforeseen16() -> u16 {
    // SAFETY: The function has no requirements.
    unsafe { bindings::get_random_u16() }
}
