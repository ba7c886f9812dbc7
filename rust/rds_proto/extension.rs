// SPDX-License-Identifier: GPL-2.0

//! Extensions of a header. Each extension has a type, which determines the length of the extension
//! (RDS-58).
//!
//! This crate only adds extensions to headers. The socket layer reads the extensions of received
//! headers.

use crate::header::EXTENSION_BYTES;

// The types of extensions. This crate adds only `RDMA`, `RDMA_DEST` and `RDMA_BYTES`. But the
// socket layer may have put an extension of any type into a header before.
const END: u8 = 0;
const VERSION: u8 = 1;
const RDMA: u8 = 2;
const RDMA_DEST: u8 = 3;
const RDMA_BYTES: u8 = 4;
const PATHS: u8 = 5;
const GENERATION: u8 = 6;
const PORT_INDEX: u8 = 8;

/// The values of the direction field in [`Extension::RdmaBytes`]. `WRITTEN`: the operation wrote to
/// the memory of the message's receiver. `READ`: the operation read from that memory.
const WRITTEN: u8 = 1;
const READ: u8 = 2;

/// An extension that this crate can add to a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The key of a region that the sender has used. A message with this extension is an RDMA ACK
    /// (RDS-06).
    Rdma {
        /// The key of the region that the sender has used.
        key: u32,
    },
    /// A handle (RDS-02, RDS-09, RDS-10).
    RdmaDest {
        /// The key of the region.
        key: u32,
        /// The offset in the region, in bytes.
        offset: u32,
    },
    /// The number of bytes that an operation has moved.
    RdmaBytes {
        /// The number of bytes that the operation has moved.
        bytes: u32,
        /// Whether the operation has written to the memory of the message's receiver. If false, the
        /// operation has read from that memory.
        written: bool,
    },
}

/// Returns the length in bytes of an extension of this type, including the byte of the type.
#[inline(always)]
fn length(kind: u8) -> Option<usize> {
    match kind {
        VERSION | RDMA | GENERATION => Some(5),
        RDMA_DEST | RDMA_BYTES => Some(9),
        PATHS => Some(3),
        PORT_INDEX => Some(2),
        _ => None,
    }
}

/// Appends an extension. Returns false, and changes nothing, if there is no space, or if an
/// extension of unknown type precedes it.
#[must_use]
pub fn add(bytes: &mut [u8; EXTENSION_BYTES], extension: Extension) -> bool {
    let mut at = 0usize;
    loop {
        match bytes.get(at) {
            Some(&END) => return put(bytes, at, extension),
            None => return false,
            Some(&kind) => match length(kind) {
                // NO-OVERFLOW: The offset and the length are at most 16.
                Some(len) => at = at.wrapping_add(len),
                None => return false,
            },
        }
    }
}

/// Returns the encoded bytes of one or two extensions, in this order. Returns `None` if there is no
/// space for them. The compiler knows the types, so this function takes fewer instructions than
/// [`add`].
#[inline(always)]
#[must_use]
pub fn only(first: Extension, second: Option<Extension>) -> Option<[u8; EXTENSION_BYTES]> {
    let mut bytes = [0; EXTENSION_BYTES];
    let mut fits = put(&mut bytes, 0, first);
    if let Some(second) = second {
        let (kind, _) = encoded(first);
        fits &= put(&mut bytes, length(kind).unwrap_or(EXTENSION_BYTES), second);
    }
    fits.then_some(bytes)
}

/// Writes an extension at offset `at`, after all others. Returns false, and changes nothing, if
/// there is no space.
#[inline(always)]
fn put(bytes: &mut [u8; EXTENSION_BYTES], at: usize, extension: Extension) -> bool {
    let (kind, body) = encoded(extension);
    let len = length(kind).unwrap_or(EXTENSION_BYTES);
    // NO-OVERFLOW: `at` and `len` are at most 16.
    if at.wrapping_add(len) > EXTENSION_BYTES {
        return false;
    }
    // The bytes of all extensions are handled as a single number, whose most significant byte comes
    // first.
    let own = u128::from(kind) << 120 | u128::from(body) << 56;
    let mask = !(u128::MAX >> bits(len));
    let all = u128::from_be_bytes(*bytes);
    let all = all & !(mask >> bits(at)) | own >> bits(at);
    *bytes = all.to_be_bytes();
    true
}

/// Returns the number of bits in `bytes` bytes. `bytes` is at most 16.
#[inline(always)]
fn bits(bytes: usize) -> u32 {
    // CAST, NO-OVERFLOW: The number of bytes is small.
    (bytes as u32).wrapping_mul(8)
}

/// Encodes an extension. Returns its type, and a number that contains the bytes that follow the
/// type. The first of these bytes is the most significant byte of the number. Unused bytes of the
/// number are zero.
#[inline(always)]
fn encoded(extension: Extension) -> (u8, u64) {
    let high = |number: u32| u64::from(number) << 32;
    match extension {
        Extension::Rdma { key } => (RDMA, high(key)),
        Extension::RdmaDest { key, offset } => (RDMA_DEST, high(key) | u64::from(offset)),
        Extension::RdmaBytes { bytes, written } => {
            let direction = if written { WRITTEN } else { READ };
            (RDMA_BYTES, high(bytes) | u64::from(direction) << 24)
        }
    }
}
