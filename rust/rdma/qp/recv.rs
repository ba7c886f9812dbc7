// SPDX-License-Identifier: GPL-2.0

//! How the buffers of received messages are taken back and posted again.

#[cfg(xprtrdma_server)]
use super::message::recv_done;
use super::{
    handler::QpHandler,
    recv_queue::{
        Chain,
        RecvBuf,
        RecvQueue, //
    },
    Qp, //
};
use crate::failure::{
    FailedWork,
    Opcode, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        ArcBorrow, //
    },
};
use xprtrdma_base::access_once::AccessOnce;
use xprtrdma_bindings as bindings;

impl<H: QpHandler> Qp<H> {
    /// Returns the number of posted Receives, for statistics.
    pub fn receives_posted(&self) -> usize {
        let rq = self.rq.lock();
        // A Receive is counted in `posted` before it is counted in `taken`, so the difference is
        // not negative.
        rq.posted.wrapping_sub(self.taken.load(Relaxed)) as usize
    }

    /// Takes back the buffer of a message whose handler is returning. Returns true if a full batch
    /// of buffers is now free; the caller must then post the batch.
    ///
    /// # Safety
    ///
    /// Only a completion handler may call this. It must own the buffer, and must not use it
    /// afterwards.
    #[inline]
    pub(super) unsafe fn give_back(&self, buf: &RecvBuf<Self>) -> bool {
        // SAFETY: By the type invariant no other thread uses `free` now.
        let free = unsafe { &mut *self.free.get() };
        // SAFETY: By this function's contract the caller owns the buffer and does not use it
        // afterwards.
        unsafe { free.push(buf) };
        free.len >= self.free_batch
    }

    /// Posts receive buffers again. The handlers of the messages in these buffers have ended.
    ///
    /// # Safety
    ///
    /// Only a completion handler may call this.
    #[cold]
    pub(super) unsafe fn post_free(this: ArcBorrow<'_, Self>) {
        // SAFETY: By the type invariant no other thread uses `free` now.
        let free = unsafe { (*this.free.get()).take() };
        if this.post_recvs(&mut this.rq.lock(), free).is_err() {
            Self::report_broken(this, FailedWork::unposted(Opcode::Recv));
        }
    }

    /// Takes back the buffer of a message that outlived its handler. When the buffers that were
    /// taken back in this way form a full batch, posts them again. After the owner of the queue
    /// pair was dropped, the last [`Held`](super::Held) also drops the queue pair's reference to
    /// itself.
    ///
    /// # Safety
    ///
    /// `this` is the queue pair of a [`Held`](super::Held), to which `buf` belongs. The caller uses
    /// neither `this` nor `buf` afterwards.
    #[cfg_attr(xprtrdma_server, inline(always))]
    pub(super) unsafe fn give_back_held(this: *const Self, buf: NonNull<RecvBuf<Self>>) {
        // SAFETY: By the type invariant the queue pair exists at least until this message is
        // counted in `given_back` and the lock is released.
        let this = unsafe { &*this };
        let mut rq = this.rq.lock();
        // SAFETY: The buffer exists as long as the queue pair. By this function's contract the
        // caller owns the buffer and does not use it afterwards.
        unsafe { rq.returned.push(buf.as_ref()) };
        if rq.returned.len >= this.returned_batch {
            let returned = rq.returned.take();
            if this.post_recvs(&mut rq, returned).is_err() {
                rq.failed = true;
                drop(rq);
                this.tell_later();
                rq = this.rq.lock();
            }
        }
        let given_back = &this.given_back;
        given_back.write_once(given_back.read_once().wrapping_add(1));
        if rq.own.is_some() {
            let last = this.take_own(&mut rq);
            drop(rq);
            drop(last);
        }
    }

    /// Returns the queue pair's reference to itself if no object of type [`Held`](super::Held) is
    /// left. Called after the owner was dropped. So no handler runs any more, and `held` does not
    /// change.
    #[cold]
    #[inline(never)]
    fn take_own(&self, rq: &mut RecvQueue<Self>) -> Option<Arc<Self>> {
        match self.given_back.read_once() == self.held.read_once() {
            true => rq.own.take(),
            false => None,
        }
    }

    /// Keeps the queue pair until all objects of type [`Held`](super::Held) are dropped. Called by
    /// the owner, after the last handler has returned.
    pub(super) fn keep_for_held(this: &Arc<Self>) {
        let own = this.clone();
        let mut rq = this.rq.lock();
        if this.given_back.read_once() != this.held.read_once() {
            rq.own = Some(own);
        }
    }

    /// Returns the number of objects of type [`Held`](super::Held) that were dropped, modulo 2^32.
    /// The buffers of these objects were posted again, or will soon be posted.
    #[cfg(xprtrdma_server)]
    #[inline]
    pub fn given_back(&self) -> u32 {
        self.given_back.read_once()
    }

    /// Makes the queue pair post no further Receives. If the peer then sends more messages than
    /// Receives are still posted, the peer's device waits for a while, and then breaks the
    /// connection. Does not sleep.
    pub fn stop_receiving(&self) {
        self.rq.lock().closed = true;
    }

    /// Adds `count` Receives of `size` bytes to the connection, and posts them. Returns an error if
    /// there is no memory for the Receives, or if more Receives would be added than the configured
    /// maximum. May sleep.
    #[cfg(xprtrdma_server)]
    #[cold]
    pub fn add_receives(this: &Arc<Self>, count: u16, size: usize) -> Result {
        if count == 0 {
            return Ok(());
        }
        let table = RecvBuf::table(&this.pd, count.into(), size, recv_done::<H>)?;
        let mut rq = this.rq.lock();
        let may_add = rq.may_add.checked_sub(count).ok_or(ENOSPC)?;
        if let Err(full) = rq.tables.push_within_capacity(table) {
            // The lock is released before the buffers are freed.
            drop(rq);
            drop(full);
            return Err(ENOSPC);
        }
        rq.may_add = may_add;
        let Some(table) = rq.tables.last() else {
            return Ok(());
        };
        // SAFETY: `Arc::as_ptr` returns a valid pointer. No other code uses the buffers of a new
        // table. No table is removed before the queue pair is destroyed.
        let chain = unsafe { RecvBuf::all(table, Arc::as_ptr(this)) };
        let posted = this.post_recvs(&mut rq, chain);
        if posted.is_err() {
            rq.failed = true;
            drop(rq);
            this.tell_later();
        }
        posted
    }

    /// Posts Receives. If the queue is closed, by the teardown or by [`Self::stop_receiving`], the
    /// buffers stay unposted until they are freed.
    pub(super) fn post_recvs(&self, rq: &mut RecvQueue<Self>, chain: Chain) -> Result {
        if rq.closed {
            return Ok(());
        }
        rq.posted = rq.posted.wrapping_add(chain.len);
        // SAFETY: The chain is well-formed, and the queue pair is valid. The buffers outlive the
        // queue pair.
        let posted = unsafe { bindings::xprtrdma_post_recv(self.raw.qp.as_ptr(), chain.first) };
        if posted != 0 {
            // Some Receives may have been posted, but it is not known which. So the buffers stay
            // unused until the teardown.
            rq.closed = true;
        }
        to_result(posted)
    }
}
