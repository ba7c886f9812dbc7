// SPDX-License-Identifier: GPL-2.0

//! The events that the connection machine handles.

use super::{
    cause::{
        Cause,
        ConnectError, //
    },
    failure_details::Seen,
    keepalive::Activity,
    unserved::RpcTimer, //
};
use crate::{
    time::Millis,
    v2::negotiate::ProbeAnswer, //
};

/// Identifies one connection attempt and the connection that comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub u32);

impl Epoch {
    /// No connection: no attempt ever has this number.
    pub const NONE: Self = Self(0);

    /// The number, for work-request identities, logs and debugfs.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The epoch of the next attempt, never [`NONE`](Self::NONE).
    pub const fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            n => Self(n),
        }
    }
}

/// What the peer said when it accepted the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// How many RDMA Reads the peer may have outstanding (its initiator depth); `None` if the
    /// provider does not say.
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
    /// The address was not resolved, because no answer came in time.
    RouteSilent,
    /// The peer accepted.
    Established(Accepted),
    /// A step of the connection manager failed on our side.
    ConnectError,
    /// The peer did not answer.
    Unreachable,
    /// The peer rejected the request.
    Rejected {
        /// It did so because it still knows an older connection of ours.
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
    /// Returns the cause of a connection's end by this event; `None` if the event ends none.
    pub(super) const fn loss(self) -> Option<Cause> {
        match self {
            Self::Disconnected
            | Self::TimewaitExit
            | Self::ConnectError
            | Self::Rejected { .. } => Some(Cause::PeerClosed),
            // An established connection is probed before it ends.
            Self::Unreachable => Some(Cause::PeerUnreachable),
            Self::AddrChange => Some(Cause::AddrChanged),
            Self::DeviceRemoval => Some(Cause::DeviceRemoved),
            Self::AddrResolved
            | Self::AddrError(_)
            | Self::RouteResolved
            | Self::RouteError
            | Self::RouteSilent
            | Self::Established(_) => None,
        }
    }

    /// A short name for logs and debugfs, of an event that ends a connection.
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

impl AddrFault {
    /// How the attempt fails.
    pub(super) const fn reason(self) -> ConnectError {
        match self {
            Self::NoDevice => ConnectError::NoDevice,
            Self::NoRoute => ConnectError::NoRoute,
            Self::TimedOut => ConnectError::AddrSilent,
            Self::Other => ConnectError::AddrUnresolved,
        }
    }
}

/// What failed on our side when an action was performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalFault {
    /// Memory, queue pairs or another resource ran out; the same may work later.
    NoResources,
    /// The device lacks something we cannot do without.
    DeviceUnsuitable,
    /// The device is gone.
    DeviceGone,
    /// The connection manager or the device refused a step at once, with this errno.
    Refused(i32),
}

impl LocalFault {
    /// How the attempt fails.
    pub(super) const fn reason(self) -> ConnectError {
        match self {
            Self::NoResources => ConnectError::NoResources,
            Self::DeviceUnsuitable => ConnectError::NoDevice,
            Self::DeviceGone => ConnectError::DeviceRemoved,
            Self::Refused(_) => ConnectError::HostFault,
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The RPC layer wants a connection. `timeout` bounds the attempt if it is shorter than our own
    /// limit. The attempt waits until the back-off has passed; its time counts from its real start.
    /// The event changes nothing while there is an attempt or a connection.
    Start {
        /// The caller's bound.
        timeout: Option<Millis>,
        /// The caller gives up when the attempt fails, as the first call of a mount does.
        trial: bool,
    },
    /// The time of [`Conn::deadline`](super::api::Conn::deadline) has come, or the driver calls
    /// early.
    Tick(Activity),
    /// The connection manager reported something.
    Cm(Epoch, CmEvent),
    /// [`Action::CreateQp`](super::action::Action::CreateQp) was performed and the Receives are
    /// posted.
    QpCreated(Epoch),
    /// An action of the attempt could not be performed.
    LocalFault(Epoch, LocalFault),
    /// The version probe was answered.
    VersionAnswer(Epoch, ProbeAnswer),
    /// A valid reply arrived. Needed once for each connection; more reports do no harm.
    Replied(Epoch),
    /// A Send of more than [`MIN_THRESHOLD`](crate::wire::threshold::MIN_THRESHOLD) bytes was
    /// posted. Needed once for each connection.
    LargeSend(Epoch),
    /// The peer took a Send of more than [`MIN_THRESHOLD`](crate::wire::threshold::MIN_THRESHOLD)
    /// bytes. Needed once for each connection.
    LargeSendTaken(Epoch),
    /// Memory of a call that the server has not answered is being taken back.
    MemoryRevoked(Epoch),
    /// The keepalive probe completed successfully.
    KeepaliveAnswered(Epoch),
    /// The send queue had no room for the keepalive probe. The work requests that fill it stand in
    /// for the probe.
    KeepaliveNotSent(Epoch),
    /// The connection is unusable: a failed work request, a rule the peer broke, a bound it
    /// exceeded.
    Lost(Epoch, Cause),
    /// An RPC timer fired for a call that was sent under this cookie.
    ///
    /// If replies have arrived, the peer's host is probed, and a slow server keeps its connection.
    /// It ends when timers fire again and again without any message ([`Cause::Unserved`]). A call
    /// that is sent again all the same ends the connection ([`Cause::Retransmit`]).
    RpcTimeout {
        /// The call's `rq_connect_cookie`.
        cookie: u32,
        /// The driver's knowledge of the timer.
        timer: RpcTimer,
    },
    /// End the present connection or attempt, whichever it is.
    ///
    /// [`Cause::Idle`] is refused, without any action, while a backchannel is bound (BC-16).
    Close(Cause),
    /// Callbacks may arrive over this transport from now on, or no longer.
    Backchannel {
        /// Whether a backchannel is bound.
        bound: bool,
    },
    /// The driver disconnects this lost connection now. What the connection manager reports about
    /// it afterwards is our own doing.
    Disconnecting(Epoch),
    /// The device's report about the end of a lost connection; comes after `Disconnecting`.
    Seen(Epoch, Seen),
    /// All work of this epoch is drained and out of the server's reach.
    TornDown(Epoch),
    /// End everything; no further attempt will start.
    Shutdown,
}

impl Event {
    /// Whether this event replaces `other`, which still waits for the machine: the same event, an
    /// older state, or the timer of another call.
    pub(super) fn replaces(&self, older: &Self) -> bool {
        match (self, older) {
            (Self::Backchannel { .. }, Self::Backchannel { .. }) => true,
            (Self::RpcTimeout { cookie, .. }, Self::RpcTimeout { cookie: other, .. }) => {
                cookie == other
            }
            _ => self == older,
        }
    }

    /// The attempt or connection that the event is about; the event counts only for the present
    /// one.
    ///
    /// [`Event::Seen`] has none: it may come when the next attempt has begun, and the history finds
    /// its connection.
    pub(super) const fn epoch(&self) -> Option<Epoch> {
        match *self {
            Self::Cm(epoch, _)
            | Self::QpCreated(epoch)
            | Self::LocalFault(epoch, _)
            | Self::VersionAnswer(epoch, _)
            | Self::Replied(epoch)
            | Self::LargeSend(epoch)
            | Self::LargeSendTaken(epoch)
            | Self::MemoryRevoked(epoch)
            | Self::KeepaliveAnswered(epoch)
            | Self::KeepaliveNotSent(epoch)
            | Self::Lost(epoch, _)
            | Self::Disconnecting(epoch)
            | Self::TornDown(epoch) => Some(epoch),
            Self::Start { .. }
            | Self::Tick(_)
            | Self::RpcTimeout { .. }
            | Self::Close(_)
            | Self::Backchannel { .. }
            | Self::Seen(..)
            | Self::Shutdown => None,
        }
    }
}
