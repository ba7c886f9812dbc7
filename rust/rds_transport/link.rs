// SPDX-License-Identifier: GPL-2.0

//! What a connection knows while it is connected ([`Link`]).

use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_rdma::qp::{
    Qp,
    QpHandler, //
};
use xprtrdma_rds::message::Held;
use xprtrdma_rds_proto::{
    acknowledge::{
        Acknowledged,
        Owed, //
    },
    credit::Credits,
    operation::{
        Completion,
        Operation,
        Tell,
        Wishes, //
    },
    ping::Pings, //
};

/// An operation that was posted.
pub(crate) struct Posted {
    pub(crate) message: Held,
    pub(crate) sequence: u64,
    pub(crate) operation: Operation,
    pub(crate) wishes: Wishes,
    pub(crate) bytes: u32,
    /// The message of the operation waits for its end.
    pub(crate) holds_message: bool,
}

impl Posted {
    /// Ends the operation. Sleeps.
    pub(crate) fn end(mut self, completion: Completion) {
        self.operation.completed(completion);
        match self.operation.tell(self.wishes) {
            Tell::Later => {}
            Tell::Now(status) => self.message.tell(status.raw()),
            Tell::WhenDropped(status) => self.message.tell_when_dropped(status.raw()),
        }
        self.message.finished();
    }
}

/// The state of a queue pair that serves a connection.
pub(crate) struct Link<H: QpHandler> {
    pub(crate) qp: Arc<Qp<H>>,
    pub(crate) owed: Owed,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) credits: Credits,
    pub(crate) pings: Pings,
    /// The highest sequence number that was sent.
    pub(crate) sent: u64,
    /// In the order of their posts, in which they complete.
    pub(crate) posted: KVec<Posted>,
    /// How the first work request failed.
    pub(crate) failure: Option<Completion>,
}

impl<H: QpHandler> Link<H> {
    pub(crate) fn new(qp: Arc<Qp<H>>, credits: Credits, pings: Pings) -> Self {
        Self {
            qp,
            owed: Owed::default(),
            acknowledged: Acknowledged::default(),
            credits,
            pings,
            sent: 0,
            posted: KVec::new(),
            failure: None,
        }
    }

    /// Returns the number up to which messages are over, if that is news.
    pub(crate) fn advance(&mut self) -> Option<u64> {
        let first = self.posted.first().map(|posted| posted.sequence);
        let news = self.acknowledged.advance(first)?;
        self.pings.acknowledged(news);
        Some(news)
    }

    /// A ping is here. Returns whether it may be answered.
    pub(crate) fn ping(&mut self) -> bool {
        let idle = self.sent != 0 && self.acknowledged.applied() >= self.sent;
        self.pings.ping(idle)
    }

    /// Ends what has not completed; the queue pair is shut down. Sleeps.
    pub(crate) fn end(self) {
        let mut completion = self.failure.unwrap_or(Completion::Flushed);
        for posted in self.posted {
            // The first is the one that failed, if an operation did.
            posted.end(completion);
            completion = Completion::Flushed;
        }
    }
}
