// SPDX-License-Identifier: GPL-2.0

//! Request slots: [`Slot`] embeds a `struct rpc_rqst`, [`Pool`] hands them out.

use crate::{
    compat,
    transport::Transport,
    xprt::Xprt, //
};
use core::{
    cell::UnsafeCell,
    ptr::{self, NonNull}, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed, //
        },
        SpinLock, //
    },
    types::Opaque, //
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

    /// Makes sure that there are at least `len` octets; the content is lost when it grows.
    /// Allocates as the calling RPC task may.
    pub(crate) fn ensure(&mut self, len: usize) -> Result<*mut c_void> {
        if self.len < len || self.ptr.is_null() {
            let len = len.max(512).next_power_of_two();
            // SAFETY: No requirements.
            let new = unsafe { bindings::xprtrdma_task_alloc(len) };
            if new.is_null() {
                return Err(ENOMEM);
            }
            *self = Self { ptr: new, len };
        }
        Ok(self.ptr)
    }
}

impl Drop for TaskBuf {
    fn drop(&mut self) {
        // SAFETY: Null or allocated by `ensure`.
        unsafe { kernel::bindings::kfree(self.ptr) }
    }
}

/// Message buffers of a slot; only touched by the task that owns the slot.
pub(crate) struct Buffers {
    pub(crate) call: TaskBuf,
    pub(crate) reply: TaskBuf,
    /// Two pages whose common border is the border between a reply's head and tail.
    pub(crate) bordered: TaskBuf,
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
    /// [`Lease`](crate::lease::Lease)s of the request's memory.
    pub(crate) leases: Atomic<i32>,
    /// An errno that the request must end with, if it was completed before it slept.
    pub(crate) verdict: Atomic<i32>,
    index: u16,
    pub(crate) buffers: UnsafeCell<Buffers>,
    #[pin]
    call: T::Call,
}

// SAFETY: `rqst` is only reached under the RPC client's rules, which this crate keeps.
unsafe impl<T: Transport> Send for Slot<T> {}
// SAFETY: As above; `buffers` is only reached by the task that owns the slot.
unsafe impl<T: Transport> Sync for Slot<T> {}

impl<T: Transport> Slot<T> {
    fn new(index: u16) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            rqst: Opaque::zeroed(),
            leases: Atomic::new(0),
            verdict: Atomic::new(0),
            index,
            buffers: UnsafeCell::new(Buffers {
                call: TaskBuf::new(),
                reply: TaskBuf::new(),
                bordered: TaskBuf::new(),
            }),
            call <- T::new_call(),
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
    pub fn call(&self) -> &T::Call {
        &self.call
    }

    /// The slot's number, constant for its life.
    #[inline]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Whether memory of the request is lent out.
    pub(crate) fn is_leased(&self) -> bool {
        // ORDERING: Pairs with the release in `Lease::drop`.
        self.leases.load(Acquire) != 0
    }

    /// Waits until no memory of the request is lent out. Sleeps.
    pub(crate) fn wait_for_leases(&self) {
        if self.is_leased() {
            let count = &raw const self.leases;
            // CAST: `Atomic<i32>` and `atomic_t` are both one `int`.
            // SAFETY: The count is valid for the duration of the call.
            unsafe { bindings::xprtrdma_wait_zero(count.cast_mut().cast()) };
        }
    }
}

/// The slots of one transport.
#[pin_data]
pub(crate) struct Pool<T: Transport> {
    slots: KVec<Pin<KBox<Slot<T>>>>,
    #[pin]
    free: SpinLock<KVec<u16>>,
}

impl<T: Transport> Pool<T> {
    pub(crate) fn new(count: u16) -> Result<impl PinInit<Self>> {
        let mut slots = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        let mut free = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        for index in (0..count).rev() {
            free.push(index, GFP_KERNEL)?;
        }
        for index in 0..count {
            slots.push(
                KBox::try_pin_init(Slot::new(index), GFP_KERNEL)?,
                GFP_KERNEL,
            )?;
        }
        Ok(pin_init!(Self {
            slots,
            free <- new_spinlock!(free, "Pool::free"),
        }))
    }

    pub(crate) fn get(&self, index: u16) -> Option<&Slot<T>> {
        self.slots.get(usize::from(index)).map(|s| &**s)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<T>> {
        self.slots.iter().map(|s| &**s)
    }

    fn pop(&self) -> Option<&Slot<T>> {
        let index = self.free.lock().pop()?;
        self.get(index)
    }

    fn push(&self, slot: &Slot<T>) {
        // Cannot fail: the list is as long as there are slots.
        let _ = self.free.lock().push_within_capacity(slot.index);
    }

    /// Gives `task` a slot or puts it on the backlog.
    ///
    /// # Safety
    ///
    /// Called as `rpc_xprt_ops::alloc_slot` of the transport that owns the pool.
    pub(crate) unsafe fn alloc(xprt: &Xprt<T>, task: *mut bindings::rpc_task) {
        let pool = xprt.pool();
        if let Some(slot) = pool.pop() {
            // SAFETY: The task is ours for the duration of the call.
            unsafe {
                (*task).tk_rqstp = slot.rqst.get();
                (*task).tk_status = 0;
            }
            return;
        }
        // SAFETY: As above; the callee queues the task.
        unsafe {
            (*task).tk_status = EAGAIN.to_errno();
            bindings::xprt_add_backlog_noncongested(xprt.as_raw(), task);
        }
        pool.feed_backlog(xprt);
    }

    /// Takes a slot back.
    ///
    /// # Safety
    ///
    /// `rqst` is embedded in a slot of this pool and nobody uses it any more.
    pub(crate) unsafe fn free(xprt: &Xprt<T>, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: By the caller's contract.
        let slot = unsafe { Slot::<T>::from_rqst(rqst) };
        slot.verdict.store(0, Relaxed);
        // SAFETY: The callee zeroes the request and gives it to the first waiter, if there is one.
        if unsafe { bindings::xprt_wake_up_backlog(xprt.as_raw(), rqst) } {
            return;
        }
        // SAFETY: The request is ours.
        unsafe { ptr::write_bytes(rqst, 0, 1) };
        xprt.pool().push(slot);
        xprt.pool().feed_backlog(xprt);
    }

    /// Gives free slots to waiting tasks.
    ///
    /// A task that finds the pool empty goes to the backlog, and a slot that finds the backlog
    /// empty goes to the pool: whoever comes second looks at the other side again, so neither
    /// waits for the other.
    fn feed_backlog(&self, xprt: &Xprt<T>) {
        // ORDERING: Orders our own change (slot pushed, or task queued) before the look at the
        // other side; the other party does the same.
        compat::smp_mb();
        // SAFETY: The transport is valid.
        while !unsafe { bindings::xprtrdma_backlog_empty(xprt.as_raw()) } {
            let Some(slot) = self.pop() else {
                return;
            };
            // SAFETY: The slot was free, so its request is ours to give away.
            if !unsafe { bindings::xprt_wake_up_backlog(xprt.as_raw(), slot.rqst.get()) } {
                self.push(slot);
                return;
            }
        }
    }
}

/// The request's transport.
///
/// # Safety
///
/// `rqst` is valid and belongs to a transport of type `T` that outlives `'a`.
pub(crate) unsafe fn xprt_of<'a, T: Transport>(rqst: *mut bindings::rpc_rqst) -> &'a Xprt<T> {
    // SAFETY: By the caller's contract.
    unsafe { Xprt::from_raw(NonNull::new_unchecked((*rqst).rq_xprt)) }
}
