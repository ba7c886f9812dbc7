// SPDX-License-Identifier: GPL-2.0

//! A fuzz target that plans calls of arbitrary shapes. Each plan is encoded, and then decoded
//! again.

use super::source::Source;
use xprtrdma_proto::{
    chunk::{
        ChunkLists,
        Lists,
        ReadChunk, //
    },
    header::Fixed,
    plan,
    plan::{
        CallShape,
        Limits,
        RegionLimits,
        ReplyShape,
        Run,
        SegmentCounts, //
    },
    xdr::Reader,
    CallHeader,
    CallPlan,
    Credits,
    Error,
    Handle,
    ReplyPlan,
    Segment,
    Thresholds,
    Version,
    Xid, //
};

/// Returns `count` segments that together have `length` bytes. No segment is empty.
fn segments(count: usize, length: u32, first: u32) -> Vec<Segment> {
    let each = (length as usize / count).max(1) as u32;
    let mut chunk: Vec<Segment> = (0..count)
        .zip(first..)
        .map(|(n, handle)| Segment {
            handle: Handle(handle),
            length: each,
            offset: ((n as u64) << 32) | 0xfff,
        })
        .collect();
    let used = each.saturating_mul(count as u32 - 1);
    chunk[count - 1].length = length.saturating_sub(used).max(1);
    chunk
}

/// Checks the shape of a call, its plan and its header.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let flags = source.u8();
    let call = CallShape {
        head: source.length(),
        pages: source.length(),
        tail: source.length(),
        tail_padded: flags & 1 != 0,
        eligible: flags & 2 != 0,
    };
    let reply = ReplyShape {
        head: source.length(),
        pages: source.length(),
        tail: source.length(),
        eligible: flags & 4 != 0,
    };
    let mut count = || usize::from(source.below(20));
    let counts = SegmentCounts {
        read: count(),
        call: count(),
        write: count(),
        reply: count(),
    };
    let limits = Limits {
        version: if flags & 8 != 0 {
            Version::V2
        } else {
            Version::V1
        },
        thresholds: Thresholds {
            call: source.length(),
            reply: source.length(),
            remote_invalidation: false,
        },
        segments: usize::from(source.below(20)),
    };
    let reduce = flags & 16 != 0;
    match plan(&call, &reply, &counts, reduce, &limits) {
        Ok(found) => check(&found, &call, &reply, &counts, reduce, &limits),
        Err(error) => {
            assert_eq!(error, Error::Unbuildable);
            let fits = |head: u32, pages: u32, tail: u32, threshold: u32| {
                let inline = u64::from(head) + u64::from(pages) + u64::from(tail);
                limits.version.min_header_len() as u64 + inline <= u64::from(threshold)
            };
            // A call needs no chunk and cannot fail if both the call and its reply fit inline.
            assert!(
                !fits(call.head, call.pages, call.tail, limits.thresholds.call)
                    || !fits(reply.head, reply.pages, reply.tail, limits.thresholds.reply)
            );
        }
    }
    runs(&mut source);
}

fn check(
    found: &plan::Plan,
    call: &CallShape,
    reply: &ReplyShape,
    counts: &SegmentCounts,
    reduce: bool,
    limits: &Limits,
) {
    let total =
        |head: u32, pages: u32, tail: u32| u64::from(head) + u64::from(pages) + u64::from(tail);
    let all = total(call.head, call.pages, call.tail);
    let rest = all - u64::from(call.pages) - u64::from(call.pad());
    let (inline, reads) = match found.call {
        CallPlan::Inline => (all, vec![]),
        CallPlan::ReadChunk { position, length } => {
            (rest, vec![(position, segments(counts.read, length, 0x100))])
        }
        CallPlan::Long { length } => {
            assert_eq!(u64::from(length), all);
            (0, vec![(0, segments(counts.call, length, 0x200))])
        }
    };
    for &(position, _) in reads.iter().filter(|(position, _)| *position != 0) {
        assert!(reduce && call.eligible);
        assert_eq!(position, call.head);
        assert_eq!(position % 4, 0);
    }
    let chunk = match found.reply {
        ReplyPlan::Inline => None,
        ReplyPlan::WriteChunk { length } => {
            assert!(reduce && reply.eligible);
            assert_eq!(length, reply.pages);
            Some((true, segments(counts.write, length, 0x300)))
        }
        ReplyPlan::ReplyChunk { length } => {
            let all = total(reply.head, reply.pages, reply.tail);
            assert_eq!(u64::from(length), all);
            Some((false, segments(counts.reply, length, 0x400)))
        }
    };
    // The largest inline part of a reply fits into a Send, even with the chunks that the reply's
    // header returns.
    let inline_reply = match found.reply {
        ReplyPlan::Inline => total(reply.head, reply.pages, reply.tail),
        ReplyPlan::WriteChunk { .. } => total(reply.head, 0, reply.tail),
        ReplyPlan::ReplyChunk { .. } => 0,
    };
    let copied = match &chunk {
        None => 0,
        Some((true, chunk)) => 8 + 16 * chunk.len(),
        Some((false, chunk)) => 4 + 16 * chunk.len(),
    };
    let reply_header = (limits.version.min_header_len() + copied) as u64;
    assert!(reply_header + inline_reply <= u64::from(limits.thresholds.reply));
    let reads: Vec<ReadChunk<'_>> = reads
        .iter()
        .map(|(position, segments)| ReadChunk {
            position: *position,
            segments,
        })
        .collect();
    let write = match &chunk {
        Some((true, chunk)) => vec![chunk.as_slice()],
        _ => vec![],
    };
    let header = CallHeader {
        version: limits.version,
        xid: Xid(0x1a2b_3c4d),
        credits: Credits(32),
        lists: ChunkLists {
            reads: &reads,
            writes: &write,
            reply: match &chunk {
                Some((false, chunk)) => Some(chunk),
                _ => None,
            },
        },
    };
    let mut buf = [0xee; 1324];
    let len = header.encode(&mut buf).expect("a plan can be encoded");
    assert_eq!(len, found.header_len);
    assert_eq!(len, header.encoded_len());
    assert!(len as u64 + inline <= u64::from(limits.thresholds.call));
    assert!(buf[len..].iter().all(|&byte| byte == 0xee));
    assert_eq!(header.encode(&mut buf[..len - 1]), Err(Error::NoSpace));
    decoded(&header, &buf[..len]);
}

/// Checks that an encoded header is decoded to the same values.
fn decoded(header: &CallHeader<'_>, bytes: &[u8]) {
    let mut input = Reader::new(bytes);
    let fixed = Fixed::decode(&mut input).expect("fixed words");
    assert_eq!((fixed.xid, fixed.credits), (header.xid, header.credits));
    assert_eq!(fixed.version, header.version.number());
    let long = header.lists.reads.first().is_some_and(|c| c.position == 0);
    assert_eq!(fixed.procedure, u32::from(long));
    if header.version == Version::V2 {
        assert_eq!(input.u32(), Ok(0));
    }
    let lists = Lists::decode(&mut input).expect("chunk lists");
    assert!(input.rest().is_empty());
    let sent = header.lists.reads.iter().flat_map(|chunk| {
        let position = chunk.position;
        chunk.segments.iter().map(move |&s| (position, s))
    });
    let back = lists.reads.map(|entry| (entry.position, entry.segment));
    assert!(sent.eq(back));
    let writes: Vec<Vec<Segment>> = lists.writes.map(Iterator::collect).collect();
    assert_eq!(writes, header.lists.writes);
    let reply: Option<Vec<Segment>> = lists.reply.map(Iterator::collect);
    assert_eq!(reply.as_deref(), header.lists.reply);
}

/// Checks the number of regions that is computed for some pieces of memory. The number must be
/// large enough for all bytes of the pieces. It must not exceed the number of pages that contain
/// the pieces.
fn runs(source: &mut Source<'_>) {
    let limits = RegionLimits {
        pages: u32::from(source.u8()),
        page_size: 4096,
        gaps: source.bool(),
    };
    let runs: Vec<Run> = (0..source.below(8))
        .map(|_| Run {
            offset: u32::from(source.u16()),
            length: (u32::from(source.u16()) << 4) & 0x3_ffff,
        })
        .collect();
    let count = limits.segments(&runs);
    if limits.pages == 0 {
        assert_eq!(count, usize::MAX);
        return;
    }
    let mut bytes = 0;
    let mut most = 0;
    for run in runs.iter().filter(|run| run.length > 0) {
        bytes += run.length as usize;
        most += ((run.offset % 4096) as usize + run.length as usize).div_ceil(4096);
    }
    assert!(count <= most);
    assert!(count * limits.pages as usize * 4096 >= bytes);
}
