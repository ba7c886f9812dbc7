// SPDX-License-Identifier: GPL-2.0

//! What the device reports about the end of a connection.

use super::DeviceEvent;
use crate::{
    time::Millis,
    wc::WcStatus, //
};

/// Which queue a work request was on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

impl Side {
    /// A short name for logs and debugfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}

/// An asynchronous event of a failing queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The queue pair failed, for a reason of the device.
    Fatal,
    /// A request of the peer was malformed.
    RequestError,
    /// A request of the peer was for memory that it may not reach.
    AccessError,
    /// The device failed.
    DeviceFatal,
    /// Any other.
    Other,
}

impl QpEvent {
    /// Classifies the number of an `enum ib_event_type`.
    pub const fn from_raw(event: u32) -> Self {
        match event {
            1 => Self::Fatal,
            2 => Self::RequestError,
            3 => Self::AccessError,
            8 => Self::DeviceFatal,
            _ => Self::Other,
        }
    }

    /// A short name for logs and debugfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fatal => "fatal error",
            Self::RequestError => "bad request of the peer",
            Self::AccessError => "access of the peer refused",
            Self::DeviceFatal => "device failed",
            Self::Other => "other event",
        }
    }
}

/// What the device reported about the end of a connection. A flushed work request says that
/// something else failed before; this may say what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The first work request that failed before we ended the connection.
    pub first: Option<(Side, WcStatus)>,
    /// The first one that was not only flushed.
    pub reason: Option<(Side, WcStatus)>,
    /// The first asynchronous event of a failure.
    pub event: Option<QpEvent>,
    /// What the device told of itself or of the port, and how long before the end
    /// ([`DeviceLog::explains`]).
    ///
    /// [`DeviceLog::explains`]: super::DeviceLog::explains
    pub device: Option<(DeviceEvent, Millis)>,
}

impl Seen {
    /// The statuses of the work requests that failed, as far as they are kept.
    pub(super) fn statuses(&self) -> impl Iterator<Item = WcStatus> {
        let seen = [self.first, self.reason].into_iter().flatten();
        seen.map(|(_, status)| status)
    }
}
