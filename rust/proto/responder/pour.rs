// SPDX-License-Identifier: GPL-2.0

//! Distribution of a reply's bytes over the segments of a chunk: in order, without gaps (RFC 8166
//! 3.4.6).

use crate::wire::{
    chunk::{
        Handle,
        Segment,
        Segments,
        WriteList, //
    },
    xdr::{
        Full,
        Writer, //
    }, //
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

    /// Moves to the next span, which is a range of bytes in the reply. Each span of a result begins
    /// a Write chunk. The first span of the remaining bytes begins the Reply chunk, and later spans
    /// continue the Reply chunk.
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

/// Encodes a chunk for the header of a Reply: the client's segments, each with the number of bytes
/// that were written to it.
#[inline]
pub(crate) fn encode_written(
    segments: Segments<'_>,
    written: u32,
    out: &mut Writer<'_>,
) -> Result<(), Full> {
    out.words([1, u32::try_from(segments.len()).map_err(|_| Full)?])?;
    let mut left = written;
    for mut segment in segments {
        segment.length = segment.length.min(left);
        left = left.saturating_sub(segment.length);
        segment.encode(out)?;
    }
    Ok(())
}
