// SPDX-License-Identifier: GPL-2.0

//! Tasks that wait: for a reply ([`Waiting`]), or for their memory ([`Leaving`]).

use super::encoded::Encoded;
use crate::{
    transport::Transport,
    xprt::Xprt, //
};
use core::ptr;
use xprtrdma_base::{
    thread::may_wait,
    time::Jiffies, //
};
use xprtrdma_bindings as bindings;

/// A request that was sent and whose task is awake, in the task's own context.
pub struct Waiting<'a, T: Transport> {
    xprt: &'a Xprt<T>,
    task: *mut bindings::rpc_task,
}

impl<'a, T: Transport> Waiting<'a, T> {
    /// # Safety
    ///
    /// `task` runs in this thread, has a request of `xprt`, and does nothing else for `'a`.
    pub(crate) unsafe fn new(xprt: &'a Xprt<T>, task: *mut bindings::rpc_task) -> Self {
        Self { xprt, task }
    }

    /// Whether the task need not wait any more: the request was answered or has failed, the task
    /// was killed, or the connection is gone. Does not sleep.
    #[inline]
    pub fn is_over(&self) -> bool {
        // SAFETY: The task and its request exist, by the contract of `new`. What others write is
        // one word each.
        unsafe {
            let task = self.task;
            let runstate = ptr::read_volatile(&raw const (*task).tk_runstate);
            runstate & (1 << bindings::RPC_TASK_NEED_RECV) == 0
                || ptr::read_volatile(&raw const (*task).tk_rpc_status) != 0
                || ptr::read_volatile(&raw const (*(*task).tk_rqstp).rq_connect_cookie)
                    != self.xprt.connect_cookie()
                || !self.xprt.is_connected()
        }
    }
}

/// How a request leaves the transport without an answer.
pub struct Leaving {
    task: *mut bindings::rpc_task,
}

impl Leaving {
    /// The request is encoded again, and its task wants to go on.
    pub(crate) fn to_be_encoded() -> Self {
        Self {
            task: ptr::null_mut(),
        }
    }

    /// It ends.
    ///
    /// # Safety
    ///
    /// `task` runs in this thread and has the request for as long as the result exists.
    pub(crate) unsafe fn for_good(task: *mut bindings::rpc_task) -> Self {
        Self { task }
    }

    /// Waits until none of the request's memory is lent any more, for `ms` milliseconds at most.
    /// Waits only if this thread may wait for the peer: the request ends, it belongs to a process,
    /// and the thread is no worker. An asynchronous task may run on the thread that has to end its
    /// connection. Sleeps.
    #[cold]
    pub fn wait_for_reply<T: Transport>(&self, call: &Encoded<'_, T>, ms: u32) {
        if self.task.is_null() {
            return;
        }
        // SAFETY: By the contract of `for_good`.
        let (flags, rqst) = unsafe { ((*self.task).tk_flags, (*self.task).tk_rqstp) };
        // CAST: A single bit.
        let own = flags & bindings::RPC_TASK_ASYNC as u16 == 0 && ptr::eq(rqst, call.rqst());
        if own && may_wait() {
            call.slot().leases.wait_at_most(Jiffies::from_ms(ms));
        }
    }
}
