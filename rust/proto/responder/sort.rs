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
        spoken::Spoken, //
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
        option::OptionHeader,
        xdr::{
            Malformed,
            Reader, //
        }, //
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
    /// The header says that it is a Reply, and the RPC message in it says otherwise.
    Direction,
    /// It is an option that answers one, and we send none.
    OptionReply,
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

/// Sorts a received message of a client with which these versions are spoken.
pub fn sort(message: &[u8], spoken: Spoken) -> Arrival<'_> {
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
    let Some(version) = spoken.find(fixed.version) else {
        return Arrival::Refuse(Refusal {
            xid: fixed.xid,
            version: fixed.version,
            fault: Fault::Version(spoken),
        });
    };
    let front = Front {
        fixed,
        version,
        odd_length: message.len() & 3 != 0,
    };
    let long = match (fixed.procedure, version) {
        (proc_nr::MSG, _) => false,
        (proc_nr::NOMSG, _) => true,
        (proc_nr::DONE, Version::V1) => return Arrival::Drop(Dropped::Done),
        (proc_nr::OPTIONAL, Version::V2) => return front.option(input),
        _ => return front.refuse(Fault::Procedure),
    };
    if message.len() < version.min_header_len() {
        return Arrival::Drop(Dropped::Short);
    }
    front.message(long, input)
}

/// What is known of a message of which the fixed words were read.
struct Front {
    fixed: Fixed,
    version: Version,
    odd_length: bool,
}

impl Front {
    /// Sorts what follows the fixed words. In version one the direction is in the RPC message (RFC
    /// 8167 5.1); version two has it in front of the lists, and the RPC message says the same (V2D
    /// 4.2.2).
    fn message<'a>(&self, long: bool, mut input: Reader<'a>) -> Arrival<'a> {
        let said = match self.version {
            Version::V1 => None,
            Version::V2 => match input.u32() {
                Ok(direction @ (direction::CALL | direction::REPLY)) => Some(direction),
                _ => return self.refuse(Fault::Direction),
            },
        };
        let is_reply = said == Some(direction::REPLY);
        let Ok(lists) = Lists::decode(&mut input) else {
            return match is_reply {
                true => Arrival::ReverseError(self.fixed.xid),
                false => self.refuse(Fault::Lists),
            };
        };
        let payload = input.rest();
        if long {
            return match is_reply {
                // A Reply has no chunks, since we offer none (RFC 8167 5.3).
                true => Arrival::ReverseError(self.fixed.xid),
                false => self.call(long, lists, payload),
            };
        }
        match (rpc_words(payload), said) {
            (Some((xid, direction::REPLY)), None | Some(direction::REPLY)) => {
                self.reply(&lists, payload, xid)
            }
            (None, Some(direction::REPLY)) => Arrival::Drop(Dropped::ShortReply),
            (Some(_), Some(direction::REPLY)) => Arrival::Drop(Dropped::Direction),
            (None, _) => self.refuse(Fault::NoMessage),
            (Some((_, direction::REPLY)), Some(_)) => self.refuse(Fault::Direction),
            (Some((xid, direction::CALL)), _) if xid != self.fixed.xid => {
                self.refuse(Fault::RpcXid)
            }
            (Some((_, direction::CALL)), _) => self.call(long, lists, payload),
            (Some(_), _) => self.refuse(Fault::RpcType),
        }
    }

    /// Sorts an option. None is known here, so that of a client's Call is refused, and one that
    /// answers us is dropped, as we send none (V2D 3.1). What it carries is not looked at.
    fn option(&self, mut input: Reader<'_>) -> Arrival<'static> {
        match OptionHeader::decode(&mut input) {
            Err(Malformed) => Arrival::Drop(Dropped::Short),
            Ok(option) => match (option.direction, option.complete) {
                (direction::CALL, true) => self.refuse(Fault::Option),
                (direction::CALL, false) => self.refuse(Fault::CutOption),
                (direction::REPLY, _) => Arrival::Drop(Dropped::OptionReply),
                _ => self.refuse(Fault::Direction),
            },
        }
    }

    fn refuse(&self, fault: Fault) -> Arrival<'static> {
        Arrival::Refuse(Refusal::new(self.fixed.xid, self.version, fault))
    }

    fn call<'a>(&self, long: bool, lists: Lists<'a>, payload: &'a [u8]) -> Arrival<'a> {
        Arrival::Call(Call {
            facts: Facts {
                xid: self.fixed.xid,
                version: self.version,
                credits: self.fixed.credits,
                long,
                oddities: Oddities {
                    odd_length: self.odd_length,
                    trailing: long && !payload.is_empty(),
                    no_credit: self.fixed.credits == Credits(0),
                },
            },
            lists,
            payload,
            stage: Sorted(()),
        })
    }

    /// A Reply has no chunks, since we offer none (RFC 8167 5.3).
    fn reply<'a>(&self, lists: &Lists<'_>, payload: &'a [u8], rpc_xid: Xid) -> Arrival<'a> {
        if rpc_xid != self.fixed.xid {
            return Arrival::Drop(Dropped::ReplyXid);
        }
        if payload.len() < MIN_RPC_REPLY {
            return Arrival::Drop(Dropped::ShortReply);
        }
        if !lists.is_empty() {
            return Arrival::ReverseError(self.fixed.xid);
        }
        Arrival::ReverseReply(ReverseReply {
            xid: self.fixed.xid,
            credits: self.fixed.credits,
            payload,
        })
    }
}
