// SPDX-License-Identifier: GPL-2.0

//! Classification of messages from a client, before any resource is looked up or taken.
//!
//! The checks are made in this order: length, error messages, version, procedure, structure of the
//! chunk lists, direction. In version two the direction word is checked before the chunk lists.
//!
//! Three types of messages never get a response:
//!
//! - messages that are too short for a transport header
//! - error messages
//! - Replies

use crate::{
    responder::{
        call::{
            Call,
            Facts,
            Sorted, //
        },
        layout::Layout,
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
            ERROR_LEN,
            FIXED_LEN, //
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

/// The type of a received message.
#[derive(Debug)]
pub enum Arrival<'a> {
    /// A Call to be admitted. Its response needs a [`Ticket`](crate::responder::grant::Ticket).
    Call(Call<'a, Sorted>),
    /// A message to which the server responds with this error. The error needs a
    /// [`Ticket`](crate::responder::grant::Ticket), like any response.
    Refuse(Refusal),
    /// A Reply to a backchannel Call. If no Call with the same xid is waiting, the Reply must be
    /// dropped.
    ReverseReply(ReverseReply<'a>),
    /// An error, or an invalid Reply, for the backchannel Call with this xid. If a Call with this
    /// xid is waiting, that Call fails.
    ReverseError(Xid),
    /// A message to drop and count.
    Drop(Dropped),
}

/// Why a message is dropped without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The message is shorter than a transport header, so its xid cannot be trusted (RFC 8166 4.5).
    Short,
    /// The message is an error message that is too short.
    ShortError,
    /// The message is an `RDMA_DONE` (RFC 8166 4.6.2).
    Done,
    /// The message is a Reply that is too short for an RPC Reply.
    ShortReply,
    /// The message is a Reply whose transport header and RPC message have different xids.
    ReplyXid,
    /// The transport header says that the message is a Reply, but its RPC message is not a Reply.
    Direction,
    /// The message is a reply to an option, but this server never sends options.
    OptionReply,
}

/// The client's Reply to a backchannel Call of this server.
#[derive(Clone, Copy, Debug)]
pub struct ReverseReply<'a> {
    /// The xid of the backchannel Call that this Reply answers.
    pub xid: Xid,
    /// The credits that the client grants for backchannel Calls, exactly as received.
    pub credits: Credits,
    /// The RPC message, which is at least [`MIN_RPC_REPLY`] bytes long.
    pub payload: &'a [u8],
}

/// Classifies a message from a client. `spoken` says which versions this connection accepts.
// This function and the functions that make an Arrival are inlined, and no other function gets a
// reference to a part of the Arrival. So the compiler need not store the Arrival in memory.
#[inline(always)]
pub fn sort(message: &[u8], spoken: Spoken) -> Arrival<'_> {
    let mut input = Reader::new(message);
    let Ok(fixed) = Fixed::decode(&mut input) else {
        return Arrival::Drop(Dropped::Short);
    };
    if fixed.procedure == proc_nr::ERROR {
        // An error message never gets a response, whatever its version is.
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
    let front = Front { fixed, version };
    let long = match (fixed.procedure, version) {
        (proc_nr::MSG, _) => false,
        (proc_nr::NOMSG, _) => true,
        (proc_nr::DONE, Version::V1) => return Arrival::Drop(Dropped::Done),
        (proc_nr::OPTIONAL, Version::V2) => {
            return match option(input) {
                Ok(fault) => front.refuse(fault),
                Err(dropped) => Arrival::Drop(dropped),
            };
        }
        _ => return front.refuse(Fault::Procedure),
    };
    front.message(long, input)
}

/// Minimum length in bytes of the words after the fixed words in a header of version two.
const V2_LEN: usize = Version::V2.min_header_len() - FIXED_LEN;

/// The fields of a message that were read from its fixed header words.
#[derive(Clone, Copy)]
struct Front {
    fixed: Fixed,
    version: Version,
}

impl Front {
    /// Classifies a message by the part after its fixed header words. In version one only the RPC
    /// message contains the direction (RFC 8167 5.1). In version two a direction word precedes the
    /// chunk lists, and the RPC message must have the same direction (V2D 4.2.2).
    #[inline(always)]
    fn message<'a>(self, long: bool, mut input: Reader<'a>) -> Arrival<'a> {
        let said = match self.version {
            Version::V1 => None,
            Version::V2 if input.rest().len() < V2_LEN => {
                return Arrival::Drop(Dropped::Short);
            }
            Version::V2 => match input.u32() {
                Ok(direction @ (direction::CALL | direction::REPLY)) => Some(direction),
                _ => return self.refuse(Fault::Direction),
            },
        };
        let is_reply = said == Some(direction::REPLY);
        let encoded = input.rest();
        let Ok(lists) = Lists::decode(&mut input) else {
            return match is_reply {
                true => Arrival::ReverseError(self.fixed.xid),
                false => self.refuse(Fault::Lists),
            };
        };
        let payload = input.rest();
        if long {
            return match is_reply {
                // A Reply from the client must not have chunks, because backchannel Calls offer no
                // chunks (RFC 8167 5.3).
                true => Arrival::ReverseError(self.fixed.xid),
                false => self.call(long, lists, encoded, payload),
            };
        }
        match (rpc_words(payload), said) {
            (Some((xid, direction::REPLY)), None | Some(direction::REPLY)) => {
                self.reply(lists.is_empty(), payload, xid)
            }
            (None, Some(direction::REPLY)) => Arrival::Drop(Dropped::ShortReply),
            (Some(_), Some(direction::REPLY)) => Arrival::Drop(Dropped::Direction),
            (None, _) => self.refuse(Fault::NoMessage),
            (Some((_, direction::REPLY)), Some(_)) => self.refuse(Fault::Direction),
            (Some((xid, direction::CALL)), _) if xid != self.fixed.xid => {
                self.refuse(Fault::RpcXid)
            }
            (Some((_, direction::CALL)), _) => self.call(long, lists, encoded, payload),
            (Some(_), _) => self.refuse(Fault::RpcType),
        }
    }

    #[inline(always)]
    fn refuse(self, fault: Fault) -> Arrival<'static> {
        Arrival::Refuse(Refusal::new(self.fixed.xid, self.version, fault))
    }

    /// Returns the Call whose chunk lists are `lists`. The encoded lists are at the front of
    /// `encoded`, and `payload` follows them.
    #[inline(always)]
    fn call<'a>(
        self,
        long: bool,
        lists: Lists<'a>,
        encoded: &'a [u8],
        payload: &'a [u8],
    ) -> Arrival<'a> {
        // NO-OVERFLOW: The payload is a part of `encoded`.
        let len = encoded.len().wrapping_sub(payload.len());
        let layout = Layout::of(&lists, len);
        Arrival::Call(Call {
            facts: Facts {
                xid: self.fixed.xid,
                version: self.version,
            },
            layout,
            lists,
            returned: layout.returned(encoded),
            payload,
            stage: Sorted {
                credits: self.fixed.credits,
                long,
            },
        })
    }

    /// Classifies a Reply from the client. A Reply from the client must not have chunks, because
    /// backchannel Calls offer no chunks (RFC 8167 5.3). `no_chunks` says whether the chunk lists
    /// of the Reply are empty.
    #[inline(always)]
    fn reply(self, no_chunks: bool, payload: &[u8], rpc_xid: Xid) -> Arrival<'_> {
        if rpc_xid != self.fixed.xid {
            return Arrival::Drop(Dropped::ReplyXid);
        }
        if payload.len() < MIN_RPC_REPLY {
            return Arrival::Drop(Dropped::ShortReply);
        }
        if !no_chunks {
            return Arrival::ReverseError(self.fixed.xid);
        }
        Arrival::ReverseReply(ReverseReply {
            xid: self.fixed.xid,
            credits: self.fixed.credits,
            payload,
        })
    }
}

/// Classifies an option. The content of the option is ignored.
///
/// - An option that is sent as a Call is refused, because this server supports no option.
/// - An option that is sent as a reply is dropped, because this server sends no options (V2D 3.1).
#[cold]
fn option(mut input: Reader<'_>) -> Result<Fault, Dropped> {
    match OptionHeader::decode(&mut input) {
        Err(Malformed) => Err(Dropped::Short),
        Ok(option) => match (option.direction, option.complete) {
            (direction::CALL, true) => Ok(Fault::Option),
            (direction::CALL, false) => Ok(Fault::CutOption),
            (direction::REPLY, _) => Err(Dropped::OptionReply),
            _ => Ok(Fault::Direction),
        },
    }
}
