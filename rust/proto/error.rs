// SPDX-License-Identifier: GPL-2.0

//! The errors of RPCs and connection attempts, their errnos, and the counters.

/// The Linux error numbers that the RPC client understands, as positive numbers.
pub mod errno {
    /// Local failure that ends the RPC.
    pub const EIO: i32 = 5;
    /// There is no RDMA device. This errno would end the I/O of a hard mount, so it is used only
    /// for the first mount.
    pub const ENODEV: i32 = 19;
    /// The peer does not support this host's protocol version.
    pub const EPROTONOSUPPORT: i32 = 93;
    /// No usable RDMA device leads to the peer, and the mount was connected before.
    pub const ENETUNREACH: i32 = 101;
    /// No buffer or other resource is free. The RPC client retries after a delay.
    pub const ENOBUFS: i32 = 105;
    /// The transport is not connected. The RPC client reconnects and retransmits.
    pub const ENOTCONN: i32 = 107;
    /// The peer did not answer in time.
    pub const ETIMEDOUT: i32 = 110;
    /// The peer rejected the connection.
    pub const ECONNREFUSED: i32 = 111;
    /// Address or route of the peer not found.
    pub const EHOSTUNREACH: i32 = 113;
    /// The peer refused the transport header of this call.
    pub const EREMOTEIO: i32 = 121;
}

/// Why an RPC or a connection attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The header does not fit into the buffer given for it.
    NoSpace,
    /// There are more chunks or segments than a server is required to accept (ULB-26).
    TooComplex,
    /// A segment is empty, a position is not a multiple of four, or the positions are out of order.
    BadChunk,
    /// No combination of chunks fits this call into the inline thresholds (V1-097).
    Unbuildable,
    /// The device cannot map the memory of this call; a retry would fail with the same error.
    Unmappable,
    /// The peer could not process this host's chunk lists, and sent RDMA_ERROR.
    RemoteChunk,
    /// The peer does not support the version of the call, and sent RDMA_ERROR.
    RemoteVersion,
    /// Data that belongs in a chunk arrived inline, or data that belongs inline arrived in a chunk
    /// (V1-101).
    DdpViolation,
    /// The Reply chunk does not hold a Reply to this call (V1-070).
    BadPayload,
    /// This call got its third unusable reply.
    BadReplies,
    /// The connection is gone.
    Disconnected,
    /// A resource is missing, and no event will announce that it is free; retry after a delay.
    NoBuffers,
    /// The peer rejected the connection.
    Refused,
    /// The peer's address or a route to it was not found.
    Unreachable,
    /// The peer did not answer.
    TimedOut,
    /// No usable RDMA device leads to the peer.
    NoDevice,
    /// No usable RDMA device leads to the peer, and the mount has never been connected.
    NoDeviceAtMount,
}

impl Error {
    /// Returns the errno for the RPC task. The errno is negative, as the kernel expects.
    pub const fn to_errno(self) -> i32 {
        use errno::*;
        let number = match self {
            Self::NoSpace | Self::TooComplex | Self::BadChunk | Self::Unbuildable => EIO,
            Self::DdpViolation | Self::BadPayload | Self::BadReplies | Self::Unmappable => EIO,
            Self::RemoteChunk => EREMOTEIO,
            Self::RemoteVersion => EPROTONOSUPPORT,
            Self::Disconnected => ENOTCONN,
            Self::NoBuffers => ENOBUFS,
            Self::Refused => ECONNREFUSED,
            Self::Unreachable => EHOSTUNREACH,
            Self::TimedOut => ETIMEDOUT,
            Self::NoDevice => ENETUNREACH,
            Self::NoDeviceAtMount => ENODEV,
        };
        number.wrapping_neg()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// A transport's counters of unusual events, as indices of an array of [`Counter::COUNT`]
        /// numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Counter {
            $($(#[$doc])* $variant,)+
        }

        impl Counter {
            /// All counters, in index order.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)+];
            /// Number of counters.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the name shown to the administrator.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Counter::$variant => $name,)+
                }
            }
        }
    };
}

counters! {
    /// A message shorter than its header; dropped.
    ShortMsg = "short_msg",
    /// A message with the wrong protocol version; dropped.
    BadVers = "bad_vers",
    /// A message with an unknown or obsolete procedure; dropped.
    BadProc = "bad_proc",
    /// A reply to a request that is neither waiting nor abandoned; dropped.
    BadXid = "bad_xid",
    /// A second reply to a request; dropped.
    DupReply = "dup_reply",
    /// Chunk lists that cannot belong to the request; dropped.
    BadChunk = "bad_chunk",
    /// A payload that is neither an RPC call nor an RPC reply. If the payload was in a Reply chunk,
    /// the request fails with `EIO`. Otherwise the message is dropped.
    BadPayload = "bad_payload",
    /// A message too short for an RPC message, or a callback that is too long; dropped.
    BadPayloadLen = "bad_payload_len",
    /// The XID of the RPC message differs from the XID of the transport header; dropped.
    XidMismatch = "xid_mismatch",
    /// Version 2 only: a message with an unknown or a wrong direction; dropped.
    BadDirection = "bad_direction",
    /// An error report that cannot be read; dropped.
    ErrUndecodable = "err_undecodable",
    /// Bytes after the end of a message; ignored.
    Trailing = "trailing",
    /// A length that is no multiple of four; ignored.
    OddLen = "odd_len",
    /// Immediate data. If they came with a message, they are ignored. If they came with an RDMA
    /// Write, the connection ends.
    Imm = "imm",
    /// A request's regions were invalidated after the request had moved to another connection;
    /// ignored.
    StaleEpoch = "stale_epoch",
    /// The server granted zero credits; counted as a grant of one credit.
    CreditZero = "credit_zero",
    /// The server granted more credits than this host requested; the grant was reduced. Harmless.
    CreditClamped = "credit_clamped",
    /// The server did not return a Write chunk that it did not use. Harmless.
    WlistMissing = "wlist_missing",
    /// The server did not return a Reply chunk that it did not use. Harmless.
    RchunkMissing = "rchunk_missing",
    /// A segment that the server returned differs from the offered segment in its handle or offset.
    /// With `strict=1` the reply is dropped. Otherwise the difference is ignored.
    SegMismatch = "seg_mismatch",
    /// Data that belongs in a chunk arrived inline, or data that belongs inline arrived in a chunk;
    /// the request failed with `EIO`.
    DdpViolation = "ddp_violation",
    /// Regions that the server invalidated, as agreed at connection setup. Normal.
    Reminv = "reminv",
    /// Regions that a server invalidated although it had not announced remote invalidation. Linux
    /// servers do this. Normal.
    ReminvUnannounced = "reminv_unannounced",
    /// Messages that wrongly invalidated a region: the region does not belong to the answered
    /// request, or the message was dropped. Each such message ends the connection. After the third
    /// such message, the server is no longer asked to invalidate regions.
    ReminvWrong = "reminv_wrong",
    /// Regions that this host invalidated itself. The server did not invalidate these regions, or
    /// its reply did not prove the invalidation. Not a fault.
    LocalInv = "local_inv",
    /// Connections that were lost because the device (rxe) executed a registration twice. After the
    /// first such loss, a fence prevents further losses on this device.
    RepeatedRegistration = "repeated_registration",
    /// A callback on a connection without a backchannel; dropped.
    BcDisabled = "bc_disabled",
    /// More callbacks than the server may send; disconnected.
    BcOverflow = "bc_overflow",
    /// The reply to a callback does not fit into a message; disconnected.
    BcReplyTooBig = "bc_reply_too_big",
    /// Connections on which the server sent no valid private data. They use messages of at most
    /// 1024 bytes and no remote invalidation.
    CmDefault = "cm_default",
    /// Connections that send at most 1024 bytes per message, because two connections in a row ended
    /// within two seconds after their first longer message. This limit applies for ten minutes.
    CmFallback = "cm_fallback",
    /// Version 2 only: unknown options arrived faster than this host could refuse them;
    /// disconnected.
    OptFlood = "opt_flood",
    /// Version 2 only: a reply to an option that this host has not sent; dropped.
    OptReply = "opt_reply",
    /// The server does not support the protocol version of a request. In version 1 the request
    /// fails with `EPROTONOSUPPORT`; in version 2 a new connection is established.
    ErrVers = "err_vers",
    /// The server could not process a request's header or chunks; the request failed with
    /// `EREMOTEIO`.
    ErrChunk = "err_chunk",
    /// Version 2 only: the server could not process a request's header or chunks; the request
    /// failed with `EREMOTEIO`.
    ErrBadHeader = "err_bad_header",
    /// Version 2 only: the server could not process a request's option; the request failed with
    /// `EREMOTEIO`.
    ErrInvalOption = "err_inval_option",
    /// Memory regions allocated since the mount. Not a fault.
    MrsAllocated = "mrs_allocated",
    /// Memory regions that requests hold at present. Not a fault.
    MrsInUse = "mrs_in_use",
}

const _: () = assert!(Counter::COUNT <= 64);

/// A set of counters to increment, for a message that was accepted although it is unusual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes(u64);

impl Notes {
    /// The empty set of counters.
    pub const NONE: Self = Self(0);

    /// Adds `counter` to the set.
    #[inline]
    pub const fn insert(&mut self, counter: Counter) {
        // CAST: `Counter` is `repr(u8)`, and there are at most 64 counters.
        self.0 |= 1u64.wrapping_shl(counter as u32);
    }

    /// Returns true if `counter` is in the set.
    #[inline]
    pub const fn contains(self, counter: Counter) -> bool {
        // CAST: `Counter` is `repr(u8)`, and there are at most 64 counters.
        self.0 & 1u64.wrapping_shl(counter as u32) != 0
    }

    /// Returns true if there is nothing to count, which is the usual case.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the counters, in index order.
    pub fn iter(self) -> impl Iterator<Item = Counter> {
        Counter::ALL
            .iter()
            .copied()
            .filter(move |&c| self.contains(c))
    }
}
