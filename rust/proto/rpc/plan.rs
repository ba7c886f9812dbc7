// SPDX-License-Identifier: GPL-2.0

//! The plan of an RPC: which parts of the call and of its reply travel inline or in chunks.
//!
//! [`plan`] gets the shapes of the call and of its largest possible reply, and a [`Segmentation`]
//! that counts the segments of a chunk. It picks the cheapest plan that the protocol allows and
//! whose headers fit in both directions. It plans the reply first, because the chunks for the reply
//! are part of the call's header.

use crate::{
    error::Error,
    wire::{
        chunk::{
            ABSENT_LEN,
            CHUNK_LEN,
            READ_ENTRY_LEN,
            SEGMENT_LEN, //
        },
        header::{
            Version,
            MAX_SEGMENTS, //
        },
        threshold::Thresholds,
        xdr, //
    }, //
};
use core::num::NonZeroU64;

/// Lengths of the parts of a marshalled RPC Call, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallShape {
    /// The length of the head, which begins with the RPC xid.
    pub head: u32,
    /// The length of the page data.
    pub pages: u32,
    /// The length of the tail, including the pad of the page data if `tail_padded`.
    pub tail: u32,
    /// Whether the tail begins with the XDR pad of the page data.
    pub tail_padded: bool,
    /// Whether the upper-layer binding allows the page data to travel in a chunk (DDP-eligible).
    pub eligible: bool,
}

impl CallShape {
    #[inline]
    const fn total(&self) -> u64 {
        sum(self.head, self.pages, self.tail)
    }

    /// Returns the number of pad bytes at the front of the tail. The message omits them if the page
    /// data is in a chunk (V1-037).
    #[inline]
    pub const fn pad(&self) -> u32 {
        let pad = xdr::pad(self.pages);
        match (self.tail_padded, self.tail < pad) {
            (false, _) => 0,
            (true, true) => self.tail,
            (true, false) => pad,
        }
    }
}

/// Capacities of the parts of the largest possible reply, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyShape {
    /// The capacity of the head.
    pub head: u32,
    /// The capacity of the pages.
    pub pages: u32,
    /// The capacity of the tail.
    pub tail: u32,
    /// Whether the upper-layer binding allows the page data to travel in a chunk (DDP-eligible).
    pub eligible: bool,
}

impl ReplyShape {
    #[inline]
    const fn total(&self) -> u64 {
        sum(self.head, self.pages, self.tail)
    }
}

#[inline]
const fn sum(head: u32, pages: u32, tail: u32) -> u64 {
    // CAST: The cast widens the number. NO-OVERFLOW: The sum of three 32-bit numbers is far below
    // 2^64.
    (head as u64)
        .wrapping_add(pages as u64)
        .wrapping_add(tail as u64)
}

/// Counts the segments that each chunk would have; see [`RegionLimits::segments`].
///
/// Each method is for one kind of chunk. [`plan`] calls a method only if the message may need that
/// kind of chunk. Most messages need no chunk, so nothing is counted for them.
pub trait Segmentation {
    /// Returns the number of segments of a Read chunk for the call's pages.
    fn read(&self) -> usize;
    /// Returns the number of segments of a Position-Zero Read chunk for the whole call.
    fn call(&self) -> usize;
    /// Returns the number of segments of a Write chunk for the reply's pages.
    fn write(&self) -> usize;
    /// Returns the number of segments of a Reply chunk for the whole reply.
    fn reply(&self) -> usize;
}

/// Segment counts that were computed in advance, one for each chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Number of segments of a Read chunk for the call's pages.
    pub read: usize,
    /// Number of segments of a Position-Zero Read chunk for the whole call.
    pub call: usize,
    /// Number of segments of a Write chunk for the reply's pages.
    pub write: usize,
    /// Number of segments of a Reply chunk for the whole reply.
    pub reply: usize,
}

impl Segmentation for SegmentCounts {
    fn read(&self) -> usize {
        self.read
    }

    fn call(&self) -> usize {
        self.call
    }

    fn write(&self) -> usize {
        self.write
    }

    fn reply(&self) -> usize {
        self.reply
    }
}

/// Limits that all calls of one connection share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Protocol version of the connection.
    pub version: Version,
    /// Maximum sizes of messages in a Send, for calls and for replies.
    pub thresholds: Thresholds,
    /// Maximum number of segments in one chunk; more than [`MAX_SEGMENTS`] has no effect.
    pub segments: usize,
}

/// Which parts of the call travel inline, and which in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPlan {
    /// The whole call travels in the Send.
    Inline,
    /// The pages travel in a Read chunk; head and tail (without the pad) travel in the Send.
    ReadChunk {
        /// XDR position of the pages: their byte offset in the unreduced message.
        position: u32,
        /// Length of the pages in bytes.
        length: u32,
    },
    /// The whole call, pad included, travels in a Position-Zero Read chunk.
    Long {
        /// Length of the message in bytes.
        length: u32,
    },
}

/// Which parts of the reply travel inline, and which in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPlan {
    /// The whole reply travels inline, because the largest reply fits into a Send.
    Inline,
    /// The pages travel in a Write chunk; head and tail travel inline.
    WriteChunk {
        /// Number of bytes that the chunk offers: the capacity of the pages, without pad (V1-052).
        length: u32,
    },
    /// The call offers a Reply chunk that can hold the whole reply.
    ReplyChunk {
        /// Number of bytes that the chunk offers.
        length: u32,
    },
}

/// Which parts of an RPC's call and reply travel inline, and which in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The plan for the call.
    pub call: CallPlan,
    /// The plan for the reply.
    pub reply: ReplyPlan,
    /// Length of the call's transport header in bytes.
    pub header_len: usize,
    /// Number of segments in the Read list.
    pub read_segments: usize,
    /// Number of segments in the Write chunk or in the Reply chunk.
    pub result_segments: usize,
}

impl Plan {
    /// Returns the plan of an RPC whose messages travel inline as a whole.
    #[inline]
    pub const fn without_chunks(version: Version) -> Self {
        Self {
            call: CallPlan::Inline,
            reply: ReplyPlan::Inline,
            header_len: version.min_header_len(),
            read_segments: 0,
            result_segments: 0,
        }
    }
}

/// Decides which parts of an RPC's call and reply travel inline, and which in chunks.
///
/// `reduce` says whether page data may travel in a chunk of its own. It is false if the security
/// flavour protects the integrity or privacy of the message (V1-121). The plan depends on the
/// largest possible reply, not on the expected reply (V1-128). A message whose size equals the
/// threshold fits.
///
/// # Errors
///
/// Returns [`Error::Unbuildable`] if the call or the reply fits into no combination of a Send and
/// chunks (V1-097).
#[inline(always)]
pub fn plan(
    call: &CallShape,
    reply: &ReplyShape,
    counts: &impl Segmentation,
    reduce: bool,
    limits: &Limits,
) -> Result<Plan, Error> {
    let (reply_plan, results) = plan_reply(reply, counts, reduce, limits)?;
    let empty = limits.version.min_header_len();
    let header = match reply_plan {
        ReplyPlan::Inline => empty,
        ReplyPlan::WriteChunk { .. } => with_write_chunk(empty, results),
        ReplyPlan::ReplyChunk { .. } => with_reply_chunk(empty, results),
    };
    let (call_plan, read) = plan_call(call, counts, reduce, limits, header)?;
    Ok(Plan {
        call: call_plan,
        reply: reply_plan,
        header_len: with_read_chunks(header, read),
        read_segments: read,
        result_segments: results,
    })
}

// NO-OVERFLOW, for the three functions below: No chunk has more than `MAX_SEGMENTS` segments.

/// Returns the length in bytes of a header with `segments` more Read segments.
#[inline]
const fn with_read_chunks(header: usize, segments: usize) -> usize {
    header.wrapping_add(segments.wrapping_mul(READ_ENTRY_LEN))
}

/// Returns the length in bytes of a header with one more Write chunk, which has `segments`
/// segments.
#[inline]
const fn with_write_chunk(header: usize, segments: usize) -> usize {
    let chunk = segments.wrapping_mul(SEGMENT_LEN).wrapping_add(CHUNK_LEN);
    header.wrapping_add(chunk)
}

/// Returns the length in bytes of a header in which a Reply chunk with `segments` segments replaces
/// the word for an absent Reply chunk.
#[inline]
const fn with_reply_chunk(header: usize, segments: usize) -> usize {
    with_write_chunk(header, segments).wrapping_sub(ABSENT_LEN)
}

#[inline(always)]
fn plan_reply(
    reply: &ReplyShape,
    counts: &impl Segmentation,
    reduce: bool,
    limits: &Limits,
) -> Result<(ReplyPlan, usize), Error> {
    // The header of the reply repeats the chunks that the call offers (V1-054, V1-068).
    let empty = limits.version.min_header_len();
    let fits = |header, inline| within(header, inline, limits.thresholds.reply);
    let total = reply.total();
    if fits(empty, total) {
        return Ok((ReplyPlan::Inline, 0));
    }
    if reduce && reply.eligible && reply.pages > 0 {
        let segments = counts.write();
        let rest = sum(reply.head, 0, reply.tail);
        if limits.allow(segments) && fits(with_write_chunk(empty, segments), rest) {
            let length = reply.pages;
            return Ok((ReplyPlan::WriteChunk { length }, segments));
        }
    }
    let length = u32::try_from(total).map_err(|_| Error::Unbuildable)?;
    let segments = counts.reply();
    if limits.allow(segments) && fits(with_reply_chunk(empty, segments), 0) {
        return Ok((ReplyPlan::ReplyChunk { length }, segments));
    }
    Err(Error::Unbuildable)
}

/// Plans the call. `header` is the length of the call's header without Read chunks, in bytes.
#[inline(always)]
fn plan_call(
    call: &CallShape,
    counts: &impl Segmentation,
    reduce: bool,
    limits: &Limits,
    header: usize,
) -> Result<(CallPlan, usize), Error> {
    let fits = |read, inline| {
        let header = with_read_chunks(header, read);
        within(header, inline, limits.thresholds.call)
    };
    let total = call.total();
    if fits(0, total) {
        return Ok((CallPlan::Inline, 0));
    }
    // The position of a Read chunk is a multiple of four. For page data the position must not be
    // zero, because zero means a Position-Zero Read chunk.
    let eligible = reduce && call.eligible && call.pages > 0 && call.head > 0 && call.head & 3 == 0;
    let read = if eligible { counts.read() } else { 0 };
    let reducible = eligible && limits.allow(read);
    // NO-OVERFLOW: The pad is a part of the tail.
    let reduced = sum(call.head, 0, call.tail.wrapping_sub(call.pad()));
    if reducible && fits(read, reduced) {
        let plan = CallPlan::ReadChunk {
            position: call.head,
            length: call.pages,
        };
        return Ok((plan, read));
    }
    let length = u32::try_from(total).map_err(|_| Error::Unbuildable)?;
    let whole = counts.call();
    if limits.allow(whole) && fits(whole, 0) {
        return Ok((CallPlan::Long { length }, whole));
    }
    Err(Error::Unbuildable)
}

/// Returns true if the header and the inline part fit into one Send of `threshold` bytes (V1-027).
#[inline]
fn within(header: usize, inline: u64, threshold: u32) -> bool {
    match u64::try_from(header) {
        // NO-OVERFLOW: The sum of a header's length and a number below 2^34 is far from 2^64.
        Ok(header) => header.wrapping_add(inline) <= u64::from(threshold),
        Err(_) => false,
    }
}

impl Limits {
    /// Returns true if a chunk may have this number of segments.
    #[inline]
    fn allow(&self, segments: usize) -> bool {
        segments > 0 && segments <= self.segments.min(MAX_SEGMENTS)
    }
}

/// A run of bytes that begins at an offset in its first page and continues without a gap in the
/// following pages. The pages need not be adjacent in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Byte offset of the run in its first page.
    pub offset: u32,
    /// Length of the run in bytes; an empty run needs no segment.
    pub length: u32,
}

/// Limits of one memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLimits {
    /// Maximum number of pages in one region.
    pub pages: u32,
    /// Size of a page in bytes, a power of two.
    pub page_size: u32,
    /// Whether one region of the device may cover memory with gaps inside pages.
    pub gaps: bool,
}

impl RegionLimits {
    /// Returns the number of segments that a chunk needs to cover these runs in this order. Returns
    /// `usize::MAX` if a region can hold no page.
    ///
    /// If gaps are not allowed, a region can contain bytes of two consecutive runs only if the
    /// first run ends at a page boundary and the second run begins at a page boundary.
    pub fn segments(&self, runs: &[Run]) -> usize {
        let Some(mask) = self.page_size.checked_sub(1).map(u64::from) else {
            return usize::MAX;
        };
        let (pages, shift) = (u64::from(self.pages), self.page_size.trailing_zeros());
        let Some(pages) = NonZeroU64::new(pages) else {
            return usize::MAX;
        };
        // NO-OVERFLOW: Each run has less than 2^32 bytes. So the total length of three runs is far
        // below 2^64, in bytes and in pages.
        let mut segments = 0u64;
        let mut free = 0u64;
        let mut aligned_end = false;
        for run in runs {
            if run.length == 0 {
                continue;
            }
            let offset = u64::from(run.offset) & mask;
            let end = offset.wrapping_add(u64::from(run.length));
            let needed = end.wrapping_add(mask).wrapping_shr(shift);
            if !(self.gaps || (aligned_end && offset == 0)) {
                free = 0;
            }
            if needed > free {
                let more = needed.wrapping_sub(free);
                let regions = if more <= pages.get() {
                    1
                } else {
                    // NO-OVERFLOW: `more` is greater than `pages`, so `more` is at least one.
                    (more.wrapping_sub(1) / pages).wrapping_add(1)
                };
                segments = segments.wrapping_add(regions);
                free = free.wrapping_add(regions.wrapping_mul(pages.get()));
            }
            free = free.wrapping_sub(needed);
            aligned_end = end & mask == 0;
        }
        usize::try_from(segments).unwrap_or(usize::MAX)
    }

    /// Returns the number of segments that a chunk needs to cover one run; see
    /// [`segments`](Self::segments).
    // This function is inlined, so that its arguments stay in registers in the usual case. Its
    // argument is one run, because a slice of runs would have to be in memory.
    #[inline(always)]
    pub fn segments_of_one(self, run: Run) -> usize {
        let mask = u64::from(self.page_size.wrapping_sub(1));
        // NO-OVERFLOW: Sums and products of two 32-bit numbers fit into 64 bits.
        let end = (u64::from(run.offset) & mask).wrapping_add(u64::from(run.length));
        let room = u64::from(self.pages).wrapping_mul(u64::from(self.page_size));
        if run.length != 0 && end <= room {
            return 1;
        }
        segments_of_rare(
            self.pages,
            self.page_size,
            self.gaps,
            run.offset,
            run.length,
        )
    }
}

// The arguments are numbers, so that they can stay in registers. If the argument were a structure,
// the caller would have to keep the structure in memory, even in the usual case, in which the
// caller does not call this function.
#[inline(never)]
fn segments_of_rare(pages: u32, page_size: u32, gaps: bool, offset: u32, length: u32) -> usize {
    let limits = RegionLimits {
        pages,
        page_size,
        gaps,
    };
    limits.segments(&[Run { offset, length }])
}
