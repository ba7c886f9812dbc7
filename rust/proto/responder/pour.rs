// SPDX-License-Identifier: GPL-2.0

//! How bytes of a reply fill the segments of a chunk: in order, without a gap (RFC 8166 3.4.6).

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

/// Bytes of the RPC reply that are next to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where in the reply.
    pub from: u32,
    /// How many bytes.
    pub length: u32,
}

/// An RDMA Write, never of zero bytes and never beyond a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The client's region.
    pub handle: Handle,
    /// Where in the region.
    pub offset: u64,
    /// The bytes.
    pub span: Span,
}

/// Pours spans of the reply into segments until either is used up.
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
        // NO-OVERFLOW: `length` is at most either length. The ends were checked at admission.
        self.span.from = self.span.from.wrapping_add(length);
        self.span.length = self.span.length.wrapping_sub(length);
        self.segment.offset = self.segment.offset.wrapping_add(u64::from(length));
        self.segment.length = self.segment.length.wrapping_sub(length);
        Some(write)
    }
}

/// Writes a chunk as the Reply returns it: as it came, with the lengths that were written.
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
