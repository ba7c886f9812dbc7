// SPDX-License-Identifier: GPL-2.0

//! The life of connections, told as scripts: what happens, and what the driver is asked to do.

#![expect(clippy::arithmetic_side_effects)]

mod rig;

use rig::{
    Rig,
    ACCEPT, //
};
use xprtrdma_proto::{
    conn::{
        Accepted,
        Action,
        Activity,
        AddrFault,
        Backoff,
        BackoffConfig,
        Cause,
        CmEvent,
        Config,
        ConnectError,
        Epoch,
        Event,
        LocalFault,
        Phase,
        HISTORY,
        MIN_CONNECT_TIMEOUT, //
    },
    inbound::RemoteErrorKind,
    time::{
        Millis,
        Time, //
    },
    version::{
        ProbeAnswer,
        VersionPolicy, //
    },
    wc::WcStatus,
    Error,
    Version, //
};

// covers: V2-31
#[test]
fn an_attempt_goes_step_by_step() {
    let mut rig = Rig::new(Config::default());
    assert_eq!(rig.conn.phase(), Phase::Down);
    assert_eq!(rig.conn.deadline(), None);
    let actions = rig.event(Event::Start { timeout: None });
    let epoch = rig.epoch();
    let timeout = Millis::from_secs(5);
    assert_eq!(actions, [Action::ResolveAddr { epoch, timeout }]);
    assert_eq!(rig.conn.phase(), Phase::Address);
    let actions = rig.cm(CmEvent::AddrResolved);
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
    assert!(!rig.conn.is_up(epoch));
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
    assert!(rig.conn.is_up(epoch));
}

// covers: MAL-150, MAL-151, MAL-154
#[test]
fn every_failure_releases_everything_and_then_reports() {
    use CmEvent as Cm;
    // What the connection manager says, why the attempt fails, errno on the first mount, errno later.
    for (event, reason, first, later) in [
        (
            Cm::AddrError(AddrFault::NoDevice),
            ConnectError::NoDevice,
            19,
            101,
        ),
        (
            Cm::AddrError(AddrFault::TimedOut),
            ConnectError::TimedOut,
            110,
            110,
        ),
        (
            Cm::AddrError(AddrFault::Other),
            ConnectError::AddrUnresolved,
            113,
            113,
        ),
        (Cm::RouteError, ConnectError::NoRoute, 113, 113),
        (Cm::ConnectError, ConnectError::Aborted, 107, 107),
        (Cm::Unreachable, ConnectError::TimedOut, 110, 110),
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

// covers: MAL-151
#[test]
fn any_read_capability_will_do() {
    for peer_read_depth in [None, Some(1), Some(255)] {
        let mut rig = Rig::new(Config::default());
        rig.reach(Phase::Connecting);
        rig.cm(CmEvent::Established(Accepted { peer_read_depth }));
        assert_eq!(rig.conn.phase(), Phase::Up);
    }
}

// covers: MAL-150
#[test]
fn only_errors_that_are_retried_reach_a_mounted_client() {
    // What `call_connect_status` retries: at once, after a quarter of a second, or after three.
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

// covers: MAL-150, MAL-153
#[test]
fn every_wait_of_an_attempt_is_bounded() {
    let config = Config {
        connect_timeout: Millis::from_secs(8),
        version: VersionPolicy::PreferV2,
        ..Config::default()
    };
    for (stage, bound) in [
        (Phase::Address, 5_000),
        (Phase::Route, 5_000),
        (Phase::QueuePair, 8_000),
        (Phase::Connecting, 8_000),
        (Phase::Negotiating, 5_000),
    ] {
        let mut rig = Rig::new(config);
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
                reason: ConnectError::TimedOut
            }]
        );
        assert_eq!(rig.conn.phase(), Phase::Down);
    }
}

// covers: MAL-150
#[test]
fn the_callers_timeout_bounds_the_whole_attempt() {
    for (asked, bound) in [
        (None, 30_000),
        (Some(60_000), 30_000),
        (Some(2_000), 2_000),
        (Some(0), MIN_CONNECT_TIMEOUT.get()),
    ] {
        let mut rig = Rig::new(Config::default());
        let start = rig.now;
        let timeout = asked.map(Millis::new);
        let actions = rig.event(Event::Start { timeout });
        let epoch = rig.epoch();
        let timeout = Millis::new(bound.min(5_000));
        assert_eq!(actions, [Action::ResolveAddr { epoch, timeout }]);
        // Half of it is spent on the address; the route gets what is left.
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

// covers: MAL-150
#[test]
fn timeouts_can_only_be_lowered() {
    let mut rig = Rig::new(Config::default());
    rig.conn
        .limit_timeouts(Millis::from_secs(90), Millis::from_secs(90));
    assert_eq!(rig.start_bound(), 30_000);
    let mut rig = Rig::new(Config::default());
    rig.conn
        .limit_timeouts(Millis::from_secs(4), Millis::from_secs(2));
    assert_eq!(rig.start_bound(), 4_000);
    let mut rig = Rig::new(Config::default());
    rig.conn
        .limit_timeouts(Millis::from_secs(4), Millis::from_secs(2));
    for _ in 0..10 {
        rig.fail_once();
        assert!(rig.conn.reconnect_delay(rig.now) <= Millis::from_secs(2));
    }
    assert!(rig.conn.reconnect_delay(rig.now) >= Millis::from_secs(1));
}

// covers: MAL-150, MAL-152
#[test]
fn the_delay_doubles_with_jitter_up_to_its_maximum() {
    for seed in 0..50 {
        let mut backoff = Backoff::new(BackoffConfig::default(), seed);
        let now = Time::from_millis(1_000_000);
        assert_eq!(backoff.not_before().since(now), Millis::ZERO);
        for ceiling in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            backoff.failed(now);
            let delay = backoff.not_before().since(now).get();
            assert!(delay >= ceiling / 2 && delay <= ceiling);
        }
        // A long series neither overflows nor leaves the maximum.
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

// covers: MAL-150
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
    // No delay at all is a delay the configuration may ask for.
    let none = BackoffConfig {
        first: Millis::ZERO,
        max: Millis::ZERO,
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
        assert!(rig.conn.reconnect_delay(rig.now).get() >= floor);
        floor = (floor * 2).min(15_000);
    }
    // One reply is enough to be trusted again.
    rig.connect();
    rig.event(Event::Replied(rig.epoch()));
    assert_eq!(rig.conn.failures(), 0);
    rig.cm(CmEvent::Disconnected);
    assert!(rig.conn.reconnect_delay(rig.now) <= Millis::new(500));
}

// covers: MAL-150
#[test]
fn an_attempt_waits_for_the_back_off() {
    let mut rig = Rig::new(Config::default());
    rig.fail_once();
    let delay = rig.conn.reconnect_delay(rig.now).get();
    let last = rig.epoch();
    assert_eq!(rig.event(Event::Start { timeout: None }), []);
    assert_eq!(rig.conn.phase(), Phase::Waiting);
    assert_eq!(rig.conn.deadline(), Some(rig.now.after(Millis::new(delay))));
    rig.advance(delay - 1);
    assert_eq!(rig.tick(), []);
    rig.advance(1);
    assert!(matches!(rig.tick()[..], [Action::ResolveAddr { .. }]));
    assert!(rig.epoch() != last);
    // The bound of the attempt counts from here.
    rig.cm(CmEvent::AddrResolved);
    rig.cm(CmEvent::RouteResolved);
    assert_eq!(
        rig.conn.deadline(),
        Some(rig.now.after(Millis::from_secs(30)))
    );
}

// covers: MAL-150
#[test]
fn after_an_idle_close_the_next_attempt_starts_at_once() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    rig.advance(300_000);
    let epoch = rig.epoch();
    let actions = rig.look(rig.now, Time::from_millis(0), false);
    assert!(matches!(
        actions[..],
        [Action::Disconnect {
            cause: Cause::Idle,
            ..
        }]
    ));
    rig.event(Event::TornDown(epoch));
    assert_eq!(rig.conn.reconnect_delay(rig.now), Millis::ZERO);
    let actions = rig.event(Event::Start { timeout: None });
    assert!(matches!(actions[..], [Action::ResolveAddr { .. }]));
}

// covers: V1-095, MAL-001, MAL-012, MAL-014, MAL-111, MAL-131, MAL-184
#[test]
fn every_loss_is_one_disconnect_with_its_cause() {
    for cause in ALL_CAUSES {
        let mut rig = Rig::new(Config::default());
        rig.connect();
        let epoch = rig.epoch();
        let cookie = rig.conn.cookie();
        rig.advance(70);
        let actions = rig.event(Event::Lost(epoch, cause));
        assert_eq!(
            actions,
            [Action::Disconnect {
                epoch,
                cookie: rig.conn.cookie(),
                cause
            }]
        );
        assert!(rig.conn.cookie() != cookie);
        assert_eq!(rig.conn.phase(), Phase::Closing);
        let entry = rig.conn.history().iter().next().copied();
        assert_eq!(entry.map(|e| (e.epoch, e.cause)), Some((epoch, cause)));
        assert_eq!(
            entry.map(|e| (e.at, e.lasted)),
            Some((rig.now, Millis::new(70)))
        );
        // Whatever follows of the same connection changes nothing any more.
        for more in ALL_CAUSES {
            assert_eq!(rig.event(Event::Lost(epoch, more)), []);
        }
        assert_eq!(rig.cm(CmEvent::Disconnected), []);
        assert_eq!(rig.event(Event::Close(Cause::Forced)), []);
        assert_eq!(rig.conn.history().total(), 1);
        assert_eq!(rig.event(Event::TornDown(epoch)), []);
        assert_eq!(rig.conn.phase(), Phase::Down);
        // At once only if we closed it without need.
        let clean = matches!(cause, Cause::Idle | Cause::Closed | Cause::Shutdown);
        assert_eq!(cause.is_clean(), clean);
        assert_eq!(rig.conn.reconnect_delay(rig.now) == Millis::ZERO, clean);
    }
}

// covers: MAL-150, MAL-154
#[test]
fn connection_manager_events_end_a_connection() {
    for (event, cause) in [
        (CmEvent::Disconnected, Some(Cause::PeerClosed)),
        (CmEvent::TimewaitExit, Some(Cause::PeerClosed)),
        (CmEvent::ConnectError, Some(Cause::PeerClosed)),
        (CmEvent::Unreachable, Some(Cause::PeerClosed)),
        (CmEvent::Rejected { stale: true }, Some(Cause::PeerClosed)),
        (CmEvent::AddrChange, Some(Cause::AddrChanged)),
        (CmEvent::DeviceRemoval, Some(Cause::DeviceRemoved)),
        (CmEvent::AddrResolved, None),
        (CmEvent::AddrError(AddrFault::Other), None),
        (CmEvent::RouteResolved, None),
        (CmEvent::RouteError, None),
        (CmEvent::ConnectResponse, None),
        (ACCEPT, None),
    ] {
        let mut rig = Rig::new(Config::default());
        rig.connect();
        let actions = rig.cm(event);
        match cause {
            None => assert_eq!(actions, []),
            Some(expected) => assert!(matches!(
                actions[..],
                [Action::Disconnect { cause, .. }] if cause == expected
            )),
        }
    }
}

// covers: MAL-017, MAL-132, BC-27
#[test]
fn events_of_another_epoch_change_nothing() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let old = rig.epoch();
    rig.cm(CmEvent::Disconnected);
    rig.event(Event::TornDown(old));
    rig.connect();
    let cookie = rig.conn.cookie();
    assert!(!rig.conn.is_up(old));
    assert!(rig.conn.is_up(rig.epoch()));
    for event in stale_events(old)
        .into_iter()
        .chain(stale_events(Epoch::NONE))
    {
        assert_eq!(rig.event(event), []);
        assert_eq!(rig.conn.phase(), Phase::Up);
    }
    assert_eq!(rig.conn.cookie(), cookie);
    assert_eq!(rig.conn.failures(), 1);
    // The same during an attempt.
    for stage in Rig::STAGES {
        let mut rig = Rig::new(Config::default());
        rig.connect();
        let old = rig.epoch();
        rig.cm(CmEvent::Disconnected);
        rig.event(Event::TornDown(old));
        rig.reach(stage);
        for event in stale_events(old) {
            assert_eq!(rig.event(event), []);
            assert_eq!(rig.conn.phase(), stage);
        }
    }
}

// covers: MAL-017
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
            (Phase::Closing, Event::Cm(epoch, CmEvent::ConnectResponse)),
        ];
        for (belongs_to, answer) in answers {
            if belongs_to != stage {
                assert_eq!(rig.event(answer), []);
                assert_eq!(rig.conn.phase(), stage);
            }
        }
    }
}

// covers: MAL-150
#[test]
fn nothing_starts_before_the_old_connection_is_released() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let old = rig.epoch();
    rig.event(Event::Replied(old));
    rig.event(Event::Close(Cause::Closed));
    assert_eq!(rig.event(Event::Start { timeout: None }), []);
    assert_eq!(rig.conn.phase(), Phase::Closing);
    let actions = rig.event(Event::TornDown(old));
    let epoch = rig.epoch();
    assert!(epoch != old);
    let timeout = Millis::from_secs(5);
    assert_eq!(actions, [Action::ResolveAddr { epoch, timeout }]);
}

// covers: MAL-150
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

// covers: CM-11, CM-24, MAL-149
#[test]
fn two_losses_after_a_large_send_make_the_next_connection_small() {
    let fatal = Cause::Completion(WcStatus::RemoteInvalidRequest);
    // Two losses: their causes, how long after the Send, whether the peer took a large Send between.
    for (causes, wait, taken, expected) in [
        ([fatal, fatal], 100, false, Some(1024)),
        (
            [Cause::PeerClosed, Cause::PeerClosed],
            2_000,
            false,
            Some(1024),
        ),
        ([fatal, fatal], 2_001, false, None),
        ([fatal, fatal], 100, true, None),
        ([fatal, Cause::Forced], 100, false, None),
        ([Cause::Idle, fatal], 100, false, None),
        (
            [Cause::DeviceRemoved, Cause::DeviceRemoved],
            100,
            false,
            None,
        ),
        ([Cause::RpcTimeout, Cause::RpcTimeout], 100, false, None),
    ] {
        let mut rig = Rig::new(Config::default());
        for cause in causes {
            assert_eq!(rig.connect(), None);
            let epoch = rig.epoch();
            rig.event(Event::LargeSend(epoch));
            if taken {
                rig.event(Event::LargeSendTaken(epoch));
            }
            rig.advance(wait);
            rig.event(Event::Lost(epoch, cause));
            rig.event(Event::TornDown(epoch));
        }
        assert_eq!(rig.connect(), expected);
    }
}

// covers: CM-24, MAL-149
#[test]
fn only_the_first_large_send_counts_and_the_verdict_expires() {
    let mut rig = Rig::new(Config::default());
    let lose = |rig: &mut Rig| {
        let epoch = rig.epoch();
        rig.event(Event::Lost(epoch, Cause::PeerClosed));
        rig.event(Event::TornDown(epoch));
    };
    // A loss without any large Send says nothing about sizes.
    for _ in 0..3 {
        assert_eq!(rig.connect(), None);
        lose(&mut rig);
    }
    // A later large Send does not renew the first one's time.
    for _ in 0..2 {
        assert_eq!(rig.connect(), None);
        rig.event(Event::LargeSend(rig.epoch()));
        rig.advance(1_500);
        rig.event(Event::LargeSend(rig.epoch()));
        rig.advance(1_500);
        lose(&mut rig);
    }
    // One loss is no proof, and a large Send that arrives clears it.
    for _ in 0..2 {
        assert_eq!(rig.connect(), None);
        rig.event(Event::LargeSend(rig.epoch()));
        lose(&mut rig);
        assert_eq!(rig.connect(), None);
        rig.event(Event::LargeSend(rig.epoch()));
        rig.event(Event::LargeSendTaken(rig.epoch()));
        lose(&mut rig);
    }
    for _ in 0..2 {
        assert_eq!(rig.connect(), None);
        rig.event(Event::LargeSend(rig.epoch()));
        lose(&mut rig);
    }
    let condemned = rig.now;
    assert_eq!(rig.connect(), Some(1024));
    lose(&mut rig);
    // Ten minutes later the advertised size gets another chance.
    rig.now = condemned.after(Millis::from_secs(599));
    assert_eq!(rig.connect(), Some(1024));
    lose(&mut rig);
    rig.now = condemned.after(Millis::from_secs(600));
    assert_eq!(rig.connect(), None);
}

// covers: BC-16
#[test]
fn no_idle_disconnect_while_callbacks_may_come() {
    let config = Config {
        keepalive: None,
        ..Config::default()
    };
    let mut rig = Rig::new(config);
    rig.connect();
    let start = rig.now;
    assert_eq!(
        rig.conn.deadline(),
        Some(start.after(Millis::from_secs(300)))
    );
    rig.event(Event::Backchannel { bound: true });
    assert_eq!(rig.conn.deadline(), None);
    rig.advance(10_000_000);
    assert_eq!(rig.look(rig.now, start, false), []);
    assert_eq!(rig.event(Event::Close(Cause::Idle)), []);
    assert_eq!(rig.conn.phase(), Phase::Up);
    // Everything else still closes it.
    let mut other = Rig::new(config);
    other.connect();
    other.event(Event::Backchannel { bound: true });
    assert_eq!(other.event(Event::Close(Cause::Closed)).len(), 1);
    // Unbound, the idle time that has passed counts.
    rig.event(Event::Backchannel { bound: false });
    assert_eq!(rig.look(rig.now, start, false).len(), 1);
    assert_eq!(rig.conn.phase(), Phase::Closing);
}

// covers: BC-16
#[test]
fn use_puts_the_idle_disconnect_off() {
    let config = Config {
        keepalive: None,
        ..Config::default()
    };
    let mut rig = Rig::new(config);
    rig.connect();
    rig.advance(299_999);
    assert_eq!(rig.tick(), []);
    let used = rig.now;
    rig.advance(1);
    assert_eq!(rig.look(rig.now, used, false), []);
    assert_eq!(
        rig.conn.deadline(),
        Some(used.after(Millis::from_secs(300)))
    );
    rig.advance(299_998);
    assert_eq!(rig.look(rig.now, used, false), []);
    // A call that waits for its reply is use, however long it takes.
    rig.advance(1);
    assert_eq!(rig.look(rig.now, used, true), []);
    rig.advance(299_999);
    assert_eq!(rig.look(rig.now, used, false), []);
    rig.advance(1);
    assert_eq!(rig.look(rig.now, used, false).len(), 1);
    assert_eq!(rig.conn.phase(), Phase::Closing);
}

// Keep-alive: a host that is gone is found without its help.
#[test]
fn a_dead_peer_is_found_in_seconds() {
    for (busy, silence) in [(true, 5_000), (false, 30_000)] {
        let mut rig = Rig::new(Config::default());
        rig.connect();
        let heard = rig.now;
        let epoch = rig.epoch();
        let asked = heard.after(Millis::new(silence));
        // The driver looks when asked and never sees anything.
        let mut probed = None;
        let mut dead = None;
        while dead.is_none() {
            let Some(deadline) = rig.conn.deadline() else {
                break;
            };
            assert!(deadline > rig.now);
            rig.now = deadline;
            for action in rig.look(heard, heard, busy) {
                match action {
                    Action::KeepAlive { .. } => probed = Some(rig.now),
                    Action::Disconnect { cause, .. } => dead = Some((rig.now, cause)),
                    _ => {}
                }
            }
        }
        assert_eq!(probed, Some(asked));
        let gone = asked.after(Millis::from_secs(5));
        assert_eq!(dead, Some((gone, Cause::PeerDead)));
        assert_eq!(rig.event(Event::KeepAliveAnswered(epoch)), []);
    }
}

// Keep-alive: a server whose host answers is never given up.
#[test]
fn a_slow_server_is_left_alone() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let epoch = rig.epoch();
    let mut heard = rig.now;
    let end = rig.now.after(Millis::from_secs(3600));
    let mut probes = 0;
    rig.event(Event::Replied(epoch));
    // An hour with a call outstanding and no reply; only probes are answered, each a little late.
    while rig.now < end {
        rig.now = rig.conn.deadline().unwrap_or(end);
        let cookie = rig.conn.cookie();
        rig.event(Event::RpcTimeout { cookie });
        let actions = rig.look(heard, heard, true);
        assert!(!actions
            .iter()
            .any(|a| matches!(a, Action::Disconnect { .. })));
        rig.advance(4_000);
        rig.event(Event::KeepAliveAnswered(epoch));
        heard = rig.now;
        probes += 1;
    }
    assert!(probes > 100);
    assert_eq!(rig.conn.phase(), Phase::Up);
}

// Keep-alive: one probe at a time, and no need for its own answer.
#[test]
fn anything_heard_is_as_good_as_an_answer() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let heard = rig.now;
    rig.advance(5_000);
    let epoch = rig.epoch();
    assert_eq!(rig.look(heard, heard, true), [Action::KeepAlive { epoch }]);
    let sent = rig.now;
    // What was heard before the probe does not answer it.
    rig.advance(4_999);
    assert_eq!(rig.look(sent, heard, true), []);
    // Only one probe at a time.
    let cookie = rig.conn.cookie();
    rig.event(Event::Replied(epoch));
    assert_eq!(rig.event(Event::RpcTimeout { cookie }), []);
    rig.advance(1);
    let later = sent.after(Millis::new(1));
    assert_eq!(rig.look(later, heard, true), []);
    assert_eq!(rig.conn.phase(), Phase::Up);
    // From a clock that runs ahead nothing follows but the present time.
    rig.advance(5_000);
    assert_eq!(rig.look(Time::from_millis(u64::MAX), heard, true), []);
    rig.advance(5_000);
    assert_eq!(rig.look(heard, heard, true), [Action::KeepAlive { epoch }]);
}

// covers: MAL-153, X-03
#[test]
fn an_rpc_timer_counts_against_its_own_connection_only() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let first = rig.conn.cookie();
    let epoch = rig.epoch();
    // No reply at all on this connection: it is given up at once.
    assert_eq!(
        causes(&rig.event(Event::RpcTimeout { cookie: first })),
        [Cause::RpcTimeout]
    );
    let closed = rig.conn.cookie();
    assert_eq!(rig.event(Event::RpcTimeout { cookie: closed }), []);
    rig.event(Event::TornDown(epoch));
    rig.connect();
    // Timers of the old connection, and of calls never sent, leave the new one alone.
    for cookie in [first, closed, rig.conn.cookie().wrapping_sub(1)] {
        assert_eq!(rig.event(Event::RpcTimeout { cookie }), []);
        assert_eq!(rig.event(Event::Retransmit { cookie }), []);
    }
    assert_eq!(rig.conn.phase(), Phase::Up);
    // With replies arriving the peer's host is asked first.
    let epoch = rig.epoch();
    let cookie = rig.conn.cookie();
    rig.event(Event::Replied(epoch));
    assert_eq!(
        rig.event(Event::RpcTimeout { cookie }),
        [Action::KeepAlive { epoch }]
    );
    rig.event(Event::KeepAliveAnswered(epoch));
    // A discarded message may have been the reply it waits for.
    rig.event(Event::ReplyDiscarded(epoch));
    assert_eq!(
        causes(&rig.event(Event::RpcTimeout { cookie })),
        [Cause::RpcTimeout]
    );
}

// Connection life: a second copy would corrupt the credits.
#[test]
fn a_call_is_not_sent_twice_on_one_connection() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    rig.event(Event::Replied(rig.epoch()));
    let cookie = rig.conn.cookie();
    assert_eq!(
        causes(&rig.event(Event::Retransmit { cookie })),
        [Cause::Retransmit]
    );
    assert_eq!(rig.event(Event::Retransmit { cookie }), []);
}

// covers: MAL-153
#[test]
fn without_keep_alive_the_rpc_timer_decides() {
    let mut rig = Rig::new(Config {
        keepalive: None,
        ..Config::default()
    });
    rig.connect();
    rig.event(Event::Replied(rig.epoch()));
    let cookie = rig.conn.cookie();
    assert_eq!(
        causes(&rig.event(Event::RpcTimeout { cookie })),
        [Cause::RpcTimeout]
    );
}

// covers: V2-04, V2-05, V2-06, V2-07, V2-08, V2-09, V2-12, V2-35, MAL-160, MAL-161, MAL-162, MAL-163, MAL-164, MAL-165
#[test]
fn the_version_is_settled_before_the_connection_is_used() {
    let range = |low, high| ProbeAnswer::Error(RemoteErrorKind::Version { low, high });
    for (answer, outcome) in [
        (ProbeAnswer::Reply, Ok(Version::V2)),
        (range(1, 1), Ok(Version::V1)),
        (range(1, 2), Ok(Version::V1)),
        (range(3, 9), Err(ConnectError::VersionUnsupported)),
        (range(2, 2), Err(ConnectError::VersionUnsupported)),
        (
            ProbeAnswer::Error(RemoteErrorKind::Chunk),
            Err(ConnectError::TimedOut),
        ),
    ] {
        let mut rig = Rig::v2();
        rig.reach(Phase::Connecting);
        let epoch = rig.epoch();
        // The probe goes out alone: the RPC layer is not told of the connection yet.
        assert_eq!(rig.cm(ACCEPT), [Action::SendVersionProbe { epoch }]);
        assert!(!rig.conn.is_up(epoch));
        let actions = rig.event(Event::VersionAnswer(epoch, answer));
        match outcome {
            // On the same connection, without another attempt.
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
    // Swallowed, or lost with the connection: the next connection starts with version 1.
    for end in [CmEvent::Disconnected, CmEvent::DeviceRemoval] {
        let mut rig = Rig::v2();
        rig.reach(Phase::Negotiating);
        rig.cm(end);
        rig.event(Event::TornDown(rig.epoch()));
        rig.connect();
        assert_eq!(rig.conn.negotiation().version(), Some(Version::V1));
    }
    let mut rig = Rig::v2();
    rig.reach(Phase::Negotiating);
    rig.advance(5_000);
    rig.tick();
    rig.event(Event::TornDown(rig.epoch()));
    rig.connect();
    assert_eq!(rig.conn.negotiation().version(), Some(Version::V1));
    // Refused, then lost: the same.
    let mut rig = Rig::v2();
    rig.reach(Phase::Negotiating);
    rig.event(Event::VersionAnswer(rig.epoch(), range(1, 1)));
    rig.cm(CmEvent::Disconnected);
    rig.event(Event::TornDown(rig.epoch()));
    assert_eq!(rig.conn.negotiation().version(), None);
    rig.connect();
    assert_eq!(rig.conn.negotiation().version(), Some(Version::V1));
}

// covers: V2-30, V2-35, MAL-161
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

// covers: MAL-154
#[test]
fn a_close_calls_an_attempt_off() {
    for (cause, reason) in [
        (Cause::Forced, ConnectError::Cancelled),
        (Cause::Closed, ConnectError::Cancelled),
        (Cause::Idle, ConnectError::Cancelled),
        (Cause::DeviceRemoved, ConnectError::DeviceRemoved),
        (Cause::AddrChanged, ConnectError::AddrChanged),
        (Cause::PostFailed, ConnectError::PeerClosed),
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
    rig.event(Event::Start { timeout: None });
    let actions = rig.event(Event::Close(Cause::Forced));
    assert_eq!(errnos(&actions), [-107]);
    assert_eq!(rig.conn.phase(), Phase::Down);
}

// Connection life: nothing outlives the transport.
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
                rig.event(Event::Start { timeout: None });
            }
            Phase::Up => {
                rig.connect();
            }
            Phase::Closing => {
                rig.connect();
                rig.cm(CmEvent::Disconnected);
                rig.event(Event::Start { timeout: None });
            }
            _ => rig.reach(stage),
        }
        assert_eq!(rig.conn.phase(), stage);
        rig.event(Event::Shutdown);
        rig.event(Event::TornDown(rig.epoch()));
        assert_eq!(rig.conn.phase(), Phase::Stopped);
        assert_eq!(rig.conn.deadline(), None);
        let epoch = rig.epoch();
        let actions = rig.event(Event::Start { timeout: None });
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

// Observability: the last disconnects with their cause.
#[test]
fn the_last_disconnects_are_remembered() {
    let mut rig = Rig::new(Config::default());
    let mut epochs = Vec::new();
    for round in 0..HISTORY + 3 {
        rig.connect();
        let epoch = rig.epoch();
        epochs.insert(0, epoch);
        if round % 2 == 0 {
            rig.event(Event::Replied(epoch));
        }
        rig.advance(10);
        rig.event(Event::Close(Cause::Forced));
        rig.event(Event::TornDown(epoch));
        let entries: Vec<_> = rig.conn.history().iter().copied().collect();
        assert_eq!(entries.len(), (round + 1).min(HISTORY));
        assert!(entries
            .iter()
            .zip(&epochs)
            .all(|(e, &epoch)| e.epoch == epoch));
        assert_eq!(entries.first().map(|e| e.useful), Some(round % 2 == 0));
    }
    assert_eq!(rig.conn.history().total(), HISTORY as u64 + 3);
    // A failed attempt is no disconnect.
    rig.fail_once();
    assert_eq!(rig.conn.history().total(), HISTORY as u64 + 3);
    let last = rig.conn.last_failure();
    assert_eq!(last.map(|(reason, _)| reason), Some(ConnectError::NoRoute));
}

// Observability: an administrator can tell causes apart.
#[test]
fn every_name_is_its_own() {
    let mut names: Vec<_> = ALL_CAUSES.iter().map(|cause| cause.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL_CAUSES.len());
    let mut names: Vec<_> = ALL_REASONS.iter().map(|reason| reason.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL_REASONS.len());
}

// Keep-alive: a driver that saw nothing reports nothing.
#[test]
fn a_default_activity_proves_nothing() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    rig.advance(30_000);
    assert_eq!(rig.event(Event::Tick(Activity::default())).len(), 1);
}

const ALL_CAUSES: [Cause; 23] = [
    Cause::PeerClosed,
    Cause::Completion(WcStatus::Flushed),
    Cause::Completion(WcStatus::LocalLength),
    Cause::Completion(WcStatus::RetryExceeded),
    Cause::PostFailed,
    Cause::InvalidateFailed,
    Cause::WrongInvalidate,
    Cause::Immediate,
    Cause::BadReplies,
    Cause::BadReply,
    Cause::BackchannelOverflow,
    Cause::BackchannelReplyTooBig,
    Cause::OptionFlood,
    Cause::RpcTimeout,
    Cause::Retransmit,
    Cause::CreditResync,
    Cause::PeerDead,
    Cause::AddrChanged,
    Cause::DeviceRemoved,
    Cause::Forced,
    Cause::Idle,
    Cause::Closed,
    Cause::Shutdown,
];

const ALL_REASONS: [ConnectError; 14] = [
    ConnectError::TimedOut,
    ConnectError::AddrUnresolved,
    ConnectError::NoRoute,
    ConnectError::NoDevice,
    ConnectError::Refused,
    ConnectError::Stale,
    ConnectError::Aborted,
    ConnectError::PeerClosed,
    ConnectError::DeviceRemoved,
    ConnectError::AddrChanged,
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
        // Nobody is told before everything is released.
        assert_eq!(rig.conn.phase(), Phase::Closing);
        let error = reason.error(!mounted);
        assert_eq!(
            rig.event(Event::TornDown(epoch)),
            [Action::Fail { error, reason }]
        );
        assert_eq!(error.to_errno(), -errno);
        assert_eq!(rig.conn.phase(), Phase::Down);
        assert_eq!(rig.conn.last_failure(), Some((reason, rig.now)));
        assert_eq!(rig.conn.failures(), 1);
        // The transport stays usable.
        rig.connect();
        assert_eq!(rig.conn.phase(), Phase::Up);
    }
}

fn stale_events(epoch: Epoch) -> [Event; 12] {
    [
        Event::Cm(epoch, CmEvent::AddrResolved),
        Event::Cm(epoch, CmEvent::RouteResolved),
        Event::Cm(epoch, ACCEPT),
        Event::Cm(epoch, CmEvent::Disconnected),
        Event::Cm(epoch, CmEvent::DeviceRemoval),
        Event::QpCreated(epoch),
        Event::LocalFault(epoch, LocalFault::NoResources),
        Event::VersionAnswer(epoch, ProbeAnswer::Reply),
        Event::Replied(epoch),
        Event::KeepAliveAnswered(epoch),
        Event::Lost(epoch, Cause::PostFailed),
        Event::TornDown(epoch),
    ]
}

fn causes(actions: &[Action]) -> Vec<Cause> {
    let cause = |action: &Action| match *action {
        Action::Disconnect { cause, .. } => Some(cause),
        _ => None,
    };
    actions.iter().filter_map(cause).collect()
}

fn errnos(actions: &[Action]) -> Vec<i32> {
    let errno = |action: &Action| match *action {
        Action::Fail { error, .. } => Some(error.to_errno()),
        _ => None,
    };
    actions.iter().filter_map(errno).collect()
}
