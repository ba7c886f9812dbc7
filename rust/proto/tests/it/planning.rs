// SPDX-License-Identifier: GPL-2.0

//! Tests of plans for calls and replies. Each limit between two forms of message is tested just
//! below and just above the limit.

use xprtrdma_proto::{
    chunk::ChunkLists,
    header::{
        MAX_SEGMENTS, //
    },
    plan::{
        plan,
        CallShape,
        Limits,
        RegionLimits,
        ReplyShape,
        Run,
        SegmentCounts, //
    },
    CallHeader,
    CallPlan,
    Credits,
    Error,
    Handle,
    Plan,
    ReadChunk,
    ReplyPlan,
    Segment,
    Thresholds,
    Version,
    Xid, //
};

/// Length in bytes of the largest possible header: in version 2, with both Read chunks, the Write
/// chunk and the Reply chunk, each with the maximum number of segments.
const MAX_HEADER_LEN: usize = 1324;

/// Returns the number of bytes in a header, computed from the layout. `read` is the number of
/// segments of the Read list. `write` is the number of segments of the Write chunk, or `None` if
/// there is no Write chunk. `reply` is the number of segments of the Reply chunk, or `None` if
/// there is no Reply chunk.
fn header_len(version: Version, read: usize, write: Option<usize>, reply: Option<usize>) -> usize {
    let fixed = match version {
        Version::V1 => 16,
        Version::V2 => 20,
    };
    let chunk = |segments: usize| 8 + 16 * segments;
    let write = write.map_or(4, |segments| chunk(segments) + 4);
    fixed + 24 * read + 4 + write + reply.map_or(4, chunk)
}

const VERSIONS: [Version; 2] = [Version::V1, Version::V2];
const ONE_EACH: SegmentCounts = SegmentCounts {
    read: 1,
    call: 1,
    write: 1,
    reply: 1,
};

fn limits(version: Version, call: u32, reply: u32) -> Limits {
    Limits {
        version,
        thresholds: Thresholds {
            call,
            reply,
            remote_invalidation: false,
        },
        segments: MAX_SEGMENTS,
    }
}

fn call(head: u32, pages: u32, tail: u32) -> CallShape {
    CallShape {
        head,
        pages,
        tail,
        tail_padded: pages % 4 != 0,
        eligible: true,
    }
}

fn reply(head: u32, pages: u32, tail: u32) -> ReplyShape {
    ReplyShape {
        head,
        pages,
        tail,
        eligible: true,
    }
}

const SMALL_CALL: CallShape = CallShape {
    head: 100,
    pages: 0,
    tail: 0,
    tail_padded: false,
    eligible: false,
};
const SMALL_REPLY: ReplyShape = ReplyShape {
    head: 100,
    pages: 0,
    tail: 0,
    eligible: false,
};

/// Builds the header that a plan needs.
fn built(plan: &Plan, counts: &SegmentCounts, version: Version) -> Result<usize, Error> {
    let segment = Segment {
        handle: Handle(1),
        length: 4,
        offset: 0,
    };
    let segments = [segment; 32];
    let body = ReadChunk {
        position: 0,
        segments: match plan.call {
            CallPlan::Long { .. } => &segments[..counts.call],
            CallPlan::Inline | CallPlan::ReadChunk { .. } => &[],
        },
    };
    let (position, data) = match plan.call {
        CallPlan::ReadChunk { position, .. } => (position, &segments[..counts.read]),
        CallPlan::Inline | CallPlan::Long { .. } => (4, &[][..]),
    };
    let data = ReadChunk {
        position,
        segments: data,
    };
    let mut reads = vec![body, data];
    reads.retain(|chunk| !chunk.segments.is_empty());
    let write = &segments[..counts.write];
    let (writes, reply): (&[&[Segment]], _) = match plan.reply {
        ReplyPlan::Inline => (&[], None),
        ReplyPlan::WriteChunk { .. } => (&[write], None),
        ReplyPlan::ReplyChunk { .. } => (&[], Some(&segments[..counts.reply])),
    };
    CallHeader {
        version,
        xid: Xid(1),
        credits: Credits(1),
        lists: ChunkLists {
            reads: &reads,
            writes,
            reply,
        },
    }
    .encode(&mut [0; MAX_HEADER_LEN])
}

// covers: V1-027, V1-071, V1-130, X-09
#[test]
fn a_call_as_large_as_the_threshold_is_inline() {
    for version in VERSIONS {
        let header = u32::try_from(version.min_header_len()).unwrap();
        for threshold in [1024, 4096, 65536] {
            let limits = limits(version, threshold, 4096);
            let most = threshold - header;
            for (total, expected) in [
                (0, CallPlan::Inline),
                (most - 4, CallPlan::Inline),
                (most, CallPlan::Inline),
                (most + 1, CallPlan::Long { length: most + 1 }),
                (most + 4, CallPlan::Long { length: most + 4 }),
            ] {
                // The result does not depend on how the bytes are divided between the head and the
                // tail of the call.
                for tail in [0, 4, total / 2] {
                    let shape = CallShape {
                        eligible: false,
                        ..call(total.saturating_sub(tail), 0, tail.min(total))
                    };
                    let plan = plan(&shape, &SMALL_REPLY, &ONE_EACH, true, &limits).unwrap();
                    assert_eq!(plan.call, expected);
                    assert_eq!(plan.reply, ReplyPlan::Inline);
                }
            }
        }
    }
}

// covers: V1-064, V1-128, ULB-08
#[test]
fn a_reply_that_may_exceed_the_threshold_gets_a_reply_chunk() {
    for version in VERSIONS {
        let header = u32::try_from(version.min_header_len()).unwrap();
        for threshold in [1024, 4096, 65536] {
            let limits = limits(version, 4096, threshold);
            let most = threshold - header;
            for total in [most - 1, most, most + 1, most + 1000] {
                for pages in [0, 400, total] {
                    let shape = ReplyShape {
                        eligible: false,
                        ..reply(total - pages, pages, 0)
                    };
                    let plan = plan(&SMALL_CALL, &shape, &ONE_EACH, true, &limits).unwrap();
                    let expected = if total <= most {
                        ReplyPlan::Inline
                    } else {
                        ReplyPlan::ReplyChunk { length: total }
                    };
                    assert_eq!(plan.reply, expected);
                }
            }
        }
    }
}

// covers: V1-032, V1-040, ULB-38
#[test]
fn an_eligible_payload_that_does_not_fit_is_a_read_chunk() {
    let limits = limits(Version::V1, 1024, 1024);
    // The header with one read segment is 28 + 24 bytes.
    let most = 1024 - 28 - 24;
    for pages in [1, 2, 3, 4, 5000, 5001, 5002, 5003, 1 << 20] {
        let pad = (4 - pages % 4) % 4;
        for (head, rest) in [
            (120, 0),
            (120, 16),
            (most, 0),
            (most - 16, 16),
            (most - 16, 20),
            (most + 4, 0),
        ] {
            let shape = call(head, pages, pad + rest);
            assert_eq!(shape.pad(), pad);
            let plan = plan(&shape, &SMALL_REPLY, &ONE_EACH, true, &limits).unwrap();
            let total = head + pages + pad + rest;
            let expected = if total + 28 <= 1024 {
                CallPlan::Inline
            } else if head + rest <= most {
                CallPlan::ReadChunk {
                    position: head,
                    length: pages,
                }
            } else {
                CallPlan::Long { length: total }
            };
            assert_eq!(plan.call, expected, "{head} {pages} {rest}");
        }
    }
}

#[test]
fn the_pad_decides_at_the_border() {
    // If the tail begins with the pad of the data item, the pad is not sent, and the message fits
    // exactly. If the tail does not begin with this pad, the whole tail is sent, and the message
    // does not fit.
    let limits = limits(Version::V1, 1024, 1024);
    let most = 1024 - 28 - 24;
    for (tail_padded, expected_inline) in [(true, true), (false, false)] {
        let shape = CallShape {
            tail_padded,
            ..call(most - 8, 5001, 3 + 8)
        };
        let plan = plan(&shape, &SMALL_REPLY, &ONE_EACH, true, &limits).unwrap();
        assert_eq!(
            matches!(plan.call, CallPlan::ReadChunk { .. }),
            expected_inline
        );
    }
    // If the tail is shorter than the pad of the page data, the pad is the whole tail.
    assert_eq!(call(100, 5001, 1).pad(), 1);
    assert_eq!(call(100, 5001, 0).pad(), 0);
    assert_eq!(call(100, 5000, 8).pad(), 0);
}

// covers: V1-028, V1-029, V1-041, V1-074, V1-121, V1-122, V1-127, ULB-41, ULB-42
#[test]
fn what_may_not_be_reduced_travels_whole() {
    let limits = limits(Version::V1, 4096, 4096);
    let write = call(120, 65536, 16);
    let read = reply(200, 65536, 16);
    let whole = CallPlan::Long {
        length: 120 + 65536 + 16,
    };
    let whole_reply = ReplyPlan::ReplyChunk {
        length: 200 + 65536 + 16,
    };
    let reduced = plan(&write, &read, &ONE_EACH, true, &limits).unwrap();
    assert!(matches!(reduced.call, CallPlan::ReadChunk { .. }));
    assert!(matches!(reduced.reply, ReplyPlan::WriteChunk { .. }));
    // A message with integrity or privacy protection is not reduced.
    let protected = plan(&write, &read, &ONE_EACH, false, &limits).unwrap();
    assert_eq!((protected.call, protected.reply), (whole, whole_reply));
    // In the following case the page data are not eligible for a chunk.
    let write = CallShape {
        eligible: false,
        ..write
    };
    let read = ReplyShape {
        eligible: false,
        ..read
    };
    let ineligible = plan(&write, &read, &ONE_EACH, true, &limits).unwrap();
    assert_eq!((ineligible.call, ineligible.reply), (whole, whole_reply));
    // A Read chunk cannot begin at any of these positions, so the whole call is sent as a long
    // call.
    for head in [0, 118, 119, 121] {
        let shape = call(head, 65536, 16);
        let plan = plan(&shape, &SMALL_REPLY, &ONE_EACH, true, &limits).unwrap();
        assert!(matches!(plan.call, CallPlan::Long { .. }));
    }
}

#[test]
fn the_rest_of_a_reply_with_a_write_chunk_is_inline() {
    for version in VERSIONS {
        let limits = limits(version, 4096, 1024);
        for segments in [1, 2, 11, 16] {
            let counts = SegmentCounts {
                write: segments,
                ..ONE_EACH
            };
            // The header of the reply has this length, because the server copies the Write chunk
            // into the header.
            let header = header_len(version, 0, Some(segments), None);
            let most = 1024 - u32::try_from(header).unwrap();
            for (head, tail, fits) in [
                (24, 0, true),
                (most, 0, true),
                (most - 4, 4, true),
                (most - 4, 5, false),
                (most + 1, 0, false),
                // The verifier in the Reply may have up to 400 bytes.
                (most - 400, 400, true),
            ] {
                for pages in [4096, 5001, 1 << 20] {
                    let shape = reply(head, pages, tail);
                    let plan = plan(&SMALL_CALL, &shape, &counts, true, &limits).unwrap();
                    let expected = if fits {
                        ReplyPlan::WriteChunk { length: pages }
                    } else {
                        ReplyPlan::ReplyChunk {
                            length: head + pages + tail,
                        }
                    };
                    assert_eq!(plan.reply, expected);
                }
            }
        }
    }
}

// covers: V1-050
#[test]
fn the_chunks_of_the_reply_count_in_the_header_of_the_call() {
    let limits = limits(Version::V1, 1024, 1024);
    let read = reply(100, 8192, 0);
    let long = ReplyShape {
        eligible: false,
        ..read
    };
    for segments in [1, 8, 16] {
        let counts = SegmentCounts {
            write: segments,
            reply: segments,
            ..ONE_EACH
        };
        let list = u32::try_from(8 + 16 * segments).unwrap();
        for (shape, most) in [
            (SMALL_REPLY, 1024 - 28),
            (read, 1024 - 28 - list),
            // The first word of the Reply chunk is always present.
            (long, 1024 - 28 - list + 4),
        ] {
            for (head, inline) in [(most, true), (most + 4, false)] {
                let shape_of_call = CallShape { head, ..SMALL_CALL };
                let plan = plan(&shape_of_call, &shape, &counts, true, &limits).unwrap();
                assert_eq!(plan.call == CallPlan::Inline, inline);
                assert_eq!(built(&plan, &counts, Version::V1), Ok(plan.header_len));
            }
        }
    }
}

// covers: ULB-26
#[test]
fn one_read_chunk_holds_the_call_or_its_data() {
    let limits = limits(Version::V1, 1024, 1024);
    let long = CallPlan::Long {
        length: 2000 + 65537 + 19,
    };
    let data = CallPlan::ReadChunk {
        position: 200,
        length: 65537,
    };
    let all = CallPlan::Long {
        length: 200 + 65537 + 19,
    };
    for (head, call_segments, read, expected) in [
        (2000, 16, 14, Ok(long)),
        (2000, 16, 0, Ok(long)),
        (2000, 17, 16, Err(Error::Unbuildable)),
        (2000, usize::MAX, 1, Err(Error::Unbuildable)),
        (200, 17, 16, Ok(data)),
        (200, 16, 17, Ok(all)),
        (200, 17, 17, Err(Error::Unbuildable)),
    ] {
        let counts = SegmentCounts {
            call: call_segments,
            read,
            ..ONE_EACH
        };
        let shape = call(head, 65537, 19);
        let plan = plan(&shape, &SMALL_REPLY, &counts, true, &limits);
        assert_eq!(plan.map(|plan| plan.call), expected);
        if let Ok(plan) = plan {
            assert_eq!(built(&plan, &counts, Version::V1), Ok(plan.header_len));
        }
    }
}

// covers: V1-097
#[test]
fn what_cannot_be_built_is_refused() {
    let limits = limits(Version::V1, 1024, 1024);
    let none = SegmentCounts {
        read: 17,
        call: 17,
        write: 17,
        reply: 17,
    };
    let big_call = call(2000, 65536, 0);
    let big_reply = reply(2000, 65536, 0);
    for (call, reply, ok) in [
        (SMALL_CALL, SMALL_REPLY, true),
        (big_call, SMALL_REPLY, false),
        (SMALL_CALL, big_reply, false),
    ] {
        let result = plan(&call, &reply, &none, true, &limits);
        assert_eq!(result.is_ok(), ok);
        if !ok {
            assert_eq!(result, Err(Error::Unbuildable));
            assert_eq!(result.map_err(Error::to_errno), Err(-5));
        }
    }
    // The sum of the lengths in this call exceeds 32 bits.
    let huge = call(u32::MAX - 3, u32::MAX, u32::MAX);
    let result = plan(&huge, &SMALL_REPLY, &ONE_EACH, true, &limits);
    assert_eq!(result, Err(Error::Unbuildable));
    let huge = reply(u32::MAX, u32::MAX, u32::MAX);
    let result = plan(&SMALL_CALL, &huge, &ONE_EACH, true, &limits);
    assert_eq!(result, Err(Error::Unbuildable));
    // The limit on segments may be lower than the protocol's limit, but never higher.
    for (allowed, segments, ok) in [(4, 4, true), (4, 5, false), (99, 16, true), (99, 17, false)] {
        let limits = Limits {
            segments: allowed,
            ..limits
        };
        let counts = SegmentCounts {
            call: segments,
            ..none
        };
        let shape = CallShape {
            eligible: false,
            ..big_call
        };
        assert_eq!(
            plan(&shape, &SMALL_REPLY, &counts, true, &limits).is_ok(),
            ok
        );
    }
}

#[test]
fn nfsv3_replies_have_the_chunks_of_the_table() {
    /// Columns: procedure, largest body, page data in the body, whether the data are eligible.
    const TABLE: [(u32, u32, u32, bool); 22] = [
        (0, 0, 0, false),
        (1, 88, 0, false),
        (2, 120, 0, false),
        (3, 248, 0, false),
        (4, 96, 0, false),
        (5, 96, 1024, true),
        (6, 104, 65536, true),
        (7, 136, 0, false),
        (8, 280, 0, false),
        (9, 280, 0, false),
        (10, 280, 0, false),
        (11, 280, 0, false),
        (12, 120, 0, false),
        (13, 120, 0, false),
        (14, 236, 0, false),
        (15, 208, 0, false),
        (16, 4, 4096, false),
        (17, 4, 32768, false),
        (18, 144, 0, false),
        (19, 140, 0, false),
        (20, 116, 0, false),
        (21, 128, 0, false),
    ];
    let limits = limits(Version::V1, 1024, 1024);
    for verifier in [0, 400] {
        for (procedure, body, pages, eligible) in TABLE {
            let shape = ReplyShape {
                eligible,
                ..reply(24 + verifier + body, pages, 0)
            };
            let plan = plan(&SMALL_CALL, &shape, &ONE_EACH, true, &limits).unwrap();
            let expected = match procedure {
                5 | 6 => ReplyPlan::WriteChunk { length: pages },
                16 | 17 => ReplyPlan::ReplyChunk {
                    length: 24 + verifier + body + pages,
                },
                _ => ReplyPlan::Inline,
            };
            assert_eq!(plan.reply, expected, "procedure {procedure}");
        }
    }
    // The largest `count` of a READDIR whose reply fits inline is 968.
    for (count, inline) in [(968, true), (969, false)] {
        let shape = ReplyShape {
            eligible: false,
            ..reply(24 + 4, count, 0)
        };
        let plan = plan(&SMALL_CALL, &shape, &ONE_EACH, true, &limits).unwrap();
        assert_eq!(plan.reply == ReplyPlan::Inline, inline);
    }
}

// covers: V2-29
#[test]
fn every_plan_fits_both_ways() {
    let parts = [0, 4, 100, 500, 996, 1000, 2000, 4068, 5001, 70000];
    let all_counts = [
        ONE_EACH,
        SegmentCounts {
            read: 3,
            call: 5,
            write: 16,
            reply: 12,
        },
        SegmentCounts {
            read: 16,
            call: 18,
            write: 17,
            reply: 16,
        },
    ];
    let mut built_plans = 0;
    for version in VERSIONS {
        for threshold in [1024, 4096] {
            let limits = limits(version, threshold, threshold);
            for counts in &all_counts {
                for head in parts {
                    for pages in parts {
                        for tail in [0, 3, 1000] {
                            let shape = call(head & !3, pages, tail);
                            let largest = reply(head, pages, tail);
                            let Ok(plan) = plan(&shape, &largest, counts, true, &limits) else {
                                continue;
                            };
                            built_plans += 1;
                            check_plan(&plan, &shape, &largest, counts, &limits);
                        }
                    }
                }
            }
        }
    }
    assert!(built_plans > 2000);
}

/// Checks the properties that a plan must have. The expected values are computed without the
/// planner.
fn check_plan(
    plan: &Plan,
    call: &CallShape,
    reply: &ReplyShape,
    counts: &SegmentCounts,
    limits: &Limits,
) {
    assert_eq!(built(plan, counts, limits.version), Ok(plan.header_len));
    if (plan.call, plan.reply) == (CallPlan::Inline, ReplyPlan::Inline) {
        assert_eq!(*plan, Plan::without_chunks(limits.version));
    }
    let total = call.head + call.pages + call.tail;
    let reduced = total - call.pages - call.pad();
    let inline = match plan.call {
        CallPlan::Inline => total,
        CallPlan::ReadChunk { position, length } => {
            assert_eq!((position, length), (call.head, call.pages));
            reduced
        }
        CallPlan::Long { length } => {
            assert_eq!(length, total);
            0
        }
    };
    let send = u32::try_from(plan.header_len).unwrap() + inline;
    assert!(send <= limits.thresholds.call);
    // The length of the largest Reply that the server may send inline.
    let (write, chunk, inline) = match plan.reply {
        ReplyPlan::Inline => (None, None, reply.head + reply.pages + reply.tail),
        ReplyPlan::WriteChunk { length } => {
            assert_eq!(length, reply.pages);
            (Some(counts.write), None, reply.head + reply.tail)
        }
        ReplyPlan::ReplyChunk { length } => {
            assert_eq!(length, reply.head + reply.pages + reply.tail);
            (None, Some(counts.reply), 0)
        }
    };
    let header = header_len(limits.version, 0, write, chunk);
    assert!(u32::try_from(header).unwrap() + inline <= limits.thresholds.reply);
}

#[test]
fn headers_are_as_long_as_the_formula_says() {
    assert_eq!(header_len(Version::V1, 0, None, None), 28);
    assert_eq!(header_len(Version::V2, 0, None, None), 32);
    assert_eq!(header_len(Version::V1, 32, Some(16), Some(16)), 1320);
    assert_eq!(header_len(Version::V2, 32, Some(16), Some(16)), 1324);
    for read in 0..4 {
        for write in 0..4 {
            for reply in 0..4 {
                let expected = 16 + 24 * read + 4 + (8 + 16 * write) + 4 + (8 + 16 * reply);
                assert_eq!(
                    header_len(Version::V1, read, Some(write), Some(reply)),
                    expected
                );
            }
        }
    }
}

/// The usual headers of version 1 are encoded by separate code. So this test compares headers of
/// version 1 with headers of version 2.
#[test]
fn a_header_has_the_same_lists_in_both_versions() {
    let segment = |n: u32| Segment {
        handle: Handle(n),
        length: n + 1,
        offset: u64::from(n) << 33 | 5,
    };
    let (one, two) = ([segment(0x1234_5678)], [segment(1), segment(2)]);
    let read = |position, segments| [ReadChunk { position, segments }];
    let some_reads = [&[][..], &read(0, &one), &read(8, &one), &read(8, &two)];
    for reads in some_reads {
        for writes in [&[][..], &[&[][..]], &[&one], &[&two]] {
            for reply in [None, Some(&one[..]), Some(&two)] {
                let lists = ChunkLists {
                    reads,
                    writes,
                    reply,
                };
                let header = |version| CallHeader {
                    version,
                    xid: Xid(0xdead_beef),
                    credits: Credits(0x77),
                    lists,
                };
                let mut buf = [0xee; MAX_HEADER_LEN];
                let len = header(Version::V1).encode(&mut buf).unwrap();
                assert_eq!(len, header(Version::V1).encoded_len());
                assert!(buf[len..].iter().all(|&byte| byte == 0xee));
                let short = header(Version::V1).encode(&mut [0; MAX_HEADER_LEN][..len - 1]);
                assert_eq!(short, Err(Error::NoSpace));
                let mut other = [0; MAX_HEADER_LEN];
                assert_eq!(header(Version::V2).encode(&mut other), Ok(len + 4));
                assert_eq!((buf[7], other[7]), (1, 2));
                other[7] = 1;
                assert_eq!(buf[..16], other[..16]);
                assert_eq!(other[16..20], [0; 4]);
                assert_eq!(buf[16..len], other[20..len + 4]);
            }
        }
    }
}

// covers: V1-038, V1-043, V1-056, ULB-36, X-07, X-31
#[test]
fn the_encoder_refuses_what_a_server_need_not_take() {
    let good = Segment {
        handle: Handle(1),
        length: 4,
        offset: u64::MAX,
    };
    let empty = Segment { length: 0, ..good };
    let sixteen = [good; 16];
    let seventeen = [good; 17];
    let one = [good];
    let with_empty = [good, empty];
    let read = |position, segments| ReadChunk { position, segments };
    let encode = |lists: ChunkLists<'_>| {
        CallHeader {
            version: Version::V1,
            xid: Xid(1),
            credits: Credits(1),
            lists,
        }
        .encode(&mut [0; 2000])
        .map(|_| ())
    };
    let reads = |reads: &[ReadChunk<'_>]| {
        encode(ChunkLists {
            reads,
            ..ChunkLists::default()
        })
    };
    let writes = |writes: &[&[Segment]]| {
        encode(ChunkLists {
            writes,
            ..ChunkLists::default()
        })
    };
    let reply = |segments| {
        encode(ChunkLists {
            reply: Some(segments),
            ..ChunkLists::default()
        })
    };
    assert_eq!(reads(&[]), Ok(()));
    assert_eq!(reads(&[read(0, &sixteen)]), Ok(()));
    assert_eq!(reads(&[read(4, &sixteen)]), Ok(()));
    assert_eq!(reads(&[read(0, &one), read(4, &sixteen)]), Ok(()));
    assert_eq!(reads(&[read(0xffff_fffc, &one)]), Ok(()));
    assert_eq!(reads(&[read(0, &seventeen)]), Err(Error::TooComplex));
    assert_eq!(reads(&[read(4, &seventeen)]), Err(Error::TooComplex));
    let two = [read(4, &one), read(8, &one)];
    assert_eq!(reads(&two), Err(Error::TooComplex));
    let three = [read(0, &one), read(4, &one), read(8, &one)];
    assert_eq!(reads(&three), Err(Error::TooComplex));
    assert_eq!(
        reads(&[read(4, &one), read(0, &one)]),
        Err(Error::TooComplex)
    );
    assert_eq!(reads(&[read(0, &one), read(0, &one)]), Err(Error::BadChunk));
    for position in [1, 2, 3, 5, 0xffff_ffff] {
        assert_eq!(reads(&[read(position, &one)]), Err(Error::BadChunk));
        let with_body = [read(0, &one), read(position, &one)];
        assert_eq!(reads(&with_body), Err(Error::BadChunk));
    }
    assert_eq!(reads(&[read(0, &[])]), Err(Error::BadChunk));
    assert_eq!(reads(&[read(4, &[])]), Err(Error::BadChunk));
    assert_eq!(reads(&[read(4, &with_empty)]), Err(Error::BadChunk));
    assert_eq!(reads(&[read(4, &[empty])]), Err(Error::BadChunk));
    assert_eq!(writes(&[&sixteen]), Ok(()));
    assert_eq!(writes(&[&[]]), Ok(()));
    assert_eq!(writes(&[&seventeen]), Err(Error::TooComplex));
    assert_eq!(writes(&[&one, &one]), Err(Error::TooComplex));
    assert_eq!(writes(&[&with_empty]), Err(Error::BadChunk));
    assert_eq!(writes(&[&[empty]]), Err(Error::BadChunk));
    assert_eq!(reply(&sixteen), Ok(()));
    assert_eq!(reply(&seventeen), Err(Error::TooComplex));
    assert_eq!(reply(&[]), Err(Error::BadChunk));
    assert_eq!(reply(&with_empty), Err(Error::BadChunk));
}

/// Page sizes of kernels: 4 KiB on x86 and most other processors; 16 KiB on arm64 if so configured;
/// 64 KiB on arm64 and powerpc if so configured.
const PAGE_SIZES: [u32; 3] = [4096, 16_384, 65_536];

/// Counts segments page by page, without any arithmetic on lengths.
fn count_slowly(limits: &RegionLimits, runs: &[Run]) -> usize {
    let mut regions = 0;
    let mut pages_left = 0;
    let mut at_border = false;
    for run in runs {
        let mut byte = run.offset % limits.page_size;
        let mut left = run.length;
        let mut first = true;
        while left > 0 {
            let continues = limits.gaps || (at_border && byte == 0) || !first;
            if pages_left == 0 || !continues {
                regions += 1;
                pages_left = limits.pages;
            }
            pages_left -= 1;
            let here = left.min(limits.page_size - byte);
            left -= here;
            byte = (byte + here) % limits.page_size;
            at_border = byte == 0;
            first = false;
        }
    }
    regions
}

#[test]
fn segments_are_counted_by_pages_and_borders() {
    let run = |offset, length| Run { offset, length };
    let deep = RegionLimits {
        pages: 256,
        page_size: 4096,
        gaps: false,
    };
    let table: [(&[Run], usize); 9] = [
        (&[], 0),
        (&[run(0, 0)], 0),
        (&[run(0, 1)], 1),
        (&[run(0, 1 << 20)], 1),
        (&[run(1, 1 << 20)], 2),
        (&[run(100, 200), run(0, 4096)], 2),
        (&[run(4000, 96), run(0, 4096)], 1),
        (&[run(4000, 96), run(0, 4096), run(0, 7)], 1),
        (&[run(100, 200), run(0, 0), run(300, 10)], 2),
    ];
    for (runs, expected) in table {
        assert_eq!(deep.segments(runs), expected, "{runs:?}");
    }
    let limits = |page_size| {
        [1, 2, 8, 30, 256].into_iter().flat_map(move |pages| {
            [false, true].map(|gaps| RegionLimits {
                pages,
                page_size,
                gaps,
            })
        })
    };
    for limits in PAGE_SIZES.into_iter().flat_map(limits) {
        let page = limits.page_size;
        for offset in [0, 1, page - 1, page, 2 * page + 808] {
            for length in [0, 1, 95, 96, page - 1, page, page + 1, 10 * page, 1 << 20] {
                let one = run(offset, length);
                assert_eq!(
                    limits.segments_of_one(one),
                    count_slowly(&limits, &[one]),
                    "{limits:?} {one:?}"
                );
                for head in [
                    run(0, 0),
                    run(page - 96, 96),
                    run(page - 96, 95),
                    run(0, 2 * page),
                ] {
                    for tail in [run(0, 0), run(0, 100), run(50, page)] {
                        let runs = [head, one, tail];
                        assert_eq!(
                            limits.segments(&runs),
                            count_slowly(&limits, &runs),
                            "{limits:?} {runs:?}"
                        );
                    }
                }
            }
        }
    }
    // A device without regions, or a page size of zero, allows no plan with chunks.
    for (pages, page_size) in [(0, 4096), (8, 0)] {
        let limits = RegionLimits {
            pages,
            page_size,
            gaps: false,
        };
        assert_eq!(limits.segments(&[run(0, 1)]), usize::MAX);
        assert_eq!(limits.segments_of_one(run(0, 1)), usize::MAX);
    }
}
