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

/// A region that is mapped for a call.
pub(super) type Region = ExposedMr<Lease<Rdma>>;

/// A reply whose call completes only after the call's regions are invalidated.
pub(super) struct Answer {
    pub(super) pinned: Pinned<Rdma>,
    /// The verdict that is carried out after the invalidation.
    pub(super) verdict: Verdict,
    /// The type of chunk that the call offers for its results.
    pub(super) result: ResultChunk,
    /// The received message, if its inline part is needed.
    pub(super) message: Option<Held<Connection>>,
}

/// The work that remains after a message was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Remaining {
    /// No work remains.
    Nothing,
    /// The regions of the slot with this number must be invalidated before the slot's call can
    /// complete.
    Invalidation(u16),
}

/// The state of an RPC, from the connection's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The call was not sent, or is completely handled.
    Idle,
    /// The call was sent on the connection with this epoch. Its reply has not arrived yet.
    Sent,
    /// The reply has arrived. It waits in [`State::answer`] until the call's regions are
    /// invalidated.
    Answered,
    /// The RPC client has abandoned the call, and its regions are being invalidated. The reply may
    /// have arrived after the call was abandoned.
    Revoked,
}

/// The state of one RPC.
///
/// `regions` holds first the regions of the Read chunk (for the whole call or for its data item),
/// then the regions of the Write or Reply chunk.
pub(super) struct State {
    pub(super) phase: Phase,
    /// The reply that waits for an invalidation; set only in [`Phase::Answered`].
    pub(super) answer: Option<Answer>,
    pub(super) epoch: Epoch,
    pub(super) regions: KVec<Region>,
    /// A region of the connection `epoch` that the slot keeps for its next call: see
    /// [`Pools`](crate::connection::Pools).
    pub(super) kept: Option<IdleMr>,
    /// Unmapped regions to which the memory of the call is about to be mapped.
    pub(super) idle: KVec<IdleMr>,
    /// The segments of the call's Read chunk.
    pub(super) reads: Chunk,
    pub(super) offer: Offered,
    /// Number of bad replies to the RPC with the xid in `xid`, on all connections together.
    pub(super) strikes: Strikes,
    pub(super) xid: u32,
    /// The xid and the connection of the last call whose message was longer than the minimum inline
    /// threshold.
    pub(super) large: Option<(u32, Epoch)>,
    /// Time (in nanoseconds) just before the call was posted. While latency is not measured, the
    /// value is old or zero.
    pub(super) posted: u64,
    pub(super) unmapped: Unmapped,
    /// The amounts of data that the calls of this slot have transferred.
    pub(super) tally: Tally,
}

/// The segments of one chunk, as they appear in the header. The slot contains the array, and each
/// segment is written directly into it. Copying the array would cost more than encoding its
/// segments.
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

    /// Removes all segments.
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a segment. Returns `false` if the chunk is full.
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

/// The memory that a call offers to the server.
pub(super) struct Offered {
    pub(super) result: ResultChunk,
    /// The segments of the call's Write chunk or Reply chunk.
    pub(super) chunk: Chunk,
    /// Maximum length of the reply outside its data item, in bytes.
    pub(super) non_data: u32,
    /// True if the server could not know the xid before the Send of this call was posted: the xid
    /// was unpredictable, and had never been sent before.
    pub(super) secret_xid: bool,
}

impl Offered {
    /// Sets the offer of a call that uses one region. The offer contains the region's segment only
    /// if the server writes results to the region.
    #[inline(always)]
    pub(super) fn offer(&mut self, result: ResultChunk, segment: Segment, non_data: u32) {
        self.chunk.clear();
        if result != ResultChunk::None {
            self.chunk.push(segment);
        }
        self.result = result;
        self.non_data = non_data;
    }

    /// Returns the value that a reply must repeat to prove that the server has received the Send
    /// that describes this region.
    ///
    /// - For the region of a Write or Reply chunk, this is the region's offset.
    /// - For the region of a Read chunk, this is the xid, because a reply does not repeat a Read
    ///   chunk. But if the server could know the xid before the Send, no reply is a proof.
    pub(super) fn echo(&self, region: &Region) -> Echo {
        match region.access() {
            Access::RemoteWrite => Echo::Offset,
            Access::RemoteRead => self.echo_of_xid(),
        }
    }

    /// Does what `echo` does, for a call with one region. If the result is the region's offset, the
    /// returned [`Echo`] also says where the predicted reply contains the offset. `result` is the
    /// type of chunk that the call offers for its results.
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

    /// Returns the predicted form of the reply to a call with this type of result chunk. A Write or
    /// Reply chunk must have exactly one segment; otherwise no form is predicted.
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

/// The type of chunk that a call offers for its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultChunk {
    /// No chunk: the whole reply is sent inline.
    None,
    /// A Write chunk for the data item.
    Write,
    /// A Reply chunk for the whole reply.
    Reply,
}

/// The driver's part of a request slot.
#[pin_data]
pub(crate) struct Request {
    /// The number of the connection that still owes the reply; zero after the reply. The number of
    /// an ended connection has no meaning.
    ///
    /// `Relaxed` is enough, because the sender, the reply handler and the release of the RPC never
    /// run at the same time. The only exception is a reply that arrives during the release: see
    /// [`Request::take_owed`].
    pub(super) owed_on: Atomic<u32>,
    /// Whether the phase differs from [`Phase::Idle`]. This flag changes together with the phase,
    /// under the lock of `state`. When the request ends, the request's task reads this flag without
    /// the lock, because all other threads that use the request have finished by then.
    at_work: Atomic<bool>,
    /// The driver's state of the RPC. Its lock is taken before the send queue's lock: see
    /// [`xprtrdma_rdma::qp::SendBatch`].
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
                large: None,
                posted: 0,
                unmapped: Unmapped::default(),
                tally: Tally::default(),
            }, "Request::state"),
        })
    }

    /// Returns the number of the connection on which the call was last sent.
    pub(crate) fn sent_on(&self) -> Epoch {
        self.state.lock().epoch
    }

    /// Returns whether a connection still owes the reply to the call. Called when the RPC ends.
    #[inline]
    pub(crate) fn is_owed(&self) -> bool {
        self.owed_on.read_once() != Epoch::NONE.raw()
    }

    /// Returns whether the message of the last call was longer than the minimum inline threshold.
    pub(super) fn was_large(&self) -> bool {
        let state = self.state.lock();
        state.large == Some((state.xid, state.epoch))
    }

    /// Returns how many regions the slot keeps for its next call. Only regions of the connection
    /// with the number `epoch` count.
    pub(crate) fn kept(&self, epoch: Epoch) -> usize {
        let state = self.state.lock();
        match state.epoch == epoch {
            true => usize::from(state.kept.is_some()),
            false => 0,
        }
    }

    /// Returns the amounts of data that the calls of this slot have transferred.
    pub(crate) fn tally(&self) -> Tally {
        self.state.lock().tally
    }

    /// Returns whether the request was sent and has not completed. Must not race with sending the
    /// request.
    #[inline]
    pub(crate) fn is_at_work(&self) -> bool {
        self.at_work.read_once()
    }

    /// Takes the number of the connection that owes the reply, and leaves zero. If the release of
    /// the RPC and the reply handler call this function at the same time, only one of the two gets
    /// the number.
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

    /// Sets the phase in `state`, the state of this request, to [`Phase::Idle`]. Returns the reply
    /// that waited for invalidations.
    pub(super) fn take_answer(&self, state: &mut State) -> Option<Answer> {
        self.set_phase(state, Phase::Idle);
        state.answer.take()
    }
}
