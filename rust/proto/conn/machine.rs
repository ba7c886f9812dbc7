// SPDX-License-Identifier: GPL-2.0

//! The machine: which attempt or connection there is, and what follows on each event.

use super::{
    action::{
        Action,
        Phase, //
    },
    backoff::Backoff,
    cause::{
        Cause,
        ConnectError, //
    },
    config::{
        Config,
        MIN_CONNECT_TIMEOUT, //
    },
    event::{
        Accepted,
        AddrFault,
        CmEvent,
        Epoch,
        Event,
        LocalFault, //
    },
    history::{
        Disconnect,
        Failure,
        History, //
    },
    inline_fallback::InlineFallback,
    keepalive::{
        Activity,
        KeepAlive,
        Verdict, //
    },
    queue::Queue,
    seen::Seen, //
};
use crate::{
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::{
        Negotiator,
        Outcome, //
    },
    wire::header::Version, //
};

/// Room for every action of one attempt and connection, and the failure of the one before.
///
/// The steps of an attempt, `Established`, one `KeepAlive` and the final `Disconnect` are nine. The next
/// attempt needs a `TornDown`, which counts only after the final action was taken, and with it all before.
const ACTIONS: usize = 12;

/// How long a useful connection must last for its loss to cost no delay, however often that happens.
const WORKED: Millis = Millis::from_secs(5);

/// For how long after memory was revoked the server is expected to write there.
const REVOKED: Millis = Millis::from_secs(5);

/// The step an attempt is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Address,
    Route,
    QueuePair,
    Connecting,
    Negotiating,
}

/// An established connection.
#[derive(Clone, Debug)]
struct Up {
    since: Time,
    /// When the upper layer last used it.
    used: Time,
    /// At least one reply arrived.
    useful: bool,
    /// When memory of a call without an answer was taken back last.
    revoked: Option<Time>,
    keepalive: Option<KeepAlive>,
}

#[derive(Clone, Debug)]
enum State {
    Down,
    Waiting {
        timeout: Millis,
    },
    Attempt {
        stage: Stage,
        /// When this step is overdue.
        stage_end: Time,
        /// When the whole attempt is overdue.
        end: Time,
    },
    Up(Up),
    Closing {
        /// The driver has been handed the action that it will answer with `TornDown`.
        told: bool,
        then: Then,
    },
    Stopped,
}

/// What follows a tear-down.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Nothing: the RPC layer will ask again.
    Rest,
    /// Report the failed attempt.
    Fail(ConnectError),
    /// The RPC layer asked again meanwhile.
    Restart(Millis),
}

/// The connection machine of one transport.
#[derive(Clone, Debug)]
pub struct Conn {
    config: Config,
    state: State,
    epoch: Epoch,
    cookie: u32,
    ever_connected: bool,
    /// Who asked for the present attempt gives up when it fails.
    trial: bool,
    stopping: bool,
    backchannel: bool,
    backoff: Backoff,
    inline: InlineFallback,
    version: Negotiator,
    history: History,
    /// When the present or last attempt began.
    begun: Time,
    last_failure: Option<Failure>,
    /// The lost connection is being ended from this side.
    disconnecting: bool,
    actions: Queue<Action, ACTIONS>,
}

impl Conn {
    /// A transport without a connection; `seed` decides the jitter of the back-off.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            state: State::Down,
            epoch: Epoch::NONE,
            cookie: 0,
            ever_connected: false,
            trial: false,
            stopping: false,
            backchannel: false,
            backoff: Backoff::new(config.backoff, seed),
            inline: InlineFallback::new(),
            version: Negotiator::new(config.version),
            history: History::default(),
            begun: Time::default(),
            last_failure: None,
            disconnecting: false,
            actions: Queue::new(),
        }
    }

    /// Takes in what happened at `now`. Take the actions afterwards.
    pub fn handle(&mut self, event: Event, now: Time) {
        match event {
            Event::Start { timeout, trial } => self.start(timeout, trial, now),
            Event::Tick(activity) => self.tick(activity, now),
            Event::Cm(epoch, event) => {
                if epoch == self.epoch {
                    self.cm(event, now);
                }
            }
            Event::QpCreated(epoch) => {
                if self.in_stage(epoch, Stage::QueuePair) {
                    let inline_cap = self.inline.cap(now);
                    self.enter(
                        Stage::Connecting,
                        Action::Connect { epoch, inline_cap },
                        now,
                    );
                }
            }
            Event::LocalFault(epoch, fault) => {
                if epoch == self.epoch {
                    self.local_fault(fault, now);
                }
            }
            Event::VersionAnswer(epoch, answer) => {
                if self.in_stage(epoch, Stage::Negotiating) {
                    let outcome = self.version.answer(answer);
                    self.negotiated(outcome, now);
                }
            }
            Event::Replied(epoch) => {
                if let Some(up) = self.up(epoch) {
                    up.useful = true;
                    self.backoff.useful();
                }
            }
            Event::LargeSend(epoch) => {
                if self.is_up(epoch) {
                    self.inline.sent(now);
                }
            }
            Event::LargeSendTaken(epoch) => {
                if self.is_up(epoch) {
                    self.inline.taken();
                }
            }
            Event::MemoryRevoked(epoch) => {
                if let Some(up) = self.up(epoch) {
                    up.revoked = Some(now);
                }
            }
            Event::KeepAliveAnswered(epoch) => {
                if let Some(keepalive) = self.up(epoch).and_then(|up| up.keepalive.as_mut()) {
                    keepalive.answered(now);
                }
            }
            Event::Lost(epoch, cause) => {
                // Who waits for the next attempt has nothing yet that could be lost.
                if epoch == self.epoch && !matches!(self.state, State::Waiting { .. }) {
                    self.end(cause, now);
                }
            }
            Event::RpcTimeout { cookie } => self.rpc_timeout(cookie, now),
            Event::Close(cause) => self.end(cause, now),
            Event::Backchannel { bound } => self.backchannel = bound,
            Event::Disconnecting(epoch) => {
                if epoch == self.epoch {
                    self.disconnecting = true;
                }
            }
            Event::Seen(epoch, seen) => {
                if let Some(lost) = self.history.newest(epoch) {
                    lost.seen = seen;
                }
            }
            Event::TornDown(epoch) => self.torn_down(epoch, now),
            Event::Shutdown => self.shutdown(now),
        }
    }

    /// The next thing to do, in the order in which it has to be done.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop()?;
        if let Action::TearDown { .. } | Action::Disconnect { .. } = action {
            if let State::Closing { told, .. } = &mut self.state {
                *told = true;
            }
        }
        Some(action)
    }

    /// When [`Event::Tick`] must be handed in at the latest; `None` if no time matters.
    pub fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Down | State::Closing { .. } | State::Stopped => None,
            State::Waiting { .. } => Some(self.backoff.not_before()),
            State::Attempt { stage_end, end, .. } => Some((*stage_end).min(*end)),
            State::Up(up) => {
                let idle = self.idle_deadline(up);
                let silent = up.keepalive.as_ref().map(KeepAlive::deadline);
                match (idle, silent) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                }
            }
        }
    }

    /// Lowers the bound of an attempt and of the back-off, as `set_connect_timeout` asks (pNFS).
    ///
    /// Larger values than the present ones change nothing.
    pub fn limit_timeouts(&mut self, connect: Millis, reconnect: Millis) {
        let connect = connect.max(MIN_CONNECT_TIMEOUT);
        self.config.connect_timeout = self.config.connect_timeout.min(connect);
        self.backoff.limit(reconnect);
    }

    /// Where the transport stands.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Down => Phase::Down,
            State::Waiting { .. } => Phase::Waiting,
            State::Attempt { stage, .. } => match stage {
                Stage::Address => Phase::Address,
                Stage::Route => Phase::Route,
                Stage::QueuePair => Phase::QueuePair,
                Stage::Connecting => Phase::Connecting,
                Stage::Negotiating => Phase::Negotiating,
            },
            State::Up(_) => Phase::Up,
            State::Closing { .. } => Phase::Closing,
            State::Stopped => Phase::Stopped,
        }
    }

    /// Whether `epoch` is the established connection; a reverse reply goes out only then (BC-27).
    #[inline]
    pub fn is_up(&self, epoch: Epoch) -> bool {
        epoch == self.epoch && matches!(self.state, State::Up(_))
    }

    /// Whether the end of `epoch` that the machine asked for is still to come.
    ///
    /// To be looked at, and the end ordered, with the driver's lock held: the order may come late, and
    /// afterwards it would end the next connection.
    #[inline]
    pub fn is_ending(&self, epoch: Epoch) -> bool {
        epoch == self.epoch && matches!(self.state, State::Closing { .. })
    }

    /// The epoch of the present or the last attempt.
    #[inline]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A number that changes whenever a connection is established or lost.
    #[inline]
    pub const fn cookie(&self) -> u32 {
        self.cookie
    }

    /// The connections that ended, for debugfs.
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// The last failed attempt.
    pub const fn last_failure(&self) -> Option<Failure> {
        self.last_failure
    }

    /// Failures in a row since the last reply.
    pub const fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// Idle time after which a connection without a backchannel is closed; `None` keeps it.
    pub const fn idle_timeout(&self) -> Option<Millis> {
        self.config.idle_timeout
    }

    // Commands of the RPC layer.

    fn start(&mut self, timeout: Option<Millis>, trial: bool, now: Time) {
        // Those who join an attempt do not change its bounds.
        if let State::Down | State::Closing { .. } | State::Stopped = self.state {
            self.trial = trial;
        }
        let own = self.config.connect_timeout;
        let total = timeout.map_or(own, |t| own.min(t.max(MIN_CONNECT_TIMEOUT)));
        match &mut self.state {
            State::Down => self.begin_or_wait(total, now),
            State::Closing { then, .. } => {
                if let Then::Rest = then {
                    *then = Then::Restart(total);
                }
            }
            State::Stopped => self.push_end(ConnectError::Cancelled),
            State::Waiting { .. } | State::Attempt { .. } | State::Up(_) => {}
        }
    }

    fn shutdown(&mut self, now: Time) {
        self.stopping = true;
        self.end(Cause::Shutdown, now);
        if let State::Down = self.state {
            self.state = State::Stopped;
        }
    }

    // The attempt.

    fn begin_or_wait(&mut self, total: Millis, now: Time) {
        if now < self.backoff.not_before() {
            self.state = State::Waiting { timeout: total };
        } else {
            self.begin(total, now);
        }
    }

    fn begin(&mut self, total: Millis, now: Time) {
        self.epoch = self.epoch.next();
        self.begun = now;
        let timeout = self.config.resolve_timeout.min(total);
        self.state = State::Attempt {
            stage: Stage::Address,
            stage_end: now.after(timeout),
            end: now.after(total),
        };
        let epoch = self.epoch;
        self.actions.push(Action::ResolveAddr { epoch, timeout });
    }

    /// Moves the attempt on; the new step has its own limit besides the attempt's.
    fn enter(&mut self, next: Stage, action: Action, now: Time) {
        let limit = match next {
            Stage::Address | Stage::Route => Some(self.config.resolve_timeout),
            Stage::Negotiating => Some(self.config.version_timeout),
            Stage::Connecting if self.is_first_mount() => Some(self.config.first_request_timeout),
            Stage::QueuePair | Stage::Connecting => None,
        };
        if let State::Attempt {
            stage,
            stage_end,
            end,
        } = &mut self.state
        {
            *stage = next;
            *stage_end = limit.map_or(*end, |span| now.after(span));
            self.actions.push(action);
        }
    }

    fn in_stage(&self, of: Epoch, wanted: Stage) -> bool {
        of == self.epoch && matches!(self.state, State::Attempt { stage, .. } if stage == wanted)
    }

    fn cm(&mut self, event: CmEvent, now: Time) {
        let stage = match self.state {
            State::Attempt { stage, .. } => stage,
            State::Up(_) => return self.cm_while_up(event, now),
            State::Closing { .. } => return self.cm_while_closing(event),
            _ => return,
        };
        let epoch = self.epoch;
        match (stage, event) {
            (Stage::Address, CmEvent::AddrResolved) => {
                let timeout = self.remaining(self.config.resolve_timeout, now);
                self.enter(Stage::Route, Action::ResolveRoute { epoch, timeout }, now);
            }
            (Stage::Route, CmEvent::RouteResolved) => {
                self.enter(Stage::QueuePair, Action::CreateQp { epoch }, now);
            }
            (Stage::Connecting, CmEvent::Established(accepted)) => self.accepted(accepted, now),
            (_, CmEvent::AddrError(fault)) => {
                let reason = match fault {
                    AddrFault::NoDevice => ConnectError::NoDevice,
                    AddrFault::NoRoute => ConnectError::NoRoute,
                    AddrFault::TimedOut => ConnectError::AddrSilent,
                    AddrFault::Other => ConnectError::AddrUnresolved,
                };
                self.fail(reason, now);
            }
            (_, CmEvent::RouteError) => self.fail(ConnectError::NoRoute, now),
            (_, CmEvent::RouteSilent) => self.fail(ConnectError::RouteSilent, now),
            (_, CmEvent::ConnectError) => self.fail(ConnectError::Aborted, now),
            (_, CmEvent::Unreachable) => self.fail(ConnectError::Unanswered, now),
            (_, CmEvent::Rejected { stale: true }) => self.fail(ConnectError::Stale, now),
            (_, CmEvent::Rejected { stale: false }) => self.fail(ConnectError::Refused, now),
            (_, CmEvent::Disconnected | CmEvent::TimewaitExit) => {
                self.fail(ConnectError::PeerClosed, now);
            }
            (_, CmEvent::AddrChange) => self.fail(ConnectError::AddrChanged, now),
            (_, CmEvent::DeviceRemoval) => self.fail(ConnectError::DeviceRemoved, now),
            // An answer to a question that is not open changes nothing.
            (_, CmEvent::AddrResolved | CmEvent::RouteResolved) | (_, CmEvent::Established(_)) => {}
        }
    }

    fn accepted(&mut self, accepted: Accepted, now: Time) {
        if accepted.peer_read_depth == Some(0) {
            return self.fail(ConnectError::NoReadCapability, now);
        }
        let outcome = self.version.begin();
        self.negotiated(outcome, now);
    }

    fn negotiated(&mut self, outcome: Outcome, now: Time) {
        match outcome {
            Outcome::Probe => {
                let epoch = self.epoch;
                self.enter(Stage::Negotiating, Action::SendVersionProbe { epoch }, now);
            }
            Outcome::Use(version) => self.establish(version, now),
            Outcome::Reconnect => self.fail(ConnectError::TimedOut, now),
            Outcome::Unsupported => self.fail(ConnectError::VersionUnsupported, now),
            Outcome::Ignored => {}
        }
    }

    fn establish(&mut self, version: Version, now: Time) {
        self.ever_connected = true;
        self.cookie = self.cookie.wrapping_add(1);
        self.inline.connected();
        self.state = State::Up(Up {
            since: now,
            used: now,
            useful: false,
            revoked: None,
            keepalive: self
                .config
                .keepalive
                .map(|config| KeepAlive::new(config, now)),
        });
        self.actions.push(Action::Established {
            epoch: self.epoch,
            cookie: self.cookie,
            version,
        });
    }

    fn local_fault(&mut self, fault: LocalFault, now: Time) {
        let reason = match fault {
            LocalFault::NoResources => ConnectError::NoResources,
            LocalFault::DeviceUnsuitable => ConnectError::NoDevice,
            LocalFault::DeviceGone => ConnectError::DeviceRemoved,
        };
        if let State::Attempt { .. } = self.state {
            self.fail(reason, now);
        }
    }

    fn fail(&mut self, reason: ConnectError, now: Time) {
        self.version.lost();
        self.backoff.failed(now);
        self.last_failure = Some(Failure {
            reason,
            at: now,
            lasted: now.since(self.begun),
        });
        self.state = State::Closing {
            told: false,
            then: Then::Fail(reason),
        };
        let epoch = self.epoch;
        self.actions.push(Action::TearDown { epoch });
    }

    fn remaining(&self, span: Millis, now: Time) -> Millis {
        match self.state {
            State::Attempt { end, .. } => span.min(end.since(now)),
            _ => span,
        }
    }

    // The connection.

    fn up(&mut self, epoch: Epoch) -> Option<&mut Up> {
        match &mut self.state {
            State::Up(up) if epoch == self.epoch => Some(up),
            _ => None,
        }
    }

    fn cm_while_up(&mut self, event: CmEvent, now: Time) {
        let cause = match event {
            CmEvent::Disconnected
            | CmEvent::TimewaitExit
            | CmEvent::ConnectError
            | CmEvent::Unreachable
            | CmEvent::Rejected { .. } => Cause::PeerClosed,
            CmEvent::AddrChange => Cause::AddrChanged,
            CmEvent::DeviceRemoval => Cause::DeviceRemoved,
            CmEvent::AddrResolved
            | CmEvent::AddrError(_)
            | CmEvent::RouteResolved
            | CmEvent::RouteError
            | CmEvent::RouteSilent
            | CmEvent::Established(_) => return,
        };
        self.lose(cause, now);
        self.cm_while_closing(event);
    }

    /// Remembers what tells more about the end of the connection.
    fn cm_while_closing(&mut self, event: CmEvent) {
        if self.disconnecting || !event.is_an_end() {
            return;
        }
        if let Some(lost) = self.history.newest(self.epoch) {
            lost.cm = lost.cm.or(Some(event));
        }
    }

    fn rpc_timeout(&mut self, cookie: u32, now: Time) {
        if cookie != self.cookie {
            return;
        }
        let epoch = self.epoch;
        let State::Up(up) = &mut self.state else {
            return;
        };
        match &mut up.keepalive {
            // If no reply ever came, waiting longer helps nobody (MAL-153).
            Some(keepalive) if up.useful => {
                if let Verdict::Probe = keepalive.probe(now) {
                    self.actions.push(Action::KeepAlive { epoch });
                }
            }
            _ => self.lose(Cause::RpcTimeout, now),
        }
    }

    /// Ends whatever there is: a connection with `cause`, an attempt or a wait as called off.
    fn end(&mut self, cause: Cause, now: Time) {
        if cause == Cause::Idle && self.backchannel {
            return;
        }
        match self.state {
            State::Up(_) => self.lose(cause, now),
            State::Attempt { .. } => {
                let reason = match cause {
                    Cause::DeviceRemoved => ConnectError::DeviceRemoved,
                    Cause::AddrChanged => ConnectError::AddrChanged,
                    Cause::Forced | Cause::Idle | Cause::Closed | Cause::Shutdown => {
                        ConnectError::Cancelled
                    }
                    _ => ConnectError::PeerClosed,
                };
                self.fail(reason, now);
            }
            State::Waiting { .. } => {
                self.state = State::Down;
                self.push_end(ConnectError::Cancelled);
            }
            State::Down | State::Closing { .. } | State::Stopped => {}
        }
    }

    fn lose(&mut self, cause: Cause, now: Time) {
        let State::Up(up) = &self.state else {
            return;
        };
        let revoked = up.revoked.is_some_and(|at| now.since(at) <= REVOKED);
        let cause = if revoked && cause.fits_refused_write() {
            Cause::GivenUpCall
        } else {
            cause
        };
        let epoch = self.epoch;
        self.history.push(Disconnect {
            epoch,
            cause,
            at: now,
            lasted: now.since(up.since),
            useful: up.useful,
            cm: None,
            seen: Seen::default(),
        });
        self.disconnecting = false;
        // See "At once or later" above.
        let at_once = now.since(up.since) >= WORKED || cause.is_our_doing();
        if cause.is_clean() || (up.useful && at_once) {
            self.backoff.closed_cleanly(now);
        } else {
            self.backoff.failed(now);
        }
        self.inline.lost(cause, now);
        self.version.lost();
        self.cookie = self.cookie.wrapping_add(1);
        self.state = State::Closing {
            told: false,
            then: Then::Rest,
        };
        self.actions.push(Action::Disconnect {
            epoch,
            cookie: self.cookie,
            cause,
        });
    }

    // Time.

    fn tick(&mut self, activity: Activity, now: Time) {
        match self.state {
            State::Waiting { timeout } => {
                if now >= self.backoff.not_before() {
                    self.begin(timeout, now);
                }
            }
            State::Attempt {
                stage,
                stage_end,
                end,
            } => {
                if now >= stage_end.min(end) {
                    match stage {
                        Stage::Address => self.fail(ConnectError::AddrSilent, now),
                        Stage::Route => self.fail(ConnectError::RouteSilent, now),
                        Stage::QueuePair => self.fail(ConnectError::TimedOut, now),
                        Stage::Connecting => self.fail(ConnectError::Unanswered, now),
                        Stage::Negotiating => {
                            let outcome = self.version.timed_out();
                            self.negotiated(outcome, now);
                        }
                    }
                }
            }
            State::Up(_) => self.tick_up(activity, now),
            State::Down | State::Closing { .. } | State::Stopped => {}
        }
    }

    fn tick_up(&mut self, activity: Activity, now: Time) {
        let epoch = self.epoch;
        let State::Up(up) = &mut self.state else {
            return;
        };
        // To wait for a reply is to use the connection.
        let used = if activity.busy {
            now
        } else {
            activity.used.min(now)
        };
        up.used = up.used.max(used);
        let verdict = match &mut up.keepalive {
            Some(keepalive) => keepalive.tick(activity, now),
            None => Verdict::Fine,
        };
        match verdict {
            Verdict::Dead => return self.lose(Cause::PeerDead, now),
            Verdict::Probe => self.actions.push(Action::KeepAlive { epoch }),
            Verdict::Fine => {}
        }
        let idle = match &self.state {
            State::Up(up) => self.idle_deadline(up),
            _ => None,
        };
        if idle.is_some_and(|deadline| now >= deadline) {
            self.lose(Cause::Idle, now);
        }
    }

    /// When the connection has been idle for too long, if that can happen at all.
    fn idle_deadline(&self, up: &Up) -> Option<Time> {
        if self.backchannel {
            return None;
        }
        self.config.idle_timeout.map(|idle| up.used.after(idle))
    }

    // The end.

    fn torn_down(&mut self, epoch: Epoch, now: Time) {
        let State::Closing { told: true, then } = self.state else {
            return;
        };
        if epoch != self.epoch {
            return;
        }
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

    /// Whether the mount waits for this attempt, and ends with its error.
    const fn is_first_mount(&self) -> bool {
        self.trial && !self.ever_connected
    }

    fn push_end(&mut self, reason: ConnectError) {
        self.actions.push(Action::Fail {
            error: reason.error(self.is_first_mount()),
            reason,
        });
    }
}
