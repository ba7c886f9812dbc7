// SPDX-License-Identifier: GPL-2.0

//! A connection attempt: its steps, and how long each step may take.

use super::{
    action::Phase,
    backoff::SPREAD,
    cause::ConnectError,
    config::{
        Config,
        MIN_CONNECT_TIMEOUT, //
    },
    event::{
        Accepted,
        AddrFault,
        CmEvent, //
    }, //
};
use crate::{
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::{
        EndedBy,
        VersionPolicy, //
    },
};

/// The present step of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The address is being resolved.
    Address,
    /// The route is being resolved.
    Route,
    /// The queue pair is being created.
    QueuePair,
    /// The connection request is on its way.
    Connecting,
    /// The version is being negotiated.
    Negotiating,
}

impl Stage {
    /// Returns the step, for logs and debugfs.
    pub(super) const fn phase(self) -> Phase {
        match self {
            Self::Address => Phase::Address,
            Self::Route => Phase::Route,
            Self::QueuePair => Phase::QueuePair,
            Self::Connecting => Phase::Connecting,
            Self::Negotiating => Phase::Negotiating,
        }
    }

    /// Returns the error for an attempt whose present step is overdue. Returns `None` for the
    /// version negotiation: if it is overdue, its own state decides what follows.
    pub(super) const fn overdue(self) -> Option<ConnectError> {
        match self {
            Self::Address => Some(ConnectError::AddrSilent),
            Self::Route => Some(ConnectError::RouteSilent),
            Self::QueuePair => Some(ConnectError::TimedOut),
            Self::Connecting => Some(ConnectError::Unanswered),
            Self::Negotiating => None,
        }
    }
}

/// If the state machine is called this long after a deadline, this host must have been suspended or
/// stalled.
const LATE: Millis = Millis::from_secs(1);

/// An attempt starts again from the beginning only if at least this much of its time is left.
const ENOUGH: Millis = Millis::from_secs(1);

/// What an event of the connection manager does to an attempt.
pub(super) enum Step {
    /// The address is not known yet: resolve it again, with this time left for the step.
    Address(Millis),
    /// The address is known: resolve the route.
    Route,
    /// The route is known: create the queue pair.
    QueuePair,
    /// The peer accepted the connection request.
    Accepted(Accepted),
    /// The path to the peer may have changed: start again from the beginning, with this time left.
    Again(Millis),
    /// The attempt fails.
    Fail(ConnectError),
    /// The event changes nothing.
    Ignore,
}

/// An attempt in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    stage: Stage,
    /// Time at which the present step must have ended.
    stage_end: Time,
    /// Time at which the whole attempt must have ended.
    end: Time,
    /// Whether the attempt has received more time, because this host called the state machine late.
    excused: bool,
}

impl Attempt {
    /// Returns an attempt that may take at most `total`. Its first step, which resolves the
    /// address, may take at most `first`.
    pub(super) const fn new(first: Millis, total: Millis, now: Time) -> Self {
        Self {
            stage: Stage::Address,
            stage_end: now.after(first),
            end: now.after(total),
            excused: false,
        }
    }

    /// Returns the present step of the attempt.
    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the time limit of this step or of the whole attempt, whichever comes first.
    pub(super) fn deadline(&self) -> Time {
        self.stage_end.min(self.end)
    }

    /// Returns whether the state machine was called so late that this host must have been suspended
    /// or stalled. In that case the peer's answer may already have arrived, but was not processed
    /// yet. So the attempt gets one more second, but only once.
    pub(super) fn excuses(&mut self, now: Time) -> bool {
        let late = now.since(self.deadline()) >= LATE;
        if !late || self.excused {
            return false;
        }
        self.excused = true;
        self.stage_end = now.after(LATE);
        self.end = self.end.max(self.stage_end);
        true
    }

    /// Returns `span`, or the time left for the attempt if that is shorter.
    pub(super) fn remaining(&self, span: Millis, now: Time) -> Millis {
        span.min(self.end.since(now))
    }

    /// Moves on to the next step, and sets the time limit of that step. `first_mount` says that the
    /// mount command waits for the attempt.
    pub(super) fn enter(&mut self, next: Stage, config: &Config, first_mount: bool, now: Time) {
        let limit = match next {
            Stage::Address | Stage::Route => Some(config.resolve_timeout),
            // The probe may take at most half of the time that is left. If the probe is not
            // answered, the rest is for version 1.
            Stage::Negotiating if config.version == VersionPolicy::PreferV2 => {
                let half = Millis::new(self.end.since(now).get() >> 1);
                Some(config.version_timeout.min(half))
            }
            Stage::Negotiating => Some(config.version_timeout),
            Stage::Connecting if first_mount => Some(config.first_request_timeout),
            Stage::QueuePair | Stage::Connecting => None,
        };
        self.stage = next;
        self.stage_end = limit.map_or(self.end, |span| now.after(span));
    }

    /// Returns how long the attempt may continue with version 1, or `None` if it must not continue.
    /// It may continue if three conditions are met:
    ///
    /// - During the version negotiation the peer closed the connection, or its adapter acknowledged
    ///   the probe but no answer came, as is typical of a peer without version 2.
    /// - Version 2 is preferred, but not required.
    /// - At least `MIN_CONNECT_TIMEOUT` is left.
    pub(super) fn left_for_version_1(
        &self,
        reason: ConnectError,
        config: &Config,
        now: Time,
    ) -> Option<Millis> {
        let unanswered =
            self.stage == Stage::Negotiating && reason.ended_by_whom() == EndedBy::Peer;
        let left = self.remaining(config.connect_timeout, now);
        let may_go_on = unanswered && config.version == VersionPolicy::PreferV2;
        (may_go_on && left >= MIN_CONNECT_TIMEOUT).then_some(left)
    }

    /// Returns the next step after an event of the connection manager.
    pub(super) fn step(&self, event: CmEvent, now: Time) -> Step {
        let reason = match (self.stage, event) {
            (Stage::Address, CmEvent::AddrResolved) => return Step::Route,
            (Stage::Route, CmEvent::RouteResolved) => return Step::QueuePair,
            (Stage::Connecting, CmEvent::Established(accepted)) => return Step::Accepted(accepted),
            (Stage::Address, CmEvent::AddrError(AddrFault::TimedOut)) if now < self.deadline() => {
                return Step::Address(self.deadline().since(now));
            }
            // The usual cause of `Unreachable` is a changed hardware address of the peer or of a
            // router. So the attempt starts again. If the peer never answers, the time limit ends
            // the attempt.
            (_, CmEvent::Unreachable) if self.end.since(now) >= ENOUGH => {
                let left = self.end.since(now).get();
                return Step::Again(Millis::new(left.saturating_sub(SPREAD.get())));
            }
            // An event that does not belong to the present step changes nothing.
            (_, CmEvent::AddrResolved | CmEvent::RouteResolved | CmEvent::Established(_)) => {
                return Step::Ignore;
            }
            (_, CmEvent::AddrError(fault)) => fault.reason(),
            (_, CmEvent::RouteError) => ConnectError::NoRoute,
            (_, CmEvent::RouteSilent) => ConnectError::RouteSilent,
            (_, CmEvent::ConnectError) => ConnectError::Aborted,
            (_, CmEvent::Unreachable) => ConnectError::Unanswered,
            (_, CmEvent::Rejected { stale: true }) => ConnectError::Stale,
            (_, CmEvent::Rejected { stale: false }) => ConnectError::Refused,
            (_, CmEvent::Disconnected | CmEvent::TimewaitExit) => ConnectError::PeerClosed,
            (_, CmEvent::AddrChange) => ConnectError::AddrChanged,
            (_, CmEvent::DeviceRemoval) => ConnectError::DeviceRemoved,
        };
        Step::Fail(reason)
    }
}
