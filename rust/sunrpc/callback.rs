// SPDX-License-Identifier: GPL-2.0

//! Requests of the server on the same connection, and our replies to them ([`Callback`]), RFC 8167.

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

/// A reference to a transport that is held while a callback is delivered to it.
///
/// # Invariants
///
/// The transport counts this value.
struct Delivery<'a, T: Transport>(&'a Xprt<T>);

impl<'a, T: Transport> Delivery<'a, T> {
    /// `None`: the last user of the transport has gone.
    fn new(xprt: &'a Xprt<T>) -> Option<Self> {
        // SAFETY: The transport's memory is valid. The callee takes no reference if the count is
        // zero.
        let counted = unsafe { bindings::xprt_get(xprt.as_raw()) };
        // INVARIANT: Counted just now.
        (!counted.is_null()).then(|| Self(xprt))
    }
}

impl<T: Transport> Drop for Delivery<'_, T> {
    /// Does not sleep: the last user of the transport may have gone in the meantime, but then the
    /// last reference is left to [`PutWork`]. Its put waits for the send lock, whose holder may be
    /// waiting for us, the completion handler.
    fn drop(&mut self) {
        let raw = self.0.as_raw();
        // SAFETY: This gives the reference of `self` back, by the type invariant, if there are
        // others.
        if unsafe { bindings::xprtrdma_put_unless_last(raw) } {
            return;
        }
        if let Some(put_work) = self.0.inner.backchannel.put_work() {
            // SAFETY: The reference of `self`, by the type invariant, and there is no other.
            unsafe { put_work.put_last() };
        }
    }
}

impl<T: Transport> Xprt<T> {
    /// Makes the slots for callbacks, once. Sleeps.
    pub(crate) fn setup_callbacks(&self) -> Result {
        // SAFETY: It is the address of this transport, whose references its end waits for.
        self.inner.backchannel.setup(|| unsafe {
            PutWork::new(NonNull::new_unchecked(self.as_raw()), self.common().clone())
        })
    }

    /// Takes back a callback whose reply was sent or dropped.
    ///
    /// # Safety
    ///
    /// `rqst` was delivered by [`Xprt::deliver_callback`] and is given back once.
    pub(crate) unsafe fn free_callback(rqst: *mut bindings::rpc_rqst) {
        // SAFETY: By the caller's contract; the delivery took a reference to the transport.
        let raw = unsafe { (*rqst).rq_xprt };
        // SAFETY: As above.
        let xprt = unsafe { Self::from_raw(NonNull::new_unchecked(raw)) };
        // SAFETY: The slot was turned into a raw pointer by the delivery.
        let slot = unsafe { KBox::from_raw(rqst.cast::<BcSlot>()) };
        xprt.inner.backchannel.put(slot);
        // Usually this is the callback service, which may drop the last reference. If it is the
        // delivery itself, that has another reference.
        // SAFETY: The reference that the delivery took.
        unsafe { bindings::xprt_put(raw) };
    }

    /// Whether callbacks can be delivered.
    pub fn has_callbacks(&self) -> bool {
        // A delivery must not become the only user of a transport, and without users no task waits
        // for its callbacks. The answer may be out of date at once: the last user may go.
        self.inner.backchannel.is_ready() && !self.is_dying()
    }

    /// Hands a request of the server to the callback service. `EBUSY`: the connection has as many
    /// requests in service as are allowed (MAL-111); `EMSGSIZE`: the request is longer than
    /// [`Transport::callback_size`] allows; `ENODEV`: callbacks are not expected, or not any more.
    /// Does not sleep.
    pub fn deliver_callback(&self, message: &[u8]) -> Result {
        if message.len() > PAGE_SIZE || message.len() < 8 {
            return Err(EMSGSIZE);
        }
        // `PutWork` exists as soon as there are slots.
        if !self.inner.backchannel.is_ready() {
            return Err(ENODEV);
        }
        // Held until the end, so that the RPC client's own reference is not the last.
        let _delivery = Delivery::new(self).ok_or(ENODEV)?;
        let mut slot = self
            .inner
            .backchannel
            .take(self.connect_cookie())
            .ok_or(EBUSY)?;
        let (call, reply) = slot.buffers()?;
        let rqst = slot.rqst.get();
        // SAFETY: The slot is ours. The buffers have a page each.
        unsafe {
            ptr::write_bytes(rqst, 0, 1);
            ptr::copy_nonoverlapping(message.as_ptr(), call.cast(), message.len());
            let rqst = &mut *rqst;
            rqst.rq_xprt = self.as_raw();
            // CAST: The id stays in network order.
            rqst.rq_xid = ptr::read_unaligned(message.as_ptr().cast());
            rqst.rq_bc_pa_state = 1 << bindings::RPC_BC_PA_IN_USE;
            // To the RPC client this means that the request has its forward credit. So the reply is
            // queued before requests that wait for a credit, and the queue moves although they wait
            // (BC-03). `release_request` sets it back.
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
        // SAFETY: A complete callback request. The callee takes a reference to the transport and
        // gives the request back through `bc_free_rqst` sooner or later.
        unsafe {
            bindings::xprtrdma_count_callback(self.as_raw());
            bindings::xprt_enqueue_bc_request(rqst);
        }
        Ok(())
    }
}

/// Whether a request is a callback, not a call of ours.
///
/// # Safety
///
/// `rqst` is valid.
#[inline]
pub(crate) unsafe fn is_callback(rqst: *const bindings::rpc_rqst) -> bool {
    // SAFETY: By the caller's contract; constant for the request's life.
    let state = unsafe { (*rqst).rq_bc_pa_state };
    state & (1 << bindings::RPC_BC_PA_IN_USE) != 0
}

/// A callback whose reply is to be sent.
///
/// # Invariants
///
/// The call was delivered, its reply is encoded, and both stay as they are for `'a`.
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

    /// The server's transaction id, in host order.
    pub fn xid(&self) -> u32 {
        // SAFETY: By the type invariant.
        u32::from_be(unsafe { (*self.0.rqst.get()).rq_xid })
    }

    /// The encoded reply.
    pub fn reply(&self) -> XdrBytes<'_> {
        // SAFETY: The reply stays as it is until it is sent.
        unsafe { XdrBytes::from_raw(&raw const (*self.0.rqst.get()).rq_snd_buf) }
    }

    /// Whether the request came on the current connection: a reply never goes out on another
    /// one (BC-27).
    pub fn came_on_this_connection<T: Transport>(&self, xprt: &Xprt<T>) -> bool {
        self.0.cookie == xprt.connect_cookie()
    }
}
