// SPDX-License-Identifier: GPL-2.0

//! What the device reports about the end of a connection.

use super::DeviceEvent;
use crate::{
    time::Millis,
    wc::WcStatus, //
};

/// The type of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A Send of a call, or of an answer to a callback.
    Send,
    /// A registration, which gives the server access to the memory of a call.
    RegMr,
    /// A local invalidation. It revokes the server's access to the memory of a call, or it is the
    /// fence that rxe may need in front of `REG_MR`.
    LocalInv,
    /// A keepalive probe of zero bytes.
    RdmaWrite,
    /// A Receive for a message of the server.
    Recv,
}

impl Opcode {
    /// Returns the name of the operation in verbs, for logs and debugfs.
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
    /// The operation of the work request.
    pub opcode: Opcode,
    /// The number in `ib_wc.status`.
    pub status: u32,
    /// The number in `ib_wc.vendor_err`, whose meaning only the device's vendor knows.
    pub vendor_err: u32,
}

impl FailedWork {
    /// Returns the class of the status.
    pub const fn class(&self) -> WcStatus {
        WcStatus::from_raw(self.status)
    }
}

/// An asynchronous event of a failing queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The queue pair failed because of an internal error of the device.
    Fatal,
    /// A request of the peer was malformed.
    RequestError,
    /// The peer tried to access memory for which it has no permission.
    AccessError,
    /// The whole device failed.
    DeviceFatal,
    /// Any other asynchronous event.
    Other,
}

impl QpEvent {
    /// Classifies a value of `enum ib_event_type`.
    pub const fn from_raw(event: u32) -> Self {
        match event {
            1 => Self::Fatal,
            2 => Self::RequestError,
            3 => Self::AccessError,
            8 => Self::DeviceFatal,
            _ => Self::Other,
        }
    }

    /// Returns a short name for logs and debugfs.
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

/// What the device reported about the end of a connection. The field `first` may contain a flushed
/// work request, which only shows that an earlier failure flushed the queue. The other fields may
/// name that failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The first work request that failed before this host ended the connection.
    pub first: Option<FailedWork>,
    /// The first failed work request whose status is not "flushed".
    pub reason: Option<FailedWork>,
    /// The first asynchronous event that reports a failure of the queue pair or device.
    pub event: Option<QpEvent>,
    /// Whether the device executed a registration twice, the second time while the region was valid
    /// (rxe).
    pub repeated: bool,
    /// An event of the device or port, and the time between that event and the end of the
    /// connection ([`DeviceLog::explains`]).
    ///
    /// [`DeviceLog::explains`]: super::DeviceLog::explains
    pub device: Option<(DeviceEvent, Millis)>,
}

impl Seen {
    /// Returns the statuses of the failed work requests `first` and `reason`.
    pub(super) fn statuses(&self) -> impl Iterator<Item = WcStatus> {
        let seen = [self.first, self.reason].into_iter().flatten();
        seen.map(|work| work.class())
    }

    /// Returns whether work requests failed without a known reason: all were only flushed, and no
    /// repeated registration was seen.
    pub const fn lacks_a_reason(&self) -> bool {
        self.first.is_some() && self.reason.is_none() && !self.repeated
    }
}
