// SPDX-License-Identifier: GPL-2.0

//! Memory of a request that is lent to the peer. A [`Loan`] is the memory to be lent. It becomes a
//! [`Lease`], which exists until the peer can no longer access the memory.
//!
//! While a lease exists, the request can be neither completed nor released:
//! [`Pinned::complete`](crate::call::Pinned::complete) returns an error, and the code that releases
//! the request waits. So an RPC never ends while the server can still access its memory (V1-103,
//! V1-105), whatever the driver does.
//!
//! The RPC client does not ask the transport before it encodes a request again. So a request may be
//! encoded again while its memory is lent. This has two effects:
//!
//! - The head and the pages get other bytes, which belong to the same request.
//! - The security flavour releases the pages that it had allocated for the previous encoding.
//!   [`Call::lend`](crate::call::Call::lend) delays this release until the leases have ended.

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

/// The two RPC messages of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The call.
    Call,
    /// The reply, which arrives in the memory that was prepared for it.
    Reply,
}

/// A part of a request's memory that the driver may lend to the peer while the request is being
/// sent.
///
/// # Invariants
///
/// `buf` is a message of the leased request and is valid for `'a`.
pub struct Loan<'a, T: Transport> {
    lease: Lease<T>,
    buf: XdrBuf<'a>,
    part: Part,
    known_page: &'a KnownPage,
}

impl<'a, T: Transport> Loan<'a, T> {
    /// Creates a lease, and returns the loan of a part of a message. Returns `None` if
    /// [`Lease::new`] returns `None`.
    ///
    /// # Safety
    ///
    /// This thread holds the send lock for `'a`.
    ///
    /// The request in the slot is encoded. If a reply is expected, the request is also queued.
    /// During `'a` the request is neither encoded again nor released, and its task does not wait
    /// for the request's leases.
    #[inline]
    pub(crate) unsafe fn new(slot: &'a Slot<T>, message: Message, part: Part) -> Option<Self> {
        let rqst = slot.rqst.get();
        let raw = match message {
            // SAFETY: By the caller's contract the slot has a request.
            Message::Call => unsafe { &raw const (*rqst).rq_snd_buf },
            // This copy of the buffer structure belongs to the RPC client and does not change when
            // the reply is decoded. The copy is empty if no reply is expected.
            // SAFETY: By the caller's contract, the slot has a request.
            Message::Reply => unsafe { &raw const (*rqst).rq_private_buf },
        };
        Some(Self {
            // SAFETY: The caller's contract includes the contract of `Lease::new`, and only this
            // function creates leases of requests.
            lease: unsafe { Lease::new(slot) }?,
            // SAFETY: By the caller's contract the message is valid for `'a`.
            buf: unsafe { XdrBuf::from_raw(raw) },
            part,
            // SAFETY: By the caller's contract this thread holds the send lock, which protects the
            // field.
            known_page: unsafe { &*slot.known_page.get() },
        })
    }
}

// SAFETY: Each byte has a page, because `prepare_reply` has allocated missing pages. The memory
// stays allocated until the lease is dropped:
// - The head and the tail lie in the slot, or in the last page of the security flavour.
// - `release_call` frees the pages of the security flavour. It waits until no lease exists.
// - The upper layer frees all other pages after the request has ended. The end of the request also
//   waits until no lease exists.
// No Rust reference to the memory exists: replies are placed through raw pointers, and only while
// no lease exists.
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

/// A lease on a part of a request's memory. The lease refers to the slot and not to that part,
/// because another encoding of the request can move the part at any time.
///
/// # Invariants
///
/// `slot` is valid, and its counter `leases` includes this lease.
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

// SAFETY: The slot outlives the lease, and the counter is atomic.
unsafe impl<T: Transport> Send for Lease<T> {}

impl<T: Transport> lend::Lender for Lease<T> {}

impl<T: Transport> Lease<T> {
    /// Creates and counts a lease. Returns `None` if the request is pinned and already has a lease.
    /// In this case the thread that pinned the request may be ending that lease with
    /// [`Pinned::end_lease`](crate::call::Pinned::end_lease).
    ///
    /// # Safety
    ///
    /// The slot has a request. During the call no other thread creates a lease of the request or
    /// waits for the end of the request's leases.
    #[inline]
    pub(crate) unsafe fn new(slot: &Slot<T>) -> Option<Self> {
        // SAFETY: The contract of `Lease::new` includes the contracts of the two called functions.
        if unsafe { slot.leases.add_first() || Self::add_another(slot) } {
            // INVARIANT: The lease has just been counted. A slot with leases is neither reused nor
            // freed.
            Some(Self {
                slot: NonNull::from(slot),
            })
        } else {
            None
        }
    }

    /// Counts a further lease of a request that already has a lease, and returns true. If the
    /// request is pinned, counts nothing and returns false.
    ///
    /// # Safety
    ///
    /// The contract is that of [`Lease::new`].
    #[cold]
    unsafe fn add_another(slot: &Slot<T>) -> bool {
        // SAFETY: By the caller's contract the slot has a request. A transport outlives its
        // requests.
        let _queue = unsafe { xprt_of::<T>(slot.rqst.get()) }.queue_lock().lock();
        // SAFETY: The queue lock is held. If a thread pins the request later, the count that it
        // sees includes this lease.
        let pinned = unsafe { *slot.pinned.get() };
        if !pinned {
            slot.leases.add();
        }
        !pinned
    }

    /// Ends the lease. Needs no atomic instruction if the request has no other lease.
    ///
    /// # Safety
    ///
    /// This is a lease of the request in `slot`, and the caller owns a
    /// [`Pinned`](crate::call::Pinned) of that request until this function returns.
    #[inline(always)]
    pub(crate) unsafe fn end_while_pinned(self, slot: &Slot<T>) {
        // SAFETY: The counter includes this lease. The request's task does not wait for leases now:
        // a task waits only after its request is unpinned, and the caller has pinned the request.
        // While `Slot::pinned` is set and a lease exists, `add_another` creates no other lease.
        if unsafe { slot.leases.remove_only() } {
            mem::forget(self);
        }
    }

    /// Returns whether this lease belongs to the request in `slot`.
    #[inline]
    pub(crate) fn is_of(&self, slot: &Slot<T>) -> bool {
        ptr::eq(self.slot.as_ptr(), slot)
    }
}

impl<T: Transport> Drop for Lease<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the slot is valid.
        let leases = unsafe { &raw const (*self.slot.as_ptr()).leases };
        // SAFETY: By the type invariant, the slot is valid. The counter still counts this lease.
        unsafe { Holders::remove(leases) }
    }
}
