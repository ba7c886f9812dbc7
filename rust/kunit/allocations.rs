// SPDX-License-Identifier: GPL-2.0

//! Runs code repeatedly, and makes a different allocation fail in each run.

use kernel::prelude::*;
use xprtrdma_bindings as bindings;

/// Runs `attempt` repeatedly: in the nth run the nth allocation of this thread fails. Stops when a
/// run makes fewer than n allocations. Returns the number of runs that ended with an error. After
/// each run the closure `after` checks what the run has left behind.
///
/// A run may succeed although an allocation failed: the allocation may belong to a debugging
/// facility, or the code may not depend on the allocation.
pub(crate) fn each_allocation<T>(
    mut before: impl FnMut() -> Result<T>,
    mut attempt: impl FnMut(&T) -> Result,
    mut after: impl FnMut(T) -> Result,
) -> Result<usize> {
    let mut errors = 0;
    for nth in 1..1000 {
        let subject = before()?;
        // SAFETY: The function has no requirements. `fake_alloc_failed` ends the injection.
        unsafe { bindings::fake_fail_alloc(nth) };
        let result = attempt(&subject);
        // SAFETY: The function has no requirements.
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
