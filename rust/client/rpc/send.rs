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
pub(crate) fn send_call(qp: &Qp<Connection>, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    let conn = qp.handler();
    if call.sent_on_this_connection(conn.xprt()) {
        conn.lost(Cause::Retransmit);
        return Err(NotSent::NotConnected);
    }
    // Compiled for each version, so that the usual one pays nothing for the other.
    match conn.version() {
        Version::V1 => plan_and_send(qp, call, Version::V1),
        Version::V2 => plan_and_send_in_version_2(qp, call),
    }
}

#[inline(never)]
fn plan_and_send_in_version_2(qp: &Qp<Connection>, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    plan_and_send(qp, call, Version::V2)
}

/// How a call travels, as far as another function sends it.
enum Form {
    /// Without chunks.
    Inline,
    /// With one region.
    One(One),
    /// In another way.
    Rare,
}

impl Form {
    #[inline(always)]
    fn of(planned: &Plan) -> Self {
        match (planned.call, planned.reply) {
            (CallPlan::Inline, ReplyPlan::Inline) => Self::Inline,
            (CallPlan::Inline, ReplyPlan::WriteChunk { .. }) if planned.result_segments == 1 => {
                Self::One(One::Write)
            }
            (CallPlan::ReadChunk { .. }, ReplyPlan::Inline) if planned.read_segments == 1 => {
                Self::One(One::Read)
            }
            (CallPlan::Inline, ReplyPlan::ReplyChunk { .. }) if planned.result_segments == 1 => {
                Self::One(One::Reply)
            }
            _ => Self::Rare,
        }
    }
}

/// Sends a call on a connection in this version.
#[inline(always)]
fn plan_and_send(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
    version: Version,
) -> Result<(), NotSent> {
    let conn = qp.handler();
    // Of the plan only this is kept while the credit is taken.
    let form = match plan_call(qp, call, version, conn.thresholds()) {
        Ok(planned) => Form::of(&planned),
        Err(error) => {
            refuse(conn.counters(), call, error);
            return Ok(());
        }
    };
    if !call.take_credit(conn.xprt()) {
        return Err(NotSent::NoCredit);
    }
    match (form, version) {
        (Form::Inline, _) => send_any(qp, call, Plan::without_chunks(version)),
        (Form::One(form), Version::V2) => send_in_version_2(qp, call, form),
        (Form::One(One::Write), Version::V1) => send_with_write_chunk(qp, call),
        (Form::One(One::Read), Version::V1) => send_with_read_chunk(qp, call),
        (Form::One(One::Reply), Version::V1) => send_with_reply_chunk(qp, call),
        (Form::Rare, _) => send_rare(qp, call),
    }
}

/// Sends a call that has its credit and has no usual form. It plans the call again: to pass a plan
/// on, the compiler would complete it and put it into memory for each call.
#[inline(never)]
fn send_rare(qp: &Qp<Connection>, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    let conn = qp.handler();
    match plan_call(qp, call, conn.version(), conn.thresholds()) {
        Ok(planned) => send_any(qp, call, planned),
        // The plan was made before from the same input, so it cannot fail.
        Err(error) => {
            refuse(conn.counters(), call, error);
            Ok(())
        }
    }
}
