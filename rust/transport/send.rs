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
        Offered,
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
        SegmentCounts, //
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
    dma::Lender,
    mr::{
        Access,
        IdleMr, //
    },
    qp::{
        SendError,
        MAX_REGIONS, //
    },
};
use xprtrdma_sunrpc::{
    backchannel::Callback,
    call::Call,
    lease::Message,
    trace,
    transport::NotSent,
    xdr_buf::{
        Part,
        XdrBuf, //
    },
    xprt::Xprt,
};

const NO_SEGMENT: Segment = Segment {
    handle: Handle(0),
    length: 0,
    offset: 0,
};

/// The regions of one chunk, as the header shows them.
struct Chunk {
    segments: [Segment; MAX_SEGMENTS],
    count: usize,
}

impl Chunk {
    const EMPTY: Self = Self {
        segments: [NO_SEGMENT; MAX_SEGMENTS],
        count: 0,
    };

    fn segments(&self) -> &[Segment] {
        self.segments.get(..self.count).unwrap_or(&[])
    }
}

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

/// Decides how a call travels.
pub(crate) fn plan_call(
    conn: &Connection,
    call: &Call<'_, Client>,
) -> Result<Plan, xprtrdma_proto::Error> {
    let endpoint = conn.handler();
    let message = call.message();
    let reply = call.reply();
    let regions = region_limits(conn);
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
    let counts = SegmentCounts {
        read: regions.segments(&runs(&message, Part::Pages)),
        call: regions.segments(&runs(&message, Part::Whole)),
        // The rest of a reduced call is never sent by a chunk of its own.
        reduced_call: 0,
        write: regions.segments(&runs(&reply, Part::Pages)),
        reply: regions.segments(&runs(&reply, Part::Whole)),
    };
    let limits = Limits {
        version: endpoint.version,
        thresholds: endpoint.thresholds(),
        segments: MAX_SEGMENTS,
    };
    plan(&shape, &reply_shape, &counts, call.ddp_allowed(), &limits)
}

/// How many regions a plan needs: for the Read chunk, and for the Write or Reply chunk.
fn regions_needed(conn: &Connection, call: &Call<'_, Client>, planned: &Plan) -> (usize, usize) {
    let limits = region_limits(conn);
    let (message, reply) = (call.message(), call.reply());
    let reads = match planned.call {
        CallPlan::Inline => 0,
        CallPlan::ReadChunk { .. } => limits.segments(&runs(&message, Part::Pages)),
        CallPlan::Long { .. } | CallPlan::LongReadChunk { .. } => {
            limits.segments(&runs(&message, Part::Whole))
        }
    };
    let results = match planned.reply {
        ReplyPlan::Inline => 0,
        ReplyPlan::WriteChunk { .. } => limits.segments(&runs(&reply, Part::Pages)),
        ReplyPlan::ReplyChunk { .. } => limits.segments(&runs(&reply, Part::Whole)),
    };
    (reads, results)
}

/// Maps a part of a message, region by region.
fn map_chunk(
    conn: &Connection,
    call: &Call<'_, Client>,
    (message, part): (Message, Part),
    access: Access,
    idle: &mut KVec<IdleMr>,
    regions: &mut KVec<Region>,
) -> Result<Chunk, NotSent> {
    let mut chunk = Chunk::EMPTY;
    let lease = call.lend(message, part);
    let mut start = 0;
    while start < lease.len() {
        let slot = chunk
            .segments
            .get_mut(chunk.count)
            .ok_or(NotSent::NoBuffers)?;
        let mr = idle.pop().ok_or(NotSent::NoBuffers)?;
        match mr.map(lease.clone(), start, access) {
            Ok(region) => {
                let window = region.window();
                let xprt = conn.handler().xprt.id();
                let write = access == Access::RemoteWrite;
                trace::register(
                    xprt,
                    call.xid(),
                    window.handle,
                    window.offset,
                    window.length,
                    write,
                );
                *slot = Segment {
                    handle: Handle(window.handle),
                    length: window.length,
                    offset: window.offset,
                };
                chunk.count += 1;
                start += window.length as usize;
                // There is room: reserved by the caller.
                let _ = regions.push_within_capacity(region);
            }
            Err(failed) => {
                conn.handler().regions.put(failed.mr);
                return Err(NotSent::NoBuffers);
            }
        }
    }
    Ok(chunk)
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
    let mut regions = core::mem::take(&mut call.slot().call().state.lock().regions);
    let mapped = map_call(xprt, conn, call, &planned, &mut regions);
    let (reads, results, result) = match mapped {
        Ok(mapped) => mapped,
        Err(reason) => {
            client.stats.failed_marshal.add(1);
            unmap(conn, regions, call);
            return Err(reason);
        }
    };

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
    let wrs = regions.len() as u32 + 1;

    let mut batch = match conn.begin(max_len, wrs) {
        Ok(batch) => batch,
        Err(error) => {
            unmap(conn, regions, call);
            return Err(no_room(xprt, conn, error, max_len, wrs));
        }
    };
    let credits = endpoint.state.credits.lock().request();
    let position = match planned.call {
        CallPlan::ReadChunk { position, .. } => position,
        _ => 0,
    };
    let read_list = [ReadChunk {
        position,
        segments: reads.segments(),
    }];
    let write_list = [results.segments()];
    let header = CallHeader {
        version: endpoint.version,
        xid: Xid(call.xid()),
        credits,
        lists: ChunkLists {
            reads: if reads.count == 0 { &[] } else { &read_list },
            writes: match result {
                ResultChunk::Write => &write_list,
                _ => &[],
            },
            reply: (result == ResultChunk::Reply).then_some(results.segments()),
        },
    };
    let encoded = encode(&header, &message, &pieces, batch.buffer());
    let len = match encoded {
        Ok(len) => len,
        Err(error) => {
            drop(batch);
            unmap(conn, regions, call);
            client.refuse(xprt, call, error);
            return Ok(());
        }
    };
    let (writes, replies) = match result {
        ResultChunk::None => (0, 0),
        ResultChunk::Write => (results.count, 0),
        ResultChunk::Reply => (0, results.count),
    };
    trace::call(
        xprt.id(),
        call.xid(),
        shape32(len),
        reads.count as u32,
        writes as u32,
        replies as u32,
    );
    // The call is pending from before the post: its reply may overtake us.
    let reply = call.reply();
    let mut state = call.slot().call().state.lock();
    if state.xid != call.xid() {
        state.xid = call.xid();
        state.strikes = Strikes::default();
    }
    state.phase = Phase::Sent;
    state.epoch = endpoint.epoch;
    call.slot()
        .call()
        .owed_on
        .store(endpoint.epoch.raw(), Relaxed);
    state.regions = regions;
    state.offer = Offered {
        result,
        segments: results.segments,
        count: results.count,
        non_data: shape32(reply.head_len() + reply.tail_len()),
    };
    let posted = batch.post(len, state.regions.iter_mut());
    drop(state);
    if posted.is_err() {
        // Some of it may have been posted, so the regions stay where the end of the connection
        // finds them. The RPC client will send the call again.
        endpoint.react(Event::Lost(endpoint.epoch, Cause::PostFailed));
        return Err(NotSent::NotConnected);
    }

    let stats = &client.stats;
    stats.copied_out.add(inline as u64);
    stats.read_segments.add(reads.count as u64);
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
    if len > xprtrdma_proto::threshold::MIN_THRESHOLD as usize {
        endpoint.large_send();
    }
    if !call.reply_expected() {
        // Nothing will say how many credits are left (V1-012).
        endpoint.react(Event::Lost(endpoint.epoch, Cause::CreditResync));
    }
    Ok(())
}

/// Maps the chunks that the plan asks for: (Read chunk, Write or Reply chunk, which of the two).
fn map_call(
    xprt: &Xprt<Client>,
    conn: &Arc<Connection>,
    call: &Call<'_, Client>,
    planned: &Plan,
    regions: &mut KVec<Region>,
) -> Result<(Chunk, Chunk, ResultChunk), NotSent> {
    let (reads, results) = regions_needed(conn, call, planned);
    let needed = reads + results;
    if needed == 0 {
        return Ok((Chunk::EMPTY, Chunk::EMPTY, ResultChunk::None));
    }
    let pool = &conn.handler().regions;
    let mut state = call.slot().call().state.lock();
    let mut idle = core::mem::take(&mut state.idle);
    drop(state);
    let mapped = (|| {
        idle.reserve(needed, GFP_NOWAIT)
            .and_then(|()| regions.reserve(needed, GFP_NOWAIT))
            .map_err(|_| NotSent::NoBuffers)?;
        pool.take(needed, &mut idle).map_err(|shortage| {
            xprt.data().stats.no_region.add(1);
            match shortage {
                Shortage::NoMemory => NotSent::NoBuffers,
                Shortage::Wait => {
                    xprt.stop_senders();
                    // They may have come before the senders were stopped.
                    if pool.has(needed) {
                        xprt.wake_senders();
                    }
                    NotSent::Wait
                }
            }
        })?;
        let read = Access::RemoteRead;
        let mut map = |what, access| map_chunk(conn, call, what, access, &mut idle, regions);
        let reads = match planned.call {
            CallPlan::Inline => Chunk::EMPTY,
            CallPlan::ReadChunk { .. } => map((Message::Call, Part::Pages), read)?,
            CallPlan::Long { .. } | CallPlan::LongReadChunk { .. } => {
                map((Message::Call, Part::Whole), read)?
            }
        };
        let write = Access::RemoteWrite;
        let (results, result) = match planned.reply {
            ReplyPlan::Inline => (Chunk::EMPTY, ResultChunk::None),
            ReplyPlan::WriteChunk { .. } => (
                map((Message::Reply, Part::Pages), write)?,
                ResultChunk::Write,
            ),
            ReplyPlan::ReplyChunk { .. } => (
                map((Message::Reply, Part::Whole), write)?,
                ResultChunk::Reply,
            ),
        };
        Ok((reads, results, result))
    })();
    // Contiguous memory may have needed fewer than were counted.
    while let Some(mr) = idle.pop() {
        pool.put(mr);
    }
    call.slot().call().state.lock().idle = idle;
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

/// Gives regions back that were never posted, and the list to its slot.
fn unmap(conn: &Connection, mut regions: KVec<Region>, call: &Call<'_, Client>) {
    while let Some(region) = regions.pop() {
        // None of them was posted; one that had been would be deregistered here.
        if let Ok((mr, _lease)) = region.unposted() {
            conn.handler().regions.put(mr);
        }
    }
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
        .post(len + reply.len(), core::iter::empty::<&mut Region>())
        .is_err()
    {
        endpoint.react(Event::Lost(endpoint.epoch, Cause::PostFailed));
        return Err(NotSent::NotConnected);
    }
    Ok(())
}

// A call never needs more regions than one post can hold.
const _: () = assert!(2 * MAX_SEGMENTS <= MAX_REGIONS);
