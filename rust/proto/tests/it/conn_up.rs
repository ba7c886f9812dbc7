// SPDX-License-Identifier: GPL-2.0

//! Tests of established connections, as sequences of events: losses, stale events, timers, silence,
//! sizes.

use crate::{
    common::{
        failed,
        FLUSHED,
        RETRY_EXCEEDED, //
    },
    rig::{
        Rig,
        ACCEPT, //
    },
};
use xprtrdma_proto::{
    conn::{
        Action,
        Activity,
        AddrFault,
        Cause,
        CmEvent,
        Config,
        DeviceEvent,
        Epoch,
        Event,
        LocalFault,
        Opcode,
        Phase,
        QpEvent,
        RpcTimer,
        Seen,
        HISTORY, //
    },
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::ProbeAnswer,
    wc::WcStatus, //
};

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
    assert_eq!(rig.delay(), Millis::default());
    let actions = rig.event(Event::Start {
        timeout: None,
        trial: true,
    });
    assert!(matches!(actions[..], [Action::ResolveAddr { .. }]));
}

// covers: V1-095
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
        // After the first event that ends a connection, further events of the same connection have
        // no effect.
        for more in ALL_CAUSES {
            assert_eq!(rig.event(Event::Lost(epoch, more)), []);
        }
        assert_eq!(rig.cm(CmEvent::Disconnected), []);
        assert_eq!(rig.event(Event::Close(Cause::Forced)), []);
        assert_eq!(rig.conn.history().iter().count(), 1);
        assert_eq!(rig.event(Event::TornDown(epoch)), []);
        assert_eq!(rig.conn.phase(), Phase::Down);
        // The next attempt starts without a delay only if this host closed the connection on
        // purpose.
        let clean = matches!(
            cause,
            Cause::Idle | Cause::Closed | Cause::Shutdown | Cause::Forced | Cause::RailMove
        );
        assert_eq!(cause.is_clean(), clean);
        assert_eq!(rig.delay() == Millis::default(), clean);
    }
}

/// A request to end a connection may arrive after that connection has ended. The request does not
/// apply to the next connection.
#[test]
fn an_order_that_comes_late_is_for_no_other_connection() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let first = rig.epoch();
    assert!(!rig.conn.is_ending(first));
    let actions = rig.event(Event::Close(Cause::Forced));
    assert!(matches!(actions[..], [Action::Disconnect { epoch, .. }] if epoch == first));
    assert!(rig.conn.is_ending(first));
    // The RPC client has closed the connection, although the connection's state machine did not
    // request that.
    rig.event(Event::TornDown(first));
    assert!(!rig.conn.is_ending(first));
    for stage in Rig::STAGES.into_iter().chain([Phase::Up]) {
        let mut rig = Rig {
            conn: rig.conn.clone(),
            now: rig.now,
            trial: true,
        };
        rig.reach(stage);
        assert!(!rig.conn.is_ending(first));
        // Even while the next connection is ending, `is_ending` returns false for the first
        // connection.
        rig.event(Event::Close(Cause::Forced));
        assert_eq!(rig.conn.phase(), Phase::Closing);
        assert!(!rig.conn.is_ending(first));
        assert!(rig.conn.is_ending(rig.epoch()));
    }
}

#[test]
fn the_loss_of_a_connection_that_worked_costs_no_delay() {
    for (lasted, useful, at_once) in [
        (1, true, false),
        (4_999, true, false),
        (5_000, true, true),
        (1, false, false),
        (5_000, false, false),
        (600_000, false, false),
    ] {
        let mut rig = endless();
        let delay = lose(&mut rig, lasted, useful, Cause::PeerClosed);
        // The delay is random, so that the attempts of many clients are spread over a quarter of a
        // second.
        assert_eq!(delay < Millis::new(250), at_once);
        let delay = lose(&mut rig, lasted, useful, Cause::BadReplies);
        assert_eq!(delay == Millis::default(), at_once);
    }
}

// If a server answers one call on each connection and then closes the connection, the client delays
// its next attempt.
#[test]
fn a_young_connection_that_the_peer_ended_costs_the_first_delay() {
    let mut rig = endless();
    for _ in 0..50 {
        let delay = lose(&mut rig, 1, true, Cause::PeerClosed);
        assert!(delay > Millis::default());
        // A reply arrived on each connection, so the delay does not grow.
        assert!(delay <= Millis::new(500));
    }
}

// If this host ends connections, even many of them, that is no evidence against the peer.
#[test]
fn what_we_did_ourselves_costs_no_delay() {
    for (cause, ours) in [
        (Cause::GivenUpCall, true),
        (Cause::Retransmit, true),
        (Cause::CreditResync, true),
        (Cause::RpcTimeout, false),
        (Cause::PeerDead, false),
        (Cause::WrongInvalidate, false),
        (Cause::BadReplies, false),
        (Cause::Completion(WcStatus::RetryExceeded), false),
    ] {
        let mut rig = endless();
        let delays: Vec<Millis> = (0..50).map(|_| lose(&mut rig, 10, true, cause)).collect();
        assert_eq!(delays.iter().all(|delay| *delay == Millis::default()), ours);
        // A connection without any reply does not prove that the peer works, so the next attempt
        // has a delay.
        assert!(lose(&mut rig, 10, false, cause) > Millis::default());
    }
}

// If a connection ends soon after the memory of a killed call was revoked, the recorded cause is
// that the server wrote to that memory.
#[test]
fn a_write_to_memory_of_a_killed_call_has_a_cause_of_its_own() {
    let refused = [
        Cause::PeerClosed,
        Cause::Completion(WcStatus::Flushed),
        Cause::Completion(WcStatus::LocalProtection),
        Cause::Completion(WcStatus::RemoteInvalidRequest),
        Cause::Completion(WcStatus::RemoteAccess),
        Cause::Completion(WcStatus::RemoteOperation),
    ];
    for cause in ALL_CAUSES.into_iter().chain(refused) {
        for (ago, soon) in [(0, true), (5_000, true), (5_001, false)] {
            let mut rig = endless();
            rig.connect();
            let epoch = rig.epoch();
            rig.event(Event::MemoryRevoked(epoch));
            rig.advance(ago);
            let actions = rig.event(Event::Lost(epoch, cause));
            let expected = if soon && refused.contains(&cause) {
                Cause::GivenUpCall
            } else {
                cause
            };
            assert_eq!(causes(&actions), [expected]);
            let entry = rig.conn.history().iter().next().map(|entry| entry.cause);
            assert_eq!(entry, Some(expected));
            // On the next connection the report about revoked memory has no effect, because it
            // names the old connection.
            rig.event(Event::TornDown(epoch));
            rig.connect();
            rig.event(Event::MemoryRevoked(epoch));
            assert_eq!(causes(&rig.cm(CmEvent::Disconnected)), [Cause::PeerClosed]);
        }
    }
}

#[test]
fn connection_manager_events_end_a_connection() {
    for (event, cause) in [
        (CmEvent::Disconnected, Some(Cause::PeerClosed)),
        (CmEvent::TimewaitExit, Some(Cause::PeerClosed)),
        (CmEvent::ConnectError, Some(Cause::PeerClosed)),
        (CmEvent::Rejected { stale: true }, Some(Cause::PeerClosed)),
        (CmEvent::AddrChange, Some(Cause::AddrChanged)),
        (CmEvent::DeviceRemoval, Some(Cause::DeviceRemoved)),
        (CmEvent::AddrResolved, None),
        (CmEvent::AddrError(AddrFault::Other), None),
        (CmEvent::RouteResolved, None),
        (CmEvent::RouteError, None),
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

// covers: MAL-017
#[test]
fn events_of_another_epoch_change_nothing() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let old = rig.epoch();
    rig.cm(CmEvent::Disconnected);
    rig.event(Event::TornDown(old));
    rig.connect();
    let cookie = rig.conn.cookie();
    assert!(!rig.is_up(old));
    assert!(rig.is_up(rig.epoch()));
    for event in stale_events(old)
        .into_iter()
        .chain(stale_events(Epoch::NONE))
    {
        assert_eq!(rig.event(event), []);
        assert_eq!(rig.conn.phase(), Phase::Up);
    }
    assert_eq!(rig.conn.cookie(), cookie);
    assert_eq!(rig.conn.failures(), 1);
    // Events of an old connection do not change a later connection attempt.
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

#[test]
fn two_losses_after_a_large_send_make_the_next_connection_small() {
    let fatal = Cause::Completion(WcStatus::RemoteInvalidRequest);
    // The columns: the causes of two losses; the time in milliseconds from the large Send to the
    // loss, on each connection; whether the peer received the large Send; the expected limit for
    // the next connection.
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

// The reply to a large call may be handled before the thread that posted the call reports the post.
#[test]
fn a_large_send_that_is_reported_after_its_reply_is_not_in_doubt() {
    let mut rig = Rig::new(Config::default());
    for taken in [true, false] {
        assert_eq!(rig.connect(), None);
        let epoch = rig.epoch();
        if taken {
            rig.event(Event::LargeSendTaken(epoch));
        }
        rig.event(Event::LargeSend(epoch));
        rig.event(Event::Lost(epoch, Cause::PeerClosed));
        rig.event(Event::TornDown(epoch));
    }
    assert_eq!(rig.connect(), None);
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
    // If no large Send was posted on a connection, the loss of that connection does not limit the
    // inline size of the next connection.
    for _ in 0..3 {
        assert_eq!(rig.connect(), None);
        lose(&mut rig);
    }
    // The time between a large Send and a loss is measured from the first large Send of the
    // connection, not from a later one.
    for _ in 0..2 {
        assert_eq!(rig.connect(), None);
        rig.event(Event::LargeSend(rig.epoch()));
        rig.advance(1_500);
        rig.event(Event::LargeSend(rig.epoch()));
        rig.advance(1_500);
        lose(&mut rig);
    }
    // One lost connection does not prove that large messages are lost. A large Send that arrives
    // clears the suspicion.
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
    // Ten minutes after the inline size was limited, the advertised size is tried again.
    rig.now = condemned.after(Millis::from_secs(599));
    assert_eq!(rig.connect(), Some(1024));
    lose(&mut rig);
    rig.now = condemned.after(Millis::from_secs(600));
    assert_eq!(rig.connect(), None);
}

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
    // While the backchannel is bound, a close request with any cause except `Idle` closes the
    // connection.
    let mut other = Rig::new(config);
    other.connect();
    other.event(Event::Backchannel { bound: true });
    assert_eq!(other.event(Event::Close(Cause::Closed)).len(), 1);
    // The connection was idle while the backchannel was bound. This time counts as idle time, so
    // the connection is closed as soon as the backchannel is unbound.
    rig.event(Event::Backchannel { bound: false });
    assert_eq!(rig.look(rig.now, start, false).len(), 1);
    assert_eq!(rig.conn.phase(), Phase::Closing);
}

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
    // While a call waits for its reply, the connection counts as used, however long the call waits.
    rig.advance(1);
    assert_eq!(rig.look(rig.now, used, true), []);
    rig.advance(299_999);
    assert_eq!(rig.look(rig.now, used, false), []);
    rig.advance(1);
    assert_eq!(rig.look(rig.now, used, false).len(), 1);
    assert_eq!(rig.conn.phase(), Phase::Closing);
}

// Keepalive: a host that disappeared is detected, although it sends nothing.
#[test]
fn a_dead_peer_is_found_in_seconds() {
    for (busy, silence) in [(true, 5_000), (false, 30_000)] {
        let mut rig = Rig::new(Config::default());
        rig.connect();
        let heard = rig.now;
        let epoch = rig.epoch();
        let asked = heard.after(Millis::new(silence));
        // The driver checks at each deadline, and never sees a sign of life.
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
                    Action::Keepalive { .. } => probed = Some(rig.now),
                    Action::Disconnect { cause, .. } => dead = Some((rig.now, cause)),
                    _ => {}
                }
            }
        }
        assert_eq!(probed, Some(asked));
        let gone = asked.after(Millis::from_secs(10));
        assert_eq!(dead, Some((gone, Cause::PeerDead)));
        assert_eq!(rig.event(Event::KeepaliveAnswered(epoch)), []);
    }
}

// Keepalive: as long as the server's host answers probes, the keepalive does not end the
// connection.
#[test]
fn a_slow_server_is_left_alone() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let epoch = rig.epoch();
    let mut heard = rig.now;
    let end = rig.now.after(Millis::from_secs(3600));
    let mut probes = 0;
    rig.event(Event::Replied(epoch));
    // A call waits for an hour without a reply. The peer answers only the probes, each a few
    // seconds after it was sent.
    while rig.now < end {
        rig.now = rig.conn.deadline().unwrap_or(end);
        let actions = rig.look(heard, heard, true);
        assert!(!actions
            .iter()
            .any(|a| matches!(a, Action::Disconnect { .. })));
        rig.advance(4_000);
        rig.event(Event::KeepaliveAnswered(epoch));
        heard = rig.now;
        probes += 1;
    }
    assert!(probes > 100);
    assert_eq!(rig.conn.phase(), Phase::Up);
}

// Keepalive: one probe is in flight at a time. Any sign of life that arrives after the probe was
// sent counts as the answer to the probe.
#[test]
fn anything_heard_is_as_good_as_an_answer() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let heard = rig.now;
    rig.advance(5_000);
    let epoch = rig.epoch();
    assert_eq!(rig.look(heard, heard, true), [Action::Keepalive { epoch }]);
    let sent = rig.now;
    // A message that arrived before the probe was sent does not count as the answer to the probe.
    rig.advance(9_999);
    assert_eq!(rig.look(sent, heard, true), []);
    // Only one probe is in flight at a time.
    let cookie = rig.conn.cookie();
    rig.event(Event::Replied(epoch));
    assert_eq!(
        rig.event(Event::RpcTimeout {
            cookie,
            timer: RpcTimer::default()
        }),
        []
    );
    rig.advance(1);
    let later = sent.after(Millis::new(5_001));
    assert_eq!(rig.look(later, heard, true), []);
    assert_eq!(rig.conn.phase(), Phase::Up);
    // A reported time in the future counts as the present time.
    rig.advance(5_000);
    assert_eq!(rig.look(Time::from_millis(u64::MAX), heard, true), []);
    rig.advance(5_000);
    assert_eq!(rig.look(heard, heard, true), [Action::Keepalive { epoch }]);
}

// covers: MAL-153
#[test]
fn an_rpc_timer_counts_against_its_own_connection_only() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let first = rig.conn.cookie();
    let epoch = rig.epoch();
    // No reply has ever arrived on this connection. So the first timer that fires ends the
    // connection.
    assert_eq!(
        causes(&rig.event(Event::RpcTimeout {
            cookie: first,
            timer: RpcTimer::default()
        })),
        [Cause::RpcTimeout]
    );
    let closed = rig.conn.cookie();
    assert_eq!(
        rig.event(Event::RpcTimeout {
            cookie: closed,
            timer: RpcTimer::default()
        }),
        []
    );
    rig.event(Event::TornDown(epoch));
    rig.connect();
    // Timers of the old connection, and of calls that were never sent, have no effect on the new
    // connection.
    for cookie in [first, closed, rig.conn.cookie().wrapping_sub(1)] {
        assert_eq!(
            rig.event(Event::RpcTimeout {
                cookie,
                timer: RpcTimer::default()
            }),
            []
        );
    }
    assert_eq!(rig.conn.phase(), Phase::Up);
    // If a reply has arrived, the first timer that fires only causes a probe of the peer's host.
    let epoch = rig.epoch();
    let cookie = rig.conn.cookie();
    rig.event(Event::Replied(epoch));
    assert_eq!(
        rig.event(Event::RpcTimeout {
            cookie,
            timer: RpcTimer::default()
        }),
        [Action::Keepalive { epoch }]
    );
    rig.event(Event::KeepaliveAnswered(epoch));
    // The server is slow, not dead: after another timer has fired, the server is probed again.
    assert_eq!(
        rig.event(Event::RpcTimeout {
            cookie,
            timer: RpcTimer::default()
        }),
        [Action::Keepalive { epoch }]
    );
}

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
        causes(&rig.event(Event::RpcTimeout {
            cookie,
            timer: RpcTimer::default()
        })),
        [Cause::RpcTimeout]
    );
}

// Observability: the last disconnects are listed with their causes.
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
    // A failed attempt does not count as a disconnect.
    let entries: Vec<_> = rig.conn.history().iter().copied().collect();
    rig.fail_once();
    assert!(rig.conn.history().iter().eq(&entries));
}

// A default `Activity` says that nothing was heard from the peer, so the keepalive probes the peer.
#[test]
fn a_default_activity_proves_nothing() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    rig.advance(30_000);
    assert_eq!(rig.event(Event::Tick(Activity::default())).len(), 1);
}

// The driver takes no actions while many events arrive. The request to disconnect still stays in
// the queue of actions.
#[test]
fn a_driver_that_takes_no_actions_loses_none() {
    let mut rig = Rig::new(Config::default());
    rig.connect();
    let epoch = rig.epoch();
    let cookie = rig.conn.cookie();
    rig.conn.handle(Event::Replied(epoch), rig.now);
    for _ in 0..50 {
        rig.conn.handle(
            Event::RpcTimeout {
                cookie,
                timer: RpcTimer {
                    heard: rig.now,
                    ..RpcTimer::default()
                },
            },
            rig.now,
        );
        rig.conn.handle(Event::KeepaliveAnswered(epoch), rig.now);
    }
    rig.conn.handle(Event::Close(Cause::Forced), rig.now);
    let actions = rig.drain();
    assert_eq!(actions.first(), Some(&Action::Keepalive { epoch }));
    assert_eq!(causes(&actions), [Cause::Forced]);
    assert_eq!(actions.len(), 2);
    rig.event(Event::TornDown(epoch));
    rig.event(Event::Shutdown);
    for _ in 0..50 {
        rig.conn.handle(
            Event::Start {
                timeout: None,
                trial: true,
            },
            rig.now,
        );
    }
    assert_eq!(rig.drain().len(), 1);
}

// Observability: a report may arrive after its connection was recorded as lost. The report is then
// added to the record. For example, a flushed work request means that another work request failed
// earlier, but the report of that failure may arrive later.
#[test]
fn what_is_told_about_the_end_is_remembered_with_it() {
    let mut rig = endless();
    rig.connect();
    let epoch = rig.epoch();
    let newest = |rig: &Rig| rig.conn.history().iter().next().copied();
    rig.event(Event::Lost(epoch, Cause::Completion(WcStatus::Flushed)));
    assert_eq!(
        newest(&rig).map(|lost| (lost.cm, lost.seen)),
        Some((None, Seen::default()))
    );
    // Only the first event of the connection manager that ends a connection is recorded.
    for event in [
        CmEvent::RouteResolved,
        CmEvent::Disconnected,
        CmEvent::TimewaitExit,
    ] {
        assert_eq!(rig.cm(event), []);
    }
    assert_eq!(
        newest(&rig).and_then(|lost| lost.cm),
        Some(CmEvent::Disconnected)
    );
    let seen = Seen {
        first: Some(failed(Opcode::Recv, FLUSHED)),
        reason: Some(failed(Opcode::Send, RETRY_EXCEEDED)),
        event: Some(QpEvent::from_raw(3)),
        repeated: false,
        device: Some((DeviceEvent::from_raw(10), Millis::new(7))),
    };
    // Reports about another connection are ignored.
    rig.event(Event::Seen(epoch.next(), seen));
    assert_eq!(newest(&rig).map(|lost| lost.seen), Some(Seen::default()));
    rig.event(Event::Seen(epoch, seen));
    assert_eq!(newest(&rig).map(|lost| lost.seen), Some(seen));
    assert_eq!(seen.event, Some(QpEvent::AccessError));
    rig.event(Event::TornDown(epoch));

    // If this host disconnects, the events that follow from the disconnect are not recorded as
    // reasons.
    rig.connect();
    let epoch = rig.epoch();
    rig.event(Event::Close(Cause::Forced));
    rig.event(Event::Disconnecting(epoch));
    rig.cm(CmEvent::Disconnected);
    assert_eq!(
        newest(&rig).map(|lost| (lost.epoch, lost.cm)),
        Some((epoch, None))
    );
    rig.event(Event::TornDown(epoch));

    // The event that caused the end is recorded. Events of the next attempt are not recorded for
    // that end.
    rig.connect();
    let epoch = rig.epoch();
    rig.cm(CmEvent::TimewaitExit);
    rig.event(Event::TornDown(epoch));
    rig.reach(Phase::Address);
    rig.cm(CmEvent::DeviceRemoval);
    rig.cm(CmEvent::Disconnected);
    let expected = Some((epoch, Some(CmEvent::TimewaitExit)));
    assert_eq!(newest(&rig).map(|lost| (lost.epoch, lost.cm)), expected);
}

// Observability: each cause for the end of a connection has its own name, so that an administrator
// can tell the causes apart.
#[test]
fn every_cause_has_its_own_name() {
    let mut names: Vec<_> = ALL_CAUSES.iter().map(|cause| cause.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL_CAUSES.len());
}

// Observability: each kind of report about the end of a connection has its own name, so that an
// administrator can tell the reports apart.
#[test]
fn every_sign_of_the_end_has_its_own_name() {
    let cm = [
        CmEvent::ConnectError,
        CmEvent::Unreachable,
        CmEvent::Rejected { stale: true },
        CmEvent::Disconnected,
        CmEvent::AddrChange,
        CmEvent::DeviceRemoval,
        CmEvent::TimewaitExit,
        CmEvent::AddrResolved,
    ];
    assert_all_differ(cm.map(CmEvent::name));
    assert_eq!(CmEvent::Disconnected.name(), "disconnected by the peer");
    // Values of `enum ib_event_type`. The last value stands for any other event.
    assert_all_differ([1, 2, 3, 8, 0].map(|event| QpEvent::from_raw(event).name()));
    assert_eq!(
        QpEvent::from_raw(1).name(),
        "fatal error (IB_EVENT_QP_FATAL)"
    );
    // The names that the RDMA verbs API uses for the operations.
    let opcodes = [
        Opcode::Send,
        Opcode::RegMr,
        Opcode::LocalInv,
        Opcode::RdmaWrite,
        Opcode::Recv,
    ];
    let names = ["SEND", "REG_MR", "LOCAL_INV", "RDMA_WRITE", "RECV"];
    assert_eq!(opcodes.map(Opcode::name), names);
}

// Observability: if all failed work requests were flushed, none of them shows the reason.
#[test]
fn flushed_work_requests_alone_give_no_reason() {
    for (first, reason, lacking) in [
        (None, None, false),
        (Some(FLUSHED), None, true),
        (Some(FLUSHED), Some(RETRY_EXCEEDED), false),
        (Some(RETRY_EXCEEDED), Some(RETRY_EXCEEDED), false),
        // This work request failed while this host ended the connection.
        (None, Some(RETRY_EXCEEDED), false),
    ] {
        let seen = Seen {
            first: first.map(|status| failed(Opcode::RegMr, status)),
            reason: reason.map(|status| failed(Opcode::Send, status)),
            ..Seen::default()
        };
        assert_eq!(seen.lacks_a_reason(), lacking, "{seen:?}");
    }
}

fn assert_all_differ<const N: usize>(mut names: [&str; N]) {
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

#[test]
fn the_idle_timeout_is_what_was_configured() {
    for idle_timeout in [None, Some(Millis::from_secs(7))] {
        let rig = Rig::new(Config {
            idle_timeout,
            ..Config::default()
        });
        assert_eq!(rig.conn.idle_timeout(), idle_timeout);
    }
}

const ALL_CAUSES: [Cause; 29] = [
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
    Cause::VersionRefused,
    Cause::RpcTimeout,
    Cause::Unserved,
    Cause::Retransmit,
    Cause::CreditResync,
    Cause::GivenUpCall,
    Cause::PeerDead,
    Cause::PeerUnreachable,
    Cause::AddrChanged,
    Cause::DeviceRemoved,
    Cause::PortDown,
    Cause::RailMove,
    Cause::Forced,
    Cause::Idle,
    Cause::Closed,
    Cause::Shutdown,
];

fn stale_events(epoch: Epoch) -> [Event; 13] {
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
        Event::KeepaliveAnswered(epoch),
        Event::KeepaliveNotSent(epoch),
        Event::Lost(epoch, Cause::PostFailed),
        Event::TornDown(epoch),
    ]
}

/// A connection that ends only if the test ends it.
fn endless() -> Rig {
    Rig::new(Config {
        keepalive: None,
        idle_timeout: None,
        ..Config::default()
    })
}

/// Connects, and loses the connection after `lasted` milliseconds; returns the delay.
fn lose(rig: &mut Rig, lasted: u64, useful: bool, cause: Cause) -> Millis {
    rig.connect();
    let epoch = rig.epoch();
    if useful {
        rig.event(Event::Replied(epoch));
    }
    rig.advance(lasted);
    rig.event(Event::Lost(epoch, cause));
    rig.event(Event::TornDown(epoch));
    rig.delay()
}

fn causes(actions: &[Action]) -> Vec<Cause> {
    let cause = |action: &Action| match *action {
        Action::Disconnect { cause, .. } => Some(cause),
        _ => None,
    };
    actions.iter().filter_map(cause).collect()
}
