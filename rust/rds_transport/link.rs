// SPDX-License-Identifier: GPL-2.0

//! The state of a connection while it has a queue pair ([`Link`]).

use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_rdma::{
    qp::{
        Qp,
        QpHandler, //
    },
    transfer::Blank, //
};
use xprtrdma_rds::{
    message::{
        Held,
        Operation as Asked, //
    },
    util::list, //
};
use xprtrdma_rds_proto::{
    acknowledge::{
        Acknowledged,
        Owed, //
    },
    credit::Credits,
    header::Header,
    incoming::Assembly,
    operation::{
        Completion,
        Tell,
        Wishes, //
    },
    ping::Pings,
    turn::Turn, //
};

/// An RDMA operation that is posted, or about to be posted. All its properties are read from its
/// message when they are needed.
pub(crate) struct Posted(pub(crate) Held);

impl Posted {
    /// Returns the sequence number of the message.
    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        Header::of_own(&self.0.message().header()).sequence
    }

    /// Reports the status of the operation to the program, and releases the memory. May sleep.
    #[inline]
    pub(crate) fn end(self, completion: Completion) {
        match completion.tell(self.wishes()) {
            Tell::Later => {}
            Tell::Now(status) => self.0.tell(status.raw()),
            Tell::WhenDropped(status) => self.0.tell_when_dropped(status.raw()),
        }
        self.0.finished();
    }

    /// Returns the notifications that the program wants.
    #[inline]
    fn wishes(&self) -> Wishes {
        let message = self.0.message();
        let header = Header::of_own(&message.header());
        let wishes = |asked: Asked| Wishes {
            notify: asked.notify,
            failures: asked.failures,
            unacknowledged: asked.silent && header.len == 0,
        };
        message.operation().map(wishes).unwrap_or_default()
    }
}

/// Maximum number of empty transfers (without memory and work requests) that a link keeps for later
/// operations.
const SPARES: usize = 4;

/// The state of a queue pair that serves a connection.
pub(crate) struct Link<H: QpHandler> {
    pub(crate) qp: Arc<Qp<H>>,
    /// The number that identifies the device of the queue pair.
    pub(crate) device: u64,
    /// Maximum number of elements of a work request.
    pub(crate) most_sges: u32,
    /// The fragments of an incomplete message that have arrived so far.
    pub(crate) assembly: Assembly,
    pub(crate) owed: Owed,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) credits: Credits,
    pub(crate) pings: Pings,
    /// The highest sequence number of a sent message.
    pub(crate) sent: u64,
    /// The messages that wait for their operation or are to be replaced.
    pub(crate) turn: Turn,
    /// The posted operations, in the order in which they were posted. They complete in this order.
    /// All work requests of an operation together have one completion.
    pub(crate) posted: KVec<Posted>,
    /// True if the last operation found no space in the send queue.
    pub(crate) is_full: bool,
    /// Empty transfers, kept for later operations. The vector never grows beyond its capacity.
    spare: KVec<Blank>,
    /// How the oldest posted operation ended, if a work request has failed. Only the first failure
    /// is kept, because the device flushes all work requests after the failed one.
    pub(crate) failure: Option<Completion>,
}

impl<H: QpHandler> Link<H> {
    /// Creates the state of a new queue pair. May sleep.
    pub(crate) fn new(qp: Arc<Qp<H>>, device: u64, credits: Credits, pings: Pings) -> Result<Self> {
        Ok(Self {
            most_sges: qp.pd().max_send_sges().max(1),
            qp,
            device,
            assembly: Assembly::default(),
            owed: Owed::default(),
            acknowledged: Acknowledged::default(),
            credits,
            pings,
            sent: 0,
            turn: Turn::default(),
            posted: KVec::new(),
            is_full: false,
            spare: KVec::with_capacity(SPARES, GFP_KERNEL)?,
            failure: None,
        })
    }

    /// Returns an empty transfer to be used again, if there is one.
    #[inline]
    pub(crate) fn take_spare(&mut self) -> Option<Blank> {
        self.spare.pop()
    }

    /// Moves an empty transfer from `blank` to the list of spare transfers. If the list is full,
    /// the transfer stays in `blank`. The caller then drops the transfer after it has released the
    /// lock, because the drop may sleep.
    #[inline]
    pub(crate) fn keep_spare(&mut self, blank: &mut Option<Blank>) {
        *blank = blank
            .take()
            .and_then(|blank| list::push(&mut self.spare, blank).err());
    }

    /// Returns the highest sequence number with this property: all messages up to this number were
    /// acknowledged, and all their operations have completed. Returns `None` if the number has not
    /// increased since the last call.
    #[inline]
    pub(crate) fn advance(&mut self) -> Option<u64> {
        let first = self.posted.first().map(Posted::sequence);
        let news = self.acknowledged.advance(first)?;
        self.pings.acknowledged(news);
        Some(news)
    }

    /// Returns true if an acknowledgement or credits must be sent in a separate frame.
    pub(crate) fn is_frame_due(&self) -> bool {
        self.owed.is_due() || self.credits.is_worth_a_frame()
    }

    /// Reports the status of all operations that have not completed. Must be called after the queue
    /// pair was shut down. May sleep.
    pub(crate) fn end(self) {
        let mut completion = self.failure.unwrap_or(Completion::Flushed);
        for posted in self.posted {
            // If an operation has failed, it is the first operation in the list.
            posted.end(completion);
            completion = Completion::Flushed;
        }
    }
}
