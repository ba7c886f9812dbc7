// SPDX-License-Identifier: GPL-2.0

//! A queue of calls, which are linked by their contexts ([`Queue`]).

use crate::{
    context::{
        Arrived, //
        Context,
    },
    service::Service, //
};
use core::{
    mem::MaybeUninit,
    ptr::{
        self,
        NonNull, //
    }, //
};

/// A queue of calls. The first call that was added is the first that is removed.
///
/// # Invariants
///
/// `first` is null if the queue is empty. Otherwise `first` is the context of a call, and the
/// pointers `next` lead from `first` to `last`. The queue owns each of these contexts, and `next`
/// of the last context is null.
pub(crate) struct Queue<S: Service> {
    first: *mut Context<S>,
    last: *mut Context<S>,
}

// SAFETY: The queue owns calls, and any thread may own a call.
unsafe impl<S: Service> Send for Queue<S> {}

impl<S: Service> Queue<S> {
    /// Returns a queue without calls.
    pub(crate) const fn new() -> Self {
        // INVARIANT: The queue has no calls.
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Adds a call at the end.
    #[inline(always)]
    pub(crate) fn push(&mut self, mut call: Arrived<S>) {
        call.context().next = MaybeUninit::new(ptr::null_mut());
        let call = call.into_raw().as_ptr();
        // INVARIANT: The queue owns the added call, which becomes the last call.
        match self.first.is_null() {
            true => self.first = call,
            // SAFETY: By the type invariant the queue is not empty and owns the last call.
            false => unsafe { (*self.last).next = MaybeUninit::new(call) },
        }
        self.last = call;
    }

    /// Removes the first call.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Arrived<S>> {
        let first = NonNull::new(self.first)?;
        // SAFETY: By the type invariant the queue owns this call.
        let next = unsafe { (*first.as_ptr()).next };
        // INVARIANT: The queue no longer owns the first call, and begins with the next one.
        // SAFETY: The call was in a queue, so `push` has initialised the pointer.
        self.first = unsafe { next.assume_init() };
        // SAFETY: The pointer comes from `into_raw`. The queue does not use it again.
        Some(unsafe { Arrived::from_raw(first) })
    }

    /// Removes all calls.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }
}

impl<S: Service> Drop for Queue<S> {
    fn drop(&mut self) {
        while let Some(call) = self.pop() {
            drop(call);
        }
    }
}
