// SPDX-License-Identifier: GPL-2.0

//! Properties of the calling thread: whether it may wait, its priority, and how it allocates.

use xprtrdma_bindings as bindings;

/// Returns whether other threads are waiting for the current processor. The answer is only a hint,
/// because it may already be outdated when this function returns.
#[inline]
pub fn others_want_this_cpu() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { !bindings::single_task_running() }
}

/// Returns whether the calling thread may wait for a while. A kernel worker must not wait, because
/// other work may need the worker's queue. A thread that reclaims memory must not wait either.
pub fn may_wait() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { bindings::xprtrdma_may_linger() }
}

/// Returns whether the calling thread gets a processor about as soon as a kernel worker would. This
/// is the case if the thread's priority is not lower than a worker's, and the thread's run time is
/// not limited. This function ignores limits of control groups.
#[inline]
pub fn is_prompt() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { bindings::xprtrdma_is_prompt() }
}

/// A scope in which this thread's memory allocations do not wait for a file system.
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
    /// Enters a scope in which memory allocations do not wait for a file system.
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
