// SPDX-License-Identifier: GPL-2.0

//! Messages that wait for others to be posted with one doorbell ([`SendBatch::post_later`]), and
//! the work item that rings it if nothing else is posted before.
//!
//! [`SendBatch::post_later`]: super::SendBatch::post_later

use super::{
    handler::QpHandler,
    send_queue::{
        SendQueue,
        SEND, //
    },
    Qp, //
};
use crate::{
    failure::{
        FailedWork,
        Opcode, //
    },
    mr::FIRST_DOORBELL, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};
use xprtrdma_base::access_once::AccessOnce;

/// How many messages do not wait for the doorbell after one that waited alone.
const BATCH_COOLDOWN: u32 = 16;

impl_has_work! {
    impl{H: QpHandler} HasWork<Self> for Qp<H> { self.doorbell_work }
}

impl<H: QpHandler> WorkItem for Qp<H> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut sq = this.sq.lock();
        if sq.chain.messages == 1 {
            sq.batch_cooldown = BATCH_COOLDOWN;
        }
        let rung = this.ring(&mut sq);
        drop(sq);
        let failed = match rung {
            Err(_) => Some(Opcode::Send),
            Ok(()) => this.rq.lock().failed.then_some(Opcode::Recv),
        };
        if let Some(opcode) = failed {
            Self::report_broken(this.as_arc_borrow(), FailedWork::unposted(opcode));
        }
    }
}

impl<H: QpHandler> Qp<H> {
    /// Posts the waiting messages, unless the queue is closed. Returns the errors of
    /// [`Qp::submit`], even if the caller's own message did not wait.
    #[cold]
    pub(super) fn ring(&self, sq: &mut SendQueue) -> Result {
        if sq.closed {
            return Ok(());
        }
        let Some(first) = sq.chain.take() else {
            return Ok(());
        };
        // Before the post, so that replies to these messages find them posted. The device and its
        // barriers come between the two writes.
        let next = self.doorbell.read_once().wrapping_add(1);
        self.doorbell.write_once(next.max(FIRST_DOORBELL));
        // SAFETY: A well-formed chain by its invariant. What it refers to outlives the post: the
        // ring and `send_cqes` belong to `self`, the regions to owners that keep them until they
        // are proven unreachable. The queue is open, and locked, for it is borrowed.
        unsafe { self.submit(&mut sq.closed, first) }
    }

    /// Makes sure that the doorbell is rung. Called with the queue locked and open, so that
    /// [`Qp::shutdown`] finds the work that is queued here.
    #[cold]
    pub(super) fn ring_later(&self) {
        // SAFETY: The pointer leads to the whole object, see `SendEntries`.
        let this = unsafe { Self::of_send::<SEND>(self.send_cqes.get::<SEND>()) };
        // An error means that it is queued and has not begun yet.
        let _ = self.handler.queue().enqueue(Arc::from(this));
    }

    /// Cancels the work that rings the doorbell, or waits for its end. Returns true if it will not
    /// run now. May sleep; must not be called by a handler.
    pub(crate) fn cancel_doorbell_work(this: &Arc<Self>) -> bool {
        let raw = Arc::as_ptr(this);
        // SAFETY: An initialised work item, kept by `this`; this may sleep.
        let queued = unsafe {
            kernel::bindings::cancel_work_sync(Work::raw_get(&raw const (*raw).doorbell_work))
        };
        if queued {
            // SAFETY: The queue held one reference for the work that will not run now.
            drop(unsafe { Arc::from_raw(raw) });
        }
        queued
    }

    /// Makes the work that rings the doorbell report failures, as the caller may hold locks of
    /// handlers.
    #[cold]
    pub(super) fn tell_later(&self) {
        let sq = self.sq.lock();
        if !sq.closed {
            self.ring_later();
        }
    }
}
