// SPDX-License-Identifier: GPL-2.0

//! Where the time of a call goes: its stages ([`Stage`]), and buckets to count them in.
//!
//! Bucket 0 is for less than a microsecond, each other one for spans up to twice as long as those
//! of the one before it, the last one for all that are longer.

/// A part of a call's life. Each stage begins where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the beginning of the RPC until the transport was last given the call to send: it waits
    /// for a slot, a connection, a credit or another sender, and is encoded.
    Wait,
    /// Until the call was about to be posted: its memory is registered and its message made.
    Register,
    /// Until the reply had arrived: posting, network, server.
    Answer,
    /// Until the call ended: regions that the server did not invalidate are invalidated, and data
    /// is copied.
    Complete,
}

impl Stage {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Wait, Self::Register, Self::Answer, Self::Complete];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Register => "register",
            Self::Answer => "answer",
            Self::Complete => "complete",
        }
    }
}

/// How many buckets there are: the last one is for 67 s and more.
pub const BUCKETS: usize = 28;

/// The bucket of a span in nanoseconds, less than [`BUCKETS`].
pub fn bucket(ns: u64) -> usize {
    let us = ns / 1000;
    // As many as a number has binary digits.
    let digits = u64::BITS.saturating_sub(us.leading_zeros());
    // CAST: at most 64.
    (digits as usize).min(BUCKETS - 1)
}

/// The number of microseconds that all spans in a bucket are shorter than; `None` for the last one,
/// which has no limit, and for numbers that no bucket has.
pub fn below_us(bucket: usize) -> Option<u64> {
    if bucket >= BUCKETS - 1 {
        return None;
    }
    1u64.checked_shl(u32::try_from(bucket).ok()?)
}

/// Points in the life of a call, in nanoseconds of a clock that never steps back. Zero: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// The RPC began.
    pub begun: u64,
    /// The transport was given the call to send, for the last time.
    pub given: u64,
    /// The call was about to be posted, for the last time.
    pub posted: u64,
    /// The reply had arrived.
    pub answered: u64,
    /// It ends.
    pub ended: u64,
}

impl Stamps {
    /// Returns how long each stage took, in nanoseconds. `None` if a point is missing or they are
    /// not in order: measuring was off when the call was posted, or it has been sent again since.
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
