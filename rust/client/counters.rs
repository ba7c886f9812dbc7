// SPDX-License-Identifier: GPL-2.0

//! [`Counters`] of one transport, and the [`Tally`] of each of its slots.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use xprtrdma_proto::{
    judge::Accept,
    latency::{
        bucket,
        Stage,
        Stamps,
        BUCKETS, //
    },
    Counter,
    Notes, //
};

/// A number that only grows. `Relaxed`: nothing is ordered by it.
struct Count(Atomic<u64>);

impl Count {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    #[inline]
    fn add(&self, n: u64) {
        self.0.add(n, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters beside the [`Counter`]s of the protocol core, which count unusual events.
#[derive(Clone, Copy)]
pub(crate) enum Ordinary {
    /// Calls that could not be prepared for sending.
    FailedMarshal,
    /// Messages that were dropped.
    BadReply,
    /// Calls that went as a Read chunk.
    LongCalls,
    /// Times that a sender found the send queue full.
    SendQueueFull,
    /// Times that a sender found no region.
    NoRegion,
    /// Requests of the server.
    Callbacks,
    /// Replies to calls that had been given up.
    LateReplies,
    /// Healthy connections that moved to another rail.
    RailMoves,
    /// Attempts and connections whose rail died while there was another live one.
    RailFailovers,
}

impl Ordinary {
    const COUNT: usize = Self::RailFailovers as usize + 1;
}

/// Counters of one transport.
pub(crate) struct Counters {
    unusual: [Count; Counter::COUNT],
    ordinary: [Count; Ordinary::COUNT],
    /// How many calls spent how long in a stage: `[stage][bucket]`. Completion handlers count, of a
    /// connection one at a time.
    latency: [[Count; BUCKETS]; Stage::ALL.len()],
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self {
            unusual: [const { Count::new() }; Counter::COUNT],
            ordinary: [const { Count::new() }; Ordinary::COUNT],
            latency: [const { [const { Count::new() }; BUCKETS] }; Stage::ALL.len()],
        }
    }

    /// Counts something ordinary.
    #[inline]
    pub(crate) fn add(&self, what: Ordinary) {
        if let Some(count) = self.ordinary.get(what as usize) {
            count.add(1);
        }
    }

    /// Counts an ordinary event.
    pub(crate) fn ordinary(&self, what: Ordinary) -> u64 {
        self.ordinary.get(what as usize).map_or(0, Count::get)
    }

    /// Counts something unusual.
    pub(crate) fn count(&self, counter: Counter) {
        self.count_many(counter, 1);
    }

    /// Counts an ordinary event `n` times.
    pub(crate) fn count_many(&self, counter: Counter, n: u64) {
        if let Some(count) = self.unusual.get(counter as usize) {
            count.add(n);
        }
    }

    /// Counts the oddities of an accepted message.
    #[inline(always)]
    pub(crate) fn note(&self, notes: Notes) {
        if !notes.is_empty() {
            self.note_some(notes);
        }
    }

    #[cold]
    fn note_some(&self, notes: Notes) {
        for counter in notes.iter() {
            self.count(counter);
        }
    }

    /// Counts the stages of a call, if they are known.
    pub(crate) fn passed(&self, stamps: &Stamps) {
        for (stage, ns) in stamps.spans().into_iter().flatten() {
            if let Some(count) = self.of_stage(stage, bucket(ns)) {
                count.add(1);
            }
        }
    }

    /// Returns how many calls spent a time of this bucket in a stage.
    pub(crate) fn latency(&self, stage: Stage, bucket: usize) -> u64 {
        self.of_stage(stage, bucket).map_or(0, Count::get)
    }

    fn of_stage(&self, stage: Stage, bucket: usize) -> Option<&Count> {
        self.latency.get(stage as usize)?.get(bucket)
    }

    /// Counts an unusual event.
    pub(crate) fn unusual(&self, counter: Counter) -> u64 {
        self.unusual.get(counter as usize).map_or(0, Count::get)
    }
}

/// The kind of results for which a call offered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// For a data item: a Write chunk.
    Write,
    /// For everything: a Reply chunk.
    Reply,
}

/// The data that the calls of one slot have moved, counted under the lock of their state.
///
/// NO-OVERFLOW: 64 bits last for centuries.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    read_segments: u64,
    write_segments: u64,
    reply_segments: u64,
    offered_bytes: u64,
    placed_bytes: u64,
    copied_out: u64,
    copied_in: u64,
    /// Regions that the server invalidated, as agreed.
    invalidated: u64,
    /// Regions that the server invalidated because we announced support; it did not announce its
    /// own.
    invalidated_unannounced: u64,
}

impl Tally {
    /// A call was posted with this many bytes inline and segments to be read.
    #[inline]
    pub(crate) fn sent(&mut self, inline: usize, read_segments: usize) {
        self.copied_out = self.copied_out.wrapping_add(inline as u64);
        self.read_segments = self.read_segments.wrapping_add(read_segments as u64);
    }

    /// Counts a call that offered memory of `length` bytes, in this many segments.
    #[inline]
    pub(crate) fn offered(&mut self, offer: Offer, segments: usize, length: u32) {
        let count = match offer {
            Offer::Write => &mut self.write_segments,
            Offer::Reply => &mut self.reply_segments,
        };
        *count = count.wrapping_add(segments as u64);
        self.offered_bytes = self.offered_bytes.wrapping_add(length.into());
    }

    /// Counts an accepted reply.
    #[inline]
    pub(crate) fn accepted(&mut self, accept: &Accept) {
        let placed = u64::from(accept.placed).wrapping_add(accept.reply_len.into());
        self.copied_in = self.copied_in.wrapping_add(accept.inline_len as u64);
        self.placed_bytes = self.placed_bytes.wrapping_add(placed);
    }

    /// Counts a region that the server invalidated, under `counter`.
    #[inline]
    pub(crate) fn invalidated(&mut self, counter: Counter) {
        let count = if counter == Counter::Reminv {
            &mut self.invalidated
        } else {
            &mut self.invalidated_unannounced
        };
        *count = count.wrapping_add(1);
    }

    /// Adds the numbers of another slot.
    pub(crate) fn add(&mut self, other: &Self) {
        self.read_segments += other.read_segments;
        self.write_segments += other.write_segments;
        self.reply_segments += other.reply_segments;
        self.offered_bytes += other.offered_bytes;
        self.placed_bytes += other.placed_bytes;
        self.copied_out += other.copied_out;
        self.copied_in += other.copied_in;
        self.invalidated += other.invalidated;
        self.invalidated_unannounced += other.invalidated_unannounced;
    }

    /// The numbers: segments for reading, for data items and for replies; bytes of the memory that
    /// was offered and of what the server placed there; bytes that were copied into and out of
    /// messages.
    pub(crate) fn columns(&self) -> [u64; 7] {
        [
            self.read_segments,
            self.write_segments,
            self.reply_segments,
            self.offered_bytes,
            self.placed_bytes,
            self.copied_out,
            self.copied_in,
        ]
    }

    /// How often the server invalidated a region: as agreed ([`Counter::Reminv`]), or without
    /// having announced it ([`Counter::ReminvUnannounced`]).
    pub(crate) fn invalidations(&self) -> (u64, u64) {
        (self.invalidated, self.invalidated_unannounced)
    }
}
