// SPDX-License-Identifier: GPL-2.0

//! Messages that arrive, and the handler of their completions.
//!
//! The handler of a completed Receive borrows the Receive's buffer as [`Received`]. Dropping
//! [`Received`] returns the buffer, so each buffer is returned exactly once.

use super::{
    handler::QpHandler,
    recv_queue::RecvBuf,
    Qp, //
};
use crate::{
    failure::{
        FailedWork,
        Opcode, //
    },
    mr::RemoteInvalidation, //
};
#[cfg(xprtrdma_server)]
use core::alloc::Layout;
use core::{
    cell::Cell,
    mem::ManuallyDrop,
    ptr::NonNull,
    slice, //
};
#[cfg(xprtrdma_server)]
use kernel::prelude::*;
use kernel::{
    sync::ArcBorrow,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};
use xprtrdma_base::access_once::AccessOnce;
#[cfg(xprtrdma_server)]
use xprtrdma_base::buffer::{
    make_memory,
    Buffer, //
};
use xprtrdma_bindings as bindings;

/// A message in its receive buffer, which [`QpHandler::received`] borrows.
///
/// The object cannot leave the thread of its handler, and cannot outlive the handler's call:
/// [`NotThreadSafe`] and the lifetime prevent this.
///
/// # Invariants
///
/// - The buffer belongs to `qp`, and only this object uses it. The device wrote `len` bytes into
///   it.
/// - `wc` is the completion of the message, which reports no error.
pub struct Received<'a, H: QpHandler> {
    qp: &'a Qp<H>,
    buf: &'a RecvBuf<Qp<H>>,
    // Most messages do not need most fields of the completion, so the fields are read on demand.
    wc: &'a bindings::ib_wc,
    len: usize,
    /// Whether the message was already used as the proof of an invalidation.
    used: Cell<bool>,
    _in_handler: NotThreadSafe,
}

/// Immediate data of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// The message has no immediate data.
    None,
    /// Immediate data arrived with a Send (MAL-011).
    WithSend,
    /// Immediate data arrived with an RDMA Write. The Write used up a Receive, but brought no
    /// message (MAL-012).
    WithWrite,
}

impl<H: QpHandler> Received<'_, H> {
    /// Returns the bytes of the message, as received from the network.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: By the type invariant, the device wrote `len` bytes. The buffer is not posted
        // while `self` exists.
        unsafe { slice::from_raw_parts(self.buf.mem.ptr(), self.len) }
    }

    /// Returns the region that the message invalidated, as the device reports it.
    #[inline(always)]
    pub fn invalidation(&self) -> Option<RemoteInvalidation<'_>> {
        has_flag(self.wc, bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE).then(|| RemoteInvalidation {
            rkey: self.wc.ex.bindgen_union_field,
            pd: self.qp.proof_pd,
            used: &self.used,
            doorbell: &self.qp.doorbell,
            bytes: self.bytes(),
        })
    }

    /// Returns whether immediate data arrived, and with which operation.
    #[inline]
    pub fn immediate(&self) -> Immediate {
        immediate_of(self.wc)
    }

    /// Moves the fields into a new object. The caller passes the new object to a function that is
    /// not inlined. So the compiler can keep the original object in registers on the usual path.
    /// This saves 20 instructions for each reply that has the expected form.
    #[inline(always)]
    pub fn anew(self) -> Self {
        let this = ManuallyDrop::new(self);
        // INVARIANT: The buffer belongs to the new object, because the old object is not dropped.
        Self {
            qp: this.qp,
            buf: this.buf,
            wc: this.wc,
            len: this.len,
            used: Cell::new(this.used.get()),
            _in_handler: NotThreadSafe,
        }
    }

    /// Returns the queue pair as an [`ArcBorrow`].
    #[inline]
    fn borrow(&self) -> ArcBorrow<'_, Qp<H>> {
        // SAFETY: The pointer was written before the first post and is not written again.
        let this = unsafe { *self.buf.qp.get() };
        // SAFETY: A `Received` exists only during a handler's call, and the owner of the queue pair
        // holds a reference until that call has returned.
        unsafe { ArcBorrow::from_raw(this) }
    }

    /// Converts the message into an object that keeps the buffer after the handler has returned.
    #[inline(always)]
    pub fn hold(self) -> Held<H> {
        let this = ManuallyDrop::new(self);
        let held = &this.qp.held;
        // By the type invariant, no other thread writes `held`, so no atomic addition is needed.
        held.write_once(held.read_once().wrapping_add(1));
        // INVARIANT: The object was counted in `held`. The buffer belongs to the new object,
        // because the old object is not dropped.
        Held {
            buf: NonNull::from(this.buf),
            len: this.len,
        }
    }
}

impl<H: QpHandler> Drop for Received<'_, H> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: A `Received` exists only within a handler, and the buffer is not used afterwards.
        if unsafe { self.qp.give_back(self.buf) } {
            // SAFETY: A `Received` exists only within a handler, so this is a handler's thread.
            unsafe { Qp::post_free(self.borrow()) };
        }
    }
}

/// A message that outlives its handler's call. Dropping it returns the buffer. It must not be
/// dropped while a [`SendBatch`](super::SendBatch) is held.
///
/// While the [`QpOwner`](super::QpOwner) exists, the object may be dropped in any context. The
/// object keeps the [`Qp`] alive. So after the drop of the [`QpOwner`](super::QpOwner), the drop of
/// the last such object may destroy the [`Qp`], and must happen where the thread may sleep.
///
/// # Invariants
///
/// The buffer belongs to a queue pair, and only this object uses it. The device wrote `len` bytes
/// into it. The object is counted in `held` of the queue pair, and not yet in `given_back`. So the
/// queue pair exists, see [`Qp`].
pub struct Held<H: QpHandler> {
    buf: NonNull<RecvBuf<Qp<H>>>,
    len: usize,
}

// SAFETY: The object has exclusive access to a buffer of a queue pair that exists.
unsafe impl<H: QpHandler> Send for Held<H> {}

impl<H: QpHandler> Held<H> {
    #[inline(always)]
    fn buf(&self) -> &RecvBuf<Qp<H>> {
        // SAFETY: By the type invariant, the queue pair exists, and the buffer is in its table.
        unsafe { self.buf.as_ref() }
    }

    /// Returns the buffer to the queue pair.
    ///
    /// # Safety
    ///
    /// The caller uses neither the object nor the buffer afterwards.
    #[inline(always)]
    unsafe fn give_back(&self) {
        // SAFETY: The pointer was written before the first post and is not written again.
        let qp = unsafe { *self.buf().qp.get() };
        // SAFETY: By the type invariant, the queue pair exists. By this function's contract, the
        // caller does not use the buffer afterwards.
        unsafe { Qp::give_back_held(qp, self.buf) };
    }

    /// Returns the bytes of the message, as received from the network.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: By the type invariant, the device wrote `len` bytes into the buffer, which is not
        // posted while `self` exists.
        unsafe { slice::from_raw_parts(self.buf().mem.ptr(), self.len) }
    }
}

#[cfg(xprtrdma_server)]
// SAFETY: A receive buffer is part of the memory of the queue pair and is not moved. `self` keeps
// the queue pair. By the type invariant, the buffer belongs to this object. The buffer was
// initialised, and the device wrote `len` bytes into it. Only `Held::bytes` returns a reference to
// the buffer, and this reference borrows the object. The vector `memory` belongs to the buffer, and
// only the method `memory` uses it.
unsafe impl<H: QpHandler> Buffer for Held<H> {
    #[inline(always)]
    fn start(&self) -> NonNull<u8> {
        // SAFETY: A buffer of at least one byte does not have the address zero.
        unsafe { NonNull::new_unchecked(self.buf().mem.ptr()) }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn memory(&mut self, layout: Layout) -> Result<NonNull<u8>> {
        // SAFETY: By the type invariant, the buffer belongs to this object, which is borrowed
        // exclusively.
        make_memory(unsafe { &mut *self.buf().memory.get() }, layout)
    }

    #[inline(always)]
    fn end(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: The buffer is not used after this, because `this` is not dropped.
        unsafe { this.give_back() };
    }
}

impl<H: QpHandler> Drop for Held<H> {
    fn drop(&mut self) {
        // SAFETY: The buffer is not used after this.
        unsafe { self.give_back() };
    }
}

/// Returns true if a completion has this flag.
#[inline]
fn has_flag(wc: &bindings::ib_wc, flag: bindings::ib_wc_flags) -> bool {
    // CAST: The flags are single bits; the sign has no meaning.
    wc.wc_flags as u32 & flag != 0
}

/// Returns which immediate data a completion reports.
#[inline]
fn immediate_of(wc: &bindings::ib_wc) -> Immediate {
    if !has_flag(wc, bindings::ib_wc_flags_IB_WC_WITH_IMM) {
        Immediate::None
    } else if wc.opcode == bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM {
        Immediate::WithWrite
    } else {
        Immediate::WithSend
    }
}

/// # Safety
///
/// Only ib_core calls this, for a work request that was posted with the `cqe` of a
/// [`RecvBuf<Qp<H>>`].
pub(super) unsafe extern "C" fn recv_done<H: QpHandler>(
    _cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: `wc` is valid during the call.
    let wc = unsafe { &*wc };
    // CAST: The same pointer was stored as 64 bits when the Receive was posted.
    let cqe = wc.__bindgen_anon_1.bindgen_union_field as *mut Opaque<bindings::ib_cqe>;
    // SAFETY: By this function's contract the entry is the `cqe` field of a `RecvBuf<Qp<H>>`.
    let buf: *const RecvBuf<Qp<H>> = unsafe { kernel::container_of!(cqe, RecvBuf<Qp<H>>, cqe) };
    // SAFETY: The buffer is in the table of its queue pair, which exists during this handler.
    let buf = unsafe { &*buf };
    // SAFETY: The pointer was written before the first post and is not written again.
    let this = unsafe { *buf.qp.get() };
    // SAFETY: The queue pair is in an `Arc`. Its owner holds a reference, and drops it only after
    // the drain, which waits for this handler.
    let qp = unsafe { ArcBorrow::from_raw(this) };
    // By the type invariant, no other thread writes `taken`, so no atomic addition is needed.
    qp.taken.write_once(qp.taken.read_once().wrapping_add(1));
    if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
        if wc.status == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR {
            qp.flushed.write_once(true);
        }
        Qp::report_broken(qp, FailedWork::of(Opcode::Recv, wc));
        return;
    }
    let len = match immediate_of(wc) {
        // The bytes of an RDMA Write are not in the receive buffer, so the message is empty.
        Immediate::WithWrite => 0,
        _ => core::cmp::min(wc.byte_len as usize, buf.mem.len()),
    };
    buf.mem.sync_for_cpu(0, len);
    H::received(
        qp,
        // INVARIANT: The Receive has completed, so the buffer belongs to this object.
        Received {
            // SAFETY: The owner holds a reference to the queue pair until this handler has
            // returned.
            qp: unsafe { &*this },
            buf,
            wc,
            len,
            used: Cell::new(false),
            _in_handler: NotThreadSafe,
        },
    );
}
