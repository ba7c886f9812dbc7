// SPDX-License-Identifier: GPL-2.0

//! The assignment of slots to tasks. Tasks that find no free slot wait in a queue, the backlog.

use super::Xprt;
use crate::{
    slot::Slot,
    transport::Transport, //
};
use core::ptr;
use kernel::prelude::*;
use xprtrdma_base::compat;
use xprtrdma_bindings as bindings;

impl<T: Transport> Xprt<T> {
    /// Assigns a slot to `task`, or puts the task on the backlog if no slot is free.
    ///
    /// # Safety
    ///
    /// Called only as `rpc_xprt_ops::alloc_slot` of this transport.
    pub(crate) unsafe fn alloc_slot(&self, task: *mut bindings::rpc_task) {
        let Some(slot) = self.pool().pop() else {
            // SAFETY: The called function has the same contract as this function.
            return unsafe { self.wait_for_slot(task) };
        };
        // SAFETY: During the call only this thread uses the task.
        unsafe {
            (*task).tk_rqstp = slot.rqst.get();
            (*task).tk_status = 0;
        }
    }

    /// Puts `task` on the backlog.
    ///
    /// # Safety
    ///
    /// The contract is that of [`Xprt::alloc_slot`].
    #[cold]
    unsafe fn wait_for_slot(&self, task: *mut bindings::rpc_task) {
        // SAFETY: Only this thread uses the task until the called function queues it.
        unsafe {
            (*task).tk_status = EAGAIN.to_errno();
            bindings::xprt_add_backlog_noncongested(self.as_raw(), task);
        }
        // ORDERING: The barrier orders the queueing of the task before `feed_backlog` searches for
        // a free slot.
        compat::smp_mb();
        self.feed_backlog();
    }

    /// Returns a slot to the pool, or assigns the slot to a task on the backlog.
    ///
    /// # Safety
    ///
    /// `rqst` is embedded in a slot of this transport, and no thread uses it any more.
    pub(crate) unsafe fn free_slot(&self, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: By the caller's contract the request is in a slot of this transport.
        let slot = unsafe { Slot::<T>::from_rqst(rqst) };
        slot.verdict.clear();
        if !self.is_backlog_empty() {
            // SAFETY: No thread uses the request. If a task waits on the backlog, the called
            // function zeroes the request and assigns it to the first such task.
            let taken = unsafe { bindings::xprt_wake_up_backlog(self.as_raw(), rqst) };
            if taken {
                return;
            }
        }
        // SAFETY: By the caller's contract no other thread uses the request.
        unsafe { ptr::write_bytes(rqst, 0, 1) };
        self.pool().push(slot);
        if !self.is_backlog_empty() {
            self.feed_backlog();
        }
    }

    /// Assigns free slots to tasks on the backlog.
    ///
    /// Two threads may do the following at the same time:
    ///
    /// - A thread that finds the pool empty puts its task on the backlog. It then checks the pool
    ///   once more.
    /// - A thread that frees a slot and finds the backlog empty puts the slot into the pool. It
    ///   then checks the backlog once more.
    ///
    /// The later of the two threads sees the change that the earlier thread has made. So no task
    /// waits while a slot is free.
    ///
    /// ORDERING: The caller has pushed a slot to the pool or queued a task on the backlog, and then
    /// executed a full barrier. After the barrier, this function checks both the backlog and the
    /// pool.
    #[cold]
    pub(super) fn feed_backlog(&self) {
        while !self.is_backlog_empty() {
            let Some(slot) = self.pool().pop() else {
                return;
            };
            // SAFETY: The slot was free, and this thread has taken it. So this thread may pass the
            // slot's request to a waiting task.
            if !unsafe { bindings::xprt_wake_up_backlog(self.as_raw(), slot.rqst.get()) } {
                // Another thread has just assigned a slot to the last task on the backlog, so
                // `slot` goes back to the pool. Before this push, a new task may have found the
                // pool empty and been put on the backlog. So the loop checks the backlog once more.
                // ORDERING: `push` is a full barrier.
                self.pool().push(slot);
            }
        }
    }
}
