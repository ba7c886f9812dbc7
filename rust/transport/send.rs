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
    endpoint::{
        Connection,
        Endpoint, //
    },
    regions::{
        gather,
        Shortage, //
    },
    request::{
        Chunk,
        Phase,
        Region,
        ResultChunk,
        State, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
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
    Thresholds,
    Xid, //
};
use xprtrdma_rdma::{
    marked::Marked,
    mr::{
        Access,
        IdleMr, //
    },
    qp::SendError,
};
use xprtrdma_sunrpc::{
    backchannel::Callback,
    call::{
        Call,
        Encoded, //
    },
    lease::{
        Lease,
        Message, //
    },
    trace,
    transport::NotSent,
    util::processor_is_wanted,
    xdr_buf::{
        Octets,
        Part,
        XdrBuf, //
    },
    xprt::Xprt,
};

fn shape32(len: usize) -> u32 {
    // No RPC message comes near 4 GiB; a length that did would not fit any plan.
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn run(offset: usize, length: usize) -> Run {
    Run {
        offset: shape32(offset),
        length: shape32(length),
    }
}

/// The run of a message's pages.
#[inline(always)]
fn pages(buf: &XdrBuf<'_>) -> Run {
    run(buf.page_offset(), buf.page_len())
}

/// The runs of a message.
fn whole(buf: &XdrBuf<'_>) -> [Run; 3] {
    [
        run(buf.head_offset(), buf.head_len()),
        pages(buf),
        run(buf.tail_offset(), buf.tail_len()),
    ]
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
    #[inline(always)]
    fn read(&self) -> usize {
        self.regions.segments(&[pages(&self.message)])
    }

    fn call(&self) -> usize {
        self.regions.segments(&whole(&self.message))
    }

    fn reduced_call(&self) -> usize {
        // The rest of a reduced call is never sent by a chunk of its own.
        0
    }

    #[inline(always)]
    fn write(&self) -> usize {
        self.regions.segments(&[pages(&self.reply)])
    }

    fn reply(&self) -> usize {
        self.regions.segments(&whole(&self.reply))
    }
}

/// Decides how a call travels.
#[inline(always)]
pub(crate) fn plan_call(
    conn: &Connection,
    call: &Encoded<'_, Client>,
    thresholds: Thresholds,
) -> Result<Plan, xprtrdma_proto::Error> {
    let endpoint = conn.handler();
    let message = *call.message();
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
        thresholds,
        segments: MAX_SEGMENTS,
    };
    plan(&shape, &reply_shape, &counts, call.ddp_allowed(), &limits)
}

/// Where what is mapped comes from and goes to.
struct Mapping<'a> {
    idle: &'a mut KVec<IdleMr>,
    regions: &'a mut KVec<Region>,
}

impl Mapping<'_> {
    /// Maps a part of a message, region by region.
    #[inline(always)]
    fn add_chunk(
        &mut self,
        conn: &Connection,
        call: &Call<'_, Client>,
        (message, part): (Message, Part),
        access: Access,
        chunk: &mut Chunk,
    ) -> Result<(), Shortage> {
        let buf = match message {
            Message::Call => *call.message(),
            Message::Reply => call.reply(),
        };
        let len = buf.part_len(part);
        let mut start = 0;
        while start < len {
            start += self.add_region(conn, call, (message, part), start, access, chunk)?;
        }
        Ok(())
    }

    /// Maps as much as a region can hold, from the octet at `start` on; returns how much that was.
    // As a loop around all of this, the compiler would prepare for a second region, which is rare.
    #[inline(never)]
    fn add_region(
        &mut self,
        conn: &Connection,
        call: &Call<'_, Client>,
        (message, part): (Message, Part),
        start: usize,
        access: Access,
        chunk: &mut Chunk,
    ) -> Result<usize, Shortage> {
        let endpoint = conn.handler();
        let mr = self.idle.pop().ok_or(Shortage::Unmapped)?;
        let region = match mr.map(call.lend(message, part), start, access) {
            Ok(region) => region,
            Err(failed) => {
                endpoint.regions.put(failed.mr);
                return Err(Shortage::Unmapped);
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
        let _ = self.regions.push_within_capacity(region);
        let fits = chunk.push(Segment {
            handle: Handle(window.handle),
            length: window.length,
            offset: window.offset,
        });
        if fits {
            Ok(window.length as usize)
        } else {
            Err(Shortage::Unmapped)
        }
    }
}

/// Why a call with a plan and a credit was not posted.
enum Unsent {
    /// Regions, so many, or memory for them are missing.
    NoRegions(Shortage, usize),
    /// The send queue does not take so many octets and work requests.
    NoRoom(SendError, usize, u32),
    /// The header cannot be.
    NoHeader(xprtrdma_proto::Error),
    /// The post failed. Some of it may have been posted.
    NotPosted,
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
    let thresholds = endpoint.thresholds();
    let planned = match plan_call(conn, call, thresholds) {
        Ok(planned) => planned,
        Err(error) => {
            client.refuse(call, error);
            return Ok(());
        }
    };
    if !call.take_credit(xprt) {
        return Err(NotSent::NoCredit);
    }
    if xprt.has_others() {
        conn.dismiss();
    }
    if let ReplyPlan::ReplyChunk { .. } = planned.reply {
        // Before the memory is mapped: afterwards it belongs to the device. If it still does, the
        // connection is at its end.
        call.clear_reply().map_err(|e| match e {
            // A reply came before the call was sent.
            e if e == EAGAIN => NotSent::NoBuffers,
            _ => NotSent::NotConnected,
        })?;
    }

    let request = call.slot().call();
    let mut state = request.state.lock();
    state.offer.invalidation = thresholds.remote_invalidation;
    let posted = post_call(xprt, conn, call, &planned, &mut state);
    drop(state);
    let len = match posted {
        Ok(len) => len,
        Err(unsent) => return not_sent(xprt, conn, call, unsent),
    };
    if matches!(planned.call, CallPlan::Long { .. }) {
        client.stats.long_calls.add(1);
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

/// Maps, writes and posts a call; returns the octets of its message.
#[inline]
fn post_call(
    xprt: &Xprt<Client>,
    conn: &Arc<Connection>,
    call: &Call<'_, Client>,
    planned: &Plan,
    state: &mut State,
) -> Result<usize, Unsent> {
    let endpoint = conn.handler();
    let needed = planned.read_segments + planned.result_segments;
    // Those of the slot's last call.
    state.reads.clear();
    state.offer.chunk.clear();
    if needed != 0 {
        map_call(xprt, conn, call, planned, needed, state)
            .map_err(|shortage| Unsent::NoRegions(shortage, needed))?;
    }

    // The message without what travels by RDMA.
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
    let mut batch = conn
        .begin(max_len, wrs)
        .map_err(|error| Unsent::NoRoom(error, max_len, wrs))?;

    let (reads, results) = (state.reads.segments(), state.offer.chunk.segments());
    let (read_count, result_count) = (reads.len() as u64, results.len() as u64);
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
        version: endpoint.version,
        xid: Xid(call.xid()),
        credits: endpoint.requested,
        lists: ChunkLists {
            reads: if reads.is_empty() { &[] } else { &read_list },
            writes,
            reply,
        },
    };
    let len = encode(&header, &message, &pieces, batch.buffer()).map_err(Unsent::NoHeader)?;
    trace::call(
        xprt.id(),
        call.xid(),
        shape32(len),
        reads.len() as u32,
        writes.first().map_or(0, |chunk| chunk.len()) as u32,
        reply.map_or(0, <[Segment]>::len) as u32,
    );

    // The call is pending from before the post: its reply may overtake us.
    if state.xid != call.xid() {
        state.xid = call.xid();
        state.strikes = Strikes::default();
    }
    let request = call.slot().call();
    request.set_phase(state, Phase::Sent);
    state.epoch = endpoint.epoch;
    request.owed_on.write_once(endpoint.epoch.raw());
    let room = call.reply();
    state.offer.result = result;
    state.offer.non_data = shape32(room.head_len() + room.tail_len());
    // Amid other calls, on a processor that others wait for, more may follow. What nobody would send again
    // does not wait, nor what says more than that it was sent: see `send_call`.
    let may_wait = xprt.has_others()
        && call.reply_expected()
        && len <= xprtrdma_proto::threshold::MIN_THRESHOLD as usize
        && processor_is_wanted()
        && batch.may_wait();
    let posted = if may_wait {
        batch.post_later(len, &mut state.regions)
    } else {
        batch.post(len, &mut state.regions)
    };
    posted.map_err(|_| Unsent::NotPosted)?;

    // NO-OVERFLOW: 64 bits last for centuries.
    let tally = &mut state.tally;
    tally.copied_out = tally.copied_out.wrapping_add(inline as u64);
    tally.read_segments = tally.read_segments.wrapping_add(read_count);
    match planned.reply {
        ReplyPlan::Inline => {}
        ReplyPlan::WriteChunk { length } => {
            tally.write_segments = tally.write_segments.wrapping_add(result_count);
            tally.offered_bytes = tally.offered_bytes.wrapping_add(length.into());
        }
        ReplyPlan::ReplyChunk { length } => {
            tally.reply_segments = tally.reply_segments.wrapping_add(result_count);
            tally.offered_bytes = tally.offered_bytes.wrapping_add(length.into());
        }
    }
    Ok(len)
}

/// What becomes of a call that was not posted.
#[cold]
fn not_sent(
    xprt: &Xprt<Client>,
    conn: &Arc<Connection>,
    call: &Call<'_, Client>,
    unsent: Unsent,
) -> Result<(), NotSent> {
    let client = xprt.data();
    let endpoint = conn.handler();
    match unsent {
        Unsent::NoRegions(shortage, needed) => {
            client.stats.failed_marshal.add(1);
            unmap(conn, call);
            gather(xprt, &endpoint.regions);
            match shortage {
                Shortage::Wait => {}
                Shortage::NoMemory => return Err(NotSent::NoBuffers),
                Shortage::Unmapped => return unmapped(xprt, endpoint, call),
            }
            xprt.stop_senders();
            // They may have come before the senders were stopped.
            if endpoint.regions.has(needed) {
                xprt.wake_senders();
            }
            Err(NotSent::Wait)
        }
        Unsent::NoRoom(error, len, wrs) => {
            unmap(conn, call);
            Err(no_room(xprt, conn, error, len, wrs))
        }
        Unsent::NoHeader(error) => {
            unmap(conn, call);
            client.refuse(call, error);
            Ok(())
        }
        Unsent::NotPosted => {
            // The regions stay where the end of the connection finds them. The RPC client will send
            // the call again.
            endpoint.react(Event::Lost(endpoint.epoch, Cause::PostFailed));
            Err(NotSent::NotConnected)
        }
    }
}

/// The RPC client tries again, for the DMA layer may run short as memory does. But if it refuses what no
/// time will change, nobody else would ever end the call.
fn unmapped(
    xprt: &Xprt<Client>,
    endpoint: &Endpoint,
    call: &Call<'_, Client>,
) -> Result<(), NotSent> {
    let error = {
        let mut state = call.slot().call().state.lock();
        state.unmapped.again(call.xid(), endpoint.epoch.raw())
    };
    if error == xprtrdma_proto::Error::NoBuffers {
        return Err(NotSent::NoBuffers);
    }
    xprt.data().refuse(call, error);
    Ok(())
}

/// Maps the chunks that the plan asks for. What was mapped before an error stays with the call.
fn map_call(
    xprt: &Xprt<Client>,
    conn: &Arc<Connection>,
    call: &Call<'_, Client>,
    planned: &Plan,
    needed: usize,
    state: &mut State,
) -> Result<(), Shortage> {
    let pool = &conn.handler().regions;
    let (idle, regions) = (&mut state.idle, &mut state.regions);
    regions
        .reserve(needed, GFP_NOWAIT)
        .map_err(|_| Shortage::NoMemory)?;
    // As a rule the slot has kept what it needs.
    let missing = needed.saturating_sub(idle.len());
    if missing != 0 {
        idle.reserve(missing, GFP_NOWAIT)
            .map_err(|_| Shortage::NoMemory)?;
        pool.take(missing, idle)
            .inspect_err(|_| xprt.data().stats.no_region.add(1))?;
    }
    let (reads, results) = (&mut state.reads, &mut state.offer.chunk);
    let mut mapping = Mapping { idle, regions };
    let mut map = |what, access, chunk| mapping.add_chunk(conn, call, what, access, chunk);
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
#[inline]
fn encode(
    header: &CallHeader<'_>,
    message: &Octets<'_>,
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
