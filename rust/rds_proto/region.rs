// SPDX-License-Identifier: GPL-2.0

//! Handles, the time during which a peer can access the memory of a region, and the limits on the
//! length and the number of regions.

/// Maximum length of a region in bytes (RDS-55).
const REGION_BYTES: u64 = 1 << 20;

/// A handle: the key of a region, and an offset (RDS-02, RDS-20). The socket layer makes handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Returns the key of the region.
    #[must_use]
    pub const fn key(self) -> u32 {
        // CAST: The cast keeps the low half.
        self.0 as u32
    }

    /// Returns the offset in the region.
    #[must_use]
    pub const fn offset(self) -> u32 {
        // CAST: The shifted value is the high half, which fits into a `u32`.
        (self.0 >> 32) as u32
    }
}

/// Why memory cannot be made accessible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The limit on the number of regions is reached (RDS-49). The errno is `EAGAIN`.
    Limit,
    /// The range is too long (RDS-51). The errno is `EINVAL`.
    Range,
}

/// Checks the length of a region, in bytes. A region of the maximum length may begin anywhere in a
/// page. So it may touch one page more than a region that begins at a page boundary.
///
/// # Errors
///
/// Returns [`Refusal::Range`] if the region is longer than a mebibyte.
#[inline]
pub const fn check_length(len: u64) -> Result<(), Refusal> {
    if len > REGION_BYTES {
        return Err(Refusal::Range);
    }
    Ok(())
}

/// How a program wants a region to end (RDS-24, RDS-27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Whether the region is released when the RDMA ACK arrives.
    pub use_once: bool,
    /// Whether the release of the region revokes the peer's access.
    pub invalidate: bool,
}

/// The action that the driver must take before it returns to the socket layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// No action is required.
    Nothing,
    /// Revoke the peer's access.
    Revoke,
}

/// The state of a region. The peer can access the region until the access is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    revoked: bool,
    wanted: Wanted,
}

impl Life {
    /// Returns a region that the peer can access from now on.
    #[must_use]
    pub const fn new(wanted: Wanted) -> Self {
        Self {
            revoked: false,
            wanted,
        }
    }

    /// Records that the RDMA ACK has arrived. The program can soon read the ACK. If `use_once` and
    /// `invalidate` are set, the peer's access must be revoked before the program reads the ACK.
    /// The driver cannot wait until the last reference to the region is dropped, because a message
    /// may hold that reference for longer.
    #[must_use]
    pub const fn acknowledged(&self) -> Due {
        self.due(self.wanted.use_once && self.wanted.invalidate)
    }

    /// Records that the last reference to the region was dropped. The cause is FREE_MR, the RDMA
    /// ACK, or the end of the socket (RDS-25). The peer's access must be revoked even if the
    /// program did not request this (RDS-26, RDS-46, RDS-47). So FREE_MR without a handle never
    /// finds a released region that is still accessible (RDS-48).
    #[must_use]
    pub const fn released(&self) -> Due {
        self.due(true)
    }

    /// Records that the device is removed.
    #[must_use]
    pub const fn lost(&self) -> Due {
        self.due(true)
    }

    const fn due(&self, now: bool) -> Due {
        if now && !self.revoked {
            Due::Revoke
        } else {
            Due::Nothing
        }
    }

    /// Records that the peer's access was revoked.
    pub fn revoked(&mut self) {
        self.revoked = true;
    }
}

/// The limit on the number of regions (RDS-56).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    most: u32,
    mapped: u32,
}

impl Limit {
    /// Returns a limit of `most` regions.
    #[must_use]
    pub const fn new(most: u32) -> Self {
        Self { most, mapped: 0 }
    }

    /// Counts a new region.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::Limit`] if the limit is reached.
    #[inline]
    pub fn map(&mut self) -> Result<(), Refusal> {
        if self.mapped >= self.most {
            return Err(Refusal::Limit);
        }
        self.mapped = self.mapped.saturating_add(1);
        Ok(())
    }

    /// Records that a region was freed.
    pub fn unmap(&mut self) {
        self.mapped = self.mapped.saturating_sub(1);
    }
}
