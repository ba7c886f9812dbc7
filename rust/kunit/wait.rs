// SPDX-License-Identifier: GPL-2.0

//! Waiting for a condition that no event signals.

use kernel::prelude::*;

/// Maximum time that a test waits, in milliseconds. The time is long because the debug kernel is
/// slow.
const PATIENCE_MS: u32 = 60_000;

/// Waits until the condition is true. Returns `ETIMEDOUT` after [`PATIENCE_MS`]. May sleep.
pub(crate) fn wait_until(is: impl Fn() -> bool) -> Result {
    for _ in 0..PATIENCE_MS {
        if is() {
            return Ok(());
        }
        // SAFETY: A test may sleep.
        unsafe { kernel::bindings::msleep(1) };
    }
    Err(ETIMEDOUT)
}
