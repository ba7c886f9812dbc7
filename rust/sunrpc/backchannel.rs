// SPDX-License-Identifier: GPL-2.0

//! Slots for requests of the server on the same connection ([`Backchannel`]), RFC 8167. What is
//! done with them is in [`callback`](crate::callback).
//!
//! A callback has a slot of its own from delivery until the callback service lets go of it. The
//! slots are made when the upper layer sets its callback service up and live as long as the
//! transport. There are twice as many as a connection may use: the server's credits begin again
//! with each connection (BC-19), while callbacks of the last one may still be served; and with the
//! reply the server has its credit back, before the service has let go.

use crate::{
    common::Common,
    slot::TaskBuf,
    transport::Transport, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
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
/// While the slot is free, nothing refers to `rqst`.
#[repr(C)]
pub(crate) struct BcSlot {
    pub(crate) rqst: Opaque<bindings::rpc_rqst>,
    /// The connection on which the call came. The RPC client overwrites its own record of it in the
    /// request.
    pub(crate) cookie: u32,
    /// Whether this callback counts as being served; changed with the lock of the slots held.
    counted: Atomic<bool>,
    call: TaskBuf,
    reply: TaskBuf,
}

impl BcSlot {
    fn new() -> Result<Self> {
        let mut slot = Self {
            rqst: Opaque::zeroed(),
            cookie: 0,
            counted: Atomic::new(false),
            call: TaskBuf::new(),
            reply: TaskBuf::new(),
        };
        slot.buffers()?;
        Ok(slot)
    }

    /// A page for the call and one for the reply. Allocated once.
    pub(crate) fn buffers(&mut self) -> Result<(*mut c_void, *mut c_void)> {
        let call = self.call.ensure(PAGE_SIZE, |_| ())?;
        Ok((call, self.reply.ensure(PAGE_SIZE, |_| ())?))
    }
}

// SAFETY: Owned memory; used by one owner at a time.
unsafe impl Send for BcSlot {}

/// The free slots, and how many callbacks a connection has.
struct Slots {
    free: KVec<KBox<BcSlot>>,
    put_work: Option<Arc<PutWork>>,
    /// The connection on which the last callback came, and how many of its callbacks are
    /// unanswered.
    cookie: u32,
    served: u16,
}

impl Slots {
    /// Counts a callback as answered. The server may send another in its place, whichever
    /// connection it came on.
    fn uncount(&mut self, slot: &BcSlot) {
        if slot.counted.xchg(false, Relaxed) && self.cookie == slot.cookie {
            self.served = self.served.saturating_sub(1);
        }
    }
}

/// Drops the last reference to a transport in a work item, which may wait for holders of the send
/// lock.
///
/// # Invariants
///
/// While the work is queued, the transport has a reference for it.
#[pin_data]
pub(crate) struct PutWork {
    #[pin]
    work: Work<Self>,
    xprt: NonNull<bindings::rpc_xprt>,
    common: Arc<Common>,
}

// SAFETY: A reference to a transport does not belong to a thread.
unsafe impl Send for PutWork {}
// SAFETY: `&PutWork` gives nothing out.
unsafe impl Sync for PutWork {}

impl_has_work! {
    impl HasWork<Self> for PutWork { self.work }
}

impl PutWork {
    /// Makes the work item. Sleeps.
    ///
    /// # Safety
    ///
    /// `xprt` is a transport that waits, before it is freed, for the work on the queues of `common`
    /// that have a reference to it.
    pub(crate) unsafe fn new(
        xprt: NonNull<bindings::rpc_xprt>,
        common: Arc<Common>,
    ) -> Result<Arc<Self>> {
        // INVARIANT: Not queued.
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("PutWork::work"),
                xprt,
                common,
            }),
            GFP_KERNEL,
        )
    }

    /// Queues the work that drops a reference.
    ///
    /// # Safety
    ///
    /// The caller has a reference to the transport, the last one, and gives it up.
    pub(crate) unsafe fn put_last(self: Arc<Self>) {
        // INVARIANT: The caller's reference becomes that of the work. Only the last reference is
        // given up here. So the work is not queued, as it would hold another one.
        let queue = self.common.clone();
        let _ = queue.queue().queue().enqueue(self);
    }
}

impl WorkItem for PutWork {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: By the type invariant the reference belongs to the work, which runs once for it.
        unsafe { bindings::xprt_put(this.xprt.as_ptr()) };
    }
}

/// The callback slots of a transport.
#[pin_data]
pub(crate) struct Backchannel<T: Transport> {
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
                put_work: None,
                cookie: 0,
                served: 0,
            }, "Backchannel::slots"),
            ready: Atomic::new(false),
            _driver: PhantomData,
        })
    }

    /// Whether the slots were made.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Acquire)
    }

    /// The work that drops the last reference; exists as soon as there are slots.
    pub(crate) fn put_work(&self) -> Option<Arc<PutWork>> {
        self.slots.lock().put_work.clone()
    }

    /// Makes the slots, once. Sleeps.
    pub(crate) fn setup(&self, put_work: impl FnOnce() -> Result<Arc<PutWork>>) -> Result {
        if self.is_ready() {
            return Ok(());
        }
        let count = 2 * usize::from(T::CALLBACK_SLOTS);
        let mut slots = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            slots.push(KBox::new(BcSlot::new()?, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let mut put_work = Some(put_work()?);
        let mut guard = self.slots.lock();
        // Another client of the transport may have made the slots by now.
        if !self.is_ready() {
            core::mem::swap(&mut guard.free, &mut slots);
            core::mem::swap(&mut guard.put_work, &mut put_work);
            // ORDERING: Pairs with the loads: a thread that sees the flag set sees the slots.
            self.ready.store(true, Release);
        }
        drop(guard);
        Ok(())
    }

    /// Takes a slot for a callback of that connection; `None` if the connection has as many as it
    /// may have.
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

    /// Records that the reply to a callback is about to be sent, which returns the server's credit.
    pub(crate) fn answering(&self, slot: &BcSlot) {
        self.slots.lock().uncount(slot);
    }

    /// Returns a slot to the free ones.
    pub(crate) fn put(&self, slot: KBox<BcSlot>) {
        let mut slots = self.slots.lock();
        slots.uncount(&slot);
        // Cannot fail: the list got room for all slots when it was made.
        let _ = slots.free.push_within_capacity(slot);
    }
}
