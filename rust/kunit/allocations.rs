// SPDX-License-Identifier: GPL-2.0

//! Allocations that fail, one after the other.

use kernel::prelude::*;
use xprtrdma_bindings as bindings;

/// Runs `attempt` with the first, second, ... allocation of this thread failing, until it makes
/// fewer; returns how often it ended with an error. After each run `after` checks what is left. An
/// allocation may be one of the debugging facilities, or one that has a substitute; then the
/// attempt succeeds.
///
/// An allocation may be one of the debugging facilities, or one that has a substitute; then the
/// attempt succeeds.
pub(crate) fn each_allocation<T>(
    mut before: impl FnMut() -> Result<T>,
    mut attempt: impl FnMut(&T) -> Result,
    mut after: impl FnMut(T) -> Result,
) -> Result<usize> {
    let mut errors = 0;
    for nth in 1..1000 {
        let subject = before()?;
        // SAFETY: No requirements; ended below.
        unsafe { bindings::fake_fail_alloc(nth) };
        let result = attempt(&subject);
        // SAFETY: As above.
        let failed = unsafe { bindings::fake_alloc_failed() };
        after(subject)?;
        match result {
            Err(error) => {
                ensure!(failed);
                ensure!(error == ENOMEM || error == EIO);
                errors += 1;
            }
            Ok(()) if !failed => return Ok(errors),
            Ok(()) => {}
        }
    }
    pr_err!("allocations without end\n");
    Err(EINVAL)
}
