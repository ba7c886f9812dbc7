// SPDX-License-Identifier: GPL-2.0

//! Counters of events, which tools such as `rds-info` show ([`Event`]).

use xprtrdma_bindings as bindings;

/// An event that is counted. The names that tools show are those of the in-tree transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends have tried to connect at the same time.
    ConnectRaced,
    /// A connection request arrived from a peer to which this end was still connected. So the peer
    /// had lost the connection.
    StaleConnection,
    /// The send queue had no space for a message or an operation.
    SendQueueFull,
    /// A received message did not fit into the memory for unread messages.
    NoRoom,
    /// A frame without data was sent to acknowledge received messages.
    AckSent,
    /// A frame has arrived in which the peer grants credits.
    CreditsGranted,
    /// A region was made.
    RegionMade,
    /// A region was released.
    RegionReleased,
}

impl Event {
    /// Adds one to the counter of the event. May be called in any context.
    pub fn count(self) {
        let raw = match self {
            Self::ConnectRaced => bindings::rdsrdma_event_RDSRDMA_CONNECT_RACED,
            Self::StaleConnection => bindings::rdsrdma_event_RDSRDMA_LISTEN_CLOSED_STALE,
            Self::SendQueueFull => bindings::rdsrdma_event_RDSRDMA_TX_RING_FULL,
            Self::NoRoom => bindings::rdsrdma_event_RDSRDMA_RX_ALLOC_LIMIT,
            Self::AckSent => bindings::rdsrdma_event_RDSRDMA_ACK_SENT,
            Self::CreditsGranted => bindings::rdsrdma_event_RDSRDMA_RX_CREDIT_UPDATES,
            Self::RegionMade => bindings::rdsrdma_event_RDSRDMA_MR_ALLOC,
            Self::RegionReleased => bindings::rdsrdma_event_RDSRDMA_MR_FREE,
        };
        // SAFETY: The argument is an event.
        unsafe { bindings::rdsrdma_count_event(raw) };
    }
}
