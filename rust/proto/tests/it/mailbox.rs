// SPDX-License-Identifier: GPL-2.0

//! Tests which events are stored for the worker of a connection attempt, and which events are
//! passed to the connection's state machine directly.

use crate::rig::{
    Rig,
    ACCEPT, //
};
use xprtrdma_proto::{
    conn::{
        Action,
        Activity,
        Cause,
        CmEvent,
        Config,
        Epoch,
        Event,
        LocalFault,
        Mailbox,
        Phase,
        RpcTimer, //
    },
    time::Time,
};

const NOTHING: Option<Action> = None;

/// Events that may arrive from any source at any time.
fn events(epoch: Epoch, cookie: u32) -> Vec<Event> {
    let long_ago = Time::from_millis(0);
    vec![
        Event::Cm(epoch, CmEvent::AddrResolved),
        Event::Cm(epoch, CmEvent::RouteResolved),
        Event::Cm(epoch, ACCEPT),
        Event::Cm(epoch, CmEvent::Disconnected),
        Event::Cm(epoch, CmEvent::DeviceRemoval),
        Event::LocalFault(epoch, LocalFault::NoResources),
        Event::Lost(epoch, Cause::PeerDead),
        Event::Close(Cause::Forced),
        Event::RpcTimeout {
            cookie,
            timer: RpcTimer::default(),
        },
        Event::Lost(epoch, Cause::Retransmit),
        Event::Replied(epoch),
        Event::Backchannel { bound: true },
        Event::Tick(Activity {
            last_rx: long_ago,
            used: long_ago,
            busy: true,
        }),
    ]
}

/// Returns a mailbox whose worker has brought a connection attempt to the phase `phase`, and has
/// not yet taken the next action of the state machine.
fn attempt(phase: Phase) -> (Mailbox, Time) {
    let mut rig = Rig::new(Config::default());
    let mut mailbox = Mailbox::new(rig.conn.clone());
    mailbox.worker_started();
    mailbox.conn.handle(
        Event::Start {
            timeout: None,
            trial: true,
        },
        rig.now,
    );
    rig.conn = mailbox.conn.clone();
    while rig.conn.phase() != phase {
        rig.drain();
        let epoch = rig.epoch();
        let event = match rig.conn.phase() {
            Phase::Address => Event::Cm(epoch, CmEvent::AddrResolved),
            Phase::Route => Event::Cm(epoch, CmEvent::RouteResolved),
            Phase::QueuePair => Event::QpCreated(epoch),
            _ => Event::Cm(epoch, ACCEPT),
        };
        rig.conn.handle(event, rig.now);
    }
    mailbox.conn = rig.conn;
    (mailbox, rig.now)
}

/// An event that arrives while a worker handles an attempt is stored for the worker, behind earlier
/// events. The event removes none of the actions that the worker still has to take.
#[test]
fn no_event_takes_what_the_worker_is_to_do() {
    for phase in [
        Phase::Address,
        Phase::Route,
        Phase::QueuePair,
        Phase::Connecting,
        Phase::Up,
    ] {
        let (start, now) = attempt(phase);
        let all = events(start.conn.epoch(), start.conn.cookie());
        let expected = start.clone().conn.poll_action();
        assert!(expected.is_some());
        for event in &all {
            let mut mailbox = start.clone();
            assert_eq!(mailbox.deliver(*event, now), None);
            assert_eq!(mailbox.conn.phase(), phase);
            assert_eq!(mailbox.conn.poll_action(), expected);
            assert_eq!(mailbox.conn.poll_action(), NOTHING);
            assert_eq!(mailbox.next_event(), Some(*event));
            assert_eq!(mailbox.next_event(), None);
        }
        let mut mailbox = start.clone();
        for event in &all {
            assert_eq!(mailbox.deliver(*event, now), None);
        }
        assert_eq!(mailbox.conn.poll_action(), expected);
        for event in &all {
            assert_eq!(mailbox.next_event(), Some(*event));
        }
    }
}

/// An event that arrives just before the worker starts is handled immediately, and removes none of
/// the actions that the worker has to take.
#[test]
fn an_event_before_the_worker_is_over_when_it_comes() {
    let rig = Rig::new(Config::default());
    for event in events(rig.epoch(), rig.conn.cookie()) {
        let mut mailbox = Mailbox::new(rig.conn.clone());
        assert_eq!(mailbox.deliver(event, rig.now), Some([NOTHING; 4]));
        mailbox.worker_started();
        assert_eq!(mailbox.next_event(), None);
        mailbox.conn.handle(
            Event::Start {
                timeout: None,
                trial: true,
            },
            rig.now,
        );
        assert!(matches!(
            mailbox.conn.poll_action(),
            Some(Action::ResolveAddr { .. })
        ));
    }
}

/// If a worker stops while events are stored for it, the state machine handles these events before
/// any other event.
#[test]
fn what_a_worker_leaves_comes_first() {
    let (mut mailbox, now) = attempt(Phase::Up);
    let epoch = mailbox.conn.epoch();
    assert!(matches!(
        mailbox.conn.poll_action(),
        Some(Action::Established { .. })
    ));
    for event in [
        Event::Replied(epoch),
        Event::Cm(epoch, CmEvent::Disconnected),
        Event::Lost(epoch, Cause::PeerDead),
    ] {
        assert_eq!(mailbox.deliver(event, now), None);
    }
    let left = mailbox.worker_left(now);
    assert!(matches!(
        left,
        [
            Some(Action::Disconnect {
                cause: Cause::PeerClosed,
                ..
            }),
            None,
            None,
            None
        ]
    ));
    assert!(mailbox.conn.history().iter().all(|entry| entry.useful));
    // The worker has stopped, so from now on a thread passes its event directly to the state
    // machine.
    assert_eq!(mailbox.next_event(), None);
    let closed = mailbox.deliver(Event::Close(Cause::Forced), now);
    assert_eq!(closed, Some([NOTHING; 4]));
}

/// If no worker runs, each event is handled immediately.
#[test]
fn without_a_worker_events_are_dealt_with_at_once() {
    let (mut mailbox, now) = attempt(Phase::Up);
    mailbox.conn.poll_action();
    assert_eq!(mailbox.worker_left(now), [NOTHING; 4]);
    let epoch = mailbox.conn.epoch();
    let replied = mailbox.deliver(Event::Replied(epoch), now);
    assert_eq!(replied, Some([NOTHING; 4]));
    let cookie = mailbox.conn.cookie();
    let probe = mailbox.deliver(
        Event::RpcTimeout {
            cookie,
            timer: RpcTimer::default(),
        },
        now,
    );
    assert_eq!(
        probe.and_then(|actions| actions[0]),
        Some(Action::Keepalive { epoch })
    );
    let lost = mailbox.deliver(Event::Close(Cause::Forced), now);
    assert!(matches!(
        lost.and_then(|actions| actions[0]),
        Some(Action::Disconnect { .. })
    ));
    assert_eq!(mailbox.conn.phase(), Phase::Closing);
}

/// If too many events are stored, the newest events are lost, and not the oldest.
#[test]
fn a_full_mailbox_keeps_the_first_events() {
    let (mut mailbox, now) = attempt(Phase::Address);
    for raw in 1..=40 {
        let event = Event::Replied(Epoch(raw));
        assert_eq!(mailbox.deliver(event, now), None);
    }
    for raw in 1..=16 {
        let event = Event::Replied(Epoch(raw));
        assert_eq!(mailbox.next_event(), Some(event));
    }
    assert_eq!(mailbox.next_event(), None);
}
