// SPDX-License-Identifier: GPL-2.0

//! Why a connection ends, in words for the log.

use crate::responder::grant::Overdrawn;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The client disconnected.
    Left,
    /// The client did not confirm the connection in time.
    HalfOpen,
    /// The client does not answer.
    Silent,
    /// The client has more Calls in flight than were granted.
    Overrun,
    /// There is no memory for a Receive.
    Starved,
    /// The RPC layer dropped too many Calls.
    Lost,
    /// The client sent too many malformed messages.
    Malformed,
    /// The client asked for too many options before it took the answers.
    Options,
    /// A transfer failed: the client's memory is not as it said, or the path is broken.
    Transfer,
    /// The client's device refused a Read or a Write: the Call named memory that is not there.
    Refused,
    /// It was idle, and another connection took its place.
    Crowded,
    /// An answer could not be built or sent (RFC 8166 4.5.4).
    Unanswerable,
    /// Calls to the client can no longer be sent.
    Callbacks,
    /// The device is removed.
    Device,
    /// The address of the connection is no longer ours.
    Address,
    /// The server stops.
    Stopped,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 16] = [
        Self::Left,
        Self::HalfOpen,
        Self::Silent,
        Self::Overrun,
        Self::Starved,
        Self::Lost,
        Self::Malformed,
        Self::Options,
        Self::Transfer,
        Self::Refused,
        Self::Crowded,
        Self::Unanswerable,
        Self::Callbacks,
        Self::Device,
        Self::Address,
        Self::Stopped,
    ];

    /// The cause as the log says it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Left => "the client disconnected",
            Self::HalfOpen => "the client did not confirm the connection",
            Self::Silent => "the client does not answer",
            Self::Overrun => "the client sent more Calls than were granted",
            Self::Starved => "no memory for a Receive",
            Self::Lost => "the RPC layer dropped too many Calls",
            Self::Malformed => "too many malformed messages",
            Self::Options => "too many unknown options",
            Self::Transfer => "a transfer failed",
            Self::Refused => "the client's device refused a Read or a Write",
            Self::Crowded => "idle, and another connection took its place",
            Self::Unanswerable => "an answer could not be sent",
            Self::Callbacks => "calls to the client could not be sent",
            Self::Device => "the device is removed",
            Self::Address => "the address has gone",
            Self::Stopped => "the server stops",
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
