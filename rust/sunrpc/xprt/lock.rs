// SPDX-License-Identifier: GPL-2.0

//! The send lock. [`SendLock`] is a proof that the send lock is held. [`ConnectLock`] is the send
//! lock while a connection attempt owns it.

use super::Xprt;
use crate::transport::Transport;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::prelude::*;
use xprtrdma_base::time::Jiffies;
use xprtrdma_bindings as bindings;

impl<T: Transport> Xprt<T> {
    /// Transfers the send lock from `task` to a connection attempt. Returns `None` if `task` does
    /// not hold the lock.
    ///
    /// # Safety
    ///
    /// Called only as `rpc_xprt_ops::connect` of this transport, for `task`.
    pub(crate) unsafe fn lock_connect(
        &self,
        task: *mut bindings::rpc_task,
    ) -> Option<ConnectLock<T>> {
        let cookie = ptr::from_ref(&self.inner).cast_mut().cast();
        // SAFETY: By the caller's contract the RPC client called this for `task`.
        if !unsafe { bindings::xprt_lock_connect(self.as_raw(), task, cookie) } {
            return None;
        }
        // SAFETY: During the call only this thread uses the task.
        let flags = unsafe { (*task).tk_flags };
        Some(ConnectLock {
            xprt: NonNull::from(self),
            // CAST: The flag `RPC_TASK_SOFTCONN` is a single bit below bit 16.
            for_trial: flags & bindings::RPC_TASK_SOFTCONN as u16 != 0,
        })
    }
}

/// Proof that the current context holds the transport's send lock (`XPRT_LOCKED`). The proof gives
/// access to the state that the lock protects.
pub struct SendLock<'a, T: Transport>(&'a Xprt<T>);

impl<'a, T: Transport> SendLock<'a, T> {
    /// # Safety
    ///
    /// The caller holds `XPRT_LOCKED` of `xprt` for `'a`, and no other `SendLock` of `xprt` exists.
    pub(crate) unsafe fn new(xprt: &'a Xprt<T>) -> Self {
        Self(xprt)
    }

    /// Returns the transport.
    #[inline]
    pub fn xprt(&self) -> &'a Xprt<T> {
        self.0
    }

    /// Returns the state that the send lock protects.
    #[inline]
    pub fn state(&mut self) -> &mut T::Locked {
        // SAFETY: A `SendLock` proves that the lock is held, and `self` is borrowed exclusively.
        unsafe { &mut *self.0.inner.locked.get() }
    }
}

/// The send lock, which a connection attempt holds. This value may move between threads.
///
/// While this value exists, no request is sent on the transport, and the transport is neither
/// closed nor destroyed. Dropping the value without [`ConnectLock::finish`] ends the attempt with
/// `EAGAIN`.
pub struct ConnectLock<T: Transport> {
    xprt: NonNull<Xprt<T>>,
    for_trial: bool,
}

// SAFETY: The RPC client identifies the owner of the lock by a cookie, and not by a thread. So any
// thread may release the lock.
unsafe impl<T: Transport> Send for ConnectLock<T> {}

impl<T: Transport> ConnectLock<T> {
    /// Returns the transport.
    pub fn xprt(&self) -> &Xprt<T> {
        // SAFETY: The destruction of the transport waits for the lock.
        unsafe { self.xprt.as_ref() }
    }

    /// Returns whether the task that requested the connection has the flag `RPC_TASK_SOFTCONN`.
    /// Such a task gives up after a single failed attempt. The first task of a mount has this flag.
    pub fn is_for_trial(&self) -> bool {
        self.for_trial
    }

    /// Returns a [`SendLock`], which proves that the send lock is held.
    pub fn send_lock(&mut self) -> SendLock<'_, T> {
        // SAFETY: `self` owns the lock, and the exclusive borrow allows no other `SendLock`.
        unsafe { SendLock::new(self.xprt.as_ref()) }
    }

    /// Ends the attempt. If `result` is `Ok`, the transport is connected from now on. Otherwise the
    /// waiting tasks receive the error. Only errors after which the RPC client tries again are
    /// allowed (see [`Transport::connect`]).
    pub fn finish(self, result: Result) {
        self.end(result);
        core::mem::forget(self);
    }

    fn end(&self, result: Result) {
        let this = self.xprt();
        let xprt = this.as_raw();
        // If the attempt succeeds, the tasks are woken with `EAGAIN`, and test whether the
        // transport is connected. A task that is woken with 0 would conclude that another task has
        // reconnected.
        let status = result.err().unwrap_or(EAGAIN).to_errno();
        // SAFETY: The send lock is held, so no other thread connects or closes the transport. After
        // the unlock only the pending queue is accessed, and the tasks on this queue keep the
        // transport.
        unsafe {
            // The cookie changes after a failure as well. A waiting task may later request that the
            // connection with the task's cookie be closed. If the cookie were unchanged, this
            // request would disturb the next attempt.
            (*xprt).connect_cookie = (*xprt).connect_cookie.wrapping_add(1);
            if result.is_ok() {
                (*xprt).stat.connect_count += 1;
                (*xprt).stat.connect_time +=
                    Jiffies::now().0.wrapping_sub((*xprt).stat.connect_start);
                bindings::xprtrdma_xprt_set_connected(xprt);
            }
            bindings::xprtrdma_xprt_clear_connecting(xprt);
            // The waiting tasks are woken before the lock is released, because the transport may be
            // destroyed after the release.
            bindings::xprt_wake_pending_tasks(xprt, status);
            bindings::xprt_unlock_connect(xprt, ptr::from_ref(&this.inner).cast_mut().cast());
        }
    }
}

impl<T: Transport> Drop for ConnectLock<T> {
    fn drop(&mut self) {
        self.end(Err(EAGAIN));
    }
}
