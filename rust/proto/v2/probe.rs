// SPDX-License-Identifier: GPL-2.0

//! The version probe: a NULL call in version 2 (V2-26 to V2-29), and what comes meanwhile.
//!
//! The probe asks the RPC layer of the peer for nothing: whatever RPC says to it, the transport has
//! answered. So it names NFS, which every peer of ours serves, and identifies nobody (AUTH_NONE).

use super::negotiate::ProbeAnswer;
use crate::{
    error::Counter,
    rpc::{
        classify::classify,
        judge::{
            judge,
            Offer,
            Verdict, //
        }, //
    },
    wire::{
        header::{
            direction,
            proc_nr,
            Credits,
            Refusal,
            Version,
            Xid, //
        },
        inbound::{
            Discard,
            Inbound,
            Reply, //
        }, //
    }, //
};

const WORDS: usize = 18;

/// Length of the probe, in bytes.
pub const LEN: usize = WORDS * 4;

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

/// What a message is that comes before there is an agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The answer to the probe, with the first window if it grants one (V2-05).
    Answer(ProbeAnswer, Option<Credits>),
    /// Something to refuse.
    Refuse(Refusal),
    /// Something to drop and to count.
    Drop(Counter),
}

/// Decides about a message that comes while the probe with this xid waits for its answer.
/// `invalidates`: it came by Send with Invalidate, although no region is offered.
pub fn arrived(message: &[u8], probe: Xid, invalidates: bool) -> Arrival {
    match classify(message, Version::V2, false) {
        Inbound::Reply(reply) if reply.xid == probe => answered(&reply, invalidates),
        Inbound::Error(error) if error.xid == probe => {
            Arrival::Answer(ProbeAnswer::Error(error.kind), None)
        }
        Inbound::Refuse(refusal) => Arrival::Refuse(refusal),
        Inbound::Discard(Discard { counter, .. }) => Arrival::Drop(counter),
        _ => Arrival::Drop(Counter::BadXid),
    }
}

/// The probe offers no chunk, so its answer has none.
fn answered(reply: &Reply<'_>, invalidates: bool) -> Arrival {
    match judge(reply, &Offer::default()) {
        Verdict::Accept(accept) if !invalidates => {
            Arrival::Answer(ProbeAnswer::Reply, Some(accept.grant))
        }
        Verdict::Accept(_) => Arrival::Drop(Counter::ReminvWrong),
        Verdict::Fail(_, counter) | Verdict::Discard(counter) => Arrival::Drop(counter),
    }
}
