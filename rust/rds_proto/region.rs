// SPDX-License-Identifier: GPL-2.0

//! The memory that a handle covers, the time for which the peer can reach it, and the limit on the
//! number of regions.

/// Bytes of a page, as the wire knows it: the offset in a handle is below that.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of the longest region (RDS-55).
pub const REGION_BYTES: u64 = 1 << 20;

/// A handle: the key of a region, and an offset (RDS-02, RDS-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Returns the handle for the memory that begins at `offset` of the region.
    #[must_use]
    pub const fn new(key: u32, offset: u32) -> Self {
        // CAST: From `u32` to `u64`, which is wider. The key is the low half.
        Self(((offset as u64) << 32) | key as u64)
    }

    /// The key.
    #[must_use]
    pub const fn key(self) -> u32 {
        // CAST: The low half.
        self.0 as u32
    }

    /// The offset.
    #[must_use]
    pub const fn offset(self) -> u32 {
        // CAST: The high half.
        (self.0 >> 32) as u32
    }
}

/// The reason for which memory is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The limit is reached (RDS-49): EAGAIN.
    Limit,
    /// The range is empty, too long, or not in the pages (RDS-51): EINVAL.
    Range,
}

/// The bytes that a region covers: exactly those that the program named (RDS-01, RDS-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where they begin in the first page, and what the peer calls their first byte.
    pub offset: u32,
    /// How many.
    pub len: u32,
    /// The pages that they lie in.
    pub pages: u32,
}

impl Extent {
    /// The extent of a program's range, which lies in `pages` pages.
    ///
    /// # Errors
    ///
    /// [`Refusal::Range`]. The longest range is [`REGION_BYTES`], wherever it begins: one page more
    /// than that many bytes may be touched, but not one byte more.
    pub fn new(start: u64, len: u64, pages: u64) -> Result<Self, Refusal> {
        if len == 0 || len > REGION_BYTES {
            return Err(Refusal::Range);
        }
        // NO-OVERFLOW: Both are small.
        let offset = start % PAGE_BYTES;
        let touched = offset.wrapping_add(len).div_ceil(PAGE_BYTES);
        if touched != pages || start.checked_add(len).is_none() {
            return Err(Refusal::Range);
        }
        // CAST: All are far below 2^32.
        Ok(Self {
            offset: offset as u32,
            len: len as u32,
            pages: touched as u32,
        })
    }
}

/// What a program wants of a region (RDS-24, RDS-27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The region is released when the RDMA ACK arrives.
    pub use_once: bool,
    /// The release of the region revokes the peer's access.
    pub invalidate: bool,
}

/// What must be done before a step of the socket layer may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// The peer's access is ended first.
    Revoke,
}

/// The life of a region: the peer reaches it until it is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    revoked: bool,
    wanted: Wanted,
}

impl Life {
    /// Returns a region that the peer can reach from now on.
    #[must_use]
    pub const fn new(wanted: Wanted) -> Self {
        Self {
            revoked: false,
            wanted,
        }
    }

    /// The RDMA ACK has arrived, and the program can read it soon. The memory of a region that is
    /// used once and invalidated is out of reach before that; its last reference may stay with a
    /// message.
    #[must_use]
    pub const fn acknowledged(&self) -> Due {
        self.due(self.wanted.use_once && self.wanted.invalidate)
    }

    /// The last reference is gone: FREE_MR, the RDMA ACK, or the end of the socket (RDS-25). The
    /// peer's access ends, whether or not the program asked for that (RDS-26, RDS-46, RDS-47). So
    /// FREE_MR without a handle finds no region that was released and is in reach (RDS-48).
    #[must_use]
    pub const fn released(&self) -> Due {
        self.due(true)
    }

    /// The device goes away.
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
    /// [`Refusal::Limit`].
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
