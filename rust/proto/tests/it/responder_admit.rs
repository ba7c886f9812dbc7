// SPDX-License-Identifier: GPL-2.0

//! Tests of the checks that decide whether a responder processes a Call, before the first RDMA
//! Read.

use crate::{
    common::{
        rpc,
        words,
        CALL,
        NOMSG,
        REPLY,
        XID, //
    },
    responder_rig::{
        admitted,
        fault,
        gss,
        message,
        rpc_call,
        write_call,
        Entry,
        NONE,
        TERMS, //
    }, //
};
use xprtrdma_proto::{
    responder::{
        admit::{
            Terms,
            MAX_ITEMS,
            MAX_SEGMENTS,
            MAX_WRITES, //
        },
        refusal::Fault,
        stream::Read, //
    },
    Handle,
    Segment, //
};

fn part(length: u32) -> Segment {
    Segment {
        handle: Handle(0x77),
        length,
        offset: 0x1_0000,
    }
}

fn parts(count: usize) -> Vec<Segment> {
    vec![part(64); count]
}

/// Returns the fault that the checks find in an inline WRITE Call of 100 bytes with these Read
/// segments. Returns `None` if the Call is correct.
fn of_reads(reads: &[Entry]) -> Option<Fault> {
    fault(&message(reads, &[], None).bytes(), &TERMS)
}

// covers: RSP-043, RSP-045
#[test]
fn lists_are_taken_up_to_bounds_of_ours_and_refused_as_a_whole_beyond() {
    let at = |count: u32| vec![(80, part(64)); count as usize];
    let most = MAX_SEGMENTS as u32;
    assert_eq!(of_reads(&at(17)), None);
    assert_eq!(of_reads(&at(most)), None);
    assert_eq!(of_reads(&at(most + 1)), Some(Fault::TooComplex));
    // The limit applies to the total number of segments in all lists.
    let chunk = parts(1);
    let with = |reads: u32, writes: &[&[Segment]]| {
        fault(&message(&at(reads), writes, Some(&chunk)).bytes(), &TERMS)
    };
    assert_eq!(with(most - 2, &[&chunk]), None);
    assert_eq!(with(most - 1, &[&chunk]), Some(Fault::TooComplex));
    assert_eq!(with(most - 1, &[]), None);
    // The number of chunks is also limited, even if the chunks are empty.
    let empty: Vec<&[Segment]> = vec![&[]; MAX_WRITES + 1];
    assert_eq!(with(1, &empty[1..]), None);
    assert_eq!(with(1, &empty), Some(Fault::TooComplex));
    let items = |count: usize| (0..count as u32).map(|n| (80 + 64 * n, part(64))).collect();
    let items: [Vec<Entry>; 2] = [items(MAX_ITEMS), items(MAX_ITEMS + 1)];
    assert_eq!(of_reads(&items[0]), None);
    assert_eq!(of_reads(&items[1]), Some(Fault::TooComplex));
}

// covers: RSP-044
#[test]
fn what_every_server_must_take_is_taken() {
    let mut reads = vec![(0, part(64)); 16];
    reads.extend(vec![(80, part(64)); 16]);
    let chunk = parts(16);
    let small = Terms {
        reply_threshold: 1024,
        ..TERMS
    };
    let call = message(&reads, &[&chunk], Some(&chunk));
    assert_eq!(fault(&call.bytes(), &small), None);
}

// covers: RSP-046
#[test]
fn the_header_of_the_reply_fits_before_the_call_is_processed() {
    let (writes, reply) = (parts(5), parts(3));
    // The header without chunks has 28 bytes. Each chunk adds 8 bytes, and each segment adds 16
    // bytes. The result is 4 bytes smaller than the sum, because the first word of the Reply chunk
    // replaces one of the words in the 28 bytes.
    let header = 28 + (8 + 5 * 16) + (8 + 3 * 16) - 4;
    for (reply, least) in [
        (Some(&reply[..]), header),
        // Without a Reply chunk, the message must have space for the header and for the shortest
        // RPC reply.
        (None, 28 + (8 + 5 * 16) + 20),
        (Some(&[][..]), 28 + (8 + 5 * 16) + 4 + 20),
    ] {
        let bytes = message(&[], &[&writes], reply).bytes();
        let terms = |reply_threshold| Terms {
            reply_threshold,
            ..TERMS
        };
        assert_eq!(fault(&bytes, &terms(least)), None);
        assert_eq!(fault(&bytes, &terms(least - 1)), Some(Fault::ReplyHeader));
    }
    // A Reply chunk that is too small for any reply counts as absent.
    let bytes = message(&[], &[], Some(&[part(19)])).bytes();
    let terms = |reply_threshold| Terms {
        reply_threshold,
        ..TERMS
    };
    assert_eq!(fault(&bytes, &terms(28 + 20 + 20)), None);
    assert!(fault(&bytes, &terms(28 + 20 + 19)).is_some());
    let bytes = message(&[], &[], Some(&[part(20)])).bytes();
    assert_eq!(fault(&bytes, &terms(28 + 20)), None);
}

// covers: RSP-047
#[test]
fn bytes_behind_the_header_of_a_long_call_are_told_and_ignored() {
    let mut call = message(&[(0, part(100))], &[], None);
    assert!(!admitted(&call.bytes()).is_odd());
    call.payload = rpc(XID ^ 1, REPLY, 40);
    let bytes = call.bytes();
    assert!(admitted(&bytes).is_odd());
    assert_eq!(admitted(&bytes).landing(), 100);
}

// covers: RSP-050
#[test]
fn a_long_call_has_its_message_in_a_position_zero_chunk() {
    let chunk = parts(1);
    for (reads, writes, reply) in [
        (vec![], vec![], None),
        (vec![], vec![&chunk[..]], None),
        (vec![], vec![], Some(&chunk[..])),
        (vec![(80, part(64))], vec![], None),
    ] {
        let mut call = message(&reads, &writes, reply);
        call.procedure = NOMSG;
        assert_eq!(fault(&call.bytes(), &TERMS), Some(Fault::NoMessage));
    }
}

// covers: RSP-051
#[test]
fn an_inline_call_has_no_second_message() {
    for length in [0, 8, 100] {
        let mut call = message(&[(0, part(length))], &[], None);
        call.procedure = 0;
        call.payload = write_call(100);
        assert_eq!(fault(&call.bytes(), &TERMS), Some(Fault::TwoMessages));
    }
}

// covers: RSP-052
#[test]
fn a_position_is_a_multiple_of_four() {
    for position in [1, 2, 3, 81, 82, 83, u32::MAX] {
        assert_eq!(of_reads(&[(position, part(4))]), Some(Fault::Position));
    }
    assert_eq!(
        of_reads(&[(80, part(4)), (81, part(4))]),
        Some(Fault::Position)
    );
}

// covers: RSP-053
#[test]
fn segments_are_grouped_by_position_wherever_they_are() {
    let at = |n: u32, length| Segment {
        handle: Handle(n),
        length,
        offset: 0,
    };
    let reads = [
        (88, at(1, 8)),
        (80, at(2, 3)),
        (88, at(3, 4)),
        (80, at(4, 5)),
        (88, at(5, 1)),
    ];
    let bytes = message(&reads, &[], None).bytes();
    let found: Vec<(u32, u32)> = admitted(&bytes)
        .reads()
        .map(|read| (read.handle.0, read.length))
        .collect();
    assert_eq!(found, [(2, 3), (4, 5), (1, 8), (3, 4), (5, 1)]);
}

// covers: RSP-054
#[test]
fn a_chunk_is_behind_the_header_of_the_rpc() {
    // The RPC header contains a credential of 9 bytes and a verifier of 5 bytes, each followed by
    // its pad.
    let mut header = vec![XID, CALL, 2, 100_003, 3, 7, 1, 9, 0, 0, 0, 0, 5, 0, 0];
    let len = 4 * header.len() as u32;
    header.resize(40, 0);
    for position in (4..100).step_by(4) {
        let call = message(&[(position, part(64))], &[], None).payload(words(&header));
        let inside = (position < len).then_some(Fault::InsideHeader);
        assert_eq!(fault(&call.bytes(), &TERMS), inside);
    }
    // If the header cannot be parsed, its end is unknown.
    for (at, length) in [(7, 1000), (7, u32::MAX), (7, u32::MAX - 3), (12, 1000)] {
        let mut header = header.clone();
        header[at] = length;
        let call = message(&[(100, part(64))], &[], None).payload(words(&header));
        assert_eq!(fault(&call.bytes(), &TERMS), Some(Fault::InsideHeader));
    }
    // The RPC header of a long Call is checked after the header was fetched. Before that, only the
    // minimum length of the header is known.
    let long = |position| {
        let reads = [(0, part(160)), (position, part(64))];
        message(&reads, &[], None).bytes()
    };
    assert_eq!(fault(&long(36), &TERMS), Some(Fault::InsideHeader));
    assert_eq!(fault(&long(40), &TERMS), None);
    for position in (40..100).step_by(4) {
        let bytes = long(position);
        let found = admitted(&bytes).fetched(&words(&header)).err();
        let inside = (position < len).then_some(Fault::InsideHeader);
        assert_eq!(found.map(|refusal| refusal.fault), inside);
    }
}

// covers: RSP-055
#[test]
fn a_chunk_is_not_behind_the_end_of_the_message() {
    assert_eq!(of_reads(&[(96, part(5))]), None);
    assert_eq!(of_reads(&[(100, part(5))]), None);
    assert_eq!(of_reads(&[(104, part(5))]), Some(Fault::Outside));
    // The first chunk and its pad add eight bytes to the message.
    let two = |position| [(80, part(5)), (position, part(5))];
    assert_eq!(of_reads(&two(108)), None);
    assert_eq!(of_reads(&two(112)), Some(Fault::Outside));
    assert_eq!(of_reads(&[(0xffff_fffc, part(1))]), Some(Fault::Outside));
    // The end of a long Call is the end of its Position-Zero chunk.
    let long = |position| {
        let reads = [(0, part(100)), (position, part(64))];
        fault(&message(&reads, &[], None).bytes(), &TERMS)
    };
    assert_eq!(long(100), None);
    assert_eq!(long(104), Some(Fault::Outside));
}

// covers: RSP-056
#[test]
fn chunks_do_not_overlap() {
    let two = |position| of_reads(&[(80, part(9)), (position, part(5))]);
    assert_eq!(two(84), Some(Fault::Overlap));
    // The Position of the second chunk is in the pad of the first chunk.
    assert_eq!(two(88), Some(Fault::Overlap));
    assert_eq!(two(92), None);
    // There are three chunks, and the third one overlaps the second one.
    let three = [(80, part(8)), (92, part(8)), (96, part(8))];
    assert_eq!(of_reads(&three), Some(Fault::Overlap));
}

// covers: RSP-061
#[test]
fn empty_segments_are_skipped() {
    let reads = [
        (80, part(0)),
        (80, part(8)),
        (80, part(0)),
        (80, part(8)),
        (80, part(0)),
        (96, part(0)),
    ];
    let bytes = message(&reads, &[], None).bytes();
    let call = admitted(&bytes);
    let lengths: Vec<u32> = call.reads().map(|read| read.length).collect();
    assert_eq!(lengths, [8, 8]);
    assert_eq!(call.landing(), 116);
    let bytes = message(&[(80, part(0))], &[], None).bytes();
    let call = admitted(&bytes);
    assert_eq!((call.reads().count(), call.landing()), (0, 0));
}

// covers: RSP-062
#[test]
fn sums_do_not_wrap() {
    let huge = part(u32::MAX);
    let none = Terms {
        longest_call: u32::MAX,
        ..TERMS
    };
    let of = |reads: &[Entry]| fault(&message(reads, &[], None).bytes(), &none);
    // A chunk of 2^32 - 1 bytes and its pad have 2^32 bytes together. The number 2^32 does not fit
    // into 32 bits.
    assert_eq!(of(&[(80, huge)]), Some(Fault::Wraps));
    assert_eq!(of(&[(80, part(0xffff_fffc))]), Some(Fault::TooLong));
    assert_eq!(of(&[(80, part(0xffff_ff00))]), None);
    assert_eq!(of(&[(80, part(0x8000_0000)); 2]), Some(Fault::Wraps));
    assert_eq!(of(&[(0, part(0x8000_0000)); 2]), Some(Fault::Wraps));
    let many = [
        (0, part(0x8000_0000)),
        (80, part(0x7fff_fff0)),
        (0x8000_0040, part(60)),
    ];
    assert_eq!(of(&many), Some(Fault::TooLong));
}

// covers: RSP-063, RSP-088
#[test]
fn no_segment_wraps_in_the_memory_of_the_client() {
    let at = |offset, length| Segment {
        handle: Handle(1),
        length,
        offset,
    };
    let fine = [at(u64::MAX, 1), at(u64::MAX - 3, 4), at(u64::MAX, 0)];
    let wrong = [
        at(u64::MAX, 2),
        at(u64::MAX - 3, 5),
        at(u64::MAX, u32::MAX - 8),
    ];
    let of = |segment: Segment| {
        [
            message(&[(80, segment)], &[], None),
            message(&[(0, part(8)), (0, segment)], &[], None),
            message(&[], &[&[segment]], None),
            message(&[], &[], Some(&[segment])),
        ]
        .map(|call| fault(&call.bytes(), &TERMS))
    };
    for segment in fine {
        assert_eq!(of(segment), [None; 4]);
    }
    for segment in wrong {
        assert_eq!(of(segment), [Some(Fault::Wraps); 4]);
    }
    let halves = [part(0x8000_0000); 2];
    for call in [
        message(&[], &[&halves], None),
        message(&[], &[], Some(&halves)),
    ] {
        assert_eq!(fault(&call.bytes(), &TERMS), Some(Fault::Wraps));
    }
}

// covers: RSP-064
#[test]
fn the_whole_message_counts_against_the_limit() {
    let terms = |longest_call| Terms {
        longest_call,
        ..TERMS
    };
    // Cases: inline bytes before, between and after chunks; pads; a Position-Zero chunk.
    for (reads, total) in [
        (vec![], 100),
        (vec![(80, part(64))], 164),
        (vec![(80, part(61))], 164),
        (vec![(80, part(61)), (148, part(1))], 168),
        (vec![(0, part(200))], 200),
        (vec![(0, part(200)), (80, part(61))], 264),
    ] {
        let bytes = message(&reads, &[], None).bytes();
        assert_eq!(fault(&bytes, &terms(total)), None);
        assert_eq!(fault(&bytes, &terms(total - 1)), Some(Fault::TooLong));
    }
}

// covers: RSP-065
#[test]
fn a_position_zero_chunk_has_room_for_an_xid_and_a_direction() {
    for length in [0, 4, 7] {
        assert_eq!(of_reads(&[(0, part(length))]), Some(Fault::NoMessage));
    }
    for length in [8, 39, 40] {
        let bytes = message(&[(0, part(length))], &[], None).bytes();
        let front = &write_call(40)[..length as usize];
        assert!(admitted(&bytes).fetched(front).is_ok());
    }
}

// covers: RSP-066, RSP-067
#[test]
fn what_a_position_zero_chunk_holds_is_a_call_with_the_xid() {
    let bytes = message(&[(0, part(100))], &[], None).bytes();
    let found = |front: &[u8]| admitted(&bytes).fetched(front).err().map(|r| r.fault);
    assert_eq!(found(&write_call(100)), None);
    assert_eq!(found(&rpc(XID ^ 1, CALL, 100)), Some(Fault::RpcXid));
    for direction in [REPLY, 2, u32::MAX] {
        assert_eq!(found(&rpc(XID, direction, 100)), Some(Fault::RpcType));
    }
    // If the Position-Zero chunk was not fetched, the Call is refused, and the missing bytes are
    // not used.
    assert_eq!(found(&[]), Some(Fault::RpcType));
}

// covers: RSP-068
#[test]
fn only_an_eligible_argument_may_be_in_a_chunk() {
    let reads = [(80, part(64))];
    let long_reads = [(0, part(100)), (80, part(64))];
    let of = |header: Vec<u8>| {
        let inline = message(&reads, &[], None).payload(header.clone());
        let found = fault(&inline.bytes(), &TERMS);
        let long = message(&long_reads, &[], None).bytes();
        let fetched = admitted(&long).fetched(&header).err().map(|r| r.fault);
        assert_eq!(found, fetched);
        found
    };
    for (version, eligible) in [
        (2, &[8, 13][..]),
        (3, &[7, 10]),
        (4, &[1]),
        (5, &[]),
        (1, &[]),
    ] {
        for procedure in 0..24 {
            let wrong = !eligible.contains(&procedure);
            let found = of(rpc_call(version, procedure, &NONE, 100));
            assert_eq!(found, wrong.then_some(Fault::NotEligible));
        }
    }
    let mut header = rpc_call(3, 7, &NONE, 100);
    header[15] ^= 1;
    assert_eq!(of(header), Some(Fault::NotEligible));
    // A Position-Zero chunk may contain any type of call, and not only calls with eligible
    // arguments.
    let bytes = message(&[(0, part(100))], &[], None).bytes();
    assert!(admitted(&bytes)
        .fetched(&rpc_call(3, 6, &NONE, 100))
        .is_ok());
}

// covers: RSP-069
#[test]
fn nothing_of_a_protected_call_may_be_in_a_chunk() {
    for (service, wrong) in [(1, false), (2, true), (3, true), (4, false)] {
        let header = rpc_call(3, 7, &gss(service), 100);
        let call = message(&[(80, part(64))], &[], None).payload(header.clone());
        let wrong = wrong.then_some(Fault::Protected);
        assert_eq!(fault(&call.bytes(), &TERMS), wrong);
        let long = message(&[(0, part(100)), (80, part(64))], &[], None).bytes();
        let fetched = admitted(&long).fetched(&header).err().map(|r| r.fault);
        assert_eq!(fetched, wrong);
    }
    // A Call counts as protected if its credential is too short to contain the RPCSEC_GSS service.
    let header = rpc_call(3, 7, &[6, 12, 1, 0, 7], 100);
    let call = message(&[(80, part(64))], &[], None).payload(header);
    assert_eq!(fault(&call.bytes(), &TERMS), Some(Fault::Protected));
}

#[test]
fn one_handle_may_be_everywhere() {
    let chunk = parts(2);
    let reads = [(80, part(64)), (80, part(64)), (208, part(64))];
    let bytes = message(&reads, &[&chunk], Some(&chunk)).bytes();
    let call = admitted(&bytes);
    let reads: Vec<Read> = call.reads().collect();
    assert_eq!(reads.len(), 3);
    assert!(reads.iter().all(|read| read.offset == 0x1_0000));
}

#[test]
fn a_parked_call_is_taken_up_with_its_own_message_only() {
    let bytes = message(&[(80, part(5))], &[], None).bytes();
    let call = admitted(&bytes).park().resume(&bytes).expect("the message");
    assert_eq!(call.landing(), 8);
    let mut other = bytes.clone();
    other[0] ^= 1;
    assert!(admitted(&bytes).park().resume(&other).is_none());
    assert!(admitted(&bytes).park().resume(&bytes[..40]).is_none());
    assert!(admitted(&bytes).park().resume(&bytes[..8]).is_none());
}
