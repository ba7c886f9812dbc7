// SPDX-License-Identifier: GPL-2.0

//! Time in the protocol core, in milliseconds.
//!
//! The core has no clock: the caller passes the present time. [`Time`] is a point on the caller's
//! monotonic clock; [`Millis`] is a span.
//!
//! All arithmetic saturates. If the clock steps backwards, or an administrator sets a huge span, a
//! deadline may move, but no deadline wraps around.

/// A point on the caller's monotonic clock, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(u64);

/// A span of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(u64);

impl Time {
    /// Returns the point `ms` milliseconds after the zero of the caller's clock.
    #[inline]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Returns the milliseconds since the zero of the caller's clock.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the point that is `span` later.
    #[inline]
    pub const fn after(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the span from `earlier` to this point, or zero if `earlier` is not before this
    /// point.
    #[inline]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Millis {
    /// Returns a span of `ms` milliseconds.
    #[inline]
    pub const fn new(ms: u64) -> Self {
        Self(ms)
    }

    /// Returns a span of `s` seconds.
    #[inline]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1000))
    }

    /// Returns the number of milliseconds.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}
