// SPDX-License-Identifier: GPL-2.0

//! How many requests may be in flight; and senders that wait for that or for another reason.

use super::{
    SendLock,
    Xprt, //
};
use crate::transport::Transport;
use core::ptr;
use xprtrdma_base::compat;
use xprtrdma_bindings as bindings;

impl<T: Transport> Xprt<T> {
    /// Sets how many requests may be in flight, in units of 1/256, to the result of `cwnd`. That is
    /// called under the transport's lock, like [`Transport::abandon`]. Waiting requests notice the
    /// change when the next credit is returned, or after [`Xprt::nudge_senders`].
    pub fn set_window(&self, cwnd: impl FnOnce() -> u32) {
        let _transport = self.transport_lock().lock();
        let xprt = self.as_raw();
        // SAFETY: The lock is held.
        unsafe {
            (*xprt).cwnd = cwnd() as usize;
            // The RPC client does so only when a request returns its credit. That does not happen
            // if nothing is in flight any more, and the next sender would wait for ever.
            if (*xprt).cong < (*xprt).cwnd {
                bindings::xprtrdma_xprt_clear_cwnd_wait(xprt);
            }
        }
    }

    /// Wakes one waiting sender to look at the window, when no end of a request would.
    pub fn nudge_senders(&self) {
        self.stop_senders();
        self.wake_senders();
    }

    /// Starts the credit accounting of a new connection: nothing in flight, one credit (V1-014).
    pub fn reset_window(&self, _lock: &SendLock<'_, T>, cwnd: u32) {
        let _transport = self.transport_lock().lock();
        for slot in self.slots() {
            // SAFETY: `rq_cong` is protected by the lock.
            unsafe { (*slot.rqst.get()).rq_cong = 0 };
        }
        // SAFETY: The lock is held.
        unsafe {
            (*self.as_raw()).cong = 0;
            (*self.as_raw()).cwnd = cwnd as usize;
        }
    }

    /// Announces that senders must wait. Afterwards the caller must check again what it waits for,
    /// and the thread that provides it must call [`Xprt::wake_senders`].
    pub fn stop_senders(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_wait_for_buffer_space(self.as_raw()) };
        compat::smp_mb();
    }

    /// Wakes the senders that were stopped.
    pub fn wake_senders(&self) {
        compat::smp_mb();
        // For a moment this holds the send lock. The transport's destruction may begin to wait for
        // it in that moment, and sunrpc does not wake it when the lock is released: usually a task
        // holds it, which keeps the transport.
        // SAFETY: The transport is valid.
        unsafe {
            bindings::xprt_write_space(self.as_raw());
            bindings::xprtrdma_xprt_wake_locker(self.as_raw());
        }
    }

    /// Whether a task may wait for the send lock or for a credit.
    ///
    /// # Safety
    ///
    /// The transport's lock is held. A task begins to wait under the same lock, so none begins
    /// before it is released.
    #[inline]
    pub(crate) unsafe fn sender_may_wait(&self) -> bool {
        let xprt = self.as_raw();
        // SAFETY: Words of a valid transport, each read at once. Others may write them at the same
        // time: a waiter may go, and other bits of the state change, but only the holder of the
        // lock increases the number or sets the bit that is asked for.
        let (waiting, state) = unsafe {
            (
                ptr::read_volatile(&raw const (*xprt).sending.qlen),
                ptr::read_volatile(&raw const (*xprt).state),
            )
        };
        waiting != 0 || state & (1 << bindings::XPRT_CWND_WAIT) != 0
    }

    /// Whether a request is in flight. Only a hint: it may have changed already.
    pub fn is_busy(&self) -> bool {
        // SAFETY: A plain number.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).cong) != 0 }
    }

    /// Whether requests other than the caller's, which has a credit, are in flight; likewise a
    /// hint.
    #[inline]
    pub fn has_others(&self) -> bool {
        // SAFETY: A plain number, in units of 1/256.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).cong) > 1 << 8 }
    }
}
