// SPDX-License-Identifier: GPL-2.0

//! How a call and its reply travel: the plan of an RPC.
//!
//! [`plan`] gets the shapes of the call and of its largest possible reply, and a [`Segmentation`]
//! that counts the segments of a chunk. It picks the cheapest legal form whose headers fit in both
//! directions. It decides about the reply first, because the chunks of the reply are part of the
//! call's header.

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
    /// The head, from the RPC xid on.
    pub head: u32,
    /// The page data.
    pub pages: u32,
    /// The tail, with the pad of the page data if `tail_padded`.
    pub tail: u32,
    /// True if the tail begins with the XDR pad of the page data.
    pub tail_padded: bool,
    /// True if the upper-layer binding lets the page data be reduced.
    pub eligible: bool,
}

impl CallShape {
    #[inline]
    const fn total(&self) -> u64 {
        sum(self.head, self.pages, self.tail)
    }

    /// Bytes at the front of the tail that leave the message together with reduced page data
    /// (V1-037).
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
    /// The head.
    pub head: u32,
    /// The pages.
    pub pages: u32,
    /// The tail.
    pub tail: u32,
    /// True if the upper-layer binding lets the page data be reduced.
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
    // CAST: widening. NO-OVERFLOW: Three 32-bit numbers are far from 2^64.
    (head as u64)
        .wrapping_add(pages as u64)
        .wrapping_add(tail as u64)
}

/// Counts the segments that each chunk would have; see [`RegionLimits::segments`].
///
/// [`plan`] asks only about chunks that it considers, because most messages need none.
pub trait Segmentation {
    /// A Read chunk over the call's pages.
    fn read(&self) -> usize;
    /// A Position-Zero Read chunk over the whole call.
    fn call(&self) -> usize;
    /// A Position-Zero Read chunk over the call without its page data and their pad.
    fn reduced_call(&self) -> usize;
    /// A Write chunk over the reply's pages.
    fn write(&self) -> usize;
    /// A Reply chunk over the whole reply.
    fn reply(&self) -> usize;
}

/// The counts, known beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// A Read chunk over the call's pages.
    pub read: usize,
    /// A Position-Zero Read chunk over the whole call.
    pub call: usize,
    /// A Position-Zero Read chunk over the call without its page data and their pad.
    pub reduced_call: usize,
    /// A Write chunk over the reply's pages.
    pub write: usize,
    /// A Reply chunk over the whole reply.
    pub reply: usize,
}

impl Segmentation for SegmentCounts {
    fn read(&self) -> usize {
        self.read
    }

    fn call(&self) -> usize {
        self.call
    }

    fn reduced_call(&self) -> usize {
        self.reduced_call
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
    /// Version spoken.
    pub version: Version,
    /// Largest inline messages.
    pub thresholds: Thresholds,
    /// Most segments in one chunk; at most [`MAX_SEGMENTS`] count.
    pub segments: usize,
}

/// How the call travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPlan {
    /// All of it in the Send.
    Inline,
    /// The pages in a Read chunk, the rest (without the pad) in the Send.
    ReadChunk {
        /// Where the item starts in the unreduced message.
        position: u32,
        /// Bytes of the item.
        length: u32,
    },
    /// All of it, pad included, in a Position-Zero Read chunk.
    Long {
        /// Bytes of the message.
        length: u32,
    },
    /// The pages in a Read chunk, the rest (without the pad) in a Position-Zero Read chunk.
    LongReadChunk {
        /// Where the item starts in the unreduced message.
        position: u32,
        /// Bytes of the item.
        length: u32,
        /// Bytes of the rest.
        reduced: u32,
    },
}

/// How the reply travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPlan {
    /// Inline, because the largest reply fits into a Send.
    Inline,
    /// The pages are written into a Write chunk, the rest comes inline.
    WriteChunk {
        /// Bytes offered: the page capacity, without pad (V1-052).
        length: u32,
    },
    /// A Reply chunk can take all of it.
    ReplyChunk {
        /// Bytes offered.
        length: u32,
    },
}

/// How an RPC travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The call.
    pub call: CallPlan,
    /// The reply.
    pub reply: ReplyPlan,
    /// Bytes of the call's transport header.
    pub header_len: usize,
    /// Segments of the Read list.
    pub read_segments: usize,
    /// Segments of the Write chunk or of the Reply chunk.
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

/// Decides how an RPC travels.
///
/// `reduce` is false where the security flavour protects the message's integrity or privacy
/// (V1-121). The largest possible reply decides, not the expected one (V1-128). A message as large
/// as the threshold fits.
///
/// # Errors
///
/// [`Error::Unbuildable`] if no form fits (V1-097).
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

// NO-OVERFLOW, all three: No chunk has more than `MAX_SEGMENTS`.

/// Bytes of a header with this many read segments more.
#[inline]
const fn with_read_chunks(header: usize, segments: usize) -> usize {
    header.wrapping_add(segments.wrapping_mul(READ_ENTRY_LEN))
}

/// Bytes of a header with a Write chunk more.
#[inline]
const fn with_write_chunk(header: usize, segments: usize) -> usize {
    let chunk = segments.wrapping_mul(SEGMENT_LEN).wrapping_add(CHUNK_LEN);
    header.wrapping_add(chunk)
}

/// Bytes of a header with a Reply chunk in place of the word for an absent one.
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
    // The responder copies our chunks into its header (V1-054, V1-068).
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

/// Decides about the call; `header` is how long its header is without Read chunks.
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
    // A position is a multiple of four. It is not zero, as zero means a Position-Zero Read chunk.
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
    if !reducible {
        return Err(Error::Unbuildable);
    }
    // Two chunks hold twice as many segments as one. One chunk is simpler, so it comes first.
    let rest = counts.reduced_call();
    // NO-OVERFLOW: Looked at only where both are few.
    let both = read.wrapping_add(rest);
    if limits.allow(rest) && fits(both, 0) {
        let plan = CallPlan::LongReadChunk {
            position: call.head,
            length: call.pages,
            reduced: u32::try_from(reduced).map_err(|_| Error::Unbuildable)?,
        };
        return Ok((plan, both));
    }
    Err(Error::Unbuildable)
}

/// Header and inline part in one Send of at most `threshold` bytes (V1-027).
#[inline]
fn within(header: usize, inline: u64, threshold: u32) -> bool {
    match u64::try_from(header) {
        // NO-OVERFLOW: A header and less than 2^34 bytes.
        Ok(header) => header.wrapping_add(inline) <= u64::from(threshold),
        Err(_) => false,
    }
}

impl Limits {
    /// True if a chunk may have this many segments.
    #[inline]
    fn allow(&self, segments: usize) -> bool {
        segments > 0 && segments <= self.segments.min(MAX_SEGMENTS)
    }
}

/// A stretch of memory that is contiguous for the device, except that it may cross pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Offset in its first page.
    pub offset: u32,
    /// Bytes; an empty run needs nothing.
    pub length: u32,
}

/// What one memory region can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLimits {
    /// Most pages in one region.
    pub pages: u32,
    /// Bytes of a page, a power of two.
    pub page_size: u32,
    /// True if a region may have gaps inside pages.
    pub gaps: bool,
}

impl RegionLimits {
    /// How many segments a chunk over these runs needs, one after the other.
    ///
    /// Without gaps, a region continues from one run into the next only if the first ends and
    /// the second begins at a page border. Returns `usize::MAX` if a region can hold no page.
    pub fn segments(&self, runs: &[Run]) -> usize {
        let Some(mask) = self.page_size.checked_sub(1).map(u64::from) else {
            return usize::MAX;
        };
        let (pages, shift) = (u64::from(self.pages), self.page_size.trailing_zeros());
        let Some(pages) = NonZeroU64::new(pages) else {
            return usize::MAX;
        };
        // NO-OVERFLOW: Three runs of less than 2^32 bytes are far from 2^64, in bytes and in pages.
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
                    // NO-OVERFLOW: More than one region's pages, of which there is at least one.
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

    /// As [`segments`](Self::segments), for one run.
    // Inlined, the usual case is made in registers; a list would have to be in memory.
    #[inline(always)]
    pub fn segments_of_one(self, run: Run) -> usize {
        let mask = u64::from(self.page_size.wrapping_sub(1));
        // NO-OVERFLOW: Numbers of 32 bits.
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

// With numbers in place of structures, which would have to be in memory in the usual case, too.
#[inline(never)]
fn segments_of_rare(pages: u32, page_size: u32, gaps: bool, offset: u32, length: u32) -> usize {
    let limits = RegionLimits {
        pages,
        page_size,
        gaps,
    };
    limits.segments(&[Run { offset, length }])
}
