// SPDX-License-Identifier: GPL-2.0

//! Which result goes to which Write chunk (RFC 8166 4.3.2, RFC 8267 6.4.1).
//!
//! The RPC layer marks results that may be in a chunk, in the order of the reply. The k-th mark
//! belongs to the k-th Write chunk, also if the mark or the chunk is empty: a READ of no bytes has
//! its chunk. For an arm of a union without data, RFC 8166 leaves the chunk to the next result, so
//! the RPC layer makes no mark; in NFSv4 the chunk stays unused, so it makes one of no bytes.

use crate::{
    responder::{
        items::capacity,
        pour::Span,
        refusal::Fault, //
    },
    wire::{
        chunk::{
            Segments,
            WriteList, //
        },
        xdr::round_up, //
    }, //
};

/// Bytes of the header of an accepted RPC Reply with an empty verifier. No result begins before.
pub const MIN_ACCEPTED: u32 = 24;

/// A Write chunk, and the bytes of the reply that it gets.
#[derive(Clone, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) chunk: Segments<'a>,
    /// Zero bytes if the chunk stays unused.
    pub(crate) span: Span,
}

impl Placed<'_> {
    /// The byte of the reply behind the result and its pad.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        end(self.span).unwrap_or(u32::MAX)
    }

    /// Checks that the chunk can take the bytes.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match capacity(self.chunk.clone()) {
            Ok(capacity) if capacity >= self.span.length => Ok(()),
            _ => Err(Fault::WriteRoom),
        }
    }
}

/// Pairs the Write chunks of a Call with the marks of its reply.
///
/// Left out are marks that the reply does not hold as they are, because the RPC layer cut it off
/// later, and those of a chunk without room, with which the client asks for the result inline. What
/// is left out goes inline.
#[derive(Clone, Debug)]
pub(crate) struct Pairs<'a> {
    chunks: WriteList<'a>,
    marks: core::slice::Iter<'a, Span>,
    /// No later mark begins before this byte.
    least: u32,
    total: u32,
}

impl<'a> Pairs<'a> {
    /// Pairs them, for a reply of `total` bytes.
    pub(crate) fn new(chunks: WriteList<'a>, marks: &'a [Span], total: u32) -> Self {
        Self {
            chunks,
            marks: marks.iter(),
            least: MIN_ACCEPTED,
            total,
        }
    }

    fn holds(&self, mark: Span) -> bool {
        let inside = end(mark).is_some_and(|end| end <= self.total);
        inside && mark.from >= self.least && mark.from & 3 == 0
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Placed<'a>;

    fn next(&mut self) -> Option<Placed<'a>> {
        let chunk = self.chunks.next()?;
        let mark = self.marks.next().copied().unwrap_or_default();
        let has_room = chunk.clone().any(|segment| segment.length != 0);
        let span = if has_room && self.holds(mark) {
            mark
        } else {
            Span::default()
        };
        let placed = Placed { chunk, span };
        if span.length != 0 {
            self.least = placed.end();
        }
        Some(placed)
    }
}

/// The byte of the reply behind an item and its pad.
fn end(span: Span) -> Option<u32> {
    span.from.checked_add(round_up(span.length)?)
}
