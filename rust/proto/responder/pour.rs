// SPDX-License-Identifier: GPL-2.0

//! Distribution of a reply's bytes over the segments of a chunk: in order, without gaps (RFC 8166
//! 3.4.6).

use crate::wire::{
    chunk::{
        Handle,
        Segment,
        Segments,
        WriteList,
        CHUNK_LEN,
        SEGMENT_LEN, //
    },
    xdr::Full, //
};

/// A contiguous range of bytes in the RPC reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte in the reply.
    pub from: u32,
    /// Number of bytes in the range.
    pub length: u32,
}

/// An RDMA Write of at least one byte. It does not go beyond the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The handle of the client's memory region.
    pub handle: Handle,
    /// Offset in the client's memory region at which the Write begins.
    pub offset: u64,
    /// The bytes of the reply that are written.
    pub span: Span,
}

/// Iterator over the RDMA Writes of a reply. First, each result is distributed over the segments of
/// its Write chunk. Then the remaining bytes are distributed over the segments of the Reply chunk,
/// if the reply uses one.
#[derive(Clone, Debug)]
pub(crate) struct Pour<'a, S, L> {
    /// The Write chunks that were not used yet. The first of these chunks is for the next result.
    chunks: WriteList<'a>,
    results: S,
    /// The Reply chunk. `None` if the reply uses no Reply chunk, or after the chunk was moved to
    /// `segments`.
    reply: Option<Segments<'a>>,
    /// The parts of the reply that go to the Reply chunk and are not written yet.
    rest: L,
    segments: Segments<'a>,
    segment: Segment,
    span: Span,
}

impl<'a, S, L> Pour<'a, S, L>
where
    S: Iterator<Item = Span>,
    L: Iterator<Item = Span>,
{
    /// Distributes the `results` over `chunks`, and `rest` over the segments of `reply`.
    #[inline(always)]
    pub(crate) fn new(
        chunks: WriteList<'a>,
        results: S,
        reply: Option<Segments<'a>>,
        rest: L,
    ) -> Self {
        Self {
            chunks,
            results,
            reply,
            rest,
            segments: Segments::default(),
            segment: Segment::default(),
            span: Span::default(),
        }
    }

    /// Moves to the next span, which is a range of bytes in the reply, and to the chunk for this
    /// span. Each span of a result uses the next Write chunk. All spans of the remaining bytes use
    /// the Reply chunk, one after the other.
    #[inline(always)]
    fn advance(&mut self) -> Option<()> {
        let chunk = match self.results.next() {
            Some(span) => {
                self.span = span;
                self.chunks.next()
            }
            None => {
                self.span = self.rest.next()?;
                self.reply.take()
            }
        };
        if let Some(chunk) = chunk {
            self.segments = chunk;
            self.segment = Segment::default();
        }
        Some(())
    }
}

impl<S, L> Iterator for Pour<'_, S, L>
where
    S: Iterator<Item = Span>,
    L: Iterator<Item = Span>,
{
    type Item = Write;

    #[inline(always)]
    fn next(&mut self) -> Option<Write> {
        while self.span.length == 0 {
            self.advance()?;
        }
        while self.segment.length == 0 {
            self.segment = self.segments.next()?;
        }
        let length = self.span.length.min(self.segment.length);
        let write = Write {
            handle: self.segment.handle,
            offset: self.segment.offset,
            span: Span {
                from: self.span.from,
                length,
            },
        };
        // NO-OVERFLOW: `length` exceeds neither the remaining length of the span nor the remaining
        // length of the segment. A Call is accepted only if the last byte of each segment has a
        // valid offset.
        self.span.from = self.span.from.wrapping_add(length);
        self.span.length = self.span.length.wrapping_sub(length);
        self.segment.offset = self.segment.offset.wrapping_add(u64::from(length));
        self.segment.length = self.segment.length.wrapping_sub(length);
        Some(write)
    }
}

/// Sets the lengths of the segments in the Write chunk at the front of `chunks`, as
/// [`put_written`] does. Returns the encoded chunks after this one.
#[inline(always)]
pub(crate) fn put_chunk(chunks: &mut [u8], written: u32) -> Result<&mut [u8], Full> {
    let (front, rest) = chunks.split_first_chunk_mut::<CHUNK_LEN>().ok_or(Full)?;
    let [_, _, _, _, count @ ..] = *front;
    let count = usize::try_from(u32::from_be_bytes(count)).map_err(|_| Full)?;
    let len = count.checked_mul(SEGMENT_LEN).ok_or(Full)?;
    let (segments, rest) = rest.split_at_mut_checked(len).ok_or(Full)?;
    put_written(segments, written);
    Ok(rest)
}

/// Sets the length of each encoded segment of a chunk to the number of bytes that were written to
/// the segment. `written` is the number of bytes that were written to the chunk.
#[inline(always)]
pub(crate) fn put_written(segments: &mut [u8], written: u32) {
    let (mut rest, mut left) = (segments, written);
    while let Some((segment, more)) = rest.split_first_chunk_mut::<SEGMENT_LEN>() {
        let [_, _, _, _, length @ .., _, _, _, _, _, _, _, _] = segment;
        let used = u32::from_be_bytes(*length).min(left);
        *length = used.to_be_bytes();
        // NO-OVERFLOW: `used` is at most `left`.
        left = left.wrapping_sub(used);
        rest = more;
    }
}
