// SPDX-License-Identifier: GPL-2.0

//! Sorting of what a client sends, before anything is looked up or taken.
//!
//! The order of the checks: length, error messages, version, procedure, structure of the lists,
//! direction. An answer is given to Calls only: never to a short message, an error or a Reply.

use crate::{
    responder::{
        call::{
            Call,
            Facts,
            Oddities,
            Sorted, //
        },
        refusal::{
            Fault,
            Refusal, //
        },
    },
    wire::{
        chunk::Lists,
        header::{
            direction,
            proc_nr,
            Credits,
            Fixed,
            Version,
            Xid,
            ERROR_LEN, //
        },
        inbound::{
            rpc_words,
            MIN_RPC_REPLY, //
        },
        xdr::Reader, //
    }, //
};

/// What a received message is.
#[derive(Debug)]
pub enum Arrival<'a> {
    /// A Call, to be admitted. It takes a [`Ticket`](crate::responder::grant::Ticket).
    Call(Call<'a, Sorted>),
    /// A Call that is answered with an error. It takes a ticket, too.
    Refuse(Refusal),
    /// A Reply to a Call of ours. Drop it if no Call with its xid waits.
    ReverseReply(ReverseReply<'a>),
    /// An answer that ends the Call of ours with this xid, if there is one, with an error.
    ReverseError(Xid),
    /// A message to be dropped and counted.
    Drop(Dropped),
}

/// Why a message is dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// It is shorter than a header, so its xid cannot be trusted (RFC 8166 4.5).
    Short,
    /// It is an error message that is too short.
    ShortError,
    /// It is an `RDMA_DONE` (RFC 8166 4.6.2).
    Done,
    /// It is a Reply shorter than an RPC Reply.
    ShortReply,
    /// It is a Reply whose two xids differ.
    ReplyXid,
}

/// A Reply to a Call of ours.
#[derive(Clone, Copy, Debug)]
pub struct ReverseReply<'a> {
    /// The Call that it answers.
    pub xid: Xid,
    /// The reverse grant, as sent.
    pub credits: Credits,
    /// The RPC message, of at least [`MIN_RPC_REPLY`] bytes.
    pub payload: &'a [u8],
}

/// Sorts a received message.
pub fn sort(message: &[u8]) -> Arrival<'_> {
    let mut input = Reader::new(message);
    let Ok(fixed) = Fixed::decode(&mut input) else {
        return Arrival::Drop(Dropped::Short);
    };
    if fixed.procedure == proc_nr::ERROR {
        // An error is never answered, whatever its version.
        return if message.len() < ERROR_LEN {
            Arrival::Drop(Dropped::ShortError)
        } else {
            Arrival::ReverseError(fixed.xid)
        };
    }
    if message.len() < Version::V1.min_header_len() {
        return Arrival::Drop(Dropped::Short);
    }
    if fixed.version != Version::V1.number() {
        return Arrival::Refuse(Refusal {
            xid: fixed.xid,
            version: fixed.version,
            fault: Fault::Version,
        });
    }
    let long = match fixed.procedure {
        proc_nr::MSG => false,
        proc_nr::NOMSG => true,
        proc_nr::DONE => return Arrival::Drop(Dropped::Done),
        _ => return refuse(&fixed, Fault::Procedure),
    };
    let Ok(lists) = Lists::decode(&mut input) else {
        return refuse(&fixed, Fault::Lists);
    };
    let payload = input.rest();
    if !long {
        // The direction is in the RPC message (RFC 8167 5.1).
        match rpc_words(payload) {
            None => return refuse(&fixed, Fault::NoMessage),
            Some((xid, direction::REPLY)) => return reply(&fixed, &lists, payload, xid),
            Some((xid, direction::CALL)) if xid != fixed.xid => {
                return refuse(&fixed, Fault::RpcXid);
            }
            Some((_, direction::CALL)) => {}
            Some(_) => return refuse(&fixed, Fault::RpcType),
        }
    }
    Arrival::Call(Call {
        facts: Facts {
            xid: fixed.xid,
            credits: fixed.credits,
            long,
            oddities: Oddities {
                odd_length: message.len() & 3 != 0,
                trailing: long && !payload.is_empty(),
                no_credit: fixed.credits == Credits(0),
            },
        },
        lists,
        payload,
        stage: Sorted(()),
    })
}

fn refuse(fixed: &Fixed, fault: Fault) -> Arrival<'static> {
    Arrival::Refuse(Refusal::new(fixed.xid, fault))
}

/// A Reply has no chunks, since we offer none (RFC 8167 5.3).
fn reply<'a>(fixed: &Fixed, lists: &Lists<'_>, payload: &'a [u8], rpc_xid: Xid) -> Arrival<'a> {
    if rpc_xid != fixed.xid {
        return Arrival::Drop(Dropped::ReplyXid);
    }
    if payload.len() < MIN_RPC_REPLY {
        return Arrival::Drop(Dropped::ShortReply);
    }
    if !lists.is_empty() {
        return Arrival::ReverseError(fixed.xid);
    }
    Arrival::ReverseReply(ReverseReply {
        xid: fixed.xid,
        credits: fixed.credits,
        payload,
    })
}
