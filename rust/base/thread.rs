// SPDX-License-Identifier: GPL-2.0

//! The calling thread: whether it may wait, and how it allocates.

use xprtrdma_bindings as bindings;

/// Whether other threads are waiting for the processor on which this is called. Only a hint: it may
/// have changed already.
#[inline]
pub fn others_want_this_cpu() -> bool {
    // SAFETY: No requirements.
    unsafe { !bindings::single_task_running() }
}

/// Whether the calling thread may wait for a while: it is no worker, for whose queue others may
/// wait, and does not reclaim memory.
pub fn may_wait() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::xprtrdma_may_linger() }
}

/// Whether the calling thread gets a processor about as soon as a worker does: it has neither a
/// lower priority nor a limited budget of time. Limits by a control group are not seen.
#[inline]
pub fn is_prompt() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::xprtrdma_is_prompt() }
}

/// A scope in which allocations of this thread do not wait for a file system.
///
/// The thread that makes it must drop it.
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
            // SAFETY: Undone in `drop`, on the same thread since the type is not `Send`.
            flags: unsafe { bindings::xprtrdma_memalloc_nofs_save() },
            _not_send: core::marker::PhantomData,
        }
    }
}

impl Drop for NoFs {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `flags` is what the matching save returned.
        unsafe { bindings::xprtrdma_memalloc_nofs_restore(self.flags) }
    }
}
