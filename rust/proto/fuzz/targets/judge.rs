// SPDX-License-Identifier: GPL-2.0

//! Fuzzes the function `judge` with replies to calls that offer arbitrary chunks. Every correct
//! reply must be accepted. An incorrect reply may be accepted, too, but the lengths in the result
//! must not exceed those of the offered chunks and of the message.

use super::source::Source;
use xprtrdma_proto::{
    chunk::{
        ChunkLists,
        ReadChunk, //
    },
    classify,
    judge::{
        invalidated,
        Accept,
        Invalidated, //
    },
    predict::{
        predicted,
        Expected, //
    },
    xdr::Writer,
    Handle,
    Inbound,
    Offer,
    Segment,
    Verdict,
    Version, //
};

const XID: u32 = 0x1a2b_3c4d;

/// Returns the chunk after `bytes` bytes were written to it from the beginning.
fn filled(offered: &[Segment], mut bytes: u64) -> Vec<Segment> {
    let mut chunk = offered.to_vec();
    for segment in &mut chunk {
        segment.length = bytes.min(u64::from(segment.length)) as u32;
        bytes -= u64::from(segment.length);
    }
    chunk
}

fn total(chunk: &[Segment]) -> u64 {
    chunk.iter().map(|segment| u64::from(segment.length)).sum()
}

fn bend(chunk: &mut Vec<Segment>, source: &mut Source<'_>) {
    match source.below(6) {
        0 => chunk.push(Segment::default()),
        1 => {
            chunk.pop();
        }
        2 => chunk.clear(),
        n => {
            let at = usize::from(source.u8());
            let len = chunk.len().max(1);
            if let Some(segment) = chunk.get_mut(at % len) {
                match n {
                    3 => segment.length = source.length(),
                    4 => segment.handle = Handle(source.u32()),
                    _ => segment.offset = source.u64(),
                }
            }
        }
    }
}

fn message(
    version: Version,
    long: bool,
    lists: &ChunkLists<'_>,
    payload: usize,
) -> (Vec<u8>, usize) {
    let fixed = [XID, version.number(), 7, u32::from(long), 1];
    let words = version.fixed_len() / 4;
    let mut bytes: Vec<u8> = fixed[..words]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    let header = bytes.len() + lists.encoded_len();
    bytes.resize(header, 0);
    let mut out = Writer::new(&mut bytes[words * 4..]);
    lists.encode(&mut out).expect("room for the lists");
    assert!(out.array([0]).is_err());
    if !long {
        bytes.extend([XID, 1].iter().flat_map(|word| word.to_be_bytes()));
        bytes.resize(header + payload, 0);
    }
    (bytes, header)
}

/// Builds the chunks that a call offers. Builds a Reply to the call, and judges the Reply.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let flags = source.u8();
    let long = flags & 1 != 0;
    let version = if flags & 2 != 0 {
        Version::V2
    } else {
        Version::V1
    };
    let offered: Vec<Vec<Segment>> = (0..flags >> 6).map(|_| source.segments(16)).collect();
    let offered_reply = (flags & 4 != 0).then(|| source.segments(16));
    let writes: Vec<&[Segment]> = offered.iter().map(Vec::as_slice).collect();
    let offer = Offer {
        writes: &writes,
        reply: offered_reply.as_deref(),
        non_data_max: source.length(),
        strict: flags & 8 != 0,
    };
    let mut honest = true;
    let mut placed = 0u64;
    let mut returned: Vec<Vec<Segment>> = Vec::new();
    for chunk in &offered {
        let bytes = u64::from(source.u32()).min(total(chunk));
        placed += bytes;
        returned.push(filled(chunk, bytes));
    }
    let room = offered_reply.as_deref().map_or(0, total);
    let reply_len = if long {
        u64::from(source.u32()).min(room) & !3
    } else {
        0
    };
    let mut returned_reply = offered_reply
        .as_deref()
        .map(|chunk| filled(chunk, reply_len));
    let payload = 20 + usize::from(source.u8());
    let mut reads = Vec::new();
    while !source.is_empty() {
        honest = false;
        let which = source.u8();
        match (which & 3, &mut returned_reply) {
            (0, Some(chunk)) => bend(chunk, &mut source),
            (0, none) => *none = Some(source.segments(3)),
            (1, some) => *some = None,
            (2, _) if which & 4 != 0 => returned.push(source.segments(3)),
            (2, _) if which & 8 != 0 => reads = source.segments(2),
            _ => {
                let len = returned.len().max(1);
                if let Some(chunk) = returned.get_mut(usize::from(which >> 4) % len) {
                    bend(chunk, &mut source);
                }
            }
        }
    }
    let returned: Vec<&[Segment]> = returned.iter().map(Vec::as_slice).collect();
    let read_chunk = [ReadChunk {
        position: 0,
        segments: &reads,
    }];
    let lists = ChunkLists {
        reads: &read_chunk,
        writes: &returned,
        reply: returned_reply.as_deref(),
    };
    let (bytes, header) = message(version, long, &lists, payload);
    let foreseen = foreseen(&bytes, version, &offer);
    let Inbound::Reply(reply) = classify(&bytes, version, true) else {
        assert_eq!(foreseen, None);
        // A long message without a Reply chunk, or a message with a Read list, need not be
        // classified as a Reply.
        assert!(long || !reads.is_empty());
        return;
    };
    assert_eq!(reply.offset, header);
    let verdict = xprtrdma_proto::judge(&reply, &offer);
    if let Some(accept) = foreseen {
        assert_eq!(verdict, Verdict::Accept(accept));
    }
    let data = offered.iter().any(|chunk| !chunk.is_empty());
    let len = if long { reply_len } else { payload as u64 };
    let misplaced = data && len > u64::from(offer.non_data_max);
    let fits = !long || (offered_reply.is_some() && reply_len >= 20);
    let countable = placed <= u64::from(u32::MAX) && reply_len <= u64::from(u32::MAX);
    match verdict {
        Verdict::Accept(accept) => {
            assert!(u64::from(accept.placed) <= offered.iter().map(|c| total(c)).sum());
            assert!(u64::from(accept.reply_len) <= room);
            assert!(accept.inline_offset + accept.inline_len <= bytes.len());
            assert!(reads.is_empty());
            if honest {
                assert!(fits && countable && !misplaced);
                assert_eq!(u64::from(accept.placed), placed);
                assert_eq!(u64::from(accept.reply_len), reply_len);
            }
        }
        Verdict::Fail(..) => assert!(!honest || misplaced),
        Verdict::Discard(_) => assert!(!honest || !fits || !countable),
    }
    keys(&offered);
}

/// Returns the lengths that the header prediction finds in a reply. Returns `None` in two cases:
/// the reply to a call with these chunks cannot be predicted, or the bytes differ from the
/// prediction.
fn foreseen(bytes: &[u8], version: Version, offer: &Offer<'_>) -> Option<Accept> {
    let expected = match (offer.writes, offer.reply) {
        ([], None) => Expected::Inline,
        ([[segment]], None) => Expected::Write(segment, offer.non_data_max),
        ([], Some([segment])) => Expected::Reply(segment),
        _ => return None,
    };
    predicted(bytes, version, expected)
}

/// Checks that `invalidated` finds a region for each key of a call, and no region for any other
/// key.
fn keys(offered: &[Vec<Segment>]) {
    let own: Vec<Handle> = offered.iter().flatten().map(|s| s.handle).collect();
    for (index, &key) in own.iter().enumerate() {
        let Invalidated::Own(found, _) = invalidated(Some(key), own.iter().copied(), true) else {
            panic!("a key of this call is foreign");
        };
        assert!(found <= index && own[found] == key);
    }
    let foreign = (0..).map(Handle).find(|key| !own.contains(key));
    assert_eq!(
        invalidated(foreign, own.iter().copied(), false),
        Invalidated::Foreign
    );
    assert_eq!(
        invalidated(None, own.iter().copied(), true),
        Invalidated::Nothing
    );
}
