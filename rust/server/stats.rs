// SPDX-License-Identifier: GPL-2.0

//! Statistics of a connection.

use core::fmt;
use kernel::sync::atomic::Atomic;
use xprtrdma_svc::util::AccessOnce;

/// A counter. Only one thread at a time may change the counter.
pub(crate) struct Count(Atomic<usize>);

impl Count {
    /// Returns a counter that is zero.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds to the counter. The caller ensures that no other thread changes the counter at the same
    /// time.
    pub(crate) fn add(&self, more: usize) {
        // NO-OVERFLOW: This is a statistic, which may wrap.
        self.0.write_once(self.0.read_once().wrapping_add(more));
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.read_once())
    }
}

/// Counters of received messages. Completion handlers change them, one handler at a time.
pub(crate) struct Arrivals {
    /// Messages that the client has sent.
    pub(crate) messages: Count,
    /// Messages that were dropped without a reply.
    pub(crate) dropped: Count,
    /// Calls that were admitted although they deviate from the protocol.
    pub(crate) odd: Count,
    /// Calls that needed RDMA Reads.
    pub(crate) reads: Count,
    /// Bytes that RDMA Reads for calls have transferred.
    pub(crate) read_bytes: Count,
}

impl Arrivals {
    /// Returns counters that are zero.
    pub(crate) const fn new() -> Self {
        Self {
            messages: Count::new(),
            dropped: Count::new(),
            odd: Count::new(),
            reads: Count::new(),
            read_bytes: Count::new(),
        }
    }
}

/// Counters of sent replies. The counters are changed only with the lock of the grant held.
pub(crate) struct Answers {
    /// Replies, and errors that are sent in place of replies.
    pub(crate) sent: Count,
    /// Replies that needed RDMA Writes.
    pub(crate) writes: Count,
    /// Replies that found no space in the send queue.
    pub(crate) waits: Count,
    /// Replies that invalidated a key of the client.
    pub(crate) invalidations: Count,
}

impl Answers {
    /// Returns counters that are zero.
    pub(crate) const fn new() -> Self {
        Self {
            sent: Count::new(),
            writes: Count::new(),
            waits: Count::new(),
            invalidations: Count::new(),
        }
    }
}
