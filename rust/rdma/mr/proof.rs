// SPDX-License-Identifier: GPL-2.0

//! Proofs that the peer does not reach a region any more.

use core::cell::Cell;
use kernel::sync::atomic::Atomic;

/// Value of [`RemoteInvalidation::pd`]: no message proves anything.
pub(crate) const NO_PD: usize = 0;

/// The device reports that a message of the peer invalidated the region with this rkey.
///
/// A peer can guess a key, and invalidate it before the registration is executed. So the message is
/// a proof only together with what it repeats ([`Echo`]): then it was made when the Send behind
/// the registration had left, so the registration had been executed, and the invalidation hit a
/// valid region. It is a proof once.
pub struct RemoteInvalidation<'a> {
    pub(crate) rkey: u32,
    /// The domain in which it can prove an invalidation.
    pub(crate) pd: usize,
    /// It has proved one.
    pub(crate) used: &'a Cell<bool>,
    /// The number of the queue pair's next doorbell. A registration that waits for it was not
    /// posted yet.
    pub(crate) doorbell: &'a Atomic<u32>,
    /// The message.
    pub(crate) bytes: &'a [u8],
}

impl RemoteInvalidation<'_> {
    /// The rkey of the invalidated region.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }
}

/// Content of a message that the peer can only know from the Send that told of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// The region's offset, in network order, at this byte of the message. Its upper bits were
    /// drawn at random when the region was mapped. This crate looks it up and does not believe the
    /// caller.
    OffsetAt(usize),
    /// The region's offset at any word of the message.
    Offset,
    /// Another number that the peer could not foresee, and that left this host with that Send and
    /// not before.
    ///
    /// The caller's word for it is taken, but only for a region that the peer may read: such a
    /// region is never written through, so a wrong word shows memory to the peer and does no other
    /// harm.
    Unforeseen,
    /// Nothing.
    Nothing,
}

impl Echo {
    /// Whether the message repeats this offset.
    #[inline(always)]
    pub(super) fn has_offset(self, message: &[u8], offset: u64) -> bool {
        let offset = offset.to_be_bytes();
        match self {
            Self::OffsetAt(at) => {
                let there = message.get(at..).and_then(|rest| rest.first_chunk());
                there == Some(&offset)
            }
            Self::Offset => has_word(message, &offset),
            Self::Unforeseen | Self::Nothing => false,
        }
    }
}

#[inline(never)]
fn has_word(message: &[u8], word: &[u8; 8]) -> bool {
    (0..message.len())
        .step_by(4)
        .any(|at| message.get(at..).and_then(|rest| rest.first_chunk()) == Some(word))
}

/// Proof that every invalidation up to a point of the send queue has completed.
pub struct LocalInvalidation {
    pub(crate) seq: u64,
    pub(crate) pd: usize,
}
