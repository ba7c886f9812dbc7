// SPDX-License-Identifier: GPL-2.0

//! Calls of nfsd to the client, on the client's connection (RFC 8167).

use crate::{
    driver::Rdma,
    events::Events,
    sizes::{
        CALLBACKS,
        CALLBACK_TICKS, //
    },
    stats::Count, //
};
use core::sync::atomic::{
    AtomicU32,
    Ordering::Relaxed, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};
use xprtrdma_proto::{
    responder::{
        admit::Terms,
        reverse::{
            NotSent as Refused,
            Reverse, //
        },
        sort::ReverseReply,
        spoken::Spoken, //
    },
    served::cause::Cause,
    Version,
    Xid, //
};
use xprtrdma_rdma::qp::{
    Qp,
    QpHandler,
    SendError, //
};
use xprtrdma_svc::{
    reverse::{
        Line,
        NotSent,
        Outgoing, //
    },
    util::Show, //
};

/// The backchannel of one connection: calls from the server to the client.
pub(crate) struct Callbacks {
    /// The object that passes replies to the calls that wait for replies.
    line: Line<Rdma>,
    credits: Pin<KBox<SpinLock<Reverse>>>,
    /// The protocol version number of the client's first call, or zero until that call arrives.
    /// Completion handlers change the field, one handler at a time.
    version: AtomicU32,
    /// Number of calls that were sent to the client. Changed only with the lock of `credits` held.
    pub(crate) sent: Count,
    /// Number of replies for which a call waited. Only completion handlers change this counter.
    pub(crate) answered: Count,
}

impl Callbacks {
    /// Creates the backchannel of a connection with the limits in `terms`. Replies are passed to
    /// `line`.
    pub(crate) fn new(terms: &Terms, line: Line<Rdma>) -> Result<Self> {
        let reverse = Reverse::new(CALLBACKS.into(), terms);
        let lock = new_spinlock!(reverse, "Callbacks::credits");
        Ok(Self {
            line,
            credits: KBox::pin_init(lock, GFP_KERNEL)?,
            version: AtomicU32::new(0),
            sent: Count::new(),
            answered: Count::new(),
        })
    }

    /// Records the protocol version of the client's first call. Later calls change nothing. Only
    /// completion handlers call this function, one handler at a time.
    #[inline]
    pub(crate) fn heard(&self, version: Version, events: &Events) {
        if self.version.load(Relaxed) == 0 {
            self.begin(version, events);
        }
    }

    /// Sets the protocol version for calls to the client.
    #[cold]
    fn begin(&self, version: Version, events: &Events) {
        self.version.store(version.number(), Relaxed);
        self.credits.lock().heard(version);
        if version != Version::V1 && events.may_log() {
            let number = version.number();
            // LOG: The client uses this version of RPC-over-RDMA.
            pr_info!("{} speaks version {number}\n", Show(&events.peer));
        }
    }

    /// Returns the protocol version of the client's first call, or `None` until that call arrives.
    pub(crate) fn version(&self) -> Option<Version> {
        Spoken::Both.find(self.version.load(Relaxed))
    }

    /// Records that a periodic check (tick) takes place. Ends the connection if, during
    /// `CALLBACK_TICKS` ticks, the client has answered none of the calls in flight.
    pub(crate) fn tick(&self, events: &Events) {
        if self.credits.lock().tick(CALLBACK_TICKS) {
            events.end(Cause::Callbacks);
        }
    }

    /// Allows calls to the client. Called when the client has requested such calls from nfsd on
    /// this connection.
    pub(crate) fn allow(&self) {
        self.credits.lock().allow();
    }

    /// Returns the maximum length of a call in bytes.
    pub(crate) fn longest(&self) -> usize {
        // CAST: The maximum length of a call is a few kilobytes.
        self.credits.lock().longest() as usize
    }

    /// Sends a call. Does not sleep.
    pub(crate) fn call<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        call: &Outgoing<'_>,
    ) -> Result<(), NotSent> {
        // CAST: The length of a message in memory fits into a `usize`.
        let len = call.message.len() as usize;
        let credits = self.credits.lock();
        // CAST: The maximum length of a call is a few kilobytes.
        let (longest, most) = (
            credits.longest() as usize,
            credits.longest_message() as usize,
        );
        drop(credits);
        if len > longest {
            return Err(NotSent::TooLong);
        }
        let mut batch = qp.begin(most, 1).map_err(|e| match e {
            SendError::Full => NotSent::Busy,
            SendError::Closed => NotSent::Closed,
        })?;
        // The call is counted while the lock of the send queue is held. So every counted call was
        // sent.
        let mut credits = self.credits.lock();
        let header = credits
            .begin(Xid(call.xid), call.message.len())
            .map_err(|e| match e {
                Refused::Busy => NotSent::Busy,
                Refused::TooLong => NotSent::TooLong,
                Refused::Closed => NotSent::Closed,
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

    /// Passes a reply to the call that waits for it. Returns true if the reply answers a call of
    /// this host. The call may have timed out.
    pub(crate) fn replied(&self, reply: &ReverseReply<'_>) -> bool {
        let expected = self.line.reply(reply.xid.0, reply.payload, || {
            let mut credits = self.credits.lock();
            credits.replied(reply);
            credits.credits().granted()
        });
        if expected {
            self.answered.add(1);
        }
        expected || self.credits.lock().unmatched()
    }

    /// Completes a call that the client has refused. The call gets a reply that cannot be decoded.
    /// Returns true if the refusal answers a call of this host. The call may have timed out.
    pub(crate) fn refused(&self, xid: Xid) -> bool {
        let expected = self.line.reply(xid.0, &xid.0.to_be_bytes(), || {
            let mut credits = self.credits.lock();
            credits.ended();
            credits.credits().granted()
        });
        expected || self.credits.lock().unmatched()
    }
}
