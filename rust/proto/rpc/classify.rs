// SPDX-License-Identifier: GPL-2.0

//! Classification of received messages. It takes place before the call that a reply answers is
//! looked up.
//!
//! [`classify`] looks at the length, the fixed header words and the direction, in that order, and
//! returns the type of the message. The type does not mean that the message is valid: a
//! [`Reply`](crate::wire::inbound::Reply) still has to pass [`judge`](super::judge::judge), which
//! compares the reply with the chunks that its call offered.

use crate::{
    error::{
        Counter,
        Notes, //
    },
    v2::classify::{
        classify_optional,
        classify_v2, //
    },
    wire::{
        chunk::Lists,
        header::{
            direction,
            err_nr,
            proc_nr,
            Fixed,
            Version, //
        },
        inbound::{
            discard,
            rpc_words,
            Context,
            Inbound,
            RemoteError,
            RemoteErrorKind, //
        },
        xdr::Reader, //
    }, //
};

/// Classifies a received message.
///
/// `version` is the protocol version of this connection (during the negotiation, the version of the
/// probe). `backchannel` says whether reverse Calls are expected.
#[inline]
pub fn classify(message: &[u8], version: Version, backchannel: bool) -> Inbound<'_> {
    let mut input = Reader::new(message);
    let Ok(fixed) = Fixed::decode(&mut input) else {
        return discard(Counter::ShortMsg, None);
    };
    if fixed.procedure == proc_nr::ERROR {
        return classify_error(&fixed, version, input);
    }
    // The part after the fixed words has the layout of another version, so it is unknown whether
    // the message is a Call. Only a Call may be answered with ERR_VERS, so no ERR_VERS is sent
    // (MAL-117).
    if fixed.version != version.number() {
        return discard(Counter::BadVers, Some(fixed.xid));
    }
    let mut notes = Notes::NONE;
    if message.len() & 3 != 0 {
        notes.insert(Counter::OddLen);
    }
    let context = Context {
        fixed,
        version,
        backchannel,
        notes,
    };
    match (fixed.procedure, version) {
        (proc_nr::MSG | proc_nr::NOMSG, _) if message.len() < version.min_header_len() => {
            // The xid of a message that is too short cannot be trusted (RFC 8166, section 4.5).
            discard(Counter::ShortMsg, None)
        }
        (proc_nr::MSG | proc_nr::NOMSG, Version::V1) => classify_v1(&context, message, input),
        (proc_nr::MSG | proc_nr::NOMSG, Version::V2) => classify_v2(&context, message, input),
        (proc_nr::OPTIONAL, Version::V2) => classify_optional(&context, input),
        // `RDMA_DONE` answers no call (RFC 8166, section 4.6.2), so it does not count as a bad
        // reply to a waiting call. Version 2 does not have the procedure `RDMA_DONE`.
        (proc_nr::DONE, Version::V1) => discard(Counter::BadProc, None),
        _ => discard(Counter::BadProc, Some(fixed.xid)),
    }
}

/// Classifies a version 1 message. If the RPC header is inline, its `msg_type` says whether the
/// message is a Call or a Reply (BC-01).
#[inline]
fn classify_v1<'a>(context: &Context, message: &'a [u8], mut input: Reader<'a>) -> Inbound<'a> {
    let Ok(lists) = Lists::decode(&mut input) else {
        return context.ambiguous();
    };
    let payload = input.rest();
    if context.fixed.procedure == proc_nr::NOMSG {
        // Only a Call has a Read list (RFC 8166, section 4.3.1). So a message with a Read list is a
        // long Call, and its RPC message is in the Read list. A message without any chunk contains
        // no RPC message at all.
        return if !lists.reads.is_empty() {
            context.long_call()
        } else if lists.is_empty() {
            context.ambiguous()
        } else {
            context.reply(lists, payload, message)
        };
    }
    match rpc_words(payload) {
        None => context.discard(Counter::BadPayloadLen),
        Some((xid, direction::CALL)) => context.reverse_call(&lists, payload, message, xid),
        Some((xid, direction::REPLY)) => context.inline_reply(lists, payload, message, xid),
        Some(_) => context.discard(Counter::BadPayload),
    }
}

/// Classifies an error message. ERR_VERS has the same meaning under every version number.
/// The other errors count only if they carry the version of this connection.
fn classify_error(fixed: &Fixed, version: Version, mut input: Reader<'_>) -> Inbound<'static> {
    let undecodable = discard(Counter::ErrUndecodable, Some(fixed.xid));
    let mut notes = Notes::NONE;
    let kind = match (input.u32(), version) {
        (Ok(err_nr::VERS), _) => {
            let (Ok(low), Ok(high)) = (input.u32(), input.u32()) else {
                return undecodable;
            };
            notes.insert(Counter::ErrVers);
            RemoteErrorKind::Version { low, high }
        }
        (Ok(err_nr::CHUNK), Version::V1) => {
            notes.insert(Counter::ErrChunk);
            RemoteErrorKind::Chunk
        }
        (Ok(err_nr::CHUNK), Version::V2) => {
            notes.insert(Counter::ErrBadHeader);
            RemoteErrorKind::Chunk
        }
        (Ok(err_nr::INVAL_OPTION), Version::V2) => {
            notes.insert(Counter::ErrInvalOption);
            RemoteErrorKind::InvalOption
        }
        _ => return undecodable,
    };
    let any_version = matches!(kind, RemoteErrorKind::Version { .. });
    if !any_version && fixed.version != version.number() {
        return discard(Counter::BadVers, Some(fixed.xid));
    }
    if !input.rest().is_empty() {
        notes.insert(Counter::Trailing);
    }
    Inbound::Error(RemoteError {
        xid: fixed.xid,
        kind,
        notes,
    })
}
