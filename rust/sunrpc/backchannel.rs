// SPDX-License-Identifier: GPL-2.0

//! Slots for callbacks ([`Backchannel`]): requests that the server sends on the same connection
//! (RFC 8167). Delivery and replies are in [`callback`](crate::callback).
//!
//! A callback occupies a slot from its delivery until the callback service frees it. The slots are
//! created when the upper layer sets up its callback service, and exist as long as the transport.
//!
//! A transport has twice as many slots as one connection may use, for two reasons:
//!
//! - Each new connection grants the server all credits again (BC-19). At that time, callbacks of
//!   the previous connection may still occupy slots.
//! - The reply to a callback returns the server's credit. The callback service frees the slot only
//!   later.

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

/// A slot for one callback.
///
/// # Invariants
///
/// While the slot is free, nothing refers to `rqst`.
#[repr(C)]
pub(crate) struct BcSlot {
    pub(crate) rqst: Opaque<bindings::rpc_rqst>,
    /// Cookie of the connection on which the callback arrived. The cookie is copied to this field,
    /// because the RPC client overwrites the cookie in the request.
    pub(crate) cookie: u32,
    /// Whether `Slots::served` includes this callback. Changed only under the lock of the slots.
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

    /// Returns two buffers of a page each: one for the call, and one for the reply. Allocates the
    /// two pages at the first use.
    pub(crate) fn buffers(&mut self) -> Result<(*mut c_void, *mut c_void)> {
        let call = self.call.ensure(PAGE_SIZE, |_| ())?;
        Ok((call, self.reply.ensure(PAGE_SIZE, |_| ())?))
    }
}

// SAFETY: A slot owns its memory, and only one thread uses the slot at a time.
unsafe impl Send for BcSlot {}

/// The free slots, and the number of unanswered callbacks of the latest connection.
struct Slots {
    free: KVec<KBox<BcSlot>>,
    put_work: Option<Arc<PutWork>>,
    /// Cookie of the connection on which the latest callback arrived.
    cookie: u32,
    /// Number of callbacks on the connection `cookie` that are not answered yet.
    served: u16,
}

impl Slots {
    /// Counts a callback as answered, so that the server may send another callback. Has no effect
    /// if the callback arrived on an earlier connection.
    fn uncount(&mut self, slot: &BcSlot) {
        if slot.counted.xchg(false, Relaxed) && self.cookie == slot.cookie {
            self.served = self.served.saturating_sub(1);
        }
    }
}

/// A work item that drops the last reference to a transport. A work item is needed because dropping
/// the last reference may have to wait for holders of the send lock.
///
/// # Invariants
///
/// While the work item is queued, it owns a reference to the transport.
#[pin_data]
pub(crate) struct PutWork {
    #[pin]
    work: Work<Self>,
    xprt: NonNull<bindings::rpc_xprt>,
    common: Arc<Common>,
}

// SAFETY: Any thread may drop a reference to a transport.
unsafe impl Send for PutWork {}
// SAFETY: A `&PutWork` gives no access to the fields.
unsafe impl Sync for PutWork {}

impl_has_work! {
    impl HasWork<Self> for PutWork { self.work }
}

impl PutWork {
    /// Creates the work item. May sleep.
    ///
    /// # Safety
    ///
    /// `xprt` is a transport. The transport is not freed as long as a work item that owns a
    /// reference to the transport is on a queue of `common`.
    pub(crate) unsafe fn new(
        xprt: NonNull<bindings::rpc_xprt>,
        common: Arc<Common>,
    ) -> Result<Arc<Self>> {
        // INVARIANT: The new work item is not queued, so it owns no reference.
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("PutWork::work"),
                xprt,
                common,
            }),
            GFP_KERNEL,
        )
    }

    /// Queues the work that drops the last reference to the transport. Does not sleep.
    ///
    /// # Safety
    ///
    /// The caller owns the last reference to the transport and passes it to this function.
    pub(crate) unsafe fn put_last(self: Arc<Self>) {
        // INVARIANT: The work item takes over the caller's reference. The work item is not queued
        // already: a queued work item owns a reference, but the caller's reference is the last one.
        let queue = self.common.clone();
        let _ = queue.queue().queue().enqueue(self);
    }
}

impl WorkItem for PutWork {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: By the type invariant the work item owns a reference. The work item runs once for
        // that reference.
        unsafe { bindings::xprt_put(this.xprt.as_ptr()) };
    }
}

/// All callback slots of a transport.
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

    /// Returns whether the callback slots exist.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Acquire)
    }

    /// Returns the work item that drops the last reference to the transport. The item exists if the
    /// slots exist.
    pub(crate) fn put_work(&self) -> Option<Arc<PutWork>> {
        self.slots.lock().put_work.clone()
    }

    /// Creates the slots unless they exist already. May sleep.
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
        // Another RPC client that shares the transport may have created the slots since the first
        // check.
        if !self.is_ready() {
            core::mem::swap(&mut guard.free, &mut slots);
            core::mem::swap(&mut guard.put_work, &mut put_work);
            // ORDERING: Pairs with the acquire in `is_ready`: a thread that sees the flag also sees
            // the slots.
            self.ready.store(true, Release);
        }
        drop(guard);
        Ok(())
    }

    /// Takes a slot for a callback that arrived on connection `cookie`. Returns `None` if too many
    /// callbacks of this connection are not answered yet, or if no slot is free.
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

    /// Records that the reply to a callback is about to be sent. The reply returns the server's
    /// credit.
    pub(crate) fn answering(&self, slot: &BcSlot) {
        self.slots.lock().uncount(slot);
    }

    /// Returns a slot to the list of free slots.
    pub(crate) fn put(&self, slot: KBox<BcSlot>) {
        let mut slots = self.slots.lock();
        slots.uncount(&slot);
        // The push cannot fail, because the list was allocated with capacity for all slots.
        let _ = slots.free.push_within_capacity(slot);
    }
}
