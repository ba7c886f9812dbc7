// SPDX-License-Identifier: GPL-2.0

//! Memory of a request that is lent to the peer ([`Loan`], then [`Lease`]).
//!
//! As long as a lease exists, the request can neither be completed nor released:
//! [`Pinned::complete`](crate::call::Pinned::complete) refuses, and the release path waits. So an
//! RPC never ends while the server can reach its memory (V1-103, V1-105), whatever a driver does.
//!
//! The RPC client may encode a request again while it is lent; it does not ask the transport first.
//! Head and pages then get other bytes of the same request. Pages that its security flavour
//! allocated for the last encoding would be freed: [`Call::lend`](crate::call::Call::lend) delays
//! that until the leases have ended.

use crate::{
    slot::Slot,
    transport::Transport,
    xdr_buf::{
        KnownPage,
        Part,
        XdrBuf, //
    },
    xprt::xprt_of,
};
use core::{
    mem,
    ptr::{self, NonNull}, //
};
use xprtrdma_base::{
    holders::Holders,
    lend::{
        self,
        Piece, //
    }, //
};

/// A message of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The call.
    Call,
    /// The memory prepared for the reply.
    Reply,
}

/// A part of a request's memory that may be lent, while the request is being sent.
///
/// # Invariants
///
/// `buf` is a message of the request that the lease is about, for `'a`.
pub struct Loan<'a, T: Transport> {
    lease: Lease<T>,
    buf: XdrBuf<'a>,
    part: Part,
    known_page: &'a KnownPage,
}

impl<'a, T: Transport> Loan<'a, T> {
    /// See [`Lease::new`].
    ///
    /// # Safety
    ///
    /// The send lock is held by this thread for `'a`.
    ///
    /// The request in the slot is encoded, and queued if a reply is expected. It is neither encoded
    /// again nor released for `'a`, and its task does not wait for its leases before.
    #[inline]
    pub(crate) unsafe fn new(slot: &'a Slot<T>, message: Message, part: Part) -> Option<Self> {
        let rqst = slot.rqst.get();
        let raw = match message {
            // SAFETY: By the caller's contract.
            Message::Call => unsafe { &raw const (*rqst).rq_snd_buf },
            // The RPC client's copy, which does not change when the reply is decoded. It is empty
            // if none is expected.
            // SAFETY: By the caller's contract.
            Message::Reply => unsafe { &raw const (*rqst).rq_private_buf },
        };
        Some(Self {
            // SAFETY: By the caller's contract; leases of requests are made here alone.
            lease: unsafe { Lease::new(slot) }?,
            // SAFETY: By the caller's contract.
            buf: unsafe { XdrBuf::from_raw(raw) },
            part,
            // SAFETY: By the caller's contract; it holds the send lock.
            known_page: unsafe { &*slot.known_page.get() },
        })
    }
}

// SAFETY: There is a page for each byte: `prepare_reply` has made those that were missing. The
// memory stays allocated until the lease is dropped: head and tail lie in the slot, or in the last
// of the security flavour's pages; those are released by `Ops::release_call`, and all other pages
// by the upper layer behind the end of the request. Both wait for the count. No Rust reference to
// it exists: replies are placed through raw pointers, and when the count is zero.
unsafe impl<T: Transport> lend::Loan for Loan<'_, T> {
    type Lender = Lease<T>;

    #[inline]
    fn len(&self) -> usize {
        self.buf.part_len(self.part)
    }

    #[inline]
    fn pieces(&self, start: usize, take: impl FnMut(Piece<'_>) -> bool) {
        self.buf.pieces(self.part, start, take);
    }

    #[inline(always)]
    fn only_piece(&self) -> Option<Piece<'_>> {
        self.buf.only_piece(self.part, self.known_page)
    }

    #[inline]
    fn into_lender(self) -> Lease<T> {
        self.lease
    }
}

/// A part of a request's memory that is lent. The value does not say which part, as the request may
/// be encoded again at any time.
///
/// # Invariants
///
/// `slot` is valid and its `leases` counts this value.
///
/// # Examples
///
/// ```
/// # use xprtrdma_base::lend::Loan as _;
/// # use xprtrdma_sunrpc::{
/// #     call::Call,
/// #     lease::{Lease, Loan, Message},
/// #     transport::Transport,
/// #     xdr_buf::Part,
/// # };
/// /// Lends the data of a WRITE. The call does not end before the lease is dropped.
/// fn lend<T: Transport>(call: &Call<'_, T>) -> Option<Lease<T>> {
///     let loan: Loan<'_, T> = call.lend(Message::Call, Part::Pages)?;
///     // Here a region is made of the pieces of the loan.
///     Some(loan.into_lender())
/// }
/// ```
pub struct Lease<T: Transport> {
    slot: NonNull<Slot<T>>,
}

// SAFETY: The slot outlives the lease and its count is atomic.
unsafe impl<T: Transport> Send for Lease<T> {}

impl<T: Transport> lend::Lender for Lease<T> {}

impl<T: Transport> Lease<T> {
    /// Returns `None` if the request has another lease and is pinned: the thread that pinned it may
    /// end that lease by [`Pinned::end_lease`](crate::call::Pinned::end_lease).
    ///
    /// # Safety
    ///
    /// The slot has a request. During the call no other thread makes a lease of it or waits for the
    /// end of its leases.
    #[inline]
    pub(crate) unsafe fn new(slot: &Slot<T>) -> Option<Self> {
        // SAFETY: By the caller's contract.
        if unsafe { slot.leases.add_first() || Self::add_another(slot) } {
            // INVARIANT: Counted just now; a slot with leases is neither reused nor freed.
            Some(Self {
                slot: NonNull::from(slot),
            })
        } else {
            None
        }
    }

    /// Counts a lease that is not the only one, unless the request is pinned.
    ///
    /// # Safety
    ///
    /// As for [`Lease::new`].
    #[cold]
    unsafe fn add_another(slot: &Slot<T>) -> bool {
        // SAFETY: By the caller's contract; a request keeps its transport.
        let _queue = unsafe { xprt_of::<T>(slot.rqst.get()) }.queue_lock().lock();
        // SAFETY: The lock is held. A thread that pins the request later finds this lease counted.
        let pinned = unsafe { *slot.pinned.get() };
        if !pinned {
            slot.leases.add();
        }
        !pinned
    }

    /// Ends the lease, without an atomic instruction if it is the only one.
    ///
    /// # Safety
    ///
    /// It is a lease of the request in `slot`, which the caller has as a
    /// [`Pinned`](crate::call::Pinned) until this returns.
    #[inline(always)]
    pub(crate) unsafe fn end_while_pinned(self, slot: &Slot<T>) {
        // SAFETY: This value is counted. By the caller's contract the request's task waits for no
        // lease: before it does so it takes the request off its queues, and waits for the pin. And
        // while there is a lease and `Slot::pinned` is set, no thread makes another: `add_another`.
        if unsafe { slot.leases.remove_only() } {
            mem::forget(self);
        }
    }

    /// Whether this is a lease of the request in this slot.
    #[inline]
    pub(crate) fn is_of(&self, slot: &Slot<T>) -> bool {
        ptr::eq(self.slot.as_ptr(), slot)
    }
}

impl<T: Transport> Drop for Lease<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The slot is valid by the type invariant.
        let leases = unsafe { &raw const (*self.slot.as_ptr()).leases };
        // SAFETY: As above, and this value is counted.
        unsafe { Holders::remove(leases) }
    }
}
