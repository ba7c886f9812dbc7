// SPDX-License-Identifier: GPL-2.0

//! The slow path for sending. This path can send every kind of call: inline, and with any
//! combination of chunks.

use crate::{
    connection::{
        Connection,
        Needed, //
    },
    counters::{
        Offer,
        Ordinary, //
    },
    driver::Rdma,
    rpc::{
        map::map_call,
        request::{
            ResultChunk,
            State, //
        },
        sending::{
            copy,
            Sending,
            Unsent, //
        },
        unsent::not_sent, //
    },
};
use kernel::prelude::*;
use xprtrdma_proto::{
    CallHeader,
    CallPlan,
    ChunkLists,
    Plan,
    ReadChunk,
    ReplyPlan,
    Segment,
    Xid, //
};
use xprtrdma_rdma::qp::Qp;
use xprtrdma_sunrpc::{
    call::Call,
    transport::NotSent,
    xdr_buf::XdrBytes, //
};

/// Sends a call that has taken its credit. The call may be inline or have any combination of
/// chunks.
#[inline(never)]
pub(super) fn send_any(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
    planned: Plan,
) -> Result<(), NotSent> {
    let sending = Sending::new(qp, call);
    let crowded = sending.is_crowded();
    let mut state = call.slot().driver_data().state.lock();
    if matches!(planned.reply, ReplyPlan::ReplyChunk { .. }) && state.xid == call.xid() {
        drop(state);
        clear_again(call)?;
        state = call.slot().driver_data().state.lock();
    }
    let expected = call.reply_expected();
    match post_call(sending, &planned, (crowded, expected), &mut state) {
        Ok(len) => sending.was_posted(state, len, expected),
        Err(unsent) => {
            drop(state);
            return not_sent(qp, call, unsent);
        }
    }
    if matches!(planned.call, CallPlan::Long { .. }) {
        sending.conn().counters().add(Ordinary::LongCalls);
    }
    Ok(())
}

/// Clears the memory for the reply again. The memory was cleared when the call was encoded. But if
/// an earlier attempt to post the call failed, the server may have written to the memory after that
/// attempt.
///
/// Called before the memory is mapped, because mapped memory belongs to the device. If the memory
/// is still lent, the connection is ending, so the call fails with `NotConnected`.
#[cold]
fn clear_again(call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    call.clear_reply().map_err(|e| match e {
        // A reply arrived before the call was sent again, so the call is not sent now.
        e if e == EAGAIN => NotSent::NoBuffers,
        _ => NotSent::NotConnected,
    })
}

/// Maps, encodes and posts a call. Returns the length of its message in bytes.
#[inline]
fn post_call(
    sending: Sending<'_>,
    planned: &Plan,
    (crowded, expected): (bool, bool),
    state: &mut State,
) -> Result<usize, Unsent> {
    let (conn, call) = (sending.conn(), sending.call());
    let regions = Needed::of(planned);
    let needed = regions.all();
    // The slot still contains the segments of its last call, so they are removed first.
    state.reads.clear();
    state.offer.chunk.clear();
    if needed != 0 {
        map_call(sending, planned, regions, state)
            .map_err(|shortage| Unsent::NoRegions(shortage, regions))?;
    }

    // `pieces` are the parts of the message that travel in the Send and not in chunks.
    let message = call.message();
    let pieces = match planned.call {
        CallPlan::Inline => [(0, message.len()), (0, 0)],
        CallPlan::ReadChunk { .. } => {
            let behind = message.head_len() + message.page_len();
            let pad = (message.page_len().wrapping_neg() % 4).min(message.tail_len());
            [
                (0, message.head_len()),
                (behind + pad, message.tail_len() - pad),
            ]
        }
        CallPlan::Long { .. } => [(0, 0), (0, 0)],
    };
    let inline = pieces[0].1 + pieces[1].1;
    // The message needs one work request for each region and one for the Send. If memory is
    // contiguous, the call may need fewer regions than the plan counted.
    let mut batch = sending.begin(planned.header_len + inline, needed as u32 + 1)?;

    let (reads, results) = (state.reads.segments(), state.offer.chunk.segments());
    let (read_count, result_count) = (reads.len(), results.len());
    let read_list = [ReadChunk {
        position: match planned.call {
            CallPlan::ReadChunk { position, .. } => position,
            _ => 0,
        },
        segments: reads,
    }];
    let write_list = [results];
    let (result, writes, reply): (_, &[&[Segment]], _) = match planned.reply {
        ReplyPlan::Inline => (ResultChunk::None, &[], None),
        ReplyPlan::WriteChunk { .. } => (ResultChunk::Write, &write_list, None),
        ReplyPlan::ReplyChunk { .. } => (ResultChunk::Reply, &[], Some(results)),
    };
    let header = CallHeader {
        version: conn.version(),
        xid: Xid(call.xid()),
        credits: conn.requested(),
        lists: ChunkLists {
            reads: if reads.is_empty() { &[] } else { &read_list },
            writes,
            reply,
        },
    };
    let len = encode(&header, &message, &pieces, batch.buffer()).map_err(Unsent::NoHeader)?;
    sending.trace_call(len, || match result {
        ResultChunk::None => [read_count, 0, 0],
        ResultChunk::Write => [read_count, result_count, 0],
        ResultChunk::Reply => [read_count, 0, result_count],
    });

    let is_new = state.xid != call.xid();
    sending.set_pending(state, is_new, read_count != 0);
    state.offer.result = result;
    state.offer.non_data = sending.non_data();
    sending.post(batch, len, (crowded, expected), &mut state.regions)?;

    let tally = &mut state.tally;
    tally.sent(inline, read_count);
    match planned.reply {
        ReplyPlan::Inline => {}
        ReplyPlan::WriteChunk { length } => tally.offered(Offer::Write, result_count, length),
        ReplyPlan::ReplyChunk { length } => tally.offered(Offer::Reply, result_count, length),
    }
    Ok(len)
}

/// Writes the header and the inline pieces. Returns their total length in bytes.
#[inline]
fn encode(
    header: &CallHeader<'_>,
    message: &XdrBytes<'_>,
    pieces: &[(usize, usize)],
    out: &mut [u8],
) -> Result<usize, xprtrdma_proto::Error> {
    let mut len = header.encode(out)?;
    for &piece in pieces {
        if piece.1 != 0 {
            len = copy(message, piece, out, len)?;
        }
    }
    Ok(len)
}
