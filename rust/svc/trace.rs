// SPDX-License-Identifier: GPL-2.0

//! The tracepoints of the server, `svcrdma_rs:*` in tracefs.
//!
//! `peer` is the client's address. Xids are in host byte order, and lengths are in bytes. All
//! functions may be called in any context.
//!
//! A disabled tracepoint costs one branch that is not taken. If every RPC passes a tracepoint, the
//! function of the tracepoint takes a closure that computes the values to record. The closure is
//! called only while the tracepoint is enabled.

use core::net::SocketAddr;
use kernel::{
    error::Error,
    jump_label::static_branch_unlikely, //
};
use xprtrdma_base::net::with_raw;
use xprtrdma_bindings as bindings;

/// Calls the C function that records an event of a tracepoint, if the tracepoint is enabled. The
/// first argument of the C function is the peer's address.
macro_rules! trace {
    ($point:ident, $peer:expr, $values:pat_param = $all:expr, $entry:ident($($arg:expr),* $(,)?)) => {
        #[cfg(CONFIG_TRACEPOINTS)]
        // SAFETY: `$point` is a `struct tracepoint` that C code defines.
        if unsafe { static_branch_unlikely!(bindings::$point, bindings::tracepoint, key) } {
            let $values = $all;
            // SAFETY: The function copies its arguments: an address of an IP family, numbers, and
            // text whose pointer and length are valid during the call.
            with_raw($peer, |peer| unsafe { bindings::$entry(peer, $($arg),*) });
        }
        #[cfg(not(CONFIG_TRACEPOINTS))]
        let _ = ($peer, $all);
    };
}

/// Records that a connection is about to be accepted. The values are the device, the maximum sizes
/// of messages in each direction without RDMA, and the maximum number of RDMA Reads in flight.
#[inline(always)]
pub fn accepted(peer: &SocketAddr, device: &str, call_max: u32, reply_max: u32, reads: u32) {
    trace!(
        __tracepoint_svcrdma_accepted,
        peer,
        (text, len) = raw_text(device),
        rust_do_trace_svcrdma_accepted(text, len, call_max, reply_max, reads)
    );
}

/// Records that a connection request is rejected. The status is the error that has prevented the
/// accept. It is 0 if the request is invalid or there are too many connections. If 64 requests
/// already wait, further requests are only counted, and not recorded.
#[inline(always)]
pub fn rejected(peer: &SocketAddr, error: Option<Error>) {
    trace!(
        __tracepoint_svcrdma_rejected,
        peer,
        status = error.map_or(0, Error::to_errno),
        rust_do_trace_svcrdma_rejected(status)
    );
}

/// Records that a connection is closed, and the cause with the same text as in the log.
#[inline(always)]
pub fn closed(peer: &SocketAddr, cause: &str) {
    trace!(
        __tracepoint_svcrdma_closed,
        peer,
        (text, len) = raw_text(cause),
        rust_do_trace_svcrdma_closed(text, len)
    );
}

/// Records that a call has arrived. The values are the xid, the protocol version, the length of the
/// message, and the credits that the client asks for.
#[inline(always)]
pub fn call(peer: &SocketAddr, what: impl FnOnce() -> (u32, u32, u32, u32)) {
    trace!(
        __tracepoint_svcrdma_call,
        peer,
        (xid, version, len, credits) = what(),
        rust_do_trace_svcrdma_call(xid, version, len, credits)
    );
}

/// Records that the RDMA Reads of a call are about to be posted. The values are the xid, the bytes
/// that are read, and the number of work requests.
#[inline(always)]
pub fn read(peer: &SocketAddr, what: impl FnOnce() -> (u32, u32, u32)) {
    trace!(
        __tracepoint_svcrdma_read,
        peer,
        (xid, bytes, wrs) = what(),
        rust_do_trace_svcrdma_read(xid, bytes, wrs)
    );
}

/// Records that a reply is about to be posted. The values are the xid, the length of the RPC
/// message, the number of its bytes that RDMA Writes carry, and the key that the reply invalidates
/// (0 if it invalidates no key).
#[inline(always)]
pub fn reply(peer: &SocketAddr, what: impl FnOnce() -> (u32, u32, u32, u32)) {
    trace!(
        __tracepoint_svcrdma_reply,
        peer,
        (xid, len, written, invalidated) = what(),
        rust_do_trace_svcrdma_reply(xid, len, written, invalidated)
    );
}

/// Records that a call is about to be answered by an RDMA error.
#[inline(always)]
pub fn refused(peer: &SocketAddr, xid: u32, fault: &str) {
    trace!(
        __tracepoint_svcrdma_refused,
        peer,
        (text, len) = raw_text(fault),
        rust_do_trace_svcrdma_refused(xid, text, len)
    );
}

/// Records that a message is dropped without an answer. The recorded xid is the first word of the
/// message, or 0 if the message is shorter.
#[inline(always)]
pub fn dropped(peer: &SocketAddr, message: &[u8]) {
    trace!(
        __tracepoint_svcrdma_dropped,
        peer,
        // CAST: The message has a few kilobytes.
        (xid, len) = (
            message
                .first_chunk()
                .map_or(0, |xid| u32::from_be_bytes(*xid)),
            message.len() as u32
        ),
        rust_do_trace_svcrdma_dropped(xid, len)
    );
}

fn raw_text(text: &str) -> (*const kernel::ffi::c_char, u32) {
    // CAST: The text is a name or a short sentence.
    (text.as_ptr().cast(), text.len() as u32)
}
