// SPDX-License-Identifier: GPL-2.0

//! Random messages: arbitrary bytes, and valid messages of every form.
//!
//! The test cases are the same in every run.

use crate::common::{
    chunk_words,
    rpc,
    Message,
    NOMSG,
    REPLY,
    VERSIONS,
    XID, //
};
use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::select,
    test_runner::{
        Config,
        RngAlgorithm,
        TestRng,
        TestRunner, //
    }, //
};
use xprtrdma_proto::{
    chunk::{
        ChunkLists,
        Lists, //
    },
    classify,
    header::Fixed,
    judge,
    xdr::{
        Reader,
        Writer, //
    },
    Counter,
    Credits,
    Error,
    Handle,
    Inbound,
    Offer,
    PrivateData,
    ReadChunk,
    Segment,
    Verdict,
    Version,
    Xid, //
};

/// Returns a test runner that generates the same cases every time.
fn runner(cases: u32) -> TestRunner {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    TestRunner::new_with_rng(config, rng)
}

fn version() -> impl Strategy<Value = Version> {
    select(&VERSIONS[..])
}

fn segment() -> impl Strategy<Value = Segment> {
    (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(handle, length, offset)| Segment {
        handle: Handle(handle),
        length,
        offset,
    })
}

fn chunk() -> impl Strategy<Value = Vec<Segment>> {
    vec(segment(), 0..18)
}

/// Returns words that occur in headers, so that random bytes pass more checks.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 0u32..3,
        2 => 0u32..20,
        1 => any::<u32>(),
        1 => Just(XID),
        1 => select(vec![u32::MAX, 0x1000_0000, 0x0fff_ffff, 0x8000_0000, 0xffff_fffd]),
    ]
}

#[test]
fn any_bytes_are_sorted_and_judged() {
    let strategy = (
        version(),
        any::<bool>(),
        prop_oneof![
            vec(any::<u8>(), 0..200),
            vec(word(), 0..60).prop_map(|words| crate::common::words(&words)),
            (word(), vec(word(), 0..40), vec(any::<u8>(), 0..40)).prop_map(
                |(procedure, rest, tail)| {
                    let mut bytes = crate::common::words(&[XID, 1, 5, procedure & 7]);
                    bytes.extend(crate::common::words(&rest));
                    bytes.extend(tail);
                    bytes
                }
            ),
        ],
        vec(chunk(), 0..3),
        option::of(chunk()),
    );
    runner(40_000)
        .run(&strategy, |(version, backchannel, bytes, writes, reply)| {
            let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
            let offer = Offer {
                writes: &writes,
                reply: reply.as_deref(),
                non_data_max: 100,
                strict: backchannel,
            };
            match classify(&bytes, version, backchannel) {
                Inbound::Reply(reply) => {
                    prop_assert_eq!(reply.offset + reply.payload.len(), bytes.len());
                    prop_assert_eq!(judge(&reply, &offer), judged_slowly(&reply, &offer));
                }
                Inbound::ReverseCall(call) => {
                    prop_assert!(backchannel);
                    prop_assert_eq!(call.offset + call.payload.len(), bytes.len());
                }
                _ => {}
            }
            PrivateData::find(&bytes);
            Ok(())
        })
        .unwrap();
}

/// Judges the chunks of a Reply with a second implementation of the rules, which copies the lists
/// into vectors.
fn judged_slowly(reply: &xprtrdma_proto::inbound::Reply<'_>, offer: &Offer<'_>) -> Verdict {
    let drop = Verdict::Discard(Counter::BadChunk);
    let writes: Vec<Vec<Segment>> = reply.lists.writes.clone().map(Iterator::collect).collect();
    let chunk: Option<Vec<Segment>> = reply.lists.reply.clone().map(Iterator::collect);
    if !reply.lists.reads.is_empty() {
        return drop;
    }
    let mut mismatch = false;
    let mut measure = |returned: &[Segment], offered: &[Segment]| -> Result<u64, Verdict> {
        if returned.is_empty() {
            return Ok(0);
        }
        if returned.len() != offered.len() {
            return Err(drop);
        }
        for (back, sent) in returned.iter().zip(offered) {
            if back.length > sent.length {
                return Err(drop);
            }
            if (back.handle, back.offset) != (sent.handle, sent.offset) {
                mismatch = true;
                if offer.strict {
                    // The first error ends the check, so a length error in a later chunk is not
                    // detected.
                    return Err(Verdict::Discard(Counter::SegMismatch));
                }
            }
            let before = returned
                .iter()
                .position(|s| core::ptr::eq(s, back))
                .unwrap();
            if before + 1 < returned.len()
                && back.length < sent.length
                && returned[before + 1].length > 0
            {
                return Err(drop);
            }
        }
        let full: Vec<_> = returned.iter().map(|s| s.length).collect();
        Ok(full.iter().map(|&length| u64::from(length)).sum())
    };
    let mut placed = 0;
    if !writes.is_empty() {
        if writes.len() != offer.writes.len() {
            return drop;
        }
        for (returned, offered) in writes.iter().zip(offer.writes) {
            match measure(returned, offered) {
                Ok(total) => placed += total,
                Err(verdict) => return verdict,
            }
            if placed > u64::from(u32::MAX) {
                return drop;
            }
        }
    }
    let mut reply_len = 0;
    match (&chunk, offer.reply) {
        (None, _) if !reply.inline => return drop,
        (None, _) => {}
        (Some(_), None) => return drop,
        (Some(returned), Some(offered)) => match measure(returned, offered) {
            Ok(total) => reply_len = total,
            Err(verdict) => return verdict,
        },
    }
    let long_enough = reply_len >= 20 && reply_len % 4 == 0 && reply_len <= u64::from(u32::MAX);
    if reply.inline && reply_len != 0 || !reply.inline && !long_enough {
        return drop;
    }
    let len = if reply.inline {
        reply.payload.len() as u64
    } else {
        reply_len
    };
    let data = offer.writes.iter().any(|chunk| !chunk.is_empty());
    if data && len > u64::from(offer.non_data_max) {
        return Verdict::Fail(Error::DdpViolation, Counter::DdpViolation);
    }
    let mut notes = reply.notes;
    if writes.is_empty() && !offer.writes.is_empty() {
        notes.insert(Counter::WlistMissing);
    }
    if chunk.is_none() && offer.reply.is_some() {
        notes.insert(Counter::RchunkMissing);
    }
    if mismatch {
        notes.insert(Counter::SegMismatch);
    }
    Verdict::Accept(judge::Accept {
        grant: reply.credits,
        inline_offset: reply.offset,
        inline_len: if reply.inline { reply.payload.len() } else { 0 },
        placed: placed as u32,
        reply_len: reply_len as u32,
        notes,
    })
}

/// Returns the segments as they are after `bytes` bytes were written. The first segment is filled
/// first. The length of each returned segment is the number of bytes that were written to it.
fn filled(offered: &[Segment], bytes: u64) -> Vec<Segment> {
    let mut left = bytes;
    let fill = |segment: &Segment| {
        let length = left.min(u64::from(segment.length));
        left -= length;
        Segment {
            length: length as u32,
            ..*segment
        }
    };
    offered.iter().map(fill).collect()
}

fn total(chunk: &[Segment]) -> u64 {
    chunk.iter().map(|s| u64::from(s.length)).sum()
}

/// Returns a chunk as the client offers it: a few segments of moderate length.
fn offered() -> impl Strategy<Value = Vec<Segment>> {
    vec((segment(), 1u32..100_000), 1..17).prop_map(|pairs| {
        let one = |(segment, length)| Segment { length, ..segment };
        pairs.into_iter().map(one).collect()
    })
}

#[test]
fn replies_derived_from_the_offer_are_judged() {
    let strategy = (
        version(),
        vec(offered(), 0..3),
        option::of(offered()),
        any::<bool>(),
        any::<[u16; 4]>(),
        option::weighted(0.6, (any::<u16>(), any::<u32>())),
    );
    let accepted = std::cell::Cell::new(0);
    let refused = std::cell::Cell::new(0);
    runner(40_000)
        .run(
            &strategy,
            |(version, writes, room, strict, fill, change)| {
                let part = |chunk: &[Segment], share: u16| {
                    // The smallest and the largest values are frequent, so that empty and full
                    // chunks occur.
                    let share = u64::from(share.saturating_sub(8000).min(50_000));
                    filled(chunk, total(chunk) * share / 50_000)
                };
                let inline = room.is_none() || fill[3] & 1 == 0;
                let returned: Vec<Vec<Segment>> = writes
                    .iter()
                    .zip(fill)
                    .map(|(chunk, share)| part(chunk, share))
                    .collect();
                let reply = room.as_ref().map(|chunk| {
                    let share = if inline { 0 } else { fill[2] };
                    let mut back = part(chunk, share);
                    let rest = total(&back) % 4;
                    back = filled(chunk, total(&back) - rest);
                    back
                });
                let back: Vec<&[Segment]> = returned.iter().map(Vec::as_slice).collect();
                let mut message = if inline {
                    Message::reply(version)
                } else {
                    Message::long_reply(version)
                };
                message = message.chunks(&back, reply.as_deref());
                if let Some((at, value)) = change {
                    let at = usize::from(at) % message.body.len();
                    message.body[at] = match value & 7 {
                        0 => message.body[at].wrapping_add(1),
                        1 => message.body[at].wrapping_sub(1),
                        2 => 0,
                        3 => 1,
                        _ => value,
                    };
                }
                let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
                let offer = Offer {
                    writes: &writes,
                    reply: room.as_deref(),
                    non_data_max: 60_000,
                    strict,
                };
                let bytes = message.bytes();
                let Inbound::Reply(reply) = classify(&bytes, version, false) else {
                    prop_assert!(change.is_some());
                    refused.set(refused.get() + 1);
                    return Ok(());
                };
                let verdict = judge(&reply, &offer);
                prop_assert_eq!(verdict, judged_slowly(&reply, &offer));
                match verdict {
                    Verdict::Accept(_) => accepted.set(accepted.get() + 1),
                    _ => refused.set(refused.get() + 1),
                }
                Ok(())
            },
        )
        .unwrap();
    // Both implementations of the rules for chunks must accept some messages and refuse others.
    assert!(accepted.get() > 4000);
    assert!(refused.get() > 4000);
}

#[test]
fn decoding_undoes_encoding() {
    let strategy = (
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>()),
        vec((any::<u32>(), segment()), 0..20),
        vec(chunk(), 0..5),
        option::of(chunk()),
        vec(any::<u8>(), 0..40),
    );
    runner(10_000)
        .run(&strategy, |(fixed, reads, writes, reply, payload)| {
            let (xid, version, credits, procedure) = fixed;
            let fixed = Fixed {
                xid: Xid(xid),
                version,
                credits: Credits(credits),
                procedure,
            };
            let chunks: Vec<ReadChunk<'_>> = reads
                .iter()
                .map(|(position, segment)| ReadChunk {
                    position: *position,
                    segments: core::slice::from_ref(segment),
                })
                .collect();
            let slices: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
            let lists = ChunkLists {
                reads: &chunks,
                writes: &slices,
                reply: reply.as_deref(),
            };
            let len = 16 + lists.encoded_len();
            let mut bytes = vec![0; len];
            let mut out = Writer::new(&mut bytes);
            fixed.encode(&mut out).unwrap();
            lists.encode(&mut out).unwrap();
            prop_assert!(out.array([0]).is_err());
            bytes.extend(&payload);
            let mut input = Reader::new(&bytes);
            prop_assert_eq!(Fixed::decode(&mut input).unwrap(), fixed);
            let decoded = Lists::decode(&mut input).unwrap();
            prop_assert_eq!(input.rest(), &payload[..]);
            prop_assert_eq!(decoded.reads.clone().count(), reads.len());
            prop_assert_eq!(decoded.writes.len(), writes.len());
            let found: Vec<_> = decoded.reads.map(|e| (e.position, e.segment)).collect();
            prop_assert_eq!(found, reads);
            for (found, expected) in decoded.writes.zip(&writes) {
                prop_assert_eq!(found.len(), expected.len());
                prop_assert_eq!(&found.collect::<Vec<_>>(), expected);
            }
            let found = decoded.reply.map(Iterator::collect::<Vec<_>>);
            prop_assert_eq!(found, reply);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_message_that_decodes_is_the_one_its_lists_encode_to() {
    let sparse = prop_oneof![6 => Just(0), 2 => Just(1), 2 => word()];
    let strategy = vec(sparse, 3..60);
    let decoded = std::cell::Cell::new(0);
    runner(40_000)
        .run(&strategy, |words| {
            let bytes = crate::common::words(&words);
            let mut input = Reader::new(&bytes);
            let Ok(lists) = Lists::decode(&mut input) else {
                return Ok(());
            };
            decoded.set(decoded.get() + 1);
            let mut again = Vec::new();
            for entry in lists.reads {
                again.extend([1, entry.position]);
                again.extend(crate::common::segment_words(&entry.segment));
            }
            again.push(0);
            for chunk in lists.writes {
                again.extend(chunk_words(&chunk.collect::<Vec<_>>()));
            }
            again.push(0);
            match lists.reply {
                Some(chunk) => again.extend(chunk_words(&chunk.collect::<Vec<_>>())),
                None => again.push(0),
            }
            prop_assert_eq!(&words[..again.len()], &again[..]);
            prop_assert_eq!(input.rest().len(), bytes.len() - again.len() * 4);
            Ok(())
        })
        .unwrap();
    assert!(decoded.get() > 4000);
}

#[test]
fn the_longest_message_is_walked_once() {
    // The largest possible Receive, filled with the shortest list entries. If the work were
    // quadratic, the test would be noticeably slow.
    for procedure in [0, NOMSG] {
        for version in VERSIONS {
            let empty: Vec<&[Segment]> = vec![&[]; 32_000];
            let mut message = Message::reply(version).chunks(&empty, None);
            message.procedure = procedure;
            message.payload = rpc(XID, REPLY, 24);
            let bytes = message.bytes();
            let reply = crate::common::reply_of(&bytes, version);
            assert_eq!(reply.lists.writes.len(), 32_000);
            let verdict = judge(&reply, &Offer::default());
            assert_eq!(verdict, Verdict::Discard(Counter::BadChunk));
        }
    }
}
