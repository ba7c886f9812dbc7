// SPDX-License-Identifier: GPL-2.0

//! The reasons why the server closes a connection, with the texts for the log.

use crate::{
    responder::grant::Overdrawn,
    wc::WcStatus, //
};

/// The reason why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The client disconnected.
    Left,
    /// The client did not confirm the connection in time.
    HalfOpen,
    /// The client's adapter did not acknowledge the server's probe in time.
    Silent,
    /// The client has more Calls in flight than the server granted.
    Overrun,
    /// A Reply would have granted no credit: no Receive was posted for another Call.
    Starved,
    /// The RPC layer dropped too many Calls.
    Lost,
    /// The client sent too many malformed messages.
    Malformed,
    /// The client sent too many options before it received the refusals of earlier options.
    Options,
    /// A message or a transfer failed: for example, the client had posted no Receive for a message,
    /// or its device did not answer.
    Transfer,
    /// Messages or transfers were in the send queue for too long.
    Stalled,
    /// The client's device refused a Read or a Write: the Call named memory that is not
    /// registered.
    Refused,
    /// The connection was idle and was closed to make space for a new connection.
    Crowded,
    /// A reply could not be built or sent (RFC 8166, section 4.5.4).
    Unanswerable,
    /// Calls to the client can no longer be sent.
    Callbacks,
    /// The device is removed.
    Device,
    /// The server's address of the connection was removed from this host.
    Address,
    /// nfsd ended the connection: nfsd stops, or this was the oldest of nfsd's idle connections.
    Stopped,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 17] = [
        Self::Left,
        Self::HalfOpen,
        Self::Silent,
        Self::Overrun,
        Self::Starved,
        Self::Lost,
        Self::Malformed,
        Self::Options,
        Self::Transfer,
        Self::Stalled,
        Self::Refused,
        Self::Crowded,
        Self::Unanswerable,
        Self::Callbacks,
        Self::Device,
        Self::Address,
        Self::Stopped,
    ];

    /// Returns the text for the log.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Left => "the client disconnected",
            Self::HalfOpen => "the client did not confirm the connection",
            Self::Silent => "the client does not answer",
            Self::Overrun => "the client sent more Calls than were granted",
            Self::Starved => "no Receive for another Call",
            Self::Lost => "the RPC layer dropped too many Calls",
            Self::Malformed => "too many malformed messages",
            Self::Options => "too many unknown options",
            Self::Transfer => "a transfer failed",
            Self::Stalled => "the send queue stalled",
            Self::Refused => "the client's device refused a Read or a Write",
            Self::Crowded => "idle, and another connection took its place",
            Self::Unanswerable => "an answer could not be sent",
            Self::Callbacks => "calls to the client could not be sent",
            Self::Device => "the device is removed",
            Self::Address => "the address has gone",
            Self::Stopped => "nfsd ended it",
        }
    }
}

impl From<Overdrawn> for Cause {
    fn from(why: Overdrawn) -> Self {
        match why {
            Overdrawn::Overrun => Self::Overrun,
            Overdrawn::Starved => Self::Starved,
            Overdrawn::Lost => Self::Lost,
        }
    }
}

impl From<WcStatus> for Cause {
    /// Returns why the connection ends if its first failed work request has this status.
    fn from(status: WcStatus) -> Self {
        match status {
            // A flushed work request does not show why the connection ended. Usually the client has
            // disconnected.
            WcStatus::Flushed => Self::Left,
            _ => Self::Transfer,
        }
    }
}
