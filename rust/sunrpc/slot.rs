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
        Atomic,
        Relaxed, //
    },
    types::Opaque, //
};
use xprtrdma_base::{
    access_once::AccessOnce,
    holders::Holders, //
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

    /// Makes sure that there are at least `len` bytes. If the memory grows, its content is zeroes,
    /// and `grown` is called with the number of bytes. Allocates as the calling RPC task may.
    #[inline]
    pub(crate) fn ensure(&mut self, len: usize, grown: impl FnOnce(usize)) -> Result<*mut c_void> {
        if self.len < len || self.ptr.is_null() {
            grown(self.grow(len)?);
        }
        Ok(self.ptr)
    }

    /// Allocates memory for `len` bytes; returns by how many bytes it has grown.
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

/// Message buffers of a slot; only accessed by the task that owns the slot, or by the pool while
/// the slot is free.
pub(crate) struct Buffers {
    pub(crate) call: TaskBuf,
    /// The memory for the next encoding of a call whose head may be lent, see
    /// [`part_encodings`](crate::call::part_encodings).
    pub(crate) next_call: TaskBuf,
    pub(crate) reply: TaskBuf,
    /// Two pages whose common border is the border between a reply's head and tail.
    pub(crate) bordered: TaskBuf,
}

impl Buffers {
    const fn new() -> Self {
        Self {
            call: TaskBuf::new(),
            next_call: TaskBuf::new(),
            reply: TaskBuf::new(),
            bordered: TaskBuf::new(),
        }
    }

    fn len(&self) -> usize {
        self.call.len + self.next_call.len + self.reply.len + self.bordered.len
    }
}

/// One request slot: the RPC client's request and the driver's data about it.
///
/// # Invariants
///
/// `rqst` is all zero while the slot is free, apart from what the RPC client ignores.
///
/// # Examples
///
/// ```
/// # use xprtrdma_sunrpc::{slot::Slot, transport::Transport, xprt::Xprt};
/// /// Calls `f` with the driver's data of each slot.
/// fn with_all<T: Transport>(xprt: &Xprt<T>, f: impl Fn(&T::SlotData)) {
///     xprt.slots().for_each(|slot: &Slot<T>| f(slot.driver_data()));
/// }
/// ```
#[repr(C)]
#[pin_data]
pub struct Slot<T: Transport> {
    pub(crate) rqst: Opaque<bindings::rpc_rqst>,
    /// [`Lease`](crate::lease::Lease)s of the request's memory. Its task waits for their end.
    pub(crate) leases: Holders,
    /// An errno that the request must end with, if it was completed before it slept.
    pub(crate) verdict: Atomic<i32>,
    /// The request's own `rq_release_snd_buf` before [`release_call`](crate::call::release_call)
    /// took its place; `None` if it did not.
    pub(crate) release: UnsafeCell<Option<unsafe extern "C" fn(*mut bindings::rpc_rqst)>>,
    /// Whether there is a [`Pinned`](crate::call::Pinned) of the request. Protected by the queue
    /// lock.
    pub(crate) pinned: UnsafeCell<bool>,
    index: u16,
    /// Not taken since the last [`Pool::trim`]. Only the owner of the slot writes this.
    rested: Atomic<bool>,
    pub(crate) buffers: UnsafeCell<Buffers>,
    /// Only accessed with the send lock held.
    pub(crate) known_page: UnsafeCell<KnownPage>,
    #[pin]
    driver_data: T::SlotData,
}

// SAFETY: `rqst` is only reached under the RPC client's rules, which this crate keeps.
unsafe impl<T: Transport> Send for Slot<T> {}
// SAFETY: As above; `buffers` is only reached by the task that owns the slot, or by the thread that
// has taken it from the pool; `release` only by the sender of the request, or by its task while no
// thread can send it; `pinned` only under the queue lock; `known_page` only under the send lock.
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
            rested: Atomic::new(false),
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

/// The slots of one transport.
///
/// # Invariants
///
/// There is at least one slot. `free` has a bit for each, which is set if the slot is free; the
/// thread that clears it owns the slot.
pub(crate) struct Pool<T: Transport> {
    slots: KVec<Pin<KBox<Slot<T>>>>,
    free: KVec<Atomic<usize>>,
    /// Bytes in the buffers of all slots.
    buffered: Atomic<usize>,
}

/// Number of idle slots that keep their buffers, so that requests that free memory can be sent when
/// no memory is left.
pub(crate) const RESERVE: usize = 8;

/// Bits in a word.
const BITS: usize = usize::BITS as usize;

impl<T: Transport> Pool<T> {
    /// `EINVAL` without a slot.
    pub(crate) fn new(count: u16) -> Result<Self> {
        if count == 0 {
            return Err(EINVAL);
        }
        let mut slots = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        let mut free = KVec::with_capacity(usize::from(count).div_ceil(BITS), GFP_KERNEL)?;
        for index in 0..count {
            slots.push(
                KBox::try_pin_init(Slot::new(index), GFP_KERNEL)?,
                GFP_KERNEL,
            )?;
        }
        for first in (0..slots.len()).step_by(BITS) {
            let bits = match slots.len() - first {
                bits @ 0..BITS => (1 << bits) - 1,
                _ => usize::MAX,
            };
            free.push(Atomic::new(bits), GFP_KERNEL)?;
        }
        // INVARIANT: A word for each `BITS` slots, of which the last word may have fewer.
        Ok(Self {
            slots,
            free,
            buffered: Atomic::new(0),
        })
    }

    pub(crate) fn get(&self, index: u16) -> Option<&Slot<T>> {
        self.slots.get(usize::from(index)).map(|s| &**s)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<T>> {
        self.slots.iter().map(|s| &**s)
    }

    /// The bitmap as C sees it.
    #[inline]
    fn bits(&self) -> *mut c_ulong {
        // CAST: An `Atomic<usize>` is an `unsigned long`.
        self.free.as_ptr().cast_mut().cast()
    }

    /// Takes the first free slot, so that the last ones stay idle and can be trimmed.
    #[inline]
    pub(crate) fn pop(&self) -> Option<&Slot<T>> {
        // CAST: Both are words.
        // SAFETY: By the type invariant.
        let index =
            unsafe { bindings::xprtrdma_take_bit(self.bits(), self.slots.len() as c_ulong) };
        // CAST: As above.
        let slot = self.slots.get(index as usize).map(|s| &**s)?;
        slot.rested.write_once(false);
        Some(slot)
    }

    /// Takes this slot, if it is free.
    fn pop_this(&self, slot: &Slot<T>) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::xprtrdma_take_this_bit(self.bits(), slot.index.into()) }
    }

    /// Returns a slot to the pool. A full barrier against all that follows.
    #[inline]
    pub(crate) fn push(&self, slot: &Slot<T>) {
        // SAFETY: By the type invariant.
        unsafe { bindings::xprtrdma_put_bit(self.bits(), slot.index.into()) }
    }

    /// Counts bytes by which the buffers of a slot have grown.
    pub(crate) fn count_buffered(&self, bytes: usize) {
        self.buffered.add(bytes, Relaxed);
    }

    /// Bytes in the buffers of all slots.
    pub(crate) fn buffered(&self) -> usize {
        self.buffered.load(Relaxed)
    }

    /// Slots that are not free. Only a hint: it may have changed already.
    pub(crate) fn in_use(&self) -> usize {
        let free = self.free.iter().map(|word| word.read_once().count_ones());
        // CAST: Wider.
        self.slots.len().saturating_sub(free.sum::<u32>() as usize)
    }

    /// Frees the buffers of the slots that were not used since the last call, except for the first
    /// [`RESERVE`] of them. A full barrier against all that follows: this function owns each free
    /// slot for a moment, so a task may have found none.
    pub(crate) fn trim(&self) {
        let mut resting = 0;
        for slot in self.iter().filter(|slot| self.pop_this(slot)) {
            let rested = slot.rested.read_once();
            slot.rested.write_once(true);
            resting += usize::from(rested);
            if rested && resting > RESERVE {
                // SAFETY: This thread has the slot.
                let buffers = unsafe { &mut *slot.buffers.get() };
                self.buffered.fetch_sub(buffers.len(), Relaxed);
                *buffers = Buffers::new();
            }
            self.push(slot);
        }
    }
}
