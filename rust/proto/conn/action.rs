// SPDX-License-Identifier: GPL-2.0

//! The actions that the connection's state machine asks the driver to perform.

use super::{
    cause::{
        Cause,
        ConnectError, //
    },
    event::Epoch, //
};
use crate::{
    error::Error,
    time::Millis,
    wire::header::Version, //
};

/// An action that the driver has to perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a CM id for this epoch and resolve the server's address. If the same action comes
    /// again for this epoch, the new CM id replaces the previous one.
    ResolveAddr {
        /// Identifies the attempt.
        epoch: Epoch,
        /// The timeout to pass to the connection manager.
        timeout: Millis,
    },
    /// Resolve the route to the server's address.
    ResolveRoute {
        /// Identifies the attempt.
        epoch: Epoch,
        /// The timeout to pass to the connection manager.
        timeout: Millis,
    },
    /// Create the protection domain, the completion queues and the queue pair, and post the
    /// Receives.
    CreateQp {
        /// Identifies the attempt.
        epoch: Epoch,
    },
    /// Send the connect request with this host's private data.
    Connect {
        /// Identifies the attempt.
        epoch: Epoch,
        /// Maximum size, in bytes, of a Send on this connection (the call threshold). The limit
        /// applies even if the peer announces a larger size (CM-24).
        inline_cap: Option<u32>,
    },
    /// Send the version 2 probe as the only message, with one credit.
    SendVersionProbe {
        /// Identifies the attempt.
        epoch: Epoch,
    },
    /// The connection is ready. Set the transport's cookie, reset the credits to one, wake the RPC
    /// tasks.
    Established {
        /// Identifies the connection.
        epoch: Epoch,
        /// The new value of [`Conn::cookie`](super::api::Conn::cookie).
        cookie: u32,
        /// The protocol version to use on the connection.
        version: Version,
    },
    /// Release all objects of a failed attempt, then report
    /// [`Event::TornDown`](super::event::Event::TornDown).
    TearDown {
        /// Identifies the attempt.
        epoch: Epoch,
    },
    /// The attempt has ended and all of its objects are released: wake the RPC tasks with this
    /// error.
    Fail {
        /// The error for the RPC tasks.
        error: Error,
        /// The reason for the failure, for the log.
        reason: ConnectError,
    },
    /// Post one keepalive probe. If posting fails, report [`Cause::PostFailed`].
    Keepalive {
        /// Identifies the connection.
        epoch: Epoch,
    },
    /// End the connection: set the transport's cookie, disconnect, drain, then report
    /// [`Event::TornDown`](super::event::Event::TornDown).
    Disconnect {
        /// Identifies the connection.
        epoch: Epoch,
        /// The new value of [`Conn::cookie`](super::api::Conn::cookie).
        cookie: u32,
        /// Why the connection ends.
        cause: Cause,
    },
}

/// State of the transport, for logs and debugfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is no connection, and none is wanted.
    Down,
    /// An attempt waits for the back-off.
    Waiting,
    /// The address is being resolved.
    Address,
    /// The route is being resolved.
    Route,
    /// The queue pair is being created.
    QueuePair,
    /// The attempt waits for the peer's accept.
    Connecting,
    /// The version is being negotiated.
    Negotiating,
    /// The transport is connected.
    Up,
    /// The connection or attempt is being torn down.
    Closing,
    /// The transport was shut down for good.
    Stopped,
}

impl Phase {
    /// A short name for logs and debugfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Waiting => "waiting",
            Self::Address => "resolving address",
            Self::Route => "resolving route",
            Self::QueuePair => "creating queue pair",
            Self::Connecting => "connecting",
            Self::Negotiating => "negotiating version",
            Self::Up => "up",
            Self::Closing => "closing",
            Self::Stopped => "stopped",
        }
    }
}
