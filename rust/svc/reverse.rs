// SPDX-License-Identifier: GPL-2.0

//! Calls from services of the server to a client, on the client's own connection ([`Line`]).
//!
//! nfsd creates an RPC client whose transport uses an existing connection. Such a transport cannot
//! connect, and closes when the connection ends.
//!
//! nfsd holds references to the transport and to the connection, so either of the two may be freed
//! first. Therefore neither of the two refers to the other directly. Instead the transport and the
//! connection refer to the [`Line`].

mod ops;

use crate::{
    reply::Encoded,
    service::Service, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};
use xprtrdma_base::{
    new_spinlock,
    spin::SpinLock, //
};
use xprtrdma_bindings as bindings;

pub(crate) use ops::make;

/// Why a call to a client was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The send queue has no space, or the client accepts no more calls at present. The RPC client
    /// retries the call.
    Busy,
    /// The call is longer than the limit for calls to this client. The call fails.
    TooLong,
    /// The connection is lost. All calls on the connection fail.
    Closed,
}

/// A call that is to be sent to a client.
pub struct Outgoing<'a> {
    /// The transaction id of the call, in host order.
    pub xid: u32,
    /// The encoded call.
    pub message: Encoded<'a>,
}

/// Links a connection with the transport through which services of the RPC server send calls to the
/// client.
pub struct Line<S: Service>(Arc<Shared<S>>);

/// The owner of a [`Line`]. The owner cannot be cloned, so no two connections use the same
/// [`Line`].
pub struct LineOwner<S: Service>(Line<S>);

impl<S: Service> Clone for Line<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[pin_data]
struct Shared<S: Service> {
    #[pin]
    state: SpinLock<State<S>>,
}

/// # Invariants
///
/// `xprt` holds a reference to the transport.
struct State<S: Service> {
    xprt: Option<NonNull<bindings::rpc_xprt>>,
    /// The sender of calls. `None` before the transport was created, and after the connection has
    /// ended.
    sender: Option<S::Sender>,
    /// Whether the connection has ended, so that no calls can be sent any more.
    ended: bool,
}

// SAFETY: Any thread may call the functions that take the transport.
unsafe impl<S: Service> Send for State<S> {}

/// A transport that sends calls on a connection.
///
/// # Invariants
///
/// The transport was allocated by `xprt_alloc`, with `xprt` at offset 0.
#[repr(C)]
struct ReverseXprt<S: Service> {
    xprt: Opaque<bindings::rpc_xprt>,
    line: Line<S>,
}

impl<S: Service> LineOwner<S> {
    /// Creates a [`Line`] that no service uses yet. May sleep.
    pub fn new() -> Result<Self> {
        let state = State {
            xprt: None,
            sender: None,
            ended: false,
        };
        let shared = pin_init!(Shared {
            state <- new_spinlock!(state, "Line::state"),
        });
        Ok(Self(Line(Arc::pin_init(shared, GFP_KERNEL)?)))
    }

    /// Returns a reference to the [`Line`], for the code that receives replies.
    pub fn handle(&self) -> Line<S> {
        self.0.clone()
    }

    /// Ends the [`Line`] because the connection has ended. Afterwards no further calls are sent,
    /// and the calls in flight fail. May sleep.
    pub(crate) fn end(&self) {
        let mut state = self.0 .0.state.lock();
        state.ended = true;
        let sender = state.sender.take();
        if let Some(xprt) = state.xprt {
            // SAFETY: By the type invariant, the transport is valid as long as the lock is held.
            unsafe { bindings::xprt_disconnect_done(xprt.as_ptr()) };
        }
        drop(state);
        // The lock is not held during this drop, because the drop may free other objects as well.
        drop(sender);
    }

    /// Drops the reference to the transport, because the connection is about to be freed. May
    /// sleep.
    pub(crate) fn forget(&self) {
        let xprt = self.0 .0.state.lock().xprt.take();
        let Some(xprt) = xprt.map(NonNull::as_ptr) else {
            return;
        };
        // SAFETY: The [`Line`] holds a reference to the transport. The connection is about to be
        // freed, so no thread creates an RPC client on it. Another thread may read `bc_xprt` only
        // when root writes to the sysfs file `add_xprt`, and does not dereference the value.
        unsafe { ptr::write_volatile(&raw mut (*xprt).bc_xprt, ptr::null_mut()) };
        // SAFETY: By the type invariant, the [`Line`] holds this reference, which is dropped here.
        unsafe { bindings::xprt_put(xprt) };
    }
}

impl<S: Service> Line<S> {
    /// Passes a reply to the call with this transaction id. Returns false if no call waits for the
    /// reply. Otherwise sets the maximum number of calls in flight to the result of `window`.
    ///
    /// If the reply is longer than the call's buffer, the reply is truncated, and the sender of the
    /// call cannot decode the reply. Process context; does not sleep. `window` is called under a
    /// spin lock.
    pub fn reply(&self, xid: u32, message: &[u8], window: impl FnOnce() -> u32) -> bool {
        // The transport is not freed while the lock is held.
        let state = self.0.state.lock();
        let Some(xprt) = state.xprt else {
            return false;
        };
        // SAFETY: By the type invariant, the transport is valid as long as the lock on the state is
        // held.
        let (queue, transport) = unsafe {
            let raw = xprt.as_ptr();
            (
                SpinLock::from_raw(&raw mut (*raw).queue_lock),
                SpinLock::from_raw(&raw mut (*raw).transport_lock),
            )
        };
        let (queue, transport): (&SpinLock<()>, &SpinLock<()>) = (queue, transport);

        let guard = queue.lock();
        // CAST: The id is an integer in network byte order.
        // SAFETY: The queue's lock is held.
        let rqst = unsafe { bindings::xprt_lookup_rqst(xprt.as_ptr(), xid.to_be()) };
        let Some(rqst) = NonNull::new(rqst) else {
            return false;
        };
        let rqst = rqst.as_ptr();
        // SAFETY: The queue's lock is held. The request was found above, and exists until it is
        // unpinned.
        unsafe { bindings::xprt_pin_rqst(rqst) };
        drop(guard);

        // SAFETY: The request is pinned and waits for its reply, so its memory exists. Only this
        // function completes requests, and it holds the lock of the [`Line`]. So no other thread
        // completes this request.
        let copied = unsafe { take_reply(rqst, message) };
        let calls = window();
        let guard = transport.lock();
        // SAFETY: The transport's lock is held.
        unsafe { (*xprt.as_ptr()).cwnd = (calls as usize) << WINDOW_SHIFT };
        drop(guard);

        let _guard = queue.lock();
        // SAFETY: The queue's lock is held, and the request is pinned.
        unsafe { bindings::xprt_complete_rqst((*rqst).rq_task, copied) };
        // SAFETY: The queue's lock is held. The request was pinned above.
        unsafe { bindings::xprt_unpin_rqst(rqst) };
        true
    }

    /// Returns the object that sends calls, or `None` if no calls can be sent.
    fn sender(&self) -> Option<S::Sender> {
        self.0.state.lock().sender.clone()
    }
}

/// Left shift that converts a number of calls to the RPC client's congestion window. Each call in
/// flight uses 256 units of the window.
const WINDOW_SHIFT: u32 = bindings::RPC_CWNDSCALE.trailing_zeros();

/// Copies a reply to the buffer in which the RPC client decodes the reply. Returns the number of
/// copied bytes.
///
/// # Safety
///
/// `rqst` is pinned and waits for its reply, and no other thread completes `rqst`.
unsafe fn take_reply(rqst: *mut bindings::rpc_rqst, message: &[u8]) -> c_int {
    // Every transport must copy `rq_rcv_buf` to `rq_private_buf`, because the RPC client compares
    // the two structures.
    // SAFETY: By this function's contract both buffers exist, and no other code uses the private
    // buffer.
    unsafe {
        ptr::copy_nonoverlapping(
            &raw const (*rqst).rq_rcv_buf,
            &raw mut (*rqst).rq_private_buf,
            1,
        );
    }
    // SAFETY: By this function's contract both buffers exist, and no other code uses the private
    // buffer.
    let head = unsafe { (*rqst).rq_private_buf.head[0] };
    let copied = message.len().min(head.iov_len);
    // SAFETY: The head has at least `copied` bytes. The message does not overlap the head.
    unsafe { ptr::copy_nonoverlapping(message.as_ptr(), head.iov_base.cast(), copied) };
    // CAST: An inline message has at most a few kilobytes.
    copied as c_int
}
