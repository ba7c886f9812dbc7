// SPDX-License-Identifier: GPL-2.0

//! Jiffies, milliseconds, and random jitter.

use core::ptr;
use xprtrdma_bindings as bindings;

/// A point in time or a duration in jiffies, as the RPC client counts them.
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
    /// Returns the present time.
    #[inline]
    pub fn now() -> Self {
        // SAFETY: `jiffies` is a single word. The kernel updates it, and this code only reads it.
        Self(unsafe { ptr::read_volatile(&raw const kernel::bindings::jiffies) })
    }

    /// Returns the time elapsed since `count`, a value that [`Jiffies::count`] returned earlier.
    pub fn since(count: usize) -> Self {
        Self(Self::now().0.wrapping_sub(count))
    }

    /// Returns whether this point in time is at least `span` jiffies in the future. Handles the
    /// wrap-around of jiffies.
    #[inline]
    pub fn is_at_least_ahead(self, span: usize) -> bool {
        // CAST: As in C, a point in time in the past has a negative distance.
        self.0.wrapping_sub(Self::now().0) as isize >= span as isize
    }

    /// Converts milliseconds to jiffies.
    pub fn from_ms(ms: u32) -> Self {
        // SAFETY: The function has no requirements.
        Self(unsafe { bindings::xprtrdma_msecs_to_jiffies(ms) })
    }

    /// Converts this duration to milliseconds.
    pub fn as_ms(self) -> u32 {
        // SAFETY: The function has no requirements.
        unsafe { bindings::xprtrdma_jiffies_to_msecs(self.0) }
    }

    /// Returns the number of jiffies.
    #[inline]
    pub fn count(self) -> usize {
        self.0
    }
}

/// Returns the monotonic time since boot, in milliseconds.
pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Returns the monotonic time since boot in nanoseconds, as `ktime_get()` does. May be called in
/// any context.
pub fn now_ns() -> u64 {
    // SAFETY: The function has no requirements.
    let ns = unsafe { kernel::bindings::ktime_get() };
    // CAST: The monotonic clock is never negative.
    ns as u64
}

/// Returns a random number for jitter. The random number may be of poor quality.
pub fn random() -> u32 {
    // SAFETY: The function has no requirements.
    unsafe { bindings::xprtrdma_random() }
}
