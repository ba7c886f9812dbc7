// SPDX-License-Identifier: GPL-2.0

//! What the driver knows of one RPC ([`Request`]).

use crate::{
    client::Client,
    endpoint::Endpoint, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::Atomic,
        SpinLock, //
    },
};
use xprtrdma_proto::{
    conn::Epoch,
    header::MAX_SEGMENTS,
    judge::Verdict,
    limit::Strikes,
    Handle,
    Segment, //
};
use xprtrdma_rdma::{
    mr::{
        ExposedMr,
        IdleMr, //
    },
    qp::Held, //
};
use xprtrdma_sunrpc::{
    call::Pinned,
    lease::Lease, //
};

/// A region that a call uses.
pub(crate) type Region = ExposedMr<Lease<Client>>;

/// A reply that waits for the invalidation of its call's regions.
pub(crate) struct Answer {
    pub(crate) pinned: Pinned<Client>,
    /// What is to be done then.
    pub(crate) verdict: Verdict,
    /// The message, if its inline part is needed.
    pub(crate) message: Option<Held<Endpoint>>,
}

/// Where an RPC is, as far as the connection is concerned.
pub(crate) enum Phase {
    /// Not sent, or answered.
    Idle,
    /// Sent on the connection with this epoch; no reply yet.
    Sent,
    /// Answered; its regions are being invalidated.
    Answered(Answer),
    /// Given up by the RPC client; its regions are being invalidated.
    Revoked,
}

/// The state of one RPC.
///
/// The regions are those of the Read chunk (the whole call's or its data item's), then those of
/// the Write chunk or of the Reply chunk.
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) epoch: Epoch,
    pub(crate) regions: KVec<Region>,
    /// Room for regions on their way from the pool; empty.
    pub(crate) idle: KVec<IdleMr>,
    pub(crate) offer: Offered,
    /// Bad replies to the RPC with this xid, on all its connections together.
    pub(crate) strikes: Strikes,
    pub(crate) xid: u32,
}

/// What a call offered to the server.
#[derive(Clone, Copy)]
pub(crate) struct Offered {
    pub(crate) result: ResultChunk,
    /// The segments of the Write or Reply chunk, as sent.
    pub(crate) segments: [Segment; MAX_SEGMENTS],
    pub(crate) count: usize,
    /// Capacity of the reply apart from the data item.
    pub(crate) non_data: u32,
}

/// The chunk for a call's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultChunk {
    /// None: everything comes inline.
    None,
    /// A Write chunk for the data item.
    Write,
    /// A Reply chunk for everything.
    Reply,
}

impl Offered {
    pub(crate) const NOTHING: Self = Self {
        result: ResultChunk::None,
        segments: [Segment {
            handle: Handle(0),
            length: 0,
            offset: 0,
        }; MAX_SEGMENTS],
        count: 0,
        non_data: 0,
    };

    /// The segments of the chunk.
    pub(crate) fn segments(&self) -> &[Segment] {
        self.segments.get(..self.count).unwrap_or(&[])
    }
}

/// The driver's part of a request slot.
#[pin_data]
pub(crate) struct Request {
    /// The number of the connection that owes the reply; zero after the reply. Of a connection that
    /// has ended it means nothing. `Relaxed`: who sends, judges the reply or ends the RPC has the
    /// request to itself.
    pub(crate) owed_on: Atomic<u32>,
    /// Taken after the send queue's lock, see [`xprtrdma_rdma::qp::SendBatch`].
    #[pin]
    pub(crate) state: SpinLock<State>,
}

impl Request {
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            owed_on: Atomic::new(Epoch::NONE.raw()),
            state <- new_spinlock!(State {
                phase: Phase::Idle,
                epoch: Epoch::NONE,
                regions: KVec::new(),
                idle: KVec::new(),
                offer: Offered::NOTHING,
                strikes: Strikes::default(),
                xid: 0,
            }, "Request::state"),
        })
    }
}
