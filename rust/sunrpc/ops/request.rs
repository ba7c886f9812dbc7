// SPDX-License-Identifier: GPL-2.0

//! The operations about one request, in the order of its life.

use super::Ops;
use crate::{
    call::{
        part_encodings,
        prepare_reply,
        Call,
        Encoded,
        Leaving, //
    },
    callback::{
        is_callback,
        Callback, //
    },
    slot::Slot,
    transport::{
        NotSent,
        Transport, //
    },
    xprt::{
        xprt_of,
        SendLock, //
    },
};
use core::ptr;
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};
use xprtrdma_bindings as bindings;

#[expect(
    clippy::missing_safety_doc,
    reason = "all are called by the RPC client only, under the contract of rpc_xprt_ops"
)]
impl<T: Transport> Ops<T> {
    pub(super) unsafe extern "C" fn alloc_slot(
        xprt: *mut bindings::rpc_xprt,
        task: *mut bindings::rpc_task,
    ) {
        // SAFETY: Called by the RPC client for a transport of ours.
        unsafe { Self::xprt(xprt).alloc_slot(task) }
    }

    pub(super) unsafe extern "C" fn buf_alloc(task: *mut bindings::rpc_task) -> c_int {
        // SAFETY: The task has a request, which is in a slot of ours and belongs to the task.
        let (rqst, slot) = unsafe {
            let rqst = (*task).tk_rqstp;
            (rqst, Slot::<T>::from_rqst(rqst))
        };
        // SAFETY: These fields belong to the task.
        let (call_len, reply_len) = unsafe { ((*rqst).rq_callsize, (*rqst).rq_rcvsize) };
        // SAFETY: The slot's buffers belong to this task.
        let buffers = unsafe { &mut *slot.buffers.get() };
        let alloc = || -> Result<(*mut c_void, *mut c_void)> {
            // SAFETY: As above.
            let grown = |bytes| unsafe { xprt_of::<T>(rqst) }.pool().count_buffered(bytes);
            Ok((
                buffers.call.ensure(call_len, grown)?,
                buffers.reply.ensure(reply_len, grown)?,
            ))
        };
        match { alloc }() {
            Ok((call, reply)) => {
                // SAFETY: As above.
                unsafe {
                    (*rqst).rq_buffer = call;
                    (*rqst).rq_rbuffer = reply;
                }
                // SAFETY: A task that gets memory has a procedure, which told how much.
                let procedure = unsafe { (*(*task).tk_msg.rpc_proc).p_statidx };
                // SAFETY: The transport of a request of ours.
                let xids = unsafe { &xprt_of::<T>(rqst).inner.xids };
                // A request that still has its memory, as when it is sent again from the start,
                // does not come here.
                // SAFETY: The field belongs to the task.
                let mut xid = unsafe { (*rqst).rq_xid };
                xids.renumber(&mut xid, procedure);
                // SAFETY: As above. The RPC client's debugfs shows it at any time: no reference.
                unsafe { ptr::write_volatile(&raw mut (*rqst).rq_xid, xid) };
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    pub(super) unsafe extern "C" fn prepare_request(
        rqst: *mut bindings::rpc_rqst,
        buf: *mut bindings::xdr_buf,
    ) -> c_int {
        // An error about the call's buffer would be lost, so it is not reported.
        // SAFETY: Called by the RPC client for a request of ours.
        if unsafe { buf != &raw mut (*rqst).rq_rcv_buf || is_callback(rqst) } {
            return 0;
        }
        // SAFETY: As above, and it is not a callback.
        unsafe { Self::prepare(rqst) }
    }

    /// Gets a request ready to be queued. Returns 0 or an errno. Sleeps.
    ///
    /// Out of line: half the calls of `prepare_request` end before they need a frame.
    ///
    /// # Safety
    ///
    /// `rqst` is in a slot of ours, and its task is about to queue it.
    #[inline(never)]
    unsafe fn prepare(rqst: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: By the caller's contract.
        let (xprt, slot) = unsafe { (xprt_of::<T>(rqst), Slot::<T>::from_rqst(rqst)) };
        // SAFETY: The request is on no queue and not pinned.
        let call = unsafe { Encoded::new(slot) };
        // It is zero in a slot that is handed out, and set by `send_request`.
        // SAFETY: By the caller's contract.
        let encoded_anew = unsafe { (*rqst).rq_xtime } != 0;
        if encoded_anew {
            let verdict = slot.verdict.xchg(0, Relaxed);
            if verdict != 0 {
                return verdict;
            }
            T::revoke(xprt, &call, Leaving::to_be_encoded());
        }
        slot.leases.wait();
        // SAFETY: By the caller's contract, and no lease is left.
        let result = unsafe { part_encodings(slot) }
            // SAFETY: As above.
            .and_then(|()| unsafe { prepare_reply(slot) })
            .and_then(|()| T::check(xprt, &call));
        result.err().map_or(0, Error::to_errno)
    }

    pub(super) unsafe extern "C" fn send_request(rqst: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: Called by the RPC client for a request of ours, with the send lock held and the
        // request pinned.
        let (xprt, callback) = unsafe { (xprt_of::<T>(rqst), is_callback(rqst)) };
        if !xprt.is_connected() {
            return NotSent::NotConnected.errno();
        }
        // SAFETY: The send lock is held by the thread that called us.
        let mut lock = unsafe { SendLock::new(xprt) };
        // SAFETY: `rq_xtime` is ours to set, before the reply can arrive.
        unsafe { (*rqst).rq_xtime = kernel::bindings::ktime_get() };
        let sent = if callback {
            // SAFETY: The request is a callback that `Backchannel` made.
            let callback = unsafe { Callback::new(rqst) };
            // Before the reply is sent, as the server's next callback may come at once.
            xprt.inner.backchannel.answering(callback.slot());
            T::send_callback_reply(&mut lock, &callback)
        } else {
            // SAFETY: The request is encoded and pinned, and only the holder of the send lock sends
            // it.
            T::send(&mut lock, &unsafe { Call::new(Slot::from_rqst(rqst)) })
        };
        match sent {
            Ok(()) => {
                // SAFETY: The request is pinned, so it is still the same one.
                unsafe {
                    let sent = (*rqst).rq_snd_buf.len as usize;
                    // NO-OVERFLOW: A statistic, which may wrap.
                    (*rqst).rq_xmit_bytes_sent = (*rqst).rq_xmit_bytes_sent.wrapping_add(sent);
                };
                if !callback {
                    // SAFETY: The request is pinned and was sent just now.
                    unsafe { Self::add_step(xprt, rqst) };
                }
                0
            }
            Err(e) => e.errno(),
        }
    }

    pub(super) unsafe extern "C" fn timer(
        xprt: *mut bindings::rpc_xprt,
        task: *mut bindings::rpc_task,
    ) {
        // SAFETY: Called by the RPC client for a transport and a request of ours.
        let (xprt, slot) = unsafe { (Self::xprt(xprt), Slot::<T>::from_rqst((*task).tk_rqstp)) };
        // SAFETY: The request belongs to this task, whose context this is.
        T::timed_out(xprt, &unsafe { Encoded::new(slot) });
    }

    pub(super) unsafe extern "C" fn release_request(task: *mut bindings::rpc_task) {
        // SAFETY: Called by the RPC client with the transport's lock held, which protects `rq_cong`
        // and the window, for a task with a request of ours that is on no queue.
        unsafe {
            let rqst = (*task).tk_rqstp;
            if is_callback(rqst) {
                // The reply to a callback took no forward credit.
                (*rqst).rq_cong = 0;
                return;
            }
            if (*rqst).rq_cong == 0 {
                return;
            }
            let xprt = xprt_of::<T>(rqst);
            // The window gets smaller before the credit is free, so that no task takes it in
            // between.
            if let Some(cwnd) = T::abandon(xprt, &Encoded::new(Slot::from_rqst(rqst))) {
                (*xprt.as_raw()).cwnd = cwnd as usize;
            }
            if xprt.sender_may_wait() {
                bindings::xprt_release_rqst_cong(task);
            } else {
                // This does what the callee does if no task waits, without its four atomic
                // instructions.
                (*rqst).rq_cong = 0;
                let cong = &mut (*xprt.as_raw()).cong;
                // CAST: Wider.
                // NO-OVERFLOW: The request has a credit, which is counted.
                *cong = cong.wrapping_sub(bindings::RPC_CWNDSCALE as usize);
            }
        }
    }

    pub(super) unsafe extern "C" fn buf_free(task: *mut bindings::rpc_task) {
        // SAFETY: As in `buf_alloc`.
        let (rqst, xprt, slot) = unsafe {
            let rqst = (*task).tk_rqstp;
            (rqst, xprt_of::<T>(rqst), Slot::<T>::from_rqst(rqst))
        };
        // SAFETY: The request is off all queues and not pinned, so no other thread works on it.
        let call = unsafe { Encoded::new(slot) };
        // SAFETY: The task runs here.
        T::revoke(xprt, &call, unsafe { Leaving::for_good(task) });
        slot.leases.wait();
        // The memory stays with the slot.
        // SAFETY: These fields belong to the task.
        unsafe {
            (*rqst).rq_buffer = ptr::null_mut();
            (*rqst).rq_rbuffer = ptr::null_mut();
        }
    }

    pub(super) unsafe extern "C" fn free_slot(
        xprt: *mut bindings::rpc_xprt,
        rqst: *mut bindings::rpc_rqst,
    ) {
        // SAFETY: Called by the RPC client for a transport of ours, with a request that
        // `alloc_slot` gave out; `buf_free` has waited for its leases.
        unsafe { Self::xprt(xprt).free_slot(rqst) }
    }
}
