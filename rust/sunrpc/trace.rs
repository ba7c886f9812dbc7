// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of transports, `xprtrdma_rs:*` in tracefs.
//!
//! A tracepoint that is off costs a jump over it that never is taken. `xprt` is the transport's
//! number ([`Xprt::id`](crate::xprt::Xprt::id)); xids are in host order and lengths in bytes. All
//! may be called in any context. Those that every RPC passes take a closure, which is called only
//! if the tracepoint is on: nothing is gathered for one that is off.

use kernel::jump_label::static_branch_unlikely;
use xprtrdma_bindings as bindings;

/// Calls a tracepoint's C entry if it is on.
macro_rules! trace {
    ($point:ident, |$args:pat_param| $all:expr, $entry:ident($($arg:expr),* $(,)?)) => {
        #[cfg(CONFIG_TRACEPOINTS)]
        // SAFETY: As below.
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
        // SAFETY: The first operand is a tracepoint that C defines. Its entry copies its arguments:
        // numbers, and text of the given length that is valid for the call.
        unsafe {
            if static_branch_unlikely!(bindings::$point, bindings::tracepoint, key) {
                bindings::$entry($($arg),*);
            }
        }
        #[cfg(not(CONFIG_TRACEPOINTS))]
        let _ = ($($arg),*);
    };
}

/// A connection is made: largest messages without RDMA, sent and received, the credits asked for,
/// and the version of the protocol.
#[inline(always)]
pub fn connected(xprt: u32, epoch: u32, call_max: u32, reply_max: u32, credits: u32, version: u32) {
    trace!(
        __tracepoint_xprtrdma_connected,
        rust_do_trace_xprtrdma_connected(xprt, epoch, call_max, reply_max, credits, version)
    );
}

/// A connection could not be made.
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

/// A connection is given up.
#[inline(always)]
pub fn disconnected(xprt: u32, epoch: u32, cause: &str) {
    trace!(
        __tracepoint_xprtrdma_disconnected,
        rust_do_trace_xprtrdma_disconnected(xprt, epoch, cause.as_ptr().cast(), cause.len() as u32)
    );
}

/// A call is about to be posted: transport, xid, bytes of the message, segments of its Read list,
/// Write chunk and Reply chunk.
#[inline(always)]
pub fn call(what: impl FnOnce() -> (u32, u32, u32, u32, u32, u32)) {
    trace!(
        __tracepoint_xprtrdma_call,
        |(xprt, xid, len, reads, writes, replies)| what(),
        rust_do_trace_xprtrdma_call(xprt, xid, len, reads, writes, replies)
    );
}

/// Memory of a call is about to be registered: transport, xid, handle, offset, length, and whether
/// the server may write to it (or read it).
#[inline(always)]
pub fn register(what: impl FnOnce() -> (u32, u32, u32, u64, u32, bool)) {
    trace!(
        __tracepoint_xprtrdma_register,
        |(xprt, xid, handle, offset, len, write)| what(),
        rust_do_trace_xprtrdma_register(xprt, xid, handle, offset, len, write)
    );
}

/// A reply was accepted: transport, xid, bytes that came inline and by RDMA, credits granted.
#[inline(always)]
pub fn reply(what: impl FnOnce() -> (u32, u32, u32, u32, u32)) {
    trace!(
        __tracepoint_xprtrdma_reply,
        |(xprt, xid, len, placed, credits)| what(),
        rust_do_trace_xprtrdma_reply(xprt, xid, len, placed, credits)
    );
}

/// The invalidation of a slot's regions is about to be posted.
#[inline(always)]
pub fn invalidate(xprt: u32, slot: u32, regions: u32) {
    trace!(
        __tracepoint_xprtrdma_invalidate,
        rust_do_trace_xprtrdma_invalidate(xprt, slot, regions)
    );
}

/// A call ends: transport, xid, and 0 (with its reply) or a negative errno.
#[inline(always)]
pub fn complete(what: impl FnOnce() -> (u32, u32, i32)) {
    trace!(
        __tracepoint_xprtrdma_complete,
        |(xprt, xid, status)| what(),
        rust_do_trace_xprtrdma_complete(xprt, xid, status)
    );
}

/// A request of the server came.
#[inline(always)]
pub fn callback(xprt: u32, xid: u32, len: u32) {
    trace!(
        __tracepoint_xprtrdma_callback,
        rust_do_trace_xprtrdma_callback(xprt, xid, len)
    );
}

/// A message was dropped, and counted under this name; the xid is 0 when it is unknown.
#[inline(always)]
pub fn discard(xprt: u32, xid: u32, counter: &str) {
    trace!(
        __tracepoint_xprtrdma_discard,
        rust_do_trace_xprtrdma_discard(xprt, xid, counter.as_ptr().cast(), counter.len() as u32)
    );
}
