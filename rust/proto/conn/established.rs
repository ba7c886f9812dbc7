// SPDX-License-Identifier: GPL-2.0

//! The state of an established connection, and the conclusions that are drawn from its end.

use super::{
    cause::Cause,
    keepalive::{
        Activity,
        Keepalive,
        KeepaliveConfig,
        Verdict, //
    },
    unserved::{
        Patience,
        RpcTimer,
        Timers, //
    }, //
};
use crate::time::{
    Millis,
    Time, //
};

/// A connection that carried a reply and lasted for at least this time is replaced without delay.
const WORKED: Millis = Millis::from_secs(5);

/// If a connection is lost within this time after memory was revoked, the peer's access to that
/// memory may have caused the loss.
const REVOKED: Millis = Millis::from_secs(5);

/// An established connection.
#[derive(Clone, Debug)]
pub(super) struct Up {
    since: Time,
    /// When the upper layer last used the connection.
    used: Time,
    /// Whether at least one reply arrived.
    useful: bool,
    /// When the memory of an unanswered call was last revoked.
    revoked: Option<Time>,
    keepalive: Option<Keepalive>,
    /// If the peer refuses probes, no probes are sent, and the driver checks the connection at this
    /// interval.
    unprobed: Option<Millis>,
    /// When the driver last checked the connection.
    looked: Time,
    timers: Timers,
}

impl Up {
    /// Returns the state of a connection that was established at `now`. `takes_probes` says whether
    /// the peer accepts keepalive probes.
    pub(super) fn new(keepalive: Option<KeepaliveConfig>, takes_probes: bool, now: Time) -> Self {
        let unprobed = keepalive.filter(|_| !takes_probes);
        let keepalive = keepalive.filter(|_| takes_probes);
        Self {
            since: now,
            used: now,
            useful: false,
            revoked: None,
            keepalive: keepalive.map(|config| Keepalive::new(config, now)),
            unprobed: unprobed.map(|config| config.busy_after),
            looked: now,
            timers: Timers::default(),
        }
    }

    /// Records a valid reply.
    pub(super) fn replied(&mut self) {
        self.useful = true;
    }

    /// Returns whether a reply has arrived.
    pub(super) const fn is_useful(&self) -> bool {
        self.useful
    }

    /// Records that the memory of an unanswered call was revoked.
    pub(super) fn memory_revoked(&mut self, now: Time) {
        self.revoked = Some(now);
    }

    /// Records that the probe was answered.
    pub(super) fn probe_answered(&mut self, now: Time) {
        if let Some(keepalive) = &mut self.keepalive {
            keepalive.answered(now);
        }
    }

    /// Records that the probe was not sent, because the send queue is full.
    pub(super) fn probe_not_sent(&mut self) {
        if let Some(keepalive) = &mut self.keepalive {
            keepalive.not_sent();
        }
    }

    /// Handles an RPC timer that fired. Returns the decision of the keepalive, or the cause for
    /// which the connection ends.
    pub(super) fn rpc_timeout(
        &mut self,
        timer: RpcTimer,
        patience: Patience,
        now: Time,
    ) -> Result<Verdict, Cause> {
        let rounds = self.timers.fired(timer, now);
        let watched = self.unprobed.is_some() || self.keepalive.is_some();
        // If no reply ever came on this connection, waiting longer is useless (MAL-153), unless an
        // earlier silent connection suggests that the server is slow.
        if !watched || !(self.useful || patience.was_tried()) {
            return Err(Cause::RpcTimeout);
        }
        if patience.is_exceeded(rounds) {
            return Err(Cause::Unserved);
        }
        let keepalive = self.keepalive.as_mut();
        Ok(keepalive.map_or(Verdict::Fine, |keepalive| keepalive.probe(now)))
    }

    /// Handles a sign that the peer may be out of reach. Returns the decision of the keepalive.
    pub(super) fn suspect(&mut self, now: Time) -> Verdict {
        let keepalive = self.keepalive.as_mut();
        keepalive.map_or(Verdict::Fine, |keepalive| keepalive.suspect(now))
    }

    /// Returns the cause to record if a probe stays unanswered.
    pub(super) fn cause_of_silence(&self) -> Cause {
        match &self.keepalive {
            Some(keepalive) if keepalive.is_suspicious() => Cause::PeerUnreachable,
            _ => Cause::PeerDead,
        }
    }

    /// Returns whether a probe is in flight.
    pub(super) fn is_probing(&self) -> bool {
        let keepalive = self.keepalive.as_ref();
        keepalive.is_some_and(Keepalive::is_probing)
    }

    /// Returns how long the probe in flight has been unanswered; zero if no probe is in flight.
    pub(super) fn unanswered(&self, now: Time) -> Millis {
        let keepalive = self.keepalive.as_ref();
        keepalive.map_or(Millis::default(), |keepalive| keepalive.unanswered(now))
    }

    /// Records what the driver saw on the connection. Returns the decision of the keepalive.
    pub(super) fn tick(&mut self, activity: Activity, now: Time) -> Verdict {
        // A connection counts as used while the reply to a call is outstanding.
        let used = if activity.busy {
            now
        } else {
            activity.used.min(now)
        };
        self.used = self.used.max(used);
        self.looked = now;
        match &mut self.keepalive {
            Some(keepalive) => keepalive.check(activity, now),
            None => Verdict::Fine,
        }
    }

    /// Returns when to check the connection next. `idle_timeout` is the idle time after which the
    /// connection ends.
    pub(super) fn deadline(&self, idle_timeout: Option<Millis>) -> Option<Time> {
        let idle = self.idle_deadline(idle_timeout);
        let silent = self.keepalive.as_ref().map(Keepalive::deadline);
        let unprobed = self.unprobed.map(|interval| self.looked.after(interval));
        [idle, silent, unprobed].into_iter().flatten().min()
    }

    /// Returns whether the connection has been unused for `idle_timeout`.
    pub(super) fn is_idle(&self, idle_timeout: Option<Millis>, now: Time) -> bool {
        self.idle_deadline(idle_timeout)
            .is_some_and(|deadline| now >= deadline)
    }

    fn idle_deadline(&self, idle_timeout: Option<Millis>) -> Option<Time> {
        idle_timeout.map(|idle| self.used.after(idle))
    }

    /// Returns how long the connection has been established.
    pub(super) const fn lasted(&self, now: Time) -> Millis {
        now.since(self.since)
    }

    /// Returns the cause that is recorded for the loss of the connection. `cause` is the apparent
    /// cause.
    pub(super) fn cause_of_end(&self, cause: Cause, now: Time) -> Cause {
        let revoked = self.revoked.is_some_and(|at| now.since(at) <= REVOKED);
        if revoked && cause.fits_refused_write() {
            Cause::GivenUpCall
        } else {
            cause
        }
    }

    /// Returns whether the next attempt may start without a pause; see "At once or later" in
    /// [`conn`](super).
    pub(super) fn is_replaced_at_once(&self, cause: Cause, now: Time) -> bool {
        let at_once = self.lasted(now) >= WORKED || cause.is_our_doing();
        cause.is_clean() || (self.useful && at_once)
    }
}
