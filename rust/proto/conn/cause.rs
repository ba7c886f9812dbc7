// SPDX-License-Identifier: GPL-2.0

//! Why attempts fail and connections end.

use crate::{
    error::Error,
    v2::negotiate::EndedBy,
    wc::WcStatus, //
};

/// Why an established connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The peer closed the connection.
    PeerClosed,
    /// A work request failed.
    Completion(WcStatus),
    /// A chain of work requests could not be posted.
    PostFailed,
    /// A region could not be invalidated after the reply to its call arrived (V1-098).
    InvalidateFailed,
    /// The peer invalidated a region that is not part of the answered call (MAL-014, MAL-015).
    WrongInvalidate,
    /// RDMA Write with Immediate consumed a Receive (MAL-012).
    Immediate,
    /// Too many undecodable replies on one connection (ground rule 6).
    BadReplies,
    /// An unusable reply arrived for a call that is still pending.
    BadReply,
    /// The server sent more callbacks than the reverse credits that this host granted (MAL-111).
    BackchannelOverflow,
    /// The reply to a callback does not fit into a message (MAL-131).
    BackchannelReplyTooBig,
    /// The peer sent more unknown version 2 options than the limit allows (MAL-184).
    OptionFlood,
    /// The peer refuses the protocol version to which it agreed (MAL-023).
    VersionRefused,
    /// An RPC timer fired, and nothing shows that the peer is alive.
    RpcTimeout,
    /// RPC timers fired repeatedly and no message came, although the peer's adapter answers.
    Unserved,
    /// The RPC layer wants to retransmit a call; one connection must not carry the same call twice.
    Retransmit,
    /// The number of free credits is unknown: this host sent a call that gets no reply, or
    /// abandoned calls long ago.
    CreditResync,
    /// The server wrote to memory that this host had revoked, because the process that made the
    /// call was killed or the RPC client abandoned the call.
    GivenUpCall,
    /// The keepalive probe stayed unanswered.
    PeerDead,
    /// The connection manager reported the peer as unreachable, and a probe stayed unanswered.
    PeerUnreachable,
    /// An address of the path changed.
    AddrChanged,
    /// The device is being removed.
    DeviceRemoved,
    /// The port is down, and there is another rail.
    PortDown,
    /// The connection was healthy, and moves to another rail.
    RailMove,
    /// The administrator or a test asked for the end of the connection.
    Forced,
    /// The connection was unused for the idle timeout.
    Idle,
    /// The RPC layer closed the transport.
    Closed,
    /// The transport is being destroyed.
    Shutdown,
}

impl Cause {
    /// Returns whether this host ended a healthy connection on purpose, so that no back-off is due.
    pub const fn is_clean(self) -> bool {
        matches!(
            self,
            Self::Idle | Self::Closed | Self::Shutdown | Self::Forced | Self::RailMove
        )
    }

    /// Returns whether the rail of the connection is to blame: no packet gets through, or the port
    /// or device is going away. If the peer closed the connection, its request arrived over the
    /// rail; see [`Disconnect::doubts_rail`](super::Disconnect::doubts_rail). A server that does
    /// not answer calls does not prove a bad rail, because its adapter may have answered all
    /// probes. If the adapter does not answer probes, the connection ends as [`Cause::PeerDead`].
    pub(super) const fn blames_rail(self) -> bool {
        self.is_of_this_host()
            || matches!(
                self,
                Self::Completion(WcStatus::RetryExceeded) | Self::PeerDead | Self::PeerUnreachable
            )
    }

    /// Returns whether the port, the address or the device of the connection went away on this
    /// host.
    pub const fn is_of_this_host(self) -> bool {
        matches!(
            self,
            Self::AddrChanged | Self::DeviceRemoved | Self::PortDown
        )
    }

    /// Returns whether this host ended the connection, although the peer and the network would have
    /// kept it.
    pub(super) const fn is_our_doing(self) -> bool {
        matches!(
            self,
            Self::GivenUpCall | Self::Retransmit | Self::CreditResync
        )
    }

    /// Returns whether this loss can follow when a peer writes to revoked memory or invalidates its
    /// region. This host's queue pair refuses the access and fails. Devices report this failure
    /// differently; some report only flushed work requests.
    pub(super) const fn fits_refused_write(self) -> bool {
        matches!(
            self,
            Self::PeerClosed
                | Self::Completion(
                    WcStatus::Flushed
                        | WcStatus::LocalProtection
                        | WcStatus::RemoteInvalidRequest
                        | WcStatus::RemoteAccess
                        | WcStatus::RemoteOperation
                )
        )
    }

    /// Returns whether this loss can follow a Send larger than the peer's Receive (MAL-149).
    pub(super) const fn fits_oversized_send(self) -> bool {
        matches!(
            self,
            Self::PeerClosed
                | Self::Completion(
                    WcStatus::RemoteInvalidRequest
                        | WcStatus::RemoteOperation
                        | WcStatus::Flushed
                        | WcStatus::Other
                )
        )
    }

    /// Returns a short name for logs and debugfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PeerClosed => "peer closed",
            Self::Completion(status) => status.name(),
            Self::PostFailed => "post failed",
            Self::InvalidateFailed => "invalidation failed",
            Self::WrongInvalidate => "wrong region invalidated",
            Self::Immediate => "write with immediate",
            Self::BadReplies => "too many bad replies",
            Self::BadReply => "bad reply to a pending call",
            Self::BackchannelOverflow => "too many callbacks",
            Self::BackchannelReplyTooBig => "callback reply too big",
            Self::OptionFlood => "too many unknown options",
            Self::VersionRefused => "agreed version refused",
            Self::RpcTimeout => "rpc timeout",
            Self::Unserved => "no message from the server",
            Self::Retransmit => "retransmission",
            Self::CreditResync => "call without reply",
            Self::GivenUpCall => "answer to a call given up",
            Self::PeerDead => "peer dead",
            Self::PeerUnreachable => "peer unreachable",
            Self::AddrChanged => "address changed",
            Self::DeviceRemoved => "device removed",
            Self::PortDown => "port down",
            Self::RailMove => "moved to another rail",
            Self::Forced => "forced",
            Self::Idle => "idle",
            Self::Closed => "closed",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What a failed attempt says about its rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The failure says nothing about the rail: another rail would not help.
    Nothing,
    /// The peer answered and refused. The server may listen at another address, or not at all.
    Refusal,
    /// The peer did not answer in time. A request may have been lost.
    Silence,
    /// The rail does not work.
    Rail,
}

/// Why a connection attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// A step of this host, or the whole attempt, took too long.
    TimedOut,
    /// The version probe got no answer that determines the version.
    VersionSilent,
    /// No host answered with the link address of the peer or of the next router.
    AddrSilent,
    /// The address could not be resolved for a reason other than silence.
    AddrUnresolved,
    /// No route exists, or the peer's host cannot be reached.
    NoRoute,
    /// The subnet manager did not answer with the path through the fabric.
    RouteSilent,
    /// The peer did not answer the connection request.
    Unanswered,
    /// No RDMA device serves the address, or the device lacks a feature that this driver needs.
    NoDevice,
    /// The peer rejected the connection request.
    Refused,
    /// The peer rejected the connection request because it still holds an older connection of this
    /// host.
    Stale,
    /// The connection manager reported an error that it does not explain.
    Aborted,
    /// The connection manager or the device of this host refused a step.
    HostFault,
    /// The peer closed the connection before it was ready for use.
    PeerClosed,
    /// The device went away during the attempt.
    DeviceRemoved,
    /// An address changed during the attempt.
    AddrChanged,
    /// The port of the rail is down.
    PortDown,
    /// Memory or device resources ran out.
    NoResources,
    /// The peer will never issue RDMA Reads, so no Read chunk can work (MAL-151).
    NoReadCapability,
    /// This host and the peer have no protocol version in common (V2-30).
    VersionUnsupported,
    /// This host cancelled the attempt.
    Cancelled,
}

impl ConnectError {
    /// Returns the reason with which a running attempt fails when `cause` ends it.
    pub(super) const fn ended_by(cause: Cause) -> Self {
        match cause {
            Cause::DeviceRemoved => Self::DeviceRemoved,
            Cause::AddrChanged => Self::AddrChanged,
            Cause::PortDown => Self::PortDown,
            Cause::Forced | Cause::Idle | Cause::Closed | Cause::Shutdown | Cause::RailMove => {
                Self::Cancelled
            }
            _ => Self::PeerClosed,
        }
    }

    /// Returns which side ended an attempt that failed for this reason. Only a failure that the
    /// peer caused says something about the peer's versions (V2-31).
    pub(super) const fn ended_by_whom(self) -> EndedBy {
        match self {
            Self::PeerClosed
            | Self::Refused
            | Self::Stale
            | Self::TimedOut
            | Self::VersionSilent => EndedBy::Peer,
            _ => EndedBy::Us,
        }
    }

    /// Returns what the reason says about the rail that the attempt used.
    pub const fn blame(self) -> Blame {
        match self {
            Self::AddrSilent
            | Self::AddrUnresolved
            | Self::NoRoute
            | Self::RouteSilent
            | Self::NoDevice
            | Self::Aborted
            | Self::HostFault
            | Self::DeviceRemoved
            | Self::AddrChanged
            | Self::PortDown => Blame::Rail,
            Self::TimedOut | Self::Unanswered => Blame::Silence,
            Self::Refused => Blame::Refusal,
            Self::VersionSilent
            | Self::Stale
            | Self::PeerClosed
            | Self::NoResources
            | Self::NoReadCapability
            | Self::VersionUnsupported
            | Self::Cancelled => Blame::Nothing,
        }
    }

    /// Returns the error for the RPC tasks that wait for the connection (section 4.7).
    ///
    /// `first_mount` means that this transport was never connected, and that the call which
    /// requests the connection fails if the attempt fails. In this case a permanent fault ends the
    /// mount with an error that says why. Later the same fault must not end the I/O of a hard
    /// mount, because the server may be replaced by one that works. The result is then an error
    /// that the RPC client retries.
    ///
    /// In a first mount, a peer that does not answer is reported as unreachable. After the error
    /// "timed out" the RPC client would try again until its own timer has passed, which is three
    /// minutes for NFS, even for a call that may fail early. The error "unreachable" ends such a
    /// call at once, and no other call.
    pub const fn error(self, first_mount: bool) -> Error {
        match self {
            Self::AddrSilent | Self::RouteSilent | Self::Unanswered | Self::VersionSilent
                if first_mount =>
            {
                Error::Unreachable
            }
            Self::TimedOut
            | Self::AddrSilent
            | Self::RouteSilent
            | Self::Unanswered
            | Self::VersionSilent => Error::TimedOut,
            Self::AddrUnresolved | Self::NoRoute | Self::PortDown | Self::HostFault => {
                Error::Unreachable
            }
            Self::NoDevice if first_mount => Error::NoDeviceAtMount,
            Self::NoDevice | Self::DeviceRemoved => Error::NoDevice,
            Self::Refused => Error::Refused,
            Self::Stale
            | Self::AddrChanged
            | Self::Cancelled
            | Self::Aborted
            | Self::PeerClosed => Error::Disconnected,
            Self::NoResources => Error::NoBuffers,
            Self::NoReadCapability | Self::VersionUnsupported if first_mount => {
                Error::RemoteVersion
            }
            Self::NoReadCapability | Self::VersionUnsupported => Error::Refused,
        }
    }

    /// Returns a short name for logs and debugfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimedOut => "timed out",
            Self::VersionSilent => "no answer to the version probe",
            Self::AddrSilent => "address not resolved: no answer to ARP or neighbour discovery",
            Self::AddrUnresolved => "address not resolved",
            Self::NoRoute => "no route",
            Self::RouteSilent => "path not resolved: no answer of the fabric's subnet manager",
            Self::Unanswered => "no answer to the connection request",
            Self::NoDevice => "no suitable RDMA device",
            Self::Refused => "refused",
            Self::Stale => "stale connection at the peer",
            Self::Aborted => "connection manager error",
            Self::HostFault => "this host's device or connection manager refused",
            Self::PeerClosed => "peer closed",
            Self::DeviceRemoved => "device removed",
            Self::AddrChanged => "address changed",
            Self::PortDown => "port down",
            Self::NoResources => "out of resources",
            Self::NoReadCapability => "peer offers no RDMA Read",
            Self::VersionUnsupported => "no common version",
            Self::Cancelled => "cancelled",
        }
    }
}
