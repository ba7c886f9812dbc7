// SPDX-License-Identifier: GPL-2.0

//! The server's calls (callbacks), and this host's replies to them.

use crate::{
    connection::{
        callback_credits,
        Connection, //
    },
    counters::Ordinary,
    driver::Rdma,
    rpc::{
        sending::is_large,
        unsent::no_room, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    conn::Cause,
    header::{
        RefusalKind,
        ReverseReplyHeader, //
    },
    inbound::ReverseCall,
    limit::Reaction,
    Counter,
    Refusal,
    Xid, //
};
use xprtrdma_rdma::qp::Qp;
use xprtrdma_sunrpc::{
    callback::Callback,
    lease::Lease,
    trace,
    transport::NotSent,
    xprt::Xprt, //
};

/// Sends the reply to a callback. The reply consumes no credit that the server granted.
pub(crate) fn send_callback_reply(
    xprt: &Xprt<Rdma>,
    qp: &Arc<Qp<Connection>>,
    callback: &Callback<'_>,
) -> Result<(), NotSent> {
    let conn = qp.handler();
    if !callback.came_on_this_connection(xprt) {
        // A reply must be sent on the connection on which its callback arrived (BC-27). If that
        // connection has been replaced, the reply is dropped, and the server will send the callback
        // again.
        return Ok(());
    }
    let reply = callback.reply();
    let header = ReverseReplyHeader {
        version: conn.version(),
        xid: Xid(callback.xid()),
        credits: callback_credits(),
    };
    let max = conn.thresholds().reverse_reply_max(conn.version()) as usize;
    if reply.len() > max {
        conn.counters().count(Counter::BcReplyTooBig);
        conn.lost(Cause::BackchannelReplyTooBig);
        return Ok(());
    }
    let max_len = conn.version().min_header_len() + reply.len();
    let mut batch = qp
        .begin(max_len, 1)
        .map_err(|e| no_room(qp, e, max_len, 1))?;
    let buffer = batch.buffer();
    let len = header.encode(buffer).map_err(|_| NotSent::NotConnected)?;
    let room = buffer
        .get_mut(len..)
        .and_then(|b| b.get_mut(..reply.len()))
        .ok_or(NotSent::NotConnected)?;
    reply.read(0, room).map_err(|_| NotSent::NotConnected)?;
    if batch
        .post::<Lease<Rdma>>(len + reply.len(), &mut [])
        .is_err()
    {
        conn.lost(Cause::PostFailed);
        return Err(NotSent::NotConnected);
    }
    if is_large(len + reply.len()) {
        conn.large_send();
    }
    Ok(())
}

impl Connection {
    pub(super) fn reverse_call(&self, qp: &Qp<Connection>, call: &ReverseCall<'_>) {
        let counters = self.counters();
        counters.note(call.notes);
        counters.add(Ordinary::Callbacks);
        trace::callback(self.xprt().id(), call.xid.0, call.payload.len() as u32);
        match self.xprt().deliver_callback(call.payload) {
            Ok(()) => {}
            Err(e) if e == EBUSY => {
                counters.count(Counter::BcOverflow);
                self.lost(Cause::BackchannelOverflow);
            }
            // The last user of the transport has just gone, so the connection will end soon.
            Err(e) if e == ENODEV => {}
            Err(_) => self.discard(qp, Counter::BadPayloadLen, None, None),
        }
    }

    pub(super) fn send_refusal(&self, qp: &Qp<Connection>, refusal: &Refusal) {
        // Refusals of unknown options have a separate limit. They do not count as dropped messages,
        // because a peer that sends unknown options is not broken, and waits for the refusals
        // (MAL-184). All other refusals count as dropped messages, because a peer that sends many
        // malformed messages is broken.
        let counted = refusal.kind == RefusalKind::InvalOption;
        if counted && self.begin_refusal().is_err() {
            self.counters().count(Counter::OptFlood);
            self.lost(Cause::OptionFlood);
            return;
        }
        if !counted && self.count_discard(None) != Reaction::Ignore {
            self.lost(Cause::BadReplies);
            return;
        }
        let sent = self.post_refusal(qp, refusal, counted);
        if counted && !sent {
            self.end_refusal();
        }
    }

    /// Posts a refusal, and returns whether it was posted. If `confirmed` is true, the handler
    /// `confirmed` is called when the peer's device has acknowledged the refusal.
    fn post_refusal(&self, qp: &Qp<Connection>, refusal: &Refusal, confirmed: bool) -> bool {
        let credits = callback_credits();
        // If the send queue has no space, the refusal is dropped. The server must expect that an
        // error message may be lost.
        let Ok(mut batch) = qp.begin(xprtrdma_proto::header::ERROR_LEN, 1) else {
            return false;
        };
        let Ok(len) = refusal.encode(credits, batch.buffer()) else {
            return false;
        };
        let posted = if confirmed {
            batch.post_confirmed::<Lease<Rdma>>(len, &mut [])
        } else {
            batch.post::<Lease<Rdma>>(len, &mut [])
        };
        if posted.is_err() {
            self.lost(Cause::PostFailed);
        }
        posted.is_ok()
    }
}
