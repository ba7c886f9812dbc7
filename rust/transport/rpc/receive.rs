// SPDX-License-Identifier: GPL-2.0

//! Messages in: the completion handlers of a connection.
//!
//! A message is classified and judged by the protocol core before anything in it is believed.
//! Only an accepted reply changes the state of a call, and only a call whose regions are all out of
//! the server's reach is completed.

use crate::{
    connection::Connection,
    counters::Ordinary,
    driver::Rdma,
    rpc::{
        complete::{
            complete_or_park,
            complete_rpc, //
        },
        invalidate::Invalidations,
        request::{
            Phase,
            Remaining,
            Request,
            ResultChunk,
            State, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::ArcBorrow,
    workqueue::Queue, //
};
use xprtrdma_proto::{
    conn::{
        Cause,
        Epoch,
        Event, //
    },
    defer,
    inbound::{
        Discard,
        RemoteError,
        RemoteErrorKind,
        Reply, //
    },
    judge::{
        judge,
        Offer,
        Verdict, //
    },
    predict::{
        call_xid, //
        predicted,
    },
    wc,
    Counter,
    Inbound,
    Version,
    Xid, //
};
use xprtrdma_rdma::{
    access_once::AccessOnce,
    mr::LocalInvalidation,
    qp::{
        Immediate,
        Qp,
        QpHandler,
        Received,
        WcStatus, //
    },
    spin::SpinLockGuard, //
};
use xprtrdma_sunrpc::{
    call::Pinned,
    trace, //
};

impl QpHandler for Connection {
    fn queue(&self) -> &Queue {
        self.completions()
    }

    fn received(qp: ArcBorrow<'_, Qp<Connection>>, message: Received<'_, Self>) {
        let this = qp.handler();
        this.note_rx();
        match message.immediate() {
            Immediate::None => {}
            Immediate::WithSend => this.counters().count(Counter::Imm),
            Immediate::WithWrite => {
                this.counters().count(Counter::Imm);
                this.lost(Cause::Immediate);
                return;
            }
        }
        let remaining = match this.version() {
            Version::V1 => this.sort(&qp, &message, Version::V1),
            Version::V2 => this.sort_in_version_2(&qp, &message),
        };
        let Remaining::Invalidation(index) = remaining else {
            return;
        };
        // The reply waits, in its buffer, for the invalidation of the call's regions.
        if let Some(slot) = this.xprt().slot(index) {
            let held = message.hold();
            if let Some(answer) = &mut slot.driver_data().state.lock().answer {
                answer.message = Some(held);
            }
        }
        this.invalidate(&qp, index);
    }

    fn invalidated(qp: ArcBorrow<'_, Qp<Connection>>, token: u64, proof: &LocalInvalidation) {
        let this = qp.handler();
        let Some(slot) = u16::try_from(token).ok().and_then(|i| this.xprt().slot(i)) else {
            return;
        };
        let mut state = slot.driver_data().state.lock();
        if state.epoch != this.epoch() {
            this.counters().count(Counter::StaleEpoch);
            return;
        }
        while let Some(region) = state.regions.pop() {
            match region.locally_invalidated(proof) {
                Ok((mr, _lease)) => this.regions().put(mr),
                Err(region) => {
                    let _ = state.regions.push_within_capacity(region);
                    break;
                }
            }
        }
        if !state.regions.is_empty() {
            // Cannot be: one post invalidates all regions of a call.
            drop(state);
            this.lost(Cause::InvalidateFailed);
            return;
        }
        let answer = slot.driver_data().take_answer(&mut state);
        drop(state);
        if let Some(answer) = answer {
            answer.complete(this.counters());
        }
    }

    fn probed(qp: ArcBorrow<'_, Qp<Connection>>) {
        let this = qp.handler();
        this.react(Event::KeepaliveAnswered(this.epoch()));
    }

    fn confirmed(qp: ArcBorrow<'_, Qp<Connection>>) {
        qp.handler().note_rx();
        qp.handler().end_refusal();
    }

    fn acknowledged(qp: ArcBorrow<'_, Qp<Connection>>) {
        qp.handler().note_rx();
    }

    fn send_space(qp: ArcBorrow<'_, Qp<Connection>>) {
        // Invalidations first: they end calls, senders begin new ones.
        defer::resume(&Invalidations(&qp));
        qp.handler().xprt().wake_senders();
    }

    fn broken(qp: ArcBorrow<'_, Qp<Connection>>, status: WcStatus) {
        let status = wc::WcStatus::from_raw(status.0);
        qp.handler().lost(Cause::Completion(status));
    }
}

impl Connection {
    /// Deals with a message of a connection in this version. Compiled for each, so that the usual
    /// one pays nothing for the other.
    #[inline(always)]
    fn sort(
        &self,
        qp: &Qp<Connection>,
        message: &Received<'_, Self>,
        version: Version,
    ) -> Remaining {
        let found = call_xid(message.bytes(), version).and_then(|xid| self.xprt().lookup(xid.0));
        match found {
            Some(pinned) => self
                .predicted(pinned, message, version)
                .unwrap_or_else(|pinned| self.unpredicted(qp, message, Some(pinned))),
            None => self.unpredicted(qp, message, None),
        }
    }

    #[inline(never)]
    fn sort_in_version_2(&self, qp: &Qp<Connection>, message: &Received<'_, Self>) -> Remaining {
        self.sort(qp, message, Version::V2)
    }

    /// Deals with the reply that `pinned` expects, as nearly every message is one; if it is
    /// another, the call comes back.
    #[inline(always)]
    fn predicted(
        &self,
        pinned: Pinned<Rdma>,
        message: &Received<'_, Self>,
        version: Version,
    ) -> Result<Remaining, Pinned<Rdma>> {
        let index = pinned.slot().index();
        let Some(slot) = self.xprt().slot(index) else {
            return Err(pinned);
        };
        let request = slot.driver_data();
        let state = request.state.lock();
        let ours = state.phase == Phase::Sent && state.epoch == self.epoch();
        let expected = match state.offer.expected() {
            Some(expected) if ours => expected,
            _ => return Err(pinned),
        };
        let Some(accept) = predicted(message.bytes(), version, expected) else {
            return Err(pinned);
        };
        let verdict = Verdict::Accept(accept);
        Ok(self.accept_reply(pinned, request, state, &verdict, message))
    }

    /// Deals with any other message.
    #[cold]
    fn unpredicted(
        &self,
        qp: &Qp<Connection>,
        message: &Received<'_, Self>,
        found: Option<Pinned<Rdma>>,
    ) -> Remaining {
        if let Some(xid) = self.probing() {
            self.while_probing(qp, xid, message);
            return Remaining::Nothing;
        }
        let callbacks = self.xprt().has_callbacks();
        let inbound = xprtrdma_proto::classify(message.bytes(), self.version(), callbacks);
        match &inbound {
            Inbound::Reply(reply) => self.reply(qp, reply, message, found),
            Inbound::Ambiguous(a) => {
                let inbound = a.resolve(found.is_some());
                self.no_reply(qp, &inbound, message, found)
            }
            other => self.no_reply(qp, other, message, found),
        }
    }

    fn reply(
        &self,
        qp: &Qp<Connection>,
        reply: &Reply<'_>,
        message: &Received<'_, Self>,
        found: Option<Pinned<Rdma>>,
    ) -> Remaining {
        self.on_reply(qp, reply.xid, message, found, &|state| {
            let segments = state.offer.chunk.segments();
            let writes = [segments];
            let offer = Offer {
                writes: match state.offer.result {
                    ResultChunk::Write => &writes,
                    _ => &[],
                },
                reply: (state.offer.result == ResultChunk::Reply).then_some(segments),
                non_data_max: state.offer.non_data,
                strict: self.is_strict(),
            };
            judge(reply, &offer)
        })
    }

    /// Deals with a message that is no reply.
    #[cold]
    fn no_reply(
        &self,
        qp: &Qp<Connection>,
        inbound: &Inbound<'_>,
        message: &Received<'_, Self>,
        found: Option<Pinned<Rdma>>,
    ) -> Remaining {
        match inbound {
            Inbound::Error(error) => return self.remote_error(qp, error, message, found),
            Inbound::ReverseCall(call) => self.reverse_call(qp, call),
            Inbound::Refuse(refusal) => self.send_refusal(qp, refusal),
            Inbound::Discard(Discard { counter, xid }) => {
                self.drop_message(qp, message, *counter, *xid, found)
            }
            // Not given to this function.
            Inbound::Reply(_) | Inbound::Ambiguous(_) => {}
        }
        Remaining::Nothing
    }

    fn remote_error(
        &self,
        qp: &Qp<Connection>,
        error: &RemoteError,
        message: &Received<'_, Self>,
        found: Option<Pinned<Rdma>>,
    ) -> Remaining {
        let counter = match (error.kind, self.version()) {
            (RemoteErrorKind::Version { .. }, _) => Counter::ErrVers,
            (RemoteErrorKind::Chunk, Version::V1) => Counter::ErrChunk,
            (RemoteErrorKind::Chunk, Version::V2) => Counter::ErrBadHeader,
            (RemoteErrorKind::InvalOption, _) => Counter::ErrInvalOption,
        };
        if counter == Counter::ErrVers && self.version() == Version::V2 && found.is_some() {
            // The peer has changed its mind. The next connection asks anew, and the calls go out
            // again there (MAL-023).
            self.drop_message(qp, message, counter, Some(error.xid), found);
            return Remaining::Nothing;
        }
        self.on_reply(qp, error.xid, message, found, &|_| {
            if error.notes.contains(Counter::Trailing) {
                self.counters().count(Counter::Trailing);
            }
            Verdict::Fail(error.kind.error(), counter)
        })
    }

    /// Lets `judge` decide about an answer to the call that was found, and carries the verdict out.
    fn on_reply(
        &self,
        qp: &Qp<Connection>,
        xid: Xid,
        message: &Received<'_, Self>,
        found: Option<Pinned<Rdma>>,
        judge: &dyn Fn(&State) -> Verdict,
    ) -> Remaining {
        let Some(pinned) = found else {
            return self.unclaimed(qp, xid, message);
        };
        let index = pinned.slot().index();
        let Some(slot) = self.xprt().slot(index) else {
            return Remaining::Nothing;
        };
        let request = slot.driver_data();
        let state = request.state.lock();
        let verdict = match state.phase {
            Phase::Sent if state.epoch == self.epoch() => judge(&state),
            Phase::Answered => Verdict::Discard(Counter::DupReply),
            _ if request.owed_on.read_once() == self.epoch().raw() => {
                // Encoded anew since it was sent, as happens while its connection ends: this is the
                // reply that was owed.
                request.owed_on.write_once(Epoch::NONE.raw());
                drop(state);
                self.counters().add(Ordinary::LateReplies);
                self.check_revoked(message);
                return Remaining::Nothing;
            }
            _ => Verdict::Discard(Counter::BadXid),
        };
        if let Verdict::Discard(counter) = verdict {
            drop(state);
            self.drop_message(qp, message, counter, Some(xid), Some(pinned));
            return Remaining::Nothing;
        }
        self.accept_reply(pinned, request, state, &verdict, message)
    }

    /// Carries out the verdict on a reply that counts.
    #[inline(always)]
    fn accept_reply(
        &self,
        pinned: Pinned<Rdma>,
        request: &Request,
        mut state: SpinLockGuard<'_, State>,
        verdict: &Verdict,
        message: &Received<'_, Self>,
    ) -> Remaining {
        let index = pinned.slot().index();
        if let Some(proof) = message.invalidation() {
            if self.remotely_invalidated(&mut state, proof).is_err() {
                drop(state);
                self.counters().count(Counter::ReminvWrong);
                self.lost(Cause::WrongInvalidate);
                return Remaining::Nothing;
            }
        }
        if let Verdict::Accept(accept) = verdict {
            state.tally.accepted(accept);
        }
        let (xid, result) = (state.xid, state.offer.result);
        let ending = complete_or_park(request, &mut state, pinned, verdict);
        drop(state);
        match verdict {
            Verdict::Accept(accept) => {
                self.counters().note(accept.notes);
                trace::reply(|| {
                    let placed = accept.placed + accept.reply_len;
                    let inline = accept.inline_len as u32;
                    (self.xprt().id(), xid, inline, placed, accept.grant.0)
                });
                self.take_grant(accept);
            }
            Verdict::Fail(_, counter) => self.counters().count(*counter),
            Verdict::Discard(_) => {}
        }
        match ending {
            Some(pinned) => {
                complete_rpc(self.counters(), pinned, verdict, result, message.bytes());
                Remaining::Nothing
            }
            None => Remaining::Invalidation(index),
        }
    }
}
