// SPDX-License-Identifier: GPL-2.0

//! The operations on one request, in the order in which they are called.

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
use kernel::prelude::*;
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
        // SAFETY: The RPC client passes a valid transport of class `T`.
        unsafe { Self::xprt(xprt).alloc_slot(task) }
    }

    pub(super) unsafe extern "C" fn buf_alloc(task: *mut bindings::rpc_task) -> c_int {
        // SAFETY: The task has a request, which is in a slot of a transport of class `T` and
        // belongs to the task.
        let (rqst, slot) = unsafe {
            let rqst = (*task).tk_rqstp;
            (rqst, Slot::<T>::from_rqst(rqst))
        };
        // SAFETY: These fields of the request belong to the task.
        let (call_len, reply_len) = unsafe { ((*rqst).rq_callsize, (*rqst).rq_rcvsize) };
        // SAFETY: The slot's buffers belong to this task.
        let buffers = unsafe { &mut *slot.buffers.get() };
        let alloc = || -> Result<(*mut c_void, *mut c_void)> {
            // SAFETY: The task's request belongs to a transport of class `T`.
            let grown = |bytes| unsafe { xprt_of::<T>(rqst) }.pool().count_buffered(bytes);
            Ok((
                buffers.call.ensure(call_len, grown)?,
                buffers.reply.ensure(reply_len, grown)?,
            ))
        };
        match { alloc }() {
            Ok((call, reply)) => {
                // SAFETY: These fields of the request belong to the task.
                unsafe {
                    (*rqst).rq_buffer = call;
                    (*rqst).rq_rbuffer = reply;
                }
                // SAFETY: A task for which memory is allocated has a procedure, which determines
                // the length.
                let procedure = unsafe { (*(*task).tk_msg.rpc_proc).p_statidx };
                // SAFETY: The task's request belongs to a transport of class `T`.
                let xids = unsafe { &xprt_of::<T>(rqst).inner.xids };
                // This code gives the request a new xid. If the RPC client restarts a call, the
                // request may still have its buffers. In that case this code does not run, and the
                // request keeps its xid.
                // SAFETY: This field of the request belongs to the task.
                let mut xid = unsafe { (*rqst).rq_xid };
                xids.renumber(&mut xid, procedure);
                // SAFETY: This field of the request belongs to the task. A reader of the RPC
                // client's debugfs file may read the field at any time. So it is written through a
                // raw pointer, and no Rust reference to it is made.
                unsafe { ptr::write_volatile(&raw mut (*rqst).rq_xid, xid) };
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    /// Called by a kernel with patch 0005 (`Documentation/upstream`) before the kernel encodes a
    /// request again. May sleep.
    #[cfg(xprtrdma_upstream)]
    pub(super) unsafe extern "C" fn reclaim_request(rqst: *mut bindings::rpc_rqst) {
        // SAFETY: The RPC client passes a request of a transport of class `T`. The RPC client
        // encodes only calls, so the request is not a callback.
        let (xprt, slot) = unsafe { (xprt_of::<T>(rqst), Slot::<T>::from_rqst(rqst)) };
        // SAFETY: The request is on no queue and not pinned, so no other thread works on it.
        let call = unsafe { Encoded::new(slot) };
        T::revoke(xprt, &call, Leaving::to_be_encoded());
        slot.leases.wait();
    }

    pub(super) unsafe extern "C" fn prepare_request(
        rqst: *mut bindings::rpc_rqst,
        buf: *mut bindings::xdr_buf,
    ) -> c_int {
        // The RPC client calls this function once for the buffer of the call, and once for the
        // buffer of the reply. For the buffer of the call this function does nothing, because the
        // RPC client would ignore an error.
        // SAFETY: The RPC client passes a request of a transport of class `T`.
        if unsafe { buf != &raw mut (*rqst).rq_rcv_buf || is_callback(rqst) } {
            return 0;
        }
        // SAFETY: The RPC client passes a request of a transport of class `T`, and it is not a
        // callback.
        unsafe { Self::prepare(rqst) }
    }

    /// Prepares a request to be queued. Returns 0 or a negative errno. May sleep.
    ///
    /// This function is not inlined, so that `prepare_request` needs no stack frame when it returns
    /// early, as it does in half of its calls.
    ///
    /// # Safety
    ///
    /// `rqst` is in a slot of a transport of class `T`, and its task is about to queue it.
    #[inline(never)]
    unsafe fn prepare(rqst: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: The contract of this function guarantees that the request is in a slot of a
        // transport of class `T`.
        let (xprt, slot) = unsafe { (xprt_of::<T>(rqst), Slot::<T>::from_rqst(rqst)) };
        // SAFETY: The request is on no queue and not pinned, so no other thread works on it.
        let call = unsafe { Encoded::new(slot) };
        // If the request was sent before, the peer may still have access to its memory. The access
        // is revoked here, unless `reclaim_request` (patch 0005) has already revoked it. `rq_xtime`
        // is zero until `send_request` sets it, so a nonzero value means that the request was sent.
        // SAFETY: By the caller's contract the request is valid.
        let encoded_anew = !cfg!(xprtrdma_upstream) && unsafe { (*rqst).rq_xtime } != 0;
        if encoded_anew {
            let verdict = slot.verdict.take();
            if verdict != 0 {
                return verdict;
            }
            T::revoke(xprt, &call, Leaving::to_be_encoded());
        }
        slot.leases.wait();
        // SAFETY: By the caller's contract the task is about to queue the request, which has no
        // lease.
        let result = unsafe { part_encodings(slot) }
            // SAFETY: By the caller's contract the task is about to queue the request, which has no
            // lease.
            .and_then(|()| unsafe { prepare_reply(slot) })
            .and_then(|()| T::check(xprt, &call));
        result.err().map_or(0, Error::to_errno)
    }

    pub(super) unsafe extern "C" fn send_request(rqst: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: The RPC client passes a request of a transport of class `T`. The RPC client holds
        // the send lock and has pinned the request.
        let (xprt, callback) = unsafe { (xprt_of::<T>(rqst), is_callback(rqst)) };
        if !xprt.is_connected() {
            return NotSent::NotConnected.errno();
        }
        // SAFETY: The calling thread of the RPC client holds the send lock.
        let mut lock = unsafe { SendLock::new(xprt) };
        // SAFETY: The reply cannot arrive yet, so no other thread accesses the field.
        unsafe { (*rqst).rq_xtime = kernel::bindings::ktime_get() };
        let sent = if callback {
            // SAFETY: The request is a callback, so it is in a slot of `Backchannel`.
            let callback = unsafe { Callback::new(rqst) };
            // The callback is counted as answered before the reply is sent, because the server may
            // send its next callback as soon as it has the reply.
            xprt.inner.backchannel.answering(callback.slot());
            T::send_callback_reply(&mut lock, &callback)
        } else {
            // SAFETY: The request is encoded and pinned. Only the holder of the send lock sends the
            // request.
            T::send(&mut lock, &unsafe { Call::new(Slot::from_rqst(rqst)) })
        };
        match sent {
            Ok(()) => {
                // SAFETY: The request is pinned, so its slot has not been reused.
                unsafe {
                    let sent = (*rqst).rq_snd_buf.len as usize;
                    // NO-OVERFLOW: This is a statistic, which may wrap.
                    (*rqst).rq_xmit_bytes_sent = (*rqst).rq_xmit_bytes_sent.wrapping_add(sent);
                };
                if !callback {
                    // SAFETY: The request is pinned and has just been sent under the send lock.
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
        // SAFETY: The RPC client passes a transport of class `T`, and a task whose request belongs
        // to this transport.
        let (xprt, slot) = unsafe { (Self::xprt(xprt), Slot::<T>::from_rqst((*task).tk_rqstp)) };
        // SAFETY: The request belongs to this task, and this code runs in the task's context.
        T::timed_out(xprt, &unsafe { Encoded::new(slot) });
    }

    pub(super) unsafe extern "C" fn release_request(task: *mut bindings::rpc_task) {
        // SAFETY: The RPC client holds the transport's lock, which protects `rq_cong` and the
        // window. The task has a request in a slot of a transport of class `T`, and the request is
        // on no queue.
        unsafe {
            let rqst = (*task).tk_rqstp;
            if is_callback(rqst) {
                // The reply to a callback uses no forward credit.
                (*rqst).rq_cong = 0;
                return;
            }
            if (*rqst).rq_cong == 0 {
                return;
            }
            let xprt = xprt_of::<T>(rqst);
            // The congestion window is reduced before the credit is returned. Otherwise another
            // task could take the credit before the window is reduced.
            if let Some(cwnd) = T::abandon(xprt, &Encoded::new(Slot::from_rqst(rqst))) {
                (*xprt.as_raw()).cwnd = cwnd as usize;
            }
            xprt.return_credit(task);
        }
    }

    pub(super) unsafe extern "C" fn buf_free(task: *mut bindings::rpc_task) {
        // SAFETY: The task has a request, which is in a slot of a transport of class `T` and
        // belongs to the task.
        let (rqst, xprt, slot) = unsafe {
            let rqst = (*task).tk_rqstp;
            (rqst, xprt_of::<T>(rqst), Slot::<T>::from_rqst(rqst))
        };
        // SAFETY: The request is on no queue and not pinned, so no other thread works on it.
        let call = unsafe { Encoded::new(slot) };
        // SAFETY: This code runs in the task's own thread, and the task owns the request.
        T::revoke(xprt, &call, unsafe { Leaving::for_good(task) });
        slot.leases.wait();
        // The slot keeps the memory for its next request.
        // SAFETY: These fields of the request belong to the task.
        unsafe {
            (*rqst).rq_buffer = ptr::null_mut();
            (*rqst).rq_rbuffer = ptr::null_mut();
        }
    }

    pub(super) unsafe extern "C" fn free_slot(
        xprt: *mut bindings::rpc_xprt,
        rqst: *mut bindings::rpc_rqst,
    ) {
        // SAFETY: The RPC client passes a valid transport of class `T` and a request that
        // `alloc_slot` assigned. `buf_free` has waited until the request had no leases.
        unsafe { Self::xprt(xprt).free_slot(rqst) }
    }
}
