// SPDX-License-Identifier: GPL-2.0

//! What the device reports about the end of a connection.

use super::DeviceEvent;
use crate::{
    time::Millis,
    wc::WcStatus, //
};

/// The kind of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A Send: it sends a message.
    Send,
    /// A registration of a region.
    RegMr,
    /// An invalidation of a region, or the fence in front of registrations.
    LocalInv,
    /// The probe: it asks the peer for a sign of life.
    RdmaWrite,
    /// A Receive: it takes a message.
    Recv,
}

impl Opcode {
    /// Its name in verbs, for logs and debugfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::RegMr => "REG_MR",
            Self::LocalInv => "LOCAL_INV",
            Self::RdmaWrite => "RDMA_WRITE",
            Self::Recv => "RECV",
        }
    }
}

/// A work request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedWork {
    /// What it was.
    pub opcode: Opcode,
    /// The number in `ib_wc.status`.
    pub status: u32,
    /// The number in `ib_wc.vendor_err`, which only the device's vendor can read.
    pub vendor_err: u32,
}

impl FailedWork {
    /// The class of its status.
    pub const fn class(&self) -> WcStatus {
        WcStatus::from_raw(self.status)
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
            Self::Fatal => "fatal error (IB_EVENT_QP_FATAL)",
            Self::RequestError => "bad request of the peer (IB_EVENT_QP_REQ_ERR)",
            Self::AccessError => "access of the peer refused (IB_EVENT_QP_ACCESS_ERR)",
            Self::DeviceFatal => "device failed (IB_EVENT_DEVICE_FATAL)",
            Self::Other => "other event",
        }
    }
}

/// The device's report about the end of a connection. A flushed work request only says that
/// something else failed before; the report may say what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The first work request that failed before we ended the connection.
    pub first: Option<FailedWork>,
    /// The first one that failed in another way than being flushed.
    pub reason: Option<FailedWork>,
    /// The first asynchronous event of a failure.
    pub event: Option<QpEvent>,
    /// The device has executed a registration again while its region was valid (rxe).
    pub repeated: bool,
    /// An event of the device or the port, and how long before the end it came
    /// ([`DeviceLog::explains`]).
    ///
    /// [`DeviceLog::explains`]: super::DeviceLog::explains
    pub device: Option<(DeviceEvent, Millis)>,
}

impl Seen {
    /// Returns the statuses of the failed work requests, as far as they are kept.
    pub(super) fn statuses(&self) -> impl Iterator<Item = WcStatus> {
        let seen = [self.first, self.reason].into_iter().flatten();
        seen.map(|work| work.class())
    }

    /// Whether work requests failed and none says why, as all were only flushed, and the device
    /// gives no other reason.
    pub const fn lacks_a_reason(&self) -> bool {
        self.first.is_some() && self.reason.is_none() && !self.repeated
    }
}
