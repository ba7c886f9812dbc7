// SPDX-License-Identifier: GPL-2.0

//! Distribution of a reply's bytes over the segments of a chunk: in order, without gaps (RFC 8166
//! 3.4.6).

use crate::wire::{
    chunk::{
        Handle,
        Segment,
        Segments, //
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
    /// Number of bytes.
    pub length: u32,
}

/// An RDMA Write. It is never empty and never goes beyond the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The handle of the client's memory region.
    pub handle: Handle,
    /// Offset in the client's memory region at which the Write begins.
    pub offset: u64,
    /// The bytes of the reply that are written.
    pub span: Span,
}

/// Distributes spans of the reply over segments until the spans or the segments are used up.
#[derive(Clone, Debug)]
pub(crate) struct Pour<'a, S> {
    segments: Segments<'a>,
    segment: Segment,
    spans: S,
    span: Span,
}

impl<'a, S> Pour<'a, S> {
    pub(crate) fn new(segments: Segments<'a>, spans: S) -> Self {
        Self {
            segments,
            segment: Segment::default(),
            spans,
            span: Span::default(),
        }
    }
}

impl<S: Iterator<Item = Span>> Iterator for Pour<'_, S> {
    type Item = Write;

    fn next(&mut self) -> Option<Write> {
        while self.span.length == 0 {
            self.span = self.spans.next()?;
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
        // NO-OVERFLOW: `length` exceeds neither the rest of the span nor the rest of the segment.
        // Admission checked that the last byte of each segment has a valid offset.
        self.span.from = self.span.from.wrapping_add(length);
        self.span.length = self.span.length.wrapping_sub(length);
        self.segment.offset = self.segment.offset.wrapping_add(u64::from(length));
        self.segment.length = self.segment.length.wrapping_sub(length);
        Some(write)
    }
}

/// Encodes a chunk for the header of a Reply: the client's segments, each with the number of bytes
/// that were written to it.
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
