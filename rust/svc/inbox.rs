// SPDX-License-Identifier: GPL-2.0

//! The queue of the calls of a connection that wait for a thread of the RPC server ([`Inbox`]).

pub use crate::context::{
    Arrived,
    Place, //
};
use crate::{
    queue::Queue,
    service::Service, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::{
    new_spinlock,
    spin::SpinLock, //
};
use xprtrdma_bindings as bindings;

/// A reference to the queue of the calls that arrive on a connection.
///
/// The inbox accepts calls even before the RPC server knows the connection. The inbox refuses calls
/// after the RPC server has forgotten the connection.
pub struct Inbox<S: Service>(Arc<Shared<S>>);

impl<S: Service> Clone for Inbox<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The owner of an [`Inbox`]. Dropping the owner drops the waiting calls.
///
/// A call may hold a reference to the connection's queue pair, whose handler holds a reference to
/// the inbox. Dropping the owner breaks this cycle of references.
pub struct InboxOwner<S: Service>(Inbox<S>);

#[pin_data]
struct Shared<S: Service> {
    #[pin]
    state: SpinLock<State<S>>,
}

/// # Invariants
///
/// - The transport in [`Xprt::Open`] is valid.
/// - If `xprt` is `Open`, `XPT_DATA` of the transport is set while a call waits.
struct State<S: Service> {
    xprt: Xprt,
    /// The calls in the order of their arrival. Each call has a message, so the number of messages
    /// limits the number of calls.
    calls: Queue<S>,
    /// Whether the connection must be closed.
    closing: bool,
}

#[derive(Clone, Copy)]
enum Xprt {
    Unknown,
    Open(NonNull<bindings::svc_xprt>),
    Detached,
}

// SAFETY: This module passes the pointer in `Open` only to functions that may be called in any
// thread.
unsafe impl Send for Xprt {}

impl<S: Service> InboxOwner<S> {
    /// Creates an inbox. May sleep.
    pub fn new() -> Result<Self> {
        let state = State {
            xprt: Xprt::Unknown,
            calls: Queue::new(),
            closing: false,
        };
        let shared = pin_init!(Shared {
            state <- new_spinlock!(state, "Inbox::state"),
        });
        Ok(Self(Inbox(Arc::pin_init(shared, GFP_KERNEL)?)))
    }

    /// Returns a reference to the inbox, for the code that adds calls.
    pub fn handle(&self) -> Inbox<S> {
        self.0.clone()
    }

    /// Connects the inbox to a connection that will be passed to the RPC server.
    ///
    /// # Safety
    ///
    /// The transport stays valid until [`InboxOwner::detach`] is called.
    pub(crate) unsafe fn connect(&self, xprt: NonNull<bindings::svc_xprt>) {
        let mut state = self.0 .0.state.lock();
        if !state.calls.is_empty() {
            // The RPC server checks `XPT_DATA` when it receives the connection. So it also
            // processes the calls that are already in the queue.
            // SAFETY: By this function's contract the transport is valid.
            unsafe { bindings::svcrdma_set_flag(xprt.as_ptr(), bindings::XPT_DATA) };
        }
        if state.closing {
            // SAFETY: By this function's contract the transport is valid.
            unsafe { bindings::svcrdma_set_flag(xprt.as_ptr(), bindings::XPT_CLOSE) };
        }
        // INVARIANT: By this function's contract the transport is valid. If calls wait, the code
        // above has set `XPT_DATA`.
        state.xprt = Xprt::Open(xprt);
    }

    /// Takes the oldest call from the queue.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Arrived<S>> {
        let mut state = self.0 .0.state.lock();
        let call = state.calls.pop();
        if let (Xprt::Open(xprt), true) = (state.xprt, state.calls.is_empty()) {
            // `XPT_DATA` is changed under the lock, so that the flag is set whenever a call waits.
            // The flag is cleared when the last call is taken, so that no thread is woken without a
            // call.
            // SAFETY: By the type invariant the transport is valid as long as the lock is held.
            unsafe { bindings::svcrdma_clear_flag(xprt.as_ptr(), bindings::XPT_DATA) };
        }
        call
    }

    /// Removes the waiting calls and returns them, and refuses all later calls. Afterwards the
    /// inbox does not use the transport any more. Does not sleep.
    pub(crate) fn detach(&self) -> Queue<S> {
        let mut state = self.0 .0.state.lock();
        state.xprt = Xprt::Detached;
        state.calls.take()
    }
}

impl<S: Service> Drop for InboxOwner<S> {
    fn drop(&mut self) {
        // The lock is not held when the calls are dropped, because dropping a call may take other
        // locks, and sleep.
        drop(self.detach());
    }
}

impl<S: Service> Inbox<S> {
    /// Adds a call, and wakes a thread of the RPC server, which takes the call. If the RPC server
    /// has forgotten the connection, returns the call, to which no reply can be sent. Does not
    /// sleep.
    #[inline(always)]
    pub fn push(&self, call: Arrived<S>) -> Result<(), Arrived<S>> {
        let mut state = self.0.state.lock();
        match state.xprt {
            Xprt::Open(xprt) => {
                state.calls.push(call);
                // INVARIANT: A call waits, and the called function sets `XPT_DATA`.
                // SAFETY: By the type invariant the transport is valid as long as the lock is held.
                // The called function may be used in any context.
                unsafe { bindings::svcrdma_call_arrived(xprt.as_ptr()) };
            }
            Xprt::Unknown => state.calls.push(call),
            Xprt::Detached => return Err(call),
        }
        Ok(())
    }

    /// Wakes a thread of the RPC server, which then closes the connection. Process context; does
    /// not sleep.
    pub fn close(&self) {
        let mut state = self.0.state.lock();
        state.closing = true;
        if let Xprt::Open(xprt) = state.xprt {
            // SAFETY: By the type invariant the transport is valid as long as the lock is held. The
            // called function may be used in any context.
            unsafe { bindings::svc_xprt_deferred_close(xprt.as_ptr()) };
        }
    }
}
