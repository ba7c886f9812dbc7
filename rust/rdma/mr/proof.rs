// SPDX-License-Identifier: GPL-2.0

//! Proofs that the peer cannot access a region any more.

use core::cell::Cell;
use kernel::sync::atomic::Atomic;

/// Value of [`RemoteInvalidation::pd`] if no message can prove an invalidation.
pub(crate) const NO_PD: usize = 0;

/// The device reports that a message of the peer invalidated the region with this rkey.
///
/// A peer can guess a key, and invalidate it before the registration is executed. So a message
/// proves an invalidation only if it repeats a value that the peer can know only from the Send that
/// was posted after the registration ([`Echo`]). Such a value shows that the registration had been
/// executed when the peer made the message. So the invalidation hit a valid region. A message
/// proves one invalidation only.
pub struct RemoteInvalidation<'a> {
    pub(crate) rkey: u32,
    /// Number of the protection domain in which the message can prove an invalidation, or `NO_PD`.
    pub(crate) pd: usize,
    /// Whether the message was already used as the proof for a region.
    pub(crate) used: &'a Cell<bool>,
    /// The number of the queue pair's next doorbell. A registration that waits for this doorbell
    /// has not been posted yet.
    pub(crate) doorbell: &'a Atomic<u32>,
    /// The bytes of the message.
    pub(crate) bytes: &'a [u8],
}

impl RemoteInvalidation<'_> {
    /// Returns the rkey of the invalidated region.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }
}

/// The content that a message repeats from the Send that named a region. The peer can know this
/// content only from that Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// The message repeats the region's offset, in network byte order. The `usize` is the index of
    /// the offset's first byte in the message. The upper bits of the offset were drawn at random
    /// when the region was mapped. This crate itself checks that the message contains the offset.
    OffsetAt(usize),
    /// The message repeats the region's offset, in network byte order, at any position that is a
    /// multiple of four bytes.
    Offset,
    /// The message repeats a number that is not the region's offset. The caller states that the
    /// peer could not foresee this number, because the number did not leave this host before the
    /// Send that named the region.
    ///
    /// The crate cannot check the caller's statement. So such a message proves an invalidation only
    /// if the peer may read the region but not write to it. If the statement is wrong, the peer may
    /// read memory that it should not read, but can do no other harm.
    Unforeseen,
    /// The message repeats no content of the Send.
    Nothing,
}

impl Echo {
    /// Returns whether `message` contains `offset`, the offset of the region, at a position that
    /// `self` allows.
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

/// Proof that an invalidation has completed. All invalidations that were posted before it on the
/// same send queue have completed, too.
pub struct LocalInvalidation {
    pub(crate) seq: u64,
    pub(crate) pd: usize,
}
