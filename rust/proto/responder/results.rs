// SPDX-License-Identifier: GPL-2.0

//! Assignment of results to Write chunks (RFC 8166 4.3.2, RFC 8267 6.4.1).
//!
//! The RPC layer marks the results that may be in a Write chunk, in the order of the reply. The
//! k-th mark belongs to the k-th Write chunk, even if the mark or the chunk is empty: a READ of
//! zero bytes still uses a chunk. The rules differ for a union whose arm has no data. RFC 8166
//! leaves the chunk to the next result, so the RPC layer makes no mark. In NFSv4 such a chunk stays
//! unused, so the RPC layer marks an empty result, to which the chunk then belongs.

use crate::{
    responder::{
        items::capacity,
        pour::Span,
        refusal::Fault, //
    },
    wire::{
        chunk::WriteList,
        xdr::round_up, //
    }, //
};

/// Length in bytes of the header of an accepted RPC Reply with an empty verifier. No result begins
/// at a lower offset.
pub const MIN_ACCEPTED: u32 = 24;

/// Length in bytes of the word that precedes the data of an opaque item (RFC 4506 4.10).
const COUNT: u32 = 4;

/// Corrects the mark of a result. A mark is the range of the reply that may be in a Write chunk. A
/// mark needs correction if it begins at the length word of an opaque item and not at the data of
/// the item. `word` returns the 4 bytes at an offset of the finished reply as a number.
///
/// The Linux NFS server makes such a mark for READLINK of NFSv4. Only the data may be in a Write
/// chunk (RFC 8267 6.1). If a mark begins neither at the length word nor at the data of an opaque
/// item, or if the item has another length than the mark, the mark becomes empty, so that the
/// result goes inline.
#[inline]
pub fn data_of(mark: Span, word: impl Fn(u32) -> Option<u32>) -> Span {
    let is_count = |at: Option<u32>| at.and_then(&word) == Some(mark.length);
    if is_count(mark.from.checked_sub(COUNT)) {
        return mark;
    }
    match mark.from.checked_add(COUNT) {
        Some(from) if is_count(Some(mark.from)) => Span { from, ..mark },
        _ => Span { length: 0, ..mark },
    }
}

/// Iterator over the lengths in bytes of the Write chunks that may be used for results. The length
/// of the first chunk is known from the admission of the Call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms<'a> {
    first: Option<u32>,
    chunks: WriteList<'a>,
    /// Number of chunks at the front of `chunks` whose lengths were returned.
    skip: usize,
}

impl<'a> Rooms<'a> {
    /// Returns the lengths of these chunks, of which the first one has `first` bytes.
    #[inline]
    pub(crate) fn new(first: u32, chunks: WriteList<'a>) -> Self {
        Self {
            first: (!chunks.is_empty()).then_some(first),
            chunks,
            skip: 1,
        }
    }

    /// Returns the length of the next chunk, which is not the first one.
    #[cold]
    fn later(&mut self) -> Option<u32> {
        let chunk = self.chunks.nth(core::mem::take(&mut self.skip))?;
        capacity(chunk).ok()
    }
}

impl Iterator for Rooms<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        match self.first.take() {
            Some(first) => Some(first),
            None => self.later(),
        }
    }
}

/// The bytes of a reply that its RDMA Writes carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of bytes.
    pub bytes: u32,
    /// The range of these bytes in the reply, if the bytes of the Writes are contiguous in the
    /// reply.
    pub whole: Option<Span>,
}

impl Written {
    /// Adds a range of bytes, which is not empty.
    #[inline]
    pub(crate) fn add(self, span: Span) -> Self {
        let whole = match self.whole {
            _ if self.bytes == 0 => Some(span),
            Some(whole) if whole.from.checked_add(whole.length) == Some(span.from) => Some(Span {
                // NO-OVERFLOW: Both ranges are in the reply.
                length: whole.length.saturating_add(span.length),
                ..whole
            }),
            _ => None,
        };
        Self {
            // NO-OVERFLOW: The ranges are in the reply and do not overlap.
            bytes: self.bytes.saturating_add(span.length),
            whole,
        }
    }
}

/// The results of a reply that are written to Write chunks, and those that are not.
///
/// A marked result goes inline, and its chunk stays unused, in two cases. Either the mark does not
/// match the reply, because the RPC layer truncated the reply after it made the mark. Or the chunk
/// has a length of zero, by which the client asks for an inline result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Results<'a> {
    marks: &'a [Span],
    /// Bit k is set if the k-th result is written to the k-th Write chunk. Admission limits the
    /// number of Write chunks to [`MAX_WRITES`](super::admit::MAX_WRITES).
    placed: u32,
    /// Length in bytes of the results that are written to Write chunks, with their pads.
    padded: u32,
    written: Written,
}

impl<'a> Results<'a> {
    /// Pairs the Write chunks, whose lengths are `rooms`, with the marked results `marks` of a
    /// reply of `total` bytes. Fails if a result does not fit into its chunk.
    #[inline]
    pub(crate) fn pair(rooms: Rooms<'_>, marks: &'a [Span], total: u32) -> Result<Self, Fault> {
        let (mut placed, mut padded, mut bit, mut least) = (0, 0u32, 1u32, MIN_ACCEPTED);
        let mut written = Written::default();
        for (mark, room) in marks.iter().zip(rooms) {
            let inside = end(*mark).is_some_and(|end| end <= total);
            let holds = inside && mark.from >= least && mark.from & 3 == 0;
            if room != 0 && holds && mark.length != 0 {
                if mark.length > room {
                    return Err(Fault::WriteRoom);
                }
                placed |= bit;
                written = written.add(*mark);
                least = padded_end(*mark);
                // NO-OVERFLOW: The results with their pads lie inside the reply and do not overlap.
                padded = padded.saturating_add(least.saturating_sub(mark.from));
            }
            bit = bit.wrapping_add(bit);
        }
        Ok(Self {
            marks,
            placed,
            padded,
            written,
        })
    }

    /// Returns the bytes that are written to Write chunks.
    #[inline]
    pub(crate) const fn written(&self) -> Written {
        self.written
    }

    /// Returns the length in bytes of the results that are written to Write chunks, with their
    /// pads.
    #[inline]
    pub(crate) const fn padded(&self) -> u32 {
        self.padded
    }

    /// Returns whether a result is written to a Write chunk.
    #[inline]
    pub(crate) const fn any(&self) -> bool {
        self.placed != 0
    }

    /// Returns for each Write chunk, in order, the bytes of the reply that are written to it: none
    /// for an unused chunk. The iterator ends after the last result, so it returns nothing for
    /// later chunks without a result.
    #[inline]
    pub(crate) fn spans(&self) -> Spans<'a> {
        Spans {
            marks: self.marks.iter(),
            placed: self.placed,
        }
    }

    /// Returns the parts of a reply of `total` bytes that are not written to Write chunks.
    #[inline]
    pub(crate) fn left(&self, total: u32) -> Left<'a> {
        Left {
            spans: self.spans(),
            from: 0,
            total,
        }
    }
}

/// Iterator over the bytes for each Write chunk, see [`Results::spans`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans<'a> {
    marks: core::slice::Iter<'a, Span>,
    placed: u32,
}

impl Iterator for Spans<'_> {
    type Item = Span;

    #[inline]
    fn next(&mut self) -> Option<Span> {
        if self.placed == 0 {
            return None;
        }
        let (mark, placed) = (self.marks.next()?, self.placed);
        self.placed = placed >> 1;
        Some(match placed & 1 {
            0 => Span::default(),
            _ => *mark,
        })
    }
}

/// Iterator over the parts of a reply that are not written to Write chunks. No part is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left<'a> {
    spans: Spans<'a>,
    from: u32,
    total: u32,
}

impl Iterator for Left<'_> {
    type Item = Span;

    #[inline]
    fn next(&mut self) -> Option<Span> {
        loop {
            let placed = self.spans.next();
            let (until, next) = match placed {
                Some(span) if span.length == 0 => continue,
                Some(span) => (span.from, padded_end(span)),
                None => (self.total, self.total),
            };
            let from = core::mem::replace(&mut self.from, next);
            // NO-OVERFLOW: The results with their pads are inside the reply, in order.
            let length = until.saturating_sub(from);
            if length != 0 {
                return Some(Span { from, length });
            }
            placed?;
        }
    }
}

/// Returns the offset in the reply at which a result with its pad ends.
#[inline]
fn padded_end(span: Span) -> u32 {
    end(span).unwrap_or(u32::MAX)
}

#[inline]
fn end(span: Span) -> Option<u32> {
    span.from.checked_add(round_up(span.length)?)
}
