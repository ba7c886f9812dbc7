// SPDX-License-Identifier: GPL-2.0

//! The connection's state machine as the driver sees it ([`Conn`]).

use super::{
    action::{
        Action,
        Phase, //
    },
    config::{
        Config,
        RailFacts, //
    },
    event::{
        Epoch,
        Event, //
    },
    history::{
        Failure,
        History, //
    },
    machine::Machine, //
};
use crate::{
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::{
        Known,
        VersionPolicy, //
    }, //
};

/// The state machine of one transport's connections. It takes events, and returns actions and
/// deadlines.
///
/// # How to drive it
///
/// `Conn` is behind one lock of the driver, in a [`Mailbox`](super::Mailbox). After **every**
/// [`Conn::handle`] the driver
///
/// 1. takes the actions with [`Conn::poll_action`] until no action is left,
/// 2. performs the actions in that order outside the lock,
/// 3. sets its timer to [`Conn::deadline`]. When the timer fires, the driver delivers
///    [`Event::Tick`].
///
/// Nothing else changes the state machine.
///
/// One attempt runs in a worker that may sleep:
///
/// | Action of the machine               | Response of the driver                                |
/// |-------------------------------------|-------------------------------------------------------|
/// | (the RPC layer wants a connection)  | [`Event::Start`]                                      |
/// | [`Action::ResolveAddr`]             | [`CmEvent::AddrResolved`], [`CmEvent::AddrError`]     |
/// | [`Action::ResolveRoute`]            | [`CmEvent::RouteResolved`], [`CmEvent::RouteError`]   |
/// | [`Action::CreateQp`]                | [`Event::QpCreated`] (Receives are posted), or        |
/// |                                     | [`Event::LocalFault`]                                 |
/// | [`Action::Connect`]                 | [`CmEvent::Established`], [`CmEvent::Rejected`], ...  |
/// | [`Action::SendVersionProbe`]        | [`Event::VersionAnswer`]; only if version 2 is        |
/// |                                     | allowed                                               |
/// | [`Action::Established`]             | tells the RPC layer; the attempt is over              |
/// | [`Action::TearDown`]                | releases everything of the attempt,                   |
/// |                                     | [`Event::TornDown`]                                   |
/// | [`Action::Fail`]                    | wakes the RPC tasks with the error; the attempt is    |
/// |                                     | over                                                  |
///
/// An attempt ends with `Established`, or with `TearDown` and then `Fail`. If no `Fail` follows a
/// `TearDown`, the attempt goes on with another connection: the peer made the version negotiation
/// fail, or the path to the peer may have changed. At the deadline of the attempt at the latest,
/// either the attempt has ended, or the state machine has requested the tear-down.
///
/// An established connection ends with exactly one [`Action::Disconnect`], which carries the cause.
/// The driver then stops using the queue pair, drains it and reports [`Event::TornDown`]. Until
/// that report no new attempt starts, so two connections are never in use at the same time.
///
/// # Epochs and cookies
///
/// Every connection of an attempt gets a new [`Epoch`], and each event of the connection carries
/// this epoch; an event of another epoch is stale and changes nothing. [`Conn::cookie`] is for
/// `xprt->connect_cookie`: the cookie changes when a connection is established and when a
/// connection is lost, and at no other time.
///
/// [`CmEvent::AddrResolved`]: super::CmEvent::AddrResolved
/// [`CmEvent::AddrError`]: super::CmEvent::AddrError
/// [`CmEvent::RouteResolved`]: super::CmEvent::RouteResolved
/// [`CmEvent::RouteError`]: super::CmEvent::RouteError
/// [`CmEvent::Established`]: super::CmEvent::Established
/// [`CmEvent::Rejected`]: super::CmEvent::Rejected
#[derive(Clone, Debug)]
pub struct Conn {
    machine: Machine,
}

impl Conn {
    /// Makes the state machine of a transport without a connection. `seed` decides the jitter of
    /// the back-off.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            machine: Machine::new(config, seed),
        }
    }

    /// Handles an event that happened at `now`. Afterwards the caller must take the actions.
    pub fn handle(&mut self, event: Event, now: Time) {
        let machine = &mut self.machine;
        if event.epoch().is_some_and(|epoch| epoch != machine.epoch()) {
            return;
        }
        match event {
            Event::Start { timeout, trial } => machine.start(timeout, trial, now),
            Event::Tick(activity) => machine.tick(activity, now),
            Event::Cm(_, event) => machine.cm(event, now),
            Event::QpCreated(_) => machine.qp_created(now),
            Event::LocalFault(_, fault) => machine.local_fault(fault, now),
            Event::VersionAnswer(_, answer) => machine.version_answer(answer, now),
            Event::Replied(_) => machine.replied(),
            Event::LargeSend(_) => machine.large_send(now),
            Event::LargeSendTaken(_) => machine.large_send_taken(),
            Event::MemoryRevoked(_) => machine.memory_revoked(now),
            Event::KeepaliveAnswered(_) => machine.probe_answered(now),
            Event::KeepaliveNotSent(_) => machine.probe_not_sent(),
            Event::Lost(_, cause) => machine.lost(cause, now),
            Event::RpcTimeout { cookie, timer } => machine.rpc_timeout(cookie, timer, now),
            Event::Close(cause) => machine.end(cause, now),
            Event::Backchannel { bound } => machine.bind_backchannel(bound),
            Event::Disconnecting(_) => machine.disconnecting(),
            Event::Seen(epoch, seen) => machine.seen(epoch, seen),
            Event::TornDown(_) => machine.torn_down(now),
            Event::Shutdown => machine.shutdown(now),
        }
    }

    /// Returns the next action. The driver must perform the actions in the order in which this
    /// function returns them.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.machine.poll_action()
    }

    /// Returns the time at which [`Event::Tick`] must be delivered at the latest, or `None` if
    /// there is no limit.
    pub fn deadline(&self) -> Option<Time> {
        self.machine.deadline()
    }

    /// Lowers the time limits of an attempt and of the back-off, as `set_connect_timeout` asks
    /// (pNFS). A value above the present limit changes nothing.
    pub fn limit_timeouts(&mut self, connect: Millis, reconnect: Millis) {
        self.machine.limit_timeouts(connect, reconnect);
    }

    /// Sets what the driver knows about the rail that the next attempt takes.
    pub fn take_rail_facts(&mut self, facts: RailFacts) {
        self.machine.take_rail_facts(facts);
    }

    /// Sets what is known about the server's support for version 2. `known` combines the knowledge
    /// of all transports to the server. Must be called before an attempt (V2-12).
    pub fn learn_version(&mut self, known: Known) {
        self.machine.learn_version(known);
    }

    /// Returns the state of the transport, for logs and debugfs.
    pub const fn phase(&self) -> Phase {
        self.machine.state().phase()
    }

    /// Returns whether the state machine has requested the end of the connection `epoch`, and the
    /// driver has not yet reported that end.
    ///
    /// If the caller requests the end after this call, it must hold the driver's lock from this
    /// call until the request. Otherwise the next connection could begin in between, and the
    /// request would end the next connection.
    #[inline]
    pub fn is_ending(&self, epoch: Epoch) -> bool {
        epoch == self.epoch() && self.machine.state().is_closing()
    }

    /// Returns the epoch of the present or the last attempt.
    #[inline]
    pub const fn epoch(&self) -> Epoch {
        self.machine.epoch()
    }

    /// Returns a number that changes whenever a connection is established or lost.
    #[inline]
    pub const fn cookie(&self) -> u32 {
        self.machine.cookie()
    }

    /// Returns the connections that ended, for debugfs.
    pub const fn history(&self) -> &History {
        self.machine.peer().history()
    }

    /// Returns the last failed attempt.
    pub const fn last_failure(&self) -> Option<Failure> {
        self.machine.peer().last_failure()
    }

    /// Returns the number of failures in a row since the last reply.
    pub const fn failures(&self) -> u32 {
        self.machine.peer().failures()
    }

    /// Returns which protocol versions may be used.
    pub const fn version_policy(&self) -> VersionPolicy {
        self.machine.config().version
    }

    /// Returns what is known about the peer's support for version 2.
    pub const fn version_known(&self) -> Known {
        self.machine.peer().version.known()
    }

    /// Returns the idle time after which a connection without a backchannel is closed. `None` means
    /// that such a connection is never closed.
    pub const fn idle_timeout(&self) -> Option<Millis> {
        self.machine.config().idle_timeout
    }
}
