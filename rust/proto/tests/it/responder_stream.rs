// SPDX-License-Identifier: GPL-2.0

//! Tests that the responder assembles the unreduced Call: each byte comes from the right source,
//! and is written once.

use crate::responder_rig::{
    admitted,
    message,
    write_call,
    Entry, //
};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{
        Config,
        RngAlgorithm,
        TestRng,
        TestRunner, //
    }, //
};
use xprtrdma_proto::{
    responder::{
        admit::Admitted,
        call::Call,
        stream::{
            Assembly,
            Fill, //
        },
    },
    Handle,
    Segment, //
};

/// Returns the byte at an offset of the client's memory. The byte is never zero.
fn content(offset: u64) -> u8 {
    (offset % 251) as u8 + 1
}

fn at(offset: u64, length: u32) -> Segment {
    Segment {
        handle: Handle(9),
        length,
        offset,
    }
}

/// Performs the steps of a driver, and returns the assembled message. The test fails unless exactly
/// one step writes each byte of the message.
fn assembled(call: &Call<'_, Admitted>) -> Vec<u8> {
    let mut area: Vec<Option<u8>> = vec![None; call.landing() as usize];
    let mut place = |to: u32, bytes: &mut dyn Iterator<Item = u8>| {
        for (at, byte) in (to as usize..).zip(bytes) {
            assert_eq!(area[at].replace(byte), None);
        }
    };
    assert_eq!(call.has_reads(), call.reads().next().is_some());
    let mut last = 0;
    for read in call.reads() {
        assert!(read.length > 0 && read.to >= last);
        assert_eq!(read.handle, Handle(9));
        last = read.to + read.length;
        let range = read.offset..read.offset + u64::from(read.length);
        place(read.to, &mut range.map(content));
    }
    for fill in call.fills() {
        match fill {
            Fill::Copy { from, to, length } => {
                assert!(length > 0);
                let bytes = &call.payload()[from as usize..][..length as usize];
                place(to, &mut bytes.iter().copied());
            }
            Fill::Zero { to, length } => {
                assert!(length > 0 && length < 4);
                place(to, &mut std::iter::repeat_n(0, length as usize));
            }
        }
    }
    let area: Vec<u8> = area
        .into_iter()
        .map(|byte| byte.expect("written"))
        .collect();
    match call.assembly() {
        Assembly::Inline => {
            assert!(area.is_empty());
            call.payload().to_vec()
        }
        Assembly::Split { at } => {
            let (before, behind) = call.payload().split_at(at as usize);
            [before, &area, behind].concat()
        }
        Assembly::Landed => area,
    }
}

/// Assembles the message as the RFC describes: each chunk is inserted at its Position, followed by
/// its pad.
fn inserted(mut reads: Vec<Entry>, inline: &[u8]) -> Vec<u8> {
    let bytes = |segment: &Segment| {
        let range = segment.offset..segment.offset + u64::from(segment.length);
        range.map(content).collect::<Vec<u8>>()
    };
    let mut stream = inline.to_vec();
    // Segments with the same Position keep their order.
    reads.sort_by_key(|(position, _)| *position);
    let mut end = 0;
    let mut current = None;
    for (position, segment) in &reads {
        if current != Some(*position) {
            let padded = stream.len().next_multiple_of(4);
            if current.is_some() && current != Some(0) {
                let pad = end_pad(end, current);
                stream.splice(end..end, vec![0; pad]);
            }
            assert!(padded >= stream.len() || current.is_some());
            current = Some(*position);
            end = *position as usize;
        }
        let data = bytes(segment);
        stream.splice(end..end, data.iter().copied());
        end += data.len();
    }
    if current.is_some() && current != Some(0) {
        let pad = end_pad(end, current);
        stream.splice(end..end, vec![0; pad]);
    }
    stream
}

fn end_pad(end: usize, position: Option<u32>) -> usize {
    let length = end - position.unwrap_or(0) as usize;
    length.next_multiple_of(4) - length
}

// covers: RSP-057
#[test]
fn odd_chunks_without_their_pads_make_the_message_that_was_meant() {
    let reads = [(80, at(1000, 5)), (92, at(2000, 3)), (96, at(3000, 1))];
    let bytes = message(&reads, &[], None).bytes();
    let call = admitted(&bytes);
    let found = assembled(&call);
    let inline = write_call(100);
    let (first, second, third) = (&found[80..85], &found[92..95], &found[96..97]);
    assert_eq!(first, (1000..1005).map(content).collect::<Vec<u8>>());
    assert_eq!(second, (2000..2003).map(content).collect::<Vec<u8>>());
    assert_eq!(third, [content(3000)]);
    // The landing area, into which the RDMA Reads write the chunks, also contains the pad of the
    // first chunk, four inline bytes, the pads of the other chunks, and the remaining bytes.
    assert_eq!(found[..80], inline[..80]);
    assert_eq!(found[85..92], [[0; 3].as_slice(), &inline[80..84]].concat());
    assert_eq!(found[95..96], [0]);
    assert_eq!(found[97..100], [0; 3]);
    assert_eq!(found[100..], inline[84..]);
    assert_eq!(found.len(), 116);
}

// covers: RSP-058
#[test]
fn the_pad_may_be_in_the_chunk() {
    let short = message(&[(80, at(1000, 5))], &[], None).bytes();
    let short = assembled(&admitted(&short));
    for reads in [
        vec![(80, at(1000, 8))],
        vec![(80, at(1000, 5)), (80, at(1005, 3))],
    ] {
        let padded = message(&reads, &[], None).bytes();
        let call = admitted(&padded);
        assert_eq!(call.fills().count(), 0);
        let padded = assembled(&call);
        // The message whose chunk contains the pad has the same content. But the three pad bytes
        // come from the client's memory and need not be zero.
        assert_eq!(padded.len(), short.len());
        assert_eq!(padded[..85], short[..85]);
        assert_eq!(padded[88..], short[88..]);
    }
}

// covers: RSP-059
#[test]
fn chunks_go_into_a_long_call_where_the_whole_message_has_them() {
    let reads = [
        (0, at(100, 50)),
        (60, at(1000, 5)),
        (72, at(2000, 8)),
        (0, at(5000, 22)),
    ];
    let bytes = message(&reads, &[], None).bytes();
    let call = admitted(&bytes);
    assert_eq!(call.assembly(), Assembly::Landed);
    let found = assembled(&call);
    let message: Vec<u8> = (100..150).chain(5000..5022).map(content).collect();
    let expected = [
        &message[..60],
        &(1000..1005).map(content).collect::<Vec<u8>>(),
        &[0; 3],
        &message[60..64],
        &(2000..2008).map(content).collect::<Vec<u8>>(),
        &message[64..],
    ]
    .concat();
    assert_eq!(found, expected);
}

#[test]
fn one_chunk_stays_apart_from_the_inline_bytes() {
    let bytes = message(&[(80, at(1000, 61))], &[], None).bytes();
    let call = admitted(&bytes);
    assert_eq!(call.assembly(), Assembly::Split { at: 80 });
    assert_eq!(call.landing(), 64);
    let bytes = message(&[], &[], None).bytes();
    let call = admitted(&bytes);
    assert_eq!(call.assembly(), Assembly::Inline);
    assert_eq!(call.landing(), 0);
    assert_eq!(assembled(&call), write_call(100));
}

/// Generates the Read lists of Calls. Some of the Calls are long Calls. The Position-Zero chunk of
/// a long Call has two to four segments, every other chunk has one to three. Between the chunks
/// there may be gaps, whose lengths are multiples of four bytes.
fn reads() -> impl Strategy<Value = (Vec<Entry>, u32)> {
    let lengths = vec(0u32..30, 1..4);
    let chunks = vec((lengths, 0u32..4, any::<bool>()), 0..8);
    (chunks, vec(0u32..90, 0..4)).prop_map(|(chunks, message)| {
        let mut entries: Vec<Entry> = Vec::new();
        let mut position = 56;
        let mut body = position;
        for (n, (lengths, gap, early)) in (0u64..).zip(chunks) {
            position += 4 * gap;
            body += 4 * gap;
            let mut total = 0;
            for length in lengths {
                let entry = (position, at(1000 * n + u64::from(total), length));
                if early {
                    entries.insert(0, entry);
                } else {
                    entries.push(entry);
                }
                total += length;
            }
            position += total.next_multiple_of(4).max(4);
            if total == 0 {
                // An empty chunk is followed by a word of the message, so that the next chunk has a
                // different Position.
                body += 4;
            }
        }
        if !message.is_empty() {
            // The Position-Zero chunk has enough bytes for the Positions of all other chunks.
            entries.push((0, at(90_000, body)));
            for (n, length) in (0u64..).zip(&message) {
                let place = entries.len() / 2;
                entries.insert(place, (0, at(100_000 + 1000 * n, *length)));
            }
        }
        (entries, body)
    })
}

// covers: RSP-070
#[test]
fn any_chunks_make_the_message_that_was_meant() {
    let config = Config {
        cases: 4_000,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
    TestRunner::new_with_rng(config, rng)
        .run(&(reads(), 0u32..60), |((reads, body), behind)| {
            let mut call = message(&reads, &[], None);
            if !call.payload.is_empty() {
                call.payload = write_call((body + behind) as usize);
            }
            let bytes = call.bytes();
            let admitted = admitted(&bytes);
            let expected = inserted(reads, &call.payload);
            prop_assert_eq!(assembled(&admitted), expected);
            Ok(())
        })
        .unwrap();
}
