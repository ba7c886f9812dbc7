// SPDX-License-Identifier: GPL-2.0

//! Time, and chance.

use core::ptr;
use xprtrdma_bindings as bindings;

/// A time in jiffies, as the RPC client counts it.
///
/// # Examples
///
/// ```
/// # use xprtrdma_base::time::Jiffies;
/// let begun = Jiffies::now().count();
/// let lasted_ms = Jiffies::since(begun).as_ms();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jiffies(pub usize);

impl Jiffies {
    /// The present.
    #[inline]
    pub fn now() -> Self {
        // SAFETY: One word, which the kernel updates; it is only read.
        Self(unsafe { ptr::read_volatile(&raw const kernel::bindings::jiffies) })
    }

    /// The span since a time that [`Jiffies::count`] returned.
    pub fn since(count: usize) -> Self {
        Self(Self::now().0.wrapping_sub(count))
    }

    /// Whether this time, counted as the kernel does, is at least `span` jiffies ahead.
    #[inline]
    pub fn is_at_least_ahead(self, span: usize) -> bool {
        // CAST: As in C, a time in the past is a negative distance.
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
    now_ns() / 1_000_000
}

/// Nanoseconds since boot, monotonic: what `ktime_get()` returns. In any context.
pub fn now_ns() -> u64 {
    // SAFETY: No requirements.
    let ns = unsafe { kernel::bindings::ktime_get() };
    // CAST: The monotonic clock is never negative.
    ns as u64
}

/// A random number, good enough for jitter.
pub fn random() -> u32 {
    // SAFETY: No requirements.
    unsafe { bindings::xprtrdma_random() }
}
