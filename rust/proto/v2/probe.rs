// SPDX-License-Identifier: GPL-2.0

//! The version probe: a NULL call in version 2 (V2-26 to V2-29).
//!
//! The probe asks the RPC layer of the peer for nothing: whatever RPC says to it, the transport has
//! answered. So it names NFS, which every peer of ours serves, and identifies nobody (AUTH_NONE).

use crate::wire::{
    header::{
        direction,
        proc_nr,
        Credits,
        Version,
        Xid, //
    },
    threshold::MIN_THRESHOLD, //
};

const WORDS: usize = 18;

/// Length of the probe, in bytes.
pub const LEN: usize = WORDS * 4;
// Nothing longer may be sent before there is an agreement (V2-04, X-17). CAST: widening.
const _: () = assert!(LEN <= MIN_THRESHOLD as usize);

const RPC_CALL: u32 = 0;
const RPC_VERSION: u32 = 2;
const NFS_PROGRAM: u32 = 100_003;
const NFS_VERSION: u32 = 3;
const NULL: u32 = 0;
const AUTH_NONE: u32 = 0;

/// The probe. `credits` is what the connection asks for; the reply's grant is its first window.
pub fn call(xid: Xid, credits: Credits) -> [u8; LEN] {
    let header = [
        xid.0,
        Version::V2.number(),
        credits.0,
        proc_nr::MSG,
        direction::CALL,
        0,
        0,
        0,
    ];
    let front = [xid.0, RPC_CALL, RPC_VERSION, NFS_PROGRAM, NFS_VERSION, NULL];
    let credential = [AUTH_NONE, 0];
    let verifier = [AUTH_NONE, 0];
    let words = header
        .iter()
        .chain(&front)
        .chain(&credential)
        .chain(&verifier);
    let mut message = [0; LEN];
    for (room, word) in message.chunks_exact_mut(4).zip(words) {
        room.copy_from_slice(&word.to_be_bytes());
    }
    message
}
