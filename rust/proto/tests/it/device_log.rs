// SPDX-License-Identifier: GPL-2.0

//! Tests how the events that a device reports are recorded, and which of them the log names when a
//! connection ends.

use xprtrdma_proto::{
    conn::{
        DeviceEvent,
        DeviceLog, //
    },
    time::{
        Millis,
        Time, //
    },
};

const LONG: Millis = Millis::from_secs(24 * 3600);

fn at(ms: u64) -> Time {
    Time::from_millis(10 * LONG.get() + ms)
}

fn log(events: &[(u64, DeviceEvent)]) -> DeviceLog {
    let mut log = DeviceLog::new();
    for (ms, event) in events {
        log.told(*event, at(*ms));
    }
    log
}

// Observability: the record contains the newest event of each kind, so that many events of one kind
// do not displace the others.
#[test]
fn the_newest_of_each_kind_is_kept() {
    assert_eq!(DeviceLog::new().iter().count(), 0);
    let mut log = log(&[(1, DeviceEvent::PortDown), (2, DeviceEvent::Fatal)]);
    for ms in 3..1000 {
        log.told(DeviceEvent::AddressesChanged, at(ms));
    }
    log.told(DeviceEvent::PortDown, at(1001));
    let kept: Vec<_> = log.iter().map(|told| (told.event, told.at)).collect();
    assert_eq!(
        kept,
        [
            (DeviceEvent::PortDown, at(1001)),
            (DeviceEvent::AddressesChanged, at(999)),
            (DeviceEvent::Fatal, at(2)),
        ]
    );
    // Events of all kinds can be stored at the same time, in any order.
    for number in (0..64).chain((0..64).rev()) {
        log.told(DeviceEvent::from_raw(number), at(2000 + u64::from(number)));
        assert_eq!(
            log.iter().next().map(|told| told.event),
            Some(DeviceEvent::from_raw(number))
        );
    }
    let kinds: std::collections::BTreeSet<_> = log.iter().map(|told| told.event.name()).collect();
    assert_eq!((kinds.len(), log.iter().count()), (9, 9));
}

// Observability: if several events are possible causes, the log names the newest event of a type
// that can end connections. If there is no such event, the log names the newest event of any type.
#[test]
fn the_gravest_event_explains_the_end() {
    use DeviceEvent::{AddressesChanged, Fatal, PortActive, PortDown};

    let flap = [(0, PortDown), (400, PortActive), (500, AddressesChanged)];
    assert_eq!(
        log(&flap).explains(at(900), LONG),
        Some((PortDown, Millis::new(900)))
    );
    assert_eq!(
        log(&flap[1..]).explains(at(900), LONG),
        Some((AddressesChanged, Millis::new(400)))
    );
    let both = [(0, PortDown), (100, Fatal), (200, PortActive)];
    assert_eq!(
        log(&both).explains(at(200), LONG),
        Some((Fatal, Millis::new(100)))
    );
    assert_eq!(log(&[]).explains(at(0), LONG), None);
    // The device reported the event after the connection had begun to end.
    assert_eq!(
        log(&both).explains(at(50), LONG),
        Some((Fatal, Millis::new(0)))
    );
}

// Observability: an event is not named as the cause if it came before the connection began, or long
// before the connection ended.
#[test]
fn an_old_event_explains_nothing() {
    let log = log(&[(0, DeviceEvent::PortDown)]);
    for (ended, lasted, named) in [
        (60_000, LONG, true),
        (60_001, LONG, false),
        (5_000, Millis::new(5_000), true),
        (5_000, Millis::new(4_999), false),
        (0, Millis::new(0), true),
    ] {
        let found = log.explains(at(ended), lasted);
        assert_eq!(found.is_some(), named, "ended {ended}, lasted {lasted:?}");
    }
}

// The values of `enum ib_event_type`.
#[test]
fn events_are_known_by_their_numbers() {
    for (number, name) in [
        (0, "other event"),
        (8, "device failed"),
        (9, "port active"),
        (10, "port down"),
        (11, "port's address changed"),
        (12, "partitions changed"),
        (13, "subnet manager changed"),
        (17, "subnet manager wants new registrations"),
        (18, "table of addresses changed"),
        (20, "other event"),
        (u32::MAX, "other event"),
    ] {
        assert_eq!(DeviceEvent::from_raw(number).name(), name);
    }
}

// Observability: a port that was down before the connection was established does not explain a
// later fault.
#[test]
fn a_connection_lets_all_be_forgotten() {
    let mut log = log(&[(1, DeviceEvent::PortDown), (2, DeviceEvent::PortActive)]);
    log.forget();
    assert_eq!(log.iter().count(), 0);
    assert_eq!(log.explains(at(3), LONG), None);
    log.told(DeviceEvent::PortDown, at(4));
    assert_eq!(log.iter().count(), 1);
}
