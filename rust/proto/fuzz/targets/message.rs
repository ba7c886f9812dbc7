// SPDX-License-Identifier: GPL-2.0

//! Handles received messages of both versions. The messages are classified, compared with a fixed
//! set of offered chunks, and answered.

use super::source::Source;
use xprtrdma_proto::{
    classify,
    header::{
        ReverseReplyHeader,
        ERROR_LEN, //
    },
    inbound::{
        RemoteErrorKind,
        Reply,
        ReverseCall, //
    },
    judge,
    Counter,
    Credits,
    Handle,
    Inbound,
    Offer,
    Segment,
    Verdict,
    Version, //
};

/// The Write list and the Reply chunk that a call offers.
type Chunks<'a> = (&'a [&'a [Segment]], Option<&'a [Segment]>);

const WRITE: [Segment; 2] = [segment(0x0204, 8192), segment(0x0205, 4096)];
const REPLY: [Segment; 2] = [segment(0x0306, 32768), segment(0x0307, 65536)];
const ONE: [Segment; 1] = [segment(0x0208, 4095)];

const fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle: Handle(handle),
        length,
        offset: (handle as u64) << 32,
    }
}

/// Checks replies and errors of version 1, for a client without callbacks.
pub fn v1_reply(data: &[u8]) {
    let mut source = Source::new(data);
    let choice = source.u8();
    take(source.rest(), Version::V1, choice & 8 != 0, choice);
}

/// Checks any message on a version 2 connection.
pub fn v2_message(data: &[u8]) {
    let mut source = Source::new(data);
    let choice = source.u8();
    take(source.rest(), Version::V2, choice & 8 != 0, choice);
}

/// Checks a message for the backchannel, and the client's response to it.
pub fn reverse_call(data: &[u8]) {
    let mut source = Source::new(data);
    let choice = source.u8();
    let version = if choice & 1 != 0 {
        Version::V2
    } else {
        Version::V1
    };
    let message = source.rest();
    let grant = Credits(u32::from(choice >> 5));
    match resolved(message, version, true, choice & 2 != 0) {
        Inbound::ReverseCall(call) => {
            check_call(&call, message);
            answer(&call, version, grant);
        }
        Inbound::Refuse(refusal) => {
            assert_eq!(refusal.version, version);
            let mut buf = [0; 64];
            assert_eq!(refusal.encode(Credits(4), &mut buf), Ok(ERROR_LEN));
            assert_eq!(buf[..4], message[..4]);
            // The peer must recognize the refusal as an error for its own call.
            let Inbound::Error(error) = classify(&buf[..ERROR_LEN], version, false) else {
                panic!("an error message of ours is none");
            };
            assert_eq!(error.xid, refusal.xid);
            assert!(!matches!(error.kind, RemoteErrorKind::Version { .. }));
        }
        _ => {}
    }
}

/// Classifies a message. `pending` says whether a call with the message's xid waits for a reply.
/// The class of an ambiguous message depends on this.
fn resolved(message: &[u8], version: Version, backchannel: bool, pending: bool) -> Inbound<'_> {
    match classify(message, version, backchannel) {
        Inbound::Ambiguous(ambiguous) => {
            assert_eq!(ambiguous.xid.0.to_be_bytes(), message[..4]);
            let inbound = ambiguous.resolve(pending);
            assert!(matches!(inbound, Inbound::Refuse(_) | Inbound::Discard(_)));
            inbound
        }
        inbound => inbound,
    }
}

fn take(message: &[u8], version: Version, backchannel: bool, choice: u8) {
    let offers: [Chunks<'_>; 4] = [
        (&[], None),
        (&[&WRITE], None),
        (&[], Some(&REPLY)),
        (&[&WRITE, &[], &ONE], Some(&REPLY)),
    ];
    match resolved(message, version, backchannel, choice & 4 != 0) {
        Inbound::Reply(reply) => {
            check_reply(&reply, message, version);
            for (writes, chunk) in offers {
                let offer = Offer {
                    writes,
                    reply: chunk,
                    non_data_max: 128,
                    strict: choice & 1 != 0,
                };
                check_verdict(&judge(&reply, &offer), &offer, &reply, message);
            }
        }
        Inbound::Error(error) => {
            assert!(message.len() >= ERROR_LEN);
            assert_eq!(error.xid.0.to_be_bytes(), message[..4]);
            let range = matches!(error.kind, RemoteErrorKind::Version { .. });
            assert!(!range || message.len() >= 28);
        }
        Inbound::ReverseCall(call) => {
            assert!(backchannel);
            check_call(&call, message);
        }
        Inbound::Refuse(refusal) => {
            assert!(backchannel || version == Version::V2);
            assert_eq!(refusal.xid.0.to_be_bytes(), message[..4]);
        }
        Inbound::Discard(discard) => {
            // An xid is reported only if the message was long enough to contain it.
            let xid = message.first_chunk::<4>();
            if let Some(found) = discard.xid {
                assert!(message.len() >= 16);
                assert_eq!(xid, Some(&found.0.to_be_bytes()));
            }
            assert!(message.len() >= 16 || discard.counter == Counter::ShortMsg);
        }
        Inbound::Ambiguous(_) => panic!("ambiguous twice"),
    }
}

fn check_reply(reply: &Reply<'_>, message: &[u8], version: Version) {
    assert_eq!(reply.xid.0.to_be_bytes(), message[..4]);
    assert_eq!(reply.credits.0.to_be_bytes(), message[8..12]);
    assert!(message.len() >= version.min_header_len());
    assert_eq!(&message[reply.offset..], reply.payload);
    let mut bytes = version.fixed_len() + 4 + 24 * reply.lists.reads.clone().count() + 4;
    let mut chunks = 0;
    for chunk in reply.lists.writes.clone() {
        bytes += 8 + 16 * chunk.len();
        chunks += 1;
        assert_eq!(chunk.clone().count(), chunk.len());
    }
    assert_eq!(chunks, reply.lists.writes.len());
    bytes += match &reply.lists.reply {
        Some(chunk) => 8 + 16 * chunk.len(),
        None => 4,
    };
    assert_eq!(bytes, reply.offset);
    if reply.inline {
        assert!(reply.payload.len() >= 20);
        assert_eq!(reply.payload[..4], message[..4]);
        assert_eq!(reply.payload[4..8], [0, 0, 0, 1]);
    }
}

fn check_call(call: &ReverseCall<'_>, message: &[u8]) {
    assert_eq!(&message[call.offset..], call.payload);
    assert_eq!(call.payload[..4], message[..4]);
    assert_eq!(call.payload[4..8], [0; 4]);
}

/// Checks that an accepted reply uses no bytes outside the offered chunks and the received message.
fn check_verdict(verdict: &Verdict, offer: &Offer<'_>, reply: &Reply<'_>, message: &[u8]) {
    let Verdict::Accept(accept) = verdict else {
        return;
    };
    let writes: u64 = offer.writes.iter().map(|chunk| total(chunk)).sum();
    let chunk = offer.reply.map_or(0, total);
    assert!(u64::from(accept.placed) <= writes);
    assert!(u64::from(accept.reply_len) <= chunk);
    assert!(accept.inline_offset + accept.inline_len <= message.len());
    assert_eq!(accept.grant, reply.credits);
    assert!(reply.lists.reads.is_empty());
    if reply.inline {
        assert_eq!(accept.reply_len, 0);
    } else {
        assert_eq!(accept.inline_len, 0);
        assert!(accept.reply_len >= 20 && accept.reply_len % 4 == 0);
    }
}

fn total(chunk: &[Segment]) -> u64 {
    chunk.iter().map(|segment| u64::from(segment.length)).sum()
}

/// Checks that the peer recognizes the client's Reply as the Reply to its Call.
fn answer(call: &ReverseCall<'_>, version: Version, credits: Credits) {
    let header = ReverseReplyHeader {
        version,
        xid: call.xid,
        credits,
    };
    let mut buf = [0; 64];
    let len = header.encode(&mut buf).expect("room for a header");
    buf[len..len + 4].copy_from_slice(&call.xid.0.to_be_bytes());
    buf[len + 7] = 1;
    let message = &buf[..len + 24];
    let Inbound::Reply(reply) = classify(message, version, false) else {
        panic!("a Reply of ours is none");
    };
    assert_eq!((reply.xid, reply.credits), (call.xid, credits));
    assert_eq!(reply.offset, len);
}
