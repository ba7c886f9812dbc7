// SPDX-License-Identifier: GPL-2.0

//! Messages from the server that are Calls, look like Calls, or contain options of version 2.

use crate::common::{
    chunk_words,
    fate,
    rpc,
    segment_words,
    segments,
    Fate,
    Message,
    CALL,
    NOMSG,
    OPTIONAL,
    REPLY,
    VERSIONS,
    XID, //
};
use xprtrdma_proto::{
    classify,
    header::RefusalKind,
    v2::refusals::{
        Flood,
        Refusals,
        MAX_REFUSALS, //
    },
    Counter,
    Credits,
    Inbound,
    Offer,
    Segment,
    Verdict,
    Version,
    Xid, //
};

const REFUSED: Fate = Fate::Refused(RefusalKind::Chunk);

fn taken(message: &Message, version: Version, pending: bool) -> Fate {
    let bytes = message.bytes();
    fate(&bytes, version, true, pending, &Offer::default())
}

fn dropped(counter: Counter) -> Fate {
    Fate::Dropped(counter, Some(Xid(XID)))
}

/// Returns the chunk lists for three cases. The first case has only a Read list, the second only a
/// Write list, the third only a Reply chunk.
fn one_list_each() -> [Vec<u32>; 3] {
    let segment = segments(&[64]);
    let mut reads = vec![1, 0];
    reads.extend(segment_words(&segment[0]));
    reads.extend([0, 0, 0]);
    let mut writes = vec![0];
    writes.extend(chunk_words(&segment));
    writes.extend([0, 0]);
    let mut reply = vec![0, 0];
    reply.extend(chunk_words(&segment));
    [reads, writes, reply]
}

// covers: BC-01, MAL-124
#[test]
fn a_call_is_a_call_whatever_our_own_xids_are() {
    for version in VERSIONS {
        for credits in [0, 2, 0xffff_ffff] {
            let mut message = Message::reverse_call(version);
            message.credits = credits;
            for pending in [false, true] {
                assert_eq!(taken(&message, version, pending), Fate::Call(40));
            }
            match classify(&message.bytes(), version, true) {
                Inbound::ReverseCall(call) => {
                    assert_eq!(call.xid, Xid(XID));
                    assert_eq!(call.credits, Credits(credits));
                    assert_eq!(call.offset, version.min_header_len());
                    assert_eq!(call.payload, rpc(XID, CALL, 40));
                    assert!(call.notes.is_empty());
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

// covers: BC-17, MAL-110
#[test]
fn without_a_backchannel_calls_are_dropped() {
    for version in VERSIONS {
        let mut messages = vec![Message::reverse_call(version)];
        messages.extend(one_list_each().map(|body| Message::reverse_call(version).body(&body)));
        messages.push(Message::reverse_call(version).payload(rpc(XID + 1, CALL, 40)));
        for message in messages {
            // The server chose the xid, so the message does not count as a bad reply to a waiting
            // call.
            for pending in [false, true] {
                let fate = fate(&message.bytes(), version, false, pending, &Offer::default());
                assert_eq!(fate, Fate::Dropped(Counter::BcDisabled, None));
            }
        }
    }
}

// covers: BC-13, BC-15, MAL-112, MAL-113, X-20
#[test]
fn a_call_with_chunks_is_refused() {
    for version in VERSIONS {
        for body in one_list_each() {
            let message = Message::reverse_call(version).body(&body);
            for pending in [false, true] {
                assert_eq!(taken(&message, version, pending), REFUSED);
            }
            match classify(&message.bytes(), version, true) {
                Inbound::Refuse(refusal) => {
                    assert_eq!(refusal.xid, Xid(XID));
                    assert_eq!(refusal.version, version);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

// covers: MAL-114, MAL-115, X-21
#[test]
fn a_call_in_a_read_chunk_is_refused_whatever_its_xid() {
    let [reads, ..] = one_list_each();
    let mut message = Message::reverse_call(Version::V1)
        .body(&reads)
        .payload(Vec::new());
    message.procedure = NOMSG;
    // A Reply has no Read list. So this message is a Call, even if it has the xid of a client's
    // call.
    for pending in [false, true] {
        assert_eq!(taken(&message, Version::V1, pending), REFUSED);
    }
    // In version 2 the header contains the direction, so no message is ambiguous.
    let mut message = Message::reverse_call(Version::V2)
        .body(&reads)
        .payload(Vec::new());
    message.procedure = NOMSG;
    for pending in [false, true] {
        assert_eq!(taken(&message, Version::V2, pending), REFUSED);
    }
    // The header says that the message is a Reply, so a Read list makes it a bad Reply.
    let message = Message::reply(Version::V1).body(&reads);
    assert_eq!(
        taken(&message, Version::V1, true),
        Fate::Judged(Verdict::Discard(Counter::BadChunk))
    );
    assert_eq!(
        taken(&message, Version::V1, false),
        dropped(Counter::BadXid)
    );
}

// covers: V1-093, MAL-118
#[test]
fn undecodable_lists_are_answered_unless_they_could_be_a_bad_reply() {
    for body in [[2, 0, 0], [0, 2, 0], [0, 0, 2], [0, 1, u32::MAX]] {
        let message = Message::reverse_call(Version::V1).body(&body);
        assert_eq!(taken(&message, Version::V1, false), REFUSED);
        assert_eq!(
            taken(&message, Version::V1, true),
            dropped(Counter::BadChunk)
        );
        let bytes = message.bytes();
        let alone = fate(&bytes, Version::V1, false, false, &Offer::default());
        assert_eq!(alone, Fate::Dropped(Counter::BcDisabled, None));
        let message = Message::reverse_call(Version::V2).body(&body);
        for pending in [false, true] {
            assert_eq!(taken(&message, Version::V2, pending), REFUSED);
        }
    }
}

// covers: BC-11, MAL-116
#[test]
fn a_call_with_two_xids_is_refused() {
    for version in VERSIONS {
        let message = Message::reverse_call(version).payload(rpc(XID + 1, CALL, 40));
        for pending in [false, true] {
            assert_eq!(taken(&message, version, pending), REFUSED);
        }
    }
}

// covers: MAL-119, MAL-120, MAL-121, MAL-133, MAL-134
#[test]
fn the_callback_service_judges_the_rest_of_a_call() {
    for version in VERSIONS {
        for len in 8..60 {
            let message = Message::reverse_call(version).payload(rpc(XID, CALL, len));
            assert_eq!(taken(&message, version, false), Fate::Call(len));
        }
        let mut payload = rpc(XID, CALL, 40);
        payload[8..].fill(0xff);
        let message = Message::reverse_call(version).payload(payload);
        assert_eq!(taken(&message, version, false), Fate::Call(40));
    }
}

// covers: V2-14, MAL-090, MAL-170
#[test]
fn a_call_without_a_message_is_answered_where_it_is_one() {
    for len in 0..8 {
        let payload = rpc(XID, CALL, 8)[..len].to_vec();
        let message = Message::reverse_call(Version::V1).payload(payload.clone());
        let expected = dropped(Counter::BadPayloadLen);
        assert_eq!(taken(&message, Version::V1, false), expected);
        let message = Message::reverse_call(Version::V2).payload(payload.clone());
        assert_eq!(taken(&message, Version::V2, false), REFUSED);
        let message = Message::reply(Version::V2).payload(payload);
        assert_eq!(taken(&message, Version::V2, true), expected);
    }
}

// covers: MAL-166, MAL-167, MAL-168
#[test]
fn the_direction_word_is_true() {
    for direction in [2, 3, 0x0100_0000, 0xffff_ffff] {
        for procedure in [0, NOMSG] {
            let mut message = Message::reply(Version::V2);
            message.procedure = procedure;
            message.direction = Some(direction);
            assert_eq!(
                taken(&message, Version::V2, true),
                dropped(Counter::BadDirection)
            );
        }
    }
    // The xid of a Call is chosen by the server and says nothing about the client's calls. The xid
    // of a Reply is that of a client's call.
    let lying_call = Message::reverse_call(Version::V2).payload(rpc(XID, REPLY, 24));
    let expected = Fate::Dropped(Counter::BadDirection, None);
    assert_eq!(taken(&lying_call, Version::V2, true), expected);
    let lying_reply = Message::reply(Version::V2).payload(rpc(XID, CALL, 40));
    assert_eq!(
        taken(&lying_reply, Version::V2, true),
        dropped(Counter::BadDirection)
    );
    for msg_type in [2, 0xffff_ffff] {
        let message = Message::reverse_call(Version::V2).payload(rpc(XID, msg_type, 40));
        let expected = Fate::Dropped(Counter::BadPayload, None);
        assert_eq!(taken(&message, Version::V2, true), expected);
    }
}

// covers: MAL-079, MAL-171
#[test]
fn a_message_without_any_list_is_nobodys() {
    let mut message = Message::long_reply(Version::V1);
    assert_eq!(
        taken(&message, Version::V1, true),
        dropped(Counter::BadChunk)
    );
    assert_eq!(taken(&message, Version::V1, false), REFUSED);
    message = Message::long_reply(Version::V2);
    assert_eq!(
        taken(&message, Version::V2, true),
        Fate::Judged(Verdict::Discard(Counter::BadChunk))
    );
    message.direction = Some(CALL);
    for pending in [false, true] {
        assert_eq!(taken(&message, Version::V2, pending), REFUSED);
    }
}

/// Builds an `RDMA2_OPTIONAL` with these words after the fixed words.
fn option(optdir: u32, len: u32, info: &[u8]) -> Message {
    let mut message = Message::error(Version::V2, &[optdir, 0xff01, len]);
    message.procedure = OPTIONAL;
    message.payload(info.to_vec())
}

// covers: V2-16, V2-18, V2-21, V2-23, MAL-178, MAL-179, MAL-189, MAL-190, X-18
#[test]
fn every_option_of_a_requester_is_refused_and_others_are_dropped() {
    for (optdir, expected) in [
        (CALL, Fate::Refused(RefusalKind::InvalOption)),
        (REPLY, dropped(Counter::OptReply)),
    ] {
        let mut with_reply = vec![0xff; 8];
        with_reply.extend(rpc(XID, REPLY, 24));
        let infos: [(u32, &[u8]); 4] = [(0, &[]), (5, &[0xff; 8]), (8, &[0; 8]), (8, &with_reply)];
        for (len, info) in infos {
            let message = option(optdir, len, info);
            for pending in [false, true] {
                for backchannel in [false, true] {
                    let bytes = message.bytes();
                    let fate = fate(&bytes, Version::V2, backchannel, pending, &Offer::default());
                    assert_eq!(fate, expected);
                }
            }
        }
    }
}

// covers: MAL-180, MAL-181
#[test]
fn an_option_longer_than_the_message_is_refused() {
    for (len, room) in [
        (1, 0),
        (1, 3),
        (5, 7),
        (9, 8),
        (0xffff_fffd, 8),
        (u32::MAX, 8),
    ] {
        let info = vec![0; room];
        assert_eq!(taken(&option(CALL, len, &info), Version::V2, true), REFUSED);
        let expected = dropped(Counter::BadChunk);
        assert_eq!(
            taken(&option(REPLY, len, &info), Version::V2, true),
            expected
        );
    }
}

// covers: MAL-182
#[test]
fn an_option_has_a_direction() {
    for optdir in [2, 0xffff_ffff] {
        for len in [0, 4] {
            let expected = dropped(Counter::BadDirection);
            assert_eq!(
                taken(&option(optdir, len, &[]), Version::V2, true),
                expected
            );
        }
    }
}

#[test]
fn an_option_has_at_least_its_minimal_header() {
    let bytes = option(CALL, 0, &[]).bytes();
    assert_eq!(bytes.len(), 28);
    for len in 16..28 {
        let fate = fate(&bytes[..len], Version::V2, true, true, &Offer::default());
        assert_eq!(fate, dropped(Counter::ShortMsg));
    }
}

// covers: V1-081, V1-082, MAL-185
#[test]
fn an_error_is_never_answered() {
    for version in VERSIONS {
        for code in 0..6 {
            for pending in [false, true] {
                for extra in 0..3 {
                    let mut body = vec![code];
                    body.resize(1 + extra, 0);
                    let message = Message::error(version, &body);
                    assert!(!matches!(
                        taken(&message, version, pending),
                        Fate::Refused(_)
                    ));
                }
            }
        }
    }
}

// covers: MAL-184
#[test]
fn refusals_under_way_are_limited() {
    let mut refusals = Refusals::default();
    for round in 0..3 {
        for _ in 0..MAX_REFUSALS {
            assert!(refusals.begin().is_ok());
        }
        assert_eq!(refusals.begin(), Err(Flood));
        assert!(refusals.begin().is_err());
        refusals.end();
        assert!(refusals.begin().is_ok());
        assert!(refusals.begin().is_err());
        for _ in 0..MAX_REFUSALS + round {
            refusals.end();
        }
    }
    assert_eq!(MAX_REFUSALS, 8);
}

#[test]
fn a_long_reply_with_a_write_list_only_is_a_reply() {
    let offered = segments(&[64]);
    let writes: [&[Segment]; 1] = [&offered];
    let message = Message::long_reply(Version::V1).chunks(&writes, None);
    assert_eq!(
        taken(&message, Version::V1, false),
        dropped(Counter::BadXid)
    );
}
