// SPDX-License-Identifier: GPL-2.0

//! The stages of a call's processing ([`Stage`]), and buckets for counting how long they take.
//!
//! Bucket 0 counts spans shorter than 1 us. Bucket `n` counts spans of at least 2^(n-1) us that are
//! shorter than 2^n us. The last bucket has no upper limit.

/// A part of a call's processing. Each stage begins when the preceding stage ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The stage from the beginning of the RPC until the call was last passed to the transport. In
    /// this stage the call waits for a slot, a connection, a credit or another sender, and is
    /// encoded.
    Wait,
    /// The stage that ends immediately before the call is posted. In this stage the memory of the
    /// call is registered, and its message is built.
    Register,
    /// The stage until the reply has arrived. It includes posting, the network and the server.
    Answer,
    /// The stage until the call ended. Regions that the server did not invalidate are invalidated,
    /// and data is copied.
    Complete,
}

impl Stage {
    /// All stages, in the order in which a call passes through them.
    pub const ALL: [Self; 4] = [Self::Wait, Self::Register, Self::Answer, Self::Complete];

    /// Returns the name of the stage in debugfs files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Register => "register",
            Self::Answer => "answer",
            Self::Complete => "complete",
        }
    }
}

/// Number of buckets. The last bucket counts spans of 67 s and more.
pub const BUCKETS: usize = 28;

/// Returns the index (below [`BUCKETS`]) of the bucket that counts a span of `ns` nanoseconds.
pub fn bucket(ns: u64) -> usize {
    let us = ns / 1000;
    // The index of the bucket is the number of binary digits of the span in microseconds.
    let digits = u64::BITS.saturating_sub(us.leading_zeros());
    // CAST: A `u64` has at most 64 binary digits, which fit a `usize`.
    (digits as usize).min(BUCKETS - 1)
}

/// Returns the exclusive upper limit, in microseconds, of the spans in a bucket. Returns `None` for
/// the last bucket, which has no upper limit, and for an index without a bucket.
pub fn below_us(bucket: usize) -> Option<u64> {
    if bucket >= BUCKETS - 1 {
        return None;
    }
    1u64.checked_shl(u32::try_from(bucket).ok()?)
}

/// Times in the processing of a call, in nanoseconds of a clock that never steps back. Zero means
/// that the time is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// Time at which the RPC began.
    pub begun: u64,
    /// Time at which the call was last passed to the transport.
    pub given: u64,
    /// Time immediately before the call was last posted.
    pub posted: u64,
    /// Time at which the reply had arrived.
    pub answered: u64,
    /// Time at which the call ended.
    pub ended: u64,
}

impl Stamps {
    /// Returns how long each stage took, in nanoseconds. Returns `None` if a time stamp is missing,
    /// or is earlier than the preceding time stamp. This happens if measuring was off when the call
    /// was posted, or if the call was sent again after it was posted.
    pub fn spans(&self) -> Option<[(Stage, u64); 4]> {
        if self.begun == 0 || self.posted == 0 {
            return None;
        }
        let [wait, register, answer, complete] = Stage::ALL;
        Some([
            (wait, self.given.checked_sub(self.begun)?),
            (register, self.posted.checked_sub(self.given)?),
            (answer, self.answered.checked_sub(self.posted)?),
            (complete, self.ended.checked_sub(self.answered)?),
        ])
    }
}
