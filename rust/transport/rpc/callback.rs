// SPDX-License-Identifier: GPL-2.0

//! Requests of the server, and our replies to them.

use crate::{
    connection::{
        callback_credits,
        Connection, //
    },
    counters::Ordinary,
    driver::Rdma,
    rpc::general::no_room, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    conn::Cause,
    header::ReverseReplyHeader,
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

/// Sends the reply to a callback. It takes no forward credit.
pub(crate) fn send_callback_reply(
    xprt: &Xprt<Rdma>,
    qp: &Arc<Qp<Connection>>,
    callback: &Callback<'_>,
) -> Result<(), NotSent> {
    let conn = qp.handler();
    if !callback.came_on_this_connection(xprt) {
        // A reply never goes out on another connection (BC-27): it is dropped, and the server asks
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
        .map_err(|e| no_room(xprt, qp, e, max_len, 1))?;
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
            // The last user of the transport has just gone: soon the connection will, too.
            Err(e) if e == ENODEV => {}
            Err(_) => self.discard(qp, Counter::BadPayloadLen, None, None),
        }
    }

    pub(super) fn send_refusal(&self, qp: &Qp<Connection>, refusal: &Refusal) {
        // A peer that needs many of them is broken.
        if self.count_discard(None) != Reaction::Ignore {
            self.lost(Cause::BadReplies);
            return;
        }
        let credits = callback_credits();
        // Without room the refusal is lost, which the server must expect of any error.
        let Ok(mut batch) = qp.begin(xprtrdma_proto::header::ERROR_LEN, 1) else {
            return;
        };
        let Ok(len) = refusal.encode(credits, batch.buffer()) else {
            return;
        };
        if batch.post::<Lease<Rdma>>(len, &mut []).is_err() {
            self.lost(Cause::PostFailed);
        }
    }
}
