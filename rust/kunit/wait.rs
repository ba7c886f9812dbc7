// SPDX-License-Identifier: GPL-2.0

//! The wait for a condition that no event reports.

use kernel::prelude::*;

/// How long a wait may take, in milliseconds: the debug kernel is slow.
const PATIENCE_MS: u32 = 60_000;

/// Waits until the condition holds; `ETIMEDOUT` if that takes too long.
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
