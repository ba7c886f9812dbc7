// SPDX-License-Identifier: GPL-2.0

//! An encoded request, for reading ([`Encoded`]).

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

/// An encoded request, for reading.
///
/// # Invariants
///
/// The request is encoded, unless it ends before that, and no other thread encodes it again or
/// releases it while the value exists.
pub struct Encoded<'a, T: Transport> {
    slot: &'a Slot<T>,
}

impl<'a, T: Transport> Encoded<'a, T> {
    /// # Safety
    ///
    /// The type invariant must hold for `'a`.
    pub(crate) unsafe fn new(slot: &'a Slot<T>) -> Self {
        Self { slot }
    }

    pub(crate) fn rqst(&self) -> *mut bindings::rpc_rqst {
        self.slot.rqst.get()
    }

    /// The slot with the driver's data.
    #[inline]
    pub fn slot(&self) -> &'a Slot<T> {
        self.slot
    }

    /// The transaction id, in host order.
    #[inline]
    pub fn xid(&self) -> u32 {
        // SAFETY: Valid by the type invariant; constant while the request is encoded.
        u32::from_be(unsafe { (*self.rqst()).rq_xid })
    }

    /// Whether the server could not foresee the transaction id.
    #[inline]
    pub fn has_secret_xid(&self) -> bool {
        // SAFETY: As above.
        Xids::is_secret(unsafe { (*self.rqst()).rq_xid })
    }

    /// The encoded call.
    #[inline]
    pub fn message(&self) -> XdrBytes<'_> {
        // SAFETY: The type invariant implies that of the view.
        unsafe { XdrBytes::from_raw(&raw const (*self.rqst()).rq_snd_buf) }
    }

    /// The memory for the reply.
    #[inline]
    pub fn reply(&self) -> XdrBuf<'_> {
        // SAFETY: The type invariant implies that of the view.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_rcv_buf) }
    }

    /// Whether the security flavour allows data items to travel apart from the message (V1-119,
    /// V1-121).
    #[inline]
    pub fn ddp_allowed(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        let cred = unsafe { (*self.rqst()).rq_cred };
        // A request that ends before it was encoded has no credential.
        if cred.is_null() {
            return false;
        }
        // SAFETY: A credential has an authenticator.
        let flags = unsafe { (*(*cred).cr_auth).au_flags };
        flags & (1 << bindings::RPCAUTH_AUTH_DATATOUCH) == 0
    }

    /// Whether a reply is expected: `rpc_reply_expected()`, without the call of a helper function.
    #[inline]
    pub fn reply_expected(&self) -> bool {
        // SAFETY: The request has a task until it is released, and the task its procedure, if any.
        unsafe {
            let procedure = (*(*self.rqst()).rq_task).tk_msg.rpc_proc;
            !procedure.is_null() && (*procedure).p_decode.is_some()
        }
    }

    /// How long the timer of this request runs, or how long the timer that has just fired ran.
    pub fn timer_span(&self) -> Jiffies {
        // SAFETY: Valid by the type invariant.
        Jiffies(unsafe { (*self.rqst()).rq_timeout })
    }

    /// Whether this very request was already sent on the current connection: sending it twice
    /// there is forbidden (ULB-34).
    #[inline]
    pub fn sent_on_this_connection(&self, xprt: &Xprt<T>) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.rqst()).rq_connect_cookie == xprt.connect_cookie() }
    }
}
