// SPDX-License-Identifier: GPL-2.0

//! Counters of one transport ([`Counters`]), and counters of one request slot ([`Tally`]).

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

/// A number that only grows. Its accesses are `Relaxed`, because no other memory access depends on
/// their order.
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

/// Counters of ordinary events. The [`Counter`]s of the protocol core count unusual events.
#[derive(Clone, Copy)]
pub(crate) enum Ordinary {
    /// Calls that could not be prepared for sending.
    FailedMarshal,
    /// Received messages that were dropped.
    BadReply,
    /// Calls whose whole message was sent as a Read chunk.
    LongCalls,
    /// Number of times that a sender found the send queue full.
    SendQueueFull,
    /// Number of times that a sender found no free region.
    NoRegion,
    /// Calls that the server sent to this host.
    Callbacks,
    /// Replies to calls that had been abandoned.
    LateReplies,
    /// Moves of a healthy connection to another rail.
    RailMoves,
    /// Attempts and connections that ended because their rail died while another rail was alive.
    RailFailovers,
}

impl Ordinary {
    const COUNT: usize = Self::RailFailovers as usize + 1;
}

/// Counters of one transport.
pub(crate) struct Counters {
    unusual: [Count; Counter::COUNT],
    ordinary: [Count; Ordinary::COUNT],
    /// Number of calls by the time that they spent in each stage: `[stage][bucket]`. Only
    /// completion handlers change this array, and the handlers of one connection run one at a time.
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

    /// Counts one ordinary event.
    #[inline]
    pub(crate) fn add(&self, what: Ordinary) {
        if let Some(count) = self.ordinary.get(what as usize) {
            count.add(1);
        }
    }

    /// Returns how many ordinary events of this type were counted.
    pub(crate) fn ordinary(&self, what: Ordinary) -> u64 {
        self.ordinary.get(what as usize).map_or(0, Count::get)
    }

    /// Counts one unusual event.
    pub(crate) fn count(&self, counter: Counter) {
        self.count_many(counter, 1);
    }

    /// Counts an unusual event `n` times.
    pub(crate) fn count_many(&self, counter: Counter, n: u64) {
        if let Some(count) = self.unusual.get(counter as usize) {
            count.add(n);
        }
    }

    /// Counts the deviations from the protocol in a message that was accepted.
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

    /// Counts the time that a call spent in each stage. A stage is counted only if its beginning
    /// and its end were measured.
    pub(crate) fn passed(&self, stamps: &Stamps) {
        for (stage, ns) in stamps.spans().into_iter().flatten() {
            if let Some(count) = self.of_stage(stage, bucket(ns)) {
                count.add(1);
            }
        }
    }

    /// Returns the number of calls whose time in this stage falls into the histogram bucket
    /// `bucket`.
    pub(crate) fn latency(&self, stage: Stage, bucket: usize) -> u64 {
        self.of_stage(stage, bucket).map_or(0, Count::get)
    }

    fn of_stage(&self, stage: Stage, bucket: usize) -> Option<&Count> {
        self.latency.get(stage as usize)?.get(bucket)
    }

    /// Returns how many unusual events of this type were counted.
    pub(crate) fn unusual(&self, counter: Counter) -> u64 {
        self.unusual.get(counter as usize).map_or(0, Count::get)
    }
}

/// The type of chunk by which a call offers memory for its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// A Write chunk, for one data item.
    Write,
    /// A Reply chunk, for the whole reply.
    Reply,
}

/// The amounts of data that the calls of one slot have moved. The lock of the slot's request
/// protects them.
///
/// NO-OVERFLOW: Counters of 64 bits do not overflow within centuries.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    read_segments: u64,
    write_segments: u64,
    reply_segments: u64,
    offered_bytes: u64,
    placed_bytes: u64,
    copied_out: u64,
    copied_in: u64,
    /// Regions that the server invalidated after both peers had announced support for remote
    /// invalidation.
    invalidated: u64,
    /// Regions that the server invalidated although only this host had announced support for remote
    /// invalidation.
    invalidated_unannounced: u64,
}

impl Tally {
    /// Counts a call that was posted with `inline` bytes in its message and with `read_segments`
    /// segments that the server reads.
    #[inline]
    pub(crate) fn sent(&mut self, inline: usize, read_segments: usize) {
        self.copied_out = self.copied_out.wrapping_add(inline as u64);
        self.read_segments = self.read_segments.wrapping_add(read_segments as u64);
    }

    /// Counts a call that offered memory of `length` bytes for results, in `segments` segments.
    #[inline]
    pub(crate) fn offered(&mut self, offer: Offer, segments: usize, length: u32) {
        let count = match offer {
            Offer::Write => &mut self.write_segments,
            Offer::Reply => &mut self.reply_segments,
        };
        *count = count.wrapping_add(segments as u64);
        self.offered_bytes = self.offered_bytes.wrapping_add(length.into());
    }

    /// Counts the bytes that arrived with an accepted reply.
    #[inline]
    pub(crate) fn accepted(&mut self, accept: &Accept) {
        let placed = u64::from(accept.placed).wrapping_add(accept.reply_len.into());
        self.copied_in = self.copied_in.wrapping_add(accept.inline_len as u64);
        self.placed_bytes = self.placed_bytes.wrapping_add(placed);
    }

    /// Counts a region that the server invalidated. `counter` says whether both peers had announced
    /// support for remote invalidation.
    #[inline]
    pub(crate) fn invalidated(&mut self, counter: Counter) {
        let count = if counter == Counter::Reminv {
            &mut self.invalidated
        } else {
            &mut self.invalidated_unannounced
        };
        *count = count.wrapping_add(1);
    }

    /// Adds the counts of another slot.
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

    /// Returns seven counts:
    ///
    /// - the number of segments in Read chunks, in Write chunks and in Reply chunks (three counts),
    /// - the bytes that were offered for results,
    /// - the bytes that the server placed,
    /// - the bytes that were copied into sent messages,
    /// - the bytes that were copied out of received messages.
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

    /// Returns two counts of regions that the server invalidated. The first count is for the case
    /// that both peers had announced support for remote invalidation ([`Counter::Reminv`]). The
    /// second count is for all other cases ([`Counter::ReminvUnannounced`]).
    pub(crate) fn invalidations(&self) -> (u64, u64) {
        (self.invalidated, self.invalidated_unannounced)
    }
}
