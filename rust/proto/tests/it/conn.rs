// SPDX-License-Identifier: GPL-2.0

//! Tests of connection attempts: steps, failures, time limits, back-off and versions.

use crate::rig::{
    Rig,
    ACCEPT, //
};
use xprtrdma_proto::{
    conn::{
        Accepted,
        Action,
        AddrFault,
        Backoff,
        BackoffConfig,
        Blame,
        Cause,
        CmEvent,
        Config,
        ConnectError,
        Epoch,
        Event,
        Failure,
        LocalFault,
        Phase,
        MIN_CONNECT_TIMEOUT, //
    },
    inbound::RemoteErrorKind,
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::{
        Known,
        ProbeAnswer,
        VersionPolicy, //
    },
    wc::WcStatus,
    Error,
    Version, //
};

#[test]
fn an_attempt_goes_step_by_step() {
    let mut rig = Rig::new(Config::default());
    assert_eq!(rig.conn.phase(), Phase::Down);
    assert_eq!(rig.conn.deadline(), None);
    let actions = rig.event(Event::Start {
        timeout: None,
        trial: true,
    });
    let epoch = rig.epoch();
    let timeout = Config::default().address_timeout;
    assert_eq!(actions, [Action::ResolveAddr { epoch, timeout }]);
    assert_eq!(rig.conn.phase(), Phase::Address);
    let actions = rig.cm(CmEvent::AddrResolved);
    let timeout = Millis::from_secs(5);
    assert_eq!(actions, [Action::ResolveRoute { epoch, timeout }]);
    assert_eq!(rig.conn.phase(), Phase::Route);
    let actions = rig.cm(CmEvent::RouteResolved);
    assert_eq!(actions, [Action::CreateQp { epoch }]);
    assert_eq!(rig.conn.phase(), Phase::QueuePair);
    let actions = rig.event(Event::QpCreated(epoch));
    assert_eq!(
        actions,
        [Action::Connect {
            epoch,
            inline_cap: None
        }]
    );
    assert_eq!(rig.conn.phase(), Phase::Connecting);
    assert!(!rig.is_up(epoch));
    let cookie = rig.conn.cookie();
    let actions = rig.cm(ACCEPT);
    assert_eq!(
        actions,
        [Action::Established {
            epoch,
            cookie: rig.conn.cookie(),
            version: Version::V1
        }]
    );
    assert!(cookie != rig.conn.cookie());
    assert_eq!(rig.conn.phase(), Phase::Up);
    assert!(rig.is_up(epoch));
}

#[test]
fn the_numbers_of_attempts_begin_anew_without_that_of_no_connection() {
    let mut rig = Rig::new(Config::default());
    assert_eq!(rig.epoch(), Epoch::NONE);
    rig.reach(Phase::Address);
    assert_eq!(rig.epoch(), Epoch::NONE.next());
    let last = Epoch(u32::MAX);
    assert_eq!(Epoch(u32::MAX - 1).next(), last);
    assert_eq!(last.next(), Epoch(1));
}

// covers: MAL-151, MAL-154
#[test]
fn every_failure_releases_everything_and_then_reports() {
    use CmEvent as Cm;
    // Columns: the report of the connection manager, the reason of the failure, the errno if the
    // attempt is made for a first mount, and the errno otherwise.
    for (event, reason, first, later) in [
        (
            Cm::AddrError(AddrFault::NoDevice),
            ConnectError::NoDevice,
            19,
            101,
        ),
        (
            Cm::AddrError(AddrFault::NoRoute),
            ConnectError::NoRoute,
            113,
            113,
        ),
        (
            Cm::AddrError(AddrFault::Other),
            ConnectError::AddrUnresolved,
            113,
            113,
        ),
        (Cm::RouteError, ConnectError::NoRoute, 113, 113),
        (Cm::RouteSilent, ConnectError::RouteSilent, 113, 110),
        (Cm::ConnectError, ConnectError::Aborted, 107, 107),
        (
            Cm::Rejected { stale: false },
            ConnectError::Refused,
            111,
            111,
        ),
        (Cm::Rejected { stale: true }, ConnectError::Stale, 107, 107),
        (Cm::Disconnected, ConnectError::PeerClosed, 107, 107),
        (Cm::TimewaitExit, ConnectError::PeerClosed, 107, 107),
        (Cm::AddrChange, ConnectError::AddrChanged, 107, 107),
        (Cm::DeviceRemoval, ConnectError::DeviceRemoved, 101, 101),
    ] {
        for stage in Rig::STAGES {
            check_failure(stage, |epoch| Event::Cm(epoch, event), reason, first, later);
        }
    }
    for (fault, reason, first, later) in [
        (LocalFault::NoResources, ConnectError::NoResources, 105, 105),
        (LocalFault::Refused(-22), ConnectError::HostFault, 113, 113),
        (
            LocalFault::DeviceUnsuitable,
            ConnectError::NoDevice,
            19,
            101,
        ),
        (
            LocalFault::DeviceGone,
            ConnectError::DeviceRemoved,
            101,
            101,
        ),
    ] {
        for stage in Rig::STAGES {
            check_failure(
                stage,
                |epoch| Event::LocalFault(epoch, fault),
                reason,
                first,
                later,
            );
        }
    }
    let unreadable = Cm::Established(Accepted {
        peer_read_depth: Some(0),
    });
    check_failure(
        Phase::Connecting,
        |epoch| Event::Cm(epoch, unreadable),
        ConnectError::NoReadCapability,
        93,
        111,
    );
}

#[test]
fn any_read_capability_will_do() {
    for peer_read_depth in [None, Some(1), Some(255)] {
        let mut rig = Rig::new(Config::default());
        rig.reach(Phase::Connecting);
        rig.cm(CmEvent::Established(Accepted { peer_read_depth }));
        assert_eq!(rig.conn.phase(), Phase::Up);
    }
}

#[test]
fn only_errors_that_are_retried_reach_a_mounted_client() {
    // The errors after which `call_connect_status` tries again. Depending on the error, it does so
    // immediately, after a quarter of a second, or after three seconds.
    let retried = [
        Error::Disconnected,
        Error::TimedOut,
        Error::NoBuffers,
        Error::Refused,
        Error::Unreachable,
        Error::NoDevice,
    ];
    for reason in ALL_REASONS {
        assert!(retried.contains(&reason.error(false)));
        let first = reason.error(true);
        let ends_the_mount = matches!(first, Error::NoDeviceAtMount | Error::RemoteVersion);
        assert!(ends_the_mount || retried.contains(&first));
    }
}

// The connection manager may miss an answer to address resolution that arrives immediately. It then
// reports the answer only when the time limit of the request ends. So each request has a short time
// limit, and the request is repeated until the time limit of the attempt ends.
#[test]
fn the_address_is_asked_for_again() {
    let silent = CmEvent::AddrError(AddrFault::TimedOut);
    for asked in [5_000u64, 1_200] {
        let mut rig = Rig::new(Config::default());
        let timeout = Some(Millis::new(asked));
        let trial = false;
        let mut actions = rig.event(Event::Start { timeout, trial });
        let (epoch, mut left) = (rig.epoch(), asked);
        while left > 0 {
            let timeout = Millis::new(left.min(500));
            assert_eq!(actions, [Action::ResolveAddr { epoch, timeout }]);
            left -= timeout.get();
            rig.advance(timeout.get());
            actions = rig.cm(silent);
        }
        assert_eq!(actions, [Action::TearDown { epoch }]);
        let actions = rig.event(Event::TornDown(epoch));
        let reason = ConnectError::AddrSilent;
        assert!(matches!(actions[..], [Action::Fail { reason: told, .. }] if told == reason));
    }
    // An answer to a repeated request counts as well. After an answer has arrived, the request is
    // not repeated.
    let mut rig = Rig::new(Config::default());
    rig.reach(Phase::Address);
    rig.advance(500);
    rig.cm(silent);
    let actions = rig.cm(CmEvent::AddrResolved);
    assert!(matches!(actions[..], [Action::ResolveRoute { .. }]));
    let epoch = rig.epoch();
    assert_eq!(rig.cm(silent), [Action::TearDown { epoch }]);
}

#[test]
fn every_wait_of_an_attempt_is_bounded() {
    let config = Config {
        connect_timeout: Millis::from_secs(8),
        version: VersionPolicy::V2Only,
        ..Config::default()
    };
    for (stage, bound, reason) in [
        (Phase::Address, 5_000, ConnectError::AddrSilent),
        (Phase::Route, 5_000, ConnectError::RouteSilent),
        (Phase::QueuePair, 8_000, ConnectError::TimedOut),
        (Phase::Connecting, 8_000, ConnectError::Unanswered),
        (Phase::Negotiating, 5_000, ConnectError::VersionSilent),
    ] {
        let mut rig = Rig::new(config);
        rig.trial = false;
        rig.reach(stage);
        assert_eq!(rig.conn.phase(), stage);
        assert_eq!(rig.conn.deadline(), Some(rig.now.after(Millis::new(bound))));
        rig.advance(bound - 1);
        assert_eq!(rig.tick(), []);
        rig.advance(1);
        let epoch = rig.epoch();
        assert_eq!(rig.tick(), [Action::TearDown { epoch }]);
        assert_eq!(
            rig.event(Event::TornDown(epoch)),
            [Action::Fail {
                error: Error::TimedOut,
                reason
            }]
        );
        assert_eq!(rig.conn.phase(), Phase::Down);
    }
}

// If a connection request is not answered, a first mount gives up after a short time. If the
// transport was connected before, or if the caller never gives up, the attempt lasts until its
// usual time limit.
#[test]
fn a_silent_server_ends_a_first_mount_soon_and_nothing_else() {
    for (trial, connected) in [(true, false), (true, true), (false, false), (false, true)] {
        let first = trial && !connected;
        for (stage, bound, reason) in [
            (Phase::Address, 5_000, ConnectError::AddrSilent),
            (Phase::Route, 5_000, ConnectError::RouteSilent),
            (
                Phase::Connecting,
                if first { 15_000 } else { 60_000 },
                ConnectError::Unanswered,
            ),
        ] {
            let mut rig = Rig::new(Config::default());
            if connected {
                rig.connect();
                rig.event(Event::Close(Cause::Closed));
                rig.event(Event::TornDown(rig.epoch()));
            }
            rig.trial = trial;
            rig.reach(stage);
            // A second caller, which waits without a limit, joins the attempt. The second caller
            // does not change the attempt.
            rig.event(Event::Start {
                timeout: None,
                trial: false,
            });
            let begin = rig.now;
            while rig.conn.phase() == stage {
                assert!(rig.conn.deadline().is_some());
                rig.now = rig.conn.deadline().unwrap_or(rig.now);
                rig.tick();
            }
            assert_eq!(rig.now.since(begin), Millis::new(bound));
            let lasted = rig.conn.last_failure().map(|last| last.lasted);
            assert_eq!(lasted, Some(Millis::new(bound)));
            let error = if first {
                Error::Unreachable
            } else {
                Error::TimedOut
            };
            assert_eq!(
                rig.event(Event::TornDown(rig.epoch())),
                [Action::Fail { error, reason }]
            );
        }
    }
}

// The time limit of the next attempt is the limit of the caller that requests the attempt.
#[test]
fn each_attempt_is_for_who_asked_for_it() {
    let mut rig = Rig::new(Config::default());
    for trial in [true, false, true] {
        rig.trial = trial;
        rig.reach(Phase::Connecting);
        rig.cm(CmEvent::RouteSilent);
        let actions = rig.event(Event::TornDown(rig.epoch()));
        assert_eq!(errnos(&actions), [if trial { -113 } else { -110 }]);
    }
}

#[test]
fn the_callers_timeout_bounds_the_whole_attempt() {
    for (asked, bound) in [
        (None, 60_000),
        (Some(90_000), 60_000),
        (Some(2_000), 2_000),
        (Some(0), MIN_CONNECT_TIMEOUT.get()),
    ] {
        let mut rig = Rig::new(Config::default());
        let start = rig.now;
        let timeout = asked.map(Millis::new);
        let actions = rig.event(Event::Start {
            timeout,
            trial: false,
        });
        let epoch = rig.epoch();
        let timeout = Millis::new(bound.min(500));
        assert_eq!(actions, [Action::ResolveAddr { epoch, timeout }]);
        // Address resolution takes half of its time limit. Route resolution gets the remaining time
        // of the attempt, up to five seconds.
        let timeout = Millis::new(bound.min(5_000));
        rig.advance(timeout.get() / 2);
        let left = Millis::new((bound - timeout.get() / 2).min(5_000));
        let actions = rig.cm(CmEvent::AddrResolved);
        assert_eq!(
            actions,
            [Action::ResolveRoute {
                epoch,
                timeout: left
            }]
        );
        rig.cm(CmEvent::RouteResolved);
        rig.event(Event::QpCreated(epoch));
        assert_eq!(rig.conn.phase(), Phase::Connecting);
        assert_eq!(rig.conn.deadline(), Some(start.after(Millis::new(bound))));
    }
}

#[test]
fn timeouts_can_only_be_lowered() {
    let mut rig = Rig::new(Config::default());
    rig.conn
        .limit_timeouts(Millis::from_secs(90), Millis::from_secs(90));
    assert_eq!(rig.start_bound(), 60_000);
    let mut rig = Rig::new(Config::default());
    rig.conn
        .limit_timeouts(Millis::from_secs(6), Millis::from_secs(2));
    assert_eq!(rig.start_bound(), 6_000);
    let mut rig = Rig::new(Config::default());
    rig.conn
        .limit_timeouts(Millis::from_secs(4), Millis::from_secs(2));
    for _ in 0..10 {
        rig.fail_once();
        assert!(rig.delay() <= Millis::from_secs(2));
    }
    assert!(rig.delay() >= Millis::from_secs(1));
}

#[test]
fn the_delay_doubles_with_jitter_up_to_its_maximum() {
    for seed in 0..50 {
        let mut backoff = Backoff::new(BackoffConfig::default(), seed);
        let now = Time::from_millis(1_000_000);
        assert_eq!(backoff.not_before().since(now), Millis::default());
        for ceiling in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            backoff.failed(now);
            let delay = backoff.not_before().since(now).get();
            assert!(delay >= ceiling / 2 && delay <= ceiling);
        }
        // After many failures the delay does not overflow and stays at the maximum.
        for _ in 0..100 {
            backoff.failed(now);
            assert!(backoff.not_before().since(now) <= Millis::from_secs(30));
        }
        backoff.useful();
        backoff.failed(now);
        assert!(backoff.not_before().since(now) <= Millis::new(500));
        backoff.closed_cleanly(now);
        assert_eq!(backoff.not_before(), now);
        assert_eq!(backoff.failures(), 1);
    }
}

#[test]
fn clients_do_not_come_back_together() {
    let now = Time::from_millis(0);
    let delays: Vec<u64> = (0..64)
        .map(|seed| {
            let mut backoff = Backoff::new(BackoffConfig::default(), seed);
            backoff.failed(now);
            backoff.not_before().as_millis()
        })
        .collect();
    let mut distinct = delays.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 32);
    assert!(delays.iter().any(|&d| d < 310) && delays.iter().any(|&d| d > 440));
    // The configuration may request a delay of zero.
    let none = BackoffConfig {
        first: Millis::default(),
        max: Millis::default(),
    };
    let mut backoff = Backoff::new(none, 1);
    backoff.failed(now);
    assert_eq!(backoff.not_before(), now);
    let endless = BackoffConfig {
        first: Millis::new(u64::MAX),
        max: Millis::new(u64::MAX),
    };
    let mut backoff = Backoff::new(endless, 1);
    backoff.failed(now);
    assert!(backoff.not_before().as_millis() >= u64::MAX / 2);
}

// covers: MAL-152
#[test]
fn a_peer_that_accepts_and_drops_is_approached_ever_more_slowly() {
    let mut rig = Rig::new(Config::default());
    let mut floor = 250;
    for round in 1..=7 {
        rig.connect();
        rig.advance(1);
        rig.cm(CmEvent::Disconnected);
        rig.event(Event::TornDown(rig.epoch()));
        assert_eq!(rig.conn.failures(), round);
        assert!(rig.delay().get() >= floor);
        floor = (floor * 2).min(15_000);
    }
    // After one reply, the number of failures in a row is zero again.
    rig.connect();
    rig.event(Event::Replied(rig.epoch()));
    assert_eq!(rig.conn.failures(), 0);
    rig.cm(CmEvent::Disconnected);
    assert!(rig.delay() <= Millis::new(500));
}

#[test]
fn what_is_told_late_of_the_last_connection_ends_no_wait() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let last = rig.epoch();
    rig.cm(CmEvent::Disconnected);
    rig.event(Event::TornDown(last));
    rig.event(Event::Start {
        timeout: None,
        trial: true,
    });
    assert_eq!(rig.conn.phase(), Phase::Waiting);
    assert_eq!(rig.event(Event::Lost(last, Cause::InvalidateFailed)), []);
    assert_eq!(rig.conn.phase(), Phase::Waiting);
}

// covers: MAL-150
#[test]
fn an_attempt_waits_for_the_back_off() {
    let mut rig = Rig::new(Config::default());
    rig.fail_once();
    let delay = rig.delay().get();
    let last = rig.epoch();
    assert_eq!(
        rig.event(Event::Start {
            timeout: None,
            trial: true
        }),
        []
    );
    assert_eq!(rig.conn.phase(), Phase::Waiting);
    assert_eq!(rig.conn.deadline(), Some(rig.now.after(Millis::new(delay))));
    rig.advance(delay - 1);
    assert_eq!(rig.tick(), []);
    rig.advance(1);
    assert!(matches!(rig.tick()[..], [Action::ResolveAddr { .. }]));
    assert!(rig.epoch() != last);
    // The time limit of the attempt starts when address resolution starts, and not at the beginning
    // of the delay.
    rig.cm(CmEvent::AddrResolved);
    rig.cm(CmEvent::RouteResolved);
    assert_eq!(
        rig.conn.deadline(),
        Some(rig.now.after(Config::default().connect_timeout))
    );
}

#[test]
fn answers_to_closed_questions_change_nothing() {
    for stage in Rig::STAGES {
        let mut rig = Rig::new(Config::default());
        rig.reach(stage);
        let epoch = rig.epoch();
        let answers = [
            (Phase::Address, Event::Cm(epoch, CmEvent::AddrResolved)),
            (Phase::Route, Event::Cm(epoch, CmEvent::RouteResolved)),
            (Phase::QueuePair, Event::QpCreated(epoch)),
            (Phase::Connecting, Event::Cm(epoch, ACCEPT)),
            (
                Phase::Negotiating,
                Event::VersionAnswer(epoch, ProbeAnswer::Reply),
            ),
            (Phase::Closing, Event::TornDown(epoch)),
        ];
        for (belongs_to, answer) in answers {
            if belongs_to != stage {
                assert_eq!(rig.event(answer), []);
                assert_eq!(rig.conn.phase(), stage);
            }
        }
    }
}

#[test]
fn nothing_starts_before_the_old_connection_is_released() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let old = rig.epoch();
    rig.event(Event::Replied(old));
    rig.event(Event::Close(Cause::Closed));
    assert_eq!(
        rig.event(Event::Start {
            timeout: None,
            trial: true
        }),
        []
    );
    assert_eq!(rig.conn.phase(), Phase::Closing);
    let actions = rig.event(Event::TornDown(old));
    let epoch = rig.epoch();
    assert!(epoch != old);
    let timeout = Config::default().address_timeout;
    assert_eq!(actions, [Action::ResolveAddr { epoch, timeout }]);
}

#[test]
fn a_report_before_the_order_does_not_count() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let epoch = rig.epoch();
    rig.conn
        .handle(Event::Cm(epoch, CmEvent::Disconnected), rig.now);
    rig.conn.handle(Event::TornDown(epoch), rig.now);
    assert_eq!(rig.conn.phase(), Phase::Closing);
    assert_eq!(rig.drain().len(), 1);
    rig.event(Event::TornDown(epoch));
    assert_eq!(rig.conn.phase(), Phase::Down);
}

// covers: V2-04, V2-05
#[test]
fn the_version_is_settled_before_the_connection_is_used() {
    let range = |low, high| ProbeAnswer::Error(RemoteErrorKind::Version { low, high });
    for (answer, outcome) in [
        (ProbeAnswer::Reply, Ok(Version::V2)),
        (range(1, 1), Ok(Version::V1)),
        (range(1, 2), Ok(Version::V1)),
        (range(3, 9), Err(ConnectError::VersionUnsupported)),
        (range(2, 2), Err(ConnectError::VersionUnsupported)),
    ] {
        let mut rig = Rig::v2();
        rig.reach(Phase::Connecting);
        let epoch = rig.epoch();
        // Only the probe is sent, and the RPC layer does not learn of the connection yet.
        assert_eq!(rig.cm(ACCEPT), [Action::SendVersionProbe { epoch }]);
        assert!(!rig.is_up(epoch));
        let actions = rig.event(Event::VersionAnswer(epoch, answer));
        match outcome {
            // The probe is sent on the same connection, without another attempt.
            Ok(version) => assert_eq!(
                actions,
                [Action::Established {
                    epoch,
                    cookie: rig.conn.cookie(),
                    version
                }]
            ),
            Err(expected) => {
                assert_eq!(actions, [Action::TearDown { epoch }]);
                let actions = rig.event(Event::TornDown(epoch));
                assert!(matches!(
                    actions[..],
                    [Action::Fail { reason, .. }] if reason == expected
                ));
            }
        }
        assert_eq!(rig.epoch(), epoch);
    }
    // If a connection ends with one of these causes, the end says nothing about the peer. So the
    // next connection sends a probe again.
    for end in [CmEvent::DeviceRemoval, CmEvent::AddrChange] {
        let mut rig = Rig::v2();
        rig.reach(Phase::Negotiating);
        rig.cm(end);
        rig.event(Event::TornDown(rig.epoch()));
        rig.reach(Phase::Negotiating);
    }
    // If the peer's adapter does not acknowledge the probe, the rail is to blame, and the next
    // connection sends a probe again.
    let mut rig = Rig::v2();
    rig.reach(Phase::Negotiating);
    let silent = Cause::Completion(WcStatus::RetryExceeded);
    rig.event(Event::Lost(rig.epoch(), silent));
    let actions = rig.event(Event::TornDown(rig.epoch()));
    let reason = ConnectError::Unanswered;
    assert!(matches!(actions[..], [Action::Fail { reason: told, .. }] if told == reason));
    assert_eq!(reason.blame(), Blame::Silence);
    assert_eq!(rig.conn.version_known(), Known::Nothing);
    rig.reach(Phase::Negotiating);
    // If the version is refused and the connection is then lost, the next connection starts with
    // version 1.
    let mut rig = Rig::v2();
    rig.reach(Phase::Negotiating);
    rig.event(Event::VersionAnswer(rig.epoch(), range(1, 1)));
    rig.cm(CmEvent::Disconnected);
    begins_with_v1(&mut rig);
}

/// A function that ends a version negotiation, for example by an error message or by a lost
/// connection.
type End = fn(&mut Rig) -> Vec<Action>;

// A peer that is silent, closes the connection, or answers with an error other than ERR_VERS may be
// unable to handle version 2. So the attempt that sent the probe continues with version 1. A
// preference for version 2 must not make a mount fail.
#[test]
fn an_attempt_whose_probe_is_not_answered_goes_on_with_version_1() {
    let ends: [(End, bool); 6] = [
        (|rig| rig.cm(CmEvent::Disconnected), true),
        (
            |rig| {
                rig.event(Event::Lost(
                    rig.epoch(),
                    Cause::Completion(WcStatus::Flushed),
                ))
            },
            true,
        ),
        (
            |rig| {
                rig.advance(5_000);
                rig.tick()
            },
            true,
        ),
        (
            |rig| {
                let answer = ProbeAnswer::Error(RemoteErrorKind::Chunk);
                rig.event(Event::VersionAnswer(rig.epoch(), answer))
            },
            true,
        ),
        (|rig| rig.cm(CmEvent::DeviceRemoval), false),
        (|rig| rig.event(Event::Close(Cause::Forced)), false),
    ];
    for (end, goes_on) in ends {
        let mut rig = Rig::v2();
        let begun = rig.now;
        rig.reach(Phase::Negotiating);
        let epoch = rig.epoch();
        assert_eq!(end(&mut rig), [Action::TearDown { epoch }]);
        let actions = rig.event(Event::TornDown(epoch));
        if !goes_on {
            assert!(matches!(actions[..], [Action::Fail { .. }]));
            continue;
        }
        assert!(matches!(actions[..], [Action::ResolveAddr { .. }]));
        assert_eq!(rig.conn.failures(), 0);
        rig.cm(CmEvent::AddrResolved);
        rig.cm(CmEvent::RouteResolved);
        rig.event(Event::QpCreated(rig.epoch()));
        // The time limit of the attempt applies to the connection for the probe and to the
        // following connection together.
        let bound = begun.after(Config::default().connect_timeout);
        assert!(rig.conn.deadline() <= Some(bound));
        let actions = rig.cm(ACCEPT);
        assert!(matches!(
            actions[..],
            [Action::Established {
                version: Version::V1,
                ..
            }]
        ));
    }
    // Only version 2 is allowed, so the attempt fails.
    let mut rig = Rig::new(Config {
        version: VersionPolicy::V2Only,
        ..Config::default()
    });
    rig.reach(Phase::Negotiating);
    rig.cm(CmEvent::Disconnected);
    let actions = rig.event(Event::TornDown(rig.epoch()));
    assert!(matches!(actions[..], [Action::Fail { .. }]));
}

// With several rails, an attempt may end before the usual time limit of the probe. Even then the
// attempt has enough time for version 1 after the probe. This is also true if the connection
// request took long.
#[test]
fn a_short_attempt_leaves_time_for_version_1() {
    for (limit, takes) in [(4_000, 0), (4_000, 3_000), (10_000, 0), (10_000, 9_000)] {
        let mut rig = Rig::v2();
        let end = rig.now.after(Millis::new(limit));
        rig.event(Event::Start {
            timeout: Some(Millis::new(limit)),
            trial: true,
        });
        rig.reach(Phase::Connecting);
        rig.advance(takes);
        rig.cm(ACCEPT);
        assert_eq!(rig.conn.phase(), Phase::Negotiating);
        let probed = rig.now;
        rig.now = rig.conn.deadline().unwrap();
        let left = limit - takes;
        let waited = rig.now.since(probed);
        assert_eq!(waited, Millis::new((left / 2).min(5_000)));
        let epoch = rig.epoch();
        assert_eq!(rig.tick(), [Action::TearDown { epoch }]);
        begins_with_v1(&mut rig);
        assert!(rig.now < end);
    }
}

#[test]
fn a_peer_that_refuses_what_it_agreed_to_is_asked_again_or_gets_version_1() {
    for answered in [true, false] {
        let mut rig = Rig::v2();
        rig.reach(Phase::Negotiating);
        rig.event(Event::VersionAnswer(rig.epoch(), ProbeAnswer::Reply));
        if answered {
            rig.event(Event::Replied(rig.epoch()));
        }
        rig.event(Event::Lost(rig.epoch(), Cause::VersionRefused));
        let expected = match answered {
            true => Known::Nothing,
            false => Known::Doubtful(rig.now),
        };
        assert_eq!(rig.conn.version_known(), expected);
        rig.event(Event::TornDown(rig.epoch()));
        match answered {
            true => rig.reach(Phase::Negotiating),
            false => begins_with_v1(&mut rig),
        }
    }
}

// An administrator may change the address of the server. The client then forgets what it knew about
// the version of the old server.
#[test]
fn another_server_is_asked_for_its_version() {
    for known in [Known::Lacking, Known::Doubtful(Rig::v2().now)] {
        let mut rig = Rig::v2();
        rig.conn.learn_version(known);
        rig.conn.learn_version(Known::Nothing);
        assert_eq!(rig.conn.version_known(), Known::Nothing);
        rig.reach(Phase::Negotiating);
    }
}

// covers: V2-35
#[test]
fn no_common_version_ends_a_first_mount_and_no_later_io() {
    let refusal = ProbeAnswer::Error(RemoteErrorKind::Version { low: 3, high: 9 });
    let mut rig = Rig::v2();
    rig.reach(Phase::Negotiating);
    rig.event(Event::VersionAnswer(rig.epoch(), refusal));
    let actions = rig.event(Event::TornDown(rig.epoch()));
    assert_eq!(errnos(&actions), [-93]);
    let mut rig = Rig::new(Config {
        version: VersionPolicy::V2Only,
        ..Config::default()
    });
    rig.reach(Phase::Negotiating);
    rig.event(Event::VersionAnswer(rig.epoch(), ProbeAnswer::Reply));
    rig.cm(CmEvent::Disconnected);
    rig.event(Event::TornDown(rig.epoch()));
    rig.reach(Phase::Negotiating);
    rig.event(Event::VersionAnswer(rig.epoch(), refusal));
    let actions = rig.event(Event::TornDown(rig.epoch()));
    assert_eq!(errnos(&actions), [-111]);
}

#[test]
fn a_close_calls_an_attempt_off() {
    for (cause, reason) in [
        (Cause::Forced, ConnectError::Cancelled),
        (Cause::Closed, ConnectError::Cancelled),
        (Cause::Idle, ConnectError::Cancelled),
        (Cause::DeviceRemoved, ConnectError::DeviceRemoved),
        (Cause::AddrChanged, ConnectError::AddrChanged),
        (Cause::PortDown, ConnectError::PortDown),
        (Cause::RailMove, ConnectError::Cancelled),
        (Cause::PostFailed, ConnectError::PeerClosed),
        (
            Cause::Completion(WcStatus::RetryExceeded),
            ConnectError::Unanswered,
        ),
    ] {
        for stage in Rig::STAGES {
            let mut rig = Rig::new(Config::default());
            rig.reach(stage);
            let epoch = rig.epoch();
            assert_eq!(rig.event(Event::Close(cause)), [Action::TearDown { epoch }]);
            let error = reason.error(true);
            assert_eq!(
                rig.event(Event::TornDown(epoch)),
                [Action::Fail { error, reason }]
            );
        }
    }
    let mut rig = Rig::new(Config::default());
    rig.fail_once();
    rig.event(Event::Start {
        timeout: None,
        trial: true,
    });
    let actions = rig.event(Event::Close(Cause::Forced));
    assert_eq!(errnos(&actions), [-107]);
    assert_eq!(rig.conn.phase(), Phase::Down);
}

// Shutdown: no resource of a connection outlives the transport.
#[test]
fn shutdown_is_final_from_every_phase() {
    for stage in [Phase::Down, Phase::Waiting, Phase::Closing, Phase::Up]
        .into_iter()
        .chain(Rig::STAGES)
    {
        let mut rig = Rig::new(Config::default());
        match stage {
            Phase::Down => {}
            Phase::Waiting => {
                rig.fail_once();
                rig.event(Event::Start {
                    timeout: None,
                    trial: true,
                });
            }
            Phase::Up => {
                rig.connect();
            }
            Phase::Closing => {
                rig.connect();
                rig.cm(CmEvent::Disconnected);
                rig.event(Event::Start {
                    timeout: None,
                    trial: true,
                });
            }
            _ => rig.reach(stage),
        }
        assert_eq!(rig.conn.phase(), stage);
        rig.event(Event::Shutdown);
        rig.event(Event::TornDown(rig.epoch()));
        assert_eq!(rig.conn.phase(), Phase::Stopped);
        assert_eq!(rig.conn.deadline(), None);
        let epoch = rig.epoch();
        let actions = rig.event(Event::Start {
            timeout: None,
            trial: true,
        });
        assert!(matches!(
            actions[..],
            [Action::Fail {
                reason: ConnectError::Cancelled,
                ..
            }]
        ));
        rig.event(Event::Shutdown);
        assert_eq!(rig.conn.phase(), Phase::Stopped);
        assert_eq!(rig.epoch(), epoch);
    }
}

// Observability: each reason for a failed attempt has its own name, so that an administrator can
// tell the reasons apart.
#[test]
fn every_reason_has_its_own_name() {
    let mut names: Vec<_> = ALL_REASONS.iter().map(|reason| reason.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL_REASONS.len());
    assert!(ConnectError::HostFault.name().contains("this host"));
}

/// Reports that the connection is torn down, and checks that the next connection sends no probe.
fn begins_with_v1(rig: &mut Rig) {
    rig.event(Event::TornDown(rig.epoch()));
    rig.reach(Phase::Connecting);
    let actions = rig.cm(ACCEPT);
    assert!(matches!(
        actions[..],
        [Action::Established {
            version: Version::V1,
            ..
        }]
    ));
}

const ALL_REASONS: [ConnectError; 19] = [
    ConnectError::TimedOut,
    ConnectError::AddrSilent,
    ConnectError::RouteSilent,
    ConnectError::Unanswered,
    ConnectError::AddrUnresolved,
    ConnectError::NoRoute,
    ConnectError::NoDevice,
    ConnectError::Refused,
    ConnectError::Stale,
    ConnectError::Aborted,
    ConnectError::HostFault,
    ConnectError::PeerClosed,
    ConnectError::DeviceRemoved,
    ConnectError::AddrChanged,
    ConnectError::PortDown,
    ConnectError::NoResources,
    ConnectError::NoReadCapability,
    ConnectError::VersionUnsupported,
    ConnectError::Cancelled,
];

fn check_failure(
    stage: Phase,
    event: impl Fn(Epoch) -> Event,
    reason: ConnectError,
    first: i32,
    later: i32,
) {
    for (mounted, errno) in [(false, first), (true, later)] {
        let mut rig = Rig::new(Config::default());
        if mounted {
            rig.connect();
            rig.event(Event::Close(Cause::Closed));
            rig.event(Event::TornDown(rig.epoch()));
        }
        rig.reach(stage);
        let epoch = rig.epoch();
        assert_eq!(rig.event(event(epoch)), [Action::TearDown { epoch }]);
        // The RPC layer learns of the failed attempt only after all resources are released.
        assert_eq!(rig.conn.phase(), Phase::Closing);
        let error = reason.error(!mounted);
        assert_eq!(
            rig.event(Event::TornDown(epoch)),
            [Action::Fail { error, reason }]
        );
        assert_eq!(error.to_errno(), -errno);
        assert_eq!(rig.conn.phase(), Phase::Down);
        let last = Failure {
            reason,
            // The errno is recorded only if this host refused a step of the attempt.
            errno: match reason {
                ConnectError::HostFault => -22,
                _ => 0,
            },
            at: rig.now,
            lasted: Millis::default(),
        };
        assert_eq!(rig.conn.last_failure(), Some(last));
        assert_eq!(rig.conn.failures(), 1);
        // The transport can still be used after the failed attempt.
        rig.connect();
        assert_eq!(rig.conn.phase(), Phase::Up);
    }
}

fn errnos(actions: &[Action]) -> Vec<i32> {
    let errno = |action: &Action| match *action {
        Action::Fail { error, .. } => Some(error.to_errno()),
        _ => None,
    };
    actions.iter().filter_map(errno).collect()
}
