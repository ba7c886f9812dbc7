// SPDX-License-Identifier: GPL-2.0

//! Memory of a request that is lent to the peer ([`Lease`]).
//!
//! As long as a lease exists, the request can neither be completed nor released:
//! [`Pinned::complete`](crate::call::Pinned::complete) refuses, and the release path waits. So an
//! RPC never ends while the server can reach its memory (V1-103, V1-105), whatever a driver does.
//!
//! The RPC client may encode a request anew while it is lent, for it asks nobody before. Head and pages
//! then get other octets of the same request. Pages that its security flavour made for the last encoding
//! would be freed: [`Call::lend`](crate::call::Call::lend) sees to it that this waits for the leases, too.

use crate::{
    holders::Holders,
    slot::Slot,
    transport::Transport,
    xdr_buf::{
        Part,
        XdrBuf, //
    },
};
use core::ptr::NonNull;
use kernel::bindings::page;
use xprtrdma_rdma::dma::Lender;

/// Which message of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The call.
    Call,
    /// The memory prepared for the reply.
    Reply,
}

/// A loan of a part of a request's memory.
///
/// # Invariants
///
/// `slot` is valid and its `leases` counts this value.
pub struct Lease<T: Transport> {
    slot: NonNull<Slot<T>>,
    message: Message,
    part: Part,
}

// SAFETY: The slot outlives the lease and its count is atomic.
unsafe impl<T: Transport> Send for Lease<T> {}

impl<T: Transport> Lease<T> {
    pub(crate) fn new(slot: &Slot<T>, message: Message, part: Part) -> Self {
        slot.leases.add();
        // INVARIANT: Counted just now; a slot with leases is neither reused nor freed.
        Self {
            slot: NonNull::from(slot),
            message,
            part,
        }
    }

    fn buf(&self) -> XdrBuf<'_> {
        // SAFETY: The slot is valid by the type invariant.
        let rqst = unsafe { self.slot.as_ref() }.rqst.get();
        let raw = match self.message {
            // SAFETY: As above.
            Message::Call => unsafe { &raw const (*rqst).rq_snd_buf },
            // SAFETY: As above.
            Message::Reply => unsafe { &raw const (*rqst).rq_rcv_buf },
        };
        // SAFETY: The request's memory is neither released nor encoded again while leases exist.
        unsafe { XdrBuf::from_raw(raw) }
    }
}

impl<T: Transport> Clone for Lease<T> {
    fn clone(&self) -> Self {
        // SAFETY: The slot is valid by the type invariant.
        Self::new(unsafe { self.slot.as_ref() }, self.message, self.part)
    }
}

// SAFETY: By the type invariant the memory stays allocated until the lease is dropped: head and tail lie
// in the slot, or in the last of the security flavour's pages; those are released by
// `Ops::release_call`, and all other pages by the upper layer behind the end of the request. Both wait
// for the count. No Rust reference to it exists meanwhile: replies are placed when the count is zero.
unsafe impl<T: Transport> Lender for Lease<T> {
    #[inline]
    fn len(&self) -> usize {
        self.buf().part_len(self.part)
    }

    #[inline]
    fn pieces(&self, start: usize, take: impl FnMut(&[*mut page], usize, usize) -> bool) {
        self.buf().pieces(self.part, start, take);
    }
}

impl<T: Transport> Drop for Lease<T> {
    fn drop(&mut self) {
        // SAFETY: The slot is valid by the type invariant.
        let leases = unsafe { &raw const (*self.slot.as_ptr()).leases };
        // SAFETY: As above, and this value is counted.
        unsafe { Holders::remove(leases) }
    }
}
