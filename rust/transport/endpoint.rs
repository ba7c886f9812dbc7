// SPDX-License-Identifier: GPL-2.0

//! One connection's queue pair, seen from the driver ([`Endpoint`]): messages in.
//!
//! A message is classified and judged by the protocol core before anything in it is believed.
//! Only an accepted reply changes the state of a call, and only a call whose regions are all out of
//! the server's reach is completed.

use crate::{
    client::{
        cwnd,
        Client, //
    },
    regions::RegionPool,
    request::{
        Answer,
        Phase,
        Request,
        ResultChunk,
        State, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        SetOnce,
        SpinLock, //
    },
    workqueue::Queue, //
};
use xprtrdma_proto::{
    conn::{
        Cause,
        Epoch,
        Event, //
    },
    credit::ForwardCredits,
    defer::{
        self,
        Line, //
    },
    inbound::{
        Discard,
        RemoteError,
        RemoteErrorKind,
        Reply,
        ReverseCall, //
    },
    judge::{
        check_reply_chunk,
        invalidated,
        judge,
        Accept,
        Invalidated,
        Offer,
        Verdict, //
    },
    limit::{
        DiscardLimit,
        Reaction, //
    },
    predict::{
        predicted,
        subject, //
    },
    wc,
    Counter,
    Credits,
    Handle,
    Inbound,
    Refusal,
    Thresholds,
    Version,
    Xid, //
};
use xprtrdma_rdma::{
    cq::Attended,
    device::DeviceInfo,
    marked::Marked,
    mr::{
        IdleMr,
        LocalInvalidation,
        RemoteInvalidation, //
    },
    qp::{
        Immediate,
        Qp,
        QpHandler,
        Received,
        SendError,
        WcStatus, //
    },
    spin::SpinLockGuard,
};
use xprtrdma_sunrpc::{
    call::{
        Pinned,
        Waiting, //
    },
    common::Common,
    lease::Lease,
    slot::Slot,
    trace,
    util::Jiffies,
    xprt::BackRef, //
};

/// A queue pair of ours.
pub(crate) type Connection = Qp<Endpoint>;

/// What became of the first Send above the minimum threshold.
mod large {
    pub(super) const NONE: u32 = 0;
    pub(super) const SENT: u32 = 1;
    pub(super) const TAKEN: u32 = 2;
}

/// So many calls do not wait for their replies themselves after one that did and had company.
const ALOOF: u32 = 16;
/// None does.
const FOR_GOOD: u32 = u32::MAX;

/// What belongs to one connection.
pub(crate) struct Endpoint {
    pub(crate) xprt: BackRef<Client>,
    pub(crate) common: Arc<Common>,
    pub(crate) epoch: Epoch,
    pub(crate) version: Version,
    /// What the peers agreed on; set before the first message is sent.
    pub(crate) thresholds: SetOnce<Thresholds>,
    pub(crate) regions: Arc<RegionPool>,
    pub(crate) device: DeviceInfo,
    /// A reply has come.
    pub(crate) replied: Atomic<bool>,
    /// Whether a Send above the minimum threshold has gone out, and was taken.
    pub(crate) large: Atomic<u32>,
    /// When the last message came, in jiffies.
    pub(crate) heard: Atomic<usize>,
    /// Since when calls that were given up have held every credit, in jiffies; zero if they do not.
    pub(crate) no_credit_since: Atomic<usize>,
    /// When memory that was not needed was given back, in jiffies.
    pub(crate) trimmed: Atomic<usize>,
    /// Whether returned segments must equal ours.
    pub(crate) strict: bool,
    /// What every call asks for.
    pub(crate) requested: Credits,
    /// The last grant that was taken as it came, if the next reply with the same has nothing to tell;
    /// otherwise zero.
    pub(crate) known_grant: Atomic<u32>,
    /// So many calls sleep as any other, for one that waited for its reply itself had company.
    pub(crate) aloof: Atomic<u32>,
    pub(crate) state: Arc<Shared>,
}

/// The part of an endpoint that needs a lock.
#[pin_data]
pub(crate) struct Shared {
    #[pin]
    pub(crate) credits: SpinLock<ForwardCredits>,
    #[pin]
    pub(crate) discards: SpinLock<DiscardLimit>,
    /// Slots whose invalidation waits for room in the send queue; has room for every slot.
    #[pin]
    pub(crate) deferred: SpinLock<KVec<u16>>,
}

impl Endpoint {
    fn client(&self) -> &Client {
        self.xprt.data()
    }

    /// Handles completions in the thread of a call that is the only one, until that is over.
    #[inline]
    pub(crate) fn attend(&self, qp: &Connection, waiting: &Waiting<'_, Client>) {
        match self.aloof.read_once() {
            0 => {
                let alone = || !self.xprt.has_others();
                if qp.attend(alone, || waiting.is_over()) == Attended::Dismissed {
                    self.aloof.write_once(ALOOF);
                }
            }
            FOR_GOOD => {}
            // Whether another thread counts the same call does not matter.
            calls => self.aloof.write_once(calls - 1),
        }
    }

    /// From now on no call waits for its reply itself.
    pub(crate) fn never_attend(&self) {
        self.aloof.write_once(FOR_GOOD);
    }

    /// Tells the connection machine.
    pub(crate) fn react(&self, event: Event) {
        self.client().link.react(&self.xprt, event);
    }

    fn lost(&self, cause: Cause) {
        self.react(Event::Lost(self.epoch, cause));
    }

    /// What was agreed; the minimum before anything is.
    #[inline]
    pub(crate) fn thresholds(&self) -> Thresholds {
        self.thresholds
            .as_ref()
            .copied()
            .unwrap_or(Thresholds::MINIMUM)
    }

    /// Drops a message, and acts if that happens too often.
    #[cold]
    fn discard(
        &self,
        qp: &Connection,
        counter: Counter,
        xid: Option<Xid>,
        found: Option<Pinned<Client>>,
    ) {
        self.client().stats.count(counter);
        self.client().stats.bad_reply.add(1);
        trace::discard(self.xprt.id(), xid.map_or(0, |xid| xid.0), counter.name());
        // Without an xid that may be trusted it is nobody's.
        let pinned = found.filter(|_| xid.is_some());
        let reaction = match &pinned {
            Some(pinned) => {
                let mut state = pinned.slot().call().state.lock();
                let ours = matches!(state.phase, Phase::Sent) && state.epoch == self.epoch;
                let strikes = ours.then_some(&mut state.strikes);
                self.state.discards.lock().discard(strikes)
            }
            None => self.state.discards.lock().discard(None),
        };
        match (reaction, pinned) {
            (Reaction::Ignore, _) => {}
            (Reaction::FailCall, Some(pinned)) => {
                let verdict = Verdict::Fail(xprtrdma_proto::Error::BadReplies, counter);
                let index = pinned.slot().index();
                let Some(slot) = self.xprt.slot(index) else {
                    return;
                };
                let mut state = slot.call().state.lock();
                let result = state.offer.result;
                let ending = conclude(slot.call(), &mut state, pinned, &verdict);
                drop(state);
                match ending {
                    Some(pinned) => finish(pinned, &verdict, result, &[]),
                    None => self.invalidate(qp, index),
                }
            }
            (Reaction::Reconnect, Some(_)) => self.lost(Cause::BadReply),
            (Reaction::Reconnect | Reaction::FailCall, None) => self.lost(Cause::BadReplies),
        }
    }

    /// Learns what an accepted reply says beside its message. Called by the handler of completions
    /// only.
    #[inline]
    fn learn(&self, accept: &Accept) {
        let grant = accept.grant;
        // Mostly that is nothing new.
        if self.known_grant.read_once() != grant.0 || grant.0 == 0 {
            self.learn_new(grant);
        }
    }

    #[cold]
    fn learn_new(&self, grant: Credits) {
        let granted = self.state.credits.lock().accept(grant);
        let as_it_came = if granted.note.is_none() { grant.0 } else { 0 };
        // ORDERING: Full, between this and the look for a large message in `heard`: whoever sends one
        // writes the two in the opposite order, so it cannot be missed for good.
        self.known_grant.xchg(as_it_came, Full);
        self.heard();
        if let Some(counter) = granted.note {
            self.client().stats.count(counter);
        }
        if granted.changed {
            self.update_window();
        }
    }

    fn update_window(&self) {
        self.xprt.set_window(|| cwnd(&self.state.credits.lock()));
        // The request that was answered ends later, and perhaps not for long: its task may be frozen.
        self.xprt.nudge_senders();
    }

    /// A reply for nobody. True if it can be that of an abandoned call, whose credit comes back.
    fn late(&self) -> bool {
        let late = self.state.credits.lock().late();
        if late {
            self.client().stats.late_replies.add(1);
            self.update_window();
        }
        late
    }

    fn send_refusal(&self, qp: &Connection, refusal: &Refusal) {
        // A peer that needs many of them is broken.
        if self.state.discards.lock().discard(None) != Reaction::Ignore {
            self.lost(Cause::BadReplies);
            return;
        }
        let credits = crate::client::callback_credits();
        // Without room the refusal is lost, which the server must expect of any error.
        let Ok(mut batch) = qp.begin(xprtrdma_proto::header::ERROR_LEN, 1) else {
            return;
        };
        let Ok(len) = refusal.encode(credits, batch.buffer()) else {
            return;
        };
        if batch.post::<Lease<Client>>(len, &mut []).is_err() {
            self.lost(Cause::PostFailed);
        }
    }

    fn reverse_call(&self, qp: &Connection, call: &ReverseCall<'_>) {
        let stats = &self.client().stats;
        stats.note(call.notes);
        stats.callbacks.add(1);
        trace::callback(self.xprt.id(), call.xid.0, call.payload.len() as u32);
        match self.xprt.deliver_callback(call.payload) {
            Ok(()) => {}
            Err(e) if e == EBUSY => {
                stats.count(Counter::BcOverflow);
                self.lost(Cause::BackchannelOverflow);
            }
            // The last user of the transport has just gone: soon the connection will, too.
            Err(e) if e == ENODEV => {}
            Err(_) => self.discard(qp, Counter::BadPayloadLen, None, None),
        }
    }

    /// Deals with a message that is no reply. Returns what [`Endpoint::answer`] does.
    #[cold]
    fn no_reply(
        &self,
        qp: &Connection,
        inbound: &Inbound<'_>,
        message: &Received<'_, Self>,
        found: Option<Pinned<Client>>,
    ) -> Option<u16> {
        match inbound {
            Inbound::Error(error) => return self.remote_error(qp, error, message, found),
            Inbound::ReverseCall(call) => self.reverse_call(qp, call),
            Inbound::Refuse(refusal) => self.send_refusal(qp, refusal),
            Inbound::Discard(Discard { counter, xid }) => {
                self.unanswered(qp, message, *counter, *xid, found)
            }
            // Not given to this function.
            Inbound::Reply(_) | Inbound::Ambiguous(_) => {}
        }
        None
    }

    fn remote_error(
        &self,
        qp: &Connection,
        error: &RemoteError,
        message: &Received<'_, Self>,
        found: Option<Pinned<Client>>,
    ) -> Option<u16> {
        let counter = match error.kind {
            RemoteErrorKind::Version { .. } => Counter::ErrVers,
            RemoteErrorKind::Chunk => Counter::ErrChunk,
            RemoteErrorKind::InvalOption => Counter::ErrInvalOption,
        };
        self.answer(qp, error.xid, message, found, &|_| {
            if error.notes.contains(Counter::Trailing) {
                self.client().stats.count(Counter::Trailing);
            }
            Verdict::Fail(error.kind.error(), counter)
        })
    }

    /// The call that a message seems to be about.
    #[inline]
    fn find(&self, message: &Received<'_, Self>) -> Option<Pinned<Client>> {
        let xid = subject(message.bytes())?;
        self.xprt.lookup(xid.0)
    }

    /// Deals with the reply that `pinned` expects, as nearly every message is one; if it is another,
    /// the call comes back. Otherwise what [`Endpoint::answer`] returns.
    #[inline]
    fn predicted(
        &self,
        pinned: Pinned<Client>,
        message: &Received<'_, Self>,
    ) -> Result<Option<u16>, Pinned<Client>> {
        let index = pinned.slot().index();
        let Some(slot) = self.xprt.slot(index) else {
            return Err(pinned);
        };
        let request = slot.call();
        let state = request.state.lock();
        let ours = state.phase == Phase::Sent && state.epoch == self.epoch;
        let expected = match state.offer.expected() {
            Some(expected) if ours && self.version == Version::V1 => expected,
            _ => return Err(pinned),
        };
        let Some(accept) = predicted(message.bytes(), expected) else {
            return Err(pinned);
        };
        let verdict = Verdict::Accept(accept);
        let waits = self.settle(pinned, request, state, &verdict, message);
        Ok(waits.then_some(index))
    }

    /// Deals with any other message. Returns what [`Endpoint::answer`] does.
    #[cold]
    fn unpredicted(
        &self,
        qp: &Connection,
        message: &Received<'_, Self>,
        found: Option<Pinned<Client>>,
    ) -> Option<u16> {
        let callbacks = self.xprt.has_callbacks();
        let inbound = xprtrdma_proto::classify(message.bytes(), self.version, callbacks);
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
        qp: &Connection,
        reply: &Reply<'_>,
        message: &Received<'_, Self>,
        found: Option<Pinned<Client>>,
    ) -> Option<u16> {
        self.answer(qp, reply.xid, message, found, &|state| {
            let segments = state.offer.chunk.segments();
            let writes = [segments];
            let offer = Offer {
                writes: match state.offer.result {
                    ResultChunk::Write => &writes,
                    _ => &[],
                },
                reply: (state.offer.result == ResultChunk::Reply).then_some(segments),
                non_data_max: state.offer.non_data,
                strict: self.strict,
            };
            judge(reply, &offer)
        })
    }

    /// Lets `judge` decide about an answer to the call that was found, and carries the verdict out.
    /// Returns the number of a slot whose regions must be invalidated before the call can end.
    fn answer(
        &self,
        qp: &Connection,
        xid: Xid,
        message: &Received<'_, Self>,
        found: Option<Pinned<Client>>,
        judge: &dyn Fn(&State) -> Verdict,
    ) -> Option<u16> {
        let Some(pinned) = found else {
            return self.unclaimed(qp, xid, message);
        };
        let index = pinned.slot().index();
        let slot = self.xprt.slot(index)?;
        let request = slot.call();
        let state = request.state.lock();
        let verdict = match state.phase {
            Phase::Sent if state.epoch == self.epoch => judge(&state),
            Phase::Answered => Verdict::Discard(Counter::DupReply),
            _ if request.owed_on.read_once() == self.epoch.raw() => {
                // Encoded anew since it was sent, as happens while its connection ends: this is the reply
                // that was owed.
                request.owed_on.write_once(Epoch::NONE.raw());
                drop(state);
                self.client().stats.late_replies.add(1);
                self.check_revoked(message);
                return None;
            }
            _ => Verdict::Discard(Counter::BadXid),
        };
        if let Verdict::Discard(counter) = verdict {
            drop(state);
            self.unanswered(qp, message, counter, Some(xid), Some(pinned));
            return None;
        }
        let waits = self.settle(pinned, request, state, &verdict, message);
        waits.then_some(index)
    }

    /// A reply to no call that waits for one. Returns what [`Endpoint::answer`] does.
    #[cold]
    fn unclaimed(&self, qp: &Connection, xid: Xid, message: &Received<'_, Self>) -> Option<u16> {
        if self.xprt.is_pinned(xid.0) {
            // Another one waits for the invalidation of the call's regions.
            self.unanswered(qp, message, Counter::DupReply, Some(xid), None);
            return None;
        }
        if let Some(waits) = self.departed(xid, message) {
            return waits;
        }
        if self.late() {
            self.check_revoked(message);
        } else {
            self.unanswered(qp, message, Counter::BadXid, None, None);
        }
        None
    }

    /// A reply to a call that has left the RPC client's queue and is still in its slot: it ends, perhaps
    /// its task waits for this very reply, or it is encoded anew. That is no fault of the server. The
    /// message is of no use any more; but the call's regions are taken back, and its credit.
    ///
    /// `None`: there is no such call. Otherwise what [`Endpoint::answer`] returns.
    fn departed(&self, xid: Xid, message: &Received<'_, Self>) -> Option<Option<u16>> {
        for slot in self.xprt.slots() {
            let request = slot.call();
            let mut state = request.state.lock();
            if state.xid != xid.0 || state.epoch != self.epoch {
                continue;
            }
            let sent = state.phase == Phase::Sent;
            let owed = request.owed_on.read_once() == self.epoch.raw();
            if !sent && !owed && state.phase != Phase::Revoked {
                continue;
            }
            let mut waits = false;
            let mut foreign = false;
            if sent {
                if let Some(proof) = message.invalidation() {
                    foreign = self.remotely_invalidated(&mut state, proof).is_err();
                }
                waits = !state.regions.is_empty();
                let phase = if waits { Phase::Revoked } else { Phase::Idle };
                request.set_phase(&mut state, phase);
            }
            drop(state);
            if owed && request.take_owed() == self.epoch.raw() {
                // The credit comes back with the end of the call.
                self.client().stats.late_replies.add(1);
            } else {
                self.late();
            }
            if foreign {
                self.client().stats.count(Counter::ReminvWrong);
                self.lost(Cause::WrongInvalidate);
            } else if !sent {
                self.check_revoked(message);
            }
            return Some(waits.then(|| slot.index()));
        }
        None
    }

    /// A reply to a call came whose regions were taken back before. If it invalidated one of them nothing
    /// has happened, for that was invalid. But if its key is in use again, as after 256 registrations,
    /// the region of another call is invalid now, and only a new connection helps.
    fn check_revoked(&self, message: &Received<'_, Self>) {
        let Some(proof) = message.invalidation() else {
            return;
        };
        let exposed = self.xprt.slots().any(|slot| {
            let state = slot.call().state.lock();
            let regions = &state.regions;
            state.epoch == self.epoch
                && state.phase != Phase::Revoked
                && regions.iter().any(|r| r.window().handle == proof.rkey())
        });
        if exposed {
            self.lost(Cause::GivenUpCall);
        }
    }

    /// A reply counts: carries out what was decided about it. True if regions must be invalidated
    /// before the call can end.
    #[inline(always)]
    fn settle(
        &self,
        pinned: Pinned<Client>,
        request: &Request,
        mut state: SpinLockGuard<'_, State>,
        verdict: &Verdict,
        message: &Received<'_, Self>,
    ) -> bool {
        if let Some(proof) = message.invalidation() {
            if self.remotely_invalidated(&mut state, proof).is_err() {
                drop(state);
                self.client().stats.count(Counter::ReminvWrong);
                self.lost(Cause::WrongInvalidate);
                return false;
            }
        }
        if let Verdict::Accept(accept) = verdict {
            // NO-OVERFLOW: 64 bits last for centuries.
            let placed = u64::from(accept.placed).wrapping_add(accept.reply_len.into());
            let tally = &mut state.tally;
            tally.copied_in = tally.copied_in.wrapping_add(accept.inline_len as u64);
            tally.placed_bytes = tally.placed_bytes.wrapping_add(placed);
        }
        let (xid, result) = (state.xid, state.offer.result);
        let ending = conclude(request, &mut state, pinned, verdict);
        drop(state);
        match verdict {
            Verdict::Accept(accept) => {
                self.client().stats.note(accept.notes);
                trace::reply(
                    self.xprt.id(),
                    xid,
                    accept.inline_len as u32,
                    accept.placed + accept.reply_len,
                    accept.grant.0,
                );
                self.learn(accept);
            }
            Verdict::Fail(_, counter) => self.client().stats.count(*counter),
            Verdict::Discard(_) => {}
        }
        match ending {
            Some(pinned) => {
                finish(pinned, verdict, result, message.bytes());
                false
            }
            None => true,
        }
    }

    /// A message above the minimum threshold was posted (CM-24).
    #[inline]
    pub(crate) fn large_send(&self) {
        if self.large.load(Relaxed) == large::NONE {
            // ORDERING: Full, see `learn_new`.
            self.large.xchg(large::SENT, Full);
            self.known_grant.store(0, Relaxed);
            self.react(Event::LargeSend(self.epoch));
        }
    }

    /// The connection proved useful: the back-off starts anew after its end.
    fn heard(&self) {
        if !self.replied.load(Relaxed) {
            self.replied.store(true, Relaxed);
            self.react(Event::Replied(self.epoch));
        }
        if self.large.load(Relaxed) == large::SENT {
            self.large.store(large::TAKEN, Relaxed);
            self.react(Event::LargeSendTaken(self.epoch));
        }
    }

    /// Drops a message. If it invalidated a region, nobody can tell what else is wrong (MAL-015,
    /// MAL-016), so then the connection goes.
    #[cold]
    fn unanswered(
        &self,
        qp: &Connection,
        message: &Received<'_, Self>,
        counter: Counter,
        xid: Option<Xid>,
        found: Option<Pinned<Client>>,
    ) {
        if message.invalidation().is_some() {
            self.client().stats.count(counter);
            self.client().stats.count(Counter::ReminvWrong);
            self.lost(Cause::WrongInvalidate);
        } else {
            self.discard(qp, counter, xid, found);
        }
    }

    /// Takes back the region that the reply's message invalidated, if it is one of this call.
    #[inline]
    fn remotely_invalidated(
        &self,
        state: &mut State,
        proof: &RemoteInvalidation<'_>,
    ) -> Result<(), Foreign> {
        let handles = state.regions.iter().map(|r| Handle(r.window().handle));
        let agreed = state.offer.invalidation;
        let Invalidated::Own(index, counter) =
            invalidated(Some(Handle(proof.rkey())), handles, agreed)
        else {
            return Err(Foreign);
        };
        let tally = &mut state.tally;
        let count = if counter == Counter::Reminv {
            &mut tally.invalidated
        } else {
            &mut tally.invalidated_unannounced
        };
        // NO-OVERFLOW: As in `settle`.
        *count = count.wrapping_add(1);
        // As a rule there is one.
        let region = if index + 1 == state.regions.len() {
            state.regions.pop().ok_or(Foreign)?
        } else {
            state.regions.remove(index).map_err(|_| Foreign)?
        };
        match region.remotely_invalidated(proof) {
            Ok((mr, _lease)) => {
                self.keep(state, mr);
                Ok(())
            }
            Err(region) => {
                let _ = state.regions.push_within_capacity(region);
                if proof.is_proof() {
                    // The server has not been told this key yet. Keep it exposed.
                    return Err(Foreign);
                }
                // The device does not check what the server writes: this side invalidates all the same.
                Ok(())
            }
        }
    }

    /// Leaves a region with the slot for its next call, unless there is one or a sender waits for
    /// regions.
    #[inline]
    fn keep(&self, state: &mut State, mr: IdleMr) {
        if !state.idle.is_empty() || self.regions.is_scarce() {
            self.regions.put(mr);
        } else if let Err(full) = state.idle.push_within_capacity(mr) {
            // Cannot be: the region came by this list.
            self.regions.put(full.0);
        }
    }

    /// Invalidates the regions of a slot: now, or as soon as there is room in the send queue.
    pub(crate) fn invalidate(&self, qp: &Connection, index: u16) {
        defer::post(&Invalidations(qp), index);
    }

    /// Invalidates the regions of a slot; `false` if there is no room. If it cannot be done at all
    /// the connection goes, and its end takes care of them (V1-098).
    fn try_invalidate(&self, qp: &Connection, index: u16) -> bool {
        let Some(slot) = self.xprt.slot(index) else {
            return true;
        };
        let mut state = slot.call().state.lock();
        let count = state.regions.len() as u32;
        let posted = match qp.begin(0, count) {
            Ok(batch) => {
                self.client()
                    .stats
                    .count_many(Counter::LocalInv, count.into());
                trace::invalidate(self.xprt.id(), index.into(), count);
                batch
                    .post_invalidate(u64::from(index), &mut state.regions)
                    .inspect_err(|e| {
                        pr_warn!("cannot invalidate {count} regions of slot {index}: {e:?}\n")
                    })
                    .is_ok()
            }
            Err(SendError::Full) => return false,
            Err(SendError::Closed) => false,
        };
        drop(state);
        if !posted {
            self.lost(Cause::InvalidateFailed);
        }
        true
    }
}

/// The invalidations of a connection, by the numbers of their slots.
struct Invalidations<'a>(&'a Connection);

impl Line for Invalidations<'_> {
    fn post(&self, index: u16) -> bool {
        self.0.handler().try_invalidate(self.0, index)
    }

    fn has_room(&self, index: u16) -> bool {
        let regions = |slot: &Slot<Client>| slot.call().state.lock().regions.len() as u32;
        let count = self.0.handler().xprt.slot(index).map_or(0, regions);
        self.0.has_room(0, count)
    }

    fn put(&self, index: u16) {
        // Cannot fail: there is room for every slot, and each is in it at most once.
        let _ = self
            .0
            .handler()
            .state
            .deferred
            .lock()
            .push_within_capacity(index);
    }

    fn take(&self) -> Option<u16> {
        self.0.handler().state.deferred.lock().pop()
    }
}

/// A message invalidated a region that is none of the call's.
struct Foreign;

/// The call is answered: gives back what ends it if all its regions are out of the server's reach;
/// otherwise that is kept with the call until they are.
#[inline]
fn conclude(
    request: &Request,
    state: &mut State,
    pinned: Pinned<Client>,
    verdict: &Verdict,
) -> Option<Pinned<Client>> {
    request.owed_on.write_once(Epoch::NONE.raw());
    if state.regions.is_empty() {
        request.set_phase(state, Phase::Idle);
        return Some(pinned);
    }
    state.answer = Some(Answer {
        pinned,
        verdict: *verdict,
        result: state.offer.result,
        message: None,
    });
    request.set_phase(state, Phase::Answered);
    None
}

/// Ends a call whose regions are all out of the server's reach.
#[inline]
pub(crate) fn finish(
    mut pinned: Pinned<Client>,
    verdict: &Verdict,
    result: ResultChunk,
    message: &[u8],
) {
    let accept = match verdict {
        Verdict::Accept(accept) => accept,
        // Counted when it came.
        Verdict::Fail(error, _) => return fail(pinned, *error),
        // Dropped messages end no call.
        Verdict::Discard(_) => return,
    };
    let inline = message
        .get(accept.inline_offset..)
        .and_then(|m| m.get(..accept.inline_len))
        .unwrap_or(&[]);
    let padded = (accept.placed as usize).next_multiple_of(4);
    let (placed, len) = if accept.reply_len != 0 {
        if let Err(error) = check_reply_chunk(&pinned.placed_start(), Xid(pinned.xid())) {
            let stats = &pinned.xprt().data().stats;
            stats.count(Counter::BadPayload);
            return fail(pinned, error);
        }
        (Ok(()), accept.reply_len as usize)
    } else if result == ResultChunk::Write {
        (
            pinned.place_around(inline, accept.placed as usize),
            inline.len() + padded,
        )
    } else {
        (pinned.place_inline(inline), inline.len())
    };
    match placed {
        Ok(()) => {
            trace::complete(pinned.xprt().id(), pinned.xid(), 0);
            // No region is left, so no lease is. But there may be no room for the item's padding.
            if let Err(pinned) = pinned.complete(len) {
                fail(pinned, xprtrdma_proto::Error::BadPayload);
            }
        }
        Err(_) => fail(pinned, xprtrdma_proto::Error::BadPayload),
    }
}

#[cold]
fn fail(pinned: Pinned<Client>, error: xprtrdma_proto::Error) {
    trace::complete(pinned.xprt().id(), pinned.xid(), error.to_errno());
    // No region is left, so no lease is.
    let _ = pinned.fail(Error::from_errno(error.to_errno()));
}

impl QpHandler for Endpoint {
    fn queue(&self) -> &Queue {
        self.common.completions().queue()
    }

    fn received(qp: ArcBorrow<'_, Connection>, message: Received<'_, Self>) {
        let this = qp.handler();
        this.heard.write_once(Jiffies::now().count());
        match message.immediate() {
            Immediate::None => {}
            Immediate::WithSend => this.client().stats.count(Counter::Imm),
            Immediate::WithWrite => {
                this.client().stats.count(Counter::Imm);
                this.lost(Cause::Immediate);
                return;
            }
        }
        let index = match this.find(&message) {
            Some(pinned) => this
                .predicted(pinned, &message)
                .unwrap_or_else(|pinned| this.unpredicted(&qp, &message, Some(pinned))),
            None => this.unpredicted(&qp, &message, None),
        };
        let Some(index) = index else {
            return;
        };
        // The reply waits, in its buffer, for the invalidation of the call's regions.
        if let Some(slot) = this.xprt.slot(index) {
            let held = message.hold();
            if let Some(answer) = &mut slot.call().state.lock().answer {
                answer.message = Some(held);
            }
        }
        this.invalidate(&qp, index);
    }

    fn invalidated(qp: ArcBorrow<'_, Connection>, token: u64, proof: &LocalInvalidation) {
        let this = qp.handler();
        let Some(slot) = u16::try_from(token).ok().and_then(|i| this.xprt.slot(i)) else {
            return;
        };
        let mut state = slot.call().state.lock();
        if state.epoch != this.epoch {
            this.client().stats.count(Counter::StaleEpoch);
            return;
        }
        while let Some(region) = state.regions.pop() {
            match region.locally_invalidated(proof) {
                Ok((mr, _lease)) => this.regions.put(mr),
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
        let answer = slot.call().take_answer(&mut state);
        drop(state);
        if let Some(answer) = answer {
            answer.finish();
        }
    }

    fn probed(qp: ArcBorrow<'_, Connection>) {
        let this = qp.handler();
        this.react(Event::KeepAliveAnswered(this.epoch));
    }

    fn acknowledged(qp: ArcBorrow<'_, Connection>) {
        qp.handler().heard.write_once(Jiffies::now().count());
    }

    fn send_space(qp: ArcBorrow<'_, Connection>) {
        // Invalidations first: they end calls, senders begin new ones.
        defer::resume(&Invalidations(&qp));
        qp.handler().xprt.wake_senders();
    }

    fn broken(qp: ArcBorrow<'_, Connection>, status: WcStatus) {
        let status = wc::WcStatus::from_raw(status.0);
        qp.handler().lost(Cause::Completion(status));
    }
}
