// SPDX-License-Identifier: GPL-2.0

//! Statuses of work completions, in the classes that the protocol needs.

/// Classes of `ib_wc_status`. Different classes lead to different decisions.
///
/// After an error, only the work request's identity and this status are meaningful. So the core
/// does not use any other part of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcStatus {
    /// The operation succeeded.
    Success,
    /// The queue pair was already in the error state, and the operation was discarded (MAL-002).
    Flushed,
    /// A message did not fit into its Receive (MAL-001).
    LocalLength,
    /// A local key, access right or queue-pair check failed.
    LocalProtection,
    /// The peer refused the request as malformed, for example a Send longer than its Receive
    /// (MAL-149).
    RemoteInvalidRequest,
    /// The peer refused access to memory.
    RemoteAccess,
    /// The peer could not complete the operation.
    RemoteOperation,
    /// The peer's host did not acknowledge the operation within the retries.
    RetryExceeded,
    /// The peer had no Receive posted within the retries (MAL-018).
    RnrExceeded,
    /// Any other status.
    Other,
}

impl WcStatus {
    /// Classifies the number in `ib_wc.status`. An unknown number is [`WcStatus::Other`].
    pub const fn from_raw(status: u32) -> Self {
        match status {
            0 => Self::Success,
            1 => Self::LocalLength,
            2 | 4 | 8 => Self::LocalProtection,
            5 => Self::Flushed,
            9 => Self::RemoteInvalidRequest,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 => Self::RetryExceeded,
            13 => Self::RnrExceeded,
            _ => Self::Other,
        }
    }

    /// Returns a short name for logs and debugfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Flushed => "flushed",
            Self::LocalLength => "message longer than Receive",
            Self::LocalProtection => "local protection error",
            Self::RemoteInvalidRequest => "peer refused the request",
            Self::RemoteAccess => "peer refused access",
            Self::RemoteOperation => "peer failed the operation",
            Self::RetryExceeded => "peer does not acknowledge",
            Self::RnrExceeded => "peer has no Receive",
            Self::Other => "other",
        }
    }
}
