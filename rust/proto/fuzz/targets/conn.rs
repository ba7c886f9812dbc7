// SPDX-License-Identifier: GPL-2.0

//! Passes random lists of events to the connection's state machine. The target checks the
//! properties on which a driver may rely.

use super::source::Source;
use xprtrdma_proto::{
    conn::{
        Accepted,
        Action,
        Activity,
        AddrFault,
        Cause,
        CmEvent,
        Config,
        Conn,
        Epoch,
        Event,
        LocalFault,
        Phase,
        RpcTimer, //
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
    wc::WcStatus, //
};

/// Maximum time from now to the next deadline of the state machine, with the default configuration.
const LONGEST_WAIT: Millis = Millis::from_secs(300);

/// The resources that the driver holds.
#[derive(Default)]
struct Driver {
    /// The attempt or connection for which the driver holds resources.
    holds: Option<Epoch>,
    established: bool,
    /// Whether the state machine has requested that the driver release the resources.
    releasing: bool,
}

/// Runs the target: passes events to the state machine of one transport.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let config = Config {
        version: match source.below(3) {
            0 => VersionPolicy::V1Only,
            1 => VersionPolicy::PreferV2,
            _ => VersionPolicy::V2Only,
        },
        ..Config::default()
    };
    let mut conn = Conn::new(config, source.u64());
    let mut now = Time::from_millis(u64::from(source.u32()));
    let mut driver = Driver::default();
    while !source.is_empty() {
        now = pass(&mut source, &conn, now);
        let event = event(&mut source, &conn, now);
        let before = (conn.phase(), conn.cookie(), conn.epoch());
        conn.handle(event, now);
        check_step(event, before, &conn);
        if let Event::TornDown(epoch) = event {
            if driver.releasing && driver.holds == Some(epoch) {
                driver = Driver::default();
            }
        }
        // A slow driver takes only some of the actions before the next event.
        for _ in 0..[0, 1, 2, 20][usize::from(source.below(4))] {
            match conn.poll_action() {
                Some(action) => driver.perform(action),
                None => break,
            }
        }
        check_rest(&conn, now);
    }
    finish(conn, driver, now);
}

/// Advances the time: not at all, a little, to the deadline, or beyond all deadlines.
fn pass(source: &mut Source<'_>, conn: &Conn, now: Time) -> Time {
    match source.below(5) {
        0 | 1 => now,
        2 => now.after(Millis::new(u64::from(source.u16()))),
        3 => conn.deadline().unwrap_or(now).max(now),
        _ => now.after(Millis::from_secs(u64::from(source.u16()))),
    }
}

/// Returns an event of the current epoch or of an earlier epoch. It is the event for which the
/// state machine waits in its present phase, or any other event.
fn event(source: &mut Source<'_>, conn: &Conn, now: Time) -> Event {
    let age = match source.below(8) {
        7 => u32::from(source.u8()),
        _ => 0,
    };
    let epoch = Epoch(conn.epoch().raw().wrapping_sub(age));
    let cookie = conn.cookie().wrapping_sub(age);
    match source.below(24) {
        0..=5 => answer(conn.phase(), epoch),
        6 | 7 => Event::Cm(epoch, cm_event(source)),
        8 => Event::LocalFault(
            epoch,
            match source.below(4) {
                0 => LocalFault::NoResources,
                1 => LocalFault::DeviceUnsuitable,
                2 => LocalFault::Refused(-22),
                _ => LocalFault::DeviceGone,
            },
        ),
        9 => Event::VersionAnswer(epoch, probe_answer(source)),
        10 => Event::Lost(epoch, cause(source)),
        11 => Event::Close(cause(source)),
        12 | 15 => Event::Replied(epoch),
        13 => Event::LargeSend(epoch),
        14 => Event::LargeSendTaken(epoch),
        16 => Event::KeepaliveAnswered(epoch),
        17 => Event::RpcTimeout {
            cookie,
            timer: RpcTimer {
                span: Millis::new(u64::from(source.u16())),
                heard: Time::from_millis(now.as_millis().saturating_sub(u64::from(source.u16()))),
            },
        },
        18 => Event::Lost(epoch, Cause::Retransmit),
        19 | 20 => {
            let seen = now.as_millis().saturating_sub(u64::from(source.u32()));
            Event::Tick(Activity {
                last_rx: Time::from_millis(seen),
                used: Time::from_millis(seen),
                busy: source.bool(),
            })
        }
        21 => Event::Backchannel {
            bound: source.bool(),
        },
        22 => Event::TornDown(epoch),
        _ if source.u8() == 0xff => Event::Shutdown,
        _ => Event::Start {
            timeout: Some(Millis::new(u64::from(source.u16()))),
            trial: true,
        },
    }
}

fn answer(phase: Phase, epoch: Epoch) -> Event {
    match phase {
        Phase::Address => Event::Cm(epoch, CmEvent::AddrResolved),
        Phase::Route => Event::Cm(epoch, CmEvent::RouteResolved),
        Phase::QueuePair => Event::QpCreated(epoch),
        Phase::Connecting => Event::Cm(
            epoch,
            CmEvent::Established(Accepted {
                peer_read_depth: None,
            }),
        ),
        Phase::Negotiating => Event::VersionAnswer(epoch, ProbeAnswer::Reply),
        Phase::Closing => Event::TornDown(epoch),
        Phase::Waiting => Event::Tick(Activity::default()),
        Phase::Up => Event::Replied(epoch),
        Phase::Down | Phase::Stopped => Event::Start {
            timeout: None,
            trial: true,
        },
    }
}

fn cm_event(source: &mut Source<'_>) -> CmEvent {
    match source.below(14) {
        0 => CmEvent::AddrResolved,
        1 => CmEvent::AddrError(AddrFault::NoDevice),
        2 => CmEvent::AddrError(AddrFault::TimedOut),
        3 => CmEvent::AddrError(AddrFault::Other),
        4 => CmEvent::RouteResolved,
        5 | 6 => CmEvent::RouteError,
        7 => CmEvent::Established(Accepted {
            peer_read_depth: Some(source.u8()),
        }),
        8 => CmEvent::ConnectError,
        9 => CmEvent::Unreachable,
        10 => CmEvent::Rejected {
            stale: source.bool(),
        },
        11 => CmEvent::Disconnected,
        12 => CmEvent::AddrChange,
        _ if source.bool() => CmEvent::DeviceRemoval,
        _ => CmEvent::TimewaitExit,
    }
}

fn probe_answer(source: &mut Source<'_>) -> ProbeAnswer {
    match source.below(4) {
        0 => ProbeAnswer::Reply,
        1 => ProbeAnswer::Error(RemoteErrorKind::Chunk),
        2 => ProbeAnswer::Error(RemoteErrorKind::InvalOption),
        _ => ProbeAnswer::Error(RemoteErrorKind::Version {
            low: u32::from(source.below(4)),
            high: u32::from(source.below(4)),
        }),
    }
}

fn cause(source: &mut Source<'_>) -> Cause {
    match source.below(19) {
        0 => Cause::PeerClosed,
        1 => Cause::Completion(WcStatus::from_raw(u32::from(source.below(16)))),
        2 => Cause::PostFailed,
        3 => Cause::InvalidateFailed,
        4 => Cause::WrongInvalidate,
        5 => Cause::Immediate,
        6 => Cause::BadReplies,
        7 => Cause::BackchannelOverflow,
        8 => Cause::OptionFlood,
        9 => Cause::CreditResync,
        10 => Cause::AddrChanged,
        11 => Cause::DeviceRemoved,
        12 => Cause::Forced,
        13 => Cause::Idle,
        14 => Cause::Closed,
        15 => Cause::VersionRefused,
        16 => Cause::PortDown,
        17 => Cause::RailMove,
        _ => Cause::BadReply,
    }
}

/// Checks that one event has changed only what it may change.
fn check_step(event: Event, before: (Phase, u32, Epoch), conn: &Conn) {
    let (phase, cookie, epoch) = before;
    let came_or_went = (phase == Phase::Up) != (conn.phase() == Phase::Up);
    assert_eq!(conn.cookie() != cookie, came_or_went);
    let of = match event {
        Event::Cm(of, _)
        | Event::QpCreated(of)
        | Event::LocalFault(of, _)
        | Event::VersionAnswer(of, _)
        | Event::Lost(of, _)
        | Event::TornDown(of) => Some(of),
        _ => None,
    };
    if of.is_some_and(|of| of != epoch) {
        assert_eq!(conn.phase(), phase);
    }
    if phase == Phase::Stopped {
        assert_eq!(conn.phase(), Phase::Stopped);
    }
    if conn.epoch() != epoch {
        assert!(matches!(
            phase,
            Phase::Down | Phase::Waiting | Phase::Closing
        ));
        assert_eq!(conn.phase(), Phase::Address);
    }
}

/// Checks conditions that must hold after the driver has performed its actions.
fn check_rest(conn: &Conn, now: Time) {
    let waits = !matches!(conn.phase(), Phase::Down | Phase::Closing | Phase::Stopped);
    assert_eq!(conn.deadline().is_some(), waits);
    if let Some(deadline) = conn.deadline() {
        assert!(deadline.since(now) <= LONGEST_WAIT);
    }
}

impl Driver {
    fn perform(&mut self, action: Action) {
        match action {
            Action::ResolveAddr { epoch, .. } => {
                // During one attempt the state machine may ask the driver several times to resolve
                // the address.
                assert!(self.holds.is_none_or(|held| held == epoch));
                assert!(!self.established && !self.releasing);
                self.holds = Some(epoch);
            }
            Action::ResolveRoute { epoch, .. }
            | Action::CreateQp { epoch }
            | Action::Connect { epoch, .. }
            | Action::SendVersionProbe { epoch } => {
                assert_eq!(self.holds, Some(epoch));
                assert!(!self.established && !self.releasing);
            }
            Action::Established { epoch, .. } => {
                assert_eq!(self.holds, Some(epoch));
                assert!(!self.established && !self.releasing);
                self.established = true;
            }
            Action::Keepalive { epoch } => {
                assert_eq!(self.holds, Some(epoch));
                assert!(self.established && !self.releasing);
            }
            Action::Disconnect { epoch, .. } => {
                assert_eq!(self.holds, Some(epoch));
                assert!(self.established && !self.releasing);
                self.releasing = true;
            }
            Action::TearDown { epoch } => {
                assert_eq!(self.holds, Some(epoch));
                assert!(!self.established && !self.releasing);
                self.releasing = true;
            }
            Action::Fail { .. } => assert_eq!(self.holds, None),
        }
    }
}

/// Checks that the state machine stops after a shutdown, whatever events came before. The driver
/// needs to report only that it has released its resources.
fn finish(mut conn: Conn, mut driver: Driver, now: Time) {
    conn.handle(Event::Shutdown, now);
    while let Some(action) = conn.poll_action() {
        driver.perform(action);
    }
    if let Some(epoch) = driver.holds {
        assert!(driver.releasing);
        conn.handle(Event::TornDown(epoch), now);
        let mut released = Driver::default();
        while let Some(action) = conn.poll_action() {
            released.perform(action);
        }
        assert_eq!(released.holds, None);
    }
    assert_eq!(conn.phase(), Phase::Stopped);
    assert_eq!(conn.deadline(), None);
    conn.handle(
        Event::Start {
            timeout: None,
            trial: true,
        },
        now,
    );
    assert!(matches!(conn.poll_action(), Some(Action::Fail { .. })));
    assert_eq!(conn.phase(), Phase::Stopped);
}
