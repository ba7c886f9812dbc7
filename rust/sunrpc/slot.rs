// SPDX-License-Identifier: GPL-2.0

//! Request slots. A [`Slot`] contains a `struct rpc_rqst`, and a [`Pool`] provides free slots.

mod verdict;

pub(crate) use verdict::fail_pending;

use self::verdict::Verdict;
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

/// Memory for a message of a request. The slot keeps the memory for later requests.
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

    /// Makes sure that the buffer has at least `len` bytes. If the buffer grows, all its bytes are
    /// zero, and `grown` is called with the number of additional bytes. Allocates with the GFP
    /// flags of the calling RPC task.
    #[inline]
    pub(crate) fn ensure(&mut self, len: usize, grown: impl FnOnce(usize)) -> Result<*mut c_void> {
        if self.len < len || self.ptr.is_null() {
            grown(self.grow(len)?);
        }
        Ok(self.ptr)
    }

    /// Allocates memory for `len` bytes and returns the number of additional bytes.
    #[cold]
    fn grow(&mut self, len: usize) -> Result<usize> {
        let len = len.max(512).next_power_of_two();
        // SAFETY: The function has no requirements.
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
        // SAFETY: The pointer is null or was allocated by `grow`.
        unsafe { kernel::bindings::kfree(self.ptr) }
    }
}

/// The message buffers of a slot. Only the owner of the slot accesses them. The owner is a task, or
/// the pool while it trims the slot.
pub(crate) struct Buffers {
    pub(crate) call: TaskBuf,
    /// The memory for the next encoding of a call. Used if the peer can still access the memory of
    /// the previous encoding. See [`part_encodings`](crate::call::part_encodings).
    pub(crate) next_call: TaskBuf,
    pub(crate) reply: TaskBuf,
    /// Two pages for a reply. The reply's head ends at the boundary between the two pages, and the
    /// reply's tail begins at this boundary.
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

/// A request slot, which contains the RPC client's request and the driver's data for the request.
///
/// # Invariants
///
/// While the slot is free, `rqst` is all zero, apart from fields that the RPC client ignores.
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
    /// Counts the [`Lease`](crate::lease::Lease)s of the request's memory. Before the request ends,
    /// its task waits until the count is zero.
    pub(crate) leases: Holders,
    pub(crate) verdict: Verdict,
    /// The original `rq_release_snd_buf` of the request, while
    /// [`release_call`](crate::call::release_call) replaces that function. Otherwise `None`.
    pub(crate) release: UnsafeCell<Option<unsafe extern "C" fn(*mut bindings::rpc_rqst)>>,
    /// Whether a [`Pinned`](crate::call::Pinned) of the request exists. Protected by the queue
    /// lock.
    pub(crate) pinned: UnsafeCell<bool>,
    index: u16,
    /// Whether the slot is idle: no task has taken the slot since the last [`Pool::trim`]. Only the
    /// owner of the slot writes this field.
    rested: Atomic<bool>,
    pub(crate) buffers: UnsafeCell<Buffers>,
    /// The address that was last translated to a page, and this page. Accessed only with the send
    /// lock held.
    pub(crate) known_page: UnsafeCell<KnownPage>,
    #[pin]
    driver_data: T::SlotData,
}

// SAFETY: `rqst` is accessed only under the RPC client's rules, which this crate follows.
unsafe impl<T: Transport> Send for Slot<T> {}
// SAFETY: `rqst` is accessed only under the RPC client's rules, which this crate follows. Each of
// the following fields is accessed by only one thread at a time:
// - `buffers`: accessed only by the task that owns the slot, or by the thread that has taken the
//   slot from the pool.
// - `release`: accessed only by the sender of the request, or by the request's task while no thread
//   can send the request.
// - `pinned`: accessed only under the queue lock.
// - `known_page`: accessed only under the send lock.
unsafe impl<T: Transport> Sync for Slot<T> {}

impl<T: Transport> Slot<T> {
    fn new(index: u16) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            rqst: Opaque::zeroed(),
            leases: Holders::new(),
            verdict: Verdict::none(),
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
        // SAFETY: By the caller's contract the request is in a slot. The request is at offset 0 of
        // the `repr(C)` slot.
        unsafe { &*rqst.cast() }
    }

    /// Returns the driver's data for the request.
    #[inline]
    pub fn driver_data(&self) -> &T::SlotData {
        &self.driver_data
    }

    /// Returns the slot's number, which never changes.
    #[inline]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Returns whether memory of the request is lent.
    #[inline]
    pub(crate) fn is_leased(&self) -> bool {
        !self.leases.is_none()
    }
}

/// The slots of one transport.
///
/// # Invariants
///
/// There is at least one slot. `free` has one bit for each slot. The bit is set while the slot is
/// free. The thread that clears the bit owns the slot.
pub(crate) struct Pool<T: Transport> {
    slots: KVec<Pin<KBox<Slot<T>>>>,
    free: KVec<Atomic<usize>>,
    /// Total size of the buffers of all slots, in bytes.
    buffered: Atomic<usize>,
}

/// Number of idle slots that keep their buffers when buffers are freed. If no memory is left,
/// requests in these slots can still be sent, and the end of these requests can free memory.
pub(crate) const RESERVE: usize = 8;

/// Number of bits in a word of the bitmap.
const BITS: usize = usize::BITS as usize;

impl<T: Transport> Pool<T> {
    /// Creates a pool of `count` slots. Returns `EINVAL` if `count` is zero. May sleep.
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
        // INVARIANT: `free` has a set bit for each slot. The last word may have fewer than `BITS`
        // bits set.
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

    /// Returns the bitmap as a pointer for C.
    #[inline]
    fn bits(&self) -> *mut c_ulong {
        // CAST: `Atomic<usize>` has the layout of an `unsigned long`.
        self.free.as_ptr().cast_mut().cast()
    }

    /// Takes the free slot with the lowest number, so that slots with high numbers stay idle and
    /// can be trimmed.
    #[inline]
    pub(crate) fn pop(&self) -> Option<&Slot<T>> {
        // CAST: `usize` and `c_ulong` have the same width.
        // SAFETY: By the type invariant, the bitmap has a bit for each slot.
        let index =
            unsafe { bindings::xprtrdma_take_bit(self.bits(), self.slots.len() as c_ulong) };
        // CAST: `usize` and `c_ulong` have the same width.
        let slot = self.slots.get(index as usize).map(|s| &**s)?;
        slot.rested.write_once(false);
        Some(slot)
    }

    /// Takes the slot `slot` if this slot is free. Returns whether the slot was free.
    fn pop_this(&self, slot: &Slot<T>) -> bool {
        // SAFETY: By the type invariant, the bitmap has a bit for this slot.
        unsafe { bindings::xprtrdma_take_this_bit(self.bits(), slot.index.into()) }
    }

    /// Returns a slot to the pool. The function ends with a full memory barrier.
    #[inline]
    pub(crate) fn push(&self, slot: &Slot<T>) {
        // SAFETY: By the type invariant, the bitmap has a bit for this slot.
        unsafe { bindings::xprtrdma_put_bit(self.bits(), slot.index.into()) }
    }

    /// Adds `bytes` to the total size of all slots' buffers, because a slot's buffers have grown.
    pub(crate) fn count_buffered(&self, bytes: usize) {
        self.buffered.add(bytes, Relaxed);
    }

    /// Returns the total size of the buffers of all slots, in bytes.
    pub(crate) fn buffered(&self) -> usize {
        self.buffered.load(Relaxed)
    }

    /// Returns the number of slots that are not free. The result is only a hint, because the number
    /// may change at any time.
    pub(crate) fn in_use(&self) -> usize {
        let free = self.free.iter().map(|word| word.read_once().count_ones());
        // CAST: `usize` is wider than `u32`.
        self.slots.len().saturating_sub(free.sum::<u32>() as usize)
    }

    /// Frees the buffers of free slots that no task has taken since the last call of this function.
    /// The first [`RESERVE`] of these slots keep their buffers.
    ///
    /// This function takes each free slot for a moment. During this time a task may find no free
    /// slot and wait. So the caller must call `feed_backlog` afterwards. The function is a full
    /// barrier, as `feed_backlog` requires.
    pub(crate) fn trim(&self) {
        let mut resting = 0;
        for slot in self.iter().filter(|slot| self.pop_this(slot)) {
            let rested = slot.rested.read_once();
            slot.rested.write_once(true);
            resting += usize::from(rested);
            if rested && resting > RESERVE {
                // SAFETY: This thread has taken the slot, so it owns the buffers.
                let buffers = unsafe { &mut *slot.buffers.get() };
                self.buffered.fetch_sub(buffers.len(), Relaxed);
                *buffers = Buffers::new();
            }
            self.push(slot);
        }
    }
}
