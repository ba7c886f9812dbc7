// SPDX-License-Identifier: GPL-2.0

//! The send lock: as evidence ([`SendLock`]), and in the hands of an attempt ([`ConnectLock`]).

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
    /// Moves the send lock from `task` to a connection attempt.
    ///
    /// # Safety
    ///
    /// Called as `rpc_xprt_ops::connect` of this transport for `task`.
    pub(crate) unsafe fn lock_connect(
        &self,
        task: *mut bindings::rpc_task,
    ) -> Option<ConnectLock<T>> {
        let cookie = ptr::from_ref(&self.inner).cast_mut().cast();
        // SAFETY: By the caller's contract.
        if !unsafe { bindings::xprt_lock_connect(self.as_raw(), task, cookie) } {
            return None;
        }
        // SAFETY: The task is ours for the duration of the call.
        let flags = unsafe { (*task).tk_flags };
        Some(ConnectLock {
            xprt: NonNull::from(self),
            // CAST: A single bit.
            for_trial: flags & bindings::RPC_TASK_SOFTCONN as u16 != 0,
        })
    }
}

/// Evidence that the current context holds the transport's send lock (`XPRT_LOCKED`). It gives
/// access to the state that the lock protects.
pub struct SendLock<'a, T: Transport>(&'a Xprt<T>);

impl<'a, T: Transport> SendLock<'a, T> {
    /// # Safety
    ///
    /// The caller holds `XPRT_LOCKED` of `xprt` for `'a` and no other `SendLock` of it exists.
    pub(crate) unsafe fn new(xprt: &'a Xprt<T>) -> Self {
        Self(xprt)
    }

    /// The transport.
    #[inline]
    pub fn xprt(&self) -> &'a Xprt<T> {
        self.0
    }

    /// The state under the lock.
    #[inline]
    pub fn state(&mut self) -> &mut T::Locked {
        // SAFETY: The lock is held by the type's meaning, and `self` is borrowed exclusively.
        unsafe { &mut *self.0.inner.locked.get() }
    }
}

/// The send lock, held by a connection attempt, which may span threads.
///
/// While this value exists no request is sent, and the transport is neither closed nor destroyed.
/// Dropping it without [`ConnectLock::finish`] ends the attempt with `EAGAIN`.
pub struct ConnectLock<T: Transport> {
    xprt: NonNull<Xprt<T>>,
    for_trial: bool,
}

// SAFETY: The lock belongs to its cookie, not to a thread.
unsafe impl<T: Transport> Send for ConnectLock<T> {}

impl<T: Transport> ConnectLock<T> {
    /// The transport.
    pub fn xprt(&self) -> &Xprt<T> {
        // SAFETY: The destruction of the transport waits for the lock.
        unsafe { self.xprt.as_ref() }
    }

    /// Whether the task that asked for the connection gives up after one failure
    /// (`RPC_TASK_SOFTCONN`), as the first task of a mount does.
    pub fn is_for_trial(&self) -> bool {
        self.for_trial
    }

    /// Returns the lock as evidence.
    pub fn send_lock(&mut self) -> SendLock<'_, T> {
        // SAFETY: `self` is the lock; the borrow excludes another one.
        unsafe { SendLock::new(self.xprt.as_ref()) }
    }

    /// Ends the attempt. On success the transport is connected from now on; an error reaches the
    /// waiting tasks, and must be one that they retry (see [`Transport::connect`]).
    pub fn finish(self, result: Result) {
        self.end(result);
        core::mem::forget(self);
    }

    fn end(&self, result: Result) {
        let this = self.xprt();
        let xprt = this.as_raw();
        // A task that is woken with 0 would take it for "another task has reconnected"; so it is
        // woken with `EAGAIN`, and looks at the connected flag.
        let status = result.err().unwrap_or(EAGAIN).to_errno();
        // SAFETY: The lock is held, so no other thread connects or closes. After the unlock only
        // the pending queue is touched, whose tasks keep the transport.
        unsafe {
            // The cookie also changes after a failure: what the waiting tasks then do about "their"
            // connection must not affect the next attempt.
            (*xprt).connect_cookie = (*xprt).connect_cookie.wrapping_add(1);
            if result.is_ok() {
                (*xprt).stat.connect_count += 1;
                (*xprt).stat.connect_time +=
                    Jiffies::now().0.wrapping_sub((*xprt).stat.connect_start);
                bindings::xprtrdma_xprt_set_connected(xprt);
            }
            bindings::xprtrdma_xprt_clear_connecting(xprt);
            // The waiting tasks are woken before the lock is released, as the transport may be
            // destroyed afterwards.
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
