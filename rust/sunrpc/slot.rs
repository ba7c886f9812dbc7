// SPDX-License-Identifier: GPL-2.0

//! Request slots: [`Slot`] embeds a `struct rpc_rqst`, [`Pool`] hands them out.

use crate::{
    transport::Transport,
    xdr_buf::KnownPage, //
};
use core::{
    cell::UnsafeCell,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed, //
    },
    types::Opaque, //
};
use xprtrdma_base::{
    compat,
    holders::Holders,
    new_spinlock,
    spin::SpinLock, //
};
use xprtrdma_bindings as bindings;

/// Memory of a request's messages, kept from one use of the slot to the next.
pub(crate) struct TaskBuf {
    ptr: *mut c_void,
    len: usize,
}

impl TaskBuf {
    pub(crate) const fn new() -> Self {
        Self {
            ptr: ptr::null_mut(),
            len: 0,
        }
    }

    /// Makes sure that there are at least `len` bytes; when it grows the content is zeroes, and
    /// `grown` is told by how many bytes. Allocates as the calling RPC task may.
    #[inline]
    pub(crate) fn ensure(&mut self, len: usize, grown: impl FnOnce(usize)) -> Result<*mut c_void> {
        if self.len < len || self.ptr.is_null() {
            grown(self.grow(len)?);
        }
        Ok(self.ptr)
    }

    /// Gets memory for `len` bytes; returns how many more there are now.
    #[cold]
    fn grow(&mut self, len: usize) -> Result<usize> {
        let len = len.max(512).next_power_of_two();
        // SAFETY: No requirements.
        let new = unsafe { bindings::xprtrdma_task_alloc(len) };
        if new.is_null() {
            return Err(ENOMEM);
        }
        let more = len - self.len;
        *self = Self { ptr: new, len };
        Ok(more)
    }
}

impl Drop for TaskBuf {
    fn drop(&mut self) {
        // SAFETY: Null or allocated by `ensure`.
        unsafe { kernel::bindings::kfree(self.ptr) }
    }
}

/// Message buffers of a slot; only touched by the task that owns the slot, or by the pool while it
/// is free.
pub(crate) struct Buffers {
    pub(crate) call: TaskBuf,
    pub(crate) reply: TaskBuf,
    /// Two pages whose common border is the border between a reply's head and tail.
    pub(crate) bordered: TaskBuf,
}

impl Buffers {
    const fn new() -> Self {
        Self {
            call: TaskBuf::new(),
            reply: TaskBuf::new(),
            bordered: TaskBuf::new(),
        }
    }

    fn len(&self) -> usize {
        self.call.len + self.reply.len + self.bordered.len
    }
}

/// One request slot: the RPC client's request and the driver's data about it.
///
/// # Invariants
///
/// `rqst` is all zero while the slot is free, apart from what the RPC client ignores.
#[repr(C)]
#[pin_data]
pub struct Slot<T: Transport> {
    pub(crate) rqst: Opaque<bindings::rpc_rqst>,
    /// [`Lease`](crate::lease::Lease)s of the request's memory. Its task waits for their end.
    pub(crate) leases: Holders,
    /// An errno that the request must end with, if it was completed before it slept.
    pub(crate) verdict: Atomic<i32>,
    /// What the request's `rq_release_snd_buf` was before
    /// [`release_call`](crate::call::release_call) took its place; `None` if it did not.
    pub(crate) release: UnsafeCell<Option<unsafe extern "C" fn(*mut bindings::rpc_rqst)>>,
    /// Whether there is a [`Pinned`](crate::call::Pinned) of the request. Protected by the queue
    /// lock.
    pub(crate) pinned: UnsafeCell<bool>,
    index: u16,
    pub(crate) buffers: UnsafeCell<Buffers>,
    /// Only touched by who holds the send lock.
    pub(crate) known_page: UnsafeCell<KnownPage>,
    #[pin]
    driver_data: T::SlotData,
}

// SAFETY: `rqst` is only reached under the RPC client's rules, which this crate keeps.
unsafe impl<T: Transport> Send for Slot<T> {}
// SAFETY: As above; `buffers` is only reached by the task that owns the slot, or under the pool's
// lock while nobody does; `release` only by who sends the request, or by its task while nobody can;
// `pinned` only under the queue lock; `known_page` only under the send lock.
unsafe impl<T: Transport> Sync for Slot<T> {}

impl<T: Transport> Slot<T> {
    fn new(index: u16) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            rqst: Opaque::zeroed(),
            leases: Holders::new(),
            verdict: Atomic::new(0),
            release: UnsafeCell::new(None),
            pinned: UnsafeCell::new(false),
            index,
            buffers: UnsafeCell::new(Buffers::new()),
            known_page: UnsafeCell::new(KnownPage::none()),
            driver_data <- T::new_slot_data(),
        }? Error)
    }

    /// # Safety
    ///
    /// `rqst` is embedded in a slot of a transport of type `T` that outlives `'a`.
    pub(crate) unsafe fn from_rqst<'a>(rqst: *mut bindings::rpc_rqst) -> &'a Self {
        // SAFETY: By the caller's contract; the request is at offset 0 of the `repr(C)` slot.
        unsafe { &*rqst.cast() }
    }

    /// The driver's data about the request.
    #[inline]
    pub fn driver_data(&self) -> &T::SlotData {
        &self.driver_data
    }

    /// The slot's number, constant for its life.
    #[inline]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Whether memory of the request is lent out.
    #[inline]
    pub(crate) fn is_leased(&self) -> bool {
        !self.leases.is_none()
    }
}

/// The free slots but the one that was freed last. The youngest is used first, so those at the
/// beginning rest.
struct Free {
    list: KVec<u16>,
    /// The fewest that were on the list at a time since the last [`Pool::trim`].
    least: usize,
}

/// No slot's number.
const NO_SLOT: u32 = u32::MAX;

/// The slots of one transport.
#[pin_data]
pub(crate) struct Pool<T: Transport> {
    slots: KVec<Pin<KBox<Slot<T>>>>,
    /// The slot that was freed last, or [`NO_SLOT`]. As a rule it is the next to be used, which
    /// spares both the lock.
    last: Atomic<u32>,
    #[pin]
    free: SpinLock<Free>,
    /// Bytes in the buffers of all slots.
    buffered: Atomic<usize>,
}

/// Slots whose buffers are freed without letting go of the lock.
const TRIM_BATCH: usize = 16;
/// Resting slots that keep their buffers, so that requests can go on that must give memory back
/// when there is none.
pub(crate) const RESERVE: usize = 8;

impl<T: Transport> Pool<T> {
    pub(crate) fn new(count: u16) -> Result<impl PinInit<Self>> {
        let mut slots = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        let mut list = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        for index in (0..count).rev() {
            list.push(index, GFP_KERNEL)?;
        }
        for index in 0..count {
            slots.push(
                KBox::try_pin_init(Slot::new(index), GFP_KERNEL)?,
                GFP_KERNEL,
            )?;
        }
        Ok(pin_init!(Self {
            slots,
            last: Atomic::new(NO_SLOT),
            free <- new_spinlock!(Free { list, least: 0 }, "Pool::free"),
            buffered: Atomic::new(0),
        }))
    }

    pub(crate) fn get(&self, index: u16) -> Option<&Slot<T>> {
        self.slots.get(usize::from(index)).map(|s| &**s)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<T>> {
        self.slots.iter().map(|s| &**s)
    }

    /// Takes a free slot.
    #[inline]
    pub(crate) fn pop(&self) -> Option<&Slot<T>> {
        // In this order: slots go from here to the list, so none is missed on its way.
        self.pop_last().or_else(|| self.pop_listed())
    }

    /// Takes the slot that was freed last, if it still is free.
    #[inline]
    fn pop_last(&self) -> Option<&Slot<T>> {
        // ORDERING: `Acquire` pairs with the release in `push`.
        let index = self.last.xchg(NO_SLOT, Acquire);
        // CAST: Wider.
        self.slots.get(index as usize).map(|s| &**s)
    }

    #[inline(never)]
    fn pop_listed(&self) -> Option<&Slot<T>> {
        let index = {
            let mut free = self.free.lock();
            let index = free.list.pop()?;
            free.least = free.least.min(free.list.len());
            index
        };
        self.get(index)
    }

    /// Puts a free slot back. A full barrier against all that follows.
    #[inline]
    pub(crate) fn push(&self, slot: &Slot<T>) {
        // ORDERING: `Full` makes it the barrier, and releases the slot's content.
        let before = self.last.xchg(slot.index.into(), Full);
        if before != NO_SLOT {
            self.push_listed(before);
        }
    }

    #[inline(never)]
    fn push_listed(&self, index: u32) {
        // Cannot fail: the list is as long as there are slots.
        // CAST: The number of a slot.
        let _ = self.free.lock().list.push_within_capacity(index as u16);
        // ORDERING: See `push`.
        compat::smp_mb();
    }

    /// Counts bytes that buffers of a slot have grown by.
    pub(crate) fn count_buffered(&self, bytes: usize) {
        self.buffered.add(bytes, Relaxed);
    }

    /// Bytes in the buffers of all slots.
    pub(crate) fn buffered(&self) -> usize {
        self.buffered.load(Relaxed)
    }

    /// Slots that are not free. Only a hint: it may have changed already.
    pub(crate) fn in_use(&self) -> usize {
        let last = usize::from(self.last.load(Relaxed) != NO_SLOT);
        let free = last + self.free.lock().list.len();
        self.slots.len().saturating_sub(free)
    }

    /// Frees the buffers of the slots that nobody used since the last call, but for those that are
    /// used next.
    pub(crate) fn trim(&self) {
        let mut from = 0;
        loop {
            let mut free = self.free.lock();
            // The youngest can rest, too. Who does not find it there any more waits for the lock.
            if let Some(last) = self.pop_last() {
                let _ = free.list.push_within_capacity(last.index);
            }
            let spare = free.list.len().saturating_sub(RESERVE);
            let to = free.least.min(spare).min(from + TRIM_BATCH);
            let resting = free.list.get(from..to).unwrap_or(&[]);
            if resting.is_empty() {
                free.least = free.list.len();
                return;
            }
            for slot in resting.iter().filter_map(|index| self.get(*index)) {
                // SAFETY: The slot is free, and stays so while the lock is held.
                let buffers = unsafe { &mut *slot.buffers.get() };
                self.buffered.fetch_sub(buffers.len(), Relaxed);
                *buffers = Buffers::new();
            }
            from = to;
        }
    }
}
