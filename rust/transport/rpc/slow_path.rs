// SPDX-License-Identifier: GPL-2.0

//! The slow path out, for calls of any plan, and what follows if a call was not posted.

use crate::{
    connection::{
        Connection,
        Needed,
        Shortage, //
    },
    counters::{
        Offer,
        Ordinary, //
    },
    driver::Rdma,
    rpc::{
        map::{
            collect_idle,
            map_call,
            unmap, //
        },
        refuse::refuse,
        request::{
            Phase,
            ResultChunk,
            State, //
        },
        shape::shape32, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    conn::Cause,
    limit::Strikes,
    CallHeader,
    CallPlan,
    ChunkLists,
    Plan,
    ReadChunk,
    ReplyPlan,
    Segment,
    Xid, //
};
use xprtrdma_rdma::{
    access_once::AccessOnce,
    qp::{
        Qp,
        SendError, //
    },
};
use xprtrdma_sunrpc::{
    call::Call,
    latency,
    trace,
    transport::NotSent,
    util::{
        now_ns,
        others_want_this_cpu, //
    },
    xdr_buf::XdrBytes,
    xprt::Xprt, //
};

/// Why a call with a plan and a credit was not posted.
pub(super) enum Unsent {
    /// Some of the regions, or memory for them, are missing.
    NoRegions(Shortage, Needed),
    /// The send queue has no room for this many bytes and work requests.
    NoRoom(SendError, usize, u32),
    /// The header cannot be encoded.
    NoHeader(xprtrdma_proto::Error),
    /// The post failed. A part of it may have been posted.
    NotPosted,
}

/// Sends a call that has its credit, whatever its plan is.
#[inline(never)]
pub(super) fn send_any(
    xprt: &Xprt<Rdma>,
    qp: &Arc<Qp<Connection>>,
    call: &Call<'_, Rdma>,
    planned: Plan,
) -> Result<(), NotSent> {
    let conn = qp.handler();
    if xprt.has_others() {
        qp.stop_polling();
    }
    let mut state = call.slot().driver_data().state.lock();
    if matches!(planned.reply, ReplyPlan::ReplyChunk { .. }) && state.xid == call.xid() {
        drop(state);
        clear_again(call)?;
        state = call.slot().driver_data().state.lock();
    }
    state.offer.invalidation = conn.remote_invalidation();
    let posted = post_call(xprt, qp, call, &planned, &mut state);
    drop(state);
    let len = match posted {
        Ok(len) => len,
        Err(unsent) => return not_sent(xprt, qp, call, unsent),
    };
    if matches!(planned.call, CallPlan::Long { .. }) {
        conn.counters().add(Ordinary::LongCalls);
    }
    if len > xprtrdma_proto::threshold::MIN_THRESHOLD as usize {
        conn.large_send();
    }
    if !call.reply_expected() {
        // No reply will say how many credits are left (V1-012).
        conn.lost(Cause::CreditResync);
    }
    Ok(())
}

/// Clears the reply's memory again. It was cleared when the call was encoded, but if a post has
/// failed the server may have reached it since.
///
/// Called before the memory is mapped, as afterwards it belongs to the device. If the memory is
/// still lent, the connection is ending.
#[cold]
fn clear_again(call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    call.clear_reply().map_err(|e| match e {
        // A reply came before the call was sent.
        e if e == EAGAIN => NotSent::NoBuffers,
        _ => NotSent::NotConnected,
    })
}

/// Maps, writes and posts a call; returns the bytes of its message.
#[inline]
fn post_call(
    xprt: &Xprt<Rdma>,
    qp: &Arc<Qp<Connection>>,
    call: &Call<'_, Rdma>,
    planned: &Plan,
    state: &mut State,
) -> Result<usize, Unsent> {
    let conn = qp.handler();
    let regions = Needed {
        reads: planned.read_segments,
        results: planned.result_segments,
    };
    let needed = regions.all();
    // The regions of the slot's last call.
    state.reads.clear();
    state.offer.chunk.clear();
    if needed != 0 {
        map_call(qp, call, planned, regions, state)
            .map_err(|shortage| Unsent::NoRegions(shortage, regions))?;
    }

    // The parts of the message that do not travel by RDMA.
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
        CallPlan::Long { .. } | CallPlan::LongReadChunk { .. } => [(0, 0), (0, 0)],
    };
    let inline = pieces[0].1 + pieces[1].1;
    // At least what is needed: contiguous memory may need fewer regions than were counted.
    let (max_len, wrs) = (planned.header_len + inline, needed as u32 + 1);
    let mut batch = qp
        .begin(max_len, wrs)
        .map_err(|error| Unsent::NoRoom(error, max_len, wrs))?;

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
    trace::call(|| {
        let (xprt, xid, len) = (xprt.id(), call.xid(), shape32(len));
        let writes = writes.first().map_or(0, |chunk| chunk.len());
        let replies = reply.map_or(0, <[Segment]>::len);
        (
            xprt,
            xid,
            len,
            reads.len() as u32,
            writes as u32,
            replies as u32,
        )
    });

    if latency::is_measured() {
        state.posted = now_ns();
    }
    // The call is pending before it is posted, as its reply may come before the post returns.
    let anew = state.xid != call.xid();
    if anew {
        state.xid = call.xid();
        state.strikes = Strikes::default();
    }
    state.offer.secret_xid = anew && call.has_secret_xid();
    if read_count != 0 && !state.offer.secret_xid {
        call.wants_secret_xid(xprt);
    }
    let request = call.slot().driver_data();
    request.set_phase(state, Phase::Sent);
    state.epoch = conn.epoch();
    request.owed_on.write_once(conn.epoch().raw());
    let room = call.reply();
    state.offer.result = result;
    state.offer.non_data = shape32(room.head_len() + room.tail_len());
    // Batch only amid other calls, and on a processor that other threads want: then more calls
    // follow soon. Never batch a call without a reply, which would not be sent again, or a message
    // above the minimum threshold, whose post is an event of its own (CM-24).
    let may_batch = xprt.has_others()
        && call.reply_expected()
        && len <= xprtrdma_proto::threshold::MIN_THRESHOLD as usize
        && others_want_this_cpu()
        && batch.may_batch();
    let posted = if may_batch {
        batch.post_later(len, &mut state.regions)
    } else {
        batch.post(len, &mut state.regions)
    };
    posted.map_err(|_| Unsent::NotPosted)?;

    let tally = &mut state.tally;
    tally.sent(inline, read_count);
    match planned.reply {
        ReplyPlan::Inline => {}
        ReplyPlan::WriteChunk { length } => tally.offered(Offer::Write, result_count, length),
        ReplyPlan::ReplyChunk { length } => tally.offered(Offer::Reply, result_count, length),
    }
    Ok(len)
}

/// Writes header and inline pieces; returns how long they are together.
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

/// Copies bytes of a message, given as (offset, length), to a place of the buffer; returns where
/// they end.
#[inline(always)]
pub(super) fn copy(
    message: &XdrBytes<'_>,
    (from, count): (usize, usize),
    out: &mut [u8],
    at: usize,
) -> Result<usize, xprtrdma_proto::Error> {
    let room = out
        .get_mut(at..)
        .and_then(|o| o.get_mut(..count))
        .ok_or(xprtrdma_proto::Error::NoSpace)?;
    message
        .read(from, room)
        .map_err(|_| xprtrdma_proto::Error::NoSpace)?;
    // NO-OVERFLOW: Within the buffer.
    Ok(at.wrapping_add(count))
}

/// Handles a call that was not posted.
#[cold]
pub(super) fn not_sent(
    xprt: &Xprt<Rdma>,
    qp: &Arc<Qp<Connection>>,
    call: &Call<'_, Rdma>,
    unsent: Unsent,
) -> Result<(), NotSent> {
    let conn = qp.handler();
    match unsent {
        Unsent::NoRegions(shortage, needed) => {
            conn.counters().add(Ordinary::FailedMarshal);
            unmap(qp, call);
            collect_idle(xprt, conn.regions());
            match shortage {
                Shortage::Wait => {}
                Shortage::NoMemory => return Err(NotSent::NoBuffers),
                Shortage::Unmapped => return unmapped(conn, call),
            }
            xprt.stop_senders();
            // Regions may have come back before the senders were stopped.
            if conn.regions().have(needed) {
                xprt.wake_senders();
            }
            Err(NotSent::Wait)
        }
        Unsent::NoRoom(error, len, wrs) => {
            unmap(qp, call);
            Err(no_room(xprt, qp, error, len, wrs))
        }
        Unsent::NoHeader(error) => {
            unmap(qp, call);
            refuse(conn.counters(), call, error);
            Ok(())
        }
        Unsent::NotPosted => {
            // The regions stay with the slot, where the end of the connection finds them. The RPC
            // client will send the call again.
            conn.lost(Cause::PostFailed);
            Err(NotSent::NotConnected)
        }
    }
}

/// The DMA layer refused the call's memory. It may have run out of room, so the RPC client tries
/// again. After some refusals in a row the call ends, as nothing else would ever end it.
fn unmapped(conn: &Connection, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    let error = {
        let mut state = call.slot().driver_data().state.lock();
        state.unmapped.again(call.xid(), conn.epoch().raw())
    };
    if error == xprtrdma_proto::Error::NoBuffers {
        return Err(NotSent::NoBuffers);
    }
    refuse(conn.counters(), call, error);
    Ok(())
}

/// Makes the senders wait for room in the send queue.
pub(super) fn no_room(
    xprt: &Xprt<Rdma>,
    qp: &Qp<Connection>,
    error: SendError,
    len: usize,
    wrs: u32,
) -> NotSent {
    match error {
        SendError::Closed => NotSent::NotConnected,
        SendError::Full => {
            qp.handler().counters().add(Ordinary::SendQueueFull);
            xprt.stop_senders();
            // The room may have become free before the senders were stopped.
            if qp.has_room(len, wrs) {
                xprt.wake_senders();
            }
            NotSent::Wait
        }
    }
}
