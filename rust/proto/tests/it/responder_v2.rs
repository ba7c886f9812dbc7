// SPDX-License-Identifier: GPL-2.0

//! Tests of a responder that accepts version two: how it handles messages of version two and of
//! other versions.

use crate::{
    common::{
        named,
        rpc,
        words,
        Message,
        CALL,
        ERROR,
        MSG,
        NOMSG,
        NO_LISTS,
        OPTIONAL,
        REPLY,
        XID, //
    },
    responder_rig::{
        granted,
        is_in_reply_chunk,
        lists,
        message,
        write_call,
        TERMS, //
    }, //
};
use xprtrdma_proto::{
    classify,
    inbound::RemoteErrorKind,
    responder::{
        admit::Terms,
        pour::Span,
        refusal::{
            Fault,
            Refusal, //
        },
        reverse::Reverse,
        sort::{
            sort,
            Arrival,
            Dropped, //
        },
        spoken::Spoken,
    },
    Credits,
    Handle,
    Inbound,
    Segment,
    Version,
    Xid, //
};

/// Builds a Call of version two with these lists.
fn call(reads: &[(u32, Segment)], writes: &[&[Segment]], reply: Option<&[Segment]>) -> Message {
    Message {
        version: 2,
        direction: Some(CALL),
        ..message(reads, writes, reply)
    }
}

fn part(length: u32) -> Segment {
    Segment {
        handle: Handle(7),
        length,
        offset: 0x1000,
    }
}

/// Returns the fault of a message and the error message that the responder sends. Returns `None` if
/// the message has no fault.
fn refused(bytes: &[u8]) -> Option<(Fault, Vec<u8>)> {
    let refusal = match sort(bytes, Spoken::Both) {
        Arrival::Refuse(refusal) => refusal,
        Arrival::Call(call) => call.admit(&TERMS).err()?,
        _ => return None,
    };
    let mut answer = vec![0; 40];
    let len = refusal.encode(granted(9), &mut answer).unwrap();
    answer.truncate(len);
    Some((refusal.fault, answer))
}

/// Returns the error message with this error code.
fn error(code: u32) -> Vec<u8> {
    words(&[XID, 2, 9, ERROR, code])
}

fn bad_header(fault: Fault) -> Option<(Fault, Vec<u8>)> {
    Some((fault, error(2)))
}

fn dropped(bytes: &[u8]) -> Option<Dropped> {
    match sort(bytes, Spoken::Both) {
        Arrival::Drop(dropped) => Some(dropped),
        _ => None,
    }
}

/// Builds a client's Reply to a Call of the server, with this RPC message.
fn reply(payload: Vec<u8>) -> Message {
    Message {
        direction: Some(REPLY),
        ..call(&[], &[], None).payload(payload)
    }
}

/// Builds a message with an option of this direction and length, followed by the bytes `rest`.
fn option(direction: u32, len: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = words(&[XID, 2, 32, OPTIONAL, direction, 0xff01, len]);
    bytes.extend(rest);
    bytes
}

// covers: RSP-181
#[test]
fn the_probe_is_answered_in_version_two_and_its_threshold_holds() {
    let probe = named("E20").bytes;
    let Arrival::Call(found) = sort(&probe, Spoken::Both) else {
        panic!("the probe is no Call");
    };
    assert_eq!(found.version(), Version::V2);
    // The threshold for replies is 1024 bytes in version one, but 4096 bytes in version two.
    let terms = Terms {
        reply_threshold: 1024,
        reply_threshold_v2: 4096,
        ..TERMS
    };
    let ready = found.admit(&terms).unwrap().fetched(&[]).unwrap();
    let mut answer = vec![0; 100];
    let plan = ready.reply(&[], 24, &terms).unwrap();
    let len = plan.encode(granted(16), &mut answer).unwrap();
    assert_eq!(answer[..len], named("E21").bytes[..32]);
    let longest = ready.reply(&[], 4096 - 32, &terms).unwrap();
    assert!(!is_in_reply_chunk(&longest));
    let refusal = ready.reply(&[], 4096 - 28, &terms).unwrap_err();
    assert_eq!((refusal.version, refusal.fault), (2, Fault::ReplyRoom));
    // The client of this project recognizes the response as a Reply.
    answer.truncate(len);
    answer.extend(rpc(721_420_289, REPLY, 24));
    assert!(matches!(
        classify(&answer, Version::V2, false),
        Inbound::Reply(_)
    ));
}

// covers: RSP-182
#[test]
fn a_first_message_may_be_as_long_as_a_receive() {
    for len in [1024 - 32, 1028, 4096 - 32] {
        let bytes = call(&[], &[], None).payload(write_call(len)).bytes();
        assert!(matches!(sort(&bytes, Spoken::Both), Arrival::Call(_)));
        assert_eq!(refused(&bytes), None);
    }
}

// covers: RSP-183
#[test]
fn each_call_is_answered_in_its_own_version() {
    let chunk = [part(9000)];
    for (version, front) in [(1, 28), (2, 32), (1, 28), (2, 32)] {
        let direction = (version == 2).then_some(CALL);
        let bytes = Message {
            version,
            direction,
            ..message(&[], &[&chunk], Some(&chunk))
        }
        .bytes();
        let Arrival::Call(found) = sort(&bytes, Spoken::Both) else {
            panic!("no Call");
        };
        // The processing of the message stops until its RDMA Reads have completed, and then
        // continues.
        let parked = found.admit(&TERMS).unwrap().park();
        let parked = parked.resume(&bytes).unwrap().fetched(&[]).unwrap().park();
        let ready = parked.resume(&bytes).unwrap();
        assert_eq!(ready.version().number(), version);
        let marks = [Span {
            from: 60,
            length: 5001,
        }];
        let mut answer = vec![0; 200];
        let plan = ready.reply(&marks, 60 + 5004, &TERMS).unwrap();
        let len = plan.encode(granted(5), &mut answer).unwrap();
        let mut expected = words(&[XID, version, 5, MSG]);
        if version == 2 {
            expected.extend(words(&[REPLY]));
        }
        let written = [part(5001)];
        let body = lists(&[], &[&written], Some(&[part(0)]));
        expected.extend(words(&body));
        assert_eq!(answer[..len], expected);
        assert_eq!(len, front + 8 + 16 - 4 + 8 + 16);
        // If the reply does not fit, `Call::refuse` makes an error message with the version of the
        // Call. The same function makes the error message for a Call that broke several
        // connections.
        let refusal = ready.reply(&[], 1 << 20, &TERMS).unwrap_err();
        assert_eq!(refusal.version, version);
    }
}

#[test]
fn another_version_is_refused_with_what_is_spoken() {
    for (spoken, version, high) in [
        (Spoken::One, 2, 1),
        (Spoken::One, 3, 1),
        (Spoken::Both, 0, 2),
        (Spoken::Both, 3, 2),
        (Spoken::Both, u32::MAX, 2),
    ] {
        let bytes = Message {
            version,
            ..call(&[], &[], None)
        }
        .bytes();
        let Arrival::Refuse(refusal) = sort(&bytes, spoken) else {
            panic!("version {version} is not refused");
        };
        let mut answer = [0; 28];
        assert_eq!(refusal.encode(granted(9), &mut answer), Ok(28));
        assert_eq!(answer[..], words(&[XID, version, 9, ERROR, 1, 1, high]));
        // The client of this project understands the error message in `answer`.
        let Inbound::Error(told) = classify(&answer, Version::V2, false) else {
            panic!("no error");
        };
        assert_eq!(told.kind, RemoteErrorKind::Version { low: 1, high });
    }
    let one = message(&[], &[], None).bytes();
    assert!(matches!(sort(&one, Spoken::Both), Arrival::Call(_)));
}

#[test]
fn nothing_answers_a_message_shorter_than_a_header_of_version_two() {
    for procedure in [MSG, NOMSG] {
        let whole = Message {
            procedure,
            ..call(&[], &[], None)
        }
        .bytes();
        for len in 0..32 {
            assert_eq!(dropped(&whole[..len]), Some(Dropped::Short));
        }
        assert!(dropped(&whole[..32]).is_none());
    }
}

// covers: RSP-184
#[test]
fn a_direction_is_call_or_reply() {
    for direction in [2, 3, 0x0100_0000, u32::MAX] {
        for procedure in [MSG, NOMSG] {
            let bytes = Message {
                procedure,
                direction: Some(direction),
                ..call(&[(0, part(100))], &[], None)
            }
            .bytes();
            assert_eq!(refused(&bytes), bad_header(Fault::Direction));
        }
        assert_eq!(
            refused(&option(direction, 0, &[])),
            bad_header(Fault::Direction)
        );
    }
}

// covers: RSP-185
#[test]
fn the_rpc_message_says_the_same_direction() {
    let bytes = call(&[], &[], None).payload(rpc(XID, REPLY, 40)).bytes();
    assert_eq!(refused(&bytes), bad_header(Fault::Direction));
    let bytes = reply(rpc(XID, CALL, 40)).bytes();
    assert_eq!(dropped(&bytes), Some(Dropped::Direction));
    for other in [2, u32::MAX] {
        let bytes = call(&[], &[], None).payload(rpc(XID, other, 40)).bytes();
        assert_eq!(refused(&bytes), bad_header(Fault::RpcType));
        let bytes = reply(rpc(XID, other, 40)).bytes();
        assert_eq!(dropped(&bytes), Some(Dropped::Direction));
    }
}

// covers: RSP-186
#[test]
fn a_message_has_its_rpc_message() {
    for len in 0..8 {
        let payload = write_call(100)[..len].to_vec();
        let bytes = call(&[], &[], None).payload(payload.clone()).bytes();
        assert_eq!(refused(&bytes), bad_header(Fault::NoMessage));
        assert_eq!(dropped(&reply(payload).bytes()), Some(Dropped::ShortReply));
    }
    let mut long = call(&[], &[], None).payload(Vec::new());
    long.procedure = NOMSG;
    assert_eq!(refused(&long.bytes()), bad_header(Fault::NoMessage));
    // Words after an error message are ignored, because an error message never gets a response.
    let mut bytes = error(2);
    bytes.extend(write_call(100));
    assert!(matches!(
        sort(&bytes, Spoken::Both),
        Arrival::ReverseError(Xid(XID))
    ));
}

// covers: RSP-187
#[test]
fn procedures_that_version_two_does_not_have_are_refused() {
    for procedure in [2, 3, 6, 0x0100_0000, u32::MAX] {
        let bytes = Message {
            procedure,
            ..call(&[], &[], None)
        }
        .bytes();
        for len in 28..40 {
            assert_eq!(refused(&bytes[..len]), bad_header(Fault::Procedure));
        }
    }
    // Only version two has options.
    let mut bytes = option(CALL, 0, &[]);
    bytes[7] = 1;
    let found = sort(&bytes, Spoken::Both);
    assert!(matches!(
        found,
        Arrival::Refuse(Refusal {
            fault: Fault::Procedure,
            version: 1,
            ..
        })
    ));
}

// covers: RSP-188
#[test]
fn every_option_of_a_client_is_refused_unread() {
    let unknown = Some((Fault::Option, error(3)));
    for (len, rest) in [
        (0, vec![]),
        (5, vec![1; 8]),
        (4, vec![0; 4]),
        // In these cases an RPC message follows the option, or is the content of the option.
        (0, write_call(100)),
        (5, [vec![1; 8], rpc(XID, REPLY, 40)].concat()),
        (100, write_call(100)),
    ] {
        assert_eq!(refused(&option(CALL, len, &rest)), unknown);
    }
    for (len, rest) in [
        (1, 0),
        (5, 7),
        (8, 4),
        (0xffff_fffd, 100),
        (u32::MAX, 100),
        (1 << 31, 100),
    ] {
        let bytes = option(CALL, len, &vec![0; rest]);
        assert_eq!(refused(&bytes), bad_header(Fault::CutOption));
    }
    // The byte vectors contain the option and the response to it.
    let bytes = named("E25").bytes;
    let Arrival::Refuse(refusal) = sort(&bytes, Spoken::Both) else {
        panic!("an option is served");
    };
    let mut answer = vec![0; 28];
    let len = refusal.encode(granted(16), &mut answer).unwrap();
    assert_eq!(answer[..len], named("E24").bytes);
}

// covers: RSP-189
#[test]
fn an_option_that_answers_us_is_dropped() {
    for (len, rest) in [(0, 0), (5, 8), (5, 7), (u32::MAX, 100)] {
        let bytes = option(REPLY, len, &vec![0; rest]);
        assert_eq!(dropped(&bytes), Some(Dropped::OptionReply));
    }
}

#[test]
fn lists_are_checked_as_in_version_one() {
    let chunk = [part(64), part(64)];
    let whole = call(&[(80, part(64))], &[&chunk], Some(&chunk));
    let bytes = whole.bytes();
    assert_eq!(refused(&bytes), None);
    let header = 20 + 4 * whole.body.len();
    for len in 32..header {
        assert_eq!(refused(&bytes[..len]), bad_header(Fault::Lists));
    }
    for (reads, fault) in [
        (vec![(82, part(64))], Fault::Position),
        (vec![(8, part(64))], Fault::InsideHeader),
        (vec![(0x1000, part(64))], Fault::Outside),
        (vec![(80, part(64)), (84, part(4))], Fault::Overlap),
    ] {
        assert_eq!(refused(&call(&reads, &[], None).bytes()), bad_header(fault));
    }
    let mut other = call(&[], &[], None);
    other.payload[3] ^= 1;
    assert_eq!(refused(&other.bytes()), bad_header(Fault::RpcXid));
}

#[test]
fn the_longer_header_counts_in_the_reply() {
    let chunk = [part(64)];
    for (version, header) in [(1, 28), (2, 32)] {
        let direction = (version == 2).then_some(CALL);
        let bytes = Message {
            version,
            direction,
            ..message(&[], &[&chunk], None)
        }
        .bytes();
        for (most, fits) in [(header + 24 + 20, true), (header + 24 + 19, false)] {
            let terms = Terms {
                reply_threshold: most,
                reply_threshold_v2: most,
                ..TERMS
            };
            let Arrival::Call(found) = sort(&bytes, Spoken::Both) else {
                panic!("no Call");
            };
            assert_eq!(found.admit(&terms).is_ok(), fits);
        }
    }
}

#[test]
fn calls_of_ours_have_the_version_of_the_first_call() {
    for (version, other, header) in [
        (Version::V1, Version::V2, 28),
        (Version::V2, Version::V1, 32),
    ] {
        let terms = Terms {
            reply_threshold: 1024,
            ..TERMS
        };
        let mut reverse = Reverse::new(4, &terms);
        reverse.heard(version);
        reverse.heard(other);
        reverse.allow();
        let longest = terms.longest_message(version) - header;
        assert_eq!(reverse.longest(), longest);
        assert!(reverse.begin(Xid(XID), longest + 1).is_err());
        let call = reverse.begin(Xid(XID), longest).unwrap();
        assert_eq!(call.version, version);
        let mut bytes = vec![0; 40];
        let len = call.encode(&mut bytes).unwrap();
        bytes.truncate(len);
        assert_eq!(len, header as usize);
        bytes.extend(rpc(XID, CALL, 40));
        // This project's client accepts the Call, and the responder accepts the client's response.
        let Inbound::ReverseCall(taken) = classify(&bytes, version, true) else {
            panic!("no Call");
        };
        let answer = xprtrdma_proto::ReverseReplyHeader {
            version,
            xid: taken.xid,
            credits: Credits(3),
        };
        let mut bytes = vec![0; 32];
        let len = answer.encode(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes.extend(rpc(XID, REPLY, 24));
        let Arrival::ReverseReply(found) = sort(&bytes, Spoken::Both) else {
            panic!("no Reply");
        };
        assert_eq!((found.xid, found.credits), (Xid(XID), Credits(3)));
        assert_eq!(found.payload.len(), 24);
    }
}

#[test]
fn a_reply_with_chunks_ends_the_call_of_ours_in_version_two() {
    let chunk = [part(64)];
    for body in [
        lists(&[(4, part(4))], &[], None),
        lists(&[], &[&chunk], None),
        lists(&[], &[], Some(&chunk)),
        // The chunk lists in the next two cases cannot be decoded.
        vec![2, 0, 0],
        vec![0, 0, 1],
    ] {
        let bytes = reply(rpc(XID, REPLY, 40)).body(&body).bytes();
        assert!(matches!(
            sort(&bytes, Spoken::Both),
            Arrival::ReverseError(Xid(XID))
        ));
    }
    let mut long = reply(Vec::new()).body(&NO_LISTS);
    long.procedure = NOMSG;
    assert!(matches!(
        sort(&long.bytes(), Spoken::Both),
        Arrival::ReverseError(Xid(XID))
    ));
}

#[test]
fn nothing_answers_an_error_of_version_two() {
    for code in [0, 1, 2, 3, 4, u32::MAX] {
        let found = error(code);
        assert!(matches!(
            sort(&found, Spoken::Both),
            Arrival::ReverseError(Xid(XID))
        ));
        assert_eq!(dropped(&found[..19]), Some(Dropped::ShortError));
    }
}
