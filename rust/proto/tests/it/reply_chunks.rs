// SPDX-License-Identifier: GPL-2.0

//! Chunk lists of a Reply, compared with what the call offered, in both versions.

use crate::common::{
    chunk_words,
    fate,
    rpc,
    segment_words,
    segments,
    Fate,
    Message,
    MSG,
    NOMSG,
    REPLY,
    VERSIONS,
    XID, //
};
use xprtrdma_proto::{
    judge::{
        check_reply_chunk,
        invalidated,
        Accept,
        Invalidated, //
    },
    Counter,
    Error,
    Handle,
    Notes,
    Offer,
    Segment,
    Verdict,
    Version,
    Xid, //
};

/// Returns the outcome of a message for a waiting call, without a backchannel.
fn verdict(message: &Message, version: Version, offer: &Offer<'_>) -> Verdict {
    match fate(&message.bytes(), version, false, true, offer) {
        Fate::Judged(verdict) => verdict,
        Fate::Dropped(counter, xid) => {
            assert_eq!(xid, Some(Xid(XID)));
            Verdict::Discard(counter)
        }
        other => panic!("{other:?}"),
    }
}

fn accepted(message: &Message, version: Version, offer: &Offer<'_>) -> Accept {
    match verdict(message, version, offer) {
        Verdict::Accept(accept) => accept,
        other => panic!("{other:?}"),
    }
}

fn bad_chunk(message: &Message, version: Version, offer: &Offer<'_>) {
    let verdict = verdict(message, version, offer);
    assert_eq!(verdict, Verdict::Discard(Counter::BadChunk), "{message:?}");
}

fn noted(notes: Notes) -> Vec<Counter> {
    notes.iter().collect()
}

/// Returns the offered segments with the lengths `lengths`.
fn returned(offered: &[Segment], lengths: &[u32]) -> Vec<Segment> {
    assert_eq!(offered.len(), lengths.len());
    let pairs = offered.iter().zip(lengths);
    pairs
        .map(|(segment, &length)| Segment { length, ..*segment })
        .collect()
}

fn write_offer<'a>(writes: &'a [&'a [Segment]]) -> Offer<'a> {
    Offer {
        writes,
        non_data_max: 200,
        ..Offer::default()
    }
}

fn reply_offer(reply: &[Segment]) -> Offer<'_> {
    Offer {
        reply: Some(reply),
        ..Offer::default()
    }
}

// covers: V1-047, MAL-050, MAL-193
#[test]
fn a_read_list_in_a_reply_is_refused() {
    let segment = segments(&[4])[0];
    let mut reads = vec![1, 64];
    reads.extend(segment_words(&segment));
    reads.push(0);
    for version in VERSIONS {
        let body: Vec<u32> = reads.iter().copied().chain([0, 0]).collect();
        bad_chunk(
            &Message::reply(version).body(&body),
            version,
            &Offer::default(),
        );
        // The test puts the same Read list into an `RDMA_NOMSG`, in which everything else is
        // correct.
        let offered = segments(&[64]);
        let mut body = reads.clone();
        body.push(0);
        body.extend(chunk_words(&offered));
        let message = Message::long_reply(version).body(&body);
        if version == Version::V2 {
            bad_chunk(&message, version, &reply_offer(&offered));
            continue;
        }
        // The header contains no direction, so the message counts as a Call. No Call is expected
        // here, so the message is dropped.
        let offer = reply_offer(&offered);
        let fate = fate(&message.bytes(), version, false, true, &offer);
        assert_eq!(fate, Fate::Dropped(Counter::BcDisabled, None));
    }
}

// covers: V1-086, MAL-051, MAL-052, MAL-053
#[test]
fn discriminators_are_zero_or_one() {
    for version in VERSIONS {
        for value in [2, 3, 0x0100_0000, 0xffff_ffff] {
            for at in 0..3 {
                let mut body = [0; 3];
                body[at] = value;
                for message in [Message::reply(version), Message::long_reply(version)] {
                    bad_chunk(&message.body(&body), version, &Offer::default());
                }
            }
            // A list cannot be decoded if the discriminator after its first entry is wrong.
            let offered = segments(&[64]);
            let writes: [&[Segment]; 1] = [&offered];
            let mut body = vec![0];
            body.extend(chunk_words(&offered));
            body.extend([value, 0]);
            bad_chunk(
                &Message::reply(version).body(&body),
                version,
                &write_offer(&writes),
            );
        }
    }
}

// covers: MAL-054
#[test]
fn lists_that_end_early_are_refused() {
    let offered = segments(&[64, 32]);
    let writes: [&[Segment]; 1] = [&offered];
    for version in VERSIONS {
        let full = Message::long_reply(version).chunks(&writes, Some(&offered));
        let offer = Offer {
            writes: &writes,
            reply: Some(&offered),
            non_data_max: 200,
            strict: true,
        };
        assert!(matches!(
            verdict(&full, version, &offer),
            Verdict::Accept(_)
        ));
        // The three words of the minimal header must be present. With fewer words the message is
        // too short.
        for words in 3..full.body.len() {
            let message = full.clone().body(&full.body[..words]);
            bad_chunk(&message, version, &offer);
            for bytes in 1..4 {
                let message = message.clone().payload(vec![0; bytes]);
                bad_chunk(&message, version, &offer);
            }
        }
        // If the message ends within the lists, the RPC message is missing as well. The reported
        // error must be that the lists cannot be decoded.
        let short = Message::reply(version).chunks(&writes, Some(&returned(&offered, &[0, 0])));
        for words in 3..short.body.len() {
            let message = short.clone().body(&short.body[..words]);
            bad_chunk(&message.payload(Vec::new()), version, &offer);
        }
    }
}

// covers: V1-111, V1-124, V2-28, MAL-055, MAL-056, MAL-191
#[test]
fn a_count_is_believed_only_as_far_as_the_message_reaches() {
    let offered = segments(&[64]);
    let writes: [&[Segment]; 1] = [&offered];
    for version in VERSIONS {
        for count in [
            2,
            3,
            0x0fff_ffff,
            0x1000_0000,
            0x1000_0001,
            0x8000_0000,
            0xffff_ffff,
        ] {
            let mut body = vec![0];
            body.extend(chunk_words(&offered));
            body[2] = count;
            body.extend([0, 0]);
            let message = Message::reply(version).body(&body).payload(Vec::new());
            bad_chunk(&message, version, &write_offer(&writes));
            let mut body = vec![0, 0];
            body.extend(chunk_words(&offered));
            body[3] = count;
            let message = Message::long_reply(version).body(&body);
            bad_chunk(&message, version, &reply_offer(&offered));
        }
    }
}

// covers: MAL-057, MAL-058, MAL-061, MAL-062
#[test]
fn the_number_of_write_chunks_is_ours() {
    let one = segments(&[64]);
    for version in VERSIONS {
        for offered in 0..4usize {
            for returned in 1..6usize {
                let writes = vec![one.as_slice(); offered];
                let reply = vec![one.as_slice(); returned];
                let message = Message::reply(version).chunks(&reply, None);
                let offer = write_offer(&writes);
                if offered == returned {
                    let accept = accepted(&message, version, &offer);
                    assert_eq!(accept.placed, 64 * u32::try_from(offered).unwrap());
                } else {
                    bad_chunk(&message, version, &offer);
                }
            }
        }
        // The maximum number of empty chunks that fit into a large message.
        let writes: [&[Segment]; 1] = [&one];
        let empty: Vec<&[Segment]> = vec![&[]; 8000];
        let message = Message::reply(version).chunks(&empty, None);
        bad_chunk(&message, version, &write_offer(&writes));
        bad_chunk(&message, version, &Offer::default());
    }
}

// covers: V1-055, V1-101, ULB-21, ULB-23, MAL-059, MAL-060, MAL-063, X-06, X-33
#[test]
fn an_unused_write_chunk_is_fine_unless_the_data_are_inline() {
    let offered = segments(&[4096, 100]);
    let writes: [&[Segment]; 1] = [&offered];
    let unused = returned(&offered, &[0, 0]);
    let offer = write_offer(&writes);
    for version in VERSIONS {
        let forms: [(&[&[Segment]], &[Counter]); 3] = [
            (&[], &[Counter::WlistMissing]),
            (&[&[]], &[]),
            (&[&unused], &[]),
        ];
        for (form, notes) in forms {
            for (len, fits) in [(24, true), (200, true), (204, false), (4000, false)] {
                let message = Message::reply(version)
                    .chunks(form, None)
                    .payload(rpc(XID, REPLY, len));
                match verdict(&message, version, &offer) {
                    Verdict::Accept(accept) => {
                        assert!(fits);
                        assert_eq!(accept.placed, 0);
                        assert_eq!(accept.inline_len, len);
                        assert_eq!(noted(accept.notes), notes);
                    }
                    other => {
                        assert!(!fits);
                        let error = Error::DdpViolation;
                        assert_eq!(other, Verdict::Fail(error, Counter::DdpViolation));
                        assert_eq!(error.to_errno(), -5);
                    }
                }
            }
        }
    }
}

// covers: V1-060, ULB-19
#[test]
fn data_come_inline_where_no_write_chunk_asked_for_them() {
    let empty: [&[Segment]; 1] = [&[]];
    for version in VERSIONS {
        for writes in [&[][..], &empty] {
            let offer = write_offer(writes);
            let message = Message::reply(version)
                .chunks(writes, None)
                .payload(rpc(XID, REPLY, 4000));
            assert_eq!(accepted(&message, version, &offer).inline_len, 4000);
        }
    }
}

// covers: V1-054, MAL-064
#[test]
fn the_number_of_segments_is_ours() {
    for version in VERSIONS {
        for offered_len in 1..17usize {
            let offered = segments(&vec![8; offered_len]);
            let writes: [&[Segment]; 1] = [&offered];
            for returned_len in 1..19usize {
                let lengths = vec![8; returned_len];
                let chunk = segments(&lengths);
                let written = Message::reply(version).chunks(&[&chunk], None);
                let long = Message::long_reply(version).chunks(&[], Some(&chunk));
                if offered_len == returned_len {
                    let total = 8 * u32::try_from(offered_len).unwrap();
                    let accept = accepted(&written, version, &write_offer(&writes));
                    assert_eq!(accept.placed, total);
                    if total >= 20 {
                        let accept = accepted(&long, version, &reply_offer(&offered));
                        assert_eq!(accept.reply_len, total);
                    }
                } else {
                    bad_chunk(&written, version, &write_offer(&writes));
                    bad_chunk(&long, version, &reply_offer(&offered));
                }
            }
        }
    }
}

// covers: V1-030, V1-062, MAL-065, MAL-067, MAL-082, MAL-089
#[test]
fn segments_are_filled_in_order_up_to_what_we_offered() {
    let offered = segments(&[100, 60, 40]);
    let writes: [&[Segment]; 1] = [&offered];
    // Each row contains the returned lengths, and their sum if the lengths are valid.
    let table: [([u32; 3], Option<u32>); 16] = [
        ([100, 60, 40], Some(200)),
        ([100, 60, 36], Some(196)),
        ([100, 60, 0], Some(160)),
        ([100, 4, 0], Some(104)),
        ([100, 0, 0], Some(100)),
        ([96, 0, 0], Some(96)),
        ([20, 0, 0], Some(20)),
        ([101, 0, 0], None),
        ([100, 61, 0], None),
        ([100, 60, 41], None),
        ([99, 1, 0], None),
        ([96, 60, 40], None),
        ([100, 56, 40], None),
        ([100, 0, 40], None),
        ([0, 60, 0], None),
        ([0, 0, 40], None),
    ];
    for version in VERSIONS {
        for (lengths, total) in table {
            let chunk = returned(&offered, &lengths);
            let written = Message::reply(version).chunks(&[&chunk], None);
            let long = Message::long_reply(version).chunks(&[], Some(&chunk));
            match total {
                Some(total) => {
                    let accept = accepted(&written, version, &write_offer(&writes));
                    assert_eq!((accept.placed, accept.reply_len), (total, 0));
                    assert!(accept.notes.is_empty());
                    let accept = accepted(&long, version, &reply_offer(&offered));
                    assert_eq!((accept.placed, accept.reply_len), (0, total));
                    assert!(accept.notes.is_empty());
                }
                None => {
                    bad_chunk(&written, version, &write_offer(&writes));
                    bad_chunk(&long, version, &reply_offer(&offered));
                }
            }
        }
    }
}

// covers: MAL-066
#[test]
fn sums_do_not_wrap() {
    let offered = segments(&[0x8000_0000, 0x8000_0000]);
    let writes: [&[Segment]; 1] = [&offered];
    let half: [&[Segment]; 2] = [&offered[..1], &offered[1..]];
    for version in VERSIONS {
        let whole = Message::reply(version).chunks(&writes, None);
        bad_chunk(&whole, version, &write_offer(&writes));
        let halves = Message::reply(version).chunks(&half, None);
        bad_chunk(&halves, version, &write_offer(&half));
        let long = Message::long_reply(version).chunks(&[], Some(&offered));
        bad_chunk(&long, version, &reply_offer(&offered));
    }
}

// covers: MAL-068, MAL-069
#[test]
fn handles_and_offsets_that_differ_are_noted() {
    let offered = segments(&[100, 60]);
    let writes: [&[Segment]; 1] = [&offered];
    type Change = fn(&mut Segment);
    let changes: [Change; 4] = [
        |segment| segment.handle = Handle(0xffff_ffff),
        |segment| segment.handle = Handle(0),
        |segment| segment.offset = u64::MAX,
        |segment| segment.offset ^= 1 << 63,
    ];
    for version in VERSIONS {
        for change in changes {
            for at in 0..2 {
                let mut chunk = offered.clone();
                change(&mut chunk[at]);
                let written = Message::reply(version).chunks(&[&chunk], None);
                let long = Message::long_reply(version).chunks(&[], Some(&chunk));
                for (message, offer) in [
                    (&written, write_offer(&writes)),
                    (&long, reply_offer(&offered)),
                ] {
                    let accept = accepted(message, version, &offer);
                    assert_eq!(accept.placed + accept.reply_len, 160);
                    assert_eq!(noted(accept.notes), [Counter::SegMismatch]);
                    let strict = Offer {
                        strict: true,
                        ..offer
                    };
                    assert_eq!(
                        verdict(message, version, &strict),
                        Verdict::Discard(Counter::SegMismatch)
                    );
                }
            }
        }
    }
}

#[test]
fn a_long_reply_may_use_both_chunks() {
    let data = segments(&[8192]);
    let writes: [&[Segment]; 1] = [&data];
    let room = segments(&[4096, 4096]);
    let offer = Offer {
        writes: &writes,
        reply: Some(&room),
        non_data_max: 5000,
        strict: true,
    };
    for version in VERSIONS {
        let used = returned(&data, &[6001]);
        let message =
            Message::long_reply(version).chunks(&[&used], Some(&returned(&room, &[4096, 904])));
        let accept = accepted(&message, version, &offer);
        assert_eq!((accept.placed, accept.reply_len), (6001, 5000));
        assert_eq!(accept.inline_len, 0);
        // The data are in the Reply chunk instead of the Write chunk.
        let message =
            Message::long_reply(version).chunks(&[&[]], Some(&returned(&room, &[4096, 908])));
        assert_eq!(
            verdict(&message, version, &offer),
            Verdict::Fail(Error::DdpViolation, Counter::DdpViolation)
        );
    }
}

#[test]
fn our_empty_write_chunk_comes_back_empty() {
    let empty: [&[Segment]; 1] = [&[]];
    for version in VERSIONS {
        for lengths in [&[64][..], &[0], &[0, 0]] {
            let chunk = segments(lengths);
            let message = Message::reply(version).chunks(&[&chunk], None);
            bad_chunk(&message, version, &write_offer(&empty));
        }
        let message = Message::reply(version).chunks(&empty, None);
        assert_eq!(accepted(&message, version, &write_offer(&empty)).placed, 0);
    }
}

// covers: V1-066, V1-068, MAL-076, MAL-077
#[test]
fn a_short_reply_does_not_use_the_reply_chunk() {
    let room = segments(&[4096, 64]);
    for version in VERSIONS {
        let absent = Message::reply(version);
        let accept = accepted(&absent, version, &reply_offer(&room));
        assert_eq!(noted(accept.notes), [Counter::RchunkMissing]);
        assert_eq!((accept.inline_len, accept.reply_len), (24, 0));
        for unused in [returned(&room, &[0, 0]), Vec::new()] {
            let message = Message::reply(version).chunks(&[], Some(&unused));
            let accept = accepted(&message, version, &reply_offer(&room));
            assert!(accept.notes.is_empty());
            assert_eq!((accept.inline_len, accept.reply_len), (24, 0));
        }
        for lengths in [[24, 0], [4096, 64], [1, 0]] {
            let message = Message::reply(version).chunks(&[], Some(&returned(&room, &lengths)));
            bad_chunk(&message, version, &reply_offer(&room));
        }
    }
}

// covers: MAL-078
#[test]
fn a_reply_chunk_that_we_did_not_offer_is_refused() {
    for version in VERSIONS {
        for procedure in [MSG, NOMSG] {
            for lengths in [&[4096][..], &[0], &[]] {
                let chunk = segments(lengths);
                let mut message = Message::reply(version).chunks(&[], Some(&chunk));
                message.procedure = procedure;
                bad_chunk(&message, version, &Offer::default());
            }
        }
    }
}

// covers: V1-069, V1-075, MAL-080, MAL-081, MAL-083, MAL-084
#[test]
fn a_long_reply_is_in_the_reply_chunk() {
    let room = segments(&[4096, 64]);
    let data = segments(&[64]);
    let writes: [&[Segment]; 1] = [&data];
    let offer = Offer {
        writes: &writes,
        non_data_max: 5000,
        ..reply_offer(&room)
    };
    for version in VERSIONS {
        bad_chunk(&Message::long_reply(version), version, &offer);
        let written = Message::long_reply(version).chunks(&writes, None);
        bad_chunk(&written, version, &offer);
        bad_chunk(
            &Message::long_reply(version).chunks(&writes, Some(&[])),
            version,
            &offer,
        );
        for length in 0..64 {
            let chunk = returned(&room, &[length, 0]);
            let message = Message::long_reply(version).chunks(&writes, Some(&chunk));
            if length >= 20 && length % 4 == 0 {
                assert_eq!(accepted(&message, version, &offer).reply_len, length);
            } else {
                bad_chunk(&message, version, &offer);
            }
        }
    }
}

// covers: MAL-085
#[test]
fn bytes_behind_a_long_reply_are_noted() {
    let room = segments(&[4096]);
    for version in VERSIONS {
        let plain = Message::long_reply(version).chunks(&[], Some(&room));
        assert!(accepted(&plain, version, &reply_offer(&room))
            .notes
            .is_empty());
        let message = plain.payload(rpc(XID, REPLY, 24));
        let accept = accepted(&message, version, &reply_offer(&room));
        assert_eq!(noted(accept.notes), [Counter::Trailing]);
        assert_eq!((accept.inline_len, accept.reply_len), (0, 4096));
    }
}

// covers: V1-070, MAL-087, MAL-088
#[test]
fn a_reply_chunk_holds_a_reply_to_the_call() {
    let good = rpc(XID, REPLY, 20);
    assert_eq!(check_reply_chunk(&good, Xid(XID)), Ok(()));
    assert_eq!(check_reply_chunk(&good[..8], Xid(XID)), Ok(()));
    let bad = [
        Vec::new(),
        good[..7].to_vec(),
        rpc(0, 0, 8),
        rpc(0, REPLY, 8),
        rpc(XID + 1, REPLY, 8),
        rpc(XID, 0, 8),
        rpc(XID, 2, 8),
        rpc(XID, 0xffff_ffff, 8),
    ];
    for front in bad {
        let result = check_reply_chunk(&front, Xid(XID));
        assert_eq!(result, Err(Error::BadPayload));
        assert_eq!(result.map_err(Error::to_errno), Err(-5));
    }
}

// covers: CM-17, CM-18, CM-19, MAL-013, MAL-014, MAL-015
#[test]
fn only_a_region_of_the_call_may_be_invalidated() {
    let regions = [Handle(0x101), Handle(0x202), Handle(0x303)];
    for agreed in [false, true] {
        assert_eq!(invalidated(None, regions, agreed), Invalidated::Nothing);
        let counter = match agreed {
            true => Counter::Reminv,
            false => Counter::ReminvUnannounced,
        };
        for (index, &rkey) in regions.iter().enumerate() {
            let found = invalidated(Some(rkey), regions, agreed);
            assert_eq!(found, Invalidated::Own(index, counter));
        }
        for rkey in [0, 0x100, 0x1_01_00, 0xffff_ffff] {
            let found = invalidated(Some(Handle(rkey)), regions, agreed);
            assert_eq!(found, Invalidated::Foreign);
        }
        let found = invalidated(Some(Handle(0x101)), [], agreed);
        assert_eq!(found, Invalidated::Foreign);
    }
}
