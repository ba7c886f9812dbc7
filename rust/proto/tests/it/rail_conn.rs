// SPDX-License-Identifier: GPL-2.0

//! The effect of several rails on one connection: how soon it ends, and how soon the next attempt
//! starts.

use crate::{
    common::{
        failed,
        FLUSHED,
        GENERAL_ERROR,
        REMOTE_ACCESS,
        REMOTE_OPERATION,
        RETRY_EXCEEDED, //
    },
    rig::Rig, //
};
use xprtrdma_proto::{
    conn::{
        Action,
        Blame,
        Cause,
        CmEvent,
        Config,
        ConnectError,
        Disconnect,
        Epoch,
        Event,
        Haste,
        Opcode,
        Phase,
        RailFacts,
        Seen, //
    },
    time::{
        Millis,
        Time, //
    },
    wc::WcStatus, //
};

const WATCHED: RailFacts = RailFacts {
    at_once: false,
    watched: true,
};

// Rails: if the peer is silent, the connection ends at most eight seconds after a call begins to
// wait. The test varies the time at which the call begins to wait, and the time of the peer's last
// sign of life.
#[test]
fn silence_on_one_of_several_rails_ends_the_connection_soon() {
    for busy_at in (0..4000).step_by(250) {
        for silent_at in (0..=busy_at).step_by(250) {
            let mut rig = Rig::new(Config::default());
            rig.conn.take_rail_facts(WATCHED);
            rig.connect();
            let begin = rig.now;
            let at = |ms| begin.after(Millis::new(ms));
            let ended = loop {
                rig.now = rig.conn.deadline().unwrap();
                let last_rx = rig.now.min(at(silent_at));
                let actions = rig.look(last_rx, begin, rig.now >= at(busy_at));
                if let Some(Action::Disconnect { cause, .. }) = actions.last() {
                    assert_eq!(*cause, Cause::PeerDead);
                    break rig.now;
                }
                assert!(rig.now < at(20_000));
            };
            assert!(ended.since(at(busy_at)) <= Millis::new(8000));
        }
    }
}

// Rails: connections are checked more often only if the mount has several rails.
#[test]
fn a_single_rail_is_watched_as_ever() {
    for (way, first_look) in [(RailFacts::default(), 5000), (WATCHED, 2000)] {
        let mut rig = Rig::new(Config::default());
        rig.conn.take_rail_facts(way);
        rig.connect();
        let look = rig.conn.deadline().unwrap();
        assert_eq!(look.since(rig.now), Millis::new(first_look));
    }
    let mut rig = Rig::new(Config {
        keepalive: None,
        idle_timeout: None,
        ..Config::default()
    });
    rig.conn.take_rail_facts(WATCHED);
    rig.connect();
    assert_eq!(rig.conn.deadline(), None::<Time>);
}

// Rails: if an attempt fails and another rail is live, the next attempt uses the other rail and
// starts without a delay. If all rails are dead, the delays stay short for some minutes.
#[test]
fn another_rail_is_tried_at_once() {
    let mut rig = Rig::new(Config::default());
    let mut longest = Millis::default();
    for _ in 0..12 {
        rig.fail_once();
        assert!(rig.delay() > Millis::default());
        rig.conn.take_rail_facts(RailFacts {
            at_once: true,
            watched: true,
        });
        assert_eq!(rig.delay(), Millis::default());
        rig.conn.take_rail_facts(WATCHED);
        assert!(rig.delay() > Millis::default());
        longest = longest.max(rig.delay());
    }
    let limit = Config::default().rail_back_off;
    assert!(longest <= limit && longest > Millis::new(limit.get() / 2));
    // A server that is down for many hours gets as few attempts with several rails as with one
    // rail.
    for _ in 12..24 {
        rig.fail_once();
    }
    let most = Config::default().backoff.max;
    assert!(rig.delay() <= most && rig.delay() >= Millis::new(most.get() / 2));
    // With a single rail, the delay before an attempt may reach its full length.
    let mut rig = Rig::new(Config::default());
    for _ in 0..12 {
        rig.fail_once();
    }
    assert!(rig.delay() > limit);
}

/// Returns a record of a disconnect with this cause. The record contains no failed work request and
/// no event of the connection manager.
fn ended(cause: Cause) -> Disconnect {
    Disconnect {
        epoch: Epoch::NONE,
        cause,
        at: Time::default(),
        lasted: Millis::from_secs(9),
        useful: true,
        unanswered: Millis::default(),
        cm: None,
        seen: Seen::default(),
    }
}

// Rails: if no packets reach the peer, the peer may give up the connection before this host does.
// This host then sees only that the peer closed the connection. But the rail is blamed if a probe
// was sent earlier and was not answered in time. Over a working rail the peer's adapter would have
// answered the probe.
#[test]
fn a_rail_is_blamed_when_a_probe_stayed_unanswered() {
    for (waited, answered, blamed) in [
        (900, false, false),
        (1100, false, true),
        (1100, true, false),
    ] {
        let mut rig = Rig::new(Config::default());
        rig.conn.take_rail_facts(WATCHED);
        rig.connect();
        let begin = rig.now;
        rig.now = rig.conn.deadline().unwrap();
        let epoch = rig.epoch();
        assert_eq!(rig.look(begin, begin, true), [Action::Keepalive { epoch }]);
        if answered {
            rig.event(Event::KeepaliveAnswered(epoch));
        }
        rig.advance(waited);
        rig.cm(CmEvent::Disconnected);
        let lost = *rig.conn.history().iter().next().unwrap();
        assert_eq!(lost.cause, Cause::PeerClosed);
        assert_eq!(lost.blames_rail(), blamed, "{waited} {answered}");
    }
    // If this host ends a connection, that says nothing about the rail.
    let unanswered = Millis::from_secs(3);
    for (cause, blamed) in [
        (Cause::Completion(WcStatus::Flushed), true),
        (Cause::Forced, false),
        (Cause::RailMove, false),
        (Cause::Closed, false),
    ] {
        let lost = Disconnect {
            unanswered,
            ..ended(cause)
        };
        assert_eq!(lost.blames_rail(), blamed, "{cause:?}");
    }
    // The peer closed the connection, but a failed work request with the status `RETRY_EXCEEDED`
    // shows that the rail is to blame.
    for (first, reason) in [(RETRY_EXCEEDED, None), (FLUSHED, Some(RETRY_EXCEEDED))] {
        let seen = Seen {
            first: Some(failed(Opcode::Send, first)),
            reason: reason.map(|reason| failed(Opcode::Recv, reason)),
            ..Seen::default()
        };
        let lost = Disconnect {
            seen,
            ..ended(Cause::PeerClosed)
        };
        assert!(lost.blames_rail());
    }
}

// Rails: after an attempt that fails because of its rail, the next attempt starts without a pause.
// The number of such attempts is limited to a few for each rail. If the peer still has older
// connections, the limit is lower.
#[test]
fn attempts_follow_each_other_at_once_a_few_times() {
    for (reason, most) in [
        (ConnectError::Stale, 8),
        (ConnectError::Unanswered, 31),
        (ConnectError::NoRoute, 31),
    ] {
        let mut haste = Haste::default();
        let at_once = (0..100).take_while(|_| haste.may_follow(reason)).count();
        assert_eq!(at_once, most, "{reason:?}");
        assert!(!haste.may_follow(reason));
    }
    // Both types of failure, `Stale` and `Refused`, count towards the limit.
    let mut haste = Haste::default();
    for _ in 0..8 {
        assert!(haste.may_follow(ConnectError::Stale));
        assert!(haste.may_follow(ConnectError::Refused));
    }
    assert!(!haste.may_follow(ConnectError::Stale));
}

// Rails: a rail becomes doubted (possibly broken) if a connection over the rail ends without a
// known reason, and this host did not end the connection.
#[test]
fn a_rail_is_doubted_when_nothing_says_why() {
    let flushed = Cause::Completion(WcStatus::Flushed);
    let refused = Cause::Completion(WcStatus::RemoteInvalidRequest);
    for (cause, reason, doubted) in [
        (Cause::PeerClosed, None, true),
        (flushed, None, true),
        (flushed, Some(GENERAL_ERROR), true),
        (flushed, Some(REMOTE_ACCESS), false),
        (Cause::PeerClosed, Some(REMOTE_OPERATION), false),
        (refused, None, false),
        (Cause::Completion(WcStatus::RnrExceeded), None, false),
        (Cause::GivenUpCall, None, false),
        (Cause::BadReply, None, false),
        (Cause::Idle, None, false),
        (Cause::RailMove, None, false),
    ] {
        let seen = Seen {
            reason: reason.map(|reason| failed(Opcode::Send, reason)),
            ..Seen::default()
        };
        let lost = Disconnect {
            seen,
            ..ended(cause)
        };
        assert_eq!(lost.doubts_rail(), doubted, "{cause:?} {reason:?}");
        // If the device has repeated a registration, the device has caused the end of the
        // connection. So the end gives no reason to doubt the rail.
        let mut explained = lost;
        explained.seen.repeated = true;
        assert!(!explained.doubts_rail(), "{cause:?} {reason:?}");
    }
}

// Rails: a rail is blamed only for failures that might not occur on another rail.
#[test]
fn a_rail_is_blamed_for_silence_not_for_answers() {
    for (cause, blamed) in [
        (Cause::PeerDead, true),
        // After an RPC timeout the rail is not blamed, because the server's adapter may have
        // answered every probe.
        (Cause::RpcTimeout, false),
        (Cause::Unserved, false),
        (Cause::PeerUnreachable, true),
        (Cause::PortDown, true),
        (Cause::DeviceRemoved, true),
        (Cause::AddrChanged, true),
        (Cause::Completion(WcStatus::RetryExceeded), true),
        (Cause::Completion(WcStatus::RnrExceeded), false),
        (Cause::Completion(WcStatus::Flushed), false),
        (Cause::PeerClosed, false),
        (Cause::RailMove, false),
        (Cause::Forced, false),
        (Cause::Retransmit, false),
    ] {
        assert_eq!(ended(cause).blames_rail(), blamed, "{cause:?}");
    }
    for (reason, blame) in [
        (ConnectError::Unanswered, Blame::Silence),
        (ConnectError::TimedOut, Blame::Silence),
        (ConnectError::AddrSilent, Blame::Rail),
        (ConnectError::NoDevice, Blame::Rail),
        (ConnectError::PortDown, Blame::Rail),
        (ConnectError::Refused, Blame::Refusal),
        (ConnectError::Stale, Blame::Nothing),
        (ConnectError::PeerClosed, Blame::Nothing),
        (ConnectError::VersionSilent, Blame::Nothing),
        (ConnectError::NoResources, Blame::Nothing),
        (ConnectError::Cancelled, Blame::Nothing),
    ] {
        assert_eq!(reason.blame(), blame, "{reason:?}");
    }
}

// Rails: an attempt to connect ends if the port that the attempt uses goes down.
#[test]
fn a_port_that_goes_down_ends_an_attempt() {
    let mut rig = Rig::new(Config::default());
    rig.conn.take_rail_facts(WATCHED);
    rig.reach(Phase::Connecting);
    let epoch = rig.epoch();
    let actions = rig.event(Event::Lost(epoch, Cause::PortDown));
    assert_eq!(actions, [Action::TearDown { epoch }]);
    let actions = rig.event(Event::TornDown(epoch));
    let reason = ConnectError::PortDown;
    assert!(matches!(actions[..], [Action::Fail { reason: told, .. }] if told == reason));
    assert_eq!(rig.cm(CmEvent::Disconnected), []);
}
