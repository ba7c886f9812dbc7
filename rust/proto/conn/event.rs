// SPDX-License-Identifier: GPL-2.0

//! What goes into the connection machine and what comes out of it.

use super::{
    Activity, //
    BackoffConfig,
    Cause,
    ConnectError,
    KeepAliveConfig,
    Seen, //
};
use crate::{
    error::Error,
    time::Millis,
    v2::negotiate::{
        ProbeAnswer,
        VersionPolicy, //
    },
    wire::header::Version, //
};

/// Identifies one connection attempt and the connection that comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub u32);

impl Epoch {
    /// No connection; no attempt ever has it.
    pub const NONE: Self = Self(0);

    /// The number, for work-request identities, logs and debugfs.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The one of the next attempt, which is never [`NONE`](Self::NONE).
    pub const fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            n => Self(n),
        }
    }
}

/// What the administrator and the driver decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bound of one whole attempt; the caller may ask for less.
    pub connect_timeout: Millis,
    /// Bound of the address step and of the route step.
    pub resolve_timeout: Millis,
    /// Bound of the wait for the answer to the connection request of a first mount.
    ///
    /// A person waits for it, and may have mistyped the address. The connection manager sends the request
    /// again when it got no answer for about five seconds, so this is long enough for three of them: one
    /// or two may be lost.
    pub first_request_timeout: Millis,
    /// Bound of the wait for the answer to the version probe.
    pub version_timeout: Millis,
    /// Delays between attempts.
    pub backoff: BackoffConfig,
    /// Probing of silent peers; `None` switches it off.
    pub keepalive: Option<KeepAliveConfig>,
    /// Idle time after which the connection is closed; `None` keeps it.
    pub idle_timeout: Option<Millis>,
    /// Which protocol versions may be used.
    pub version: VersionPolicy,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connect_timeout: Millis::from_secs(30),
            resolve_timeout: Millis::from_secs(5),
            first_request_timeout: Millis::from_secs(15),
            version_timeout: Millis::from_secs(5),
            backoff: BackoffConfig::default(),
            keepalive: Some(KeepAliveConfig::default()),
            idle_timeout: Some(Millis::from_secs(300)),
            version: VersionPolicy::V1Only,
        }
    }
}

/// The shortest total bound of an attempt that a caller can ask for.
pub const MIN_CONNECT_TIMEOUT: Millis = Millis::new(100);

/// What the peer said when it accepted the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// How many RDMA Reads the peer may have outstanding (its initiator depth); `None` if the provider does
    /// not tell.
    pub peer_read_depth: Option<u8>,
}

/// An event of the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEvent {
    /// The address was resolved to a device.
    AddrResolved,
    /// It was not.
    AddrError(AddrFault),
    /// The route was resolved.
    RouteResolved,
    /// It was not.
    RouteError,
    /// It was not, because nobody answered in time.
    RouteSilent,
    /// The peer accepted.
    Established(Accepted),
    /// The connection manager failed on our side.
    ConnectError,
    /// The peer did not answer.
    Unreachable,
    /// The peer rejected the request.
    Rejected {
        /// Because it still knows an older connection of ours.
        stale: bool,
    },
    /// The connection ended.
    Disconnected,
    /// An address of the path changed.
    AddrChange,
    /// The device is being removed.
    DeviceRemoval,
    /// The connection left its time-wait state.
    TimewaitExit,
}

impl CmEvent {
    /// Whether it tells of the end of a connection.
    pub(super) const fn is_an_end(self) -> bool {
        matches!(
            self,
            Self::ConnectError
                | Self::Unreachable
                | Self::Rejected { .. }
                | Self::Disconnected
                | Self::AddrChange
                | Self::DeviceRemoval
                | Self::TimewaitExit
        )
    }

    /// A short name for logs and debugfs, of one that tells of the end of a connection.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConnectError => "connect error",
            Self::Unreachable => "unreachable",
            Self::Rejected { .. } => "rejected",
            Self::Disconnected => "disconnected by the peer",
            Self::AddrChange => "address changed",
            Self::DeviceRemoval => "device removal",
            Self::TimewaitExit => "end of time-wait",
            _ => "other event",
        }
    }
}

/// Why an address was not resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrFault {
    /// No RDMA device leads there (`-ENODEV`).
    NoDevice,
    /// No route leads there (`-ENETUNREACH`, `-EHOSTUNREACH`).
    NoRoute,
    /// No answer in time (`-ETIMEDOUT`).
    TimedOut,
    /// Anything else.
    Other,
}

/// What went wrong on our side while an action was performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalFault {
    /// Memory, queue pairs or another resource ran out; the same may work later.
    NoResources,
    /// The device lacks something we cannot do without.
    DeviceUnsuitable,
    /// The device is gone.
    DeviceGone,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The RPC layer wants a connection. `timeout` bounds the attempt if it is shorter than ours.
    ///
    /// Before the back-off has passed the attempt waits; its time counts from its real start. While there
    /// is an attempt or a connection nothing happens.
    Start {
        /// The caller's bound.
        timeout: Option<Millis>,
        /// The caller gives up when the attempt fails, as the first one of a mount does.
        trial: bool,
    },
    /// [`Conn::deadline`](super::Conn::deadline) has come, or the driver looked on its own account.
    Tick(Activity),
    /// The connection manager reported something.
    Cm(Epoch, CmEvent),
    /// [`Action::CreateQp`] was performed and the Receives are posted.
    QpCreated(Epoch),
    /// An action of the attempt could not be performed.
    LocalFault(Epoch, LocalFault),
    /// The version probe was answered.
    #[allow(dead_code, reason = "room v2: the driver sends no probe before")]
    VersionAnswer(Epoch, ProbeAnswer),
    /// A valid reply arrived. Needed once per connection, harmless more often.
    Replied(Epoch),
    /// A Send of more than [`MIN_THRESHOLD`](crate::wire::threshold::MIN_THRESHOLD) octets was posted. Needed once per connection.
    LargeSend(Epoch),
    /// The peer took a Send of more than [`MIN_THRESHOLD`](crate::wire::threshold::MIN_THRESHOLD) octets. Needed once per connection.
    LargeSendTaken(Epoch),
    /// Memory of a call that the server has not answered is being taken back.
    MemoryRevoked(Epoch),
    /// The keep-alive probe completed successfully.
    KeepAliveAnswered(Epoch),
    /// The connection is unusable: a failed work request, a rule the peer broke, a bound it exceeded.
    Lost(Epoch, Cause),
    /// An RPC timer fired for a call that was sent under this cookie.
    ///
    /// If replies have arrived, the peer's host is probed first and a slow server keeps its connection. A
    /// call that is sent again in spite of that ends it ([`Cause::Retransmit`]).
    RpcTimeout {
        /// The call's `rq_connect_cookie`.
        cookie: u32,
    },
    /// End the present connection or attempt, whichever it is.
    ///
    /// [`Cause::Idle`] is refused, without any action, while a backchannel is bound (BC-16).
    Close(Cause),
    /// Callbacks may come over this transport, or not any more.
    Backchannel {
        /// Whether a backchannel is bound.
        bound: bool,
    },
    /// This lost connection is being ended from this side now; what the connection manager tells about it
    /// from here on is our own doing.
    Disconnecting(Epoch),
    /// What the device has told about the end of a lost connection; after `Disconnecting`.
    Seen(Epoch, Seen),
    /// Everything of this epoch is drained and released.
    TornDown(Epoch),
    /// End everything; no further attempt will start.
    Shutdown,
}

/// Something the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a CM id for this epoch and resolve the server's address.
    ResolveAddr {
        /// Mark the id with it.
        epoch: Epoch,
        /// For the connection manager.
        timeout: Millis,
    },
    /// Resolve the route.
    ResolveRoute {
        /// Which attempt.
        epoch: Epoch,
        /// For the connection manager.
        timeout: Millis,
    },
    /// Create PD, CQs and QP, and post the Receives.
    CreateQp {
        /// Which attempt.
        epoch: Epoch,
    },
    /// Send the connect request with our private data.
    Connect {
        /// Which attempt.
        epoch: Epoch,
        /// Use no larger call threshold than this on this connection, whatever the peer says (CM-24).
        inline_cap: Option<u32>,
    },
    /// Send the version 2 probe, alone, with one credit in hand.
    SendVersionProbe {
        /// Which attempt.
        epoch: Epoch,
    },
    /// The connection is ready. Set the cookie, reset the credits to one, wake the RPC tasks.
    Established {
        /// Which connection.
        epoch: Epoch,
        /// The new value of [`Conn::cookie`](super::Conn::cookie).
        cookie: u32,
        /// What to speak on it.
        version: Version,
    },
    /// Release everything of a failed attempt, then report [`Event::TornDown`].
    TearDown {
        /// Which attempt.
        epoch: Epoch,
    },
    /// The attempt is over and everything released: wake the RPC tasks with the error.
    Fail {
        /// For the RPC tasks.
        error: Error,
        /// For the log.
        reason: ConnectError,
    },
    /// Post one keep-alive probe. If it cannot be posted the connection is [`Cause::PostFailed`].
    KeepAlive {
        /// Which connection.
        epoch: Epoch,
    },
    /// End the connection: set the cookie, disconnect, drain, release, then report [`Event::TornDown`].
    Disconnect {
        /// Which connection.
        epoch: Epoch,
        /// The new value of [`Conn::cookie`](super::Conn::cookie).
        cookie: u32,
        /// Why.
        cause: Cause,
    },
}

/// Where the transport stands, for logs and debugfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No connection and nobody wants one.
    Down,
    /// An attempt waits for the back-off.
    Waiting,
    /// Resolving the address.
    Address,
    /// Resolving the route.
    Route,
    /// Creating the queue pair.
    QueuePair,
    /// Waiting for the peer's accept.
    Connecting,
    /// Negotiating the version.
    Negotiating,
    /// Connected.
    Up,
    /// Being torn down.
    Closing,
    /// Shut down for good.
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
