// SPDX-License-Identifier: GPL-2.0

//! Proofs that the peer does not reach a region any more.

use core::cell::Cell;
use kernel::sync::atomic::Atomic;

/// Of [`RemoteInvalidation::pd`]: it proves nothing.
pub(crate) const NO_PD: usize = 0;

/// A message of the peer says that it invalidated the region with this rkey.
///
/// It is a proof where the device is known to refuse a key that is not valid when the message
/// arrives ([`DeviceInfo::refuses_stale_keys`](crate::device::DeviceInfo::refuses_stale_keys)):
/// then the device has executed the registration before, and whatever else proves that the region
/// is invalid is handled later than this. And it is one once, for the region's next mapping may
/// have the same key again. Elsewhere the peer may have guessed the key of a registration that
/// comes later, and only our own invalidation is a proof.
pub struct RemoteInvalidation<'a> {
    pub(crate) rkey: u32,
    /// The domain of which it proves something.
    pub(crate) pd: Cell<usize>,
    /// The number of the queue pair's next doorbell: a registration that waits for it was not
    /// posted.
    pub(crate) doorbell: &'a Atomic<u32>,
}

impl RemoteInvalidation<'_> {
    /// The rkey of the invalidated region.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Whether the device's word is a proof, which was not used yet.
    pub fn is_proof(&self) -> bool {
        self.pd.get() != NO_PD
    }
}

/// Proof that every invalidation up to a point of the send queue has completed.
pub struct LocalInvalidation {
    pub(crate) seq: u64,
    pub(crate) pd: usize,
}
