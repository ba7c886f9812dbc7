// SPDX-License-Identifier: GPL-2.0

//! The version probe: a NULL call in version 2 (V2-26 to V2-29).
//!
//! The probe tests only the peer's transport: every RPC reply, even an RPC error, shows that the
//! peer supports version 2. The NULL call is a call of the NFS program, because every server that a
//! client of this project uses provides this program. The call identifies no user (AUTH_NONE).

use crate::{
    error::Error,
    wire::{
        chunk::ChunkLists,
        header::{
            direction,
            CallHeader,
            Credits,
            Version,
            Xid, //
        },
        threshold::MIN_THRESHOLD,
        xdr::Writer, //
    }, //
};

/// Length of the RPC call in words.
const WORDS: usize = 10;

/// Length of the probe, in bytes.
pub const LEN: usize = Version::V2.min_header_len() + WORDS * 4;
// Before the version is negotiated, a message must not be longer than `MIN_THRESHOLD` (V2-04,
// CAST: The cast widens the number.
const _: () = assert!(LEN <= MIN_THRESHOLD as usize);

const RPC_VERSION: u32 = 2;
const NFS_PROGRAM: u32 = 100_003;
const NFS_VERSION: u32 = 3;
const NULL: u32 = 0;
const AUTH_NONE: u32 = 0;

/// Writes the probe to the front of `buf` and returns the probe's length. `credits` is the number
/// of credits to request; the grant in the reply is the first grant of the connection.
///
/// # Errors
///
/// Returns [`Error::NoSpace`] if `buf` is shorter than [`LEN`].
pub fn encode(xid: Xid, credits: Credits, buf: &mut [u8]) -> Result<usize, Error> {
    let header = CallHeader {
        version: Version::V2,
        xid,
        credits,
        lists: ChunkLists::default(),
    };
    let (front, call) = buf
        .split_at_mut_checked(Version::V2.min_header_len())
        .ok_or(Error::NoSpace)?;
    header.encode(front)?;
    // The credential and the verifier have empty bodies.
    let words: [u32; WORDS] = [
        xid.0,
        direction::CALL,
        RPC_VERSION,
        NFS_PROGRAM,
        NFS_VERSION,
        NULL,
        AUTH_NONE,
        0,
        AUTH_NONE,
        0,
    ];
    Writer::new(call).words(words).map_err(|_| Error::NoSpace)?;
    Ok(LEN)
}
