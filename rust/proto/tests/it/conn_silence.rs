// SPDX-License-Identifier: GPL-2.0

//! Tests of connections to servers that are silent and to peers that may be unreachable, and of
//! connections on a host that was suspended.

use crate::{
    common::{
        failed,
        REMOTE_INVALID_REQUEST, //
    },
    rig::{
        Rig,
        ACCEPT, //
    },
};
use xprtrdma_proto::{
    conn::{
        Action,
        Cause,
        CmEvent,
        Config,
        Conn,
        Event,
        Mailbox,
        Opcode,
        Phase,
        RailFacts,
        RpcTimer,
        Seen,
        SUSPICION, //
    },
    time::{
        Millis,
        Time, //
    },
    wc::WcStatus, //
};

const NOTHING: Millis = Millis::new(0);

/// Fires an RPC timer that ran for `span` seconds. Returns the cause if the connection ends.
fn timer(rig: &mut Rig, span: u64, heard: Time) -> Option<Cause> {
    let cookie = rig.conn.cookie();
    let timer = RpcTimer {
        span: Millis::from_secs(span),
        heard,
    };
    let actions = rig.event(Event::RpcTimeout { cookie, timer });
    rig.event(Event::KeepaliveAnswered(rig.epoch()));
    cause(&actions)
}

fn cause(actions: &[Action]) -> Option<Cause> {
    actions.iter().find_map(|action| match *action {
        Action::Disconnect { cause, .. } => Some(cause),
        _ => None,
    })
}

/// Returns a connection on which a reply has just arrived.
fn useful(config: Config) -> Rig {
    let mut rig = Rig::new(config);
    rig.connect();
    rig.event(Event::Replied(rig.epoch()));
    rig
}

/// Fires RPC timers with these durations in seconds, one after the other, until the connection
/// ends. Returns the number of seconds until the end, and the cause of the end.
fn until_end(rig: &mut Rig, spans: impl IntoIterator<Item = u64>) -> Option<(u64, Cause)> {
    let heard = rig.now;
    for span in spans {
        rig.advance(span * 1000);
        if let Some(cause) = timer(rig, span, heard) {
            return Some((rig.now.since(heard).get() / 1000, cause));
        }
    }
    None
}

// The server's software no longer works, but the server's adapter still answers probes. The
// connection then ends after the third RPC timer.
#[test]
fn a_dead_server_behind_a_live_adapter_is_found_by_the_third_timer() {
    // Cases: the timers of a call with timeo=600, the timers of a call with timeo=10, and timers
    // that fire slightly early.
    for (spans, end) in [([60, 120, 60], 240), ([1, 2, 1], 4), ([60, 60, 60], 180)] {
        let mut rig = useful(Config::default());
        let found = until_end(&mut rig, spans);
        assert_eq!(found, Some((end, Cause::Unserved)));
    }
}

// With the mount option timeo=1, a timer runs for a tenth of a second. A timer may even run for no
// time. At most one such timer is counted per second.
#[test]
fn timers_that_run_for_moments_count_once_a_second() {
    for span in [0, 1, 100] {
        let mut rig = useful(Config::default());
        let heard = rig.now;
        let end = loop {
            rig.advance(span.max(10));
            let cookie = rig.conn.cookie();
            let timer = RpcTimer {
                span: Millis::new(span),
                heard,
            };
            let actions = rig.event(Event::RpcTimeout { cookie, timer });
            rig.event(Event::KeepaliveAnswered(rig.epoch()));
            if let Some(cause) = cause(&actions) {
                break cause;
            }
        };
        assert_eq!(end, Cause::Unserved);
        let passed = rig.now.since(heard);
        assert!(passed >= Millis::from_secs(2) && passed < Millis::from_secs(3));
    }
}

// The RPC timers of several calls count as one timer if they fire within a period that is shorter
// than the duration of one timer.
#[test]
fn timers_of_calls_side_by_side_count_once() {
    let mut rig = useful(Config::default());
    let heard = rig.now;
    rig.advance(60_000);
    for round in 0..2 {
        for _ in 0..128 {
            assert_eq!(timer(&mut rig, 60, heard), None);
            rig.advance(400);
        }
        // The 128 timers fired within 51 seconds, and each timer ran for 60 seconds. So the 128
        // timers count as one timer.
        rig.advance(60_000 - 128 * 400 + round);
    }
    assert_eq!(timer(&mut rig, 60, heard), Some(Cause::Unserved));
    assert!(rig.now.since(heard) >= Millis::from_secs(180));
}

// The server is slow, but a message arrives before a third RPC timer in a row fires. The client
// never ends the connection to such a server.
#[test]
fn any_message_lets_the_count_begin_anew() {
    let mut rig = useful(Config::default());
    let mut heard = rig.now;
    for round in 0..1000u64 {
        rig.advance(60_000);
        assert_eq!(timer(&mut rig, 60, heard), None);
        if round % 2 == 1 {
            // The server replies to one call, for example to the renewal of the lease.
            rig.advance(1);
            heard = rig.now;
        }
    }
    assert_eq!(rig.conn.phase(), Phase::Up);
}

// If the server sends no message on several connections in a row, the client keeps each connection
// longer than the previous connection.
#[test]
fn a_server_that_sends_nothing_is_given_up_ever_later() {
    let mut rig = useful(Config::default());
    let mut found = Vec::new();
    for _ in 0..6 {
        let end = until_end(&mut rig, [60; 100]);
        assert_eq!(end.map(|(_, cause)| cause), Some(Cause::Unserved));
        found.push(end.map_or(0, |(seconds, _)| seconds / 60));
        rig.event(Event::TornDown(rig.epoch()));
        rig.connect();
    }
    assert_eq!(found, [3, 6, 12, 24, 24, 24]);
    // After one reply the client again keeps a silent connection only for the initial time.
    rig.event(Event::Replied(rig.epoch()));
    assert_eq!(until_end(&mut rig, [60; 100]), Some((180, Cause::Unserved)));
}

// If keepalive probes are switched off, the first RPC timer that fires ends the connection.
#[test]
fn without_keepalive_nothing_is_counted() {
    let mut rig = useful(Config {
        keepalive: None,
        ..Config::default()
    });
    assert_eq!(until_end(&mut rig, [60; 3]), Some((60, Cause::RpcTimeout)));
}

// A neighbour entry that changes for a moment causes a keepalive probe, but does not end the
// connection.
#[test]
fn an_unreachable_peer_is_probed_and_has_little_time() {
    for (answer, end) in [(Some(1_499), None), (None, Some(1_500))] {
        let mut rig = useful(Config::default());
        let epoch = rig.epoch();
        let begin = rig.now;
        assert_eq!(rig.cm(CmEvent::Unreachable), [Action::Keepalive { epoch }]);
        assert_eq!(rig.conn.deadline(), Some(begin.after(SUSPICION)));
        // A second report that the peer is unreachable has no effect: no second probe is sent, and
        // the time limit of the first probe does not change.
        rig.advance(100);
        assert_eq!(rig.cm(CmEvent::Unreachable), []);
        assert_eq!(rig.conn.deadline(), Some(begin.after(SUSPICION)));
        if let Some(ms) = answer {
            rig.now = begin.after(Millis::new(ms));
            rig.event(Event::KeepaliveAnswered(epoch));
        }
        rig.now = begin.after(SUSPICION);
        // Messages from the peer do not prove that this host's messages reach the peer.
        let actions = rig.look(begin.after(Millis::new(400)), begin, true);
        assert_eq!(cause(&actions), end.map(|_| Cause::PeerUnreachable));
    }
}

// A second report that the peer is unreachable arrives while a probe is in flight. The answer to
// this probe may have been sent before the report, so another probe is sent.
#[test]
fn an_answer_to_an_older_probe_ends_no_suspicion() {
    for (answered, end) in [(true, None), (false, Some(Cause::PeerUnreachable))] {
        let mut rig = useful(Config::default());
        let (epoch, heard) = (rig.epoch(), rig.now);
        assert_eq!(rig.cm(CmEvent::Unreachable), [Action::Keepalive { epoch }]);
        rig.advance(100);
        assert_eq!(rig.cm(CmEvent::Unreachable), []);
        rig.advance(1);
        assert_eq!(rig.event(Event::KeepaliveAnswered(epoch)), []);
        assert!(rig.conn.deadline().is_some_and(|due| due <= rig.now));
        rig.advance(10);
        let asked = rig.look(heard, heard, true);
        assert_eq!(asked, [Action::Keepalive { epoch }]);
        let due = rig.now.after(SUSPICION);
        assert_eq!(rig.conn.deadline(), Some(due));
        if answered {
            rig.advance(5);
            rig.event(Event::KeepaliveAnswered(epoch));
            assert!(rig.conn.deadline().is_some_and(|next| next > due));
        }
        rig.now = due;
        let actions = rig.look(heard, heard, true);
        assert_eq!(cause(&actions), end);
    }
}

// While the send queue is full, no probe is sent. Instead the completions of the queued work
// requests count as an answer.
#[test]
fn a_suspicion_without_room_for_a_probe_waits_for_other_signs() {
    for (alive, end) in [(true, None), (false, Some(Cause::PeerDead))] {
        let mut rig = useful(Config::default());
        let (epoch, begin) = (rig.epoch(), rig.now);
        assert_eq!(rig.cm(CmEvent::Unreachable), [Action::Keepalive { epoch }]);
        assert_eq!(rig.event(Event::KeepaliveNotSent(epoch)), []);
        rig.advance(SUSPICION.get());
        // If `alive` is true, a Send completed after the driver had reported that it could not send
        // the probe.
        let heard = if alive {
            begin.after(Millis::new(400))
        } else {
            begin
        };
        let actions = rig.look(heard, heard, true);
        assert_eq!(cause(&actions), None);
        rig.now = begin.after(Config::default().keepalive.unwrap().timeout);
        let heard = if alive { rig.now } else { begin };
        let actions = rig.look(heard, heard, true);
        assert_eq!(cause(&actions), end);
    }
}

// After a report that the peer is unreachable, the time limit of a probe in flight is shortened to
// the time limit of a new probe.
#[test]
fn suspicion_hurries_the_probe_under_way() {
    let mut rig = useful(Config::default());
    let heard = rig.now;
    rig.advance(5_000);
    let epoch = rig.epoch();
    assert_eq!(rig.look(heard, heard, true), [Action::Keepalive { epoch }]);
    rig.advance(100);
    assert_eq!(rig.cm(CmEvent::Unreachable), []);
    let due = rig.now.after(SUSPICION);
    assert_eq!(rig.conn.deadline(), Some(due));
    rig.now = due;
    let actions = rig.look(heard, heard, true);
    assert_eq!(cause(&actions), Some(Cause::PeerUnreachable));
    let unanswered = rig.conn.history().iter().next().map(|lost| lost.unanswered);
    assert_eq!(unanswered, Some(Millis::new(1_600)));
}

// If keepalive probes are switched off, a report that the peer is unreachable has no effect.
#[test]
fn without_keepalive_an_unreachable_peer_keeps_its_connection() {
    let mut rig = useful(Config {
        keepalive: None,
        ..Config::default()
    });
    assert_eq!(rig.cm(CmEvent::Unreachable), []);
    assert_eq!(rig.conn.phase(), Phase::Up);
}

// While a mount makes its first connection, a neighbour entry changes. The client then ends the
// attempt and begins another one. All attempts together have one time limit.
#[test]
fn an_attempt_that_finds_the_peer_unreachable_begins_anew() {
    for stage in Rig::STAGES {
        let mut rig = Rig::new(Config::default());
        rig.reach(stage);
        let begin = rig.now;
        let mut rounds = 0;
        // In each new attempt the neighbour entry changes again.
        let reason = loop {
            let epoch = rig.epoch();
            let actions = rig.cm(CmEvent::Unreachable);
            assert_eq!(actions, [Action::TearDown { epoch }]);
            let actions = rig.event(Event::TornDown(epoch));
            if let [Action::Fail { reason, .. }] = actions[..] {
                break reason;
            }
            assert_eq!(rig.conn.phase(), Phase::Waiting);
            let start = rig.conn.deadline().unwrap();
            assert!(start > rig.now && start <= rig.now.after(Millis::new(250)));
            rig.now = start;
            rig.tick();
            while rig.conn.phase() != stage {
                match rig.conn.phase() {
                    Phase::Address => rig.cm(CmEvent::AddrResolved),
                    Phase::Route => rig.cm(CmEvent::RouteResolved),
                    _ => rig.event(Event::QpCreated(rig.epoch())),
                };
            }
            rounds += 1;
        };
        assert_eq!(reason, xprtrdma_proto::conn::ConnectError::Unanswered);
        assert!(rounds > 100);
        assert!(rig.now.since(begin) <= Config::default().connect_timeout);
    }
}

// If another rail exists and the peer is unreachable over the current rail, the attempt fails
// immediately.
#[test]
fn over_rails_an_unreachable_peer_fails_the_attempt() {
    let mut rig = Rig::new(Config::default());
    rig.conn.take_rail_facts(RailFacts {
        watched: true,
        ..RailFacts::default()
    });
    rig.reach(Phase::Connecting);
    let epoch = rig.epoch();
    rig.cm(CmEvent::Unreachable);
    let actions = rig.event(Event::TornDown(epoch));
    assert!(matches!(actions[..], [Action::Fail { .. }]));
}

// If the host was suspended while a probe was in flight, the time limit of the probe starts anew.
// For each probe this happens only once.
#[test]
fn a_late_look_at_a_probe_is_excused_once() {
    for (late, excused) in [(0, false), (9_999, false), (10_000, true), (600_000, true)] {
        let mut rig = useful(Config::default());
        let heard = rig.now;
        rig.advance(5_000);
        rig.look(heard, heard, true);
        rig.advance(10_000 + late);
        let actions = rig.look(heard, heard, true);
        assert_eq!(cause(&actions), (!excused).then_some(Cause::PeerDead));
        if excused {
            rig.advance(9_999);
            let actions = rig.look(heard, heard, true);
            assert_eq!(cause(&actions), None);
            rig.advance(20_000);
            let actions = rig.look(heard, heard, true);
            assert_eq!(cause(&actions), Some(Cause::PeerDead));
        }
    }
}

// After a suspension of the host, the current step of a connection attempt gets one more second:
// the peer's answer may have arrived, but may not have been handled yet.
#[test]
fn a_late_look_at_an_attempt_is_excused_once() {
    for stage in Rig::STAGES {
        let mut rig = Rig::new(Config::default());
        rig.reach(stage);
        let deadline = rig.conn.deadline().unwrap();
        rig.now = deadline.after(Millis::new(999));
        let mut punctual = Rig {
            conn: rig.conn.clone(),
            ..rig
        };
        assert!(matches!(punctual.tick()[..], [Action::TearDown { .. }]));
        rig.now = deadline.after(Millis::from_secs(60));
        assert_eq!(rig.tick(), []);
        assert_eq!(
            rig.conn.deadline(),
            Some(rig.now.after(Millis::from_secs(1)))
        );
        rig.advance(60_000);
        assert!(matches!(rig.tick()[..], [Action::TearDown { .. }]));
    }
    // If the peer's answer is handled after the suspension, the attempt still succeeds.
    let mut rig = Rig::new(Config::default());
    rig.reach(Phase::Connecting);
    rig.advance(100_000);
    rig.tick();
    rig.cm(ACCEPT);
    assert_eq!(rig.conn.phase(), Phase::Up);
}

// A lease time of zero, which a server may report, does not remove the delays between attempts.
#[test]
fn no_limit_takes_the_delays_away() {
    let mut rig = Rig::new(Config::default());
    rig.conn.limit_timeouts(NOTHING, NOTHING);
    for _ in 0..10 {
        rig.fail_once();
        let delay = rig.delay();
        assert!(delay >= Millis::new(250) && delay <= Millis::new(500));
    }
    assert_eq!(rig.start_bound(), 5_000);
}

/// Returns whether probes are sent on the next connection if a connection ends with this cause.
/// `probing` says whether a probe was in flight when the connection ended.
fn is_probed_after(cause: Cause, seen: Option<u32>, probing: bool) -> bool {
    let mut rig = useful(Config::default());
    let heard = rig.now;
    let epoch = rig.epoch();
    rig.advance(5_000);
    let probes = rig.look(heard, heard, true);
    assert_eq!(probes, [Action::Keepalive { epoch }]);
    if !probing {
        rig.event(Event::KeepaliveAnswered(epoch));
    }
    rig.event(Event::Lost(epoch, cause));
    let seen = Seen {
        reason: seen.map(|status| failed(Opcode::RdmaWrite, status)),
        ..Seen::default()
    };
    rig.event(Event::Seen(epoch, seen));
    rig.event(Event::TornDown(epoch));
    rig.connect();
    rig.event(Event::Replied(rig.epoch()));
    // A bound backchannel prevents the idle connection from being closed. The driver still checks
    // the connection at intervals.
    rig.event(Event::Backchannel { bound: true });
    let soon = rig.now.after(Millis::from_secs(5));
    assert!(rig.conn.deadline().is_some_and(|at| at <= soon));
    let heard = rig.now;
    rig.advance(30_000);
    let probes = rig.look(heard, heard, true);
    // RPC timers are counted even if no keepalive probe is sent.
    let mut found = None;
    for _ in 0..3 {
        rig.advance(60_000);
        found = timer(&mut rig, 60, heard);
    }
    assert_eq!(found, Some(Cause::Unserved));
    !probes.is_empty()
}

// A peer that refuses the RDMA Write of a keepalive probe gets no further probes.
#[test]
fn a_peer_that_refuses_a_probe_is_probed_no_more() {
    let refused = WcStatus::RemoteInvalidRequest;
    for (cause, seen, probing, probed) in [
        (Cause::Completion(refused), None, true, false),
        (Cause::Completion(WcStatus::RemoteAccess), None, true, false),
        (Cause::PeerClosed, Some(REMOTE_INVALID_REQUEST), true, false),
        (Cause::Completion(refused), None, false, true),
        (Cause::Completion(WcStatus::RetryExceeded), None, true, true),
        (Cause::PeerClosed, None, true, true),
    ] {
        assert_eq!(is_probed_after(cause, seen, probing), probed);
    }
}

// The clients of a server that restarts do not all reconnect in the same millisecond.
#[test]
fn a_connection_that_the_peer_closed_is_replaced_within_a_quarter_of_a_second() {
    let delays: Vec<u64> = (0..200)
        .map(|seed| {
            let mut rig = useful(Config::default());
            rig.conn = Conn::new(Config::default(), seed);
            rig.connect();
            rig.event(Event::Replied(rig.epoch()));
            rig.advance(10_000);
            rig.cm(CmEvent::Disconnected);
            rig.event(Event::TornDown(rig.epoch()));
            rig.delay().get()
        })
        .collect();
    assert!(delays.iter().all(|delay| *delay <= 250));
    let first = delays.iter().filter(|delay| **delay < 125).count();
    assert!(first < 140 && first > 60);
    let rig = useful(Config::default());
    let mut others = vec![Cause::Forced, Cause::Retransmit, Cause::PeerDead];
    others.retain(|cause| {
        let mut rig = Rig {
            conn: rig.conn.clone(),
            ..rig
        };
        rig.advance(10_000);
        rig.event(Event::Lost(rig.epoch(), *cause));
        rig.event(Event::TornDown(rig.epoch()));
        rig.delay() != NOTHING
    });
    assert_eq!(others, []);
}

// If several events say whether the backchannel is bound, the worker applies the last of these
// events. Other events in the mailbox do not change this.
#[test]
fn a_state_that_changes_twice_ends_as_it_ended() {
    let mut rig = Rig::new(Config::default());
    rig.reach(Phase::Connecting);
    let mut mailbox = Mailbox::new(rig.conn.clone());
    mailbox.worker_started();
    for bound in [true, false, true] {
        mailbox.deliver(Event::Backchannel { bound }, rig.now);
    }
    let mut last = None;
    while let Some(event) = mailbox.next_event() {
        last = Some(event);
    }
    assert_eq!(last, Some(Event::Backchannel { bound: true }));
    // The mailbox keeps other events even if the RPC timers of many calls fire.
    let cookie = rig.conn.cookie();
    for ms in 0..100 {
        let timer = RpcTimer {
            span: Millis::new(ms),
            heard: rig.now,
        };
        mailbox.deliver(Event::RpcTimeout { cookie, timer }, rig.now);
    }
    let accepted = Event::Cm(rig.epoch(), ACCEPT);
    mailbox.deliver(accepted, rig.now);
    let mut events = Vec::new();
    while let Some(event) = mailbox.next_event() {
        events.push(event);
    }
    assert_eq!(events.len(), 2);
    assert_eq!(events.last(), Some(&accepted));
}
