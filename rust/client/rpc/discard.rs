// SPDX-License-Identifier: GPL-2.0

//! Drops invalid messages. Fails a call or ends the connection if there are too many.

use crate::{
    connection::Connection,
    counters::Ordinary,
    driver::Rdma,
    rpc::{
        complete::{
            complete_judged,
            complete_or_park, //
        },
        request::Phase, //
    },
};
use xprtrdma_proto::{
    conn::Cause,
    judge::Verdict,
    limit::Reaction,
    Counter,
    Xid, //
};
use xprtrdma_rdma::qp::{
    Qp,
    Received, //
};
use xprtrdma_sunrpc::{
    call::Pinned,
    trace, //
};

impl Connection {
    /// Drops a message. If the message invalidated a region, ends the connection, because other
    /// regions may be wrongly invalid as well (MAL-015, MAL-016).
    #[cold]
    pub(super) fn drop_message(
        &self,
        qp: &Qp<Connection>,
        message: &Received<'_, Self>,
        counter: Counter,
        xid: Option<Xid>,
        found: Option<Pinned<Rdma>>,
    ) {
        if message.invalidation().is_some() {
            self.counters().count(counter);
            self.wrongly_invalidated();
        } else {
            self.discard(qp, counter, xid, found);
        }
    }

    /// Handles a message that wrongly invalidated a region: ends the connection.
    #[cold]
    pub(super) fn wrongly_invalidated(&self) {
        self.doubt();
        self.counters().count(Counter::ReminvWrong);
        self.lost(Cause::WrongInvalidate);
    }

    /// Drops a message. If too many messages have been dropped, also fails the call to which this
    /// message belongs, or ends the connection.
    #[cold]
    pub(super) fn discard(
        &self,
        qp: &Qp<Connection>,
        counter: Counter,
        xid: Option<Xid>,
        found: Option<Pinned<Rdma>>,
    ) {
        self.counters().count(counter);
        self.counters().add(Ordinary::BadReply);
        trace::discard(self.xprt().id(), xid.map_or(0, |xid| xid.0), counter.name());
        // A message whose xid cannot be trusted belongs to no call.
        let pinned = found.filter(|_| xid.is_some());
        let reaction = match &pinned {
            Some(pinned) => {
                let mut state = pinned.slot().driver_data().state.lock();
                let ours = matches!(state.phase, Phase::Sent) && state.epoch == self.epoch();
                let strikes = ours.then_some(&mut state.strikes);
                self.count_discard(strikes)
            }
            None => self.count_discard(None),
        };
        match (reaction, pinned) {
            (Reaction::Ignore, _) => {}
            (Reaction::FailCall, Some(pinned)) => {
                let verdict = Verdict::Fail(xprtrdma_proto::Error::BadReplies, counter);
                let index = pinned.slot().index();
                let Some(slot) = self.xprt().slot(index) else {
                    return;
                };
                let mut state = slot.driver_data().state.lock();
                let result = state.offer.result;
                let ending = complete_or_park(slot.driver_data(), &mut state, pinned, || verdict);
                drop(state);
                match ending {
                    Some(pinned) => complete_judged(self.counters(), pinned, &verdict, result, &[]),
                    None => self.invalidate(qp, index),
                }
            }
            (Reaction::Reconnect, Some(_)) => self.lost(match counter {
                Counter::ErrVers => Cause::VersionRefused,
                _ => Cause::BadReply,
            }),
            (Reaction::Reconnect | Reaction::FailCall, None) => self.lost(Cause::BadReplies),
        }
    }
}
