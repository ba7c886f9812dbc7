// SPDX-License-Identifier: GPL-2.0

//! The events that the connection's state machine handles.

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

/// Identifies a connection attempt and the connection that results from the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The value for "no connection". No attempt ever gets this number.
    pub const NONE: Self = Self(0);

    /// Returns the number, for work-request identities, logs and debugfs.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Returns the epoch of the next attempt, which is never [`NONE`](Self::NONE).
    pub const fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            n => Self(n),
        }
    }
}

/// The values that the peer sent when it accepted the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Maximum number of RDMA Reads that the peer may have in flight (its initiator depth); `None`
    /// if the connection manager does not report it.
    pub peer_read_depth: Option<u8>,
}

/// An event of the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEvent {
    /// The address was resolved to a device.
    AddrResolved,
    /// The address was not resolved.
    AddrError(AddrFault),
    /// The route was resolved.
    RouteResolved,
    /// The route was not resolved.
    RouteError,
    /// The route was not resolved, because no answer came in time.
    RouteSilent,
    /// The peer accepted the connection request.
    Established(Accepted),
    /// A step of the connection manager failed on this host.
    ConnectError,
    /// The peer did not answer.
    Unreachable,
    /// The peer rejected the connection request.
    Rejected {
        /// Whether the peer rejected the request because it still holds an older connection of this
        /// host.
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
    /// Returns the cause for which this event ends an established connection; `None` if the event
    /// does not end a connection.
    pub(super) const fn loss(self) -> Option<Cause> {
        match self {
            Self::Disconnected
            | Self::TimewaitExit
            | Self::ConnectError
            | Self::Rejected { .. } => Some(Cause::PeerClosed),
            // The state machine does not end the connection immediately. It first probes the peer.
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

    /// Returns a short name, for logs and debugfs, of an event that ends a connection.
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
    /// No RDMA device leads to the address (`-ENODEV`).
    NoDevice,
    /// No route leads to the address (`-ENETUNREACH`, `-EHOSTUNREACH`).
    NoRoute,
    /// No answer came in time (`-ETIMEDOUT`).
    TimedOut,
    /// The address was not resolved; the reason is none of the reasons above.
    Other,
}

impl AddrFault {
    /// Returns the reason that is reported for the failed attempt.
    pub(super) const fn reason(self) -> ConnectError {
        match self {
            Self::NoDevice => ConnectError::NoDevice,
            Self::NoRoute => ConnectError::NoRoute,
            Self::TimedOut => ConnectError::AddrSilent,
            Self::Other => ConnectError::AddrUnresolved,
        }
    }
}

/// What failed on this host when an action was performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalFault {
    /// Memory, queue pairs or another resource ran out; a later attempt may succeed.
    NoResources,
    /// The device lacks a feature that this driver needs.
    DeviceUnsuitable,
    /// The device is gone.
    DeviceGone,
    /// A call to the connection manager or to the device returned this errno.
    Refused(i32),
}

impl LocalFault {
    /// Returns the reason that is reported for the failed attempt.
    pub(super) const fn reason(self) -> ConnectError {
        match self {
            Self::NoResources => ConnectError::NoResources,
            Self::DeviceUnsuitable => ConnectError::NoDevice,
            Self::DeviceGone => ConnectError::DeviceRemoved,
            Self::Refused(_) => ConnectError::HostFault,
        }
    }
}

/// An event that the connection's state machine handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The RPC layer wants a connection. The attempt waits until the back-off has passed. At that
    /// moment the time limit of the attempt begins to run. The event changes nothing while there is
    /// an attempt or a connection.
    Start {
        /// Time limit that the caller sets for the attempt. It applies if it is shorter than the
        /// configured limit.
        timeout: Option<Millis>,
        /// Whether the caller gives up when the attempt fails, as the first call of a mount does.
        trial: bool,
    },
    /// The time of [`Conn::deadline`](super::api::Conn::deadline) is reached. An event that arrives
    /// earlier does no harm.
    Tick(Activity),
    /// The connection manager reported an event.
    Cm(Epoch, CmEvent),
    /// [`Action::CreateQp`](super::action::Action::CreateQp) was performed and the Receives are
    /// posted.
    QpCreated(Epoch),
    /// An action of the attempt could not be performed.
    LocalFault(Epoch, LocalFault),
    /// The version probe was answered.
    VersionAnswer(Epoch, ProbeAnswer),
    /// A valid reply arrived. The driver must report this at least once for each connection.
    Replied(Epoch),
    /// A Send of more than [`MIN_THRESHOLD`](crate::wire::threshold::MIN_THRESHOLD) bytes was
    /// posted. The driver must report this at least once for each connection.
    LargeSend(Epoch),
    /// The peer received a Send of more than
    /// [`MIN_THRESHOLD`](crate::wire::threshold::MIN_THRESHOLD) bytes: the reply to a call of this
    /// size arrived. The reply to a smaller call proves nothing, because the smaller call may have
    /// been sent before the large Send. The driver must report this at least once for each
    /// connection.
    LargeSendTaken(Epoch),
    /// The server's access to the memory of an unanswered call is being revoked.
    MemoryRevoked(Epoch),
    /// The keepalive probe completed successfully.
    KeepaliveAnswered(Epoch),
    /// The send queue had no space for the keepalive probe. The work requests that fill the queue
    /// serve as the probe.
    KeepaliveNotSent(Epoch),
    /// The connection is unusable: a work request failed, or the peer broke a rule or exceeded a
    /// limit.
    Lost(Epoch, Cause),
    /// An RPC timer fired for a call that was sent while [`Conn::cookie`](super::api::Conn::cookie)
    /// had the value in `cookie`.
    ///
    /// The consequences depend on what else happens on the connection:
    ///
    /// - If no reply has arrived on the connection, the connection usually ends immediately
    ///   ([`Cause::RpcTimeout`]).
    /// - If a reply has arrived, the peer's host is probed. If the host answers, the connection
    ///   stays, because the server may just be slow.
    /// - If timers fire repeatedly and no message arrives, the connection ends
    ///   ([`Cause::Unserved`]).
    /// - If the RPC client retransmits a call, the connection ends ([`Cause::Retransmit`]).
    RpcTimeout {
        /// The call's `rq_connect_cookie`.
        cookie: u32,
        /// The timer that fired.
        timer: RpcTimer,
    },
    /// The present connection or the present attempt must end.
    ///
    /// [`Cause::Idle`] is refused, without any action, while a backchannel is bound (BC-16).
    Close(Cause),
    /// A backchannel was bound or unbound. Callbacks may arrive while a backchannel is bound.
    Backchannel {
        /// True if the backchannel was bound, false if it was unbound.
        bound: bool,
    },
    /// The driver disconnects this lost connection now. Later events of the connection manager
    /// about this connection are consequences of that disconnect.
    Disconnecting(Epoch),
    /// The device's report about the end of a lost connection. It follows [`Event::Disconnecting`].
    Seen(Epoch, Seen),
    /// All work requests of this epoch are drained, and the server can no longer reach the memory.
    TornDown(Epoch),
    /// The connection or the attempt must end. No further attempt will start.
    Shutdown,
}

impl Event {
    /// Returns whether this event replaces `older`, which still waits for the state machine. An
    /// event replaces an equal event. A new state of the backchannel also replaces an older state,
    /// and an expired RPC timer replaces an earlier one with the same cookie.
    pub(super) fn replaces(&self, older: &Self) -> bool {
        match (self, older) {
            (Self::Backchannel { .. }, Self::Backchannel { .. }) => true,
            (Self::RpcTimeout { cookie, .. }, Self::RpcTimeout { cookie: other, .. }) => {
                cookie == other
            }
            _ => self == older,
        }
    }

    /// Returns the epoch of this event. If it is not the present epoch, the event must be dropped.
    ///
    /// Returns `None` for events that are not bound to an epoch, and for [`Event::Seen`], which may
    /// arrive after the next attempt has begun. [`Event::Seen`] is used if it belongs to the newest
    /// lost connection in the history.
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
