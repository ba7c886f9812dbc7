// SPDX-License-Identifier: GPL-2.0

//! Tests of the replies of a responder: how they are sent, and their headers.

use crate::{
    common::{
        named,
        words,
        MSG,
        NOMSG,
        XID, //
    },
    responder_rig::{
        granted,
        gss,
        is_in_reply_chunk,
        lists,
        message,
        ready,
        rpc_call,
        sorted,
        TERMS, //
    }, //
};
use xprtrdma_proto::{
    responder::{
        admit::Terms,
        pour::{
            Span,
            Write, //
        },
        refusal::Fault,
        reply::Reply,
        results::{
            data_of,
            Written,
            MIN_ACCEPTED, //
        },
    },
    Error,
    Handle,
    Segment, //
};

fn segments(first: u32, lengths: &[u32]) -> Vec<Segment> {
    (first..)
        .zip(lengths)
        .map(|(handle, &length)| Segment {
            handle: Handle(handle),
            length,
            offset: u64::from(handle) << 32,
        })
        .collect()
}

fn span(from: u32, length: u32) -> Span {
    Span { from, length }
}

/// Returns an RDMA Write that begins at the start of the segment with this handle.
fn write(handle: u32, from: u32, length: u32) -> Write {
    Write {
        handle: Handle(handle),
        offset: u64::from(handle) << 32,
        span: span(from, length),
    }
}

/// Returns the RDMA Writes of a reply. Checks that they carry exactly the bytes that
/// `Reply::written` returns, in the same order, and that `Reply::carried` describes these bytes.
fn writes(reply: &Reply<'_>) -> Vec<Write> {
    let bytes = |span: Span| span.from..span.from + span.length;
    let writes: Vec<Write> = reply.writes().collect();
    let carried: Vec<u32> = writes.iter().flat_map(|write| bytes(write.span)).collect();
    assert!(reply.written().flat_map(bytes).eq(carried.iter().copied()));
    let length = u32::try_from(carried.len()).expect("short");
    let is_whole = carried.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let first = carried.first().filter(|_| is_whole);
    let whole = first.map(|&from| span(from, length));
    assert_eq!(
        reply.carried(),
        Written {
            bytes: length,
            whole
        }
    );
    writes
}

fn inline(reply: &Reply<'_>) -> Vec<(u32, u32)> {
    reply
        .inline()
        .map(|span| (span.from, span.length))
        .collect()
}

fn header(reply: &Reply<'_>) -> Vec<u8> {
    let mut buf = [0xee; 2000];
    let len = reply.encode(granted(16), &mut buf).expect("room");
    assert!(buf[len..].iter().all(|byte| *byte == 0xee));
    let mut short = vec![0; len - 1];
    let answer = reply.encode(granted(16), &mut short);
    assert_eq!(answer, Err(Error::NoSpace));
    buf[..len].to_vec()
}

/// Returns the expected header of a reply with this Write list and Reply chunk.
fn returned(procedure: u32, writes: &[&[Segment]], reply: Option<&[Segment]>) -> Vec<u8> {
    let mut all = vec![XID, 1, 16, procedure];
    all.extend(lists(&[], writes, reply));
    words(&all)
}

/// Returns the chunk with the segment lengths `lengths`.
fn written(chunk: &[Segment], lengths: &[u32]) -> Vec<Segment> {
    assert_eq!(chunk.len(), lengths.len());
    let new = |(segment, &length): (&Segment, &u32)| Segment { length, ..*segment };
    chunk.iter().zip(lengths).map(new).collect()
}

// covers: RSP-120
#[test]
fn a_reply_repeats_the_xid_and_has_no_read_list() {
    let bytes = message(&[], &[], None).bytes();
    let call = ready(&bytes);
    let reply = call.reply(&[], 100, &TERMS).unwrap();
    assert_eq!(header(&reply), returned(MSG, &[], None));
    assert_eq!(inline(&reply), [(0, 100)]);
    assert_eq!(writes(&reply), []);
    // Each reply has the version of its Call. The Calls of these byte vectors have version one.
    for (call, answer, marks, total) in [
        ("E01", "E02", vec![], 24),
        ("E04", "E05", vec![span(128, 6001)], 6132),
    ] {
        let call = named(call).bytes;
        let answer = named(answer).bytes;
        let call = sorted(&call).admit(&TERMS).unwrap().fetched(&[]).unwrap();
        let reply = call.reply(&marks, total, &TERMS).unwrap();
        let mut found = vec![0; 1000];
        let len = reply.encode(granted(16), &mut found).unwrap();
        assert_eq!(found[..len], answer[..len]);
        let rest: u32 = reply.inline().map(|span| span.length).sum();
        assert_eq!(len as u32 + rest, answer.len() as u32);
    }
}

// covers: RSP-121, RSP-128
#[test]
fn what_fits_is_inline_and_the_reply_chunk_comes_back_unused() {
    let chunk = segments(50, &[1000, 4000]);
    let bytes = message(&[], &[], Some(&chunk)).bytes();
    let call = ready(&bytes);
    let header_len = 28 - 4 + 8 + 32;
    let fits = TERMS.reply_threshold - header_len;
    let reply = call.reply(&[], fits, &TERMS).unwrap();
    assert!(!is_in_reply_chunk(&reply));
    let unused = written(&chunk, &[0, 0]);
    assert_eq!(header(&reply), returned(MSG, &[], Some(&unused)));
    assert_eq!(header(&reply).len() as u32 + fits, TERMS.reply_threshold);
    let reply = call.reply(&[], fits + 4, &TERMS).unwrap();
    assert!(is_in_reply_chunk(&reply));
}

// covers: RSP-122, RSP-124
#[test]
fn what_does_not_fit_fills_the_reply_chunk_in_order() {
    let chunk = segments(50, &[1000, 0, 3000, 0, 2000, 8]);
    let bytes = message(&[], &[], Some(&chunk)).bytes();
    let call = ready(&bytes);
    for (total, lengths) in [
        (5000, [1000, 0, 3000, 0, 1000, 0]),
        (6000, [1000, 0, 3000, 0, 2000, 0]),
        (6008, [1000, 0, 3000, 0, 2000, 8]),
    ] {
        let reply = call.reply(&[], total, &TERMS).unwrap();
        let filled = written(&chunk, &lengths);
        assert_eq!(header(&reply), returned(NOMSG, &[], Some(&filled)));
        assert_eq!(inline(&reply), []);
        let mut from = 0;
        let mut expected = Vec::new();
        for segment in filled.iter().filter(|segment| segment.length != 0) {
            expected.push(write(segment.handle.0, from, segment.length));
            from += segment.length;
        }
        assert_eq!(from, total);
        assert_eq!(writes(&reply), expected);
    }
    let refused = call.reply(&[], 6012, &TERMS).map(|_| ()).unwrap_err();
    assert_eq!(refused.fault, Fault::ReplyRoom);
}

// The segment ends at the largest offset, so the next offset wraps to zero. The responder writes
// nothing at that next offset.
#[test]
fn a_segment_may_end_at_the_last_offset() {
    let mut chunk = segments(50, &[1000, 4000]);
    chunk[0].offset = u64::MAX - 999;
    let bytes = message(&[], &[], Some(&chunk)).bytes();
    let call = ready(&bytes);
    let first = |length| Write {
        offset: chunk[0].offset,
        ..write(50, 0, length)
    };
    for (total, expected) in [
        (5000, vec![first(1000), write(51, 1000, 4000)]),
        (4500, vec![first(1000), write(51, 1000, 3500)]),
    ] {
        let reply = call.reply(&[], total, &TERMS).unwrap();
        assert!(is_in_reply_chunk(&reply));
        assert_eq!(writes(&reply), expected);
    }
    // A segment that is one byte longer does not fit into the address space.
    chunk[0].length = 1001;
    let bytes = message(&[], &[], Some(&chunk)).bytes();
    assert!(sorted(&bytes).admit(&TERMS).is_err());
}

// covers: RSP-089, RSP-090, RSP-123
#[test]
fn without_room_the_call_gets_an_error() {
    let too_long = 5000;
    for lengths in [
        None,
        Some(&[][..]),
        Some(&[0, 0]),
        Some(&[4]),
        Some(&[20]),
        Some(&[4999]),
    ] {
        let chunk = lengths.map(|lengths| segments(50, lengths));
        let bytes = message(&[], &[], chunk.as_deref()).bytes();
        let call = ready(&bytes);
        let refused = call.reply(&[], too_long, &TERMS).map(|_| ()).unwrap_err();
        assert_eq!(refused.fault, Fault::ReplyRoom);
        // A short reply returns the chunk unchanged, except for the lengths.
        let reply = call.reply(&[], 100, &TERMS).unwrap();
        let unused = chunk.map(|chunk| written(&chunk, &vec![0; chunk.len()]));
        assert_eq!(header(&reply), returned(MSG, &[], unused.as_deref()));
    }
    let chunk = segments(50, &[5000]);
    let bytes = message(&[], &[], Some(&chunk)).bytes();
    let call = ready(&bytes);
    let reply = call.reply(&[], too_long, &TERMS).unwrap();
    assert!(is_in_reply_chunk(&reply));
}

// covers: RSP-087, RSP-125
#[test]
fn a_result_goes_to_its_chunk_without_its_pad() {
    let chunk = segments(40, &[0, 100, 0, 50]);
    for (length, lengths) in [
        (0, [0, 0, 0, 0]),
        (1, [0, 1, 0, 0]),
        (99, [0, 99, 0, 0]),
        (101, [0, 100, 0, 1]),
        (150, [0, 100, 0, 50]),
    ] {
        let bytes = message(&[], &[&chunk], None).bytes();
        let call = ready(&bytes);
        let padded = length + (4 - length % 4) % 4;
        let marks = [span(64, length)];
        let reply = call.reply(&marks, 64 + padded + 12, &TERMS).unwrap();
        let filled = written(&chunk, &lengths);
        assert_eq!(header(&reply), returned(MSG, &[&filled], None));
        let sum: u32 = writes(&reply).iter().map(|write| write.span.length).sum();
        assert_eq!(sum, length);
        if length == 0 {
            assert_eq!(inline(&reply), [(0, 76)]);
        } else {
            assert_eq!(inline(&reply), [(0, 64), (64 + padded, 12)]);
            let first = length.min(100);
            assert_eq!(writes(&reply)[0], write(41, 64, first));
        }
    }
}

// covers: RSP-080, RSP-082
#[test]
fn an_empty_chunk_and_a_missing_one_ask_for_the_result_inline() {
    let (one, other) = (segments(40, &[100]), segments(45, &[100]));
    let unused = written(&one, &[0]);
    let marks = [span(24, 10), span(40, 20), span(64, 30), span(100, 8)];
    let bytes = message(&[], &[&one, &[], &other], None).bytes();
    let call = ready(&bytes);
    let parked = ready(&bytes).park();
    assert_eq!(
        [0, 1, 2, 3].map(|k| parked.room(&bytes, k)),
        [Some(100), None, Some(100), None].map(Some)
    );
    let reply = call.reply(&marks, 108, &TERMS).unwrap();
    let filled = [written(&one, &[10]), written(&other, &[30])];
    assert_eq!(
        header(&reply),
        returned(MSG, &[&filled[0], &[], &filled[1]], None)
    );
    assert_eq!(writes(&reply), [write(40, 24, 10), write(45, 64, 30)]);
    assert_eq!(inline(&reply), [(0, 24), (36, 28), (96, 12)]);
    // A chunk of empty segments is treated like an empty chunk.
    let empty = written(&one, &[0]);
    let bytes = message(&[], &[&empty, &other], None).bytes();
    let call = ready(&bytes);
    let reply = call.reply(&marks[..1], 108, &TERMS).unwrap();
    let rest = written(&other, &[0]);
    assert_eq!(header(&reply), returned(MSG, &[&unused, &rest], None));
    assert_eq!(inline(&reply), [(0, 108)]);
}

// covers: RSP-081, RSP-083, RSP-084, RSP-085
#[test]
fn chunks_without_a_result_come_back_unused() {
    let (one, other) = (segments(40, &[100, 7]), segments(45, &[100]));
    let bytes = message(&[], &[&one, &other], None).bytes();
    let call = ready(&bytes);
    let none = [written(&one, &[0, 0]), written(&other, &[0])];
    let reply = call.reply(&[], 108, &TERMS).unwrap();
    assert_eq!(header(&reply), returned(MSG, &[&none[0], &none[1]], None));
    assert_eq!(writes(&reply), []);
    // The first result goes to the first chunk. In NFSv4, a result of zero bytes leaves its chunk
    // unused, and the next result goes to the next chunk.
    let marks = [span(24, 9)];
    let reply = call.reply(&marks, 108, &TERMS).unwrap();
    let first = written(&one, &[9, 0]);
    assert_eq!(header(&reply), returned(MSG, &[&first, &none[1]], None));
    let marks = [span(24, 0), span(24, 9)];
    let reply = call.reply(&marks, 108, &TERMS).unwrap();
    let second = written(&other, &[9]);
    assert_eq!(header(&reply), returned(MSG, &[&none[0], &second], None));
}

// covers: RSP-086
#[test]
fn a_result_longer_than_its_chunk_is_an_error_and_writes_nothing() {
    let chunk = segments(40, &[60, 40]);
    let reply = segments(50, &[5000]);
    let bytes = message(&[], &[&chunk], Some(&reply)).bytes();
    let call = ready(&bytes);
    assert!(call.reply(&[span(24, 100)], 200, &TERMS).is_ok());
    let refused = call.reply(&[span(24, 101)], 200, &TERMS).map(|_| ());
    assert_eq!(refused.unwrap_err().fault, Fault::WriteRoom);
}

// covers: RSP-091, RSP-126
#[test]
fn both_kinds_of_chunk_are_used_when_both_are_needed() {
    let (chunk, reply) = (segments(40, &[100]), segments(50, &[3000, 4000]));
    let bytes = message(&[], &[&chunk], Some(&reply)).bytes();
    let call = ready(&bytes);
    let marks = [span(2000, 99)];
    let filled = [written(&chunk, &[99]), written(&reply, &[3000, 4000])];
    // The Reply chunk has space for 7000 bytes of the reply, and the Write chunk takes 99 bytes.
    // One pad byte is not transferred. So the longest possible reply has 7100 bytes.
    let refused = call.reply(&marks, 7104, &TERMS).map(|_| ());
    assert_eq!(refused.unwrap_err().fault, Fault::ReplyRoom);
    let found = call.reply(&marks, 7100, &TERMS).unwrap();
    assert!(is_in_reply_chunk(&found));
    assert_eq!(
        header(&found),
        returned(NOMSG, &[&filled[0]], Some(&filled[1]))
    );
    let mut rest = write(50, 2100, 1000);
    rest.offset += 2000;
    assert_eq!(
        writes(&found),
        [
            write(40, 2000, 99),
            write(50, 0, 2000),
            rest,
            write(51, 3100, 4000)
        ]
    );
    // A reply that becomes short enough because its results are in chunks stays inline.
    let marks = [span(24, 100)];
    let found = call.reply(&marks, 3200, &TERMS).unwrap();
    assert!(!is_in_reply_chunk(&found));
}

// covers: RSP-092
#[test]
fn a_protected_reply_uses_no_write_chunk() {
    let (chunk, reply) = (segments(40, &[100]), segments(50, &[5000]));
    let unused = written(&chunk, &[0]);
    for (service, used) in [(1, true), (2, false), (3, false)] {
        let call = message(&[], &[&chunk], Some(&reply));
        let bytes = call.payload(rpc_call(3, 6, &gss(service), 100)).bytes();
        let call = ready(&bytes);
        let room = ready(&bytes).park().room(&bytes, 0);
        assert_eq!(room, Some(used.then_some(100)));
        let marks = [span(64, 100)];
        let found = call.reply(&marks, 200, &TERMS).unwrap();
        assert_eq!(writes(&found).len(), usize::from(used));
        if !used {
            let empty = written(&reply, &[0]);
            assert_eq!(header(&found), returned(MSG, &[&unused], Some(&empty)));
            assert_eq!(inline(&found), [(0, 200)]);
            let found = call.reply(&marks, 5000, &TERMS).unwrap();
            assert_eq!(header(&found), returned(NOMSG, &[&unused], Some(&reply)));
        }
    }
}

// covers: RSP-127
#[test]
fn a_mark_that_the_reply_does_not_hold_goes_inline() {
    let chunks = [segments(40, &[100]), segments(45, &[100])];
    let bytes = message(&[], &[&chunks[0], &chunks[1]], None).bytes();
    let call = ready(&bytes);
    for (marks, kept) in [
        // A mark is the driver's record of which bytes of a result may go to a Write chunk. In
        // these cases the range of a mark ends beyond the reply, is inside the RPC header, is not
        // aligned, or ends beyond 32 bits.
        ([span(96, 8), span(200, 8)], 1),
        ([span(100, 8), span(200, 8)], 0),
        ([span(96, 5), span(96, 8)], 1),
        ([span(MIN_ACCEPTED - 4, 8), span(40, 8)], 1),
        ([span(MIN_ACCEPTED, 8), span(40, 8)], 2),
        ([span(26, 8), span(41, 8)], 0),
        ([span(24, u32::MAX), span(u32::MAX - 3, 8)], 0),
        // In these cases two ranges are marked as results. The second range overlaps the XDR pad of
        // the first range, is after that pad, or precedes the first range.
        ([span(40, 9), span(48, 4)], 1),
        ([span(40, 9), span(52, 4)], 2),
        ([span(60, 9), span(40, 4)], 1),
    ] {
        let reply = call.reply(&marks, 104, &TERMS).unwrap();
        assert_eq!(writes(&reply).len(), kept);
        let left: u32 = inline(&reply).iter().map(|(_, length)| length).sum();
        let gone: u32 = writes(&reply)
            .iter()
            .map(|write| write.span.length.next_multiple_of(4))
            .sum();
        assert_eq!(left + gone, 104);
    }
}

#[test]
fn a_mark_at_the_length_of_an_item_is_moved_to_its_data() {
    // The word at offset 40 is 8, the length of the data after this word. The first word of these
    // data is 8, too.
    let word = |at: u32| match at {
        40 | 44 => Some(8),
        48 => Some(3),
        _ => None,
    };
    assert_eq!(data_of(span(44, 8), word), span(44, 8));
    assert_eq!(data_of(span(40, 8), word), span(44, 8));
    // In each case below, the driver has marked the range as the place of a result. But no item
    // with the length of the range begins there, so the range becomes empty.
    assert_eq!(data_of(span(44, 7), word), span(44, 0));
    assert_eq!(data_of(span(52, 9), word), span(52, 0));
    assert_eq!(data_of(span(0, 4), word), span(0, 0));
    assert_eq!(data_of(span(u32::MAX - 2, 4), word), span(u32::MAX - 2, 0));
}

// covers: RSP-105
#[test]
fn an_rpc_error_returns_every_chunk_unused() {
    let (chunk, reply) = (segments(40, &[100]), segments(50, &[5000]));
    let bytes = message(&[], &[&chunk], Some(&reply)).bytes();
    let call = ready(&bytes);
    let found = call.reply(&[], 24, &TERMS).unwrap();
    let (write, reply) = (written(&chunk, &[0]), written(&reply, &[0]));
    assert_eq!(header(&found), returned(MSG, &[&write], Some(&reply)));
}

// covers: RSP-134, RSP-135
#[test]
fn a_send_invalidates_a_handle_of_its_own_call_if_both_ends_agreed() {
    let chunk = |handle, length| segments(handle, &[0, length]);
    let (write, reply) = (chunk(40, 100), chunk(50, 5000));
    let read = |length| (80, segments(60, &[length])[0]);
    let none: &[&[Segment]] = &[];
    for (call, expected) in [
        (message(&[], none, None), None),
        (message(&[read(64)], none, None), Some(60)),
        (message(&[read(0)], none, None), None),
        (message(&[read(64)], none, Some(&reply)), Some(51)),
        (message(&[read(64)], &[&write], Some(&reply)), Some(41)),
        (message(&[], &[&[], &write[..1], &write], None), Some(41)),
    ] {
        let bytes = call.bytes();
        let call = ready(&bytes);
        assert_eq!(call.invalidate(false), None);
        assert_eq!(call.invalidate(true), expected.map(Handle));
    }
}

#[test]
fn a_small_threshold_moves_the_border() {
    let chunk = segments(50, &[5000]);
    let bytes = message(&[], &[], Some(&chunk)).bytes();
    let call = ready(&bytes);
    let small = Terms {
        reply_threshold: 1024,
        ..TERMS
    };
    let header = 28 - 4 + 24;
    let short = call.reply(&[], 1024 - header, &small).unwrap();
    assert!(!is_in_reply_chunk(&short));
    let long = call.reply(&[], 1024 - header + 4, &small).unwrap();
    assert!(is_in_reply_chunk(&long));
}
