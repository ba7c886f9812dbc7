// SPDX-License-Identifier: GPL-2.0

//! The driver's state of one RPC ([`Request`]).

use crate::{
    connection::Connection,
    counters::Tally, //
    driver::Rdma,
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};
use xprtrdma_proto::{
    conn::Epoch,
    header::MAX_SEGMENTS,
    judge::Verdict,
    limit::Strikes,
    predict::{
        offset_place,
        Expected,
        Returned, //
    },
    rpc::unmapped::Unmapped,
    Handle,
    Segment,
    Version, //
};
use xprtrdma_rdma::{
    access_once::AccessOnce,
    mr::{
        Access,
        Echo,
        ExposedMr,
        IdleMr, //
    },
    new_spinlock,
    qp::Held,
    spin::SpinLock, //
};
use xprtrdma_sunrpc::{
    call::Pinned,
    lease::Lease, //
};

/// A region that a call uses.
pub(super) type Region = ExposedMr<Lease<Rdma>>;

/// A reply that waits for the invalidation of its call's regions.
pub(super) struct Answer {
    pub(super) pinned: Pinned<Rdma>,
    /// The verdict that is carried out after the invalidation.
    pub(super) verdict: Verdict,
    /// The memory that was offered for the reply.
    pub(super) result: ResultChunk,
    /// The message, if its inline part is needed.
    pub(super) message: Option<Held<Connection>>,
}

/// The work that remains after a message was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Remaining {
    /// Nothing.
    Nothing,
    /// The regions of the slot with this number must be invalidated, before its call can end.
    Invalidation(u16),
}

/// Where an RPC is, as far as the connection is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not sent, or answered.
    Idle,
    /// Sent on the connection with this epoch, and not answered yet.
    Sent,
    /// Answered; its regions are being invalidated, and its [`State::answer`] waits for that.
    Answered,
    /// Given up by the RPC client, whether or not its reply has come since; its regions are being
    /// invalidated.
    Revoked,
}

/// The state of one RPC.
///
/// The regions are those of the Read chunk (the whole call's or its data item's), then those of
/// the Write chunk or of the Reply chunk.
pub(super) struct State {
    pub(super) phase: Phase,
    /// Set in [`Phase::Answered`] only.
    pub(super) answer: Option<Answer>,
    pub(super) epoch: Epoch,
    pub(super) regions: KVec<Region>,
    /// The region of the connection `epoch` that is kept for the slot's next call, see
    /// [`Pools`](crate::connection::Pools).
    pub(super) kept: Option<IdleMr>,
    /// Regions that a call is about to use.
    pub(super) idle: KVec<IdleMr>,
    /// The Read chunk.
    pub(super) reads: Chunk,
    pub(super) offer: Offered,
    /// Bad replies to the RPC with this xid, on all its connections together.
    pub(super) strikes: Strikes,
    pub(super) xid: u32,
    /// When the call was about to be posted, in nanoseconds; old or zero if that was not measured.
    pub(super) posted: u64,
    pub(super) unmapped: Unmapped,
    /// The data that the calls of this slot have moved.
    pub(super) tally: Tally,
}

/// The regions of one chunk, as the header shows them. It stays with the slot and is filled in
/// place, as a copy would cost more than the encoding.
pub(super) struct Chunk {
    segments: [Segment; MAX_SEGMENTS],
    count: usize,
}

impl Chunk {
    const EMPTY: Self = Self {
        segments: [Segment {
            handle: Handle(0),
            length: 0,
            offset: 0,
        }; MAX_SEGMENTS],
        count: 0,
    };

    /// Forgets the segments.
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a segment; `false` if there is no room.
    pub(super) fn push(&mut self, segment: Segment) -> bool {
        match self.segments.get_mut(self.count) {
            Some(place) => {
                *place = segment;
                self.count += 1;
                true
            }
            None => false,
        }
    }

    pub(super) fn segments(&self) -> &[Segment] {
        self.segments.get(..self.count).unwrap_or(&[])
    }
}

/// The memory that a call offered to the server.
pub(super) struct Offered {
    pub(super) result: ResultChunk,
    /// The Write or Reply chunk.
    pub(super) chunk: Chunk,
    /// Capacity of the reply apart from the data item.
    pub(super) non_data: u32,
    /// The server could not know the xid before this Send left: the xid could not be foreseen, and
    /// was not sent before.
    pub(super) secret_xid: bool,
}

impl Offered {
    /// Adds the segment to the offer, if it is for results.
    #[inline(always)]
    pub(super) fn offer(&mut self, result: ResultChunk, segment: Segment, non_data: u32) {
        self.chunk.clear();
        if result != ResultChunk::None {
            self.chunk.push(segment);
        }
        self.result = result;
        self.non_data = non_data;
    }

    /// Returns what a reply repeats that the server can only know from the Send of this region. For
    /// a Write or Reply chunk that is the region's offset, which the reply returns. A Read chunk is
    /// not returned, so there it is the xid.
    pub(super) fn echo(&self, region: &Region) -> Echo {
        match region.access() {
            Access::RemoteWrite => Echo::Offset,
            Access::RemoteRead => self.echo_of_xid(),
        }
    }

    /// The same for the predicted reply to a call with one region for this result.
    #[inline(always)]
    pub(super) fn expected_echo(&self, result: ResultChunk, version: Version) -> Echo {
        let returned = match result {
            ResultChunk::None => return self.echo_of_xid(),
            ResultChunk::Write => Returned::Write,
            ResultChunk::Reply => Returned::Reply,
        };
        Echo::OffsetAt(offset_place(returned, version))
    }

    #[inline(always)]
    fn echo_of_xid(&self) -> Echo {
        match self.secret_xid {
            true => Echo::Unforeseen,
            false => Echo::Nothing,
        }
    }

    /// Returns the offer if it is for this result and the reply can be predicted.
    #[inline(always)]
    pub(super) fn expected(&self, result: ResultChunk) -> Option<Expected<'_>> {
        match (result, self.chunk.segments()) {
            (ResultChunk::None, _) => Some(Expected::Inline),
            (ResultChunk::Write, [segment]) => Some(Expected::Write(segment, self.non_data)),
            (ResultChunk::Reply, [segment]) => Some(Expected::Reply(segment)),
            _ => None,
        }
    }
}

/// The chunk for a call's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultChunk {
    /// No chunk: the whole reply comes inline.
    None,
    /// A Write chunk for the data item.
    Write,
    /// A Reply chunk for everything.
    Reply,
}

/// The driver's part of a request slot.
#[pin_data]
pub(crate) struct Request {
    /// The number of the connection that owes the reply; zero after the reply. The number of an
    /// ended connection means nothing. `Relaxed`: the sender, the reply handler and the release of
    /// the RPC never run at the same time, except that a reply may come when the RPC ends. For that
    /// see [`Request::take_owed`].
    pub(super) owed_on: Atomic<u32>,
    /// Whether the phase is not [`Phase::Idle`]. Changed with the phase, under its lock. The
    /// request's own task reads this without the lock when the request ends, after all other users
    /// of the request.
    at_work: Atomic<bool>,
    /// Taken before the send queue's lock, see [`xprtrdma_rdma::qp::SendBatch`].
    #[pin]
    pub(super) state: SpinLock<State>,
}

impl Request {
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            owed_on: Atomic::new(Epoch::NONE.raw()),
            at_work: Atomic::new(false),
            state <- new_spinlock!(State {
                phase: Phase::Idle,
                answer: None,
                epoch: Epoch::NONE,
                regions: KVec::new(),
                kept: None,
                idle: KVec::new(),
                reads: Chunk::EMPTY,
                offer: Offered {
                    result: ResultChunk::None,
                    chunk: Chunk::EMPTY,
                    non_data: 0,
                    secret_xid: false,
                },
                strikes: Strikes::default(),
                xid: 0,
                posted: 0,
                unmapped: Unmapped::default(),
                tally: Tally::default(),
            }, "Request::state"),
        })
    }

    /// The connection that the call was sent on last.
    pub(crate) fn sent_on(&self) -> Epoch {
        self.state.lock().epoch
    }

    /// Whether a connection owes the reply to the call. Called when the RPC ends.
    #[inline]
    pub(crate) fn is_owed(&self) -> bool {
        self.owed_on.read_once() != Epoch::NONE.raw()
    }

    /// How many regions of that connection the slot keeps for its next call.
    pub(crate) fn kept(&self, epoch: Epoch) -> usize {
        let state = self.state.lock();
        match state.epoch == epoch {
            true => usize::from(state.kept.is_some()),
            false => 0,
        }
    }

    /// The data that the calls of this slot have moved.
    pub(crate) fn tally(&self) -> Tally {
        self.state.lock().tally
    }

    /// Whether the request was sent and is not over. Must not race with sending it.
    #[inline]
    pub(crate) fn is_at_work(&self) -> bool {
        self.at_work.read_once()
    }

    /// Takes the number of the connection that owes the reply. If the release of the RPC and its
    /// reply handler both try, only one of them gets it.
    #[cold]
    pub(crate) fn take_owed(&self) -> u32 {
        self.owed_on.xchg(Epoch::NONE.raw(), Relaxed)
    }

    /// Changes the phase of the request that `state` belongs to.
    #[inline]
    pub(super) fn set_phase(&self, state: &mut State, phase: Phase) {
        self.at_work.write_once(phase != Phase::Idle);
        state.phase = phase;
    }

    /// Makes the request that `state` belongs to idle; returns the reply that was waiting.
    pub(super) fn take_answer(&self, state: &mut State) -> Option<Answer> {
        self.set_phase(state, Phase::Idle);
        state.answer.take()
    }
}
