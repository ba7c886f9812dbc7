// SPDX-License-Identifier: GPL-2.0

//! How an RDMA operation completes, and which status is reported to the program.

/// The status of an operation, with the values of the constants `RDS_RDMA_*`. The type omits
/// `RDS_RDMA_CANCELED` (RDS-42) and `RDS_RDMA_DROPPED` (RDS-43), which the socket layer reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Status {
    /// The operation succeeded (RDS-40).
    Success = 0,
    /// The peer refused the access because of the key, the offset or the length (RDS-41).
    RemoteError = 1,
    /// Any other failure (RDS-44).
    OtherError = 4,
}

impl Status {
    /// Returns the value of the constant `RDS_RDMA_*`.
    #[must_use]
    pub const fn raw(self) -> i32 {
        // CAST: The enum is `repr(i32)`.
        self as i32
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The operation succeeded.
    Done,
    /// The work requests of the operation were flushed, because the connection had failed before.
    Flushed,
    /// The peer refused access: remote access error, or remote invalid request.
    Refused,
    /// The operation failed in any other way.
    Failed,
    /// The operation did not begin, because the device could not map the program's memory. The
    /// connection continues, but the message of the operation is not sent.
    Unmapped,
}

/// What to report to the program about a completed operation, and when to report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// Nothing is reported now. If the operation succeeded, the success is reported when the peer
    /// acknowledges the message, because message and operation are one unit (RDS-05). If the
    /// operation was flushed, the socket layer reports "dropped" or "cancelled".
    Later,
    /// This status is reported now.
    Now(Status),
    /// If the socket layer discards the message, it reports this status in place of "dropped". Used
    /// if the program has requested reports of failures only (RDS-15, RDS-18).
    WhenDropped(Status),
}

/// The notifications that a program wants for an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Whether the program receives a report of success and of failure (RDS-35).
    pub notify: bool,
    /// Whether the program receives a report of failure (RDS-15).
    pub failures: bool,
    /// Whether the operation has no message that the peer could acknowledge.
    pub unacknowledged: bool,
}

impl Completion {
    /// Returns what to report to the program.
    #[inline]
    #[must_use]
    pub fn tell(self, wishes: Wishes) -> Tell {
        let failed = match self {
            Self::Done if wishes.notify && wishes.unacknowledged => {
                return Tell::Now(Status::Success)
            }
            Self::Done | Self::Flushed => return Tell::Later,
            Self::Refused => Status::RemoteError,
            Self::Failed => Status::OtherError,
            // The failure is reported now. The socket layer could report it later only if it
            // discarded the message, and it does not discard this message.
            Self::Unmapped if wishes.notify || wishes.failures => {
                return Tell::Now(Status::OtherError)
            }
            Self::Unmapped => return Tell::Later,
        };
        match wishes {
            Wishes { notify: true, .. } => Tell::Now(failed),
            Wishes { failures: true, .. } => Tell::WhenDropped(failed),
            _ => Tell::Later,
        }
    }
}
