// SPDX-License-Identifier: GPL-2.0

//! Counters of one transport ([`Stats`]).

use crate::driver::Rdma;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use xprtrdma_proto::{
    Counter,
    Notes, //
};
use xprtrdma_sunrpc::xprt::Xprt;

/// A number that only grows. `Relaxed`: nothing is ordered by it.
pub(crate) struct Count(Atomic<u64>);

impl Count {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds `n`.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.add(n, Relaxed);
    }

    /// The present value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What the calls of one slot have moved, counted under the lock that their state has anyway.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) read_segments: u64,
    pub(crate) write_segments: u64,
    pub(crate) reply_segments: u64,
    pub(crate) offered_bytes: u64,
    pub(crate) placed_bytes: u64,
    pub(crate) copied_out: u64,
    pub(crate) copied_in: u64,
    /// Regions that the server invalidated, as agreed.
    pub(crate) invalidated: u64,
    /// Those that it invalidated because we announced support, without having announced its own.
    pub(crate) invalidated_unannounced: u64,
}

impl Tally {
    /// What the calls of all slots have moved.
    pub(crate) fn of(xprt: &Xprt<Rdma>) -> Self {
        let mut sum = Self::default();
        for slot in xprt.slots() {
            let one = slot.call().state.lock().tally;
            sum.read_segments += one.read_segments;
            sum.write_segments += one.write_segments;
            sum.reply_segments += one.reply_segments;
            sum.offered_bytes += one.offered_bytes;
            sum.placed_bytes += one.placed_bytes;
            sum.copied_out += one.copied_out;
            sum.copied_in += one.copied_in;
            sum.invalidated += one.invalidated;
            sum.invalidated_unannounced += one.invalidated_unannounced;
        }
        sum
    }
}

/// Counters of one transport.
pub(crate) struct Stats {
    unusual: [Count; Counter::COUNT],
    pub(crate) failed_marshal: Count,
    pub(crate) bad_reply: Count,
    pub(crate) long_calls: Count,
    pub(crate) send_queue_full: Count,
    pub(crate) no_region: Count,
    pub(crate) callbacks: Count,
    pub(crate) late_replies: Count,
}

impl Stats {
    pub(crate) const fn new() -> Self {
        Self {
            unusual: [const { Count::new() }; Counter::COUNT],
            failed_marshal: Count::new(),
            bad_reply: Count::new(),
            long_calls: Count::new(),
            send_queue_full: Count::new(),
            no_region: Count::new(),
            callbacks: Count::new(),
            late_replies: Count::new(),
        }
    }

    /// Counts something unusual.
    pub(crate) fn count(&self, counter: Counter) {
        self.count_many(counter, 1);
    }

    /// The same, `n` times.
    pub(crate) fn count_many(&self, counter: Counter, n: u64) {
        if let Some(count) = self.unusual.get(counter as usize) {
            count.add(n);
        }
    }

    /// Counts the oddities of an accepted message.
    #[inline]
    pub(crate) fn note(&self, notes: Notes) {
        if !notes.is_empty() {
            for counter in notes.iter() {
                self.count(counter);
            }
        }
    }

    /// How often something unusual happened.
    pub(crate) fn unusual(&self, counter: Counter) -> u64 {
        self.unusual.get(counter as usize).map_or(0, Count::get)
    }
}
