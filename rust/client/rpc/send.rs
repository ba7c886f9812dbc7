// SPDX-License-Identifier: GPL-2.0

//! Sending a call: from an encoded RPC to one chain of work requests.
//!
//! ```text
//!   plan ──▶ map regions ──▶ room in the send ring ──▶ header, message ──▶ one post
//! ```
//!
//! Before the post, the server cannot see anything of the call. So if a step before the post fails,
//! the steps that were done can simply be undone. Nearly all calls need one region and take
//! [the fast path](crate::rpc::fast_path); all other calls take
//! [the slow path](crate::rpc::slow_path).

use crate::{
    connection::Connection,
    driver::Rdma,
    rpc::{
        fast_path::{
            send_with_read_chunk,
            send_with_reply_chunk,
            send_with_write_chunk,
            One,
            Spoken,
            V1,
            V2, //
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

/// Sends a call. The caller holds the send lock. So while this function runs, no other call is
/// sent, and no connection is set up or torn down.
#[inline(always)]
pub(crate) fn send_call(qp: &Qp<Connection>, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    let conn = qp.handler();
    if call.sent_on_this_connection(conn.xprt()) {
        conn.lost(Cause::Retransmit);
        return Err(NotSent::NotConnected);
    }
    // The code is compiled separately for each version, so that support for version 2 does not slow
    // down version 1.
    match conn.version() {
        Version::V1 => plan_and_send::<V1>(qp, call),
        Version::V2 => plan_and_send_in_version_2(qp, call),
    }
}

// This function is not inlined. Inlining would save 20 instructions in a call of version 2, but
// would add 4 instructions to each call of version 1.
#[inline(never)]
fn plan_and_send_in_version_2(qp: &Qp<Connection>, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    plan_and_send::<V2>(qp, call)
}

/// The form of a call. It determines which function sends the call.
enum Form {
    /// A call without chunks.
    Inline,
    /// A call with one region.
    One(One),
    /// A call with any other combination of chunks.
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

/// Plans and sends a call on a connection with this version.
#[inline(always)]
fn plan_and_send<V: Spoken>(qp: &Qp<Connection>, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    let conn = qp.handler();
    // Only the form of the call is kept while the credit is taken. Keeping the whole plan would
    // take more registers.
    let form = match plan_call(qp, call, V::VERSION, conn.thresholds()) {
        Ok(planned) => Form::of(&planned),
        Err(error) => {
            refuse(conn.counters(), call, error);
            return Ok(());
        }
    };
    if !call.take_credit(conn.xprt()) {
        return Err(NotSent::NoCredit);
    }
    match form {
        Form::Inline => send_any(qp, call, Plan::without_chunks(V::VERSION)),
        Form::One(One::Write) => send_with_write_chunk::<V>(qp, call),
        Form::One(One::Read) => send_with_read_chunk::<V>(qp, call),
        Form::One(One::Reply) => send_with_reply_chunk::<V>(qp, call),
        Form::Rare => send_rare(qp, call),
    }
}

/// Sends a call that has taken its credit and has a rare form. This function makes the plan a
/// second time: if the caller passed the plan as an argument, the compiler would store the whole
/// plan in memory for every call.
#[inline(never)]
fn send_rare(qp: &Qp<Connection>, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    let conn = qp.handler();
    match plan_call(qp, call, conn.version(), conn.thresholds()) {
        Ok(planned) => send_any(qp, call, planned),
        // Making the plan cannot fail, because the same input has already produced a plan.
        Err(error) => {
            refuse(conn.counters(), call, error);
            Ok(())
        }
    }
}
