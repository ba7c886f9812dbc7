// SPDX-License-Identifier: GPL-2.0

//! Random sequences of events for a transport, compared with a model. In one of the tests the
//! simulated driver also breaks the rules for drivers: it reports steps that the transport did not
//! request.

use crate::rig::{
    Rig,
    ACCEPT, //
};
use proptest::{
    prelude::*,
    test_runner::RngAlgorithm::ChaCha,
    test_runner::TestCaseError,
    test_runner::TestRng,
    test_runner::TestRunner, //
};
use xprtrdma_proto::{
    conn::{
        Accepted,
        Action,
        Activity,
        AddrFault,
        Cause,
        CmEvent,
        Config,
        ConnectError,
        Epoch,
        Event,
        LocalFault,
        Phase,
        RpcTimer,
        Seen,
        HISTORY, //
    },
    inbound::RemoteErrorKind,
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::{
        ProbeAnswer,
        VersionPolicy, //
    },
    wc::WcStatus,
    Error, //
};

#[test]
fn random_events_never_break_a_promise() {
    let steps = prop::collection::vec(step(), 0..150);
    let outcome = runner(3000).run(&(policy(), steps), |(version, steps)| {
        let config = Config {
            version,
            ..Config::default()
        };
        let mut rig = Rig::new(config);
        let mut model = Model::default();
        for step in steps {
            rig.advance(step.wait);
            if step.to_deadline {
                rig.now = rig.conn.deadline().unwrap_or(rig.now).max(rig.now);
            }
            let event = step.event(&rig);
            let before = rig.conn.phase();
            let cookie = rig.conn.cookie();
            let epoch = rig.conn.epoch();
            rig.conn.handle(event, rig.now);
            model.check_move(event, before, epoch, &rig)?;
            let after = rig.conn.phase();
            // The connect cookie changes exactly when a connection is established or ends.
            let came_or_went = (before == Phase::Up) != (after == Phase::Up);
            prop_assert_eq!(rig.conn.cookie() != cookie, came_or_went);
            for _ in 0..step.polls {
                match rig.conn.poll_action() {
                    Some(action) => model.perform(action)?,
                    None => break,
                }
            }
            prop_assert!(rig.delay() <= Millis::from_secs(30));
            // All phases except `Down`, `Closing` and `Stopped` have a deadline. The deadline is at
            // most 300 seconds away.
            let waits = !matches!(after, Phase::Down | Phase::Closing | Phase::Stopped);
            match rig.conn.deadline() {
                Some(deadline) => {
                    prop_assert!(waits);
                    prop_assert!(deadline.since(rig.now) <= Millis::from_secs(300));
                }
                None => prop_assert!(!waits),
            }
        }
        for action in rig.drain() {
            model.perform(action)?;
        }
        prop_assert_eq!(
            rig.conn.history().iter().count() as u64,
            model.disconnects.min(HISTORY as u64)
        );
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn every_attempt_ends_in_time_whatever_the_peer_does() {
    // The simulated driver follows the rules for drivers. The peer answers or refuses each step, or
    // stays silent.
    let answers = prop::collection::vec((0..3u8, 0..4_000u64), 0..12);
    let outcome = runner(2000).run(
        &(policy(), answers, 0..80_000u64),
        |(version, answers, asked)| {
            let mut rig = Rig::new(Config {
                version,
                ..Config::default()
            });
            let start = rig.now;
            let mut answers = answers.into_iter();
            let mut todo = rig.event(Event::Start {
                timeout: Some(Millis::new(asked)),
                trial: asked % 2 == 0,
            });
            let bound = Millis::new(asked.clamp(100, 60_000));
            let end = loop {
                let Some(action) = todo.pop() else {
                    // No action is left to perform, so the test advances the time to the deadline.
                    let Some(deadline) = rig.conn.deadline() else {
                        return Err(TestCaseError::fail("no deadline while an attempt waits"));
                    };
                    rig.now = deadline.max(rig.now);
                    todo = rig.tick();
                    continue;
                };
                let epoch = rig.epoch();
                let (yes, no) = match action {
                    Action::ResolveAddr { .. } => {
                        (CmEvent::AddrResolved, CmEvent::AddrError(AddrFault::Other))
                    }
                    Action::ResolveRoute { .. } => (CmEvent::RouteResolved, CmEvent::RouteError),
                    Action::Connect { .. } => (ACCEPT, CmEvent::Rejected { stale: false }),
                    Action::CreateQp { .. } => {
                        todo = rig.event(Event::QpCreated(epoch));
                        continue;
                    }
                    Action::SendVersionProbe { .. } => {
                        (CmEvent::RouteResolved, CmEvent::Disconnected)
                    }
                    Action::TearDown { .. } => {
                        todo = rig.event(Event::TornDown(epoch));
                        continue;
                    }
                    Action::Established { .. } | Action::Fail { .. } => break rig.now,
                    Action::Keepalive { .. } | Action::Disconnect { .. } => {
                        return Err(TestCaseError::fail("an attempt does not disconnect"));
                    }
                };
                let (answer, wait) = answers.next().unwrap_or((0, 0));
                let deadline = rig.conn.deadline().unwrap_or(rig.now);
                let answered = rig.now.after(Millis::new(wait));
                if answer == 0 || answered >= deadline {
                    continue;
                }
                rig.now = answered;
                todo = rig.cm(if answer == 1 { yes } else { no });
            };
            prop_assert!(end.since(start) <= bound);
            prop_assert!(matches!(rig.conn.phase(), Phase::Up | Phase::Down));
            Ok(())
        },
    );
    assert_eq!(outcome, Ok(()));
}

/// The part of the transport's state that a driver can see.
#[derive(Default)]
struct Model {
    /// The attempt or connection whose resources exist.
    live: Option<Epoch>,
    /// Whether the current connection was reported to the RPC layer.
    established: bool,
    /// Whether the driver must tear down the current connection, and has not yet reported that it
    /// has done so.
    ordered: bool,
    /// Whether an attempt was torn down since the RPC layer was last told of a failure.
    failing: bool,
    ever: bool,
    bound: bool,
    disconnects: u64,
    last: u32,
}

impl Model {
    /// Returns the phases that may follow `before` after this event.
    fn check_move(
        &mut self,
        event: Event,
        before: Phase,
        present: Epoch,
        rig: &Rig,
    ) -> Result<(), TestCaseError> {
        let after = rig.conn.phase();
        if let Event::Backchannel { bound } = event {
            self.bound = bound;
        }
        let reported =
            matches!(event, Event::TornDown(epoch) if self.ordered && Some(epoch) == self.live);
        if reported && before == Phase::Closing {
            self.live = None;
            self.ordered = false;
            prop_assert!(after != Phase::Closing);
        } else if before == Phase::Closing {
            prop_assert_eq!(after, Phase::Closing);
        }
        let allowed: &[Phase] = match before {
            Phase::Down => &[Phase::Waiting, Phase::Address, Phase::Stopped],
            Phase::Waiting => &[Phase::Address, Phase::Down, Phase::Stopped],
            Phase::Address => &[Phase::Route, Phase::Closing],
            Phase::Route => &[Phase::QueuePair, Phase::Closing],
            Phase::QueuePair => &[Phase::Connecting, Phase::Closing],
            Phase::Connecting => &[Phase::Negotiating, Phase::Up, Phase::Closing],
            Phase::Negotiating => &[Phase::Up, Phase::Closing],
            Phase::Up => &[Phase::Closing],
            Phase::Closing => &[Phase::Down, Phase::Waiting, Phase::Address, Phase::Stopped],
            Phase::Stopped => &[],
        };
        prop_assert!(after == before || allowed.contains(&after));
        let from_connection = match event {
            Event::Cm(epoch, _)
            | Event::QpCreated(epoch)
            | Event::LocalFault(epoch, _)
            | Event::VersionAnswer(epoch, _)
            | Event::Lost(epoch, _)
            | Event::TornDown(epoch) => Some(epoch),
            _ => None,
        };
        if from_connection.is_some_and(|epoch| epoch != present) {
            prop_assert_eq!(after, before);
        }
        if before == Phase::Up && after == Phase::Closing {
            let cause = rig.conn.history().iter().next().map(|entry| entry.cause);
            prop_assert!(!(self.bound && cause == Some(Cause::Idle)));
        }
        Ok(())
    }

    fn perform(&mut self, action: Action) -> Result<(), TestCaseError> {
        match action {
            Action::ResolveAddr { epoch, timeout } => {
                prop_assert!(timeout <= Millis::from_secs(5));
                if self.live == Some(epoch) {
                    // The request to resolve the address is repeated for the same attempt.
                    prop_assert!(!self.established && !self.ordered);
                    return Ok(());
                }
                prop_assert_eq!(self.live, None);
                prop_assert!(!self.failing || epoch.raw() > self.last);
                prop_assert!(epoch.raw() > self.last);
                self.last = epoch.raw();
                self.live = Some(epoch);
                self.established = false;
            }
            Action::ResolveRoute { epoch, .. }
            | Action::CreateQp { epoch }
            | Action::Connect { epoch, .. }
            | Action::SendVersionProbe { epoch } => {
                prop_assert_eq!(self.live, Some(epoch));
                prop_assert!(!self.established && !self.ordered);
            }
            Action::Established { epoch, .. } => {
                prop_assert_eq!(self.live, Some(epoch));
                prop_assert!(!self.established && !self.ordered);
                self.established = true;
                self.ever = true;
            }
            Action::Keepalive { epoch } => {
                prop_assert_eq!(self.live, Some(epoch));
                prop_assert!(self.established && !self.ordered);
            }
            Action::Disconnect { epoch, .. } => {
                prop_assert_eq!(self.live, Some(epoch));
                prop_assert!(self.established && !self.ordered);
                self.ordered = true;
                self.disconnects += 1;
            }
            Action::TearDown { epoch } => {
                prop_assert_eq!(self.live, Some(epoch));
                prop_assert!(!self.established && !self.ordered);
                self.ordered = true;
                self.failing = true;
            }
            Action::Fail { error, reason } => {
                prop_assert_eq!(self.live, None);
                prop_assert!(self.failing || reason == ConnectError::Cancelled);
                self.failing = false;
                if self.ever {
                    let ends_io = matches!(error, Error::NoDeviceAtMount | Error::RemoteVersion);
                    prop_assert!(!ends_io);
                }
            }
        }
        Ok(())
    }
}

/// One random step of the test.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    wait: u64,
    to_deadline: bool,
    /// Number of actions that the driver takes before the next event.
    polls: u8,
    /// The epoch of the event is the current epoch minus this number. An epoch identifies a
    /// connection attempt and the resulting connection.
    age: u32,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Start(Option<u64>),
    /// The answer for which the current phase waits.
    Answer,
    Cm(CmEvent),
    Fault(LocalFault),
    Version(ProbeAnswer),
    Lost(Cause),
    Close(Cause),
    Replied,
    LargeSend,
    LargeSendTaken,
    Revoked,
    Disconnecting,
    Seen,
    KeepaliveAnswered,
    KeepaliveNotSent,
    RpcTimeout,
    Tick(u64, bool),
    Bound(bool),
    TornDown,
    Shutdown,
}

impl Step {
    fn event(&self, rig: &Rig) -> Event {
        let epoch = Epoch(rig.conn.epoch().raw().wrapping_sub(self.age));
        let cookie = rig.conn.cookie().wrapping_sub(self.age);
        match self.what {
            What::Start(timeout) => Event::Start {
                timeout: timeout.map(Millis::new),
                trial: timeout.is_some(),
            },
            What::Answer => match rig.conn.phase() {
                Phase::Down | Phase::Up | Phase::Stopped => Event::Start {
                    timeout: None,
                    trial: true,
                },
                Phase::Waiting => Event::Tick(Activity::default()),
                Phase::Address => Event::Cm(epoch, CmEvent::AddrResolved),
                Phase::Route => Event::Cm(epoch, CmEvent::RouteResolved),
                Phase::QueuePair => Event::QpCreated(epoch),
                Phase::Connecting => Event::Cm(epoch, ACCEPT),
                Phase::Negotiating => Event::VersionAnswer(epoch, ProbeAnswer::Reply),
                Phase::Closing => Event::TornDown(epoch),
            },
            What::Cm(event) => Event::Cm(epoch, event),
            What::Fault(fault) => Event::LocalFault(epoch, fault),
            What::Version(answer) => Event::VersionAnswer(epoch, answer),
            What::Lost(cause) => Event::Lost(epoch, cause),
            What::Close(cause) => Event::Close(cause),
            What::Replied => Event::Replied(epoch),
            What::LargeSend => Event::LargeSend(epoch),
            What::LargeSendTaken => Event::LargeSendTaken(epoch),
            What::Revoked => Event::MemoryRevoked(epoch),
            What::Disconnecting => Event::Disconnecting(epoch),
            What::Seen => Event::Seen(epoch, Seen::default()),
            What::KeepaliveAnswered => Event::KeepaliveAnswered(epoch),
            What::KeepaliveNotSent => Event::KeepaliveNotSent(epoch),
            What::RpcTimeout => Event::RpcTimeout {
                cookie,
                timer: RpcTimer::default(),
            },
            What::Tick(ago, busy) => {
                let seen = Time::from_millis(rig.now.as_millis().saturating_sub(ago));
                Event::Tick(Activity {
                    last_rx: seen,
                    used: seen,
                    busy,
                })
            }
            What::Bound(bound) => Event::Backchannel { bound },
            What::TornDown => Event::TornDown(epoch),
            What::Shutdown => Event::Shutdown,
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![Just(0), 0..10u64, 0..10_000u64, 0..400_000u64];
    let age = prop_oneof![9 => Just(0u32), 1 => 1..4u32];
    let polls = prop_oneof![6 => Just(20u8), 1 => 0..3u8];
    (wait, prop::bool::weighted(0.2), polls, age, what()).prop_map(
        |(wait, to_deadline, polls, age, what)| Step {
            wait,
            to_deadline,
            polls,
            age,
            what,
        },
    )
}

fn what() -> impl Strategy<Value = What> {
    let cm = prop::sample::select(vec![
        CmEvent::AddrResolved,
        CmEvent::AddrError(AddrFault::NoDevice),
        CmEvent::AddrError(AddrFault::NoRoute),
        CmEvent::AddrError(AddrFault::TimedOut),
        CmEvent::AddrError(AddrFault::Other),
        CmEvent::RouteResolved,
        CmEvent::RouteError,
        CmEvent::RouteSilent,
        ACCEPT,
        CmEvent::Established(Accepted {
            peer_read_depth: Some(0),
        }),
        CmEvent::ConnectError,
        CmEvent::Unreachable,
        CmEvent::Rejected { stale: true },
        CmEvent::Rejected { stale: false },
        CmEvent::Disconnected,
        CmEvent::AddrChange,
        CmEvent::DeviceRemoval,
        CmEvent::TimewaitExit,
    ]);
    let fault = prop::sample::select(vec![
        LocalFault::NoResources,
        LocalFault::DeviceUnsuitable,
        LocalFault::DeviceGone,
    ]);
    let cause = prop::sample::select(vec![
        Cause::Completion(WcStatus::RetryExceeded),
        Cause::PeerClosed,
        Cause::Forced,
        Cause::Idle,
        Cause::Closed,
    ]);
    let answer = prop_oneof![
        Just(ProbeAnswer::Reply),
        Just(ProbeAnswer::Error(RemoteErrorKind::Chunk)),
        (0..4u32, 0..4u32)
            .prop_map(|(low, high)| ProbeAnswer::Error(RemoteErrorKind::Version { low, high })),
    ];
    prop_oneof![
        40 => Just(What::Answer),
        6 => prop::option::of(0..60_000u64).prop_map(What::Start),
        4 => cm.prop_map(What::Cm),
        1 => fault.prop_map(What::Fault),
        3 => answer.prop_map(What::Version),
        2 => cause.clone().prop_map(What::Lost),
        2 => cause.prop_map(What::Close),
        3 => Just(What::Replied),
        2 => Just(What::LargeSend),
        1 => Just(What::LargeSendTaken),
        2 => Just(What::Revoked),
        2 => Just(What::Disconnecting),
        1 => Just(What::Seen),
        2 => Just(What::KeepaliveAnswered),
        1 => Just(What::KeepaliveNotSent),
        2 => Just(What::RpcTimeout),
        10 => (prop_oneof![Just(0), 0..400_000u64], any::<bool>()).prop_map(|(ago, busy)| What::Tick(ago, busy)),
        2 => any::<bool>().prop_map(What::Bound),
        6 => Just(What::TornDown),
        1 => prop::bool::weighted(0.05).prop_map(|stop| if stop { What::Shutdown } else { What::TornDown }),
    ]
}

fn policy() -> impl Strategy<Value = VersionPolicy> {
    prop::sample::select(vec![
        VersionPolicy::V1Only,
        VersionPolicy::PreferV2,
        VersionPolicy::V2Only,
    ])
}

fn runner(cases: u32) -> TestRunner {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(ChaCha, &[0xc0; 32]))
}
