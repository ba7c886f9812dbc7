// SPDX-License-Identifier: GPL-2.0

//! The vocabulary of rds-rdma(7) for the memory-region layer.
//!
//! RFC 8166 leaves open how an implementation manages its memory regions. The RDS zerocopy
//! interface has words for exactly that. The *client* that owns memory is the RPC requester, the
//! *server* that accesses it is the NFS server, the *ACK* is the Reply. We are stricter in two
//! ways: every mapping is used once and invalidated at release, and the server gets only the right
//! that it needs (V1-103, V1-108).
//!
//! The structures have the layout of the system interface, so that its terms have one definition;
//! no socket uses them. Two of them exist in two layouts: the token has 32 bits in the man
//! page, and 64 in today's kernels.

use core::mem::{
    offset_of,
    size_of, //
};

use crate::{
    error::Error,
    wc::WcStatus,
    wire::chunk::{
        Handle,
        Segment, //
    }, //
};

/// A place in a region that a peer can access: the region's key and an offset into the region
/// (RDS-20).
///
/// Regions are zero-based, so a cookie is another form of the handle and offset of a segment on the
/// wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Cookie(u64);

impl Cookie {
    /// The place `offset` bytes into the region with this key.
    #[inline]
    pub const fn new(handle: Handle, offset: u32) -> Self {
        // CAST: both fit; the key is the low half.
        Self(((offset as u64) << 32) | handle.0 as u64)
    }

    /// The cookie with this opaque value.
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The opaque value.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The region's key.
    #[inline]
    pub const fn handle(self) -> Handle {
        // CAST: the low half.
        Handle(self.0 as u32)
    }

    /// The offset into the region, in bytes.
    #[inline]
    pub const fn offset(self) -> u32 {
        // CAST: the high half.
        (self.0 >> 32) as u32
    }

    /// The segment that gives the peer `bytes` bytes starting `relative` bytes behind this place.
    ///
    /// # Errors
    ///
    /// [`MrError::Inval`] for an empty range, one longer than a segment can say, or one whose end
    /// lies beyond what an offset can say (RDS-31).
    #[inline]
    pub const fn segment(self, relative: u64, bytes: u64) -> Result<Segment, MrError> {
        let Some(start) = relative.checked_add(self.offset() as u64) else {
            return Err(MrError::Inval);
        };
        let Some(end) = start.checked_add(bytes) else {
            return Err(MrError::Inval);
        };
        if bytes == 0 || bytes > u32::MAX as u64 || end > REGION_SPAN {
            return Err(MrError::Inval);
        }
        Ok(Segment {
            handle: self.handle(),
            // CAST: checked above.
            length: bytes as u32,
            offset: start,
        })
    }
}

/// One more than the largest offset a cookie can hold.
const REGION_SPAN: u64 = 1 << 32;

/// What the peer may do with a region: the least that the chunk needs (V1-108).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The peer may read: Read chunks.
    PeerReads,
    /// The peer may write: Write chunks and the Reply chunk.
    PeerWrites,
}

/// Flags of a mapping, and of the release of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct MapFlags(u64);

impl MapFlags {
    /// The peer writes; without it the peer only reads.
    pub const READWRITE: u64 = 0x0001;
    /// Fence an RDMA Read before the ACK; we issue no Reads, so we refuse it (RDS-34).
    pub const FENCE: u64 = 0x0002;
    /// Revoke the peer's access at release, not some time later (RDS-27).
    pub const INVALIDATE: u64 = 0x0004;
    /// The mapping serves one transfer and ends with its ACK (RDS-24).
    pub const USE_ONCE: u64 = 0x0008;
    /// Ask for a completion notice; belongs to operations, not to mappings (RDS-35).
    pub const NOTIFY_ME: u64 = 0x0020;

    const STRICT: u64 = Self::USE_ONCE | Self::INVALIDATE;

    /// The flags of a mapping with this right.
    #[inline]
    pub const fn new(access: Access) -> Self {
        match access {
            Access::PeerReads => Self(Self::STRICT),
            Access::PeerWrites => Self(Self::STRICT | Self::READWRITE),
        }
    }

    /// Checks the flags of a mapping.
    ///
    /// # Errors
    ///
    /// [`MrError::Inval`] for a bit that is unknown or has no meaning for a mapping (RDS-28), and
    /// for a mapping that is not both used once and invalidated at release: RPC data must not stay
    /// within the peer's reach for "an undefined time" (RDS-26, V1-103).
    pub const fn from_bits(bits: u64) -> Result<Self, MrError> {
        if bits & !(Self::STRICT | Self::READWRITE) != 0 || bits & Self::STRICT != Self::STRICT {
            return Err(MrError::Inval);
        }
        Ok(Self(bits))
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The right they grant.
    #[inline]
    pub const fn access(self) -> Access {
        if self.0 & Self::READWRITE != 0 {
            Access::PeerWrites
        } else {
            Access::PeerReads
        }
    }
}

/// What a request to free asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// Release one mapping now (RDS-47).
    One(Cookie),
    /// Release all idle mappings on all devices (RDS-48): at teardown, suspend and device removal.
    All,
}

impl Free {
    /// Checks the arguments of a release.
    ///
    /// # Errors
    ///
    /// [`MrError::Inval`] unless the flags are exactly [`MapFlags::INVALIDATE`]: lazy release is
    /// not offered, for one mapping (RDS-46) or for all.
    pub const fn new(args: FreeMrArgs) -> Result<Self, MrError> {
        match (args.flags, args.cookie) {
            (MapFlags::INVALIDATE, 0) => Ok(Self::All),
            (MapFlags::INVALIDATE, cookie) => Ok(Self::One(Cookie::from_raw(cookie))),
            _ => Err(MrError::Inval),
        }
    }
}

/// How an operation on a region ended; the numbers of `RDS_RDMA_*` status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum OpStatus {
    /// It succeeded (RDS-40).
    Success = 0,
    /// The peer refused access: bad key, offset or size (RDS-41).
    RemoteError = 1,
    /// The RPC was cancelled (RDS-42, X-45).
    Canceled = 2,
    /// Discarded with the connection; may have been executed in part (RDS-43).
    Dropped = 3,
    /// Any other failure (RDS-44).
    OtherError = 4,
}

impl OpStatus {
    /// The status of an operation that completed so.
    #[inline]
    pub const fn from_wc(status: WcStatus) -> Self {
        match status {
            WcStatus::Success => Self::Success,
            WcStatus::Flushed => Self::Dropped,
            WcStatus::RemoteAccess | WcStatus::RemoteInvalidRequest => Self::RemoteError,
            WcStatus::LocalLength
            | WcStatus::LocalProtection
            | WcStatus::RemoteOperation
            | WcStatus::RetryExceeded
            | WcStatus::RnrExceeded
            | WcStatus::Other => Self::OtherError,
        }
    }

    /// The number.
    #[inline]
    pub const fn raw(self) -> i32 {
        // CAST: `repr(i32)`.
        self as i32
    }
}

/// Why memory could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MrError {
    /// No region is free; one will come back (RDS-49).
    Again,
    /// The request breaks a rule: size, range or flags (RDS-50 to RDS-52). A bug of ours.
    Inval,
    /// The memory could not be made visible to the device (RDS-53).
    Busy,
}

/// How often an RPC may meet [`MrError::Busy`] before it fails.
pub const BUSY_RETRIES: u8 = 8;

impl MrError {
    /// The negative errno of the man page.
    pub const fn to_errno(self) -> i32 {
        match self {
            Self::Again => -11,
            Self::Busy => -16,
            Self::Inval => -22,
        }
    }

    /// What it means for the RPC, which has met [`MrError::Busy`] `busy` times before.
    ///
    /// EBUSY and EINVAL themselves would confuse the RPC client and never leave.
    pub const fn error(self, busy: u8) -> Error {
        match self {
            Self::Again => Error::Again,
            Self::Busy if busy < BUSY_RETRIES => Error::NoBuffers,
            Self::Busy => Error::Unmappable,
            Self::Inval => Error::Unbuildable,
        }
    }
}

/// How often in a row the memory of a call could not be mapped. The RPC client retries without end,
/// so the core counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unmapped {
    /// Xid and connection.
    call: (u32, u32),
    times: u8,
}

impl Unmapped {
    /// The memory of the call with this xid could not be mapped on the connection with this number.
    /// Returns what that means for the call.
    pub fn again(&mut self, xid: u32, connection: u32) -> Error {
        if self.call != (xid, connection) {
            self.call = (xid, connection);
            self.times = 0;
        }
        let error = MrError::Busy.error(self.times);
        self.times = self.times.saturating_add(1);
        error
    }
}

/// How much may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one mapping (RDS-55).
    pub region_bytes: u64,
    /// Mappings of one device (RDS-56).
    pub regions: u32,
}

impl Default for Limits {
    /// The limits of the man page.
    fn default() -> Self {
        Self {
            region_bytes: 1 << 20,
            regions: 2048,
        }
    }
}

impl Limits {
    /// These limits, or what the device offers if that is less (RDS-57).
    ///
    /// `device_pages` is how many pages of `page_bytes` one region can hold. One of them is lost
    /// when the memory does not begin at a page border.
    #[must_use]
    pub fn within_device(self, device_regions: u32, device_pages: u32, page_bytes: u32) -> Self {
        let aligned = u64::from(device_pages.saturating_sub(1)).saturating_mul(page_bytes.into());
        Self {
            region_bytes: self.region_bytes.min(aligned),
            regions: self.regions.min(device_regions),
        }
    }

    /// Checks that a range can be one mapping.
    ///
    /// # Errors
    ///
    /// [`MrError::Inval`] for an empty range (V1-038), one that wraps around the address space, or
    /// one longer than the limit (RDS-51).
    pub fn check(&self, range: Iovec) -> Result<(), MrError> {
        let fits = range.bytes != 0
            && range.bytes <= self.region_bytes
            && range.addr.checked_add(range.bytes).is_some();
        if fits {
            Ok(())
        } else {
            Err(MrError::Inval)
        }
    }

    /// Checks that one more mapping is allowed besides `mapped`.
    ///
    /// # Errors
    ///
    /// [`MrError::Again`] at the limit (RDS-49).
    pub fn check_count(&self, mapped: u32) -> Result<(), MrError> {
        if mapped < self.regions {
            Ok(())
        } else {
            Err(MrError::Again)
        }
    }
}

/// Checks that the remote window of an operation is as long as the local memory, exactly (RDS-32,
///
///
/// # Errors
///
/// [`MrError::Inval`] if it is shorter or longer, or if the local lengths overflow.
pub fn check_sizes(remote: Iovec, local: &[Iovec]) -> Result<(), MrError> {
    let total = local
        .iter()
        .try_fold(0u64, |sum, part| sum.checked_add(part.bytes));
    if total == Some(remote.bytes) {
        Ok(())
    } else {
        Err(MrError::Inval)
    }
}

/// `struct rds_iovec` (RDS-21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Iovec {
    /// Where it begins.
    pub addr: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// `struct rds_get_mr_args` (RDS-22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct GetMrArgs {
    /// The memory to map.
    pub vec: Iovec,
    /// Where the cookie goes; we return it instead (RDS-23).
    pub cookie_addr: u64,
    /// See [`MapFlags`].
    pub flags: u64,
}

/// `struct rds_free_mr_args` (RDS-45).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FreeMrArgs {
    /// The mapping, or zero for all.
    pub cookie: u64,
    /// See [`MapFlags`].
    pub flags: u64,
}

/// `struct rds_rdma_args` as kernels define it (RDS-29).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RdmaArgs {
    /// The client's region.
    pub cookie: u64,
    /// Where in it.
    pub remote_vec: Iovec,
    /// Address of the array of local ranges.
    pub local_vec_addr: u64,
    /// How many there are.
    pub nr_local: u64,
    /// Direction, fence, notification.
    pub flags: u64,
    /// Handed back unchanged in the notice (RDS-36).
    pub user_token: u64,
}

/// `struct rds_rdma_args` as the man page defines it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RdmaArgs32 {
    /// The client's region.
    pub cookie: u64,
    /// Where in it.
    pub remote_vec: Iovec,
    /// Address of the array of local ranges.
    pub local_vec_addr: u64,
    /// How many there are.
    pub nr_local: u64,
    /// Direction, fence, notification.
    pub flags: u64,
    /// Handed back unchanged in the notice.
    pub user_token: u32,
}

/// `struct rds_rdma_notify` as kernels define it (RDS-39).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RdmaNotify {
    /// From the operation.
    pub user_token: u64,
    /// See [`OpStatus`].
    pub status: i32,
}

/// `struct rds_rdma_notify` as the man page defines it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RdmaNotify32 {
    /// From the operation.
    pub user_token: u32,
    /// See [`OpStatus`].
    pub status: i32,
}

// The layouts hold wherever the core is compiled, not only where its tests run.
const _: () = {
    assert!(size_of::<Cookie>() == 8);
    assert!(size_of::<Iovec>() == 16);
    assert!(size_of::<GetMrArgs>() == 32);
    assert!(size_of::<FreeMrArgs>() == 16);
    assert!(size_of::<RdmaArgs>() == 56);
    assert!(offset_of!(RdmaArgs, user_token) == 48);
    assert!(offset_of!(RdmaArgs32, user_token) == 48);
    assert!(offset_of!(RdmaNotify, status) == 8);
    assert!(size_of::<RdmaNotify32>() == 8);
};
