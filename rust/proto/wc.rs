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
    /// The work request was flushed because the queue pair had failed before for another reason.
    /// The log may name the other reason in parentheses (MAL-002).
    Flushed,
    /// The server sent a longer message than was agreed (MAL-001). This status means a fault of the
    /// server.
    LocalLength,
    /// A check of a local key, of an access right or of the queue pair failed. An administrator
    /// should report this status if it occurs repeatedly.
    LocalProtection,
    /// The server's adapter could not receive a message, for example because the server's Receive
    /// buffer is shorter than the message (MAL-149). See the counter `cm_fallback`.
    RemoteInvalidRequest,
    /// The server's adapter refused access to memory. An administrator should report this status.
    RemoteAccess,
    /// The server's adapter could not receive a message. See the counter `cm_fallback`.
    RemoteOperation,
    /// The server's adapter did not answer, although this host's adapter repeated the message. An
    /// administrator should check the network and the server's host.
    RetryExceeded,
    /// The server granted credits for which it has no Receive buffers (MAL-018). This status means
    /// a fault of the server.
    RnrExceeded,
    /// The device reported a different status. An administrator should report the status with the
    /// device's name if it occurs repeatedly.
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
