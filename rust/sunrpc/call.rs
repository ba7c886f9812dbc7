// SPDX-License-Identifier: GPL-2.0

//! Views of a request in three phases:
//!
//! * while the request is sent: [`Call`], with the read-only view [`Encoded`]
//! * while its task waits for the reply: [`Waiting`]
//! * while its reply is processed: [`Pinned`]

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
    slot::{
        fail_pending,
        Slot, //
    },
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
    types::NotThreadSafe, //
};
use xprtrdma_bindings as bindings;

/// A request that the holder of the send lock sends, perhaps on behalf of another task. The methods
/// of this type are the operations that [`Transport::send`] may use on the request. The reply can
/// arrive and end the request while the request is still being sent.
///
/// # Invariants
///
/// The invariants of [`Encoded`] hold. At any time at most one `Call` exists for a request, and the
/// thread that holds the send lock owns it.
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
            // SAFETY: By this function's contract the type invariant holds for `'a`. The invariant
            // of `Encoded` is a part of it.
            encoded: unsafe { Encoded::new(slot) },
            _of_this_thread: NotThreadSafe,
        }
    }

    /// Requests that later calls of the same procedure use transaction ids that the server cannot
    /// foresee ([`Encoded::has_secret_xid`]).
    #[cold]
    pub fn wants_secret_xid(&self, xprt: &Xprt<T>) {
        // SAFETY: A request that is being sent has a task, and the task has a procedure.
        let procedure = unsafe { (*(*(*self.rqst()).rq_task).tk_msg.rpc_proc).p_statidx };
        xprt.inner.xids.include(procedure);
    }

    /// Takes one credit for the request unless the request already has one. Returns `false` if no
    /// credit is left. In this case the RPC client tries to send the request again as soon as a
    /// credit is free.
    #[inline]
    pub fn take_credit(&self, xprt: &Xprt<T>) -> bool {
        // SAFETY: The caller holds the send lock, as a `Call` exists only under that lock.
        unsafe { bindings::xprt_request_get_cong(xprt.as_raw(), self.rqst()) }
    }

    /// Lends a part of the call, or a part of the memory for the reply. Returns `None` if two
    /// conditions hold: memory of the request is already lent, and another thread is processing a
    /// reply to the request. The caller may try again later.
    #[inline]
    pub fn lend(&self, message: Message, part: Part) -> Option<Loan<'_, T>> {
        // With patch 0005 of `Documentation/upstream`, the release need not be delayed: the RPC
        // client then calls `reclaim_request` before it frees the call's pages.
        if message == Message::Call && !cfg!(xprtrdma_upstream) {
            // SAFETY: The request is being sent, so its task does not encode it at the same time.
            let release = unsafe { (*self.rqst()).rq_release_snd_buf };
            if let Some(release) = release {
                self.delay_release(release);
            }
        }
        // SAFETY: By the type invariant the request is encoded, and it was queued before it was
        // sent. The request is not released until its leases have ended.
        unsafe { Loan::new(self.slot(), message, part) }
    }

    /// Delays the release of the call's pages until the leases of the request have ended. The
    /// security flavour owns the pages, and frees them with the function `release` when the request
    /// is encoded again.
    #[cold]
    fn delay_release(&self, release: unsafe extern "C" fn(*mut bindings::rpc_rqst)) {
        // SAFETY: Only this thread sends the request, and the request's task does not encode the
        // request now.
        let before = unsafe { &mut *self.slot().release.get() };
        // If `before` is set, this method has already replaced the release function by
        // `release_call`.
        if before.is_none() {
            *before = Some(release);
            // SAFETY: The request is being sent, so its task does not encode it at the same time.
            unsafe { (*self.rqst()).rq_release_snd_buf = Some(release_call::<T>) };
        }
    }

    /// Zeroes the bytes that [`Pinned::placed_start`] reads, so that old bytes cannot be mistaken
    /// for a reply (V1-070). Returns `EAGAIN` if a reply has arrived already. Returns `EBUSY` while
    /// memory of the request is lent: the device may be writing the reply into this memory, and the
    /// zeroes could overwrite the reply.
    #[inline(never)]
    pub fn clear_reply(&self) -> Result {
        // No other thread can lend memory of this request now.
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        // SAFETY: By the type invariant the pointer is valid.
        let _queue = unsafe { xprt_of::<T>(self.rqst()) }.queue_lock().lock();
        // SAFETY: The queue lock is held. The RPC client pins a request while it is sent.
        if unsafe { *self.slot().pinned.get() || !RunState::of(self.rqst()).is_pending() } {
            return Err(EAGAIN);
        }
        if self.reply().head_len() >= START_LEN {
            // SAFETY: The head has at least `START_LEN` bytes. While the queue lock is held no
            // other thread looks the request up. So no other thread writes a reply into the head.
            // The task, which would read the bytes, is not woken either.
            unsafe { memory::clear_start(&raw mut (*self.rqst()).rq_rcv_buf) };
        }
        Ok(())
    }

    /// Ends the request with an error, as [`Pinned::fail`] does. Returns `EBUSY` if memory of the
    /// request is lent to the peer.
    #[cold]
    pub fn fail(&self, error: Error) -> Result {
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        self.slot().verdict.set(error);
        // SAFETY: By the type invariant the pointer is valid.
        let _queue = unsafe { xprt_of::<T>(self.rqst()) }.queue_lock().lock();
        // SAFETY: The queue lock is held. The RPC client pins a request while it is sent.
        unsafe {
            if RunState::of(self.rqst()).is_pending() {
                fail_pending(self.rqst(), error);
            }
        }
        Ok(())
    }
}

/// The run state of a request's task, which tells what the task waits for.
#[derive(Clone, Copy)]
struct RunState(c_ulong);

impl RunState {
    /// Reads the state of the task of `rqst`.
    ///
    /// # Safety
    ///
    /// The request is pinned, and the caller holds the queue lock. The methods of `RunState` test
    /// bits that change only under this lock.
    #[inline]
    unsafe fn of(rqst: *mut bindings::rpc_rqst) -> Self {
        // SAFETY: By the caller's contract the request is pinned, so its task exists.
        Self(unsafe { ptr::read_volatile(&raw const (*(*rqst).rq_task).tk_runstate) })
    }

    /// Returns whether the task still waits for the reply. If not, the request must not be
    /// completed, because a request is completed only once.
    #[inline]
    fn is_pending(self) -> bool {
        self.0 & (1 << bindings::RPC_TASK_NEED_RECV) != 0
    }

    /// Returns whether the task waits until the request is no longer pinned.
    #[inline]
    fn is_awaited(self) -> bool {
        self.0 & (1 << bindings::RPC_TASK_MSG_PIN_WAIT) != 0
    }
}
