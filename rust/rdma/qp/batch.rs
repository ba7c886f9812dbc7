// SPDX-License-Identifier: GPL-2.0

//! Posting to the send queue: [`SendBatch`].

#[cfg(xprtrdma_server)]
mod transfer;

use super::{
    fence::Fence,
    handler::QpHandler,
    send_queue::{
        aligned,
        flags,
        OpKind,
        SendQueue,
        LOCAL_INV,
        RDMA_WRITE,
        REG_MR, //
    },
    Qp, //
};
use crate::mr::ExposedMr;
use core::{
    ptr,
    slice, //
};
use kernel::{
    prelude::*,
    sync::lock::Guard, //
};
use xprtrdma_base::{
    access_once::AccessOnce,
    lend::Lender,
    spin::Spin, //
};
use xprtrdma_bindings as bindings;

/// The reasons why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The send queue has no space now. When there is space, [`QpHandler::send_space`] is called.
    Full,
    /// The queue pair is dead or being shut down.
    Closed,
}

impl<H: QpHandler> Qp<H> {
    /// Starts a post: reserves space for a message of up to `max_len` bytes and `max_wrs` work
    /// requests, and for a fence before them if the device needs one. The batch holds the lock of
    /// the send queue until it is posted or dropped. Does not sleep.
    #[inline(always)]
    pub fn begin(&self, max_len: usize, max_wrs: u32) -> Result<SendBatch<'_, H>, SendError> {
        let mut sq = self.sq.lock();
        if sq.closed {
            return Err(SendError::Closed);
        }
        let Some(offset) = sq.room(max_len, max_wrs) else {
            sq.want_space = true;
            return Err(SendError::Full);
        };
        Ok(SendBatch {
            qp: self,
            sq,
            offset,
            max_len,
            max_wrs,
            #[cfg(any(xprtrdma_rds, xprtrdma_kunit))]
            more_flags: 0,
        })
    }

    /// Posts a fence if the device may execute a registration more than once. The fence makes the
    /// device finish all registrations that were posted before the fence. When the fence has
    /// completed, the regions of these registrations may be dropped ([`IdleMr::is_retired`]).
    /// [`SendError::Closed`] means that the connection has failed.
    ///
    /// [`IdleMr::is_retired`]: crate::mr::IdleMr::is_retired
    pub fn retire_registrations(&self) -> Result<(), SendError> {
        if !self.pd.executes_again() {
            return Ok(());
        }
        let batch = self.begin(0, 1)?;
        batch.post_retirement().map_err(|_| SendError::Closed)
    }

    /// Returns false if [`Qp::begin`] would return [`SendError::Full`] now. In that case
    /// [`QpHandler::send_space`] will be called when there is space, even if it was already called
    /// after an earlier [`SendError::Full`].
    pub fn has_room(&self, max_len: usize, max_wrs: u32) -> bool {
        let mut sq = self.sq.lock();
        let room = sq.closed || sq.room(max_len, max_wrs).is_some();
        sq.want_space |= !room;
        room
    }
}

/// Returns whether a message may have `len` bytes if the batch has space for `max_len`. A message
/// must have a byte, because some adapters (mlx4) take an element of zero bytes for one of 2 GiB.
#[inline(always)]
fn may_send(len: usize, max_len: usize) -> bool {
    // NO-OVERFLOW: The result for a length of zero is the maximum of `usize`, which is not less.
    len.wrapping_sub(1) < max_len
}

/// The [`Lender`] type of a message without memory regions.
#[cfg(xprtrdma_server)]
pub(super) struct Nothing;

#[cfg(xprtrdma_server)]
impl Lender for Nothing {}

/// A post in preparation. The object has reserved space for one message, and holds the send queue's
/// lock.
///
/// Lock order: if a thread needs a batch and a lock that completion handlers take, it must take the
/// lock before it starts the batch.
pub struct SendBatch<'a, H: QpHandler> {
    qp: &'a Qp<H>,
    sq: Guard<'a, SendQueue, Spin>,
    offset: usize,
    max_len: usize,
    max_wrs: u32,
    /// Flags of the Send in addition to those that the queue sets.
    #[cfg(any(xprtrdma_rds, xprtrdma_kunit))]
    pub(super) more_flags: c_int,
}

impl<H: QpHandler> SendBatch<'_, H> {
    /// Returns the buffer for the message.
    #[inline]
    pub fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: No posted or waiting Send refers to these bytes of the ring, and none can refer
        // to them while the lock is held. The bytes were initialised when the ring was allocated.
        unsafe { slice::from_raw_parts_mut(self.sq.ring.ptr().add(self.offset), self.max_len) }
    }

    /// Moves the fields into a new object. The caller passes the new object to a function that is
    /// not inlined. On code paths that do not call that function, the compiler can then keep the
    /// original object in registers. This saves 10 instructions for each message without a
    /// transfer.
    #[cfg(xprtrdma_server)]
    #[inline(always)]
    pub fn anew(self) -> Self {
        Self {
            qp: self.qp,
            sq: self.sq,
            offset: self.offset,
            max_len: self.max_len,
            max_wrs: self.max_wrs,
            #[cfg(any(xprtrdma_rds, xprtrdma_kunit))]
            more_flags: self.more_flags,
        }
    }

    /// Takes the space in the send queue for the registrations of `regions`, and for a Send of the
    /// first `len` bytes of the buffer. Returns the scatter/gather element of the Send and its
    /// flags. The flags make the Send signalled if a signalled post is due, or if `confirmed` is
    /// true.
    #[inline(always)]
    fn add<L: Lender>(
        &mut self,
        len: usize,
        regions: &[ExposedMr<L>],
        confirmed: bool,
    ) -> Result<(bindings::ib_sge, c_int)> {
        if !regions.iter().all(|r| r.may_be_posted(&self.qp.pd)) {
            return Err(EINVAL);
        }
        if !may_send(len, self.max_len) {
            return Err(EINVAL);
        }
        // CAST: A list of regions in memory has far fewer than 2^32 elements.
        if regions.len() as u32 >= self.max_wrs {
            return Err(E2BIG);
        }
        let sq = &mut *self.sq;
        // CAST, NO-OVERFLOW: A list of regions in memory has far fewer than 2^32 elements.
        let wrs = match regions.len() as u32 {
            0 => 1,
            count => count.wrapping_add(1).wrapping_add(sq.fence_wrs),
        };
        if self.offset != sq.head {
            sq.skip();
        }
        sq.account(aligned(len), wrs);
        let signalled = confirmed || sq.must_signal();
        if signalled {
            sq.signal(if confirmed {
                OpKind::Confirmed
            } else {
                OpKind::Send
            })?;
        }
        sq.head = self.offset.wrapping_add(aligned(len));
        sq.ring.sync_for_device(self.offset, len);
        let flags = sq.flags(signalled);
        #[cfg(any(xprtrdma_rds, xprtrdma_kunit))]
        let flags = flags | self.more_flags;
        Ok((sq.ring.sge(self.offset, len), flags))
    }

    /// Posts registrations of `regions`, and then a Send of the first `len` bytes of the buffer,
    /// with one doorbell. If an error is returned, the connection has failed, and some of the work
    /// requests may have been posted.
    ///
    /// Returns `EINVAL`, and does nothing, if a region belongs to another domain than the queue
    /// pair, or was posted since it was mapped. Does the same if `len` is zero, or if the batch has
    /// less space.
    #[inline(always)]
    pub fn post<L: Lender>(self, len: usize, regions: &mut [ExposedMr<L>]) -> Result {
        self.post_now(len, regions, false)
    }

    /// Does the same as [`SendBatch::post`], and also calls [`QpHandler::confirmed`] when the
    /// peer's device has received the message. This costs a completion, because the Send must be
    /// signalled.
    #[cold]
    pub fn post_confirmed<L: Lender>(self, len: usize, regions: &mut [ExposedMr<L>]) -> Result {
        self.post_now(len, regions, true)
    }

    #[inline(always)]
    fn post_now<L: Lender>(
        mut self,
        len: usize,
        regions: &mut [ExposedMr<L>],
        confirmed: bool,
    ) -> Result {
        let (sge, flags) = self.add(len, regions, confirmed)?;
        let qp = self.qp;
        let sq = &mut *self.sq;
        if sq.chain.len != 0 {
            qp.ring(sq)?;
        }
        sq.sge = sge;
        sq.send.sg_list = &mut sq.sge;
        sq.send.send_flags = flags;
        let mut first: *mut bindings::ib_send_wr = &mut sq.send;
        let reg_cqe = qp.send_cqes.get::<REG_MR>();
        for region in regions.iter_mut().rev() {
            first = region.reg_wr(sq.seq, reg_cqe, first);
        }
        if !regions.is_empty() {
            match &mut sq.fence {
                _ if sq.fence_wrs == 0 => sq.unfenced = true,
                Some(fence) => first = fence.before(first),
                None => {}
            }
        }
        // SAFETY: The chain ends with `sq.send`, whose `next` is null. All memory to which the work
        // requests refer outlives the post. The ring and `send_cqes` belong to `qp`. The owners of
        // the regions keep them until it is proven that the peer cannot access them, or until this
        // queue pair is drained. The drain suffices, because the regions belong to the domain of
        // this queue pair.
        unsafe { qp.submit(&mut sq.closed, first) }
    }

    /// Returns true if the message should wait, so that one doorbell serves several messages. If a
    /// message waited and no other message joined it, this method returns false for the next
    /// `BATCH_COOLDOWN` messages. Must be called exactly once for each message that may wait,
    /// because this method counts these messages.
    #[inline]
    pub fn may_batch(&mut self) -> bool {
        let may = self.sq.batch_cooldown == 0;
        self.sq.batch_cooldown = self.sq.batch_cooldown.saturating_sub(1);
        may
    }

    /// Posts a message like [`SendBatch::post`], but rings the doorbell later. The caller uses this
    /// method if further messages may follow immediately. The doorbell is rung in the first of
    /// these cases:
    ///
    /// - The work that is now queued on [`QpHandler::queue`] has been done.
    /// - A message is posted that does not wait.
    /// - Too many work requests wait.
    ///
    /// If the later post fails, [`QpHandler::broken`] is called.
    #[inline(never)]
    pub fn post_later<L: Lender>(self, len: usize, regions: &mut [ExposedMr<L>]) -> Result {
        self.enqueue(len, regions, true)
    }

    /// Adds a message to the messages that wait for the doorbell. If too many work requests wait,
    /// rings the doorbell now. Otherwise, if `rings` is true, a work item rings the doorbell later.
    /// If `rings` is false, the caller must ring the doorbell.
    #[inline(always)]
    pub(super) fn enqueue<L: Lender>(
        mut self,
        len: usize,
        regions: &mut [ExposedMr<L>],
        rings: bool,
    ) -> Result {
        let (sge, flags) = self.add(len, regions, false)?;
        let qp = self.qp;
        let sq = &mut *self.sq;
        let doorbell = qp.doorbell.read_once();
        let fence = sq.fence.as_ref().filter(|_| sq.fence_wrs != 0);
        sq.unfenced |= fence.is_none() && !regions.is_empty();
        let (numbers, send) = ((doorbell, sq.seq), (sge, flags));
        if let Err(error) = sq.chain.push(numbers, fence, regions, send) {
            // The message cannot be posted, but was already counted as posted. So the queue is
            // closed.
            sq.closed = true;
            return Err(error);
        }
        if sq.chain.len > sq.chain.full {
            return qp.ring(sq);
        }
        // The send queue is still locked, as `ring_later` requires.
        if rings && sq.chain.messages == 1 {
            qp.ring_later();
        }
        Ok(())
    }

    /// Posts an RDMA Write of zero bytes. The Write needs no key, no credit and no software of the
    /// peer. When the peer's device has acknowledged the Write, [`QpHandler::probed`] is called. If
    /// an error is returned, the connection has failed.
    pub fn post_probe(self) -> Result {
        let Self {
            qp,
            sq: mut guard,
            max_wrs,
            ..
        } = self;
        if max_wrs == 0 {
            return Err(E2BIG);
        }
        let sq = &mut *guard;
        let mut write = bindings::ib_rdma_wr::default();
        write.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        write.wr.send_flags = sq.flags(true);
        // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits.
        write.wr.__bindgen_anon_1.bindgen_union_field = qp.send_cqes.get::<RDMA_WRITE>() as u64;
        qp.ring(sq)?;
        sq.account(0, 1);
        sq.signal(OpKind::Probe)?;
        // SAFETY: The chain is a single work request, which refers to no memory.
        unsafe { qp.submit(&mut sq.closed, &write.wr) }
    }

    /// Posts only a fence, as a signalled work request. Does nothing if the device needs no fence.
    fn post_retirement(self) -> Result {
        let Self {
            qp, sq: mut guard, ..
        } = self;
        let sq = &mut *guard;
        let Some(mut wr) = sq.fence.as_ref().map(Fence::copy) else {
            return Ok(());
        };
        wr.send_flags = flags(true);
        // The doorbell is rung for the waiting work requests first, so that their registrations are
        // posted before the fence.
        qp.ring(sq)?;
        sq.seq += 1;
        let seq = sq.seq;
        sq.account(0, 1);
        sq.signal(OpKind::Retirement(seq))?;
        // SAFETY: The chain is a single work request of a region that the queue keeps.
        unsafe { qp.submit(&mut sq.closed, &wr) }
    }

    /// Posts invalidations of `regions`. When the last invalidation has completed,
    /// [`QpHandler::invalidated`] is called with `token`. If an error is returned, the connection
    /// has failed.
    ///
    /// Returns `EINVAL`, and does nothing, if `regions` is empty, or if a region belongs to another
    /// domain, was not posted, or is being invalidated already.
    pub fn post_invalidate<L: Lender>(self, token: u64, regions: &mut [ExposedMr<L>]) -> Result {
        let Self {
            qp,
            sq: mut guard,
            max_wrs,
            ..
        } = self;
        let wrs = regions.len() as u32;
        if wrs > max_wrs {
            return Err(E2BIG);
        }
        if wrs == 0 || !regions.iter().all(|r| r.may_be_invalidated(&qp.pd)) {
            return Err(EINVAL);
        }
        let sq = &mut *guard;
        // The waiting work requests may contain the registrations of these regions, so they are
        // posted first.
        qp.ring(sq)?;
        sq.seq += 1;
        let seq = sq.seq;
        let mut first = ptr::null_mut();
        // Work requests complete in order. So only the last invalidation is signalled. Its
        // completion proves that all invalidations have completed.
        let mut signalled = true;
        let inv_cqe = qp.send_cqes.get::<LOCAL_INV>();
        for region in regions.iter_mut().rev() {
            let wr = region.inv_wr(seq, inv_cqe, first);
            wr.send_flags = sq.flags(signalled);
            signalled = false;
            first = wr;
        }
        sq.account(0, wrs);
        sq.signal(OpKind::Invalidate { token, seq })?;
        // SAFETY: The chain consists of the regions' own work requests, and the last one's `next`
        // is null. The owners of the regions keep them until their invalidation is proven, or until
        // this queue pair is drained.
        unsafe { qp.submit(&mut sq.closed, first) }
    }
}
