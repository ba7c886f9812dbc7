// SPDX-License-Identifier: GPL-2.0

//! The congestion window, which limits the number of requests in flight, and the senders that wait
//! for a credit or for another resource.

use super::{
    SendLock,
    Xprt, //
};
use crate::transport::Transport;
use core::ptr;
use xprtrdma_base::compat;
use xprtrdma_bindings as bindings;

impl<T: Transport> Xprt<T> {
    /// Sets the congestion window, in units of 1/256 request, to the result of `cwnd`. `cwnd` is
    /// called under the transport's lock, as [`Transport::abandon`] is. Waiting requests use the
    /// new window when the next credit is returned, or after [`Xprt::nudge_senders`].
    pub fn set_window(&self, cwnd: impl FnOnce() -> u32) {
        let _transport = self.transport_lock().lock();
        let xprt = self.as_raw();
        // SAFETY: The transport's lock is held, which protects these fields.
        unsafe {
            (*xprt).cwnd = cwnd() as usize;
            // This code must clear the flag `XPRT_CWND_WAIT`: the RPC client clears it only when a
            // request returns its credit. If nothing is in flight, no credit is returned, and the
            // next sender would wait for ever.
            if (*xprt).cong < (*xprt).cwnd {
                bindings::xprtrdma_xprt_clear_cwnd_wait(xprt);
            }
        }
    }

    /// Wakes one waiting sender, which then checks the window again. Must be called if no request
    /// will end soon, because apart from this function only the end of a request wakes a sender.
    pub fn nudge_senders(&self) {
        self.stop_senders();
        self.wake_senders();
    }

    /// Resets the credit accounting for a new connection. Afterwards no request counts as in
    /// flight, and the window is `cwnd`. By V1-014 a new connection begins with one credit.
    pub fn reset_window(&self, _lock: &SendLock<'_, T>, cwnd: u32) {
        let _transport = self.transport_lock().lock();
        for slot in self.slots() {
            // SAFETY: The transport's lock, which is held, protects `rq_cong`.
            unsafe { (*slot.rqst.get()).rq_cong = 0 };
        }
        // SAFETY: The transport's lock is held, which protects these fields.
        unsafe {
            (*self.as_raw()).cong = 0;
            (*self.as_raw()).cwnd = cwnd as usize;
        }
    }

    /// Makes senders wait for a resource. Afterwards the caller must check again whether the
    /// resource is still missing. The thread that provides the resource must call
    /// [`Xprt::wake_senders`].
    pub fn stop_senders(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_wait_for_buffer_space(self.as_raw()) };
        compat::smp_mb();
    }

    /// Wakes the senders that wait because of [`Xprt::stop_senders`].
    pub fn wake_senders(&self) {
        compat::smp_mb();
        // `xprt_write_space` holds the send lock for a moment. In that moment a thread that
        // destroys the transport may begin to wait for the lock. When the lock is released, sunrpc
        // does not wake such a thread, because it assumes that a task holds the lock, and that the
        // task has a reference to the transport. So this function wakes the thread.
        // SAFETY: The transport is valid.
        unsafe {
            bindings::xprt_write_space(self.as_raw());
            bindings::xprtrdma_xprt_wake_locker(self.as_raw());
        }
    }

    /// Returns the credit of a request. Wakes the next sender if a task may be waiting.
    ///
    /// # Safety
    ///
    /// The caller holds the transport's lock. The request of `task` belongs to this transport and
    /// has a credit.
    #[inline]
    pub(crate) unsafe fn return_credit(&self, task: *mut bindings::rpc_task) {
        // In a kernel with patch 0003, `xprt_release_rqst_cong` itself checks whether a task may be
        // waiting.
        // SAFETY: By the caller's contract the transport's lock is held, which protects `rq_cong`
        // and the window. The task has a request.
        unsafe {
            if cfg!(xprtrdma_upstream) || self.sender_may_wait() {
                return bindings::xprt_release_rqst_cong(task);
            }
            // This code has the effect of `xprt_release_rqst_cong` if no task waits. It needs no
            // atomic instructions, but `xprt_release_rqst_cong` needs four.
            (*(*task).tk_rqstp).rq_cong = 0;
            let cong = &mut (*self.as_raw()).cong;
            // CAST: `usize` is wider than `u32`.
            // NO-OVERFLOW: `cong` includes the credit of this request.
            *cong = cong.wrapping_sub(bindings::RPC_CWNDSCALE as usize);
        }
    }

    /// Returns whether a task may be waiting for the send lock or for a credit.
    ///
    /// # Safety
    ///
    /// The caller holds the transport's lock. A task begins to wait only under the same lock. So no
    /// task begins to wait before the caller releases the lock.
    #[inline]
    unsafe fn sender_may_wait(&self) -> bool {
        let xprt = self.as_raw();
        // SAFETY: The transport is valid, and each word is read with a single access. Other threads
        // may write these words at the same time: a task may stop waiting, and other bits of the
        // state may change. But only the holder of the transport's lock increases the queue length
        // or sets the tested bit, and that holder is the caller.
        let (waiting, state) = unsafe {
            (
                ptr::read_volatile(&raw const (*xprt).sending.qlen),
                ptr::read_volatile(&raw const (*xprt).state),
            )
        };
        waiting != 0 || state & (1 << bindings::XPRT_CWND_WAIT) != 0
    }

    /// Returns whether a request is in flight. The result is only a hint, because it may already be
    /// outdated when the caller uses it.
    pub fn is_busy(&self) -> bool {
        // SAFETY: The field is one word of a valid transport, and is read once.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).cong) != 0 }
    }

    /// Returns whether requests are in flight besides the caller's request. The caller's request
    /// has a credit. The result is only a hint, because it may already be outdated when the caller
    /// uses it.
    #[inline]
    pub fn has_others(&self) -> bool {
        // SAFETY: The field is one word of a valid transport, and is read once. The field counts in
        // units of 1/256 request.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).cong) > 1 << 8 }
    }
}
