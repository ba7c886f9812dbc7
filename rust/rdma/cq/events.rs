// SPDX-License-Identifier: GPL-2.0

//! Wakes a thread that polls a [`Cq`] when the device reports an event, or when the work item of
//! the queue runs.
//!
//! ib_core has no interface with which an event could wake such a thread. So this module replaces
//! two functions in `struct ib_cq`: the event handler and the function of the work item. While a
//! thread polls, the new functions wake that thread, and ib_core is not called. If no thread polls,
//! ib_core's own functions are called.

use super::{
    poller,
    usual::{
        work_of,
        WORK, //
    },
    Cq, //
};
use core::ptr;
use kernel::prelude::*;
use xprtrdma_base::{
    access_once::AccessOnce,
    queue::PromptQueue, //
};
use xprtrdma_bindings as bindings;

impl Cq {
    /// Sets the work queue and the function of the work item. If a thread polls, the function
    /// passes the event to that thread.
    ///
    /// # Safety
    ///
    /// The completion queue is not used yet. The context of the completion queue is this object.
    /// `queue` outlives the completion queue.
    pub(super) unsafe fn watch(&self, queue: &PromptQueue) -> Result {
        let raw = self.as_raw();
        // SAFETY: By the caller's contract no other thread reads the fields.
        unsafe {
            (*raw).comp_wq = queue.as_raw();
            (*work_of(raw)).func = Some(work);
        }
        Ok(())
    }

    /// Queues the work item, which polls the completion queue. May be called in any context.
    #[cold]
    pub(super) fn wake_worker(&self) {
        if let Some(usual) = self.usual.handler {
            // SAFETY: The queue is valid, and ib_core's handler may be called in any context.
            unsafe { usual(self.as_raw(), ptr::null_mut()) }
        }
    }

    /// Makes events wake the polling thread directly.
    #[inline]
    pub(super) fn take_events(&self) {
        self.set_handler(Some(event));
    }

    /// Restores ib_core's event handler, so that events queue the work item.
    #[inline]
    pub(super) fn leave_events(&self) {
        self.set_handler(self.usual.handler);
    }

    #[inline]
    fn set_handler(&self, handler: bindings::ib_comp_handler) {
        // SAFETY: The queue is valid. The device may call the old or the new handler: both are
        // correct at any time. The pointer is written in a single store.
        unsafe { ptr::write_volatile(&raw mut (*self.as_raw()).comp_handler, handler) }
    }

    /// Returns whether the work item is queued or runs.
    #[inline]
    pub(super) fn item_is_busy(&self) -> bool {
        // SAFETY: The work item is initialised.
        unsafe { bindings::work_busy(work_of(self.as_raw())) != 0 }
    }

    /// Handles at most `budget` completions, and returns their number. Passes this number to the
    /// device's interrupt moderation (`rdma_dim`), as ib_core does for its work item.
    ///
    /// # Safety
    ///
    /// The calling thread is the polling thread, and the work item does not run.
    #[inline]
    pub(super) unsafe fn handle_some(&self, budget: c_int) -> c_int {
        // SAFETY: Only this thread polls, so only it uses the array that ib_core has allocated for
        // polling, and only it changes `dim`.
        unsafe {
            let count = bindings::ib_process_cq_direct(self.as_raw(), budget);
            let dim = (*self.as_raw()).dim;
            if !dim.is_null() {
                // CAST: This number of completions is not negative.
                bindings::rdma_dim(dim, count as u64);
            }
            count
        }
    }

    /// Disables the work item for good, and waits until it does not run. May sleep.
    pub(super) fn stop_item(&self) {
        // SAFETY: The work item is initialised. It stays disabled from now on.
        unsafe { bindings::disable_work_sync(work_of(self.as_raw())) };
    }

    /// Runs ib_core's function for the work item. Only the work item calls this.
    #[inline]
    fn handle(&self) {
        if let Some(usual) = self.usual.work {
            // SAFETY: ib_core had set this function for this work item, which is running.
            unsafe { usual(work_of(self.as_raw())) }
        }
    }

    /// Passes an event to the polling thread. If that thread no longer polls, handles the
    /// completions. Only the work item calls this.
    #[cold]
    fn hand_over(&self) {
        if !self.call() {
            self.handle();
        }
    }

    /// Handles an event that arrives while no polling thread waits for an event.
    #[cold]
    fn unexpected(&self) {
        if !self.call() {
            self.wake_worker();
        }
    }
}

/// The function of the work item. If no thread polls, this function calls ib_core's function.
///
/// ORDERING: A thread that begins to poll sets `poller` with a full barrier, and then checks
/// whether the work item is queued or runs. Queueing the work item is a full barrier, too. So a
/// work item that is queued after this check reads in `poller` that a thread polls.
///
/// The work item loads `poller` with acquire semantics. So if it reads that no thread polls, it
/// sees the effects of the last polling thread.
///
/// # Safety
///
/// Called by the work queue for the item of a queue that a [`Cq`] owns.
unsafe extern "C" fn work(work: *mut bindings::work_struct) {
    // SAFETY: By this function's contract a [`Cq`] owns the queue that contains the item. Both are
    // freed only when the item does not run.
    let cq = unsafe {
        let raw: *mut bindings::ib_cq = work.wrapping_byte_sub(WORK).cast();
        &*(*raw).cq_context.cast::<Cq>()
    };
    if cq.poller.read_acquire() == poller::NOBODY {
        cq.handle();
    } else {
        cq.hand_over();
    }
}

/// Handles an event while a thread polls.
///
/// # Safety
///
/// Called by a device for a queue that a [`Cq`] owns, in any context.
unsafe extern "C" fn event(_cq: *mut bindings::ib_cq, context: *mut c_void) {
    // SAFETY: By this function's contract a [`Cq`] owns the queue. The `Cq` still exists, because a
    // device does not call the handler of a destroyed queue.
    let cq = unsafe { &*context.cast::<Cq>() };
    // Usually the polling thread sleeps until an event arrives.
    if cq.change(poller::WAITS, poller::CALLED) {
        cq.wake();
    } else {
        cq.unexpected();
    }
}
