// SPDX-License-Identifier: GPL-2.0

//! Passes arbitrary bytes to the responder as a message from a client. Checks three things:
//!
//! - The responder accesses only memory that the message offers.
//! - The responder admits exactly the Calls that a second implementation of the rules admits.
//! - If a Call is admitted, the reply is correct.

use super::source::Source;
use std::collections::BTreeMap;
use xprtrdma_proto::{
    chunk::Lists,
    header::Fixed,
    responder::{
        admit::{
            Admitted,
            Ready,
            Terms,
            MAX_ITEMS,
            MAX_SEGMENTS,
            MAX_WRITES, //
        },
        call::Call,
        grant::{
            Grant,
            GrantBounds,
            Granted, //
        },
        pour::Span,
        refusal::Fault,
        sort::{
            sort,
            Arrival, //
        },
        spoken::Spoken,
        stream::Fill,
    },
    xdr::Reader,
    Credits,
    Handle,
    Segment,
    Version, //
};

/// Checks a message. The eight bytes before the message select the reply and the limits of the
/// connection ([`Terms`]).
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let terms = Terms {
        spoken: if source.bool() {
            Spoken::One
        } else {
            Spoken::Both
        },
        reply_threshold: 1024 * (1 + u32::from(source.below(4))),
        reply_threshold_v2: 4096,
        longest_call: source.length() & 0xf_ffff,
    };
    let choice = source.u32();
    let message = source.rest();
    let spoken = terms.spoken;
    match sort(message, spoken) {
        Arrival::Call(call) => {
            let version = call.version();
            assert!(message.len() >= version.min_header_len());
            assert_eq!(version.number().to_be_bytes(), message[4..8]);
            assert!(
                version == Version::V1 || (spoken == Spoken::Both && message[16..20] == [0; 4])
            );
            let lists = lists(message, version);
            let inline = (message[15] == 0).then_some(message.len() - header_len(message, version));
            let fine = admissible(&lists, inline, version, &terms);
            match call.admit(&terms) {
                Ok(call) => {
                    assert!(fine);
                    admitted(call, message, &lists, &terms, choice);
                }
                // `admissible` does not check the RPC header. So a Call with data in Read chunks
                // can be refused although `admissible` accepts it.
                Err(refusal) => {
                    assert!(!fine || lists.reads.clone().any(|entry| entry.position != 0));
                    assert_eq!(refusal.xid.0.to_be_bytes(), message[..4]);
                }
            }
        }
        Arrival::Refuse(refusal) => {
            assert!(message.len() >= 28 && message[12..16] != [0, 0, 0, 4]);
            let mut answer = [0xee; 28];
            let len = refusal.encode(granted(), &mut answer).expect("room");
            assert_eq!(answer[..8], message[..8]);
            let of_other = matches!(refusal.fault, Fault::Version(_));
            assert_eq!(len, if of_other { 28 } else { 20 });
            // In version two the header contains the direction, and a Reply gets no response.
            if message[4..8] == [0, 0, 0, 2] && spoken == Spoken::Both {
                let unknown = message[12..16] > [0, 0, 0, 1][..];
                assert!(!of_other && (unknown || message[16..20] != [0, 0, 0, 1]));
            }
        }
        Arrival::ReverseReply(reply) => {
            assert!(reply.payload.len() >= 20 && message.ends_with(reply.payload));
        }
        Arrival::ReverseError(xid) => assert_eq!(xid.0.to_be_bytes(), message[..4]),
        Arrival::Drop(_) => {}
    }
}

fn granted() -> Granted {
    let mut grant = Grant::new(GrantBounds {
        least: 1,
        most: 1,
        reserved: 0,
        spare: 0,
    });
    let ticket = grant.begin(Some(Credits(1))).expect("the first Call");
    grant.posted(1);
    grant.answer(ticket).expect("a grant")
}

fn lists(message: &[u8], version: Version) -> Lists<'_> {
    Lists::decode(&mut Reader::new(&message[version.fixed_len()..]))
        .expect("they were decoded before")
}

fn header_len(message: &[u8], version: Version) -> usize {
    let mut input = Reader::new(&message[version.fixed_len()..]);
    Lists::decode(&mut input).expect("they were decoded before");
    message.len() - input.rest().len()
}

/// Returns whether RFC 8166 allows a Call with these chunk lists. `inline` is the number of bytes
/// of the RPC message in the Send, or `None` if the RPC message is not in the Send.
fn admissible(lists: &Lists<'_>, inline: Option<usize>, version: Version, terms: &Terms) -> bool {
    let mut chunks: BTreeMap<u32, u64> = BTreeMap::new();
    let results = lists.writes.clone().flatten();
    let results: Vec<Segment> = results
        .chain(lists.reply.clone().into_iter().flatten())
        .collect();
    let mut all = results.len();
    let inside = |segment: &Segment| {
        let end = u128::from(segment.offset) + u128::from(segment.length);
        end <= 1 << 64 || segment.length == 0
    };
    let mut fine = results.iter().all(inside) && lists.writes.len() <= MAX_WRITES;
    for entry in lists.reads.clone() {
        all += 1;
        fine &= entry.position % 4 == 0 && inside(&entry.segment);
        *chunks.entry(entry.position).or_default() += u64::from(entry.segment.length);
    }
    let zero = chunks.remove(&0);
    fine &= all <= MAX_SEGMENTS && chunks.len() <= MAX_ITEMS;
    let body = match (inline, zero) {
        (Some(inline), None) => inline as u64,
        (None, Some(zero)) if (8..1 << 32).contains(&zero) => zero,
        _ => return false,
    };
    // Each chunk and its pad make the unreduced message longer.
    let (mut grown, mut free) = (body, 0);
    for (position, length) in &chunks {
        let padded = length.next_multiple_of(4);
        fine &= *position >= 40 && u64::from(*position) >= free;
        fine &= u64::from(*position) <= grown;
        grown += padded;
        free = u64::from(*position) + padded;
    }
    fine &= grown <= u64::from(terms.longest_call);
    let sum = |chunk: &mut dyn Iterator<Item = Segment>| -> u64 {
        chunk.map(|segment| u64::from(segment.length)).sum()
    };
    let mut header = version.min_header_len() as u64;
    for chunk in lists.writes.clone() {
        header += 8 + 16 * chunk.len() as u64;
        fine &= sum(&mut chunk.into_iter()) < 1 << 32;
    }
    let mut room = 0;
    if let Some(chunk) = lists.reply.clone() {
        header += 4 + 16 * chunk.len() as u64;
        room = sum(&mut chunk.into_iter());
    }
    if room < 20 {
        header += 20;
    }
    fine && room < 1 << 32 && header <= u64::from(terms.longest_message(version))
}

/// Returns true if an access is inside a segment.
fn within(segments: &[Segment], handle: Handle, offset: u64, length: u32) -> bool {
    segments.iter().any(|segment| {
        let end = |offset: u64, length: u32| u128::from(offset) + u128::from(length);
        segment.handle == handle
            && segment.offset <= offset
            && end(offset, length) <= end(segment.offset, segment.length)
    })
}

fn admitted(
    call: Call<'_, Admitted>,
    message: &[u8],
    lists: &Lists<'_>,
    terms: &Terms,
    choice: u32,
) {
    let call = call.park().resume(message).expect("the same message");
    assert!(call.landing() <= terms.longest_call);
    let offered: Vec<Segment> = lists.reads.clone().map(|entry| entry.segment).collect();
    // Ranges of the read buffer, the memory in which the message is assembled. Together these
    // ranges cover each byte of the read buffer once.
    let mut ranges = Vec::new();
    for read in call.reads() {
        assert!(read.length > 0);
        assert!(within(&offered, read.handle, read.offset, read.length));
        ranges.push((read.to, read.length));
    }
    assert!(ranges.len() <= MAX_SEGMENTS + MAX_ITEMS);
    for fill in call.fills() {
        match fill {
            Fill::Copy { from, to, length } => {
                assert!((from + length) as usize <= call.payload().len());
                ranges.push((to, length));
            }
            Fill::Zero { to, length } => {
                assert!(length < 4);
                ranges.push((to, length));
            }
        }
    }
    ranges.sort_unstable();
    let mut end = 0;
    for (to, length) in ranges {
        assert_eq!(to, end);
        end += length;
    }
    assert_eq!(end, call.landing());
    // The client's memory may contain any bytes. So this test uses the end of the message as the
    // bytes that were fetched from the client's memory.
    let front = &message[message.len() - message.len().min(64)..];
    if let Ok(call) = call.fetched(front) {
        replied(&call, lists, terms, choice);
    }
}

/// Checks a reply with two results at arbitrary positions. The RPC layer has marked both results
/// for Write chunks.
fn replied(call: &Call<'_, Ready>, lists: &Lists<'_>, terms: &Terms, choice: u32) {
    let [a, b, c, d] = choice.to_be_bytes().map(u32::from);
    let total = 20 + 4 * (a * b / 4);
    let mark = |from: u32, length: u32| Span { from, length };
    let marks = [mark(24 + c, d * a), mark(24 + c + 4 * d, b)];
    let Ok(reply) = call.reply(&marks, total, terms) else {
        return;
    };
    let chunks = lists.writes.clone().flatten();
    let offered: Vec<Segment> = chunks
        .chain(lists.reply.clone().into_iter().flatten())
        .collect();
    let mut covered = vec![0; total as usize];
    let mut cover = |span: Span| {
        assert!(span.length > 0);
        let range = span.from as usize..(span.from + span.length) as usize;
        covered[range].iter_mut().for_each(|times| *times += 1);
    };
    let mut written = 0;
    for write in reply.writes() {
        assert!(within(
            &offered,
            write.handle,
            write.offset,
            write.span.length
        ));
        written += write.span.length;
        cover(write.span);
    }
    let mut inline = 0;
    for span in reply.inline() {
        inline += span.length;
        cover(span);
    }
    // Every byte of the reply is sent exactly once, except the bytes of pads, which are not sent.
    assert!(covered.iter().all(|times| *times <= 1));
    assert!(covered.iter().filter(|times| **times == 0).count() <= 6);
    let mut header = [0; 4096];
    let len = reply.encode(granted(), &mut header).expect("room");
    assert!(len as u32 + inline <= terms.longest_message(call.version()));
    let mut input = Reader::new(&header[..len]);
    let fixed = Fixed::decode(&mut input).expect("fixed words");
    assert_eq!((fixed.xid, fixed.credits), (call.xid(), Credits(1)));
    assert_eq!(fixed.version, call.version().number());
    if call.version() == Version::V2 {
        assert_eq!(input.u32(), Ok(1));
    }
    assert_eq!(fixed.procedure, u32::from(inline == 0));
    let back = Lists::decode(&mut input).expect("lists");
    assert!(input.rest().is_empty() && back.reads.is_empty());
    let flat = |lists: &Lists<'_>| -> Vec<Vec<Segment>> {
        let writes = lists.writes.clone();
        writes
            .chain(lists.reply.clone())
            .map(Iterator::collect)
            .collect()
    };
    let (sent, back) = (flat(lists), flat(&back));
    assert_eq!(sent.len(), back.len());
    let mut sum = 0;
    for (sent, back) in sent.iter().flatten().zip(back.iter().flatten()) {
        assert_eq!((sent.handle, sent.offset), (back.handle, back.offset));
        assert!(back.length <= sent.length);
        sum += back.length;
    }
    assert_eq!(sum, written);
}
