// SPDX-License-Identifier: GPL-2.0

//! Messages out: from an encoded RPC to one chain of work requests.
//!
//! ```text
//!   plan ──▶ map regions ──▶ room in the send ring ──▶ header, message ──▶ one post
//! ```
//!
//! Until the post nothing is visible to the server, so every failure before it just undoes.

use crate::{
    client::Client,
    endpoint::Connection,
    regions::Shortage,
    request::{
        Chunk,
        Phase,
        Region,
        ResultChunk, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};
use xprtrdma_proto::{
    conn::{
        Cause,
        Event, //
    },
    header::{
        ReverseReplyHeader,
        MAX_SEGMENTS, //
    },
    limit::Strikes,
    plan,
    plan::{
        CallShape,
        Limits,
        RegionLimits,
        ReplyShape,
        Run,
        Segmentation, //
    },
    CallHeader,
    CallPlan,
    ChunkLists,
    Counter,
    Handle,
    Plan,
    ReadChunk,
    ReplyPlan,
    Segment,
    Xid, //
};
use xprtrdma_rdma::{
    mr::{
        Access,
        IdleMr, //
    },
    qp::SendError,
};
use xprtrdma_sunrpc::{
    backchannel::Callback,
    call::Call,
    lease::{
        Lease,
        Message, //
    },
    trace,
    transport::NotSent,
    xdr_buf::{
        Part,
        XdrBuf, //
    },
    xprt::Xprt,
};

fn shape32(len: usize) -> u32 {
    // No RPC message comes near 4 GiB; a length that did would not fit any plan.
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The runs of a part of a message.
fn runs(buf: &XdrBuf<'_>, part: Part) -> [Run; 3] {
    let run = |offset: usize, length: usize| Run {
        offset: shape32(offset),
        length: shape32(length),
    };
    let pages = run(buf.page_offset(), buf.page_len());
    match part {
        Part::Pages => [Run::default(), pages, Run::default()],
        Part::Whole => [
            run(buf.head_offset(), buf.head_len()),
            pages,
            run(buf.tail_offset(), buf.tail_len()),
        ],
    }
}

/// What a region of this connection can hold.
fn region_limits(conn: &Connection) -> RegionLimits {
    let pool = &conn.handler().regions;
    RegionLimits {
        pages: pool.pages(),
        page_size: kernel::page::PAGE_SIZE as u32,
        gaps: pool.gaps(),
    }
}

/// Counts the segments that chunks of a call would have.
struct Counted<'a> {
    regions: RegionLimits,
    message: XdrBuf<'a>,
    reply: XdrBuf<'a>,
}

impl Segmentation for Counted<'_> {
    fn read(&self) -> usize {
        self.regions.segments(&runs(&self.message, Part::Pages))
    }

    fn call(&self) -> usize {
        self.regions.segments(&runs(&self.message, Part::Whole))
    }

    fn reduced_call(&self) -> usize {
        // The rest of a reduced call is never sent by a chunk of its own.
        0
    }

    fn write(&self) -> usize {
        self.regions.segments(&runs(&self.reply, Part::Pages))
    }

    fn reply(&self) -> usize {
        self.regions.segments(&runs(&self.reply, Part::Whole))
    }
}

/// Decides how a call travels.
pub(crate) fn plan_call(
    conn: &Connection,
    call: &Call<'_, Client>,
) -> Result<Plan, xprtrdma_proto::Error> {
    let endpoint = conn.handler();
    let message = call.message();
    let reply = call.reply();
    let shape = CallShape {
        head: shape32(message.head_len()),
        pages: shape32(message.page_len()),
        tail: shape32(message.tail_len()),
        tail_padded: true,
        eligible: message.is_write_data(),
    };
    let reply_shape = ReplyShape {
        head: shape32(reply.head_len()),
        pages: shape32(reply.page_len()),
        tail: shape32(reply.tail_len()),
        eligible: reply.is_read_data(),
    };
    let counts = Counted {
        regions: region_limits(conn),
        message,
        reply,
    };
    let limits = Limits {
        version: endpoint.version,
        thresholds: endpoint.thresholds(),
        segments: MAX_SEGMENTS,
    };
    plan(&shape, &reply_shape, &counts, call.ddp_allowed(), &limits)
}

/// Maps a part of a message, region by region.
fn map_chunk(
    conn: &Connection,
    call: &Call<'_, Client>,
    (message, part): (Message, Part),
    access: Access,
    idle: &mut KVec<IdleMr>,
    regions: &mut KVec<Region>,
    chunk: &mut Chunk,
) -> Result<(), NotSent> {
    let endpoint = conn.handler();
    let buf = match message {
        Message::Call => call.message(),
        Message::Reply => call.reply(),
    };
    let mut start = 0;
    while start < buf.part_len(part) {
        let mr = idle.pop().ok_or(NotSent::NoBuffers)?;
        let region = match mr.map(call.lend(message, part), start, access) {
            Ok(region) => region,
            Err(failed) => {
                endpoint.regions.put(failed.mr);
                return Err(NotSent::NoBuffers);
            }
        };
        let window = region.window();
        trace::register(
            endpoint.xprt.id(),
            call.xid(),
            window.handle,
            window.offset,
            window.length,
            access == Access::RemoteWrite,
        );
        // There is room: reserved by the caller.
        let _ = regions.push_within_capacity(region);
        let fits = chunk.push(Segment {
            handle: Handle(window.handle),
            length: window.length,
            offset: window.offset,
        });
        if !fits {
            return Err(NotSent::NoBuffers);
        }
        start += window.length as usize;
    }
    Ok(())
}

/// Sends a call. The send lock is held, which is why nothing here races with another call's way
/// out, nor with the making or ending of connections.
pub(crate) fn send_call(
    xprt: &Xprt<Client>,
    conn: &Arc<Connection>,
    call: &Call<'_, Client>,
) -> Result<(), NotSent> {
    let endpoint = conn.handler();
    let client = xprt.data();
    if call.sent_on_this_connection(xprt) {
        endpoint.react(Event::Lost(endpoint.epoch, Cause::Retransmit));
        return Err(NotSent::NotConnected);
    }
    let planned = match plan_call(conn, call) {
        Ok(planned) => planned,
        Err(error) => {
            client.refuse(xprt, call, error);
            return Ok(());
        }
    };
    if !call.take_credit(xprt) {
        return Err(NotSent::NoCredit);
    }

    if let ReplyPlan::ReplyChunk { .. } = planned.reply {
        // Before the memory is mapped: afterwards it belongs to the device.
        call.clear_reply();
    }
    let request = call.slot().call();
    let needed = planned.read_segments + planned.result_segments;
    if needed != 0 {
        if let Err(reason) = map_call(xprt, conn, call, &planned, needed) {
            client.stats.failed_marshal.add(1);
            unmap(conn, call);
            return Err(reason);
        }
    }

    // The message without what travels by RDMA.
    let message = call.message();
    let pieces: [(usize, usize); 2] = match planned.call {
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
    let inline: usize = pieces.iter().map(|(_, len)| len).sum();
    let max_len = planned.header_len + inline;
    // At least what is needed: contiguous memory may need fewer regions than were counted.
    let wrs = needed as u32 + 1;

    let mut batch = match conn.begin(max_len, wrs) {
        Ok(batch) => batch,
        Err(error) => {
            unmap(conn, call);
            return Err(no_room(xprt, conn, error, max_len, wrs));
        }
    };
    // The call is pending from before the post: its reply may overtake us.
    let mut guard = request.state.lock();
    let state = &mut *guard;
    if needed == 0 {
        // Those of the slot's last call.
        state.reads.clear();
        state.offer.chunk.clear();
    }
    let result = match planned.reply {
        ReplyPlan::Inline => ResultChunk::None,
        ReplyPlan::WriteChunk { .. } => ResultChunk::Write,
        ReplyPlan::ReplyChunk { .. } => ResultChunk::Reply,
    };
    let reads = state.reads.segments().len();
    let results = state.offer.chunk.segments().len();
    let read_list = [ReadChunk {
        position: match planned.call {
            CallPlan::ReadChunk { position, .. } => position,
            _ => 0,
        },
        segments: state.reads.segments(),
    }];
    let write_list = [state.offer.chunk.segments()];
    let header = CallHeader {
        version: endpoint.version,
        xid: Xid(call.xid()),
        credits: endpoint.requested,
        lists: ChunkLists {
            reads: if reads == 0 { &[] } else { &read_list },
            writes: match result {
                ResultChunk::Write => &write_list,
                _ => &[],
            },
            reply: (result == ResultChunk::Reply).then_some(state.offer.chunk.segments()),
        },
    };
    let len = match encode(&header, &message, &pieces, batch.buffer()) {
        Ok(len) => len,
        Err(error) => {
            drop(guard);
            drop(batch);
            unmap(conn, call);
            client.refuse(xprt, call, error);
            return Ok(());
        }
    };
    let (writes, replies) = match result {
        ResultChunk::Reply => (0, results),
        _ => (results, 0),
    };
    trace::call(
        xprt.id(),
        call.xid(),
        shape32(len),
        reads as u32,
        writes as u32,
        replies as u32,
    );
    if state.xid != call.xid() {
        state.xid = call.xid();
        state.strikes = Strikes::default();
    }
    request.set_phase(state, Phase::Sent);
    state.epoch = endpoint.epoch;
    request.owed_on.store(endpoint.epoch.raw(), Relaxed);
    let reply = call.reply();
    state.offer.result = result;
    state.offer.non_data = shape32(reply.head_len() + reply.tail_len());
    let posted = batch.post(len, &mut state.regions);
    drop(guard);
    if posted.is_err() {
        // Some of it may have been posted, so the regions stay where the end of the connection
        // finds them. The RPC client will send the call again.
        endpoint.react(Event::Lost(endpoint.epoch, Cause::PostFailed));
        return Err(NotSent::NotConnected);
    }

    let stats = &client.stats;
    stats.copied_out.add(inline as u64);
    if needed != 0 {
        stats.read_segments.add(reads as u64);
        stats.write_segments.add(writes as u64);
        stats.reply_segments.add(replies as u64);
        match planned.reply {
            ReplyPlan::Inline => {}
            ReplyPlan::WriteChunk { length } | ReplyPlan::ReplyChunk { length } => {
                stats.offered_bytes.add(length.into());
            }
        }
        if matches!(planned.call, CallPlan::Long { .. }) {
            stats.long_calls.add(1);
        }
    }
    if len > xprtrdma_proto::threshold::MIN_THRESHOLD as usize {
        endpoint.large_send();
    }
    if !call.reply_expected() {
        // Nothing will say how many credits are left (V1-012).
        endpoint.react(Event::Lost(endpoint.epoch, Cause::CreditResync));
    }
    Ok(())
}

/// Maps the chunks that the plan asks for. What was mapped before an error stays with the call.
fn map_call(
    xprt: &Xprt<Client>,
    conn: &Arc<Connection>,
    call: &Call<'_, Client>,
    planned: &Plan,
    needed: usize,
) -> Result<(), NotSent> {
    let pool = &conn.handler().regions;
    let mut guard = call.slot().call().state.lock();
    let state = &mut *guard;
    let (idle, regions) = (&mut state.idle, &mut state.regions);
    idle.reserve(needed, GFP_NOWAIT)
        .and_then(|()| regions.reserve(needed, GFP_NOWAIT))
        .map_err(|_| NotSent::NoBuffers)?;
    if let Err(shortage) = pool.take(needed, idle) {
        drop(guard);
        xprt.data().stats.no_region.add(1);
        return Err(match shortage {
            Shortage::NoMemory => NotSent::NoBuffers,
            Shortage::Wait => {
                xprt.stop_senders();
                // They may have come before the senders were stopped.
                if pool.has(needed) {
                    xprt.wake_senders();
                }
                NotSent::Wait
            }
        });
    }
    let (reads, results) = (&mut state.reads, &mut state.offer.chunk);
    reads.clear();
    results.clear();
    let mut map = |what, access, chunk| map_chunk(conn, call, what, access, idle, regions, chunk);
    let mapped = match planned.call {
        CallPlan::Inline => Ok(()),
        CallPlan::ReadChunk { .. } => map((Message::Call, Part::Pages), Access::RemoteRead, reads),
        CallPlan::Long { .. } | CallPlan::LongReadChunk { .. } => {
            map((Message::Call, Part::Whole), Access::RemoteRead, reads)
        }
    };
    let mapped = mapped.and_then(|()| match planned.reply {
        ReplyPlan::Inline => Ok(()),
        ReplyPlan::WriteChunk { .. } => {
            map((Message::Reply, Part::Pages), Access::RemoteWrite, results)
        }
        ReplyPlan::ReplyChunk { .. } => {
            map((Message::Reply, Part::Whole), Access::RemoteWrite, results)
        }
    });
    // Contiguous memory may have needed fewer than were counted.
    while let Some(mr) = idle.pop() {
        pool.put(mr);
    }
    mapped
}

/// Writes header and inline pieces; returns how long they are together.
fn encode(
    header: &CallHeader<'_>,
    message: &XdrBuf<'_>,
    pieces: &[(usize, usize)],
    out: &mut [u8],
) -> Result<usize, xprtrdma_proto::Error> {
    let mut len = header.encode(out)?;
    for &(from, count) in pieces {
        if count == 0 {
            continue;
        }
        let room = out
            .get_mut(len..)
            .and_then(|o| o.get_mut(..count))
            .ok_or(xprtrdma_proto::Error::NoSpace)?;
        message
            .read(from, room)
            .map_err(|_| xprtrdma_proto::Error::NoSpace)?;
        len += count;
    }
    Ok(len)
}

/// Gives the regions of a call back that was not posted.
fn unmap(conn: &Connection, call: &Call<'_, Client>) {
    let mut regions = core::mem::take(&mut call.slot().call().state.lock().regions);
    while let Some(region) = regions.pop() {
        // None of them was posted; one that had been would be deregistered here.
        if let Ok((mr, _lease)) = region.unposted() {
            conn.handler().regions.put(mr);
        }
    }
    // The list is for the next call.
    call.slot().call().state.lock().regions = regions;
}

/// Makes the senders wait for room in the send queue.
fn no_room(
    xprt: &Xprt<Client>,
    conn: &Connection,
    error: SendError,
    len: usize,
    wrs: u32,
) -> NotSent {
    match error {
        SendError::Closed => NotSent::NotConnected,
        SendError::Full => {
            xprt.data().stats.send_queue_full.add(1);
            xprt.stop_senders();
            // The room may have come before the senders were stopped.
            if conn.has_room(len, wrs) {
                xprt.wake_senders();
            }
            NotSent::Wait
        }
    }
}

/// Sends the reply to a callback. It takes no forward credit.
pub(crate) fn send_callback_reply(
    xprt: &Xprt<Client>,
    conn: &Arc<Connection>,
    callback: &Callback<'_>,
) -> Result<(), NotSent> {
    let endpoint = conn.handler();
    if !callback.came_on_this_connection(xprt) {
        // A reply never goes out on another connection (BC-27): it is dropped, and the server asks
        // again.
        return Ok(());
    }
    let reply = callback.reply();
    let header = ReverseReplyHeader {
        version: endpoint.version,
        xid: Xid(callback.xid()),
        credits: crate::client::callback_credits(),
    };
    let max = endpoint.thresholds().reverse_reply_max(endpoint.version) as usize;
    if reply.len() > max {
        xprt.data().stats.count(Counter::BcReplyTooBig);
        endpoint.react(Event::Lost(endpoint.epoch, Cause::BackchannelReplyTooBig));
        return Ok(());
    }
    let max_len = endpoint.version.min_header_len() + reply.len();
    let mut batch = conn
        .begin(max_len, 1)
        .map_err(|e| no_room(xprt, conn, e, max_len, 1))?;
    let buffer = batch.buffer();
    let len = header.encode(buffer).map_err(|_| NotSent::NotConnected)?;
    let room = buffer
        .get_mut(len..)
        .and_then(|b| b.get_mut(..reply.len()))
        .ok_or(NotSent::NotConnected)?;
    reply.read(0, room).map_err(|_| NotSent::NotConnected)?;
    if batch
        .post::<Lease<Client>>(len + reply.len(), &mut [])
        .is_err()
    {
        endpoint.react(Event::Lost(endpoint.epoch, Cause::PostFailed));
        return Err(NotSent::NotConnected);
    }
    Ok(())
}
