// SPDX-License-Identifier: GPL-2.0

//! Events that a device reports about itself and its ports ([`DeviceLog`]). Some of these events
//! explain the end of a connection.

use crate::time::{
    Millis,
    Time, //
};

/// Maximum time between a failure of a device or port and the end of its connections. The device's
/// retries and the keepalive probe take less time.
const NOTICED: Millis = Millis::from_secs(60);

/// An asynchronous event of a device, or of the port that a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The adapter failed, and its driver resets it: see the driver's messages.
    Fatal,
    /// The link was lost, or the interface was set down: look at cable, switch and `ip link`. A
    /// connection can survive a short break.
    PortDown,
    /// The link works again.
    PortActive,
    /// The port's own address changed (the LID; with iWARP the address of the interface).
    AddressChanged,
    /// InfiniBand only: the partitions of the port changed.
    PartitionsChanged,
    /// InfiniBand only: another subnet manager took over.
    ManagerChanged,
    /// InfiniBand only: the subnet manager restarted, or its configuration changed.
    Reregister,
    /// The IP addresses of the port's interface changed (GID table).
    AddressesChanged,
    /// An event of a type that this driver does not know.
    Other,
}

impl DeviceEvent {
    /// Number of event types.
    const COUNT: usize = Self::Other as usize + 1;

    /// Classifies the number of an `enum ib_event_type`.
    pub const fn from_raw(event: u32) -> Self {
        match event {
            8 => Self::Fatal,
            9 => Self::PortActive,
            10 => Self::PortDown,
            11 => Self::AddressChanged,
            12 => Self::PartitionsChanged,
            13 => Self::ManagerChanged,
            17 => Self::Reregister,
            18 => Self::AddressesChanged,
            _ => Self::Other,
        }
    }

    /// Returns whether events of this type can end a connection. Events of other types are only
    /// hints at the reason why a connection ended.
    const fn is_grave(self) -> bool {
        matches!(self, Self::Fatal | Self::PortDown)
    }

    /// Returns a short name for logs and debugfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fatal => "device failed",
            Self::PortDown => "port down",
            Self::PortActive => "port active",
            Self::AddressChanged => "port's address changed",
            Self::PartitionsChanged => "partitions changed",
            Self::ManagerChanged => "subnet manager changed",
            Self::Reregister => "subnet manager wants new registrations",
            Self::AddressesChanged => "table of addresses changed",
            Self::Other => "other event",
        }
    }
}

/// An event, and the time at which it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The event that arrived.
    pub event: DeviceEvent,
    /// The time at which the event arrived.
    pub at: Time,
}

/// The newest event of each type, from all devices and ports that the connections of a transport
/// used. A new event replaces only the earlier event of its own type.
#[derive(Clone, Debug, Default)]
pub struct DeviceLog {
    /// The recorded events, newest first.
    ring: [Option<Told>; DeviceEvent::COUNT],
}

impl DeviceLog {
    /// Returns a log without events.
    pub const fn new() -> Self {
        Self {
            ring: [None; DeviceEvent::COUNT],
        }
    }

    /// Records an event.
    pub fn told(&mut self, event: DeviceEvent, now: Time) {
        let is_of_kind = |told: &Option<Told>| told.is_none_or(|told| told.event == event);
        // The log always has a slot for the event, because it has one slot for each event type.
        let place = self.ring.iter().position(is_of_kind);
        if let Some(newer) = place.and_then(|place| self.ring.get_mut(..=place)) {
            newer.rotate_right(1);
        }
        let [newest, ..] = &mut self.ring;
        *newest = Some(Told { event, at: now });
    }

    /// Removes all events. Called when a connection was made, which shows that the device and its
    /// port work.
    pub fn forget(&mut self) {
        *self = Self::new();
    }

    /// Returns the recorded events, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Told> {
        self.ring.iter().flatten()
    }

    /// Returns the event that may explain the end of a connection, and the time from that event to
    /// the end. `lasted` is the duration of the connection.
    ///
    /// An event counts only if it arrived while the connection existed, and at most `NOTICED`
    /// before its end. Some types of events can end a connection. The result is the newest event of
    /// such a type. If there is no such event, the result is the newest event of any type.
    pub fn explains(&self, ended: Time, lasted: Millis) -> Option<(DeviceEvent, Millis)> {
        let recent = lasted.min(NOTICED);
        let mut fitting = self
            .iter()
            .map(|told| (told.event, ended.since(told.at)))
            .filter(|(_, before)| *before <= recent);
        let newest = fitting.next()?;
        if newest.0.is_grave() {
            return Some(newest);
        }
        Some(
            fitting
                .find(|(event, _)| event.is_grave())
                .unwrap_or(newest),
        )
    }
}
