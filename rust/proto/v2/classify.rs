// SPDX-License-Identifier: GPL-2.0

//! Classification of received version 2 messages, by the words after the four fixed words.

use crate::{
    error::Counter,
    wire::{
        chunk::Lists,
        header::{
            direction,
            proc_nr,
            RefusalKind, //
        },
        inbound::{
            discard,
            rpc_words,
            Context,
            Inbound, //
        },
        option::OptionHeader,
        xdr::Reader, //
    }, //
};

/// Classifies a version 2 Call or Reply. The header states the direction, so the result is never
/// [`Inbound::Ambiguous`] (V2-17).
pub(crate) fn classify_v2<'a>(
    context: &Context,
    message: &'a [u8],
    mut input: Reader<'a>,
) -> Inbound<'a> {
    let inline = context.fixed.procedure == proc_nr::MSG;
    match input.u32() {
        Ok(direction::CALL) => {
            if !context.backchannel {
                return discard(Counter::BcDisabled, None);
            }
            let Ok(lists) = Lists::decode(&mut input) else {
                return context.refuse(RefusalKind::Chunk);
            };
            let payload = input.rest();
            match rpc_words(payload) {
                _ if !inline => context.refuse(RefusalKind::Chunk),
                None => context.refuse(RefusalKind::Chunk),
                Some((xid, direction::CALL)) => context.reverse_call(&lists, payload, message, xid),
                Some((_, direction::REPLY)) => discard(Counter::BadDirection, None),
                Some(_) => discard(Counter::BadPayload, None),
            }
        }
        Ok(direction::REPLY) => {
            let Ok(lists) = Lists::decode(&mut input) else {
                return context.discard(Counter::BadChunk);
            };
            let payload = input.rest();
            if !inline {
                return context.reply(lists, payload, message);
            }
            match rpc_words(payload) {
                None => context.discard(Counter::BadPayloadLen),
                Some((_, direction::CALL)) => context.discard(Counter::BadDirection),
                Some((xid, direction::REPLY)) => context.inline_reply(lists, payload, message, xid),
                Some(_) => context.discard(Counter::BadPayload),
            }
        }
        _ => context.discard(Counter::BadDirection),
    }
}

/// Classifies a version 2 option message. The draft defines no option, so an option request is
/// refused. An option reply is dropped, because this host sends no option requests (X-18, MAL-179).
pub(crate) fn classify_optional<'a>(context: &Context, mut input: Reader<'a>) -> Inbound<'a> {
    let Ok(option) = OptionHeader::decode(&mut input) else {
        return context.discard(Counter::ShortMsg);
    };
    match (option.direction, option.complete) {
        (direction::CALL, true) => context.refuse(RefusalKind::InvalOption),
        (direction::CALL, false) => context.refuse(RefusalKind::Chunk),
        (direction::REPLY, true) => context.discard(Counter::OptReply),
        (direction::REPLY, false) => context.discard(Counter::BadChunk),
        _ => context.discard(Counter::BadDirection),
    }
}
