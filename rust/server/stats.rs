// SPDX-License-Identifier: GPL-2.0

//! What a connection has done.

use core::fmt;
use kernel::sync::atomic::Atomic;
use xprtrdma_svc::util::AccessOnce;

/// A count that one thread at a time changes.
pub(crate) struct Count(Atomic<usize>);

impl Count {
    /// Returns a count of zero.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds to it: the caller keeps other threads from doing so at the same time.
    pub(crate) fn add(&self, more: usize) {
        // NO-OVERFLOW: A statistic, which may.
        self.0.write_once(self.0.read_once().wrapping_add(more));
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.read_once())
    }
}

/// What came. Completion handlers, one at a time, change it.
pub(crate) struct Arrivals {
    /// Messages of the client.
    pub(crate) messages: Count,
    /// Messages that were dropped without an answer.
    pub(crate) dropped: Count,
    /// Calls that need RDMA Reads.
    pub(crate) reads: Count,
    /// The bytes that these bring.
    pub(crate) read_bytes: Count,
}

impl Arrivals {
    /// Returns counts of zero.
    pub(crate) const fn new() -> Self {
        Self {
            messages: Count::new(),
            dropped: Count::new(),
            reads: Count::new(),
            read_bytes: Count::new(),
        }
    }
}

/// What was answered. It changes with the lock of the grant held.
pub(crate) struct Answers {
    /// Answers, and errors that take their place.
    pub(crate) sent: Count,
    /// Answers that needed RDMA Writes.
    pub(crate) writes: Count,
    /// Answers that found no room in the send queue.
    pub(crate) waits: Count,
    /// Answers that invalidated a key of the client.
    pub(crate) invalidations: Count,
}

impl Answers {
    /// Returns counts of zero.
    pub(crate) const fn new() -> Self {
        Self {
            sent: Count::new(),
            writes: Count::new(),
            waits: Count::new(),
            invalidations: Count::new(),
        }
    }
}
