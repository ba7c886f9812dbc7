// SPDX-License-Identifier: GPL-2.0

//! Assignment of results to Write chunks (RFC 8166 4.3.2, RFC 8267 6.4.1).
//!
//! The RPC layer marks the results that may be in a Write chunk, in the order of the reply. The
//! k-th mark belongs to the k-th Write chunk, even if the mark or the chunk is empty: a READ of
//! zero bytes still uses a chunk. The bindings differ for a union whose arm has no data. RFC 8166
//! leaves the chunk to the next result, so the RPC layer makes no mark. In NFSv4 such a chunk stays
//! unused, so the RPC layer makes a mark of zero bytes.

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

/// Length in bytes of the header of an accepted RPC Reply with an empty verifier. No result begins
/// at a lower offset.
pub const MIN_ACCEPTED: u32 = 24;

/// A Write chunk, and the bytes of the reply that are written to it.
#[derive(Clone, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) chunk: Segments<'a>,
    /// The bytes of the reply for this chunk; zero bytes if the chunk stays unused.
    pub(crate) span: Span,
}

impl Placed<'_> {
    /// Returns the offset in the reply at which the result with its pad ends.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        end(self.span).unwrap_or(u32::MAX)
    }

    /// Checks that the result fits into the chunk.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match capacity(self.chunk.clone()) {
            Ok(capacity) if capacity >= self.span.length => Ok(()),
            _ => Err(Fault::WriteRoom),
        }
    }
}

/// Pairs the Write chunks of a Call with the marks of its reply.
///
/// A marked result goes inline, and its chunk stays unused, in two cases. Either the mark does not
/// match the reply, because the RPC layer truncated the reply after it made the mark. Or the chunk
/// has a length of zero: the client wants the result inline.
#[derive(Clone, Debug)]
pub(crate) struct Pairs<'a> {
    chunks: WriteList<'a>,
    marks: core::slice::Iter<'a, Span>,
    /// Offset in the reply before which no later mark may begin.
    least: u32,
    total: u32,
}

impl<'a> Pairs<'a> {
    /// Pairs `chunks` with `marks` for a reply of `total` bytes.
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

/// Returns the offset in the reply at which an item with its pad ends.
fn end(span: Span) -> Option<u32> {
    span.from.checked_add(round_up(span.length)?)
}
