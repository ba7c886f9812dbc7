// SPDX-License-Identifier: GPL-2.0

//! How a request ends with an error ([`Verdict`]).
//!
//! The RPC client has no function that ends a request with an error. There are two cases:
//!
//! - If the request's task sleeps, the task takes the error from `tk_status`.
//! - If the task does not sleep yet, it overwrites `tk_status`. So the error is also recorded in a
//!   [`Verdict`], and the request gets the state that follows the loss of a connection. Because of
//!   this state the task encodes the request again, and the encoding returns the recorded error.
//!
//! A kernel with patch 0006 (`Documentation/upstream`) has a function for both cases. With
//! `XPRTRDMA_UPSTREAM=1` nothing is recorded.

use kernel::prelude::*;
use xprtrdma_bindings as bindings;

#[cfg(not(xprtrdma_upstream))]
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
#[cfg(not(xprtrdma_upstream))]
use xprtrdma_base::access_once::AccessOnce;

/// The error with which a request must end, if it failed before its task slept.
#[cfg(not(xprtrdma_upstream))]
pub(crate) struct Verdict(Atomic<i32>);

#[cfg(not(xprtrdma_upstream))]
impl Verdict {
    #[inline]
    pub(crate) fn none() -> Self {
        Self(Atomic::new(0))
    }

    /// Records the error.
    #[inline]
    pub(crate) fn set(&self, error: Error) {
        self.0.store(error.to_errno(), Relaxed);
    }

    /// Returns whether an error is recorded.
    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.0.read_once() != 0
    }

    /// Returns the recorded errno, which is negative, or 0 if no error is recorded. Afterwards no
    /// error is recorded.
    #[inline]
    pub(crate) fn take(&self) -> i32 {
        self.0.xchg(0, Relaxed)
    }

    /// Deletes the recorded error. Only the owner of a slot without a request calls this function.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.write_once(0);
    }
}

/// Ends a pending request with an error, which [`Verdict`] has recorded.
///
/// # Safety
///
/// The request is pinned and pending, and the caller holds the queue lock.
#[cfg(not(xprtrdma_upstream))]
pub(crate) unsafe fn fail_pending(rqst: *mut bindings::rpc_rqst, error: Error) {
    // SAFETY: The request is pinned by the caller's contract, so its task exists.
    unsafe {
        (*(*rqst).rq_task).tk_status = error.to_errno();
        // If the task does not sleep yet, the task treats this error as the loss of a connection,
        // and closes the connection that the cookie identifies. So the cookie is changed to the
        // cookie of an earlier connection, and the current connection stays open.
        (*rqst).rq_connect_cookie = (*(*rqst).rq_xprt).connect_cookie.wrapping_sub(1);
        bindings::xprt_complete_rqst((*rqst).rq_task, 0);
    }
}

/// An empty type. In a kernel with patch 0006, the RPC client itself records the error.
#[cfg(xprtrdma_upstream)]
pub(crate) struct Verdict;

#[cfg(xprtrdma_upstream)]
impl Verdict {
    pub(crate) fn none() -> Self {
        Self
    }

    pub(crate) fn set(&self, _: Error) {}

    pub(crate) fn take(&self) -> i32 {
        0
    }

    pub(crate) fn clear(&self) {}
}

/// Ends a pending request with an error.
///
/// # Safety
///
/// The request is pinned and pending, and the caller holds the queue lock.
#[cfg(xprtrdma_upstream)]
pub(crate) unsafe fn fail_pending(rqst: *mut bindings::rpc_rqst, error: Error) {
    // SAFETY: The request is pinned by the caller's contract, so its task exists.
    unsafe { bindings::xprt_fail_rqst((*rqst).rq_task, error.to_errno()) }
}
