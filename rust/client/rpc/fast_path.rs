// SPDX-License-Identifier: GPL-2.0

//! The fast path for sending. It sends calls that need exactly one region.

use crate::{
    connection::{
        Connection,
        Needed,
        Shortage, //
    },
    counters::Offer,
    driver::Rdma,
    rpc::{
        request::{
            ResultChunk,
            State, //
        },
        sending::{
            copy,
            Sending,
            Unsent, //
        },
        shape::shape32,
        slow_path::send_any,
        unsent::not_sent, //
    },
};
use core::slice;
use xprtrdma_proto::{
    header::{
        self,
        OneChunk, //
    },
    CallPlan,
    Handle,
    Plan,
    ReplyPlan,
    Segment,
    Version,
    Xid, //
};
use xprtrdma_rdma::{
    mr::{
        Access,
        IdleMr, //
    },
    qp::Qp, //
};
use xprtrdma_sunrpc::{
    call::{
        Call,
        Encoded, //
    },
    lease::Message,
    transport::NotSent,
    xdr_buf::Part, //
};

/// The form of a call that needs exactly one region. Nearly all calls have such a form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum One {
    /// A Write chunk for the pages of the reply.
    Write,
    /// A Read chunk for the pages of the call.
    Read,
    /// A Reply chunk for the whole reply.
    Reply,
}

impl One {
    /// Returns the plan of a call with this form.
    fn plan(self, call: &Encoded<'_, Rdma>, version: Version) -> Plan {
        let (message, reply) = (call.message(), call.reply());
        let (reads, results) = match self {
            Self::Read => (1, 0),
            Self::Write | Self::Reply => (0, 1),
        };
        Plan {
            call: match self {
                Self::Read => CallPlan::ReadChunk {
                    position: shape32(message.head_len()),
                    length: shape32(message.page_len()),
                },
                Self::Write | Self::Reply => CallPlan::Inline,
            },
            reply: match self {
                Self::Read => ReplyPlan::Inline,
                Self::Write => ReplyPlan::WriteChunk {
                    length: shape32(reply.page_len()),
                },
                Self::Reply => ReplyPlan::ReplyChunk {
                    length: shape32(reply.part_len(Part::Whole)),
                },
            },
            header_len: self.header_len(version),
            read_segments: reads,
            result_segments: results,
        }
    }

    /// Returns the length of the transport header, in bytes.
    #[inline(always)]
    const fn header_len(self, version: Version) -> usize {
        let lists = match self {
            Self::Write => header::ONE_WRITE,
            Self::Read => header::ONE_READ,
            Self::Reply => header::ONE_REPLY,
        };
        version.fixed_len().saturating_add(lists)
    }
}

/// A version of the protocol as a type. Code that is generic over this type is compiled once for
/// each version.
pub(super) trait Spoken {
    const VERSION: Version;
}

/// Version 1 of RPC-over-RDMA, as a type.
pub(super) enum V1 {}

impl Spoken for V1 {
    const VERSION: Version = Version::V1;
}

/// Version 2 of RPC-over-RDMA, as a type.
pub(super) enum V2 {}

impl Spoken for V2 {
    const VERSION: Version = Version::V2;
}

// Each pair of a call form and a protocol version has a separate function. In such a function the
// compiler resolves all conditions that do not depend on the call, so the function executes only a
// third as many instructions as the slow path. If all forms shared one function, this function
// would execute a fifth more instructions.

#[inline(never)]
pub(super) fn send_with_write_chunk<V: Spoken>(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
) -> Result<(), NotSent> {
    send_one(qp, call, One::Write, V::VERSION)
}

#[inline(never)]
pub(super) fn send_with_read_chunk<V: Spoken>(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
) -> Result<(), NotSent> {
    send_one(qp, call, One::Read, V::VERSION)
}

#[inline(never)]
pub(super) fn send_with_reply_chunk<V: Spoken>(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
) -> Result<(), NotSent> {
    send_one(qp, call, One::Reply, V::VERSION)
}

/// Why a call was not posted on the fast path.
enum Failed {
    /// The call has a rare property, so it must take the slow path.
    Rare,
    /// The call was not posted, for this reason.
    Unsent(Unsent),
}

impl From<Unsent> for Failed {
    fn from(unsent: Unsent) -> Self {
        Self::Unsent(unsent)
    }
}

/// Sends a call with one region, like [`send_any`]. A call with a rare property takes the slow
/// path.
#[inline(always)]
fn send_one(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
    form: One,
    version: Version,
) -> Result<(), NotSent> {
    let sending = Sending::new(qp, call);
    let crowded = sending.is_crowded();
    // If a call offers memory for its reply, a reply is always expected. So `reply_expected` is
    // needed only for a call with a Read chunk.
    let expected = form != One::Read || call.reply_expected();
    let mut state = call.slot().driver_data().state.lock();
    // Each arm of the match releases the lock, so that the usual case needs no second test of the
    // result.
    match post_one(sending, form, version, (crowded, expected), &mut state) {
        Ok(len) => {
            sending.was_posted(state, len, expected);
            Ok(())
        }
        Err(Failed::Rare) => {
            drop(state);
            send_on_slow_path(qp, call, form)
        }
        Err(Failed::Unsent(unsent)) => {
            drop(state);
            not_sent(qp, call, unsent)
        }
    }
}

/// Maps, encodes and posts a call. Returns the length of its message in bytes.
#[inline(always)]
fn post_one(
    sending: Sending<'_>,
    form: One,
    version: Version,
    (crowded, expected): (bool, bool),
    state: &mut State,
) -> Result<usize, Failed> {
    let (conn, call) = (sending.conn(), sending.call());
    // Usually the slot keeps a region from its last call, and a region list with spare capacity. A
    // call with a Reply chunk that is sent again takes the slow path, because only that path clears
    // the memory for the reply.
    let ready = state.regions.is_empty() && (form != One::Reply || state.xid != call.xid());
    let kept = if ready { state.kept.take() } else { None };
    let mr = kept.ok_or(Failed::Rare)?;

    let (part, access, lent) = match form {
        One::Write => (Part::Pages, Access::RemoteWrite, Message::Reply),
        One::Read => (Part::Pages, Access::RemoteRead, Message::Call),
        One::Reply => (Part::Whole, Access::RemoteWrite, Message::Reply),
    };
    let message = call.message();
    let length = match lent {
        Message::Call => message.part_len(part),
        Message::Reply => call.reply().part_len(part),
    };
    if !conn.regions().suits(&mr, access) {
        put_back(conn, mr);
        return Err(Failed::Rare);
    }
    let Some(loan) = call.lend(lent, part) else {
        put_back(conn, mr);
        return Err(Unsent::NoRegions(Shortage::NoMemory, Needed::one(access)).into());
    };
    let region = match mr.map(loan, 0, access) {
        Ok(region) => region,
        Err(failed) => {
            put_back(conn, failed.mr);
            return Err(Unsent::NoRegions(Shortage::Unmapped, Needed::one(access)).into());
        }
    };
    let window = region.window();
    let _ = state.regions.push_within_capacity(region);
    let (first, behind, second) = match form {
        One::Read => {
            let (pages, tail) = (message.page_len(), message.tail_len());
            let pad = (pages.wrapping_neg() % 4).min(tail);
            // NO-OVERFLOW: The numbers are lengths of parts of a message in memory.
            let behind = message.head_len().wrapping_add(pages).wrapping_add(pad);
            (message.head_len(), behind, tail.wrapping_sub(pad))
        }
        One::Write | One::Reply => (message.len(), 0, 0),
    };
    if window.length as usize != length {
        unmap_one(conn, state);
        return Err(Failed::Rare);
    }
    let segment = Segment {
        handle: Handle(window.handle),
        length: window.length,
        offset: window.offset,
    };
    sending.trace_region(&segment, access);

    // NO-OVERFLOW: The numbers are lengths of parts of a message in memory, and of a header.
    let inline = first.wrapping_add(second);
    let len = form.header_len(version).wrapping_add(inline);
    let mut batch = sending.begin(len, 2)?;
    let (chunk, result) = match form {
        One::Read => (OneChunk::Read(shape32(first), segment), ResultChunk::None),
        One::Write => (OneChunk::Write(segment), ResultChunk::Write),
        One::Reply => (OneChunk::Reply(segment), ResultChunk::Reply),
    };
    let buffer = batch.buffer();
    let at = chunk
        .encode(version, Xid(call.xid()), conn.requested(), buffer)
        .map_err(Unsent::NoHeader)?;
    let at = copy(&message, (0, first), buffer, at).map_err(Unsent::NoHeader)?;
    if second != 0 {
        copy(&message, (behind, second), buffer, at).map_err(Unsent::NoHeader)?;
    }
    sending.trace_call(len, || {
        [One::Read, One::Write, One::Reply].map(|of| usize::from(form == of))
    });

    // The xid of a call with a Reply chunk is always new here, because `ready` requires a new xid.
    let is_new = form == One::Reply || state.xid != call.xid();
    sending.set_pending(state, is_new, form == One::Read);
    state.offer.offer(result, segment, sending.non_data());
    let [region] = &mut *state.regions else {
        // This branch is never taken, because this function has put the region into the list.
        return Err(Unsent::NotPosted.into());
    };
    sending.post(batch, len, (crowded, expected), slice::from_mut(region))?;

    let (tally, length) = (&mut state.tally, shape32(length));
    match form {
        One::Read => tally.sent(inline, 1),
        One::Write => {
            tally.sent(inline, 0);
            tally.offered(Offer::Write, 1, length);
        }
        One::Reply => {
            tally.sent(inline, 0);
            tally.offered(Offer::Reply, 1, length);
        }
    }
    Ok(len)
}

/// Returns a region to its pool, because the call does not use the region.
#[cold]
#[inline(never)]
fn put_back(conn: &Connection, mr: IdleMr) {
    conn.regions().put(mr);
}

/// Returns the call's region to the pool, because the region maps only a part of the call's memory.
#[cold]
fn unmap_one(conn: &Connection, state: &mut State) {
    if let Some(Ok((mr, _lease))) = state.regions.pop().map(|region| region.unposted()) {
        conn.regions().put(mr);
    }
}

#[cold]
fn send_on_slow_path(qp: &Qp<Connection>, call: &Call<'_, Rdma>, form: One) -> Result<(), NotSent> {
    let plan = form.plan(call, qp.handler().version());
    send_any(qp, call, plan)
}
