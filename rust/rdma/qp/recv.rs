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
#[cfg(xprtrdma_server)]
use kernel::sync::Arc;
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::Relaxed,
        ArcBorrow, //
    },
};
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

    /// Takes back the buffer of a message that outlived its handler. Posts such buffers if a full
    /// batch of them is free.
    ///
    /// # Safety
    ///
    /// The caller owns the buffer, and does not use it afterwards.
    pub(super) unsafe fn give_back_held(&self, buf: &RecvBuf<Self>) {
        let mut rq = self.rq.lock();
        // SAFETY: By this function's contract the caller owns the buffer and does not use it
        // afterwards.
        unsafe { rq.returned.push(buf) };
        if rq.returned.len < self.returned_batch {
            return;
        }
        let returned = rq.returned.take();
        if self.post_recvs(&mut rq, returned).is_err() {
            rq.failed = true;
            drop(rq);
            self.tell_later();
        }
    }

    /// Posts no further Receives. If the peer sends more messages than Receives are posted, the
    /// peer's device waits and then breaks the connection. Does not sleep.
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
