// SPDX-License-Identifier: GPL-2.0

//! Assignment of results to Write chunks (RFC 8166 4.3.2, RFC 8267 6.4.1).
//!
//! The RPC layer marks the results that may be in a Write chunk, in the order of the reply. The
//! k-th mark belongs to the k-th Write chunk, even if the mark or the chunk is empty: a READ of
//! zero bytes still uses a chunk.
//!
//! A union whose arm has no data is a special case:
//!
//! - By RFC 8166 its chunk is used for the next result. So the RPC layer makes no mark for the
//!   union.
//! - In NFSv4 its chunk stays unused. So the RPC layer makes an empty mark, to which the chunk
//!   belongs.

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

/// Corrects the mark of a result. A mark is the range of the reply that may be put into a Write
/// chunk. Of an opaque item, only the data may be in a Write chunk (RFC 8267 6.1).
///
/// - If the mark begins at the data of an opaque item, the mark is right.
/// - If the mark begins at the length word before the data, it is moved to the data. The Linux NFS
///   server makes such a mark for READLINK of NFSv4.
/// - In any other case the mark becomes empty, so that the result goes inline. This is also the
///   case if the length word differs from the length of the mark.
///
/// `word` returns the 4 bytes at an offset of the finished reply as a number.
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

/// The lengths in bytes of the Write chunks that may be used for results. `first` is known from the
/// admission of the Call. The other lengths are computed from `chunks` when they are needed.
#[derive(Clone, Debug)]
pub(crate) struct Rooms<'a> {
    /// Length of the first chunk; zero if there is no chunk.
    pub(crate) first: u32,
    pub(crate) chunks: WriteList<'a>,
}

impl Rooms<'_> {
    /// Returns the length of the k-th chunk, or zero if there is no such chunk.
    #[inline]
    pub(crate) fn get(&self, k: usize) -> u32 {
        match k {
            0 => self.first,
            _ => Self::later(self.chunks.clone(), k),
        }
    }

    /// Returns the length of the k-th chunk; `k` is not zero. The list is passed by value, so that
    /// the caller need not store it in memory.
    #[cold]
    fn later(mut chunks: WriteList<'_>, k: usize) -> u32 {
        let chunk = chunks.nth(k);
        // No error occurs here, because the same length was computed without an error when the Call
        // was admitted.
        chunk.map_or(0, |chunk| capacity(chunk).unwrap_or(0))
    }
}

/// The bytes of a reply that its RDMA Writes carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of bytes.
    pub bytes: u32,
    /// The range of the written bytes in the reply, or `None` if these bytes are not contiguous.
    pub whole: Option<Span>,
}

impl Written {
    /// Adds a range of bytes. The range is not empty.
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
/// A marked result goes inline, and its chunk stays unused, in two cases:
///
/// - The mark does not match the reply, because the RPC layer truncated the reply after it made the
///   mark.
/// - The chunk has a length of zero, by which the client asks for an inline result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Results<'a> {
    marks: &'a [Span],
    /// Bit k is set if the k-th result is written to the k-th Write chunk. There are enough bits,
    /// because a Call has at most [`MAX_WRITES`](super::admit::MAX_WRITES) Write chunks.
    placed: u32,
    /// Length in bytes of the results that are written to Write chunks, with their pads.
    padded: u32,
    written: Written,
    /// Offset of the first result that is written to a Write chunk. If there is no such result,
    /// this is the length of the reply.
    first: u32,
    /// Offset of the end of the last result that is written to a Write chunk, after its pad. If
    /// there is no such result, this is the length of the reply.
    end: u32,
    /// Length of the reply in bytes.
    total: u32,
}

impl<'a> Results<'a> {
    /// Pairs the marked results with the Write chunks. `rooms` returns the lengths of the Write
    /// chunks, and `first` is the length of the first chunk. Fails if a result does not fit into
    /// its chunk.
    #[inline(always)]
    pub(crate) fn pair<'b>(
        &mut self,
        first: u32,
        rooms: impl FnOnce() -> Rooms<'b>,
    ) -> Result<(), Fault> {
        // Nearly every reply has at most one marked result.
        match self.marks {
            [] => Ok(()),
            [mark] => self.place(mark, first, 1),
            _ => {
                *self = Self::pair_all(rooms(), self.marks, self.total)?;
                Ok(())
            }
        }
    }

    /// Returns the marked results `marks` of a reply of `total` bytes. No result is paired with a
    /// Write chunk yet.
    #[inline(always)]
    pub(crate) fn new(marks: &'a [Span], total: u32) -> Self {
        Self {
            marks,
            placed: 0,
            padded: 0,
            written: Written::default(),
            first: total,
            end: total,
            total,
        }
    }

    /// Does the work of [`Self::pair`] for any number of marks.
    #[cold]
    fn pair_all(rooms: Rooms<'_>, marks: &'a [Span], total: u32) -> Result<Self, Fault> {
        let mut results = Self::new(marks, total);
        let mut bit = 1u32;
        for (k, mark) in (0..rooms.chunks.len()).zip(marks) {
            results.place(mark, rooms.get(k), bit)?;
            bit = bit.wrapping_add(bit);
        }
        Ok(results)
    }

    /// Decides whether the result of the next mark is written to its Write chunk, whose length is
    /// `room`. `bit` is the bit of the mark in `placed`.
    #[inline(always)]
    fn place(&mut self, mark: &Span, room: u32, bit: u32) -> Result<(), Fault> {
        let least = match self.any() {
            true => self.end,
            false => MIN_ACCEPTED,
        };
        let inside = end(*mark).is_some_and(|end| end <= self.total);
        let holds = inside && mark.from >= least && mark.from & 3 == 0;
        if room != 0 && holds && mark.length != 0 {
            if mark.length > room {
                return Err(Fault::WriteRoom);
            }
            if !self.any() {
                self.first = mark.from;
            }
            self.placed |= bit;
            self.written = self.written.add(*mark);
            self.end = padded_end(*mark);
            // NO-OVERFLOW: The results with their pads lie inside the reply and do not overlap.
            let padded = self.end.saturating_sub(mark.from);
            self.padded = self.padded.saturating_add(padded);
        }
        Ok(())
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

    /// Returns an iterator over the Write chunks, in order. Its item for a chunk is the range of
    /// the reply that is written to the chunk. The range is empty if the chunk is unused. The
    /// iterator ends after the last chunk with a result.
    #[inline]
    pub(crate) fn spans(&self) -> Spans<'a> {
        Spans {
            marks: self.marks.iter(),
            placed: self.placed,
        }
    }

    /// Returns the parts of the reply that are not written to Write chunks.
    #[inline]
    pub(crate) fn left(&self) -> Left<'a> {
        let has_several = self.placed & self.placed.wrapping_sub(1) != 0;
        Left {
            head: Span {
                from: 0,
                length: self.first,
            },
            between: match has_several {
                true => Between {
                    spans: self.spans(),
                    from: self.first,
                },
                false => Between::default(),
            },
            tail: Span {
                from: self.end,
                // NO-OVERFLOW: Every result with its pad is inside the reply.
                length: self.total.saturating_sub(self.end),
            },
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
    head: Span,
    between: Between<'a>,
    tail: Span,
}

impl Iterator for Left<'_> {
    type Item = Span;

    #[inline(always)]
    fn next(&mut self) -> Option<Span> {
        let mut span = core::mem::take(&mut self.head);
        if span.length == 0 {
            if self.between.spans.placed != 0 {
                let part;
                (self.between, part) = self.between.clone().next();
                if part.length != 0 {
                    return Some(part);
                }
            }
            span = core::mem::take(&mut self.tail);
        }
        (span.length != 0).then_some(span)
    }
}

/// The parts of a reply between results that are written to Write chunks. Empty if there are fewer
/// than two such results.
#[derive(Clone, Debug, Default)]
struct Between<'a> {
    spans: Spans<'a>,
    from: u32,
}

impl Between<'_> {
    /// Returns the next part, and the parts that follow it. The next part is empty if no part is
    /// left. `self` is passed by value, so that the caller need not store it in memory.
    #[cold]
    fn next(mut self) -> (Self, Span) {
        while let Some(span) = self.spans.next() {
            if span.length == 0 {
                continue;
            }
            let from = core::mem::replace(&mut self.from, padded_end(span));
            // NO-OVERFLOW: The results with their pads are inside the reply, in order.
            let length = span.from.saturating_sub(from);
            if length != 0 {
                return (self, Span { from, length });
            }
        }
        (self, Span::default())
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
