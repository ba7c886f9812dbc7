// SPDX-License-Identifier: GPL-2.0

//! A read-only view of an encoded request ([`Encoded`]).

use crate::{
    slot::Slot,
    transport::Transport,
    util::Jiffies,
    xdr_buf::{
        XdrBuf, //
        XdrBytes,
    },
    xids::Xids,
    xprt::Xprt,
};
use xprtrdma_bindings as bindings;

/// A read-only view of an encoded request.
///
/// # Invariants
///
/// The request is encoded, except if it ended before it was encoded. While this value exists, no
/// other thread encodes the request again or releases the request.
pub struct Encoded<'a, T: Transport> {
    slot: &'a Slot<T>,
}

impl<'a, T: Transport> Encoded<'a, T> {
    /// # Safety
    ///
    /// The type invariant must hold during the lifetime `'a`.
    pub(crate) unsafe fn new(slot: &'a Slot<T>) -> Self {
        Self { slot }
    }

    pub(crate) fn rqst(&self) -> *mut bindings::rpc_rqst {
        self.slot.rqst.get()
    }

    /// Returns the slot, which contains the driver's data.
    #[inline]
    pub fn slot(&self) -> &'a Slot<T> {
        self.slot
    }

    /// Returns the transaction id, in host byte order.
    #[inline]
    pub fn xid(&self) -> u32 {
        // SAFETY: By the type invariant, the request is valid. The request's xid is constant while
        // the request is encoded.
        u32::from_be(unsafe { (*self.rqst()).rq_xid })
    }

    /// Returns whether the transaction id was unpredictable for the server.
    #[inline]
    pub fn has_secret_xid(&self) -> bool {
        // SAFETY: By the type invariant, the request is valid. The request's xid is constant while
        // the request is encoded.
        Xids::is_secret(unsafe { (*self.rqst()).rq_xid })
    }

    /// Returns the encoded call.
    #[inline]
    pub fn message(&self) -> XdrBytes<'_> {
        // SAFETY: The invariant of `Encoded` implies the invariant of `XdrBytes`.
        unsafe { XdrBytes::from_raw(&raw const (*self.rqst()).rq_snd_buf) }
    }

    /// Returns the memory for the reply.
    #[inline]
    pub fn reply(&self) -> XdrBuf<'_> {
        // SAFETY: The invariant of `Encoded` implies the invariant of `XdrBuf`.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_rcv_buf) }
    }

    /// Returns whether the security flavour allows data items to be sent separately from the
    /// message (V1-119, V1-121).
    #[inline]
    pub fn ddp_allowed(&self) -> bool {
        // SAFETY: By the type invariant, the pointer is valid.
        let cred = unsafe { (*self.rqst()).rq_cred };
        // A request that ended before it was encoded has no credential.
        if cred.is_null() {
            return false;
        }
        // SAFETY: A credential has an authenticator.
        let flags = unsafe { (*(*cred).cr_auth).au_flags };
        flags & (1 << bindings::RPCAUTH_AUTH_DATATOUCH) == 0
    }

    /// Returns whether a reply is expected. The result is the same as that of
    /// `rpc_reply_expected()`, but no C helper is called.
    #[inline]
    pub fn reply_expected(&self) -> bool {
        // SAFETY: The request has a task until the request is released. The task's pointer to its
        // procedure is null or valid.
        unsafe {
            let procedure = (*(*self.rqst()).rq_task).tk_msg.rpc_proc;
            !procedure.is_null() && (*procedure).p_decode.is_some()
        }
    }

    /// Returns the duration of this request's timer. The timer is running or has just expired.
    pub fn timer_span(&self) -> Jiffies {
        // SAFETY: By the type invariant, the pointer is valid.
        Jiffies(unsafe { (*self.rqst()).rq_timeout })
    }

    /// Returns whether this request was already sent on the current connection. A request must not
    /// be sent twice on the same connection (ULB-34).
    #[inline]
    pub fn sent_on_this_connection(&self, xprt: &Xprt<T>) -> bool {
        // SAFETY: By the type invariant, the pointer is valid.
        unsafe { (*self.rqst()).rq_connect_cookie == xprt.connect_cookie() }
    }
}
