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
    /// The server closed the connection, because it was stopped or saw an error. See the server's
    /// log.
    PeerClosed,
    /// A work request failed.
    Completion(WcStatus),
    /// The device refused a chain of work requests. Report this error if it occurs again.
    PostFailed,
    /// The device failed to invalidate a region after the reply to its call had arrived (V1-098).
    /// Report this error if it occurs again.
    InvalidateFailed,
    /// The server invalidated a region that is not part of the answered call, or an unusable
    /// message invalidated a region (MAL-014, MAL-015). A fault of the server.
    WrongInvalidate,
    /// The server used RDMA Write with Immediate, which the protocol does not have (MAL-012). A
    /// fault of the server.
    Immediate,
    /// The server sent too many unusable messages: see the counters.
    BadReplies,
    /// The server sent an unusable reply to a call that waits for this reply: see the
    /// counters.
    BadReply,
    /// The server sent more than 16 callbacks at a time (MAL-111). A fault of the server.
    BackchannelOverflow,
    /// The reply to a callback does not fit into one message (MAL-131).
    BackchannelReplyTooBig,
    /// Version 2 only: the server sends options faster than it receives the refusals (MAL-184).
    OptionFlood,
    /// Version 2 only: the server supports another version now (MAL-023). The next connection
    /// negotiates the version again.
    VersionRefused,
    /// A request was not answered in time, and no reply ever came on this connection.
    RpcTimeout,
    /// The server sent nothing while three timers of requests (`timeo`) expired one after the
    /// other, although its adapter answers: the server hangs, or its address has moved.
    Unserved,
    /// A request had to be sent again, which needs a new connection. The server is slow, or `timeo`
    /// is too small.
    Retransmit,
    /// Harmless: a request that expects no reply was sent, or requests of killed programs held
    /// every credit for a minute.
    CreditResync,
    /// Harmless: the server wrote to the memory of a killed program, or of a request that was given
    /// up.
    GivenUpCall,
    /// The server's adapter did not answer the keepalive. Look at the network and the server.
    PeerDead,
    /// The hardware address of the server or its router changed or was lost, and the keepalive was
    /// not answered. Look at the port, the cable and ARP. Normal when an address moves to another
    /// host.
    PeerUnreachable,
    /// The local address moved to another device.
    AddrChanged,
    /// The RDMA device is being removed.
    DeviceRemoved,
    /// The port lost its link, and there is another rail, which the next connection uses.
    PortDown,
    /// Normal: the connection moves to another rail, because that rail works again or because the
    /// rail of this connection is no longer in the administrator's tables.
    RailMove,
    /// An administrator or a test wrote to `disconnect` in debugfs.
    Forced,
    /// Normal: no request used the connection for the time `idle_timeout`.
    Idle,
    /// The RPC client closed the connection because of a change in sysfs, or (NFSv4 only) because
    /// the RPC client could not decode a reply.
    Closed,
    /// Normal: the mount is gone.
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

    /// Returns whether the rail of the connection is to blame: no packet gets through, or the port,
    /// the address or the device is going away. The result is false in two cases of doubt:
    ///
    /// - The peer closed the connection. Its disconnect request arrived over the rail, so the rail
    ///   worked. But see [`Disconnect::doubts_rail`](super::Disconnect::doubts_rail).
    /// - The server does not answer calls. Its adapter may have answered all probes, so perhaps the
    ///   rail works. If the adapter does not answer probes, the cause is [`Cause::PeerDead`].
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

    /// Returns whether the connection may have been lost for one of two reasons: the peer wrote to
    /// memory to which it no longer had access, or it invalidated a region that was already
    /// invalid. In both cases this host's queue pair refuses the request and fails. Devices report
    /// this failure differently; some report only flushed work requests.
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

    /// Returns whether a Send larger than the peer's Receive can be the reason for this loss
    /// (MAL-149).
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
    /// A step of this host took too long, or the attempt exceeded the time limit that applies if
    /// there are several rails.
    TimedOut,
    /// `rdma_version` is 3, and the server does not say which versions it has.
    VersionSilent,
    /// No host has the address of the server or of the next router: `ip neigh` shows `FAILED`.
    AddrSilent,
    /// The kernel reported an unexpected error when it resolved the address. Check the route:
    /// `ip route get ADDRESS`.
    AddrUnresolved,
    /// No route exists, or the server's host cannot be reached: `ip route get ADDRESS`.
    NoRoute,
    /// InfiniBand only: the subnet manager did not answer the query for a route. Does a subnet
    /// manager run (`sminfo`)?
    RouteSilent,
    /// The server's adapter does not answer. RoCE: is UDP port 4791 open, is the server's RDMA
    /// device up (`rdma link`)?
    Unanswered,
    /// The route to the server leads through no RDMA device with fast registration: see `rdma link`
    /// and `ip route get ADDRESS`. If the mount was never connected, the mount command fails with
    /// `ENODEV`. If the mount was connected before, its I/O waits. There is one exception: in a
    /// container with its own network namespace, the NFS client ends the I/O with `ENETUNREACH`,
    /// unless the file system was mounted with `fatal_neterrors=none`.
    NoDevice,
    /// Nothing listens on the server's port for NFS over RDMA: does `/proc/fs/nfsd/portlist` on the
    /// server show `rdma 20049`?
    Refused,
    /// The server still has this client's previous connection. The next attempt will succeed.
    Stale,
    /// A step failed after the connection request was sent to the server. Look at the logs of both
    /// hosts.
    Aborted,
    /// A step on this host failed; N is the errno. Check this host's device and its driver's
    /// messages.
    HostFault,
    /// The server closed the connection before the connection was ready. Look at the server's log.
    PeerClosed,
    /// The local device was removed during the attempt.
    DeviceRemoved,
    /// The local address changed during the attempt.
    AddrChanged,
    /// With rails only: the port of this rail has no link.
    PortDown,
    /// This host has too little memory, or the device has too few queue pairs or regions: see `rdma
    /// resource show`. Use fewer `slots` or connections.
    NoResources,
    /// The server announced that it posts no RDMA Reads, so it cannot read the data of writes
    /// (MAL-151). If the mount was never connected, the mount command fails immediately.
    NoReadCapability,
    /// The server does not support version 2, and `rdma_version` is 3; or the server names no
    /// version that the client supports (V2-30).
    VersionUnsupported,
    /// The client ended the attempt, because the end of the connection was requested or the mount
    /// was removed.
    Cancelled,
}

impl ConnectError {
    /// Returns the reason for the failure of an attempt if `cause` ends the attempt while it runs.
    pub(super) const fn ended_by(cause: Cause) -> Self {
        match cause {
            Cause::DeviceRemoved => Self::DeviceRemoved,
            Cause::AddrChanged => Self::AddrChanged,
            Cause::PortDown => Self::PortDown,
            // The peer's adapter did not acknowledge the version probe.
            Cause::Completion(WcStatus::RetryExceeded) => Self::Unanswered,
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

    /// Returns whether a failure for this reason is the fault of the rail that the attempt used.
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

    /// Returns the error for the RPC tasks that wait for the connection (MAL-150).
    ///
    /// `first_mount` means that this transport was never connected, and that the call which
    /// requests the connection fails if the attempt fails.
    ///
    /// If `first_mount` is true, a permanent fault ends the mount with an error that says why. If
    /// the peer does not answer, the result is [`Error::Unreachable`]. This error immediately ends
    /// a call with the flag `RPC_TASK_SOFTCONN`; the RPC client repeats other calls. After
    /// [`Error::TimedOut`] the RPC client would repeat every call until the call's own timer has
    /// passed. For NFS this takes three minutes.
    ///
    /// If `first_mount` is false, a permanent fault must not end the I/O of a hard mount: the
    /// server may be replaced by one that works. So the result is an error after which the RPC
    /// client tries again.
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
