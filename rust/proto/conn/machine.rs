// SPDX-License-Identifier: GPL-2.0

//! The states of a transport, and the events that change them.
//!
//! [`Conn`](super::Conn) calls one method for each event, and drops events of other connections
//! (epochs). The events of an established connection are handled in [`connection`].

mod connection;

use super::{
    action::Action,
    attempt::{
        Attempt,
        Stage,
        Step, //
    },
    cause::{
        Cause,
        ConnectError, //
    },
    config::{
        Config,
        RailFacts,
        LEAST_LIMIT,
        MIN_CONNECT_TIMEOUT, //
    },
    established::Up,
    event::{
        Accepted,
        CmEvent,
        Epoch,
        LocalFault, //
    },
    failure_details::Seen,
    keepalive::Activity,
    peer::Peer,
    queue::Queue,
    state::{
        State,
        Then, //
    }, //
};
use crate::{
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::{
        EndedBy,
        Known,
        Outcome,
        ProbeAnswer, //
    },
    wire::header::Version, //
};

/// Space for all actions that can be in the queue at a time:
///
/// - The failure of the previous attempt.
/// - The nine actions of one attempt and its connection: the steps of the attempt, `Established`,
///   one `Keepalive` and the final `Disconnect`.
///
/// The actions of two attempts are never in the queue together. The next attempt begins only after
/// `TornDown`. This event is accepted only after the driver has taken the final action, and with it
/// all earlier actions.
const ACTIONS: usize = 12;

/// The state of one transport, and the actions that are due.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    config: Config,
    state: State,
    epoch: Epoch,
    cookie: u32,
    /// Whether the caller that requested the current attempt gives up if the attempt fails.
    trial: bool,
    stopping: bool,
    backchannel: bool,
    /// When the present or last attempt began.
    begun: Time,
    /// Whether the driver is disconnecting the lost connection.
    disconnecting: bool,
    peer: Peer,
    actions: Queue<Action, ACTIONS>,
}

impl Machine {
    pub(super) fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            state: State::Down,
            epoch: Epoch::NONE,
            cookie: 0,
            trial: false,
            stopping: false,
            backchannel: false,
            begun: Time::default(),
            disconnecting: false,
            peer: Peer::new(&config, seed),
            actions: Queue::new(),
        }
    }

    // The next methods return actions and the state.

    pub(super) fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop()?;
        if let Action::TearDown { .. } | Action::Disconnect { .. } = action {
            self.state.told();
        }
        Some(action)
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Down | State::Closing { .. } | State::Stopped => None,
            State::Waiting { .. } => Some(self.peer.not_before()),
            State::Attempt(attempt) => Some(attempt.deadline()),
            State::Up(up) => up.deadline(self.idle_limit()),
        }
    }

    pub(super) const fn state(&self) -> &State {
        &self.state
    }

    #[inline]
    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    #[inline]
    pub(super) const fn cookie(&self) -> u32 {
        self.cookie
    }

    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    pub(super) const fn peer(&self) -> &Peer {
        &self.peer
    }

    // The next methods handle commands of the RPC layer.

    pub(super) fn start(&mut self, timeout: Option<Millis>, trial: bool, now: Time) {
        // If an attempt is running, a further caller does not change `trial`, so the time limits of
        // the attempt stay the same.
        if let State::Down | State::Closing { .. } | State::Stopped = self.state {
            self.trial = trial;
        }
        let own = self.config.connect_timeout;
        let total = timeout.map_or(own, |t| own.min(t.max(MIN_CONNECT_TIMEOUT)));
        match &mut self.state {
            State::Down => self.begin_or_wait(total, now),
            State::Closing { then, .. } if *then == Then::Rest => *then = Then::Restart(total),
            State::Stopped => self.push_end(ConnectError::Cancelled),
            State::Closing { .. } | State::Waiting { .. } | State::Attempt(_) | State::Up(_) => {}
        }
    }

    pub(super) fn take_rail_facts(&mut self, facts: RailFacts) {
        self.peer.take_rail_facts(facts, &self.config);
    }

    pub(super) fn limit_timeouts(&mut self, connect: Millis, reconnect: Millis) {
        let connect = connect.max(LEAST_LIMIT);
        self.config.connect_timeout = self.config.connect_timeout.min(connect);
        self.peer.limit_delay(reconnect);
    }

    pub(super) fn bind_backchannel(&mut self, bound: bool) {
        self.backchannel = bound;
    }

    /// Ends the present connection with `cause`. If there is no connection, cancels the present
    /// attempt or the wait for the next attempt.
    pub(super) fn end(&mut self, cause: Cause, now: Time) {
        if cause == Cause::Idle && self.backchannel {
            return;
        }
        match self.state {
            State::Up(_) => self.lose(cause, now),
            State::Attempt(_) => self.fail(ConnectError::ended_by(cause), now),
            State::Waiting { .. } => {
                self.state = State::Down;
                self.push_end(ConnectError::Cancelled);
            }
            State::Down | State::Closing { .. } | State::Stopped => {}
        }
    }

    pub(super) fn shutdown(&mut self, now: Time) {
        self.stopping = true;
        self.end(Cause::Shutdown, now);
        if let State::Down = self.state {
            self.state = State::Stopped;
        }
    }

    // The next methods make an attempt.

    fn begin_or_wait(&mut self, total: Millis, now: Time) {
        if self.peer.must_wait(now) {
            self.state = State::Waiting { timeout: total };
        } else {
            self.begin(total, now);
        }
    }

    fn begin(&mut self, total: Millis, now: Time) {
        self.epoch = self.epoch.next();
        self.begun = now;
        let timeout = self.config.resolve_timeout.min(total);
        self.state = State::Attempt(Attempt::new(timeout, total, now));
        self.resolve_addr(timeout);
    }

    /// Asks the driver to resolve the address. `left` is the time left for the address step.
    fn resolve_addr(&mut self, left: Millis) {
        let timeout = left.min(self.config.address_timeout);
        let epoch = self.epoch;
        self.actions.push(Action::ResolveAddr { epoch, timeout });
    }

    fn enter(&mut self, next: Stage, action: Action, now: Time) {
        let first_mount = self.is_first_mount();
        if let State::Attempt(attempt) = &mut self.state {
            attempt.enter(next, &self.config, first_mount, now);
            self.actions.push(action);
        }
    }

    /// Handles an event of the connection manager about the attempt or the connection.
    pub(super) fn cm(&mut self, event: CmEvent, now: Time) {
        let epoch = self.epoch;
        match &self.state {
            State::Attempt(attempt) => match attempt.step(event, now) {
                Step::Route => {
                    let timeout = attempt.remaining(self.config.resolve_timeout, now);
                    self.enter(Stage::Route, Action::ResolveRoute { epoch, timeout }, now);
                }
                Step::Address(left) => self.resolve_addr(left),
                Step::QueuePair => self.enter(Stage::QueuePair, Action::CreateQp { epoch }, now),
                Step::Accepted(accepted) => self.accepted(accepted, now),
                Step::Again(left) if !self.peer.facts().watched => self.again(left, now),
                Step::Again(_) => self.fail(ConnectError::Unanswered, now),
                Step::Fail(reason) => self.fail(reason, now),
                Step::Ignore => {}
            },
            State::Up(_) if event == CmEvent::Unreachable => self.suspect(now),
            State::Up(_) => {
                if let Some(cause) = event.loss() {
                    self.lose(cause, now);
                    self.note_end(event);
                }
            }
            State::Closing { .. } => self.note_end(event),
            State::Down | State::Waiting { .. } | State::Stopped => {}
        }
    }

    pub(super) fn qp_created(&mut self, now: Time) {
        if self.state.is_in(Stage::QueuePair) {
            let epoch = self.epoch;
            let inline_cap = self.peer.inline_cap(now);
            let action = Action::Connect { epoch, inline_cap };
            self.enter(Stage::Connecting, action, now);
        }
    }

    fn accepted(&mut self, accepted: Accepted, now: Time) {
        if accepted.peer_read_depth == Some(0) {
            return self.fail(ConnectError::NoReadCapability, now);
        }
        let outcome = self.peer.version.begin(now);
        self.negotiated(outcome, now);
    }

    pub(super) fn learn_version(&mut self, known: Known) {
        if let State::Down | State::Waiting { .. } = self.state {
            self.peer.version.learn(known);
        }
    }

    pub(super) fn version_answer(&mut self, answer: ProbeAnswer, now: Time) {
        if self.state.is_in(Stage::Negotiating) {
            let outcome = self.peer.version.answer(answer, now);
            self.negotiated(outcome, now);
        }
    }

    fn negotiated(&mut self, outcome: Outcome, now: Time) {
        match outcome {
            Outcome::Probe => {
                let epoch = self.epoch;
                self.enter(Stage::Negotiating, Action::SendVersionProbe { epoch }, now);
            }
            Outcome::Use(version) => self.establish(version, now),
            Outcome::Reconnect => self.fail(ConnectError::VersionSilent, now),
            Outcome::Unsupported => self.fail(ConnectError::VersionUnsupported, now),
            Outcome::Ignored => {}
        }
    }

    fn establish(&mut self, version: Version, now: Time) {
        self.peer.connected();
        self.cookie = self.cookie.wrapping_add(1);
        let keepalive = self.config.keepalive_of(self.peer.facts());
        self.state = State::Up(Up::new(keepalive, self.peer.takes_probes(), now));
        self.actions.push(Action::Established {
            epoch: self.epoch,
            cookie: self.cookie,
            version,
        });
    }

    pub(super) fn local_fault(&mut self, fault: LocalFault, now: Time) {
        if let State::Attempt(_) = self.state {
            if let LocalFault::Refused(errno) = fault {
                self.peer.refused = errno;
            }
            self.fail(fault.reason(), now);
        }
    }

    fn fail(&mut self, reason: ConnectError, now: Time) {
        let left = match &self.state {
            State::Attempt(attempt) => attempt.left_for_version_1(reason, &self.config, now),
            _ => None,
        };
        self.peer.version.lost(reason.ended_by_whom(), now);
        let then = match left {
            // Continues the same attempt with a new connection, which uses version 1 (V2-08,
            // V2-09).
            Some(left) => Then::Restart(left),
            None => {
                self.peer.attempt_failed(reason, self.begun, now);
                Then::Fail(reason)
            }
        };
        self.tear_down(then);
    }

    fn tear_down(&mut self, then: Then) {
        self.state = State::closing(then);
        let epoch = self.epoch;
        self.actions.push(Action::TearDown { epoch });
    }

    /// Releases the objects of the attempt, and starts the attempt again after a short delay. The
    /// repeated attempt may take at most `left`.
    fn again(&mut self, left: Millis, now: Time) {
        self.peer.version.lost(EndedBy::Us, now);
        self.peer.pause(now);
        self.tear_down(Then::Restart(left));
    }

    /// Returns true if the current attempt belongs to a first mount. The mount command waits for
    /// such an attempt, and fails if the attempt fails.
    const fn is_first_mount(&self) -> bool {
        self.trial && !self.peer.was_connected()
    }

    // The next methods handle the passing of time.

    pub(super) fn tick(&mut self, activity: Activity, now: Time) {
        match &mut self.state {
            State::Waiting { timeout } => {
                if now >= self.peer.not_before() {
                    let timeout = *timeout;
                    self.begin(timeout, now);
                }
            }
            State::Attempt(attempt) => {
                if now < attempt.deadline() || attempt.excuses(now) {
                    return;
                }
                if let Some(reason) = attempt.stage().overdue() {
                    return self.fail(reason, now);
                }
                match self.peer.version.timed_out(now) {
                    // No version probe is outstanding, so there is no answer to wait for. The
                    // attempt fails now.
                    Outcome::Ignored => self.fail(ConnectError::VersionSilent, now),
                    outcome => self.negotiated(outcome, now),
                }
            }
            State::Up(up) => {
                let verdict = up.tick(activity, now);
                let cause = up.cause_of_silence();
                self.probe_or_lose(verdict, cause, now);
                self.end_if_idle(now);
            }
            State::Down | State::Closing { .. } | State::Stopped => {}
        }
    }

    fn end_if_idle(&mut self, now: Time) {
        let limit = self.idle_limit();
        if self.state.up().is_some_and(|up| up.is_idle(limit, now)) {
            self.lose(Cause::Idle, now);
        }
    }

    /// Returns the idle time after which the connection ends; `None` if it must not end when idle.
    const fn idle_limit(&self) -> Option<Millis> {
        if self.backchannel {
            None
        } else {
            self.config.idle_timeout
        }
    }

    // The next methods end attempts and connections.

    pub(super) fn disconnecting(&mut self) {
        self.disconnecting = true;
    }

    /// Records an event that explains the end of the connection, unless this host disconnected
    /// first.
    fn note_end(&mut self, event: CmEvent) {
        if !self.disconnecting && event.loss().is_some() {
            self.peer.note_end(self.epoch, event);
        }
    }

    pub(super) fn seen(&mut self, epoch: Epoch, seen: Seen) {
        self.peer.note_seen(epoch, seen);
    }

    pub(super) fn torn_down(&mut self, now: Time) {
        let State::Closing { told: true, then } = self.state else {
            return;
        };
        self.state = State::Down;
        match then {
            Then::Rest => {}
            Then::Fail(reason) => self.push_end(reason),
            Then::Restart(total) if !self.stopping => self.begin_or_wait(total, now),
            Then::Restart(_) => self.push_end(ConnectError::Cancelled),
        }
        if self.stopping {
            self.state = State::Stopped;
        }
    }

    fn push_end(&mut self, reason: ConnectError) {
        self.actions.push(Action::Fail {
            error: reason.error(self.is_first_mount()),
            reason,
        });
    }
}
