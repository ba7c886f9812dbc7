// SPDX-License-Identifier: GPL-2.0

//! The knowledge about the peer that is kept from one connection to the next.

use super::{
    backoff::Backoff,
    cause::{
        Cause,
        ConnectError, //
    },
    config::{
        Config,
        RailFacts, //
    },
    established::Up,
    event::{
        CmEvent,
        Epoch, //
    },
    failure_details::Seen,
    history::{
        Disconnect,
        Failure,
        History, //
    },
    inline_fallback::InlineFallback,
    unserved::Patience, //
};
use crate::{
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::{
        EndedBy,
        Negotiator, //
    },
    wc::WcStatus, //
};

/// What one transport remembers about its peer: how attempts and connections ended, and how the
/// next attempts and connections must behave.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    backoff: Backoff,
    inline: InlineFallback,
    /// What is known about the peer's support for version 2.
    pub(super) version: Negotiator,
    history: History,
    last_failure: Option<Failure>,
    /// The errno of the last step that failed on this host.
    pub(super) refused: i32,
    ever_connected: bool,
    facts: RailFacts,
    patience: Patience,
    /// Whether a keepalive probe was in flight when the last connection ended.
    probed_at_end: bool,
    /// Whether the peer's adapter seems to refuse the RDMA Writes that serve as keepalive probes.
    refuses_probes: bool,
}

impl Peer {
    /// Makes the record of a peer about which nothing is known; `seed` decides the jitter of the
    /// back-off.
    pub(super) fn new(config: &Config, seed: u64) -> Self {
        Self {
            backoff: Backoff::new(config.backoff, seed),
            inline: InlineFallback::new(),
            version: Negotiator::new(config.version),
            history: History::default(),
            last_failure: None,
            refused: 0,
            ever_connected: false,
            facts: RailFacts::default(),
            patience: Patience::new(),
            probed_at_end: false,
            refuses_probes: false,
        }
    }

    /// Records the failure of an attempt that began at `begun`.
    pub(super) fn attempt_failed(&mut self, reason: ConnectError, begun: Time, now: Time) {
        self.backoff.failed(now);
        self.last_failure = Some(Failure {
            reason,
            errno: match reason {
                ConnectError::HostFault => self.refused,
                _ => 0,
            },
            at: now,
            lasted: now.since(begun),
        });
    }

    /// Records that a connection was established.
    pub(super) fn connected(&mut self) {
        self.ever_connected = true;
        self.inline.connected();
    }

    /// Records a valid reply.
    pub(super) fn replied(&mut self) {
        self.backoff.useful();
        self.patience = Patience::new();
    }

    /// Records that a large Send was posted.
    pub(super) fn large_send(&mut self, now: Time) {
        self.inline.sent(now);
    }

    /// Records that the peer received a large Send.
    pub(super) fn large_send_taken(&mut self) {
        self.inline.taken();
    }

    /// Records the loss of connection `up`. `cause` is the apparent cause. Returns the recorded
    /// cause, which may differ from `cause` if this host revoked memory shortly before the loss.
    pub(super) fn connection_lost(
        &mut self,
        up: &Up,
        epoch: Epoch,
        cause: Cause,
        now: Time,
    ) -> Cause {
        let cause = up.cause_of_end(cause, now);
        self.history.push(Disconnect {
            epoch,
            cause,
            at: now,
            lasted: up.lasted(now),
            useful: up.is_useful(),
            unanswered: up.unanswered(now),
            cm: None,
            seen: Seen::default(),
        });
        self.probed_at_end = up.is_probing();
        if let Cause::Completion(status) = cause {
            self.probe_ended(status);
        }
        if cause == Cause::Unserved {
            self.patience.double();
        }
        if up.is_replaced_at_once(cause, now) {
            self.backoff.closed_cleanly(now);
            if cause == Cause::PeerClosed {
                // The server may be restarting. In that case all its clients lose their connections
                // at the same time, so their reconnects are spread over some time.
                self.backoff.spread(now);
            }
        } else {
            self.backoff.failed(now);
        }
        self.inline.lost(cause, now);
        // The version was agreed before the connection was established. So the loss of the
        // connection is not an answer to a version probe.
        self.version.lost(EndedBy::Us, now);
        if cause == Cause::VersionRefused && !up.is_useful() {
            self.version.went_back_on_it(now);
        }
        cause
    }

    /// Records the event with which the connection manager reports the end of connection `epoch`.
    /// Only the first such event of a connection counts.
    pub(super) fn note_end(&mut self, epoch: Epoch, event: CmEvent) {
        if let Some(lost) = self.history.newest(epoch) {
            lost.cm = lost.cm.or(Some(event));
        }
    }

    /// Records the device's report about the end of connection `epoch`.
    pub(super) fn note_seen(&mut self, epoch: Epoch, seen: Seen) {
        let Some(lost) = self.history.newest(epoch) else {
            return;
        };
        lost.seen = seen;
        for status in seen.statuses() {
            self.probe_ended(status);
        }
    }

    /// Handles the status with which a work request of the last connection ended. If the peer
    /// refused the work request, and a probe was in flight when the connection ended, the peer
    /// seems to refuse probes. Then no more probes are sent.
    ///
    /// The refused work request may also have been a Send. Then probes are switched off without
    /// need, but RPC timers still detect a silent peer.
    fn probe_ended(&mut self, status: WcStatus) {
        let refused = matches!(
            status,
            WcStatus::RemoteInvalidRequest | WcStatus::RemoteAccess
        );
        self.refuses_probes |= refused && self.probed_at_end;
    }

    /// Returns true unless the peer seems to refuse the RDMA Writes that serve as keepalive probes.
    pub(super) const fn takes_probes(&self) -> bool {
        !self.refuses_probes
    }

    /// Returns the number of RPC timers after which a connection ends if no message arrives between
    /// them. In some cases [`Up::rpc_timeout`] ends a connection already at the first timer.
    pub(super) const fn patience(&self) -> Patience {
        self.patience
    }

    /// Sets a short delay for the next attempt.
    pub(super) fn pause(&mut self, now: Time) {
        self.backoff.pause(now);
    }

    /// Lowers the largest delay between attempts.
    pub(super) fn limit_delay(&mut self, max: Millis) {
        self.backoff.limit(max);
    }

    /// Stores what the driver knows about the rail that the next attempt uses.
    pub(super) fn take_rail_facts(&mut self, facts: RailFacts, config: &Config) {
        self.facts = facts;
        self.backoff
            .bound(facts.watched.then_some(config.rail_back_off));
    }

    /// Returns what the driver knows about the rail of the present or last attempt.
    pub(super) const fn facts(&self) -> RailFacts {
        self.facts
    }

    /// Returns whether the next attempt must not start yet.
    pub(super) fn must_wait(&self, now: Time) -> bool {
        now < self.not_before() && !self.facts.at_once
    }

    /// Returns the earliest start of the next attempt.
    pub(super) const fn not_before(&self) -> Time {
        self.backoff.not_before()
    }

    /// Returns the maximum call threshold of a connection requested at `now`; `None` if there is no
    /// limit.
    pub(super) fn inline_cap(&self, now: Time) -> Option<u32> {
        self.inline.cap(now)
    }

    /// Returns whether there ever was a connection.
    pub(super) const fn was_connected(&self) -> bool {
        self.ever_connected
    }

    /// Returns the connections that ended.
    pub(super) const fn history(&self) -> &History {
        &self.history
    }

    /// Returns the last failed attempt.
    pub(super) const fn last_failure(&self) -> Option<Failure> {
        self.last_failure
    }

    /// Returns the number of failures in a row since the last reply.
    pub(super) const fn failures(&self) -> u32 {
        self.backoff.failures()
    }
}
