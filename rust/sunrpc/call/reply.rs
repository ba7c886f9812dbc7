// SPDX-License-Identifier: GPL-2.0

//! A request whose reply is being processed: [`Pinned`].

use super::{
    memory::START_LEN,
    RunState, //
};
use crate::{
    lease::Lease,
    slot::{
        fail_pending,
        Slot, //
    },
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
use kernel::prelude::*;
use xprtrdma_bindings as bindings;

/// A request whose reply is being processed. While it is pinned, it is neither released nor encoded
/// again.
///
/// Dropping this value unpins the request and leaves it pending.
///
/// # Invariants
///
/// This value owns a pin of the request. At most one such value exists for a request:
/// [`Xprt::lookup`] sets `Slot::pinned`, and returns `None` while the flag is set.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_sunrpc::{transport::Transport, xprt::Xprt};
/// /// Completes the call to which `message` is the reply.
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

// SAFETY: Any thread may use or drop a pin.
unsafe impl<T: Transport> Send for Pinned<T> {}

impl<T: Transport> Pinned<T> {
    /// # Safety
    ///
    /// `rqst` is in a slot. The caller has just pinned `rqst` and set `Slot::pinned`.
    pub(crate) unsafe fn new(rqst: *mut bindings::rpc_rqst) -> Self {
        // SAFETY: By this function's contract `rqst` is in a slot.
        let slot = NonNull::from(unsafe { Slot::<T>::from_rqst(rqst) });
        Self { slot }
    }

    /// Returns the slot, which contains the driver's data.
    #[inline]
    pub fn slot(&self) -> &Slot<T> {
        // SAFETY: By the type invariant the request is pinned, so it keeps its slot.
        unsafe { self.slot.as_ref() }
    }

    /// Returns the transport.
    #[inline]
    pub fn xprt(&self) -> &Xprt<T> {
        // SAFETY: The request is pinned, so it belongs to a transport. A transport outlives its
        // requests.
        unsafe { xprt_of(self.rqst()) }
    }

    /// Ends a lease. Needs no atomic instruction if the request has only this lease.
    #[inline(always)]
    pub fn end_lease(&self, lease: Lease<T>) {
        if lease.is_of(self.slot()) {
            // SAFETY: By the type invariant the request is pinned, and `is_of` has shown that the
            // lease belongs to this request.
            unsafe { lease.end_while_pinned(self.slot()) }
        }
    }

    pub(crate) fn rqst(&self) -> *mut bindings::rpc_rqst {
        self.slot().rqst.get()
    }

    /// Returns the transaction id, in host byte order.
    pub fn xid(&self) -> u32 {
        // SAFETY: The xid does not change while the request is pinned.
        u32::from_be(unsafe { (*self.rqst()).rq_xid })
    }

    /// Returns the memory for the reply.
    pub fn reply(&self) -> XdrBuf<'_> {
        // SAFETY: A pinned request keeps its buffers.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_rcv_buf) }
    }

    /// Returns the first bytes of a reply that the peer placed in the memory for the reply. Returns
    /// zeroes if the request still has leases, or if the head is too short.
    #[inline]
    pub fn placed_start(&self) -> [u8; START_LEN] {
        if self.slot().is_leased() || self.reply().head_len() < START_LEN {
            return [0; START_LEN];
        }
        // SAFETY: The head has at least `START_LEN` bytes. The request has no leases, so neither a
        // device nor a thread writes these bytes now.
        unsafe {
            let head = (*self.rqst()).rq_rcv_buf.head[0].iov_base;
            head.cast::<[u8; START_LEN]>().read()
        }
    }

    /// Copies a reply that arrived inline into the memory for the reply. Returns `EMSGSIZE` if the
    /// reply does not fit (MAL-094), and `EBUSY` while the request has leases.
    #[inline(always)]
    pub fn place_inline(&mut self, message: &[u8]) -> Result {
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        let rqst = self.rqst();
        // SAFETY: The buffer is valid while the request is pinned. By the type invariant no other
        // thread writes to the buffer. No device writes to the buffer either, because the request
        // has no leases.
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

    /// Copies the inline part of a reply. The reply's data item, `data` bytes long, is already in
    /// the pages. The bytes before the data item are copied to the head, and the bytes after it to
    /// the tail. Returns `EMSGSIZE` if the bytes do not fit, and `EBUSY` while the request has
    /// leases.
    ///
    /// The decoder expects the data immediately after the head. So the head is shortened to the
    /// bytes that arrived.
    #[inline(always)]
    pub fn place_around(&mut self, message: &[u8], data: usize) -> Result {
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        let rqst = self.rqst();
        // SAFETY: The buffer is valid while the request is pinned, and no other thread or device
        // writes to it.
        unsafe {
            let head = (*rqst).rq_rcv_buf.head[0];
            if message.len() != head.iov_len {
                return place_around_item(rqst, message, data);
            }
            // The usual case: the head has the expected length, and nothing follows the data item.
            let head = head.iov_base.cast();
            ptr::copy_nonoverlapping(message.as_ptr(), head, message.len());
        }
        Ok(())
    }

    /// Completes the request with a reply of `len` bytes, which the caller has placed in the memory
    /// for the reply.
    ///
    /// If some of these bytes were not written, the upper layer finds other bytes in their place:
    ///
    /// - In the slot's buffers it finds zeroes or bytes of an earlier reply, because these buffers
    ///   are zeroed when they are allocated.
    /// - In pages it finds its own bytes, because the pages belong to the upper layer.
    ///
    /// # Errors
    ///
    /// Returns `self` in two cases: the request has leases and so cannot end, or `len` exceeds the
    /// memory for the reply.
    #[inline(always)]
    pub fn complete(self, len: usize) -> Result<(), Self> {
        if self.slot().is_leased() || len > self.reply().part_len(Part::Whole) {
            return Err(self);
        }
        self.finish(|rqst| {
            // CAST: The reply fits into its memory, which is less than 2 GiB.
            // SAFETY: `finish` holds the queue lock, and the request is pinned.
            unsafe { bindings::xprt_complete_rqst((*rqst).rq_task, len as c_int) }
        });
        Ok(())
    }

    /// Ends the request with an error. The request must have been passed to [`Transport::send`].
    /// Returns `self` while the request has leases.
    ///
    /// The task receives the error even if the task does not sleep yet. In this case the task
    /// encodes the request again, and the encoding returns the error.
    pub fn fail(self, error: Error) -> Result<(), Self> {
        if self.slot().is_leased() {
            return Err(self);
        }
        self.slot().verdict.set(error);
        self.finish(|rqst| {
            // SAFETY: `finish` holds the queue lock, and the request is pinned.
            unsafe { fail_pending(rqst, error) }
        });
        Ok(())
    }

    /// Drops the pin that [`Xprt::lookup`] made. `self` owns this pin.
    ///
    /// # Safety
    ///
    /// The caller has held the queue lock since it read the task's `state`, and does not use `self`
    /// any more.
    #[inline]
    unsafe fn unpin(&self, state: RunState) {
        // SAFETY: By the caller's contract, the queue lock is held. By the type invariant, `self`
        // owns a pin.
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
            // SAFETY: The queue lock is held, and the request is pinned.
            let state = unsafe { RunState::of(rqst) };
            if state.is_pending() {
                end(rqst);
            }
            // SAFETY: The queue lock has been held since `state` was read. `self` is only passed to
            // `mem::forget` below.
            unsafe { self.unpin(state) };
        }
        core::mem::forget(self);
    }
}

// By contract, every function that changes a request's number of pins is called with the queue lock
// held. So these functions need no atomic read-modify-write instruction. Only the waiting task
// reads the number without the lock.

/// Returns the number of a request's pins.
///
/// # Safety
///
/// `rqst` is valid for `'a`.
unsafe fn pins<'a>(rqst: *mut bindings::rpc_rqst) -> &'a AtomicI32 {
    // SAFETY: By the caller's contract, `rqst` is valid. `atomic_t` is one `int`, which is accessed
    // only atomically.
    unsafe { AtomicI32::from_ptr(&raw mut (*rqst).rq_pin.counter) }
}

/// Pins a request, as `xprt_pin_rqst()` does.
///
/// # Safety
///
/// The caller holds the queue lock, and `rqst` is on a queue.
#[inline(always)]
unsafe fn pin(rqst: *mut bindings::rpc_rqst) {
    // SAFETY: By the caller's contract `rqst` is on a queue, so it is valid.
    let pins = unsafe { pins(rqst) };
    // NO-OVERFLOW: A request has at most two pins: one of the sender, and one of a `Pinned`.
    pins.store(
        pins.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

/// Unpins a request, as `xprt_unpin_rqst()` does.
///
/// # Safety
///
/// The caller has held the queue lock since it read the task's `state`. The caller owns a pin of
/// `rqst`, and does not use `rqst` any more.
#[inline(always)]
unsafe fn unpin(rqst: *mut bindings::rpc_rqst, state: RunState) {
    if state.is_awaited() {
        // SAFETY: By the caller's contract the caller owns a pin and holds the queue lock.
        return unsafe { bindings::xprt_unpin_rqst(rqst) };
    }
    // SAFETY: `rqst` is valid, because the caller has pinned it.
    let pins = unsafe { pins(rqst) };
    // NO-OVERFLOW: The number of pins includes the caller's pin, so this number is at least one.
    // ORDERING: The waiting task reads the number of pins before it ends the request. So `Release`
    // orders the caller's accesses to the request before the end of the request.
    pins.store(
        pins.load(Ordering::Relaxed).wrapping_sub(1),
        Ordering::Release,
    );
}

// The following functions contain steps that are rarely needed. They have no parameter of type
// `Pinned`, so that the compiler can keep the `Pinned` in registers when these steps are not
// needed.

/// Copies a reply that is longer than the head of the memory for the reply. Used by
/// [`Pinned::place_inline`].
///
/// # Safety
///
/// `rqst` is pinned by a [`Pinned`], and has no leases.
#[inline(never)]
unsafe fn place_beyond_head(rqst: *mut bindings::rpc_rqst, message: &[u8]) -> Result {
    // SAFETY: By the caller's contract the buffer is valid, and no other thread or device writes to
    // it.
    unsafe {
        let buf = &raw mut (*rqst).rq_rcv_buf;
        if message.len() > XdrBuf::from_raw(buf).part_len(Part::Whole) {
            return Err(EMSGSIZE);
        }
        // `write_bytes_to_xdr_buf` uses the lengths of the buffer's parts, and not the buffer's
        // `len`.
        kernel::error::to_result(bindings::write_bytes_to_xdr_buf(
            buf,
            0,
            message.as_ptr().cast_mut().cast(),
            u32::try_from(message.len())?,
        ))
    }
}

/// Copies the inline part of a reply with a data item. The inline part may have any length. Used by
/// [`Pinned::place_around`].
///
/// # Safety
///
/// The contract of [`place_beyond_head`] applies.
#[inline(never)]
unsafe fn place_around_item(rqst: *mut bindings::rpc_rqst, message: &[u8], data: usize) -> Result {
    // SAFETY: By the caller's contract the buffer is valid, and no other thread or device writes to
    // it. The RPC client has two copies of the buffer structure and compares their lengths, so this
    // code changes the two copies in the same way.
    unsafe {
        let head_len = (*rqst).rq_rcv_buf.head[0].iov_len;
        let page_len = (*rqst).rq_rcv_buf.page_len as usize;
        if message.len() > head_len && data < page_len {
            // The inline part is longer than the head, and the data item does not fill the pages.
            // So a copy of the inline part would continue in the pages. If the reply has a data
            // item, such a reply is an error.
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
        // The peer does not send the padding of the data item (V1-053). So this code writes the
        // padding to the start of the tail.
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
        // SAFETY: The queue lock is held, and `self` is not used again.
        unsafe { self.unpin(RunState::of(self.rqst())) };
    }
}

impl<T: Transport> Xprt<T> {
    /// Returns the slot of a pinned request, or `None` if the request belongs to another transport.
    #[inline]
    pub fn slot_of(&self, pinned: &Pinned<T>) -> Option<&Slot<T>> {
        if !ptr::eq(pinned.xprt(), self) {
            return None;
        }
        // SAFETY: The slot belongs to this transport, and lives as long as the transport.
        Some(unsafe { pinned.slot.as_ref() })
    }

    /// Looks up a pending request and pins it. Returns `None` if no request has this xid (the RPC
    /// client then counts a bad xid), or if the request is pinned already (see
    /// [`Xprt::is_pinned`]).
    #[inline]
    pub fn lookup(&self, xid: u32) -> Option<Pinned<T>> {
        let _queue = self.queue_lock().lock();
        // SAFETY: The queue lock is held. All requests on the receive queue are in slots of this
        // transport.
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
