// SPDX-License-Identifier: GPL-2.0

//! What a task waits for: a reply ([`Waiting`]), or the end of the leases of its memory
//! ([`Leaving`]).

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

/// A request that was sent and whose task is still awake. The code that uses this value runs in the
/// context of the task.
pub struct Waiting<'a, T: Transport> {
    xprt: &'a Xprt<T>,
    task: *mut bindings::rpc_task,
}

impl<'a, T: Transport> Waiting<'a, T> {
    /// # Safety
    ///
    /// `task` runs in this thread and has a request of `xprt`. During `'a` the task does nothing
    /// else.
    pub(crate) unsafe fn new(xprt: &'a Xprt<T>, task: *mut bindings::rpc_task) -> Self {
        Self { xprt, task }
    }

    /// Returns true if the task need not wait any longer, because its request was answered or has
    /// failed, the task was killed, or the connection is closed. Does not sleep.
    #[inline]
    pub fn is_over(&self) -> bool {
        // SAFETY: By the contract of `new` the task and its request exist. Other threads may write
        // the words that this code reads. Each word is read once, with a single access.
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

/// The reason why a request leaves the transport without a reply.
pub struct Leaving {
    task: *mut bindings::rpc_task,
}

impl Leaving {
    /// Creates the value for a request that will be encoded again. In this case the task must not
    /// wait.
    pub(crate) fn to_be_encoded() -> Self {
        Self {
            task: ptr::null_mut(),
        }
    }

    /// Creates the value for a request that ends.
    ///
    /// # Safety
    ///
    /// `task` runs in this thread and owns the request as long as the returned value exists.
    pub(crate) unsafe fn for_good(task: *mut bindings::rpc_task) -> Self {
        Self { task }
    }

    /// Waits until none of the request's memory is lent any more, but at most `ms` milliseconds.
    /// May sleep.
    ///
    /// Waits only if the request ends, its task is synchronous, and this thread is no kernel
    /// worker. An asynchronous task must not wait, because it may run on the thread that must close
    /// the task's connection.
    #[cold]
    pub fn wait_for_reply<T: Transport>(&self, call: &Encoded<'_, T>, ms: u32) {
        if self.task.is_null() {
            return;
        }
        // SAFETY: By the contract of `for_good` the task runs in this thread and owns the request.
        let (flags, rqst) = unsafe { ((*self.task).tk_flags, (*self.task).tk_rqstp) };
        // CAST: The flag `RPC_TASK_ASYNC` is a single bit below bit 16.
        let own = flags & bindings::RPC_TASK_ASYNC as u16 == 0 && ptr::eq(rqst, call.rqst());
        if own && may_wait() {
            call.slot().leases.wait_at_most(Jiffies::from_ms(ms));
        }
    }
}
