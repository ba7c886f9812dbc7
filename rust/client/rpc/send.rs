// SPDX-License-Identifier: GPL-2.0

//! Messages out: from an encoded RPC to one chain of work requests.
//!
//! ```text
//!   plan ──▶ map regions ──▶ room in the send ring ──▶ header, message ──▶ one post
//! ```
//!
//! Until the post nothing is visible to the server, so every failure before it just undoes. Nearly
//! all calls have one region and take [the fast path](crate::rpc::fast_path); all others take
//! [the slow path](crate::rpc::slow_path).

use crate::{
    connection::Connection,
    driver::Rdma,
    rpc::{
        fast_path::{
            send_in_version_2,
            send_with_read_chunk,
            send_with_reply_chunk,
            send_with_write_chunk,
            One, //
        },
        refuse::refuse,
        shape::plan_call, //
        slow_path::send_any,
    },
};
use kernel::sync::Arc;
use xprtrdma_proto::{
    conn::Cause,
    CallPlan,
    Plan,
    ReplyPlan,
    Version, //
};
use xprtrdma_rdma::qp::Qp;
use xprtrdma_sunrpc::{
    call::Call,
    transport::NotSent, //
};

/// Sends a call. The send lock is held. So this does not race with the sending of another call, nor
/// with the beginning or end of a connection.
#[inline(always)]
pub(crate) fn send_call(qp: &Arc<Qp<Connection>>, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    let conn = qp.handler();
    if call.sent_on_this_connection(conn.xprt()) {
        conn.lost(Cause::Retransmit);
        return Err(NotSent::NotConnected);
    }
    let planned = match plan_call(qp, call, conn.thresholds()) {
        Ok(planned) => planned,
        Err(error) => {
            refuse(conn.counters(), call, error);
            return Ok(());
        }
    };
    if !call.take_credit(conn.xprt()) {
        return Err(NotSent::NoCredit);
    }
    let segments = planned.read_segments + planned.result_segments;
    let form = match (planned.call, planned.reply) {
        (CallPlan::Inline, ReplyPlan::Inline) => {
            return send_any(qp, call, Plan::without_chunks(conn.version()));
        }
        (CallPlan::Inline, ReplyPlan::WriteChunk { .. }) if segments == 1 => One::Write,
        (CallPlan::ReadChunk { .. }, ReplyPlan::Inline) if segments == 1 => One::Read,
        (CallPlan::Inline, ReplyPlan::ReplyChunk { .. }) if segments == 1 => One::Reply,
        _ => return send_rare(qp, call),
    };
    if conn.version() == Version::V2 {
        return send_in_version_2(qp, call, form);
    }
    match form {
        One::Write => send_with_write_chunk(qp, call),
        One::Read => send_with_read_chunk(qp, call),
        One::Reply => send_with_reply_chunk(qp, call),
    }
}

/// Sends a call that has its credit and has no usual form. It plans the call again: to pass a plan
/// on, the compiler would complete it and put it into memory for each call.
#[inline(never)]
fn send_rare(qp: &Arc<Qp<Connection>>, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    let conn = qp.handler();
    match plan_call(qp, call, conn.thresholds()) {
        Ok(planned) => send_any(qp, call, planned),
        // The plan was made before from the same input, so it cannot fail.
        Err(error) => {
            refuse(conn.counters(), call, error);
            Ok(())
        }
    }
}
