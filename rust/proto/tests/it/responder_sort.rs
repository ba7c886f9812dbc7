// SPDX-License-Identifier: GPL-2.0

//! How a responder classifies messages, and which errors it sends before it looks up or takes any
//! resource.

use crate::{
    common::{
        named,
        rpc,
        words,
        Message,
        ERROR,
        NOMSG,
        REPLY,
        XID, //
    },
    responder_rig::{
        admitted,
        fault,
        granted,
        lists,
        message,
        sorted,
        write_call,
        TERMS, //
    }, //
};
use xprtrdma_proto::{
    responder::{
        refusal::{
            Blame,
            Fault,
            Refusal, //
        },
        sort::{
            sort,
            Arrival,
            Dropped, //
        },
        spoken::Spoken, //
    },
    Credits,
    Error,
    Handle,
    Segment,
    Xid, //
};

fn dropped(bytes: &[u8]) -> Option<Dropped> {
    match sort(bytes, Spoken::One) {
        Arrival::Drop(dropped) => Some(dropped),
        _ => None,
    }
}

fn refused(bytes: &[u8]) -> Option<Fault> {
    match sort(bytes, Spoken::One) {
        Arrival::Refuse(refusal) => {
            assert_eq!(refusal.xid, Xid(XID));
            Some(refusal.fault)
        }
        _ => None,
    }
}

/// Builds a Call of this version and procedure, truncated to a length.
fn cut(version: u32, procedure: u32, len: usize) -> Vec<u8> {
    let mut call = message(&[], &[], None);
    (call.version, call.procedure) = (version, procedure);
    call.bytes()[..len].to_vec()
}

// covers: RSP-020, RSP-021
#[test]
fn nothing_answers_a_message_that_is_shorter_than_a_header() {
    for version in [0, 1, 2, 3, u32::MAX] {
        for procedure in [0, 1, 2, 3, 5, 6, u32::MAX] {
            for len in 0..28 {
                let bytes = cut(version, procedure, len);
                assert_eq!(dropped(&bytes), Some(Dropped::Short));
            }
            assert!(dropped(&cut(version, procedure, 28)) != Some(Dropped::Short));
        }
    }
}

// covers: RSP-027, RSP-180
#[test]
fn another_version_is_refused_with_the_range_and_the_word_as_it_came() {
    for version in [0, 2, 3, 0x0100_0000, u32::MAX] {
        for procedure in [0, 1, 2, 3, 5, 6, u32::MAX] {
            let bytes = cut(version, procedure, 28);
            let Arrival::Refuse(refusal) = sort(&bytes, Spoken::One) else {
                panic!("version {version} is not refused");
            };
            assert_eq!(refusal.fault, Fault::Version(Spoken::One));
            let mut answer = [0; 40];
            assert_eq!(refusal.encode(granted(7), &mut answer), Ok(28));
            assert_eq!(answer[..28], words(&[XID, version, 7, ERROR, 1, 1, 1]));
        }
    }
}

// covers: RSP-028, RSP-029, RSP-030, RSP-191
#[test]
fn nothing_answers_an_error() {
    for version in [0, 1, 2, 3, u32::MAX] {
        for len in 16..60 {
            let bytes = cut(version, ERROR, len);
            match sort(&bytes, Spoken::One) {
                Arrival::Drop(Dropped::ShortError) => assert!(len < 20),
                Arrival::ReverseError(xid) => {
                    assert!(len >= 20);
                    assert_eq!(xid, Xid(XID));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

// covers: RSP-031
#[test]
fn nothing_answers_done() {
    for len in 28..60 {
        assert_eq!(dropped(&cut(1, 3, len)), Some(Dropped::Done));
    }
}

// covers: RSP-032, RSP-033
#[test]
fn obsolete_and_unknown_procedures_are_refused() {
    for procedure in [2, 5, 6, 0x0100_0000, u32::MAX] {
        assert_eq!(refused(&cut(1, procedure, 28)), Some(Fault::Procedure));
    }
}

// covers: RSP-023, RSP-034
#[test]
fn oddities_are_told_and_served() {
    for credits in [0, 1, 32, u32::MAX] {
        let mut call = message(&[], &[], None);
        call.credits = credits;
        let bytes = call.bytes();
        let call = sorted(&bytes);
        assert_eq!(call.credits(), Credits(credits));
        assert!(!admitted(&bytes).is_odd());
    }
    for xid in [0, 1, u32::MAX] {
        let mut call = message(&[], &[], None);
        call.xid = xid;
        call.payload[..4].copy_from_slice(&xid.to_be_bytes());
        assert_eq!(sorted(&call.bytes()).xid(), Xid(xid));
    }
    let mut bytes = message(&[], &[], None).bytes();
    for more in 1..=4 {
        bytes.push(0);
        assert_eq!(admitted(&bytes).is_odd(), more < 4);
    }
}

/// Returns a message with chunk lists of each type, with several entries.
fn rich() -> Message {
    let part = |n: u32| Segment {
        handle: Handle(0x7000_0000 + n),
        length: 64,
        offset: 0x5000_0000_6000_0000,
    };
    let chunk = [part(3), part(4)];
    message(
        &[(80, part(1)), (80, part(2))],
        &[&chunk, &chunk],
        Some(&chunk),
    )
}

// covers: RSP-040
#[test]
fn a_discriminator_is_zero_or_one() {
    let call = rich();
    assert_eq!(fault(&call.bytes(), &TERMS), None);
    // Positions, in words, of two Read list entries (six words each), the end of the Read list, two
    // Write chunks (ten words each), the end of the Write list, and the Reply chunk.
    let places = [0, 6, 12, 13, 23, 33, 34];
    for place in places {
        assert!(call.body[place] < 2);
        for wrong in [2, 3, 0x0100_0000, u32::MAX] {
            let mut call = call.clone();
            call.body[place] = wrong;
            assert_eq!(refused(&call.bytes()), Some(Fault::Lists));
        }
    }
}

// covers: RSP-041
#[test]
fn a_list_that_ends_early_is_refused() {
    let call = rich();
    let header = 16 + 4 * call.body.len();
    for len in 28..header {
        assert_eq!(refused(&call.bytes()[..len]), Some(Fault::Lists));
    }
}

// covers: RSP-042
#[test]
fn a_count_is_believed_as_far_as_the_message_reaches() {
    let call = rich();
    for place in [14, 24, 35] {
        assert_eq!(call.body[place], 2);
        for count in [1 << 28, 1 << 31, u32::MAX, 1000] {
            let mut call = call.clone();
            call.body[place] = count;
            assert_eq!(refused(&call.bytes()), Some(Fault::Lists));
        }
    }
}

// covers: RSP-048, RSP-100
#[test]
fn an_inline_message_has_room_for_an_xid_and_a_direction() {
    for len in 0..8 {
        let call = message(&[], &[], None).payload(write_call(100)[..len].to_vec());
        assert_eq!(refused(&call.bytes()), Some(Fault::NoMessage));
        let call = rich().payload(write_call(100)[..len].to_vec());
        assert_eq!(refused(&call.bytes()), Some(Fault::NoMessage));
    }
}

// covers: RSP-101
#[test]
fn a_short_call_is_for_the_rpc_layer() {
    for len in 8..100 {
        let call = message(&[], &[], None).payload(write_call(100)[..len].to_vec());
        assert_eq!(fault(&call.bytes(), &TERMS), None);
    }
}

// covers: RSP-104
#[test]
fn what_is_wrong_with_the_rpc_header_is_for_the_rpc_layer() {
    // These words are the RPC version, program, version, procedure, credential and verifier.
    for word in 2..10 {
        for wrong in [0, 9, 0x0100_0000, u32::MAX] {
            let mut header = write_call(100);
            header[4 * word..][..4].copy_from_slice(&u32::to_be_bytes(wrong));
            let call = message(&[], &[], None).payload(header);
            assert_eq!(fault(&call.bytes(), &TERMS), None);
        }
    }
}

// covers: RSP-102
#[test]
fn the_two_xids_of_a_call_are_the_same() {
    let mut call = message(&[], &[], None);
    call.payload[3] ^= 1;
    assert_eq!(refused(&call.bytes()), Some(Fault::RpcXid));
}

// covers: RSP-103
#[test]
fn an_inline_message_is_a_call_or_a_reply() {
    for direction in [2, 3, 0x0100_0000, u32::MAX] {
        let call = message(&[], &[], None).payload(rpc(XID, direction, 40));
        assert_eq!(refused(&call.bytes()), Some(Fault::RpcType));
    }
}

// covers: RSP-164
#[test]
fn an_inline_reply_answers_a_call_of_ours() {
    for len in 20..60 {
        let reply = message(&[], &[], None).payload(rpc(XID, REPLY, len));
        let bytes = reply.bytes();
        let Arrival::ReverseReply(found) = sort(&bytes, Spoken::One) else {
            panic!("no Reply");
        };
        assert_eq!((found.xid, found.credits), (Xid(XID), Credits(32)));
        assert_eq!(found.payload, reply.payload);
    }
}

// covers: RSP-166
#[test]
fn a_reply_with_chunks_ends_the_call_of_ours() {
    let part = [Segment {
        handle: Handle(1),
        length: 4,
        offset: 0,
    }];
    for body in [
        lists(&[(4, part[0])], &[], None),
        lists(&[], &[&part], None),
        lists(&[], &[&[]], None),
        lists(&[], &[], Some(&part)),
        lists(&[], &[], Some(&[])),
    ] {
        let reply = message(&[], &[], None).body(&body);
        let bytes = reply.payload(rpc(XID, REPLY, 40)).bytes();
        assert!(matches!(
            sort(&bytes, Spoken::One),
            Arrival::ReverseError(Xid(XID))
        ));
    }
    // A message without an inline RPC message (`RDMA_NOMSG`) is a Call.
    let mut long = message(&[(0, part[0])], &[], None);
    long.procedure = NOMSG;
    assert_eq!(sorted(&long.bytes()).xid(), Xid(XID));
}

// covers: RSP-167
#[test]
fn a_reply_shorter_than_any_is_dropped() {
    for len in 8..20 {
        let reply = message(&[], &[], None).payload(rpc(XID, REPLY, len));
        assert_eq!(dropped(&reply.bytes()), Some(Dropped::ShortReply));
    }
}

// covers: RSP-168
#[test]
fn a_reply_whose_xids_differ_is_dropped() {
    let reply = message(&[], &[], None).payload(rpc(XID ^ 1, REPLY, 40));
    assert_eq!(dropped(&reply.bytes()), Some(Dropped::ReplyXid));
}

// covers: RSP-150, RSP-151
#[test]
fn an_error_repeats_the_xid_and_carries_the_grant() {
    let call = Message {
        procedure: 6,
        ..message(&[], &[], None)
    };
    let Arrival::Refuse(refusal) = sort(&call.bytes(), Spoken::One) else {
        panic!("served");
    };
    let mut answer = [0xee; 30];
    assert_eq!(refusal.encode(granted(9), &mut answer), Ok(20));
    assert_eq!(answer[..20], words(&[XID, 1, 9, ERROR, 2]));
    let mut short = [0; 27];
    assert_eq!(refusal.encode(granted(9), &mut short), Err(Error::NoSpace));
    // The byte vectors contain an error message with ERR_VERS and an error message with ERR_CHUNK.
    for id in ["E11", "E12"] {
        let vector = named(id);
        let range = vector.decoded["err"] == 1;
        let refusal = Refusal {
            xid: Xid(vector.decoded["xid"].as_u64().unwrap() as u32),
            version: 1,
            fault: if range {
                Fault::Version(Spoken::One)
            } else {
                Fault::Lists
            },
        };
        let mut answer = vec![0; 28];
        let len = refusal.encode(granted(16), &mut answer).unwrap();
        assert_eq!(answer[..len], vector.bytes);
    }
}

#[test]
fn a_fault_counts_in_one_way_wherever_it_is_found() {
    // Faults of the transport header, of the chunk lists, and of the RPC message. If the RPC
    // message is in a Read chunk, its faults are found only after the chunk was fetched.
    for fault in [
        Fault::Version(Spoken::One),
        Fault::Version(Spoken::Both),
        Fault::Procedure,
        Fault::Direction,
        Fault::CutOption,
        Fault::Lists,
        Fault::TooComplex,
        Fault::Wraps,
        Fault::ReplyHeader,
        Fault::Breaks,
        Fault::NoMessage,
        Fault::TwoMessages,
        Fault::TooLong,
        Fault::Position,
        Fault::Outside,
        Fault::Overlap,
        Fault::InsideHeader,
        Fault::RpcXid,
        Fault::RpcType,
        Fault::NotEligible,
        Fault::Protected,
    ] {
        assert_eq!(fault.blame(), Blame::Malformed, "{fault:?}");
    }
    assert_eq!(Fault::Option.blame(), Blame::Option);
    // The client is not to blame for these faults: it knows neither how long the reply will be, nor
    // how long the send queue is.
    for fault in [Fault::ReplyRoom, Fault::WriteRoom, Fault::SendQueue] {
        assert_eq!(fault.blame(), Blame::Nothing, "{fault:?}");
    }
}

#[test]
fn the_calls_of_the_byte_vectors_are_calls() {
    for id in ["E01", "E03", "E04", "E07", "E09", "E10", "E13", "E14"] {
        let vector = named(id);
        let is_call = vector.decoded["mtype"] == 0 || vector.decoded["proc"] == 1;
        match sort(&vector.bytes, Spoken::One) {
            Arrival::Call(call) => {
                assert!(is_call);
                let xid = vector.decoded["xid"].as_u64().unwrap() as u32;
                assert_eq!(call.xid(), Xid(xid));
            }
            other => assert!(!is_call, "{id}: {other:?}"),
        }
    }
    // These messages of version two are refused, because this responder accepts only version one.
    for id in ["E20", "E25", "E26"] {
        let vector = named(id);
        assert!(matches!(
            sort(&vector.bytes, Spoken::One),
            Arrival::Refuse(Refusal {
                version: 2,
                fault: Fault::Version(Spoken::One),
                ..
            })
        ));
    }
}
