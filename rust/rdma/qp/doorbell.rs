// SPDX-License-Identifier: GPL-2.0

//! Messages that are posted together with one doorbell ([`SendBatch::post_later`]), and the work
//! item that rings the doorbell if no later post rings it.
//!
//! [`SendBatch::post_later`]: super::SendBatch::post_later

#[cfg(xprtrdma_rds)]
use super::batch::{
    Nothing,
    SendBatch, //
};
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

/// If a message has waited for the doorbell and no other message was posted with it, this number of
/// following messages do not wait.
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

#[cfg(xprtrdma_rds)]
impl<H: QpHandler> SendBatch<'_, H> {
    /// Posts a Send of the first `len` bytes of the buffer, but leaves the doorbell to the caller.
    /// The caller must call [`Qp::ring_now`] after the last such message. The doorbell is rung
    /// earlier if too many work requests wait. If an error is returned, the connection has failed.
    pub fn post_waiting(self, len: usize) -> Result {
        self.enqueue::<Nothing>(len, &mut [], false)
    }
}

impl<H: QpHandler> Qp<H> {
    /// Posts the waiting messages, unless the queue is closed. Returns the errors of
    /// [`Qp::submit`], even if none of the waiting messages is from the caller.
    #[cold]
    pub(super) fn ring(&self, sq: &mut SendQueue) -> Result {
        if sq.closed {
            return Ok(());
        }
        let Some(first) = sq.chain.take() else {
            return Ok(());
        };
        // The number of the next doorbell is increased before the post. So the handler of a reply
        // to these messages sees that the messages were posted. The barriers of the device driver
        // order this write before the handler's read.
        let next = self.doorbell.read_once().wrapping_add(1);
        self.doorbell.write_once(next.max(FIRST_DOORBELL));
        // SAFETY: The chain is well-formed by its invariant. All memory to which it refers outlives
        // the post. The ring and `send_cqes` belong to `self`. The owner of each region keeps the
        // region until the peer is known to have no access to it. The queue is open. `sq` borrows
        // the queue from its lock, so the lock is held.
        unsafe { self.submit(&mut sq.closed, first) }
    }

    /// Rings the doorbell for messages that were posted with [`SendBatch::post_waiting`]. If an
    /// error is returned, the connection has failed.
    ///
    /// [`SendBatch::post_waiting`]: super::SendBatch::post_waiting
    #[cfg(xprtrdma_rds)]
    pub fn ring_now(&self) -> Result {
        self.ring(&mut self.sq.lock())
    }

    /// Queues the work item that rings the doorbell. Must be called with the queue locked and open,
    /// so that [`Qp::shutdown`] finds the queued work item.
    #[cold]
    pub(super) fn ring_later(&self) {
        // SAFETY: The pointer refers to the whole object, see `SendEntries`.
        let this = unsafe { Self::of_send::<SEND>(self.send_cqes.get::<SEND>()) };
        // An error means that the work item is already queued and has not started.
        let _ = self.handler.queue().enqueue(Arc::from(this));
    }

    /// Cancels the work item that rings the doorbell. If the work item is running, waits until it
    /// has ended. Returns true if this call has cancelled a queued work item. May sleep. A handler
    /// must not call this method.
    pub(crate) fn cancel_doorbell_work(this: &Arc<Self>) -> bool {
        let raw = Arc::as_ptr(this);
        // SAFETY: The work item is initialised, and `this` keeps it. The call may sleep.
        let queued = unsafe {
            kernel::bindings::cancel_work_sync(Work::raw_get(&raw const (*raw).doorbell_work))
        };
        if queued {
            // SAFETY: The queue held one reference for the cancelled work item.
            drop(unsafe { Arc::from_raw(raw) });
        }
        queued
    }

    /// Queues the work item that rings the doorbell. That work item also reports a failure of the
    /// queue pair. The caller must not report the failure itself, because it may hold locks of
    /// handlers.
    #[cold]
    pub(super) fn tell_later(&self) {
        let sq = self.sq.lock();
        if !sq.closed {
            self.ring_later();
        }
    }
}
