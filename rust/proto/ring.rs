// SPDX-License-Identifier: GPL-2.0

//! How many Receives to keep posted, and when to post more.
//!
//! Every Call that we send and every reverse Call that the server may send needs a posted
//! Receive before it happens (V1-018, BC-07). The ring holds a batch on top of that, so that
//! Receives are posted a batch at a time and not one by one; what is on top is spent first.

/// Receive accounting of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRing {
    forward: u32,
    reverse: u32,
    batch: u32,
    posted: u32,
}

impl ReceiveRing {
    /// Nothing posted yet. `forward` calls of ours and `reverse` Calls of the server can be in
    /// flight; Receives are replaced `batch` at a time, at least one.
    #[inline]
    pub fn new(forward: u32, reverse: u32, batch: u32) -> Self {
        Self {
            forward,
            reverse,
            batch: batch.max(1),
            posted: 0,
        }
    }

    /// How many Receives the ring is made for; the Receive queue needs as much room.
    #[inline]
    pub const fn capacity(&self) -> u32 {
        self.needed().saturating_add(self.batch)
    }

    /// How many may never be missing while calls are sent.
    #[inline]
    const fn needed(&self) -> u32 {
        self.forward.saturating_add(self.reverse)
    }

    /// How many are posted.
    #[inline]
    pub const fn posted(&self) -> u32 {
        self.posted
    }

    /// How many to post now to fill the ring.
    #[inline]
    pub const fn missing(&self) -> u32 {
        self.capacity().saturating_sub(self.posted)
    }

    /// The device took `count` Receives.
    #[inline]
    pub fn post(&mut self, count: u32) {
        self.posted = self.posted.saturating_add(count).min(self.capacity());
    }

    /// A message consumed a Receive. Returns how many to post now: nothing, or at least a batch.
    #[inline]
    pub fn consume(&mut self) -> u32 {
        self.posted = self.posted.saturating_sub(1);
        if self.missing() >= self.batch {
            self.missing()
        } else {
            0
        }
    }

    /// The most forward credits that may be asked for with what is posted now: never more than
    /// there are Receives for their replies, on top of those for reverse Calls.
    #[inline]
    pub fn advertisable(&self) -> u32 {
        self.posted.saturating_sub(self.reverse).min(self.forward)
    }

    /// The connection is gone and drained: nothing is posted.
    #[inline]
    pub fn reset(&mut self) {
        self.posted = 0;
    }
}
