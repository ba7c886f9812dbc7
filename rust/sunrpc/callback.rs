// SPDX-License-Identifier: GPL-2.0

//! Callbacks ([`Callback`]): requests that the server sends on the client's connection, and this
//! host's replies (RFC 8167).

use crate::{
    backchannel::{
        BcSlot,
        PutWork, //
    },
    transport::Transport,
    xdr_buf::XdrBytes,
    xprt::Xprt, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// A reference to a transport, held while a callback is delivered to the transport.
///
/// # Invariants
///
/// The transport's reference count includes this value.
struct Delivery<'a, T: Transport>(&'a Xprt<T>);

impl<'a, T: Transport> Delivery<'a, T> {
    /// Takes a reference. Returns `None` if no user holds a reference to the transport any more.
    fn new(xprt: &'a Xprt<T>) -> Option<Self> {
        // SAFETY: The transport's memory is valid. The callee takes no reference if the count is
        // zero.
        let counted = unsafe { bindings::xprt_get(xprt.as_raw()) };
        // INVARIANT: If `xprt_get` returned a pointer, it has taken the reference that this value
        // holds.
        (!counted.is_null()).then(|| Self(xprt))
    }
}

impl<T: Transport> Drop for Delivery<'_, T> {
    /// Drops the reference to the transport. Does not sleep.
    ///
    /// If all users of the transport have dropped their references, this reference is the last one.
    /// In this case [`PutWork`] drops the reference, because the drop could deadlock in this
    /// thread. The drop of the last reference waits for the send lock. The thread that holds the
    /// send lock may wait for the completion handler that runs this code.
    fn drop(&mut self) {
        let raw = self.0.as_raw();
        // SAFETY: By the type invariant `self` owns a reference. The called function drops the
        // reference unless it is the last reference.
        if unsafe { bindings::xprtrdma_put_unless_last(raw) } {
            return;
        }
        if let Some(put_work) = self.0.inner.backchannel.put_work() {
            // SAFETY: By the type invariant `self` owns a reference, and this reference is the last
            // one.
            unsafe { put_work.put_last() };
        }
    }
}

impl<T: Transport> Xprt<T> {
    /// Creates the slots for callbacks unless they exist. May sleep.
    pub(crate) fn setup_callbacks(&self) -> Result {
        // SAFETY: The pointer points to this transport, which is not freed while references to it
        // exist.
        self.inner.backchannel.setup(|| unsafe {
            PutWork::new(NonNull::new_unchecked(self.as_raw()), self.common().clone())
        })
    }

    /// Frees the slot of a callback whose reply was sent or dropped.
    ///
    /// # Safety
    ///
    /// `rqst` was delivered by [`Xprt::deliver_callback`], and this function is called once for it.
    pub(crate) unsafe fn free_callback(rqst: *mut bindings::rpc_rqst) {
        // SAFETY: By the caller's contract the request is valid. The delivery took a reference to
        // the transport.
        let raw = unsafe { (*rqst).rq_xprt };
        // SAFETY: The transport is of class `T`, and the delivery's reference keeps it alive.
        let xprt = unsafe { Self::from_raw(NonNull::new_unchecked(raw)) };
        // SAFETY: `deliver_callback` made this pointer from the box with `KBox::into_raw`.
        let slot = unsafe { KBox::from_raw(rqst.cast::<BcSlot>()) };
        xprt.inner.backchannel.put(slot);
        // Usually the callback service calls this function, and the dropped reference may be the
        // last one. If `deliver_callback` calls this function, the dropped reference is not the
        // last one, because the `Delivery` of `deliver_callback` owns another reference.
        // SAFETY: This drops the reference that `xprt_enqueue_bc_request` took.
        unsafe { bindings::xprt_put(raw) };
    }

    /// Returns whether callbacks can be delivered to the transport.
    pub fn has_callbacks(&self) -> bool {
        // A transport without users accepts no callbacks. No task waits for these callbacks, and
        // the delivery of a callback must not become the only user of the transport. The last user
        // may drop its reference at any time, so the result may already be outdated when this
        // function returns.
        self.inner.backchannel.is_ready() && !self.is_dying()
    }

    /// Passes a request of the server to the callback service. Does not sleep. Returns an error in
    /// these cases:
    /// - `EBUSY`: The connection already has the maximum number of requests in service (MAL-111).
    /// - `EMSGSIZE`: The request is longer than a page or shorter than 8 bytes.
    /// - `ENODEV`: Callbacks are not set up, or the transport is being destroyed.
    pub fn deliver_callback(&self, message: &[u8]) -> Result {
        if message.len() > PAGE_SIZE || message.len() < 8 {
            return Err(EMSGSIZE);
        }
        // If the callback slots exist, the work item `PutWork` exists too.
        if !self.inner.backchannel.is_ready() {
            return Err(ENODEV);
        }
        // This reference to the transport is held until the function returns. So if the RPC client
        // drops its own reference during this time, that reference is not the last one.
        let _delivery = Delivery::new(self).ok_or(ENODEV)?;
        let mut slot = self
            .inner
            .backchannel
            .take(self.connect_cookie())
            .ok_or(EBUSY)?;
        let (call, reply) = slot.buffers()?;
        let rqst = slot.rqst.get();
        // SAFETY: This thread owns the slot. Each of the two buffers is a page long.
        unsafe {
            ptr::write_bytes(rqst, 0, 1);
            ptr::copy_nonoverlapping(message.as_ptr(), call.cast(), message.len());
            let rqst = &mut *rqst;
            rqst.rq_xprt = self.as_raw();
            // CAST: The transaction id stays in network byte order.
            rqst.rq_xid = ptr::read_unaligned(message.as_ptr().cast());
            rqst.rq_bc_pa_state = 1 << bindings::RPC_BC_PA_IN_USE;
            // A value of 1 tells the RPC client that the request has a forward credit. So the RPC
            // client queues the reply before requests that wait for a credit, and sends it while
            // they wait (BC-03). `release_request` resets the field.
            rqst.rq_cong = 1;
            rqst.rq_rcv_buf.head[0].iov_base = call;
            rqst.rq_rcv_buf.head[0].iov_len = message.len();
            rqst.rq_rcv_buf.len = message.len() as u32;
            rqst.rq_rcv_buf.buflen = message.len() as u32;
            ptr::copy_nonoverlapping(&rqst.rq_rcv_buf, &mut rqst.rq_private_buf, 1);
            rqst.rq_snd_buf.head[0].iov_base = reply;
            rqst.rq_snd_buf.buflen = PAGE_SIZE as u32;
        }
        let rqst = KBox::into_raw(slot).cast::<bindings::rpc_rqst>();
        // SAFETY: The callback request is complete. The RPC client takes a reference to the
        // transport, and later passes the request to `bc_free_rqst`.
        unsafe {
            bindings::xprtrdma_count_callback(self.as_raw());
            bindings::xprt_enqueue_bc_request(rqst);
        }
        Ok(())
    }
}

/// Returns whether a request is a callback, as opposed to a call that this host sends.
///
/// # Safety
///
/// `rqst` is valid.
#[inline]
pub(crate) unsafe fn is_callback(rqst: *const bindings::rpc_rqst) -> bool {
    // SAFETY: By the caller's contract `rqst` is valid. The flag is constant while the request
    // exists.
    let state = unsafe { (*rqst).rq_bc_pa_state };
    state & (1 << bindings::RPC_BC_PA_IN_USE) != 0
}

/// A callback whose reply is to be sent.
///
/// # Invariants
///
/// The callback was delivered, and its reply is encoded. Neither the callback nor the reply changes
/// during `'a`.
pub struct Callback<'a>(&'a BcSlot);

impl Callback<'_> {
    /// # Safety
    ///
    /// `rqst` was delivered by [`Xprt::deliver_callback`], and its reply is encoded.
    pub(crate) unsafe fn new(rqst: *mut bindings::rpc_rqst) -> Self {
        // SAFETY: By the caller's contract the request is in a slot, at offset 0.
        Self(unsafe { &*rqst.cast::<BcSlot>() })
    }

    pub(crate) fn slot(&self) -> &BcSlot {
        self.0
    }

    /// Returns the server's transaction id, in host byte order.
    pub fn xid(&self) -> u32 {
        // SAFETY: By the type invariant the request is valid.
        u32::from_be(unsafe { (*self.0.rqst.get()).rq_xid })
    }

    /// Returns the encoded reply.
    pub fn reply(&self) -> XdrBytes<'_> {
        // SAFETY: By the type invariant the reply does not change during `'a`.
        unsafe { XdrBytes::from_raw(&raw const (*self.0.rqst.get()).rq_snd_buf) }
    }

    /// Returns whether the callback arrived on the current connection. A reply must not be sent on
    /// any other connection (BC-27).
    pub fn came_on_this_connection<T: Transport>(&self, xprt: &Xprt<T>) -> bool {
        self.0.cookie == xprt.connect_cookie()
    }
}
