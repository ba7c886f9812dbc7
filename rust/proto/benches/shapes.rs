// SPDX-License-Identifier: GPL-2.0

//! Runs the common operations, so that `tools/bench-host` can count their instructions.
//!
//! `shapes NAME` runs three operations [`ROUNDS`] times for an RPC of the given shape: it plans the
//! Call, encodes its header, and judges the Reply. `tools/bench-host` counts the instructions of
//! the three functions whose names begin with `measured_`.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::panic
)]

use std::{
    env,
    hint::black_box, //
};

use xprtrdma_proto::{
    chunk::{
        ChunkLists,
        ReadChunk, //
    },
    classify,
    credit::ForwardCredits,
    judge,
    judge::Accept,
    plan,
    plan::{
        CallShape,
        Limits,
        Plan,
        ReplyShape,
        SegmentCounts, //
    },
    predict::{
        call_xid,
        predicted,
        Expected, //
    },
    CallHeader,
    CallPlan,
    Credits,
    Error,
    Handle,
    Inbound,
    Offer,
    ReplyPlan,
    Segment,
    Thresholds,
    Verdict,
    Version,
    Xid, //
};

const ROUNDS: u32 = 200;
const XID: Xid = Xid(0x1a2b_3c4d);

/// An RPC as the NFS client sends it.
struct Shape {
    name: &'static str,
    call: CallShape,
    reply: ReplyShape,
    counts: SegmentCounts,
    /// Number of bytes of the reply that arrive inline.
    inline: usize,
    /// Number of bytes of the reply that arrive in chunks.
    chunk: u32,
}

const fn call(head: u32, pages: u32) -> CallShape {
    CallShape {
        head,
        pages,
        tail: 0,
        tail_padded: true,
        eligible: pages != 0,
    }
}

const fn reply(head: u32, pages: u32, eligible: bool) -> ReplyShape {
    ReplyShape {
        head,
        pages,
        tail: 0,
        eligible,
    }
}

const fn counts(read: usize, write: usize, reply: usize) -> SegmentCounts {
    SegmentCounts {
        read,
        call: 1,
        write,
        reply,
    }
}

const SHAPES: [Shape; 7] = [
    Shape {
        name: "getattr",
        call: call(160, 0),
        reply: reply(140, 0, false),
        counts: counts(0, 0, 1),
        inline: 112,
        chunk: 0,
    },
    Shape {
        name: "read-4k",
        call: call(172, 0),
        reply: reply(128, 4096, true),
        counts: counts(0, 1, 2),
        inline: 128,
        chunk: 4096,
    },
    Shape {
        name: "read-1m",
        call: call(172, 0),
        reply: reply(128, 1 << 20, true),
        counts: counts(0, 1, 2),
        inline: 128,
        chunk: 1 << 20,
    },
    Shape {
        name: "read-1m-8-segments",
        call: call(172, 0),
        reply: reply(128, 1 << 20, true),
        counts: counts(0, 8, 9),
        inline: 128,
        chunk: 1 << 20,
    },
    Shape {
        name: "write-4k",
        call: call(180, 4096),
        reply: reply(188, 0, false),
        counts: counts(1, 0, 1),
        inline: 160,
        chunk: 0,
    },
    Shape {
        name: "write-1m",
        call: call(180, 1 << 20),
        reply: reply(188, 0, false),
        counts: counts(1, 0, 1),
        inline: 160,
        chunk: 0,
    },
    Shape {
        name: "readdir",
        call: call(180, 0),
        reply: reply(128, 65536, false),
        counts: counts(0, 1, 2),
        inline: 0,
        chunk: 32768,
    },
];

#[inline(never)]
fn measured_plan(shape: &Shape, limits: &Limits) -> Result<Plan, Error> {
    plan(&shape.call, &shape.reply, &shape.counts, true, limits)
}

#[inline(never)]
fn measured_encode(header: &CallHeader<'_>, buf: &mut [u8]) -> Result<usize, Error> {
    header.encode(buf)
}

#[inline(never)]
fn measured_judge(message: &[u8], offer: &Offer<'_>, credits: &mut ForwardCredits) -> u64 {
    let Some(accept) = foreseen(message, offer).or_else(|| judged(message, offer)) else {
        return 0;
    };
    credits.accept(accept.grant);
    u64::from(accept.placed) + u64::from(accept.reply_len) + accept.inline_len as u64
}

#[inline(always)]
fn foreseen(message: &[u8], offer: &Offer<'_>) -> Option<Accept> {
    call_xid(message, Version::V1)?;
    let expected = match (offer.writes, offer.reply) {
        ([], None) => Expected::Inline,
        ([[segment]], None) => Expected::Write(segment, offer.non_data_max),
        ([], Some([segment])) => Expected::Reply(segment),
        _ => return None,
    };
    predicted(message, Version::V1, expected)
}

fn judged(message: &[u8], offer: &Offer<'_>) -> Option<Accept> {
    let Inbound::Reply(reply) = classify(message, Version::V1, true) else {
        return None;
    };
    match judge(&reply, offer) {
        Verdict::Accept(accept) => Some(accept),
        _ => None,
    }
}

fn segments(count: usize, bytes: u32) -> Vec<Segment> {
    (0..count)
        .map(|n| Segment {
            handle: Handle(0x100 * (n as u32 + 1)),
            length: bytes / count as u32,
            offset: 0,
        })
        .collect()
}

/// Builds the Reply. Its chunks are filled from the front with `shape.chunk` bytes.
fn answer(shape: &Shape, offer: &Offer<'_>) -> Vec<u8> {
    let long = offer.reply.is_some();
    let mut left = shape.chunk;
    let mut fill = |chunk: &[Segment], words: &mut Vec<u32>| {
        words.extend([1, chunk.len() as u32]);
        for segment in chunk {
            let length = left.min(segment.length);
            left -= length;
            words.extend([segment.handle.0, length, 0, 0]);
        }
    };
    let mut words = vec![XID.0, 1, 32, u32::from(long), 0];
    for chunk in offer.writes {
        fill(chunk, &mut words);
    }
    words.push(0);
    match offer.reply {
        Some(chunk) => fill(chunk, &mut words),
        None => words.push(0),
    }
    if !long {
        words.extend([XID.0, 1]);
        words.resize(words.len() + shape.inline / 4 - 2, 0);
    }
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn main() {
    // If no shape is named, the program only prints the names of the shapes. `cargo bench` passes
    // only `--bench`, which names no shape.
    let Some(name) = env::args().nth(1).filter(|name| name != "--bench") else {
        println!("tools/bench-host counts the instructions of:");
        SHAPES.iter().for_each(|shape| println!("{}", shape.name));
        return;
    };
    let Some(shape) = SHAPES.iter().find(|shape| shape.name == name) else {
        panic!("no such shape");
    };
    let limits = Limits {
        version: Version::V1,
        thresholds: Thresholds {
            call: 4096,
            reply: 4096,
            remote_invalidation: true,
        },
        segments: 16,
    };
    let planned = measured_plan(shape, &limits).unwrap();
    let read = match planned.call {
        CallPlan::ReadChunk { length, .. } => segments(shape.counts.read, length),
        _ => vec![],
    };
    let reads = [ReadChunk {
        position: shape.call.head,
        segments: &read,
    }];
    let (write, replied) = match planned.reply {
        ReplyPlan::Inline => (vec![], vec![]),
        ReplyPlan::WriteChunk { length } => (segments(shape.counts.write, length), vec![]),
        ReplyPlan::ReplyChunk { length } => (vec![], segments(shape.counts.reply, length)),
    };
    let writes = [write.as_slice()];
    let lists = ChunkLists {
        reads: &reads[..usize::from(!read.is_empty())],
        writes: &writes[..usize::from(!write.is_empty())],
        reply: (!replied.is_empty()).then_some(&replied),
    };
    let header = CallHeader {
        version: Version::V1,
        xid: XID,
        credits: Credits(64),
        lists,
    };
    let offer = Offer {
        writes: lists.writes,
        reply: lists.reply,
        non_data_max: 512,
        strict: false,
    };
    let message = answer(shape, &offer);
    let mut credits = ForwardCredits::new(64);
    let mut buf = [0; 1324];
    for _ in 0..ROUNDS {
        let found = measured_plan(black_box(shape), black_box(&limits));
        assert_eq!(found, Ok(planned));
        let len = measured_encode(black_box(&header), black_box(&mut buf));
        assert_eq!(len, Ok(planned.header_len));
        let bytes = measured_judge(black_box(&message), black_box(&offer), &mut credits);
        assert_eq!(bytes, u64::from(shape.chunk) + shape.inline as u64);
    }
}
