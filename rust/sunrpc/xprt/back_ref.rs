// SPDX-License-Identifier: GPL-2.0

//! Counted references by which the driver's objects refer to their transport ([`BackRef`]).

use super::Xprt;
use crate::transport::Transport;
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use xprtrdma_base::holders::Holders;

impl<T: Transport> Xprt<T> {
    /// Creates a counted reference to the transport, for an object that the driver's data owns.
    ///
    /// After [`Transport::stop`], the destruction of the transport waits until no such reference
    /// exists.
    pub fn back_ref(&self) -> BackRef<T> {
        self.inner.back_refs.add();
        // INVARIANT: The new reference has just been counted.
        BackRef(NonNull::from(self))
    }

    /// Waits until no back reference is left. May sleep.
    pub(crate) fn wait_for_back_refs(&self) {
        self.inner.back_refs.wait();
    }
}

/// A counted reference to a transport; see [`Xprt::back_ref`].
///
/// # Invariants
///
/// The transport is valid, and its counter `back_refs` includes this reference.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_base::queue::WorkQueue;
/// # use xprtrdma_sunrpc::{transport::Transport, xprt::{BackRef, Xprt}};
/// /// Ends the connection from a work queue. The transport stays until the work has run.
/// fn disconnect_later<T: Transport>(xprt: &Xprt<T>, queue: &WorkQueue) -> Result {
///     let xprt: BackRef<T> = xprt.back_ref();
///     queue.queue().try_spawn(GFP_KERNEL, move || xprt.force_disconnect())?;
///     Ok(())
/// }
/// ```
pub struct BackRef<T: Transport>(NonNull<Xprt<T>>);

// SAFETY: `Xprt<T>` is `Sync`, and the counter is atomic.
unsafe impl<T: Transport> Send for BackRef<T> {}

// SAFETY: `Xprt<T>` is `Sync`, and the counter is atomic.
unsafe impl<T: Transport> Sync for BackRef<T> {}

impl<T: Transport> Deref for BackRef<T> {
    type Target = Xprt<T>;

    #[inline]
    fn deref(&self) -> &Xprt<T> {
        // SAFETY: By the type invariant, the transport is valid.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Transport> Clone for BackRef<T> {
    fn clone(&self) -> Self {
        self.back_ref()
    }
}

impl<T: Transport> Drop for BackRef<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the pointer is valid.
        let count = unsafe { &raw const (*self.0.as_ptr()).inner.back_refs };
        // SAFETY: By the type invariant, the counter is valid, and includes this reference.
        unsafe { Holders::remove(count) }
    }
}
