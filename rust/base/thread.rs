// SPDX-License-Identifier: GPL-2.0

//! Properties of the calling thread: whether it may wait, its priority, and how it allocates.

use xprtrdma_bindings as bindings;

/// Returns whether other threads are waiting for the processor on which this function runs. Only a
/// hint: it may have changed already.
#[inline]
pub fn others_want_this_cpu() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { !bindings::single_task_running() }
}

/// Returns whether the calling thread may wait for a while: it is no kernel worker, as other work
/// may wait for the worker's queue, and it does not reclaim memory.
pub fn may_wait() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { bindings::xprtrdma_may_linger() }
}

/// Returns whether the scheduler runs the calling thread about as soon as it runs a kernel worker:
/// the thread has no lower priority and no limited run-time budget. Limits that a control group
/// imposes are not considered.
#[inline]
pub fn is_prompt() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { bindings::xprtrdma_is_prompt() }
}

/// A scope in which the allocations of this thread do not wait for a file system.
///
/// The thread that enters the scope must also drop it.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_base::thread::NoFs;
/// let _scope = NoFs::enter();
/// // As with GFP_NOFS.
/// let buffer = KBox::new([0u8; 64], GFP_KERNEL)?;
/// # Ok::<(), Error>(())
/// ```
pub struct NoFs {
    flags: u32,
    _not_send: core::marker::PhantomData<*mut ()>,
}

impl NoFs {
    /// Enters the scope.
    #[inline]
    pub fn enter() -> Self {
        Self {
            // SAFETY: `drop` restores the flags on the same thread, because this type is not
            // `Send`.
            flags: unsafe { bindings::xprtrdma_memalloc_nofs_save() },
            _not_send: core::marker::PhantomData,
        }
    }
}

impl Drop for NoFs {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `flags` is the value that the matching save returned.
        unsafe { bindings::xprtrdma_memalloc_nofs_restore(self.flags) }
    }
}
