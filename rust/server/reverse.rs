// SPDX-License-Identifier: GPL-2.0

//! Calls of nfsd to the client, on the client's connection (RFC 8167).

use crate::{
    driver::Rdma,
    stats::Count, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};
use xprtrdma_proto::{
    responder::{
        reverse::Reverse,
        sort::ReverseReply, //
    },
    Error as Wrong,
    Xid, //
};
use xprtrdma_rdma::qp::{
    Qp,
    QpHandler,
    SendError, //
};
use xprtrdma_svc::reverse::{
    Line,
    NotSent,
    Outgoing, //
};

/// Calls to a client that may be in flight at most. Each needs a Receive for its reply.
pub(crate) const CALLS: u16 = 8;

/// The direction from the server to the client of one connection.
pub(crate) struct Callbacks {
    /// Where replies go.
    pub(crate) line: Line<Rdma>,
    credits: Pin<KBox<SpinLock<Reverse>>>,
    /// Bytes that the client takes in a message.
    threshold: usize,
    /// Calls that were sent. Changes with the lock of the credits held.
    pub(crate) sent: Count,
    /// Replies to calls that waited for them. Completion handlers change it.
    pub(crate) answered: Count,
}

impl Callbacks {
    /// Makes the direction to a client that takes `reply_threshold` bytes in a message.
    pub(crate) fn new(reply_threshold: u32) -> Result<Self> {
        let reverse = Reverse::new(CALLS.into(), reply_threshold);
        let lock = new_spinlock!(reverse, "Callbacks::credits");
        Ok(Self {
            line: Line::new()?,
            credits: KBox::pin_init(lock, GFP_KERNEL)?,
            // CAST: A few kilobytes.
            threshold: reply_threshold as usize,
            sent: Count::new(),
            answered: Count::new(),
        })
    }

    /// Allows calls: nfsd has been asked for them on this connection, by a call.
    pub(crate) fn allow(&self) {
        let mut credits = self.credits.lock();
        credits.heard();
        credits.allow(true);
    }

    /// Returns how many bytes a call may have.
    pub(crate) fn longest(&self) -> usize {
        // CAST: A few kilobytes.
        self.credits.lock().longest() as usize
    }

    /// Sends a call. Does not sleep.
    pub(crate) fn call<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        call: &Outgoing<'_>,
    ) -> Result<(), NotSent> {
        // CAST: A message in memory.
        let len = call.message.len() as usize;
        if len > self.longest() {
            return Err(NotSent::TooLong);
        }
        let mut batch = qp.begin(self.threshold, 1).map_err(|e| match e {
            SendError::Full => NotSent::Busy,
            SendError::Closed => NotSent::Closed,
        })?;
        // Counted while the lock of the send queue is held, so a call that is counted was sent.
        let mut credits = self.credits.lock();
        let header = credits
            .begin(Xid(call.xid), call.message.len())
            .map_err(|e| match e {
                Wrong::Again => NotSent::Busy,
                Wrong::Unbuildable => NotSent::TooLong,
                _ => NotSent::Closed,
            })?;
        self.sent.add(1);
        drop(credits);
        let buffer = batch.buffer();
        let start = header.encode(buffer).map_err(|_| NotSent::Closed)?;
        let end = start.checked_add(len).ok_or(NotSent::TooLong)?;
        let place = buffer.get_mut(start..end).ok_or(NotSent::TooLong)?;
        call.message.copy(0, place).map_err(|_| NotSent::Closed)?;
        batch.post_message(end).map_err(|_| NotSent::Closed)
    }

    /// Hands a reply to the call that waits for it. `false`: no call waits for it.
    pub(crate) fn replied(&self, reply: &ReverseReply<'_>) -> bool {
        let expected = self.line.reply(reply.xid.0, reply.payload, || {
            let mut credits = self.credits.lock();
            credits.replied(reply);
            credits.credits().granted()
        });
        if expected {
            self.answered.add(1);
        } else {
            // The reply may be late, after the call has timed out. The client no longer works on
            // the call.
            self.credits.lock().ended();
        }
        expected
    }

    /// Fails a call that the client has refused: it gets a reply that cannot be decoded. `false`:
    /// no call has this id.
    pub(crate) fn refused(&self, xid: Xid) -> bool {
        let expected = self.line.reply(xid.0, &xid.0.to_be_bytes(), || {
            let mut credits = self.credits.lock();
            credits.ended();
            credits.credits().granted()
        });
        if !expected {
            self.credits.lock().ended();
        }
        expected
    }
}
