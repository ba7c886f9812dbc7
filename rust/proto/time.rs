// SPDX-License-Identifier: GPL-2.0

//! Time as the core sees it: plain milliseconds handed in by the caller.
//!
//! The core has no clock. [`Time`] is a point on the caller's monotonic clock, [`Millis`] a span.
//! All arithmetic saturates: a clock that steps backwards, or a huge span from an administrator,
//! makes a deadline late or immediate but never wraps it.

/// A point on the caller's monotonic clock, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(u64);

/// A span of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(u64);

impl Time {
    /// The point `ms` milliseconds after the zero of the caller's clock.
    #[inline]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the zero of the caller's clock.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The point `span` later.
    #[inline]
    pub const fn after(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The span from `earlier` to here; zero when `earlier` is not earlier.
    #[inline]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Millis {
    /// A span of `ms` milliseconds.
    #[inline]
    pub const fn new(ms: u64) -> Self {
        Self(ms)
    }

    /// A span of `s` seconds.
    #[inline]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1000))
    }

    /// The span in milliseconds.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}
