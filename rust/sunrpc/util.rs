// SPDX-License-Identifier: GPL-2.0

//! Version, time, load, rate-limited logging and the NOFS scope.

use core::ptr;
use kernel::{
    fmt,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// Formats a value of `core`, such as an address, with the kernel's macros.
pub struct Show<'a, V: core::fmt::Display>(pub &'a V);

impl<V: core::fmt::Display> fmt::Display for Show<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(self.0, f)
    }
}

/// The module's version, as `modinfo` shows it.
pub fn version() -> &'static CStr {
    // SAFETY: The function returns a string literal.
    unsafe { CStr::from_char_ptr(bindings::xprtrdma_version()) }
}

/// A time in jiffies, as the RPC client counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jiffies(pub(crate) usize);

impl Jiffies {
    /// The present.
    #[inline]
    pub fn now() -> Self {
        // SAFETY: One word, which the kernel updates; it is only read.
        Self(unsafe { ptr::read_volatile(&raw const kernel::bindings::jiffies) })
    }

    /// The span since a time that was counted with [`Jiffies::count`].
    pub fn since(count: usize) -> Self {
        Self(Self::now().0.wrapping_sub(count))
    }

    /// Whether this time, counted as the kernel does, is at least `span` jiffies ahead.
    #[inline]
    pub(crate) fn is_at_least_ahead(self, span: usize) -> bool {
        // CAST: As in C, a time that is past is a negative distance.
        self.0.wrapping_sub(Self::now().0) as isize >= span as isize
    }

    /// A span of milliseconds.
    pub fn from_ms(ms: u32) -> Self {
        // SAFETY: No requirements.
        Self(unsafe { bindings::xprtrdma_msecs_to_jiffies(ms) })
    }

    /// This span, in milliseconds.
    pub fn as_ms(self) -> u32 {
        // SAFETY: No requirements.
        unsafe { bindings::xprtrdma_jiffies_to_msecs(self.0) }
    }

    /// This span, in jiffies.
    #[inline]
    pub fn count(self) -> usize {
        self.0
    }
}

/// Milliseconds since boot, monotonic.
pub fn now_ms() -> u64 {
    // SAFETY: No requirements.
    let ns = unsafe { kernel::bindings::ktime_get() };
    // CAST: The monotonic clock is never negative.
    ns as u64 / 1_000_000
}

/// A random number, good enough for jitter.
pub fn random() -> u32 {
    // SAFETY: No requirements.
    unsafe { bindings::xprtrdma_random() }
}

/// Whether other threads are waiting for the processor on which this is called. Only a hint: it may
/// have changed already.
#[inline]
pub fn processor_is_wanted() -> bool {
    // SAFETY: No requirements.
    unsafe { !bindings::single_task_running() }
}

/// Whether the calling thread gets a processor about as soon as a worker does: it has no lower priority,
/// and no budget of time. What a control group takes from it is not seen.
#[inline]
pub(crate) fn is_prompt() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::xprtrdma_is_prompt() }
}

/// Whether the calling thread may be held up for a while: it is no worker, whose queue others may wait for,
/// and does not reclaim memory.
pub(crate) fn may_linger() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::xprtrdma_may_linger() }
}

/// Whether a log line may be written now: at most 20 in five seconds for the whole module.
pub fn may_log() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::xprtrdma_may_log() }
}

/// While it exists, allocations of this thread do not wait for a file system.
///
/// The thread that makes it must drop it.
pub struct NoFs {
    flags: u32,
    _not_send: core::marker::PhantomData<*mut ()>,
}

impl NoFs {
    /// Enters the scope.
    pub fn enter() -> Self {
        Self {
            // SAFETY: Undone in `drop`, on the same thread since the type is not `Send`.
            flags: unsafe { bindings::xprtrdma_memalloc_nofs_save() },
            _not_send: core::marker::PhantomData,
        }
    }
}

impl Drop for NoFs {
    fn drop(&mut self) {
        // SAFETY: `flags` is what the matching save returned.
        unsafe { bindings::xprtrdma_memalloc_nofs_restore(self.flags) }
    }
}
