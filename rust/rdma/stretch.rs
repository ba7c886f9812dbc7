// SPDX-License-Identifier: GPL-2.0

//! The location of the bytes of a transfer in the memory of the peer and of this host
//! ([`Stretch`]).

/// Bytes of a transfer that are contiguous in the peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// The key of the peer's region.
    pub handle: u32,
    /// The address in the peer's region.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
    /// Offset of the bytes in this host's memory.
    pub at: u32,
}
