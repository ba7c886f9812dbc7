// SPDX-License-Identifier: GPL-2.0

//! A request whose reply is being processed: [`Pinned`].

use super::{
    fail_pending,
    memory::START_LEN,
    RunState, //
};
use crate::{
    lease::Lease,
    slot::Slot,
    transport::Transport,
    xdr_buf::{
        Part,
        XdrBuf, //
    },
    xprt::{
        xprt_of,
        Xprt, //
    },
};
use core::{
    ptr::{
        self,
        NonNull, //
    },
    sync::atomic::{
        AtomicI32,
        Ordering, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};
use xprtrdma_bindings as bindings;

/// A request whose reply is being processed. It is neither released nor encoded again until it is
/// unpinned.
///
/// Dropping this value leaves the request pending.
///
/// # Invariants
///
/// The request is pinned for this value, of which there is one: [`Xprt::lookup`] sets
/// `Slot::pinned`, and makes none while it is set.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_sunrpc::{transport::Transport, xprt::Xprt};
/// /// Completes the call that a message answers.
/// fn receive<T: Transport>(xprt: &Xprt<T>, message: &[u8]) -> Result {
///     let xid = message.first_chunk().ok_or(EBADMSG)?;
///     let mut call = xprt.lookup(u32::from_be_bytes(*xid)).ok_or(ENOENT)?;
///     call.place_inline(message)?;
///     call.complete(message.len()).map_err(|_still_lent| EBUSY)
/// }
/// ```
pub struct Pinned<T: Transport> {
    slot: NonNull<Slot<T>>,
}

// SAFETY: A pin does not belong to a thread.
unsafe impl<T: Transport> Send for Pinned<T> {}

impl<T: Transport> Pinned<T> {
    /// # Safety
    ///
    /// `rqst` is in a slot, which was marked as pinned just now, and has been pinned.
    pub(crate) unsafe fn new(rqst: *mut bindings::rpc_rqst) -> Self {
        // SAFETY: By the caller's contract.
        let slot = NonNull::from(unsafe { Slot::<T>::from_rqst(rqst) });
        Self { slot }
    }

    /// The slot with the driver's data.
    #[inline]
    pub fn slot(&self) -> &Slot<T> {
        // SAFETY: A pinned request keeps its slot, by the type invariant.
        unsafe { self.slot.as_ref() }
    }

    /// The transport.
    #[inline]
    pub fn xprt(&self) -> &Xprt<T> {
        // SAFETY: A pinned request belongs to its transport, which outlives it.
        unsafe { xprt_of(self.rqst()) }
    }

    /// Ends a lease, without an atomic instruction if it is this request's only one.
    #[inline(always)]
    pub fn end_lease(&self, lease: Lease<T>) {
        if lease.is_of(self.slot()) {
            // SAFETY: By the type invariant, and the look.
            unsafe { lease.end_while_pinned(self.slot()) }
        }
    }

    pub(crate) fn rqst(&self) -> *mut bindings::rpc_rqst {
        self.slot().rqst.get()
    }

    /// The transaction id, in host order.
    pub fn xid(&self) -> u32 {
        // SAFETY: Constant while the request is encoded.
        u32::from_be(unsafe { (*self.rqst()).rq_xid })
    }

    /// The memory for the reply.
    pub fn reply(&self) -> XdrBuf<'_> {
        // SAFETY: A pinned request keeps its buffers.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_rcv_buf) }
    }

    /// The first bytes of a reply that the peer placed in the reply's memory; zeroes if its head
    /// cannot have so many.
    #[inline]
    pub fn placed_start(&self) -> [u8; START_LEN] {
        if self.slot().is_leased() || self.reply().head_len() < START_LEN {
            return [0; START_LEN];
        }
        // SAFETY: The head has that many bytes, which no thread writes now.
        unsafe {
            let head = (*self.rqst()).rq_rcv_buf.head[0].iov_base;
            head.cast::<[u8; START_LEN]>().read()
        }
    }

    /// Copies a reply that arrived inline into the reply's memory. `EMSGSIZE` if it does not fit
    /// (MAL-094), `EBUSY` while memory is lent.
    #[inline(always)]
    pub fn place_inline(&mut self, message: &[u8]) -> Result {
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        let rqst = self.rqst();
        // SAFETY: The buffer is valid while the request is pinned. By the type invariant no other
        // thread places anything there, and without leases no device does.
        unsafe {
            let head = (*rqst).rq_rcv_buf.head[0];
            if message.len() > head.iov_len {
                return place_beyond_head(rqst, message);
            }
            let head = head.iov_base.cast();
            ptr::copy_nonoverlapping(message.as_ptr(), head, message.len());
        }
        Ok(())
    }

    /// Copies the inline part of a reply whose data item, `data` bytes, is already in the pages:
    /// what precedes the item to the head, what follows it to the tail. `EMSGSIZE` if it does not
    /// fit, `EBUSY` while memory is lent.
    ///
    /// The decoder expects the data right behind the head, so the head is cut to what arrived.
    #[inline(always)]
    pub fn place_around(&mut self, message: &[u8], data: usize) -> Result {
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        let rqst = self.rqst();
        // SAFETY: As in `place_inline`.
        unsafe {
            let head = (*rqst).rq_rcv_buf.head[0];
            if message.len() != head.iov_len {
                return place_around_item(rqst, message, data);
            }
            // Usually the head is as long as was expected, and nothing follows the item.
            let head = head.iov_base.cast();
            ptr::copy_nonoverlapping(message.as_ptr(), head, message.len());
        }
        Ok(())
    }

    /// Completes the request with a reply of `len` bytes, which the caller has placed. A byte that
    /// the caller has not placed is zero, or of an earlier reply: the slot's buffers are allocated
    /// with zeroes. (The pages belong to the upper layer, which only reads back what it put there.)
    ///
    /// # Errors
    ///
    /// Returns `self` while any memory of the request is lent, as such a request cannot end, and if
    /// the buffer has no room for such a reply.
    #[inline(always)]
    pub fn complete(self, len: usize) -> Result<(), Self> {
        if self.slot().is_leased() || len > self.reply().part_len(Part::Whole) {
            return Err(self);
        }
        self.finish(|rqst| {
            // CAST: There is memory for the reply, which is less than 2 GiB.
            // SAFETY: The lock is held, the request pinned.
            unsafe { bindings::xprt_complete_rqst((*rqst).rq_task, len as c_int) }
        });
        Ok(())
    }

    /// Ends the request, which was given to [`Transport::send`], with an error. Gives it back while
    /// any of its memory is lent.
    ///
    /// The error reaches the task whether or not it already sleeps: a task that was not asleep
    /// encodes the request again and meets the error there.
    pub fn fail(self, error: Error) -> Result<(), Self> {
        if self.slot().is_leased() {
            return Err(self);
        }
        self.slot().verdict.store(error.to_errno(), Relaxed);
        self.finish(|rqst| {
            // SAFETY: The lock is held, the request pinned.
            unsafe { fail_pending(rqst, error) }
        });
        Ok(())
    }

    /// Drops the pin of `self`, the only one that [`Xprt::lookup`] has made.
    ///
    /// # Safety
    ///
    /// The queue lock is held, and was since the task's `state` was read. `self` is not used again.
    #[inline]
    unsafe fn unpin(&self, state: RunState) {
        // SAFETY: By the caller's contract, and the type invariant.
        unsafe {
            *self.slot().pinned.get() = false;
            unpin(self.rqst(), state);
        }
    }

    #[inline(always)]
    fn finish(self, end: impl FnOnce(*mut bindings::rpc_rqst)) {
        let rqst = self.rqst();
        {
            let _queue = self.xprt().queue_lock().lock();
            // SAFETY: The lock is held, the request pinned.
            let state = unsafe { RunState::of(rqst) };
            if state.is_pending() {
                end(rqst);
            }
            // SAFETY: The lock is held; `self` is not used again.
            unsafe { self.unpin(state) };
        }
        core::mem::forget(self);
    }
}

// Each function that changes the count of a request's pins is called with the queue lock held, by
// its contract, so it needs no atomic instruction. The waiter reads the count without the lock.

/// The count of a request's pins.
///
/// # Safety
///
/// `rqst` is valid for `'a`.
unsafe fn pins<'a>(rqst: *mut bindings::rpc_rqst) -> &'a AtomicI32 {
    // SAFETY: By the caller's contract. `atomic_t` is one `int`, which is changed atomically.
    unsafe { AtomicI32::from_ptr(&raw mut (*rqst).rq_pin.counter) }
}

/// As `xprt_pin_rqst()`.
///
/// # Safety
///
/// The queue lock is held, and `rqst` is on a queue.
#[inline(always)]
unsafe fn pin(rqst: *mut bindings::rpc_rqst) {
    // SAFETY: By the caller's contract.
    let pins = unsafe { pins(rqst) };
    // NO-OVERFLOW: There is one pin of ours, and one of the sender.
    pins.store(
        pins.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

/// As `xprt_unpin_rqst()`.
///
/// # Safety
///
/// The queue lock is held, and was since the task's `state` was read. `rqst` is pinned by the
/// caller, which does not use it any more.
#[inline(always)]
unsafe fn unpin(rqst: *mut bindings::rpc_rqst, state: RunState) {
    if state.is_awaited() {
        // SAFETY: By the caller's contract.
        return unsafe { bindings::xprt_unpin_rqst(rqst) };
    }
    // SAFETY: As above.
    let pins = unsafe { pins(rqst) };
    // NO-OVERFLOW: It counts the caller's.
    // ORDERING: `Release` orders the caller's work before the end of the request.
    pins.store(
        pins.load(Ordering::Relaxed).wrapping_sub(1),
        Ordering::Release,
    );
}

// Rare steps are in functions without a `Pinned` parameter, so that the usual path need not put it
// into memory.

/// As [`Pinned::place_inline`], for a reply that is longer than its head may be.
///
/// # Safety
///
/// `rqst` is pinned by a [`Pinned`], and none of its memory is lent.
#[inline(never)]
unsafe fn place_beyond_head(rqst: *mut bindings::rpc_rqst, message: &[u8]) -> Result {
    // SAFETY: By the caller's contract, as in `place_inline`.
    unsafe {
        let buf = &raw mut (*rqst).rq_rcv_buf;
        let part_len = XdrBuf::from_raw(buf).part_len(Part::Whole);
        if message.len() > part_len {
            return Err(EMSGSIZE);
        }
        // The callee's bound is `len`, which is the capacity until the request completes.
        let len = (*buf).len;
        (*buf).len = u32::try_from(part_len)?;
        let err = bindings::write_bytes_to_xdr_buf(
            buf,
            0,
            message.as_ptr().cast_mut().cast(),
            u32::try_from(message.len())?,
        );
        (*buf).len = len;
        kernel::error::to_result(err)
    }
}

/// As [`Pinned::place_around`], for a reply of any length.
///
/// # Safety
///
/// As for [`place_beyond_head`].
#[inline(never)]
unsafe fn place_around_item(rqst: *mut bindings::rpc_rqst, message: &[u8], data: usize) -> Result {
    // SAFETY: By the caller's contract, as in `place_inline`. The reply's shape is changed in both
    // copies of the buffer structure alike, which is what the RPC client checks.
    unsafe {
        let head_len = (*rqst).rq_rcv_buf.head[0].iov_len;
        let page_len = (*rqst).rq_rcv_buf.page_len as usize;
        if message.len() > head_len && data < page_len {
            // Bytes that follow a short item belong into the pages behind it; only a reply without
            // an item has any.
            return if data == 0 {
                place_beyond_head(rqst, message)
            } else {
                Err(EMSGSIZE)
            };
        }
        let (head, rest) = match message.split_at_checked(head_len) {
            Some(parts) => parts,
            None => (message, &[][..]),
        };
        ptr::copy_nonoverlapping(
            head.as_ptr(),
            (*rqst).rq_rcv_buf.head[0].iov_base.cast(),
            head.len(),
        );
        let cut = u32::try_from(head_len - head.len())?;
        for buf in [&raw mut (*rqst).rq_rcv_buf, &raw mut (*rqst).rq_private_buf] {
            (*buf).head[0].iov_len = head.len();
            (*buf).buflen -= cut;
        }
        // The item's padding is not sent (V1-053): it lies in front of the tail.
        let pad = data.wrapping_neg() % 4;
        let tail = (*rqst).rq_rcv_buf.tail[0];
        if rest.is_empty() {
            return Ok(());
        }
        if pad + rest.len() > tail.iov_len {
            return Err(EMSGSIZE);
        }
        let tail = tail.iov_base.cast::<u8>();
        ptr::write_bytes(tail, 0, pad);
        ptr::copy_nonoverlapping(rest.as_ptr(), tail.add(pad), rest.len());
    }
    Ok(())
}

impl<T: Transport> Drop for Pinned<T> {
    fn drop(&mut self) {
        let _queue = self.xprt().queue_lock().lock();
        // SAFETY: The lock is held; `self` is not used again.
        unsafe { self.unpin(RunState::of(self.rqst())) };
    }
}

impl<T: Transport> Xprt<T> {
    /// The slot of a request of this transport; `None` if it is another's.
    #[inline]
    pub fn slot_of(&self, pinned: &Pinned<T>) -> Option<&Slot<T>> {
        if !ptr::eq(pinned.xprt(), self) {
            return None;
        }
        // SAFETY: A slot lives as long as its transport, which is this one.
        Some(unsafe { pinned.slot.as_ref() })
    }

    /// Looks up a pending request and pins it. The RPC client counts a bad xid if no request has
    /// it. A request that is pinned already is not found, either; see [`Xprt::is_pinned`].
    #[inline]
    pub fn lookup(&self, xid: u32) -> Option<Pinned<T>> {
        let _queue = self.queue_lock().lock();
        // SAFETY: The lock is held. All requests on the receive queue are in our slots.
        unsafe {
            let rqst = bindings::xprt_lookup_rqst(self.as_raw(), xid.to_be());
            if rqst.is_null() {
                return None;
            }
            let pinned = &mut *Slot::<T>::from_rqst(rqst).pinned.get();
            if *pinned {
                return None;
            }
            *pinned = true;
            pin(rqst);
            Some(Pinned::new(rqst))
        }
    }
}
