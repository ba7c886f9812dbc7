// SPDX-License-Identifier: GPL-2.0

//! A completion queue ([`Cq`]). Its completions are handled in process context, one at a time.
//!
//! Usually ib_core's work item handles completions, on the work queue that the completion queue was
//! created for. A thread that waits for a completion may handle completions instead
//! ([`Cq::busy_poll`]). The device's event handler then wakes that thread directly, without a
//! worker.
//!
//! The thread and the work item never handle completions at the same time:
//!
//! - The thread first announces that it polls. If the work item is then queued or running, the
//!   thread leaves the completions to the work item.
//! - A work item that is queued later passes its event to the polling thread, if there is one
//!   ([`events`]). So no event is lost.
//!
//! While the thread polls, it needs no event. Before it sleeps or leaves, it requests the next
//! event, and checks whether a completion has arrived since its last poll.
//!
//! A device may also report an event that was not requested: a dead device reports one such event
//! for each queue. Such an event changes the thread's state ([`poller`]), so the thread queues the
//! work item when it leaves. The drain of a queue pair relies on this work item.

// In a kernel with patch 0002 (`Documentation/upstream`), ib_core passes events to the polling
// thread. For such a kernel `cq/claim.rs` is the module `events`.
#[cfg_attr(xprtrdma_upstream, path = "cq/claim.rs")]
mod events;
mod poller;
#[cfg(not(xprtrdma_upstream))]
mod usual;

pub use poller::PollOutcome;

#[cfg(not(xprtrdma_upstream))]
use self::usual::Usual;
use core::{
    ptr::{self, NonNull},
    sync::atomic::{
        fence,
        Ordering::Acquire, //
    },
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    types::Opaque, //
};
use xprtrdma_base::{
    access_once::AccessOnce,
    queue::PromptQueue,
    NAME, //
};
use xprtrdma_bindings as bindings;

/// Maximum number of completions that a polling thread handles after a wake-up. The thread leaves
/// further completions to the work item.
const BUDGET: c_int = 64;

/// A completion queue.
///
/// # Invariants
///
/// - `raw` is valid. Its context is this object, which does not move.
/// - The work item polls `raw` if `poller` was `NOBODY` or `STOPPED` when the work item began to
///   run.
/// - In the states `POLLS*`, one thread polls `raw`. It first changed `poller` from `NOBODY`, and
///   then found that the work item was neither queued nor running.
/// - The work queue that `raw` uses outlives `raw`.
pub(crate) struct Cq {
    raw: NonNull<bindings::ib_cq>,
    poller: Atomic<u32>,
    closed: Atomic<bool>,
    /// The object on which the polling thread sleeps until it is woken.
    bed: Opaque<bindings::rcuwait>,
    #[cfg(not(xprtrdma_upstream))]
    usual: Usual,
}

// SAFETY: Verbs objects have no thread affinity.
unsafe impl Send for Cq {}
// SAFETY: Threads share only atomic data, or data behind the locks of ib_core and its devices.
unsafe impl Sync for Cq {}

impl Cq {
    /// Makes a queue for `len` completions, which are handled on `queue`. May sleep.
    ///
    /// # Safety
    ///
    /// `device` and `queue` stay valid until the result is dropped.
    pub(crate) unsafe fn new(
        device: *mut bindings::ib_device,
        len: c_int,
        queue: &PromptQueue,
    ) -> Result<Pin<KBox<Self>>> {
        let cq = KBox::<Self>::new_uninit(GFP_KERNEL)?;
        let context = ptr::from_ref(&*cq).cast_mut().cast();
        // SAFETY: By the caller's contract the device is valid. No queue pair uses the completion
        // queue yet. So no event arrives, and no code uses the context.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq_any(
                device,
                context,
                len,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
                NAME.as_char_ptr(),
            )
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: The context is this object, which does not move.
        let cq = KBox::into_pin(cq.write(Self {
            raw,
            poller: Atomic::new(poller::NOBODY),
            closed: Atomic::new(false),
            bed: Opaque::new(Default::default()),
            #[cfg(not(xprtrdma_upstream))]
            // SAFETY: ib_core has just made the queue.
            usual: unsafe { Usual::of(raw.as_ptr()) },
        }));
        // SAFETY: No queue pair uses the completion queue yet. By the caller's contract the work
        // queue outlives the completion queue.
        unsafe { cq.watch(queue)? };
        Ok(cq)
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.raw.as_ptr()
    }

    /// Returns true if a queue pair uses the queue.
    pub(crate) fn is_used(&self) -> bool {
        // SAFETY: The queue is valid until `drop`. Only the calling thread makes and destroys queue
        // pairs, so no other thread changes the number of queue pairs that use the queue.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).usecnt.counter) != 0 }
    }

    #[cold]
    fn wake(&self) {
        // SAFETY: `bed` is initialised and valid as long as `self`. `rcuwait_wake_up` may be called
        // in any context.
        unsafe { bindings::rcuwait_wake_up(self.bed.get()) };
    }

    /// Handles completions in the calling thread until `is_over` returns true. Handles none if
    /// `may` returns false. Must not be called by a handler. May sleep; the closures must not.
    ///
    /// The polling thread calls `is_over` again only after a completion or after
    /// [`Cq::stop_polling`]. So only a completion, or a thread that then calls
    /// [`Cq::stop_polling`], may make `is_over` true.
    #[inline]
    pub(crate) fn busy_poll(
        &self,
        may: impl FnOnce() -> bool,
        is_over: impl Fn() -> bool,
    ) -> PollOutcome {
        // ORDERING: `change` is a full barrier. So `may`, `closed` and the work item are checked
        // after this change of the state: see `stop_polling`, `close` and [`events`].
        if !self.change(poller::NOBODY, poller::WAITS) {
            return PollOutcome::Left;
        }
        let (outcome, left) = if may() {
            self.poll(is_over)
        } else if is_over() {
            (PollOutcome::Over, poller::WAITS)
        } else {
            (PollOutcome::Stopped, poller::WAITS)
        };
        // From now on the work item handles the events and completions that are left.
        if self.poller.xchg(poller::NOBODY, Full) != left {
            self.leave_work();
        }
        outcome
    }

    /// Queues the work item, and wakes the thread that waits in [`Cq::stop`], if any. Called after
    /// the polling thread has left.
    #[cold]
    fn leave_work(&self) {
        self.wake_worker();
        if self.closed.read_once() {
            // SAFETY: The pointer is only used as an address to wait at. ORDERING: The caller has
            // changed the state of the polling thread with a full barrier.
            unsafe { bindings::xprtrdma_wake_var(self.poller_ptr()) };
        }
    }

    /// Returns a C pointer to the state of the polling thread. CAST: An `Atomic<u32>` has the
    /// layout of an `atomic_t`.
    fn poller_ptr(&self) -> *mut bindings::atomic_t {
        self.poller.as_ptr().cast()
    }

    #[inline]
    fn change(&self, from: u32, to: u32) -> bool {
        self.poller.cmpxchg(from, to, Full).is_ok()
    }

    /// Replaces the state of the polling thread by the state that the closure returns, if any.
    /// Returns the previous state.
    fn advance(&self, becomes: impl Fn(u32) -> Option<u32>) -> u32 {
        loop {
            let is = self.poller.read_once();
            match becomes(is) {
                // Another thread has changed the state: try again.
                Some(to) if !self.change(is, to) => {}
                _ => return is,
            }
        }
    }

    /// Polls until `is_over` returns true. Returns the outcome, and the state that the queue should
    /// have when the thread leaves. If the queue then has another state, the thread must queue the
    /// work item.
    #[inline]
    fn poll(&self, is_over: impl Fn() -> bool) -> (PollOutcome, u32) {
        let item_is_busy = self.item_is_busy();
        // ORDERING: If the work item no longer runs, this thread must see the effects of the
        // handlers that the work item called. The lock in `work_busy` ensures this only if the
        // item's worker pool still exists, so this fence is needed.
        fence(Acquire);
        if is_over() {
            return (PollOutcome::Over, poller::WAITS);
        }
        if item_is_busy || self.closed.read_once() {
            return (PollOutcome::Left, poller::WAITS);
        }
        self.take_events();
        let ended = self.poll_events(is_over);
        self.leave_events();
        if ended == (PollOutcome::Over, poller::POLLS) {
            // SAFETY: The queue is valid. From now on the device's events queue the work item.
            if unsafe { bindings::xprtrdma_req_notify(self.as_raw()) } {
                return (PollOutcome::Over, poller::SOMETHING_IS_LEFT);
            }
        }
        ended
    }

    /// Alternately sleeps and handles completions. If the returned state is `POLLS`, the caller
    /// must request the next event from the device.
    #[inline]
    fn poll_events(&self, is_over: impl Fn() -> bool) -> (PollOutcome, u32) {
        let left = 'events: loop {
            self.sleep();
            if !self.change(poller::CALLED, poller::POLLS) {
                // The state is not `CALLED`: a signal is pending, this thread has to freeze, or it
                // was stopped by another thread. If an event arrived before the stop, the other
                // thread has queued the work item. So the event is not lost.
                break match self.poller.read_once() {
                    poller::STOPPED => poller::STOPPED,
                    _ => poller::WAITS,
                };
            }
            let mut budget = BUDGET;
            loop {
                // SAFETY: Only this thread polls, and the work item does not run.
                let count = unsafe { self.handle_some(budget) };
                // NO-OVERFLOW: The number of handled completions never exceeds the budget.
                budget = budget.wrapping_sub(count);
                if budget <= 0 {
                    // The device need not report completions that are already in the queue. So this
                    // thread queues the work item for them.
                    break 'events poller::SOMETHING_IS_LEFT;
                }
                if is_over() {
                    return (PollOutcome::Over, poller::POLLS);
                }
                // The state changes before the event is requested, so that the event wakes this
                // thread.
                if !self.change(poller::POLLS, poller::WAITS) {
                    // If an event has arrived since this thread began to poll, the thread polls
                    // once more.
                    if self.change(poller::POLLS_CALLED, poller::POLLS) {
                        continue;
                    }
                    break 'events poller::SOMETHING_IS_LEFT;
                }
                // SAFETY: The queue is valid.
                if !unsafe { bindings::xprtrdma_req_notify(self.as_raw()) } {
                    break;
                }
                if !self.change(poller::WAITS, poller::POLLS) {
                    if self.poller.read_once() == poller::CALLED {
                        // A completion is already in the queue, so this thread does not sleep.
                        break;
                    }
                    break 'events poller::SOMETHING_IS_LEFT;
                }
            }
        };
        (self.outcome(is_over()), left)
    }

    /// Returns the outcome for a thread that leaves the remaining completions to the work item.
    #[cold]
    fn outcome(&self, is_over: bool) -> PollOutcome {
        if is_over {
            PollOutcome::Over
        } else if matches!(
            self.poller.read_once(),
            poller::STOPPED | poller::POLLS_STOPPED
        ) {
            PollOutcome::Stopped
        } else {
            PollOutcome::Left
        }
    }

    /// Sleeps until the state of the polling thread is no longer `WAITS`, a signal is pending, or
    /// the thread has to freeze.
    #[inline]
    fn sleep(&self) {
        // SAFETY: Only the polling thread sleeps on `bed`. The state is part of `self`, which
        // outlives the call.
        unsafe {
            bindings::xprtrdma_wait_poller(self.bed.get(), self.poller_ptr());
        }
    }

    /// Passes an event to the polling thread. Returns true if a polling thread handles the event,
    /// and false if the work item must handle it.
    #[inline]
    fn call(&self) -> bool {
        let was = self.advance(|is| match is {
            poller::WAITS => Some(poller::CALLED),
            poller::POLLS => Some(poller::POLLS_CALLED),
            // ORDERING: The state is written although it stays the same, because the write is a
            // full barrier. So a polling thread sees the completion, or leaves it to the work item.
            // If no thread polls, the caller sees the effects of the last polling thread.
            other => Some(other),
        });
        if was == poller::WAITS {
            self.wake();
        }
        !matches!(was, poller::NOBODY | poller::STOPPED)
    }

    /// Stops the thread that polls, if there is one. If a thread begins to poll after this call, it
    /// stops immediately, unless its `may` returns true. May be called in any context.
    ///
    /// ORDERING: Before this call, the caller wrote the value that makes `may` false. This function
    /// executes a barrier, and then reads the thread's state. A thread that begins to poll writes
    /// its state, executes a barrier, and then calls `may`. So either this function finds the
    /// thread, or `may` returns false to the thread.
    #[inline]
    pub(crate) fn stop_polling(&self) {
        // SAFETY: A memory barrier has no requirements.
        unsafe { bindings::smp_mb() };
        if self.poller.read_once() != poller::NOBODY {
            self.send_away();
        }
    }

    #[cold]
    fn send_away(&self) {
        let was = self.advance(|is| match is {
            poller::WAITS | poller::CALLED => Some(poller::STOPPED),
            poller::POLLS | poller::POLLS_CALLED => Some(poller::POLLS_STOPPED),
            _ => None,
        });
        match was {
            poller::WAITS => self.wake(),
            // The thread was already woken, but may not run soon. So the work item handles the
            // completions.
            poller::CALLED => self.wake_worker(),
            _ => {}
        }
    }

    /// Forbids polling by threads. A thread that already polls may continue for a short time.
    pub(crate) fn close(&self) {
        // ORDERING: The flag `closed` is written before the barrier in `stop_polling`. A polling
        // thread executes a barrier before it reads this flag and calls `may`.
        self.closed.store(true, Relaxed);
        self.stop_polling();
    }

    /// Waits until no handler runs. No handler runs afterwards, even if completions are left in the
    /// queue. Called after [`Cq::close`]. May sleep; must not be called by a handler.
    ///
    /// A drain is not enough: `ib_drain_qp()` gives up, without an error to its caller, if the
    /// device does not change the queue pair's state or refuses the drain's work request.
    pub(crate) fn stop(&self) {
        self.stop_item();
        // The state is `POLLS_STOPPED` if a thread was handling completions when the queue was
        // closed, and has not left yet. In the state `STOPPED` the polling thread was not handling
        // completions, and will handle none. A thread that begins to poll later handles none
        // either.
        // SAFETY: The pointer is valid as long as `self`, and the caller may sleep.
        unsafe { bindings::xprtrdma_wait_other(self.poller_ptr(), poller::POLLS_STOPPED as c_int) };
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: Without a queue pair no event arrives. `ib_free_cq()` waits for the work item.
        unsafe { bindings::ib_free_cq(self.as_raw()) }
    }
}
