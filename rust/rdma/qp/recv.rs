// SPDX-License-Identifier: GPL-2.0

//! How receive buffers come back and are posted again.

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
    /// Number of Receives that are posted now, for statistics.
    pub fn receives_posted(&self) -> usize {
        let rq = self.rq.lock();
        // A Receive is counted as posted before it is counted as taken, so the difference is not
        // negative.
        rq.posted.wrapping_sub(self.taken.load(Relaxed)) as usize
    }

    /// Takes back the buffer of a message whose handler ends. Returns true if a full batch has come
    /// together, which the caller posts.
    ///
    /// # Safety
    ///
    /// Only to be called by a completion handler, which owns the buffer and gives it up.
    #[inline]
    pub(super) unsafe fn give_back(&self, buf: &RecvBuf<Self>) -> bool {
        // SAFETY: By the type invariant no other thread uses it now.
        let free = unsafe { &mut *self.free.get() };
        // SAFETY: By this function's contract.
        unsafe { free.push(buf) };
        free.len >= self.free_batch
    }

    /// Posts the buffers of messages whose handlers have ended.
    ///
    /// # Safety
    ///
    /// Only to be called by a completion handler.
    #[cold]
    pub(super) unsafe fn post_free(this: ArcBorrow<'_, Self>) {
        // SAFETY: By the type invariant no other thread uses it now.
        let free = unsafe { (*this.free.get()).take() };
        if this.post_recvs(&mut this.rq.lock(), free).is_err() {
            Self::report_broken(this, FailedWork::unposted(Opcode::Recv));
        }
    }

    /// Takes back the buffer of a message that was kept beyond its handler, and posts such buffers
    /// if there are enough.
    ///
    /// # Safety
    ///
    /// The caller owns the buffer, and gives it up.
    pub(super) unsafe fn give_back_held(&self, buf: &RecvBuf<Self>) {
        let mut rq = self.rq.lock();
        // SAFETY: By this function's contract.
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

    /// Posts Receives. Once the queue is closed, which comes before the drain, their buffers only
    /// wait for the teardown.
    pub(super) fn post_recvs(&self, rq: &mut RecvQueue, chain: Chain) -> Result {
        if rq.closed {
            return Ok(());
        }
        rq.posted = rq.posted.wrapping_add(chain.len);
        // SAFETY: A well-formed chain on a valid queue pair, which the buffers outlive.
        let posted = unsafe { bindings::xprtrdma_post_recv(self.raw.qp.as_ptr(), chain.first) };
        if posted != 0 {
            // Some may have been posted; only the teardown can tell which.
            rq.closed = true;
        }
        to_result(posted)
    }
}
