// SPDX-License-Identifier: GPL-2.0

//! Replaces the module [`events`](super::events) in a kernel with patch 0002
//! (`Documentation/upstream`). In such a kernel, ib_core calls the function [`claim`] to ask
//! whether a polling thread handles an event. So this module need not replace functions in
//! `struct ib_cq`.

use super::{
    poller,
    Cq, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};
use xprtrdma_base::{
    access_once::AccessOnce,
    queue::PromptQueue, //
};
use xprtrdma_bindings as bindings;

impl Cq {
    /// Makes the work item of the completion queue run on the work queue `queue`. Makes ib_core
    /// call [`claim`] for each event.
    ///
    /// # Safety
    ///
    /// The completion queue is not used yet. The context of the completion queue is this object.
    /// `queue` outlives the completion queue.
    pub(super) unsafe fn watch(&self, queue: &PromptQueue) -> Result {
        // SAFETY: By the caller's contract the queue is not used yet. It is polled by a work item,
        // and is not shared.
        to_result(unsafe { bindings::ib_cq_set_claim(self.as_raw(), queue.as_raw(), Some(claim)) })
    }

    /// Queues the work item, which polls the completion queue. May be called in any context.
    #[cold]
    pub(super) fn wake_worker(&self) {
        // SAFETY: The queue is valid and has a work item.
        unsafe { bindings::ib_cq_queue_work(self.as_raw()) };
    }

    /// Does nothing, because ib_core calls [`claim`] for each event.
    pub(super) fn take_events(&self) {}

    /// Does nothing, because ib_core calls [`claim`] for each event.
    pub(super) fn leave_events(&self) {}

    /// Returns whether the work item is queued or runs.
    #[inline]
    pub(super) fn item_is_busy(&self) -> bool {
        // SAFETY: The queue is valid and has a work item.
        unsafe { bindings::ib_cq_work_busy(self.as_raw()) }
    }

    /// Handles at most `budget` completions, and returns their number.
    ///
    /// # Safety
    ///
    /// The calling thread is the one that polls, and the work item is not running.
    #[inline]
    pub(super) unsafe fn handle_some(&self, budget: c_int) -> c_int {
        // SAFETY: The queue is valid. By the caller's contract only this thread polls it.
        unsafe { bindings::ib_process_cq_claimed(self.as_raw(), budget) }
    }

    /// Waits for the work item, which does not run afterwards. May sleep.
    pub(super) fn stop_item(&self) {
        // SAFETY: The queue is valid and has a work item.
        unsafe { bindings::ib_cq_disable_work(self.as_raw()) };
    }
}

/// Returns true if a polling thread handles the completions. In this case ib_core does not queue
/// the work item for an event of the device, and a work item that already runs handles no
/// completions.
///
/// ORDERING: A thread that begins to poll changes `poller` with a full barrier, and then checks
/// whether the work item is busy. Queueing the work item is a full barrier, too, and the work item
/// calls this function afterwards. So either the thread finds the work item busy, or this load
/// finds the thread. If this load finds no thread, the work item sees the effects of the last
/// polling thread, because the load is an acquire.
///
/// # Safety
///
/// Called by ib_core for a queue that a [`Cq`] owns. ib_core calls this function for each event of
/// the device, in any context, and also from the work item.
unsafe extern "C" fn claim(_cq: *mut bindings::ib_cq, context: *mut c_void) -> bool {
    // SAFETY: `context` is the [`Cq`] that owns the queue. It still exists: no device calls a
    // handler of a destroyed queue, and the queue is freed only when the work item does not run.
    let cq = unsafe { &*context.cast::<Cq>() };
    cq.poller.read_acquire() != poller::NOBODY && cq.call()
}
