// SPDX-License-Identifier: GPL-2.0

//! Slots for tasks, and tasks that wait for slots: the backlog.

use super::Xprt;
use crate::{
    slot::Slot,
    transport::Transport, //
};
use core::ptr;
use kernel::prelude::*;
use xprtrdma_base::{
    access_once::AccessOnce,
    compat, //
};
use xprtrdma_bindings as bindings;

impl<T: Transport> Xprt<T> {
    /// Assigns a slot to `task` or puts it on the backlog.
    ///
    /// # Safety
    ///
    /// Called as `rpc_xprt_ops::alloc_slot` of the transport.
    pub(crate) unsafe fn alloc_slot(&self, task: *mut bindings::rpc_task) {
        let Some(slot) = self.pool().pop() else {
            // SAFETY: By the caller's contract.
            return unsafe { self.wait_for_slot(task) };
        };
        // SAFETY: The task is ours for the duration of the call.
        unsafe {
            (*task).tk_rqstp = slot.rqst.get();
            (*task).tk_status = 0;
        }
    }

    /// Puts `task` on the backlog.
    ///
    /// # Safety
    ///
    /// As for [`Xprt::alloc_slot`].
    #[cold]
    unsafe fn wait_for_slot(&self, task: *mut bindings::rpc_task) {
        // SAFETY: The task is ours for the duration of the call; the callee queues it.
        unsafe {
            (*task).tk_status = EAGAIN.to_errno();
            bindings::xprt_add_backlog_noncongested(self.as_raw(), task);
        }
        // ORDERING: See `feed_backlog`.
        compat::smp_mb();
        self.feed_backlog();
    }

    /// Takes back a slot.
    ///
    /// # Safety
    ///
    /// `rqst` is embedded in a slot of this transport and no thread uses it any more.
    pub(crate) unsafe fn free_slot(&self, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: By the caller's contract.
        let slot = unsafe { Slot::<T>::from_rqst(rqst) };
        slot.verdict.write_once(0);
        if !self.is_backlog_empty() {
            // SAFETY: The callee zeroes the request and gives it to the first waiter, if there is
            // one.
            let taken = unsafe { bindings::xprt_wake_up_backlog(self.as_raw(), rqst) };
            if taken {
                return;
            }
        }
        // SAFETY: The request is ours.
        unsafe { ptr::write_bytes(rqst, 0, 1) };
        self.pool().push(slot);
        if !self.is_backlog_empty() {
            self.feed_backlog();
        }
    }

    /// Assigns free slots to waiting tasks.
    ///
    /// A task that finds the pool empty goes to the backlog, and a slot that finds the backlog
    /// empty goes to the pool. The second of the two looks at the other side again, so neither
    /// waits for the other.
    ///
    /// ORDERING: A full barrier has ordered the caller's own change (slots pushed, or task queued)
    /// before this look at the other side; the other party does the same.
    #[cold]
    pub(super) fn feed_backlog(&self) {
        while !self.is_backlog_empty() {
            let Some(slot) = self.pool().pop() else {
                return;
            };
            // SAFETY: The slot was free, so its request is ours to give away.
            if !unsafe { bindings::xprt_wake_up_backlog(self.as_raw(), slot.rqst.get()) } {
                // Another thread has just served the last waiter. Until the slot is returned a task
                // may find the pool empty, so this counts as a slot that was freed.
                // ORDERING: This is a full barrier again.
                self.pool().push(slot);
            }
        }
    }
}
