// SPDX-License-Identifier: GPL-2.0

//! The tracepoints of a transport, `xprtrdma_rs:*` in tracefs.
//!
//! A tracepoint that is off costs one branch that is not taken. `xprt` is the transport's number
//! ([`Xprt::id`](crate::xprt::Xprt::id)). Xids are in host byte order, and lengths are in bytes.
//! All functions may be called in any context. Tracepoints on the path of every RPC take a closure,
//! so that their arguments are computed only while the tracepoint is on.

use kernel::jump_label::static_branch_unlikely;
use xprtrdma_bindings as bindings;

/// Calls the C function of a tracepoint if the tracepoint is on.
macro_rules! trace {
    ($point:ident, |$args:pat_param| $all:expr, $entry:ident($($arg:expr),* $(,)?)) => {
        #[cfg(CONFIG_TRACEPOINTS)]
        // SAFETY: The operands are the same as in the other branch of this macro, and satisfy the
        // same requirements.
        unsafe {
            if static_branch_unlikely!(bindings::$point, bindings::tracepoint, key) {
                let $args = $all;
                bindings::$entry($($arg),*);
            }
        }
        #[cfg(not(CONFIG_TRACEPOINTS))]
        let _ = $all;
    };
    ($point:ident, $entry:ident($($arg:expr),* $(,)?)) => {
        #[cfg(CONFIG_TRACEPOINTS)]
        // SAFETY: The first operand is a tracepoint that C defines. The tracepoint's function
        // copies its arguments: numbers, and text whose pointer and length are valid during the
        // call.
        unsafe {
            if static_branch_unlikely!(bindings::$point, bindings::tracepoint, key) {
                bindings::$entry($($arg),*);
            }
        }
        #[cfg(not(CONFIG_TRACEPOINTS))]
        let _ = ($($arg),*);
    };
}

/// Records a new connection: the maximum sizes of messages sent and received without RDMA, the
/// number of credits requested, and the protocol version.
#[inline(always)]
pub fn connected(xprt: u32, epoch: u32, call_max: u32, reply_max: u32, credits: u32, version: u32) {
    trace!(
        __tracepoint_xprtrdma_connected,
        rust_do_trace_xprtrdma_connected(xprt, epoch, call_max, reply_max, credits, version)
    );
}

/// Records that a connection attempt failed. The reason has the same text as in the log.
#[inline(always)]
pub fn connect_failed(xprt: u32, epoch: u32, reason: &str) {
    trace!(
        __tracepoint_xprtrdma_connect_failed,
        rust_do_trace_xprtrdma_connect_failed(
            xprt,
            epoch,
            reason.as_ptr().cast(),
            reason.len() as u32
        )
    );
}

/// Records that a connection ends. The cause has the same text as in the log.
#[inline(always)]
pub fn disconnected(xprt: u32, epoch: u32, cause: &str) {
    trace!(
        __tracepoint_xprtrdma_disconnected,
        rust_do_trace_xprtrdma_disconnected(xprt, epoch, cause.as_ptr().cast(), cause.len() as u32)
    );
}

/// Records that a call is about to be posted. The arguments are the transport, the xid, the length
/// of the message, and how many segments the Read list, the Write chunk and the Reply chunk
/// contain.
#[inline(always)]
pub fn call(what: impl FnOnce() -> (u32, u32, u32, u32, u32, u32)) {
    trace!(
        __tracepoint_xprtrdma_call,
        |(xprt, xid, len, reads, writes, replies)| what(),
        rust_do_trace_xprtrdma_call(xprt, xid, len, reads, writes, replies)
    );
}

/// Records that memory of a call is about to be registered. The arguments are the transport, the
/// xid, the handle, the offset, the length, and whether the server may write to the memory. If the
/// last argument is false, the server may only read from the memory.
#[inline(always)]
pub fn register(what: impl FnOnce() -> (u32, u32, u32, u64, u32, bool)) {
    trace!(
        __tracepoint_xprtrdma_register,
        |(xprt, xid, handle, offset, len, write)| what(),
        rust_do_trace_xprtrdma_register(xprt, xid, handle, offset, len, write)
    );
}

/// Records that a reply was accepted. The arguments are the transport, the xid, the bytes that
/// arrived inline, the bytes that arrived by RDMA, and the credits granted.
#[inline(always)]
pub fn reply(what: impl FnOnce() -> (u32, u32, u32, u32, u32)) {
    trace!(
        __tracepoint_xprtrdma_reply,
        |(xprt, xid, len, placed, credits)| what(),
        rust_do_trace_xprtrdma_reply(xprt, xid, len, placed, credits)
    );
}

/// Records that this host invalidates the regions of a slot. The call in the slot ends only after
/// these invalidations.
#[inline(always)]
pub fn invalidate(xprt: u32, slot: u32, regions: u32) {
    trace!(
        __tracepoint_xprtrdma_invalidate,
        rust_do_trace_xprtrdma_invalidate(xprt, slot, regions)
    );
}

/// Records that an answered call ends. The arguments are the transport, the xid, and 0 or a
/// negative errno. A call that was killed, or that the transport could not send, has no such event.
#[inline(always)]
pub fn complete(what: impl FnOnce() -> (u32, u32, i32)) {
    trace!(
        __tracepoint_xprtrdma_complete,
        |(xprt, xid, status)| what(),
        rust_do_trace_xprtrdma_complete(xprt, xid, status)
    );
}

/// Records that a callback has arrived from the server.
#[inline(always)]
pub fn callback(xprt: u32, xid: u32, len: u32) {
    trace!(
        __tracepoint_xprtrdma_callback,
        rust_do_trace_xprtrdma_callback(xprt, xid, len)
    );
}

/// Records that a received message was dropped, and the name of the counter that counts it. The xid
/// is 0 if it is unknown.
#[inline(always)]
pub fn discard(xprt: u32, xid: u32, counter: &str) {
    trace!(
        __tracepoint_xprtrdma_discard,
        rust_do_trace_xprtrdma_discard(xprt, xid, counter.as_ptr().cast(), counter.len() as u32)
    );
}
