// SPDX-License-Identifier: GPL-2.0

//! Handling of messages that arrive while the version probe waits for its reply (V2-26 to V2-35).

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

/// The action for a message that arrives before the version is negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The message answers the probe. The credits are the connection's first grant. They are `None`
    /// for an error message, because it contains no grant (V2-05).
    Answer(ProbeAnswer, Option<Credits>),
    /// Send this error message to the server.
    Refuse(Refusal),
    /// Drop the message, and add one to this counter of the transport.
    Drop(Counter),
}

/// Decides what to do with a message that arrives while the probe with this xid waits for its
/// reply. `invalidates` is true if the message arrived by Send with Invalidate. Such a message is
/// wrong, because the probe offers no region.
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

/// Checks the reply to the probe. The probe offers no chunk, so its reply must not use one.
fn answered(reply: &Reply<'_>, invalidates: bool) -> Arrival {
    match judge(reply, &Offer::default()) {
        Verdict::Accept(accept) if !invalidates => {
            Arrival::Answer(ProbeAnswer::Reply, Some(accept.grant))
        }
        Verdict::Accept(_) => Arrival::Drop(Counter::ReminvWrong),
        Verdict::Fail(_, counter) | Verdict::Discard(counter) => Arrival::Drop(counter),
    }
}
