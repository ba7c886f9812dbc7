// SPDX-License-Identifier: GPL-2.0

//! Requests of the server on the same connection ([`Backchannel`]), RFC 8167.
//!
//! A callback has a slot of its own from delivery until the callback service lets go of it. The
//! slots are made when the upper layer sets its callback service up and live as long as the
//! transport. There are twice as many as a connection may use: the server's credits begin anew with
//! each connection (BC-19), while callbacks of the last one may still be served; and with the reply
//! the server has its credit back, before the service has let go.

use crate::{
    common::Common,
    slot::TaskBuf,
    transport::Transport,
    xdr_buf::Octets,
    xprt::Xprt, //
};
use core::{
    marker::PhantomData,
    ptr::{self, NonNull}, //
};
use kernel::{
    impl_has_work, new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        SpinLock, //
    },
    types::Opaque,
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    },
};
use xprtrdma_bindings as bindings;

/// One callback slot.
///
/// # Invariants
///
/// While the slot is free, nobody refers to `rqst`.
#[repr(C)]
pub(crate) struct BcSlot {
    rqst: Opaque<bindings::rpc_rqst>,
    /// The connection that the call came on; the RPC client overwrites the request's own record.
    cookie: u32,
    /// Whether it counts as served; changed under the lock of the slots.
    counted: Atomic<bool>,
    call: TaskBuf,
    reply: TaskBuf,
}

// SAFETY: Owned memory; used by one owner at a time.
unsafe impl Send for BcSlot {}

/// The free slots, and how many callbacks a connection has.
struct Slots {
    free: KVec<KBox<BcSlot>>,
    farewell: Option<Arc<Farewell>>,
    /// The connection that the last callback came on, and how many of its callbacks have not been
    /// answered.
    cookie: u32,
    served: u16,
}

impl Slots {
    /// The server may send another in the place of this callback, whichever connection it came on.
    fn uncount(&mut self, slot: &BcSlot) {
        if slot.counted.xchg(false, Relaxed) && self.cookie == slot.cookie {
            self.served = self.served.saturating_sub(1);
        }
    }
}

/// Gives the last reference to a transport back where this may wait for those who hold its send
/// lock.
///
/// # Invariants
///
/// While the work is queued, the transport has a reference for it.
#[pin_data]
struct Farewell {
    #[pin]
    work: Work<Self>,
    xprt: NonNull<bindings::rpc_xprt>,
    common: Arc<Common>,
}

// SAFETY: A reference to a transport does not belong to a thread.
unsafe impl Send for Farewell {}
// SAFETY: `&Farewell` gives nothing out.
unsafe impl Sync for Farewell {}

impl_has_work! {
    impl HasWork<Self> for Farewell { self.work }
}

impl Farewell {
    /// Sleeps.
    fn new<T: Transport>(xprt: &Xprt<T>) -> Result<Arc<Self>> {
        let common = xprt.common().clone();
        // INVARIANT: Not queued.
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("Farewell::work"),
                // SAFETY: It is the address of a transport.
                xprt: unsafe { NonNull::new_unchecked(xprt.as_raw()) },
                common,
            }),
            GFP_KERNEL,
        )
    }
}

impl WorkItem for Farewell {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: By the type invariant the reference is the work's, which runs once for it.
        unsafe { bindings::xprt_put(this.xprt.as_ptr()) };
    }
}

/// A reference to a transport that is held while a callback is delivered to it.
///
/// # Invariants
///
/// The transport counts this value.
struct Visit<'a, T: Transport>(&'a Xprt<T>);

impl<'a, T: Transport> Visit<'a, T> {
    /// `None`: the last user of the transport has gone.
    fn new(xprt: &'a Xprt<T>) -> Option<Self> {
        // SAFETY: The transport's memory is valid. The callee takes no reference if there is none.
        let counted = unsafe { bindings::xprt_get(xprt.as_raw()) };
        // INVARIANT: Counted just now.
        (!counted.is_null()).then(|| Self(xprt))
    }
}

impl<T: Transport> Drop for Visit<'_, T> {
    /// Does not sleep: the last user of the transport may have gone in the meantime, but then the
    /// last reference is left to [`Farewell`]. Its put waits for the send lock, whose holder may be
    /// waiting for us, the completion handler.
    fn drop(&mut self) {
        let raw = self.0.as_raw();
        // SAFETY: This gives the reference of `self` back, by the type invariant, if there are
        // others.
        if unsafe { bindings::xprtrdma_put_unless_last(raw) } {
            return;
        }
        let farewell = self.0.inner.backchannel.slots.lock().farewell.clone();
        // INVARIANT: The reference of `self` becomes that of the work. Only the last one does, so
        // the work is not queued: it would have another.
        if let Some(farewell) = farewell {
            let queue = farewell.common.clone();
            let _ = queue.queue().queue().enqueue(farewell);
        }
    }
}

/// The callback slots of a transport.
#[pin_data]
pub struct Backchannel<T: Transport> {
    #[pin]
    slots: SpinLock<Slots>,
    ready: Atomic<bool>,
    _driver: PhantomData<T>,
}

impl<T: Transport> Backchannel<T> {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            slots <- new_spinlock!(Slots {
                free: KVec::new(),
                farewell: None,
                cookie: 0,
                served: 0,
            }, "Backchannel::slots"),
            ready: Atomic::new(false),
            _driver: PhantomData,
        })
    }

    /// Makes the slots, once. Sleeps.
    pub(crate) fn setup(xprt: &Xprt<T>) -> Result {
        let this = &xprt.inner.backchannel;
        if this.ready.load(Acquire) {
            return Ok(());
        }
        let count = 2 * usize::from(T::CALLBACK_SLOTS);
        let mut slots = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let mut slot = BcSlot {
                rqst: Opaque::zeroed(),
                cookie: 0,
                counted: Atomic::new(false),
                call: TaskBuf::new(),
                reply: TaskBuf::new(),
            };
            slot.call.ensure(PAGE_SIZE, |_| ())?;
            slot.reply.ensure(PAGE_SIZE, |_| ())?;
            slots.push(KBox::new(slot, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let mut farewell = Some(Farewell::new(xprt)?);
        let mut guard = this.slots.lock();
        // Another client of the transport may have been here in the meantime.
        if !this.ready.load(Acquire) {
            core::mem::swap(&mut guard.free, &mut slots);
            core::mem::swap(&mut guard.farewell, &mut farewell);
            // ORDERING: Pairs with the loads: whoever sees it ready sees the slots.
            this.ready.store(true, Release);
        }
        drop(guard);
        Ok(())
    }

    /// A slot for a callback of that connection; `None` if it has as many as it may.
    pub(crate) fn take(&self, cookie: u32) -> Option<KBox<BcSlot>> {
        let mut slots = self.slots.lock();
        if slots.cookie != cookie {
            slots.cookie = cookie;
            slots.served = 0;
        }
        if slots.served >= T::CALLBACK_SLOTS {
            return None;
        }
        let mut slot = slots.free.pop()?;
        slots.served += 1;
        slot.cookie = cookie;
        slot.counted.store(true, Relaxed);
        Some(slot)
    }

    /// The reply to a callback is about to leave: with it the server gets its credit back.
    pub(crate) fn answering(&self, slot: &BcSlot) {
        self.slots.lock().uncount(slot);
    }

    /// Takes a slot back.
    pub(crate) fn put(&self, slot: KBox<BcSlot>) {
        let mut slots = self.slots.lock();
        slots.uncount(&slot);
        // Cannot fail: the list had room for all slots when it was made.
        let _ = slots.free.push_within_capacity(slot);
    }

    /// Takes a callback back whose reply has left or was dropped.
    ///
    /// # Safety
    ///
    /// `rqst` was delivered by [`Xprt::deliver_callback`] and is given back once.
    pub(crate) unsafe fn free(rqst: *mut bindings::rpc_rqst) {
        // SAFETY: By the caller's contract; the delivery took a reference to the transport.
        let raw = unsafe { (*rqst).rq_xprt };
        // SAFETY: As above.
        let xprt = unsafe { Xprt::<T>::from_raw(NonNull::new_unchecked(raw)) };
        // SAFETY: The slot was turned into a raw pointer by the delivery.
        let slot = unsafe { KBox::from_raw(rqst.cast::<BcSlot>()) };
        xprt.inner.backchannel.put(slot);
        // As a rule this is the callback service, which may put the last one. If it is the delivery
        // itself, it has another.
        // SAFETY: The reference that the delivery took.
        unsafe { bindings::xprt_put(raw) };
    }
}

impl<T: Transport> Xprt<T> {
    /// Whether callbacks can be delivered.
    pub fn has_callbacks(&self) -> bool {
        // Nobody waits for callbacks of a transport without users, which must not get one by a delivery. This
        // is a look only: the last user may go right behind it.
        self.inner.backchannel.ready.load(Acquire) && !self.is_dying()
    }

    /// Hands a request of the server to the callback service. `EBUSY`: as many of this connection
    /// as may be are being served (MAL-111); `EMSGSIZE`: it is longer than
    /// [`Transport::callback_size`] can be; `ENODEV`: callbacks are not expected, or not any more.
    /// Does not sleep.
    pub fn deliver_callback(&self, message: &[u8]) -> Result {
        if message.len() > PAGE_SIZE || message.len() < 8 {
            return Err(EMSGSIZE);
        }
        // Before there are slots there is no `Farewell`.
        if !self.inner.backchannel.ready.load(Acquire) {
            return Err(ENODEV);
        }
        // Until the end, so that the RPC client's own reference is not the last.
        let _visit = Visit::new(self).ok_or(ENODEV)?;
        let mut slot = self
            .inner
            .backchannel
            .take(self.connect_cookie())
            .ok_or(EBUSY)?;
        let (call, reply) = (
            slot.call.ensure(PAGE_SIZE, |_| ())?,
            slot.reply.ensure(PAGE_SIZE, |_| ())?,
        );
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
            // To the RPC client: "has its forward credit". So the reply is queued before requests
            // that wait for theirs, and the queue moves although they wait (BC-03).
            // `release_request` takes it back.
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
    pub fn reply(&self) -> Octets<'_> {
        // SAFETY: The reply stays as it is until it is sent.
        unsafe { Octets::from_raw(&raw const (*self.0.rqst.get()).rq_snd_buf) }
    }

    /// Whether the request came on the current connection: a reply never goes out on another
    /// one (BC-27).
    pub fn came_on_this_connection<T: Transport>(&self, xprt: &Xprt<T>) -> bool {
        self.0.cookie == xprt.connect_cookie()
    }
}
