// SPDX-License-Identifier: GPL-2.0

//! Completion queue ([`Cq`]): whatever completes is handled in process context, one completion
//! after the other.
//!
//! Usually ib_core's work item does that, on a work queue that is named when the queue is made. A
//! thread that waits for something that a completion will tell may do it instead
//! ([`Cq::busy_poll`]). The device's event wakes that thread itself, so it neither waits for a
//! worker nor is it woken by one.
//!
//! Never do both handle completions at a time: the thread disables the work item before it polls,
//! and leaves the polling to it if it finds it running. No event is lost by that. While the thread
//! polls, the device owes none; the thread enables the item again before it asks for the next one,
//! and asks whether something has completed meanwhile.
//!
//! A device may report by itself all the same: a dead one does, once for each queue. A work item
//! that is disabled drops what it is asked to do, so who asks leaves a mark first ([`poller`]),
//! and the thread wakes the item when it has enabled it again and finds one. The drain relies on
//! that. (A device that has read the old handler before a thread came, and calls it when that
//! thread already polls for another event, leaves none. Of one event only one of the two can be
//! told. So the other was unasked for, and whoever ends the connection of a dead device sees to it
//! that the queue is looked at once more.)

use core::{
    mem::offset_of,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    types::Opaque,
    workqueue::Queue, //
};
use xprtrdma_base::access_once::AccessOnce;
use xprtrdma_bindings as bindings;

/// So many completions a thread handles before it leaves the rest to the work item.
const BUDGET: c_int = 64;

/// The states of the thread that polls.
mod poller {
    /// There is none.
    pub(super) const NOBODY: u32 = 0;
    /// It sleeps, or is about to look whether it should.
    pub(super) const WAITS: u32 = 1;
    /// It was told of an event, and handles completions.
    pub(super) const CALLED: u32 = 2;
    /// Another event came meanwhile.
    pub(super) const CALLED_AGAIN: u32 = 3;
    /// It was told to stop.
    pub(super) const STOPPED: u32 = 4;
}

/// Why a thread no longer handles completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The wait is over.
    Over,
    /// A signal is pending, the thread shall freeze, another one does it, or the queue pair is
    /// being shut down.
    Left,
    /// It was stopped, or would have been.
    Stopped,
}

/// A completion queue.
///
/// # Invariants
///
/// - `raw` is valid; its context is this object, which does not move.
/// - `raw` is polled by its work item, or by the thread that has changed `poller` from `NOBODY`
///   to something else, while the item is disabled and does not run.
/// - The work queue that `raw` names outlives it.
pub(crate) struct Cq {
    raw: NonNull<bindings::ib_cq>,
    poller: Atomic<u32>,
    closed: Atomic<bool>,
    /// Where the thread sleeps.
    bed: Opaque<bindings::rcuwait>,
    /// Queues the work item, as ib_core does about an event.
    usual: bindings::ib_comp_handler,
}

// SAFETY: Verbs objects have no thread affinity.
unsafe impl Send for Cq {}
// SAFETY: All that threads share is atomic, or behind the locks of ib_core and its devices.
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
        // Without memory the value is dropped, which frees the queue.
        let cq = KBox::pin(
            Self {
                raw,
                poller: Atomic::new(poller::NOBODY),
                closed: Atomic::new(false),
                bed: Opaque::new(Default::default()),
                // SAFETY: Set by the call above.
                usual: unsafe { (*raw.as_ptr()).comp_handler },
            },
            GFP_KERNEL,
        )?;
        // SAFETY: Nobody uses the queue yet: nothing completes without a queue pair. By the
        // caller's contract the work queue outlives it.
        unsafe {
            let raw = raw.as_ptr();
            (*raw).cq_context = ptr::from_ref(&*cq).cast_mut().cast();
            (*raw).comp_wq = ptr::from_ref(queue).cast_mut().cast();
        }
        Ok(cq)
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.raw.as_ptr()
    }

    /// ib_core's work item: it is in a union, of which different bindgens make different types.
    #[inline]
    fn work(&self) -> *mut bindings::work_struct {
        self.as_raw()
            .wrapping_byte_add(offset_of!(bindings::ib_cq, __bindgen_anon_1))
            .cast()
    }

    /// Has the work item look at the queue. From any context.
    #[cold]
    fn wake_worker(&self) {
        if let Some(usual) = self.usual {
            // SAFETY: The queue is valid, and ib_core's handler may be called in any context.
            unsafe { usual(self.as_raw(), ptr::null_mut()) }
        }
    }

    /// Lets the thread that polls, if there is one, look whether it need wait any longer. To be
    /// called when a completion was handled.
    #[inline]
    pub(crate) fn handled(&self) {
        if self.poller.read_once() == poller::WAITS {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // SAFETY: Initialised with the queue; from any context.
        unsafe { bindings::rcuwait_wake_up(self.bed.get()) };
    }

    /// Handles completions in the calling thread until `is_over`, if it `may`. Must not be called
    /// by a handler. Sleeps; what it asks must not.
    ///
    /// ORDERING: Other threads may handle the completion that brings `is_over` about. They do so
    /// with a full barrier, before [`Cq::handled`] looks whether somebody waits; who waits says so
    /// before it asks `is_over`.
    #[inline]
    pub(crate) fn busy_poll(
        &self,
        may: impl FnOnce() -> bool,
        is_over: impl Fn() -> bool,
    ) -> PollOutcome {
        // ORDERING: Full, and the looks at `may` and `closed` come after it: see `stop_polling` and
        // `close`.
        if !self.change(poller::NOBODY, poller::WAITS) {
            return PollOutcome::Left;
        }
        let outcome = if may() {
            self.set_handler(Some(event));
            let outcome = self.wait(&is_over);
            self.set_handler(self.usual);
            outcome
        } else if is_over() {
            PollOutcome::Over
        } else {
            PollOutcome::Stopped
        };
        // Whatever was meant for this thread, or came while the item was disabled, is the item's
        // now.
        if self.poller.xchg(poller::NOBODY, Full) != poller::WAITS {
            self.leave_work();
        }
        outcome
    }

    /// Behind the thread's leave: the item shall look at the queue, and [`Cq::stop`] for the
    /// thread.
    #[cold]
    fn leave_work(&self) {
        self.wake_worker();
        if self.closed.read_once() {
            // SAFETY: An address to wait at. ORDERING: The caller has left with a full barrier.
            unsafe { bindings::xprtrdma_wake_var(self.poller_ptr()) };
        }
    }

    /// CAST: What the thread does, as C sees it: an `Atomic<u32>` has the layout of an `atomic_t`.
    fn poller_ptr(&self) -> *mut bindings::atomic_t {
        self.poller.as_ptr().cast()
    }

    /// Whether the thread that polls, which asks, was told of an event.
    #[inline]
    fn is_called(&self) -> bool {
        matches!(
            self.poller.read_once(),
            poller::CALLED | poller::CALLED_AGAIN
        )
    }

    #[inline]
    fn change(&self, from: u32, to: u32) -> bool {
        self.poller.cmpxchg(from, to, Full).is_ok()
    }

    /// Changes what the thread does to what becomes of it, if anything; returns what it was.
    fn advance(&self, becomes: impl Fn(u32) -> Option<u32>) -> u32 {
        loop {
            let is = self.poller.read_once();
            match becomes(is) {
                // Somebody else has changed it: look again.
                Some(to) if !self.change(is, to) => {}
                _ => return is,
            }
        }
    }

    #[inline]
    fn set_handler(&self, handler: bindings::ib_comp_handler) {
        // SAFETY: The queue is valid. A device may call either handler meanwhile: both are right at
        // any time. A pointer is written at once.
        unsafe { ptr::write_volatile(&raw mut (*self.as_raw()).comp_handler, handler) }
    }

    #[inline]
    fn wait<F: Fn() -> bool>(&self, is_over: &F) -> PollOutcome {
        while !self.closed.read_once() {
            self.sleep(is_over);
            if self.is_called() {
                // SAFETY: This thread polls.
                unsafe { self.handle(is_over) };
                if !is_over() {
                    continue;
                }
            }
            if is_over() {
                return PollOutcome::Over;
            }
            if self.poller.read_once() == poller::STOPPED {
                return PollOutcome::Stopped;
            }
            // A signal, or the thread shall freeze.
            break;
        }
        PollOutcome::Left
    }

    /// Handles completions after an event.
    ///
    /// # Safety
    ///
    /// The caller polls.
    #[inline]
    unsafe fn handle<F: Fn() -> bool>(&self, is_over: &F) {
        let (cq, work) = (self.as_raw(), self.work());
        loop {
            // SAFETY: The queue and its work item are valid. An item that is disabled does not
            // begin to run; if it does not run at that time it will not until it is enabled. So
            // this thread has the queue for itself, with the array of its own that ib_core uses
            // here.
            let more = unsafe {
                bindings::disable_work(work);
                let runs = bindings::work_busy(work) != 0;
                let count = if runs {
                    BUDGET
                } else {
                    let count = bindings::ib_process_cq_direct(cq, BUDGET);
                    self.learn(count);
                    count
                };
                // Before an event can come, so that the next one calls this thread again. What came
                // while the item was disabled is for the item.
                let quiet = self.change(poller::CALLED, poller::WAITS);
                let marked = !quiet && self.change(poller::CALLED_AGAIN, poller::WAITS);
                bindings::enable_work(work);
                if count >= BUDGET || marked {
                    return self.wake_worker();
                }
                if !quiet {
                    // Stopped, so `busy_poll` wakes the item.
                    return;
                }
                bindings::xprtrdma_req_notify(cq)
            };
            if !more {
                return;
            }
            let again = self.change(poller::WAITS, poller::CALLED);
            if is_over() || !again {
                return self.wake_worker();
            }
        }
    }

    /// Has a device that learns how many events to spare learn from so many completions, as ib_core
    /// does for its item.
    ///
    /// # Safety
    ///
    /// The caller polls, and the item does not run.
    #[inline]
    unsafe fn learn(&self, count: c_int) {
        // SAFETY: The queue is valid; what it learns belongs to who polls it.
        unsafe {
            let dim = (*self.as_raw()).dim;
            if !dim.is_null() {
                // CAST: A number of completions.
                bindings::rdma_dim(dim, count as u64);
            }
        }
    }

    /// Sleeps while the thread that polls waits and until `is_over`, until a signal is pending, or
    /// until the thread shall freeze.
    #[inline]
    fn sleep<F: Fn() -> bool>(&self, is_over: &F) {
        /// # Safety
        ///
        /// `is_over` points to an `F` that lives.
        unsafe extern "C" fn ask<F: Fn() -> bool>(is_over: *mut c_void) -> bool {
            // SAFETY: By this function's contract.
            unsafe { (*is_over.cast::<F>().cast_const())() }
        }
        // CAST: A state.
        // SAFETY: Only the thread that polls sleeps there. Its state, and `is_over`, live as long
        // as the call, during which alone they are used, the latter by this thread.
        unsafe {
            bindings::xprtrdma_rcuwait(
                self.bed.get(),
                self.poller_ptr(),
                poller::WAITS as c_int,
                Some(ask::<F>),
                ptr::from_ref(is_over).cast_mut().cast(),
            )
        };
    }

    /// Tells the thread of an event, or the work item.
    #[cold]
    fn mark(&self) {
        let was = self.advance(|is| match is {
            poller::WAITS => Some(poller::CALLED),
            poller::CALLED => Some(poller::CALLED_AGAIN),
            _ => None,
        });
        if was == poller::WAITS {
            self.wake();
        } else {
            // Behind the mark: a disabled item drops it.
            self.wake_worker();
        }
    }

    /// Sends a thread away that polls, and each that comes until it finds that it `may` again.
    /// From any context.
    ///
    /// ORDERING: What makes that `may` false was written before. The barrier comes before the look
    /// for a thread; one that comes does it the other way round, so it is found or finds that it
    /// may not.
    #[inline]
    pub(crate) fn stop_polling(&self) {
        // SAFETY: A barrier asks for nothing.
        unsafe { bindings::smp_mb() };
        if self.poller.read_once() != poller::NOBODY {
            self.send_away();
        }
    }

    #[cold]
    fn send_away(&self) {
        let was = self.advance(|is| match is {
            poller::NOBODY | poller::STOPPED => None,
            _ => Some(poller::STOPPED),
        });
        match was {
            poller::WAITS => self.wake(),
            // It may be long in coming. If it has begun, the item is disabled, and waits for it.
            poller::CALLED | poller::CALLED_AGAIN => self.wake_worker(),
            _ => {}
        }
    }

    /// Nobody polls from now on, but for a thread that is on its way out.
    pub(crate) fn close(&self) {
        // ORDERING: Written before the barrier in `stop_polling`; a thread looks at it as at `may`.
        self.closed.store(true, Relaxed);
        self.stop_polling();
    }

    /// No handler runs any more when this returns, however much is left in the queue. Behind
    /// [`Cq::close`]. May sleep; must not be called by a handler.
    ///
    /// A drain waits for less: ib_core's gives up, without a word to its caller, when the device
    /// does not change the queue pair's state or does not take the work request that it waits for.
    pub(crate) fn stop(&self) {
        // SAFETY: An initialised work item. It is never enabled again: a thread that polls
        // enables it as often as it disables it.
        unsafe { bindings::disable_work_sync(self.work()) };
        // One that came before the queue was closed is `STOPPED` until it leaves; one that comes
        // later handles nothing, whatever its state.
        // SAFETY: The pointer is valid as long as `self`; this may sleep.
        unsafe { bindings::xprtrdma_wait_other(self.poller_ptr(), poller::STOPPED as c_int) };
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: Its queue pair is gone, so no event comes. Waits for the work item.
        unsafe { bindings::ib_free_cq(self.as_raw()) }
    }
}

/// Handles an event while a thread polls.
///
/// # Safety
///
/// Called by a device for a queue that a [`Cq`] owns, in any context.
unsafe extern "C" fn event(_cq: *mut bindings::ib_cq, context: *mut c_void) {
    // SAFETY: By this function's contract; devices call no handler of a queue that is gone.
    let cq = unsafe { &*context.cast::<Cq>() };
    // Usually the thread waits for it.
    if cq.change(poller::WAITS, poller::CALLED) {
        cq.wake();
    } else {
        cq.mark();
    }
}
