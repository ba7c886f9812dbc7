// SPDX-License-Identifier: GPL-2.0

//! What comes while the version probe waits for its answer (V2-26 to V2-35).

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
    v2::negotiate::ProbeAnswer,
    wire::{
        header::{
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
