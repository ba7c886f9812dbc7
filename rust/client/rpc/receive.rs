// SPDX-License-Identifier: GPL-2.0

//! Received messages: the completion handlers of a connection.
//!
//! The protocol core classifies and judges a message before the driver trusts anything in it. Only
//! an accepted reply changes the state of a call. A call completes only after the server can no
//! longer access any of its regions.

use crate::{
    connection::Connection,
    counters::Ordinary,
    driver::Rdma,
    rpc::{
        complete::{
            complete_judged,
            complete_or_park,
            complete_rpc,
            leave_pending, //
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
    sync::ArcBorrow, //
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
        Accept,
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
    mr::{
        Echo,
        LocalInvalidation, //
    },
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
    slot::Slot,
    trace,
    util::PromptQueue, //
};

impl QpHandler for Connection {
    fn queue(&self) -> &PromptQueue {
        self.completions()
    }

    // `received` and all steps for a predicted reply are inlined into the only caller of
    // `received`. The rare steps are not inlined. This saves 136 instructions per READ.
    #[inline(always)]
    fn received(qp: ArcBorrow<'_, Qp<Connection>>, message: Received<'_, Self>) {
        let this = qp.handler();
        this.note_rx();
        match message.immediate() {
            Immediate::None => {}
            Immediate::WithSend => return this.with_immediate(&qp, message.anew()),
            Immediate::WithWrite => return this.only_immediate(message.anew()),
        }
        match this.version() {
            Version::V1 => this.sort(&qp, message, Version::V1),
            Version::V2 => this.sort(&qp, message, Version::V2),
        }
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
            // This branch is never taken, because one post invalidates all regions of a call.
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
        qp.handler().note_end();
        qp.handler().end_refusal();
    }

    fn acknowledged(qp: ArcBorrow<'_, Qp<Connection>>) {
        qp.handler().note_end();
    }

    fn send_space(qp: ArcBorrow<'_, Qp<Connection>>) {
        // Invalidations are posted before the senders are woken, because invalidations complete
        // calls, and completed calls free space for the senders.
        defer::resume(&Invalidations(&qp));
        qp.handler().xprt().wake_senders();
    }

    fn broken(qp: ArcBorrow<'_, Qp<Connection>>, status: WcStatus) {
        let status = wc::WcStatus::from_raw(status.0);
        qp.handler().lost(Cause::Completion(status));
    }
}

impl Connection {
    /// Ends the connection, because immediate data have consumed a Receive without a message.
    #[cold]
    fn only_immediate(&self, _: Received<'_, Self>) {
        self.counters().count(Counter::Imm);
        self.lost(Cause::Immediate);
    }

    /// Handles a message with immediate data. The protocol does not use immediate data. The message
    /// is treated as unpredicted, so that the fast path need not consider immediate data.
    #[cold]
    fn with_immediate(&self, qp: &Qp<Connection>, message: Received<'_, Self>) {
        self.counters().count(Counter::Imm);
        let xid = call_xid(message.bytes(), self.version());
        let found = xid.and_then(|xid| self.xprt().lookup(xid.0));
        self.unpredicted(qp, message, found);
    }

    /// Handles a message on a connection with this version. Each version has separate compiled
    /// code, but both are in one function. With a separate function for version 2, a READ would
    /// take 55 more instructions in version 2, and two fewer in version 1.
    #[inline(always)]
    fn sort(&self, qp: &Qp<Connection>, message: Received<'_, Self>, version: Version) {
        let found = call_xid(message.bytes(), version).and_then(|xid| self.xprt().lookup(xid.0));
        let found = match found {
            Some(pinned) => match self.predicted(pinned, &message, version) {
                Ok(Remaining::Nothing) => return,
                Ok(remaining) => return self.finish(qp, message.anew(), remaining),
                Err(pinned) => Some(pinned),
            },
            None => None,
        };
        self.unpredicted(qp, message.anew(), found);
    }

    /// If `remaining` names a call, keeps the call's reply and invalidates the call's regions.
    /// Otherwise does nothing.
    #[inline(never)]
    fn finish(&self, qp: &Qp<Connection>, message: Received<'_, Self>, remaining: Remaining) {
        let Remaining::Invalidation(index) = remaining else {
            return;
        };
        // The reply stays in its receive buffer until the call's regions are invalidated.
        if let Some(slot) = self.xprt().slot(index) {
            let held = message.hold();
            if let Some(answer) = &mut slot.driver_data().state.lock().answer {
                answer.message = Some(held);
            }
        }
        self.invalidate(qp, index);
    }

    /// Completes the call `pinned` if the message has the form that was predicted for the call's
    /// reply. Otherwise returns the call, which is rare.
    #[inline(always)]
    fn predicted(
        &self,
        pinned: Pinned<Rdma>,
        message: &Received<'_, Self>,
        version: Version,
    ) -> Result<Remaining, Pinned<Rdma>> {
        let Some(slot) = self.xprt().slot_of(&pinned) else {
            return Err(pinned);
        };
        let state = slot.driver_data().state.lock();
        if state.phase != Phase::Sent || state.epoch != self.epoch() {
            return Err(pinned);
        }
        // In each branch `form` is a constant. So the compiler makes separate code for each form of
        // a reply, and this code tests only the message.
        match state.offer.result {
            form @ ResultChunk::None => self.accept(pinned, slot, state, form, message, version),
            form @ ResultChunk::Write => self.accept(pinned, slot, state, form, message, version),
            form @ ResultChunk::Reply => self.accept(pinned, slot, state, form, message, version),
        }
    }

    /// Accepts the reply if it has the predicted form. If not, returns the call.
    #[inline(always)]
    fn accept(
        &self,
        pinned: Pinned<Rdma>,
        slot: &Slot<Rdma>,
        state: SpinLockGuard<'_, State>,
        form: ResultChunk,
        message: &Received<'_, Self>,
        version: Version,
    ) -> Result<Remaining, Pinned<Rdma>> {
        let expected = state.offer.expected(form);
        match expected.and_then(|expected| predicted(message.bytes(), version, expected)) {
            Some(accept) => {
                let accepted = (accept, Some(state.offer.expected_echo(form, version)));
                Ok(self.accept_reply(pinned, slot, state, accepted, form, message))
            }
            None => Err(pinned),
        }
    }

    /// Handles a message that does not have the predicted form of a reply.
    #[cold]
    fn unpredicted(
        &self,
        qp: &Qp<Connection>,
        message: Received<'_, Self>,
        found: Option<Pinned<Rdma>>,
    ) {
        if let Some(xid) = self.probing() {
            self.while_probing(qp, xid, &message);
            return;
        }
        let callbacks = self.xprt().has_callbacks();
        let inbound = xprtrdma_proto::classify(message.bytes(), self.version(), callbacks);
        let remaining = match &inbound {
            Inbound::Reply(reply) => self.reply(qp, reply, &message, found),
            Inbound::Ambiguous(a) => {
                let inbound = a.resolve(found.is_some() || self.remembers(a.xid));
                self.no_reply(qp, &inbound, &message, found)
            }
            other => self.no_reply(qp, other, &message, found),
        };
        self.finish(qp, message, remaining);
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

    /// Handles a message that is not a reply.
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
            // A message that answers no call must not invalidate a region, so the connection ends.
            Inbound::ReverseCall(_) | Inbound::Refuse(_) if message.invalidation().is_some() => {
                self.wrongly_invalidated()
            }
            Inbound::ReverseCall(call) => self.reverse_call(qp, call),
            Inbound::Refuse(refusal) => self.send_refusal(qp, refusal),
            Inbound::Discard(Discard { counter, xid }) => {
                self.drop_message(qp, message, *counter, *xid, found)
            }
            // This branch is never taken: the caller handles replies and resolves ambiguous
            // messages.
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
            // The peer refuses the version that was agreed on. The next connection negotiates the
            // version again, and the calls are sent again on that connection (MAL-023).
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

    /// Judges a reply or an error for the call `found`, and carries out the verdict.
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
                // The call was encoded again after it had been sent, for example because its
                // connection ended. This message is the reply to the earlier transmission.
                request.owed_on.write_once(Epoch::NONE.raw());
                drop(state);
                self.counters().add(Ordinary::LateReplies);
                self.check_revoked(message);
                return Remaining::Nothing;
            }
            _ => Verdict::Discard(Counter::BadXid),
        };
        match verdict {
            Verdict::Accept(accept) => {
                let result = state.offer.result;
                self.accept_reply(pinned, slot, state, (accept, None), result, message)
            }
            Verdict::Fail(_, counter) => {
                self.fail_reply(pinned, request, state, verdict, counter, message)
            }
            Verdict::Discard(counter) => {
                drop(state);
                self.drop_message(qp, message, counter, Some(xid), Some(pinned));
                Remaining::Nothing
            }
        }
    }

    /// Takes back the region that the message invalidated, if any. If that region does not belong
    /// to the call, ends the connection and returns `None`.
    #[inline(always)]
    fn take_back<'a>(
        &self,
        pinned: &Pinned<Rdma>,
        mut state: SpinLockGuard<'a, State>,
        message: &Received<'_, Self>,
        echo: Option<Echo>,
    ) -> Option<SpinLockGuard<'a, State>> {
        if let Some(proof) = message.invalidation() {
            let taken = self.remotely_invalidated(&mut state, Some(pinned), &proof, echo);
            if taken.is_err() {
                drop(state);
                self.wrongly_invalidated();
                return None;
            }
        }
        Some(state)
    }

    /// Handles an accepted reply: completes the call, or keeps the reply until the regions of the
    /// call are invalidated.
    #[inline(always)]
    fn accept_reply(
        &self,
        pinned: Pinned<Rdma>,
        slot: &Slot<Rdma>,
        state: SpinLockGuard<'_, State>,
        (accept, echo): (Accept, Option<Echo>),
        result: ResultChunk,
        message: &Received<'_, Self>,
    ) -> Remaining {
        let Some(mut state) = self.take_back(&pinned, state, message, echo) else {
            leave_pending(pinned);
            return Remaining::Nothing;
        };
        state.tally.accepted(&accept);
        let xid = state.xid;
        let verdict = || Verdict::Accept(accept);
        let ending = complete_or_park(slot.driver_data(), &mut state, pinned, verdict);
        drop(state);
        self.counters().note(accept.notes);
        trace::reply(|| {
            let placed = accept.placed + accept.reply_len;
            let inline = accept.inline_len as u32;
            (self.xprt().id(), xid, inline, placed, accept.grant.0)
        });
        self.take_grant(&accept, move || slot.driver_data().was_large());
        match ending {
            Some(pinned) => {
                complete_rpc(self.counters(), pinned, accept, result, message.bytes());
                Remaining::Nothing
            }
            None => Remaining::Invalidation(slot.index()),
        }
    }

    /// Handles a reply that makes its call fail.
    #[cold]
    fn fail_reply(
        &self,
        pinned: Pinned<Rdma>,
        request: &Request,
        state: SpinLockGuard<'_, State>,
        verdict: Verdict,
        counter: Counter,
        message: &Received<'_, Self>,
    ) -> Remaining {
        let index = pinned.slot().index();
        let Some(mut state) = self.take_back(&pinned, state, message, None) else {
            return Remaining::Nothing;
        };
        let result = state.offer.result;
        let ending = complete_or_park(request, &mut state, pinned, || verdict);
        drop(state);
        self.counters().count(counter);
        match ending {
            Some(pinned) => {
                complete_judged(self.counters(), pinned, &verdict, result, message.bytes());
                Remaining::Nothing
            }
            None => Remaining::Invalidation(index),
        }
    }
}
