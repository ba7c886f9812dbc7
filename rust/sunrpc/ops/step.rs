// SPDX-License-Identifier: GPL-2.0

//! An additional step of an RPC task. The step comes after the task has sent its request, and
//! before the task sleeps.
//!
//! A kernel with patches 0004 and 0006 (`Documentation/upstream`) calls
//! `rpc_xprt_ops::poll_for_reply` at this point. With `XPRTRDMA_UPSTREAM=1` this operation is the
//! additional step, and the module does not change `tk_callback`.

use super::Ops;
#[cfg(not(xprtrdma_upstream))]
use crate::slot::Slot;
use crate::{
    call::Waiting,
    transport::Transport,
    xprt::{
        xprt_of,
        Xprt, //
    },
};
use xprtrdma_base::{
    thread::is_prompt,
    time::Jiffies, //
};
use xprtrdma_bindings as bindings;

/// [`Transport::busy_poll`] is called only if at least this number of jiffies remains before the
/// request times out.
const POLL_FROM: usize = 20 * bindings::CONFIG_HZ as usize;

#[expect(
    clippy::missing_safety_doc,
    reason = "all are called by the RPC client only, under the contract of rpc_xprt_ops"
)]
impl<T: Transport> Ops<T> {
    /// Adds a step to the task of a request, if this task itself has just sent the request. The
    /// step is added in two cases:
    ///
    /// - Sending the request has failed. The step then detaches the request from the connection.
    /// - The task waits for the reply and no other request is in flight. The step may then wait for
    ///   the reply in [`Transport::busy_poll`].
    ///
    /// # Safety
    ///
    /// `rqst` is pinned and has a task. The calling task holds the send lock.
    #[cfg(not(xprtrdma_upstream))]
    #[inline]
    pub(super) unsafe fn add_step(xprt: &Xprt<T>, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: By the caller's contract the request has a task. If that task holds the send
        // lock, the task runs in this thread, and only the task's next step reads `tk_callback`.
        unsafe {
            let task = (*rqst).rq_task;
            let failed = Slot::<T>::from_rqst(rqst).verdict.is_some();
            if (failed || Self::may_busy_poll(xprt, rqst))
                && (*xprt.as_raw()).snd_task == task
                && (*task).tk_callback.is_none()
            {
                (*task).tk_callback = Some(if failed { Self::leave } else { Self::busy_poll });
            }
        }
    }

    /// Does nothing. No step is needed, because the RPC client of this kernel calls
    /// `poll_for_reply`.
    ///
    /// # Safety
    ///
    /// There are no requirements.
    #[cfg(xprtrdma_upstream)]
    pub(super) unsafe fn add_step(_: &Xprt<T>, _: *mut bindings::rpc_rqst) {}

    /// Returns true if three conditions hold:
    ///
    /// - No other request is in flight.
    /// - The task is synchronous.
    /// - The request does not time out soon.
    ///
    /// # Safety
    ///
    /// `rqst` has a task. Either `rqst` is pinned, or its task runs in this thread.
    #[inline]
    unsafe fn may_busy_poll(xprt: &Xprt<T>, rqst: *mut bindings::rpc_rqst) -> bool {
        // SAFETY: The contract of this function guarantees what the unsafe code requires.
        unsafe {
            // CAST: The flag `RPC_TASK_ASYNC` is a single bit below bit 16.
            (*(*rqst).rq_task).tk_flags & bindings::RPC_TASK_ASYNC as u16 == 0
                && !xprt.has_others()
                && (*rqst).rq_timeout >= POLL_FROM
                && Jiffies((*rqst).rq_majortimeo).is_at_least_ahead(POLL_FROM)
        }
    }

    /// The additional step of a task whose request failed while it was being sent. After such a
    /// failure the RPC client closes the connection whose cookie is in the request.
    /// [`Pinned::fail`](crate::call::Pinned::fail) stores the cookie of an earlier connection, but
    /// the RPC client then overwrites it with the cookie of the current connection. This step
    /// stores the cookie of an earlier connection again, so that the current connection stays open.
    #[cfg(not(xprtrdma_upstream))]
    unsafe extern "C" fn leave(task: *mut bindings::rpc_task) {
        // SAFETY: The RPC client calls this function as the task's next step, and the task has a
        // request.
        unsafe {
            let rqst = (*task).tk_rqstp;
            (*rqst).rq_connect_cookie = (*(*rqst).rq_xprt).connect_cookie.wrapping_sub(1);
        }
    }

    /// Called by a synchronous task that has sent its request, before the task sleeps.
    #[cfg(xprtrdma_upstream)]
    pub(super) unsafe extern "C" fn poll_for_reply(task: *mut bindings::rpc_task) {
        // SAFETY: The RPC client calls this function in the task's own thread, so the task does
        // nothing else now. The task has a request of class `T`.
        unsafe {
            let rqst = (*task).tk_rqstp;
            if Self::may_busy_poll(xprt_of::<T>(rqst), rqst) {
                Self::busy_poll(task);
            }
        }
    }

    unsafe extern "C" fn busy_poll(task: *mut bindings::rpc_task) {
        // SAFETY: The RPC client calls this function as the step that `add_step` added to the task.
        // In kernels with `poll_for_reply`, `poll_for_reply` calls this function instead. The task
        // has a request of class `T` and does nothing else now.
        unsafe {
            let xprt = xprt_of::<T>((*task).tk_rqstp);
            // Only a thread of sufficient priority polls, because a thread of low priority would
            // delay the replies to other requests. The thread runs under NOFS, because the RPC
            // client enters the NOFS scope for each step of a task.
            if is_prompt() {
                T::busy_poll(xprt, &Waiting::new(xprt, task));
            }
        }
    }
}
