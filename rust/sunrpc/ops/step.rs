// SPDX-License-Identifier: GPL-2.0

//! A step of ours between the sending of a request and its task's sleep.

use super::Ops;
use crate::{
    call::Waiting,
    slot::Slot,
    transport::Transport,
    xprt::{
        xprt_of,
        Xprt, //
    },
};
use xprtrdma_base::{
    access_once::AccessOnce,
    thread::is_prompt,
    time::Jiffies, //
};
use xprtrdma_bindings as bindings;

/// A task whose request times out earlier, in jiffies, is not asked to [`Transport::busy_poll`].
const POLL_FROM: usize = 20 * bindings::CONFIG_HZ as usize;

#[expect(
    clippy::missing_safety_doc,
    reason = "all are called by the RPC client only, under the contract of rpc_xprt_ops"
)]
impl<T: Transport> Ops<T> {
    /// Adds a step of ours as the next one of the task, if the request is its own and
    ///
    /// - sending it has failed: the step detaches the request from the connection, or
    /// - the task waits for it and no other request is in flight: the step may wait for the reply
    ///   in [`Transport::busy_poll`].
    ///
    /// # Safety
    ///
    /// `rqst` is pinned and has a task; the send lock is held by the caller's task.
    #[inline]
    pub(super) unsafe fn add_step(xprt: &Xprt<T>, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: By the caller's contract. If the task holds the send lock it is the one that runs
        // here; then its next step, and nothing before that, looks at the callback.
        unsafe {
            let task = (*rqst).rq_task;
            let failed = Slot::<T>::from_rqst(rqst).verdict.read_once() != 0;
            if (failed || Self::may_busy_poll(xprt, rqst))
                && (*xprt.as_raw()).snd_task == task
                && (*task).tk_callback.is_none()
            {
                (*task).tk_callback = Some(if failed { Self::leave } else { Self::busy_poll });
            }
        }
    }

    /// Whether the RPC client can do without the task of a request for a while, and no other task
    /// waits for its connection.
    ///
    /// # Safety
    ///
    /// As for [`Ops::add_step`].
    #[inline]
    unsafe fn may_busy_poll(xprt: &Xprt<T>, rqst: *mut bindings::rpc_rqst) -> bool {
        // SAFETY: By the caller's contract.
        unsafe {
            // CAST: A single bit.
            (*(*rqst).rq_task).tk_flags & bindings::RPC_TASK_ASYNC as u16 == 0
                && !xprt.has_others()
                && (*rqst).rq_timeout >= POLL_FROM
                && Jiffies((*rqst).rq_majortimeo).is_at_least_ahead(POLL_FROM)
        }
    }

    /// The step of a task whose request failed while it was sent. After
    /// [`Pinned::fail`](crate::call::Pinned::fail) the RPC client has recorded the connection in
    /// the request, and would end it.
    unsafe extern "C" fn leave(task: *mut bindings::rpc_task) {
        // SAFETY: As for `busy_poll`.
        unsafe {
            let rqst = (*task).tk_rqstp;
            (*rqst).rq_connect_cookie = (*(*rqst).rq_xprt).connect_cookie.wrapping_sub(1);
        }
    }

    unsafe extern "C" fn busy_poll(task: *mut bindings::rpc_task) {
        // SAFETY: Called by the RPC client as the task's next step, as `add_step` asked for: the
        // task has a request of ours, and does nothing else now.
        unsafe {
            let xprt = xprt_of::<T>((*task).tk_rqstp);
            // A thread of low priority would delay the replies to other requests. The thread is
            // under NOFS: the RPC client enters that scope for each step of a task.
            if is_prompt() {
                T::busy_poll(xprt, &Waiting::new(xprt, task));
            }
        }
    }
}
