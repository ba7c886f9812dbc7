// SPDX-License-Identifier: GPL-2.0

//! Completion queue ([`Cq`]): whatever completes is handled in process context, one completion after the
//! other.
//!
//! Two may do that: a work item, and a thread that waits for something that a completion will tell
//! ([`Cq::attend`]). The thread is woken by the device's event itself, so it neither waits for a worker
//! nor is it woken by one. What keeps them apart is the **turn**: it is taken before the queue is
//! polled, and given back before the device is asked for its next event. An event is only the
//! advice to try for the turn, so one too many does no harm; and whoever gives the turn back asks
//! the device whether something has completed meanwhile, so none is missing.
//!
//! The queue is one of ib_core's, which tells its event to a work item; its function is ours.

use crate::marked::Marked;
use core::{
    mem::offset_of,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full, //
    },
    types::Opaque,
    workqueue::Queue, //
};
use xprtrdma_bindings as bindings;

/// So many completions are asked for at a time: the length of ib_core's array.
const BATCH: c_int = 16;
/// After so many in a row others get a chance.
const BUDGET: c_int = 256;

/// Who attends.
mod attendant {
    pub(super) const NOBODY: u32 = 0;
    /// A thread, which sleeps or is about to look.
    pub(super) const WAITS: u32 = 1;
    /// The thread was told of an event.
    pub(super) const CALLED: u32 = 2;
    /// The thread was told to stop.
    pub(super) const DISMISSED: u32 = 3;
}

/// Why [`Cq::attend`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attended {
    /// It is over.
    Over,
    /// A signal is pending, somebody else attends, or the queue pair is being shut down.
    Left,
    /// [`Cq::dismiss`] was called.
    Dismissed,
}

/// A completion queue.
///
/// # Invariants
///
/// - `raw` is valid; its context is this object, which does not move.
/// - `raw` is polled, and its array `wc` used, only by the thread that has made `free` false.
/// - The work queue that `raw` names outlives it.
pub(crate) struct Cq {
    raw: NonNull<bindings::ib_cq>,
    /// Whether nobody has the turn.
    free: Atomic<bool>,
    attendant: Atomic<u32>,
    closed: Atomic<bool>,
    waits: Opaque<bindings::rcuwait>,
    /// What ib_core does about an event: it queues the work item.
    queue: bindings::ib_comp_handler,
}

// SAFETY: Verbs objects have no thread affinity.
unsafe impl Send for Cq {}
// SAFETY: All else that threads share is atomic, or guarded by the turn.
unsafe impl Sync for Cq {}

impl Cq {
    /// Makes a queue for `len` completions, to be handled on `queue`. May sleep.
    ///
    /// # Safety
    ///
    /// `device` is valid and `queue` is, until the result is dropped.
    pub(crate) unsafe fn new(
        device: *mut bindings::ib_device,
        len: c_int,
        queue: &Queue,
    ) -> Result<Pin<KBox<Self>>> {
        // SAFETY: By the caller's contract.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq_any(
                device,
                ptr::null_mut(),
                len,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
                c"xprtrdma_rs".as_char_ptr(),
            )
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let cq = KBox::pin(
            Self {
                raw,
                free: Atomic::new(true),
                attendant: Atomic::new(attendant::NOBODY),
                closed: Atomic::new(false),
                waits: Opaque::new(Default::default()),
                // SAFETY: Set by the call above.
                queue: unsafe { (*raw.as_ptr()).comp_handler },
            },
            GFP_KERNEL,
        );
        let cq = match cq {
            Ok(cq) => cq,
            Err(e) => {
                // SAFETY: Allocated just now, used by nobody.
                unsafe { bindings::ib_free_cq(raw.as_ptr()) };
                return Err(e.into());
            }
        };
        // SAFETY: Nobody uses the queue yet: nothing completes without a queue pair. By the caller's
        // contract the work queue outlives it.
        unsafe {
            let raw = raw.as_ptr();
            (*raw).cq_context = ptr::from_ref(&*cq).cast_mut().cast();
            (*raw).comp_wq = ptr::from_ref(queue).cast_mut().cast();
            (*work_of(raw)).func = Some(work);
        }
        Ok(cq)
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.raw.as_ptr()
    }

    /// Takes the turn if nobody has it.
    #[inline]
    fn take_turn(&self) -> bool {
        // ORDERING: Full: what the one before has done is seen.
        self.free.xchg(false, Full)
    }

    /// Handles what has completed and gives the turn back.
    ///
    /// # Safety
    ///
    /// The caller has the turn, and is in process context.
    #[inline]
    unsafe fn handle(&self) {
        let cq = self.as_raw();
        loop {
            // SAFETY: By the caller's contract.
            let handled = unsafe { self.poll() };
            // SAFETY: Of this queue, and used by whoever has the turn.
            unsafe {
                if !(*cq).dim.is_null() {
                    bindings::rdma_dim((*cq).dim, u64::from(handled.unsigned_abs()));
                }
            }
            // ORDERING: Full: what was done is seen by the next one, and the turn is free before an
            // event can come.
            self.free.xchg(true, Full);
            if handled >= BUDGET {
                return self.wake_worker();
            }
            let flags = bindings::ib_cq_notify_flags_IB_CQ_NEXT_COMP
                | bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS;
            // SAFETY: The queue is valid by the type invariant, and every device has the operation.
            let missed = unsafe {
                let notify = (*(*cq).device).ops.req_notify_cq;
                notify.map_or(0, |notify| notify(cq, flags))
            };
            if missed <= 0 || !self.take_turn() {
                return;
            }
        }
    }

    /// Calls the handlers of what has completed; returns how many. With [`BUDGET`] there may be more.
    ///
    /// # Safety
    ///
    /// As for [`Cq::handle`].
    #[inline]
    unsafe fn poll(&self) -> c_int {
        let cq = self.as_raw();
        let mut handled = 0;
        loop {
            // SAFETY: The queue is valid by the type invariant, every device has the operation, and
            // the array, which has `BATCH` entries, belongs to whoever has the turn.
            let (wcs, count) = unsafe {
                let Some(poll) = (*(*cq).device).ops.poll_cq else {
                    return 0;
                };
                ((*cq).wc, poll(cq, BATCH, (*cq).wc))
            };
            for i in 0..count.max(0) {
                // SAFETY: The device has written so many entries. All work requests on the queue have
                // a completion entry with a handler, which lives until it was called.
                unsafe {
                    let wc = wcs.add(i as usize);
                    // CAST: The union's first member is the number, which is the pointer.
                    let cqe = (*wc).__bindgen_anon_1.bindgen_union_field as *mut bindings::ib_cqe;
                    if let Some(done) = (*cqe).done {
                        done(cq, wc);
                    }
                }
            }
            // NO-OVERFLOW: A batch more than the budget at most.
            handled = count.max(0).wrapping_add(handled);
            if count < BATCH || handled >= BUDGET {
                return handled;
            }
        }
    }

    /// Has the work item look at the queue. From any context.
    #[cold]
    fn wake_worker(&self) {
        if let Some(queue) = self.queue {
            // SAFETY: The queue is valid, and ib_core's handler may be called in any context.
            unsafe { queue(self.as_raw(), ptr::null_mut()) }
        }
    }

    #[inline]
    fn wake_attendant(&self) {
        // SAFETY: Initialised with the queue; from any context.
        unsafe { bindings::rcuwait_wake_up(self.waits.get()) };
    }

    /// Handles completions in the calling thread until `is_over`, which one of them will bring about or
    /// somebody who calls [`Cq::dismiss`]. Must not be called by a handler. Sleeps; `is_over` must not.
    pub(crate) fn attend<F: Fn() -> bool>(&self, is_over: F) -> Attended {
        // ORDERING: Full, and the look at `closed` comes after it: see `close`.
        let nobody = self
            .attendant
            .cmpxchg(attendant::NOBODY, attendant::WAITS, Full);
        if nobody.is_err() {
            return Attended::Left;
        }
        self.set_handler(Some(event));
        let attended = self.wait(&is_over);
        self.set_handler(self.queue);
        if self.attendant.xchg(attendant::NOBODY, Full) == attendant::CALLED {
            self.wake_worker();
        }
        attended
    }

    fn set_handler(&self, handler: bindings::ib_comp_handler) {
        // SAFETY: The queue is valid. A device may call either handler meanwhile: both are right at
        // any time. A pointer is written at once.
        unsafe { ptr::write_volatile(&raw mut (*self.as_raw()).comp_handler, handler) }
    }

    fn wait<F: Fn() -> bool>(&self, is_over: &F) -> Attended {
        let due = || self.attendant.read_once() != attendant::WAITS || is_over();
        loop {
            if self.closed.read_once() {
                return Attended::Left;
            }
            self.sleep(&due);
            // Before the device is asked for its next event.
            let called = self
                .attendant
                .cmpxchg(attendant::CALLED, attendant::WAITS, Full);
            if called.is_ok() {
                if self.take_turn() {
                    // SAFETY: The turn was taken; threads that attend are in process context.
                    unsafe { self.handle() };
                }
                if is_over() {
                    return Attended::Over;
                }
                continue;
            }
            return if is_over() {
                Attended::Over
            } else if self.attendant.read_once() == attendant::DISMISSED {
                Attended::Dismissed
            } else {
                Attended::Left
            };
        }
    }

    /// Sleeps until `due`, or until a signal is pending.
    fn sleep<F: Fn() -> bool>(&self, due: &F) {
        unsafe extern "C" fn ask<F: Fn() -> bool>(due: *mut c_void) -> bool {
            // SAFETY: The pointer that is passed below.
            unsafe { (*due.cast::<F>().cast_const())() }
        }
        // SAFETY: Only the attendant sleeps there, and there is one. `due` lives as long as the call,
        // during which alone it is used, and by this thread.
        unsafe {
            bindings::xprtrdma_rcuwait(
                self.waits.get(),
                Some(ask::<F>),
                ptr::from_ref(due).cast_mut().cast(),
            )
        };
    }

    /// Sends a thread away that attends. From any context.
    #[inline]
    pub(crate) fn dismiss(&self) {
        if self.attendant.read_once() != attendant::NOBODY {
            self.send_away();
        }
    }

    #[cold]
    fn send_away(&self) {
        let changed = |from| {
            self.attendant
                .cmpxchg(from, attendant::DISMISSED, Full)
                .is_ok()
        };
        if changed(attendant::WAITS) {
            self.wake_attendant();
        } else if changed(attendant::CALLED) {
            // It has not come yet, and may be long in coming.
            self.wake_worker();
        }
    }

    /// Nobody attends from now on, but for a thread that is on its way out.
    pub(crate) fn close(&self) {
        // ORDERING: Full, before the attendant is looked for; whoever attends does it the other way
        // round, so it is found or finds this.
        self.closed.xchg(true, Full);
        self.send_away();
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: Its queue pair is gone, so no event comes. Waits for the work item.
        unsafe { bindings::ib_free_cq(self.as_raw()) }
    }
}

/// The work item of ib_core's queue: it is in a union, of which different bindgens make different types.
fn work_of(cq: *mut bindings::ib_cq) -> *mut bindings::work_struct {
    cq.wrapping_byte_add(offset_of!(bindings::ib_cq, __bindgen_anon_1))
        .cast()
}

/// What the work item does.
///
/// # Safety
///
/// Called with the work of a queue that a [`Cq`] owns.
unsafe extern "C" fn work(work: *mut bindings::work_struct) {
    // SAFETY: By this function's contract, and that of `Drop`, which waits.
    let cq = unsafe {
        let raw = work
            .byte_sub(offset_of!(bindings::ib_cq, __bindgen_anon_1))
            .cast::<bindings::ib_cq>();
        &*(*raw).cq_context.cast::<Cq>()
    };
    if cq.take_turn() {
        // SAFETY: The turn was taken; workers are in process context.
        unsafe { cq.handle() };
    }
    if cq.attendant.read_once() == attendant::WAITS {
        // What it waits for may have been told to us.
        cq.wake_attendant();
    }
}

/// What is done about an event while a thread attends.
///
/// # Safety
///
/// Called by a device for a queue that a [`Cq`] owns, in any context.
unsafe extern "C" fn event(_cq: *mut bindings::ib_cq, context: *mut c_void) {
    // SAFETY: By this function's contract; devices call no handler once the queue is being destroyed.
    let cq = unsafe { &*context.cast::<Cq>() };
    let waits = cq
        .attendant
        .cmpxchg(attendant::WAITS, attendant::CALLED, Full);
    if waits.is_ok() {
        cq.wake_attendant();
    } else {
        cq.wake_worker();
    }
}
