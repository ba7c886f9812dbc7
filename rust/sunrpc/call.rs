// SPDX-License-Identifier: GPL-2.0

//! A request on its way out ([`Call`], and [`Encoded`] for reading it), while its task waits
//! ([`Waiting`]), and on its way in ([`Pinned`]).

mod encoded;
mod memory;
mod release;
mod reply;
mod wait;

pub use encoded::Encoded;
pub use reply::Pinned;
pub use wait::{
    Leaving,
    Waiting, //
};

pub(crate) use memory::{
    part_encodings,
    prepare_reply, //
};

use self::{
    memory::START_LEN,
    release::release_call, //
};
use crate::{
    lease::{
        Loan,
        Message, //
    },
    slot::Slot,
    transport::Transport,
    xdr_buf::Part,
    xprt::{
        xprt_of,
        Xprt, //
    },
};
use core::{
    ops::Deref,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed,
    types::NotThreadSafe, //
};
use xprtrdma_bindings as bindings;

/// A request that the holder of the send lock sends, perhaps on behalf of another task. Its methods
/// are what [`Transport::send`] may do with it. The reply can come while the request is being sent,
/// and end it.
///
/// # Invariants
///
/// As for [`Encoded`]; and there is one such value of a request at a time, in the hands of the
/// thread that holds the send lock.
pub struct Call<'a, T: Transport> {
    encoded: Encoded<'a, T>,
    _of_this_thread: NotThreadSafe,
}

impl<'a, T: Transport> Deref for Call<'a, T> {
    type Target = Encoded<'a, T>;

    #[inline]
    fn deref(&self) -> &Encoded<'a, T> {
        &self.encoded
    }
}

impl<'a, T: Transport> Call<'a, T> {
    /// # Safety
    ///
    /// The type invariant must hold for `'a`.
    pub(crate) unsafe fn new(slot: &'a Slot<T>) -> Self {
        Self {
            // SAFETY: By the caller's contract.
            encoded: unsafe { Encoded::new(slot) },
            _of_this_thread: NotThreadSafe,
        }
    }

    /// Makes the transaction ids of later calls of this procedure such that the server cannot
    /// foresee them ([`Encoded::has_secret_xid`]).
    #[cold]
    pub fn wants_secret_xid(&self, xprt: &Xprt<T>) {
        // SAFETY: A request that is sent has a task, which has a procedure.
        let procedure = unsafe { (*(*(*self.rqst()).rq_task).tk_msg.rpc_proc).p_statidx };
        xprt.inner.xids.include(procedure);
    }

    /// Takes one credit for the request unless it has one. Returns `false` if no credit is left;
    /// the RPC client sends the request again when there is one.
    #[inline]
    pub fn take_credit(&self, xprt: &Xprt<T>) -> bool {
        // SAFETY: The send lock is held.
        unsafe { bindings::xprt_request_get_cong(xprt.as_raw(), self.rqst()) }
    }

    /// Lends a part of the call or of the reply's memory. Returns `None` if a part is lent already
    /// and a reply is being processed; the call may be repeated later.
    #[inline]
    pub fn lend(&self, message: Message, part: Part) -> Option<Loan<'_, T>> {
        if message == Message::Call {
            // SAFETY: The request is being sent, so its task does not encode it now.
            let release = unsafe { (*self.rqst()).rq_release_snd_buf };
            if let Some(release) = release {
                self.delay_release(release);
            }
        }
        // SAFETY: The type invariant, for the request was queued before it is sent. The thread
        // that ends it waits for leases.
        unsafe { Loan::new(self.slot(), message, part) }
    }

    /// Delays the release of the call's pages. They belong to its security flavour, which frees
    /// them through `release` whenever the request is encoded again; from now on that waits for the
    /// leases.
    #[cold]
    fn delay_release(&self, release: unsafe extern "C" fn(*mut bindings::rpc_rqst)) {
        // SAFETY: Only we send the request, and its task does not encode it now.
        let before = unsafe { &mut *self.slot().release.get() };
        // If it is set, `release` is ours already.
        if before.is_none() {
            *before = Some(release);
            // SAFETY: As in `lend`.
            unsafe { (*self.rqst()).rq_release_snd_buf = Some(release_call::<T>) };
        }
    }

    /// Zeroes the bytes that [`Pinned::placed_start`] reads, so that nothing old can be taken for a
    /// reply (V1-070). `EBUSY` while memory is lent: it belongs to the device then, and the zeroes
    /// could overwrite the reply. `EAGAIN` if a reply came before the request was sent.
    #[inline(never)]
    pub fn clear_reply(&self) -> Result {
        // Only the caller could lend it.
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        // SAFETY: Valid by the type invariant.
        let _queue = unsafe { xprt_of::<T>(self.rqst()) }.queue_lock().lock();
        // SAFETY: The lock is held, and the RPC client has pinned what it sends.
        if unsafe { *self.slot().pinned.get() || !RunState::of(self.rqst()).is_pending() } {
            return Err(EAGAIN);
        }
        if self.reply().head_len() >= START_LEN {
            // SAFETY: The head has that many bytes. While the lock is held no thread looks the
            // request up. Without a look-up no thread writes there or wakes the task, which would
            // read.
            unsafe { memory::clear_start(&raw mut (*self.rqst()).rq_rcv_buf) };
        }
        Ok(())
    }

    /// Ends the request with an error, as [`Pinned::fail`] does. `EBUSY` while memory is lent.
    #[cold]
    pub fn fail(&self, error: Error) -> Result {
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        self.slot().verdict.store(error.to_errno(), Relaxed);
        // SAFETY: Valid by the type invariant.
        let _queue = unsafe { xprt_of::<T>(self.rqst()) }.queue_lock().lock();
        // SAFETY: The lock is held, and the RPC client has pinned what it sends.
        unsafe {
            if RunState::of(self.rqst()).is_pending() {
                fail_pending(self.rqst(), error);
            }
        }
        Ok(())
    }
}

/// The state of a request's task, with what it waits for.
#[derive(Clone, Copy)]
struct RunState(c_ulong);

impl RunState {
    /// Reads the state of the task of `rqst`.
    ///
    /// # Safety
    ///
    /// The queue lock is held, under which what can be asked here changes, and the request pinned.
    #[inline]
    unsafe fn of(rqst: *mut bindings::rpc_rqst) -> Self {
        // SAFETY: By the caller's contract its task exists.
        Self(unsafe { ptr::read_volatile(&raw const (*(*rqst).rq_task).tk_runstate) })
    }

    /// Whether the task waits for the reply. A request can be completed once; a second reply has no
    /// effect.
    #[inline]
    fn is_pending(self) -> bool {
        self.0 & (1 << bindings::RPC_TASK_NEED_RECV) != 0
    }

    /// Whether the task waits for the last pin of the request.
    #[inline]
    fn is_awaited(self) -> bool {
        self.0 & (1 << bindings::RPC_TASK_MSG_PIN_WAIT) != 0
    }
}

/// Ends a pending request with an error.
///
/// # Safety
///
/// As for [`RunState::of`].
unsafe fn fail_pending(rqst: *mut bindings::rpc_rqst, error: Error) {
    // SAFETY: By the caller's contract its task exists.
    unsafe {
        (*(*rqst).rq_task).tk_status = error.to_errno();
        // If the task is not asleep yet, it takes this for the loss of a connection. The cookie
        // makes it one that does not exist any more.
        (*rqst).rq_connect_cookie = (*(*rqst).rq_xprt).connect_cookie.wrapping_sub(1);
        bindings::xprt_complete_rqst((*rqst).rq_task, 0);
    }
}
