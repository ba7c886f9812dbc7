// SPDX-License-Identifier: GPL-2.0

//! Messages with malformed fixed header words, and malformed error messages: `classify` rejects
//! both before it looks up the call of the message.

use crate::common::{
    fate,
    rpc,
    words,
    Fate,
    Message,
    CALL,
    ERROR,
    MSG,
    NOMSG,
    REPLY,
    VERSIONS,
    XID, //
};
use xprtrdma_proto::{
    classify,
    inbound::{
        Discard,
        RemoteErrorKind, //
    },
    Counter,
    Error,
    Inbound,
    Notes,
    Offer,
    Verdict,
    Version,
    Xid, //
};

fn discarded(bytes: &[u8], version: Version) -> Option<Discard> {
    match classify(bytes, version, true) {
        Inbound::Discard(discard) => Some(discard),
        _ => None,
    }
}

fn with_xid(counter: Counter) -> Option<Discard> {
    Some(Discard {
        counter,
        xid: Some(Xid(XID)),
    })
}

fn pending(bytes: &[u8], version: Version) -> Fate {
    fate(bytes, version, true, true, &Offer::default())
}

// covers: V1-087, MAL-003, MAL-004, MAL-005
#[test]
fn shorter_than_the_fixed_words_is_not_parsed() {
    for version in VERSIONS {
        let bytes = Message::reply(version).bytes();
        for len in 0..16 {
            let expected = Discard {
                counter: Counter::ShortMsg,
                xid: None,
            };
            assert_eq!(discarded(&bytes[..len], version), Some(expected));
        }
    }
}

// covers: MAL-006, MAL-187
#[test]
fn a_call_or_reply_has_at_least_a_minimal_header() {
    let short = Some(Discard {
        counter: Counter::ShortMsg,
        xid: None,
    });
    for (version, minimum) in [(Version::V1, 28), (Version::V2, 32)] {
        for procedure in [MSG, NOMSG] {
            let mut message = Message::reply(version);
            message.procedure = procedure;
            let bytes = message.bytes();
            for len in 16..minimum {
                // The discarded message is too short, so its xid must not be reported.
                assert_eq!(discarded(&bytes[..len], version), short);
            }
            assert!(discarded(&bytes[..minimum], version) != short);
        }
    }
}

// covers: V1-091, MAL-007, MAL-008, MAL-009, MAL-175, X-01, X-12
#[test]
fn an_error_is_as_long_as_its_kind() {
    for version in VERSIONS {
        let chunk = Message::error(version, &[2]).bytes();
        assert_eq!(chunk.len(), 20);
        for len in 16..20 {
            let expected = with_xid(Counter::ErrUndecodable);
            assert_eq!(discarded(&chunk[..len], version), expected);
        }
        assert_eq!(pending(&chunk, version), Fate::Failed(Error::RemoteChunk));
        let vers = Message::error(version, &[1, 1, 1]).bytes();
        assert_eq!(vers.len(), 28);
        for len in 16..28 {
            let expected = with_xid(Counter::ErrUndecodable);
            assert_eq!(discarded(&vers[..len], version), expected);
        }
        assert_eq!(pending(&vers, version), Fate::Failed(Error::RemoteVersion));
    }
}

// covers: BC-10, MAL-020, MAL-021, MAL-022, MAL-046, MAL-117, MAL-163, MAL-188
#[test]
fn another_version_is_dropped() {
    for version in VERSIONS {
        let others = [0, 1, 2, 3, 0xffff_ffff, 0x0100_0000, 0x0200_0000];
        for other in others {
            if other == version.number() {
                continue;
            }
            // The message counts neither as a Reply nor as a Call, because its layout and therefore
            // its direction are unknown.
            for message in [Message::reply(version), Message::reverse_call(version)] {
                for procedure in [0, 1, 2, 3, 5, 6] {
                    let mut message = message.clone();
                    message.version = other;
                    message.procedure = procedure;
                    let bytes = message.bytes();
                    assert_eq!(discarded(&bytes, version), with_xid(Counter::BadVers));
                }
            }
        }
        // All words of this message have the wrong byte order.
        let mut swapped = Message::reply(version).bytes();
        for word in swapped.chunks_exact_mut(4) {
            word.reverse();
        }
        let xid = Some(Xid(XID.swap_bytes()));
        let expected = Discard {
            counter: Counter::BadVers,
            xid,
        };
        assert_eq!(discarded(&swapped, version), Some(expected));
    }
}

// covers: V1-079, V2-32, MAL-023, MAL-040, MAL-041, X-02, X-16
#[test]
fn err_vers_counts_under_any_version_and_with_any_range() {
    for version in VERSIONS {
        let ranges = [(1, 1), (2, 2), (9, 3), (0, 0xffff_ffff), (3, 9)];
        for (low, high) in ranges {
            for number in [0, 1, 2, 7, 0xffff_ffff] {
                let mut message = Message::error(version, &[1, low, high]);
                message.version = number;
                let bytes = message.bytes();
                match classify(&bytes, version, false) {
                    Inbound::Error(error) => {
                        assert_eq!(error.xid, Xid(XID));
                        assert_eq!(error.kind, RemoteErrorKind::Version { low, high });
                        assert!(error.notes.contains(Counter::ErrVers));
                        assert!(!error.notes.contains(Counter::Trailing));
                    }
                    other => panic!("{other:?}"),
                }
                assert_eq!(pending(&bytes, version), Fate::Failed(Error::RemoteVersion));
            }
        }
    }
}

// covers: V1-088
#[test]
fn other_errors_count_under_our_version_only() {
    for version in VERSIONS {
        for number in [0, 1, 2, 3] {
            let mut message = Message::error(version, &[2]);
            message.version = number;
            let bytes = message.bytes();
            if number == version.number() {
                assert_eq!(pending(&bytes, version), Fate::Failed(Error::RemoteChunk));
            } else {
                assert_eq!(discarded(&bytes, version), with_xid(Counter::BadVers));
            }
        }
    }
}

// covers: V1-083, V2-27, MAL-034, MAL-036, MAL-125, MAL-172, MAL-173
#[test]
fn unknown_procedures_are_dropped() {
    for version in VERSIONS {
        let unknown = [2, 6, 7, 0x0100_0000, 0xffff_ffff];
        // Version 2 has the procedure for options, and version 1 does not. Version 1 has the
        // procedure RDMA_DONE, and version 2 does not.
        let also = Some(if version == Version::V1 { 5 } else { 3 });
        for procedure in unknown.into_iter().chain(also) {
            for message in [Message::reply(version), Message::reverse_call(version)] {
                let mut message = message;
                message.procedure = procedure;
                let bytes = message.bytes();
                assert_eq!(discarded(&bytes, version), with_xid(Counter::BadProc));
                assert_eq!(discarded(&bytes[..16], version), with_xid(Counter::BadProc));
            }
        }
    }
}

// covers: V1-084, MAL-035: An RDMA_DONE message is dropped, and its xid is not reported, because
// the message answers no call. This includes a message that consists of the first 16 bytes only.
#[test]
fn done_says_nothing_about_a_call() {
    let mut message = Message::reply(Version::V1);
    message.procedure = 3;
    let bytes = message.bytes();
    let expected = Some(Discard {
        counter: Counter::BadProc,
        xid: None,
    });
    assert_eq!(discarded(&bytes, Version::V1), expected);
    assert_eq!(discarded(&bytes[..16], Version::V1), expected);
}

#[test]
fn a_message_for_no_waiting_call_is_dropped() {
    for version in VERSIONS {
        let messages = [
            Message::reply(version),
            Message::error(version, &[2]),
            Message::error(version, &[1, 1, 1]),
        ];
        for message in messages {
            let fate = fate(&message.bytes(), version, true, false, &Offer::default());
            assert_eq!(fate, Fate::Dropped(Counter::BadXid, Some(Xid(XID))));
        }
    }
}

// covers: MAL-038, MAL-039, MAL-174
#[test]
fn undecodable_errors_are_dropped() {
    for version in VERSIONS {
        let highest = match version {
            Version::V1 => 2,
            Version::V2 => 3,
        };
        for code in [0, 3, 4, 5, 0x0200_0000, 0xffff_ffff] {
            if code != 0 && code <= highest {
                continue;
            }
            // Error messages with and without the eight additional words that RFC 5666 defines for
            // unknown error codes.
            for extra in [0, 8] {
                let mut body = vec![code];
                body.resize(1 + extra, 0);
                let bytes = Message::error(version, &body).bytes();
                assert_eq!(
                    discarded(&bytes, version),
                    with_xid(Counter::ErrUndecodable)
                );
            }
        }
    }
}

// covers: MAL-042
#[test]
fn bytes_behind_an_error_are_noted() {
    for version in VERSIONS {
        for body in [&[2][..], &[1, 1, 2]] {
            let plain = Message::error(version, body);
            let long = plain.clone().payload(vec![1, 2, 3]);
            for (message, trailing) in [(plain, false), (long, true)] {
                match classify(&message.bytes(), version, false) {
                    Inbound::Error(error) => {
                        assert_eq!(error.notes.contains(Counter::Trailing), trailing);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

// covers: V2-26
#[test]
fn version_2_errors_are_told_apart() {
    let cases = [
        (2, RemoteErrorKind::Chunk, Counter::ErrBadHeader),
        (3, RemoteErrorKind::InvalOption, Counter::ErrInvalOption),
    ];
    for (code, kind, counter) in cases {
        let bytes = Message::error(Version::V2, &[code]).bytes();
        match classify(&bytes, Version::V2, false) {
            Inbound::Error(error) => {
                assert_eq!(error.kind, kind);
                assert_eq!(error.notes.iter().collect::<Vec<_>>(), [counter]);
                assert_eq!(error.kind.error(), Error::RemoteChunk);
            }
            other => panic!("{other:?}"),
        }
    }
    let bytes = Message::error(Version::V1, &[2]).bytes();
    match classify(&bytes, Version::V1, false) {
        Inbound::Error(error) => {
            assert_eq!(error.notes.iter().collect::<Vec<_>>(), [Counter::ErrChunk]);
        }
        other => panic!("{other:?}"),
    }
}

// covers: MAL-010
#[test]
fn an_odd_length_is_noted_and_handed_on() {
    for version in VERSIONS {
        for extra in 0..5 {
            let reply = Message::reply(version).payload(rpc(XID, REPLY, 24 + extra));
            let bytes = reply.bytes();
            let reply = crate::common::reply_of(&bytes, version);
            assert_eq!(reply.payload.len(), 24 + extra);
            assert_eq!(reply.notes.contains(Counter::OddLen), extra % 4 != 0);
            let call = Message::reverse_call(version).payload(rpc(XID, CALL, 40 + extra));
            match classify(&call.bytes(), version, true) {
                Inbound::ReverseCall(call) => {
                    assert_eq!(call.payload.len(), 40 + extra);
                    assert_eq!(call.notes.contains(Counter::OddLen), extra % 4 != 0);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

// covers: V1-077, V1-094, MAL-091, MAL-092, MAL-093, MAL-096, X-22
#[test]
fn an_inline_reply_begins_like_one() {
    for version in VERSIONS {
        let reply = |payload: Vec<u8>| Message::reply(version).payload(payload).bytes();
        for len in 0..8 {
            let bytes = reply(rpc(XID, REPLY, 24)[..len].to_vec());
            let expected = with_xid(Counter::BadPayloadLen);
            assert_eq!(discarded(&bytes, version), expected);
        }
        for len in 8..20 {
            let bytes = reply(rpc(XID, REPLY, len));
            let expected = with_xid(Counter::BadPayloadLen);
            assert_eq!(discarded(&bytes, version), expected);
        }
        let bytes = reply(rpc(XID, REPLY, 20));
        assert!(matches!(
            pending(&bytes, version),
            Fate::Judged(Verdict::Accept(_))
        ));
        for xid in [0, XID - 1, XID.swap_bytes()] {
            let bytes = reply(rpc(xid, REPLY, 24));
            assert_eq!(discarded(&bytes, version), with_xid(Counter::XidMismatch));
        }
        for msg_type in [2, 3, 0x0100_0000, 0xffff_ffff] {
            let bytes = reply(rpc(XID, msg_type, 24));
            assert_eq!(discarded(&bytes, version), with_xid(Counter::BadPayload));
        }
        // The transport checks only the first two words of the RPC message. The RPC layer checks
        // all later words.
        let mut payload = rpc(XID, REPLY, 24);
        payload[8..].fill(0xff);
        assert!(matches!(
            pending(&reply(payload), version),
            Fate::Judged(Verdict::Accept(_))
        ));
    }
}

#[test]
fn only_a_reply_carries_a_grant() {
    // Only the credit field of a Reply can be accepted as a grant. The Rust types for error
    // messages and for discarded messages have no credit field. The credit field of a reverse Call
    // is not passed to `judge`.
    for version in VERSIONS {
        for credits in [0, 1, 77, 0xffff_ffff] {
            let mut message = Message::reply(version);
            message.credits = credits;
            let bytes = message.bytes();
            match pending(&bytes, version) {
                Fate::Judged(Verdict::Accept(accept)) => assert_eq!(accept.grant.0, credits),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn errors_need_nothing_but_the_fixed_words() {
    let bytes = words(&[XID, 2, 0, ERROR, 1, 1, 1]);
    for version in VERSIONS {
        assert!(matches!(
            classify(&bytes, version, false),
            Inbound::Error(error) if error.notes != Notes::NONE
        ));
    }
}
