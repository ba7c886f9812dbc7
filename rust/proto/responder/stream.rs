// SPDX-License-Identifier: GPL-2.0

//! The unreduced Call: where its pieces are, and the operations that assemble it.
//!
//! The RPC message of a Call is inline or in a Position-Zero chunk. In either case, data may have
//! been moved out of the message into other Read chunks. The driver provides a read buffer, in
//! which the data of the Read chunks are stored. This module computes the RDMA Reads and the
//! [`Fill`]s, which together write each byte of the read buffer once.

use crate::{
    responder::{
        admit::Admitted,
        call::Call,
        items::{
            Item,
            Items, //
        }, //
    },
    wire::{
        chunk::{
            Handle,
            ReadList, //
        },
        xdr, //
    }, //
};

/// The location of the unreduced message after all data have been fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assembly {
    /// The whole message is the inline payload; no read buffer is needed.
    Inline,
    /// The message is `payload[..at]`, then the read buffer, then `payload[at..]`.
    Split {
        /// Offset in the inline payload at which the fetched data are inserted.
        at: u32,
    },
    /// The whole message is in the read buffer.
    Landed,
}

/// An RDMA Read. It is never empty and never goes beyond the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The handle of the client's memory region.
    pub handle: Handle,
    /// Offset in the client's memory region at which the Read begins.
    pub offset: u64,
    /// Number of bytes to read.
    pub length: u32,
    /// Offset in the read buffer at which the bytes are stored.
    pub to: u32,
}

/// A part of the read buffer that no RDMA Read fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Bytes to copy from the inline payload.
    Copy {
        /// Offset in the inline payload.
        from: u32,
        /// Offset in the read buffer.
        to: u32,
        /// Number of bytes to copy.
        length: u32,
    },
    /// Zeroes to write for the XDR padding that the client did not send.
    Zero {
        /// Offset in the read buffer.
        to: u32,
        /// Number of zero bytes.
        length: u32,
    },
}

impl<'a> Call<'a, Admitted> {
    /// Returns the inline payload, to which [`Assembly`] and [`Fill`] refer.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the location of the unreduced message after all data have been fetched.
    #[inline]
    pub fn assembly(&self) -> Assembly {
        if self.stage.long {
            return Assembly::Landed;
        }
        match (self.first_item(), self.stage.items) {
            (None, _) => Assembly::Inline,
            (Some(item), 1) => Assembly::Split { at: item.position },
            (Some(_), _) => Assembly::Landed,
        }
    }

    /// Returns the length of the read buffer in bytes.
    #[inline]
    pub fn landing(&self) -> u32 {
        match self.assembly() {
            Assembly::Inline => 0,
            Assembly::Split { .. } => self.stage.total.saturating_sub(self.stage.body),
            Assembly::Landed => self.stage.total,
        }
    }

    /// Returns true if the Call needs an RDMA Read, because one of its Read segments is not empty.
    #[inline]
    pub fn has_reads(&self) -> bool {
        // A Call with a Position-Zero chunk needs a Read, because its RPC message is not empty. Any
        // other Call needs a Read only if Read chunks make the message longer than the reduced
        // message.
        self.stage.long || self.stage.total != self.stage.body
    }

    /// Returns the RDMA Reads in ascending order of their offsets in the read buffer.
    #[inline]
    pub fn reads(&self) -> impl Iterator<Item = Read> + 'a {
        Cuts {
            cut: self.split().map_or(Cut::default(), |item| Cut {
                entries: self.lists.reads.clone(),
                position: item.position,
                skip: 0,
                left: item.length,
                to: 0,
            }),
            pieces: self.landed(),
            list: self.lists.reads.clone(),
            long: self.stage.long,
        }
    }

    /// Returns the parts of the read buffer that no RDMA Read fills, in ascending order of offset.
    #[inline]
    pub fn fills(&self) -> impl Iterator<Item = Fill> + '_ {
        Fills {
            pad: self.split(),
            pieces: self.landed(),
            long: self.stage.long,
        }
    }

    /// If the read buffer receives a single Read chunk and nothing else, returns this chunk.
    /// Otherwise returns `None`.
    #[inline]
    fn split(&self) -> Option<Item> {
        match self.assembly() {
            Assembly::Split { .. } => self.first_item(),
            Assembly::Inline | Assembly::Landed => None,
        }
    }

    /// Returns the pieces of the message with their offsets in the read buffer, or `None` if the
    /// read buffer does not receive the whole message. No piece is empty.
    #[inline]
    fn landed(&self) -> Option<Pieces<'a>> {
        match self.assembly() {
            Assembly::Landed => Some(Pieces {
                items: self.items(),
                body: self.stage.body,
                place: Place::default(),
                ready: [Piece::EMPTY; 3].into_iter(),
                ended: false,
            }),
            Assembly::Inline | Assembly::Split { .. } => None,
        }
    }
}

/// Iterator over the parts of a read buffer that no RDMA Read fills.
struct Fills<'a> {
    /// The Read chunk whose XDR padding must still be returned. Used only if the read buffer
    /// receives a single Read chunk and nothing else; otherwise `None`.
    pad: Option<Item>,
    pieces: Option<Pieces<'a>>,
    long: bool,
}

impl Iterator for Fills<'_> {
    type Item = Fill;

    #[inline(always)]
    fn next(&mut self) -> Option<Fill> {
        if let Some(Item { length, .. }) = self.pad.take() {
            return match xdr::pad(length) {
                0 => None,
                pad => Some(Fill::Zero {
                    to: length,
                    length: pad,
                }),
            };
        }
        self.pieces.as_mut()?.fill(self.long)
    }
}

/// A contiguous piece of the unreduced message.
#[derive(Clone, Copy, Debug)]
struct Piece {
    source: Source,
    /// Offset in the read buffer.
    to: u32,
    length: u32,
}

impl Piece {
    const EMPTY: Self = Self {
        source: Source::Pad,
        to: 0,
        length: 0,
    };
}

/// Iterator over the pieces in a read buffer; it returns no empty piece. It is not a chain of
/// iterator adapters, because the symbol names of such a chain are longer than the kernel's tools
/// accept.
struct Pieces<'a> {
    items: Items<'a>,
    body: u32,
    place: Place,
    ready: core::array::IntoIter<Piece, 3>,
    /// Whether the pieces in `ready` are the last pieces.
    ended: bool,
}

impl Pieces<'_> {
    /// Returns the next part that no RDMA Read fills. `long` says whether the message is in a
    /// Position-Zero chunk.
    #[cold]
    fn fill(&mut self, long: bool) -> Option<Fill> {
        self.find_map(|piece| {
            let Piece { to, length, .. } = piece;
            match piece.source {
                Source::Body { from } if !long => Some(Fill::Copy { from, to, length }),
                Source::Pad => Some(Fill::Zero { to, length }),
                Source::Body { .. } | Source::Item { .. } => None,
            }
        })
    }

    /// Returns an iterator over the RDMA Reads for the next piece that needs RDMA Reads.
    #[cold]
    fn cut<'a>(&mut self, list: &ReadList<'a>, long: bool) -> Option<Cut<'a>> {
        self.find_map(|piece| {
            let (position, skip) = match piece.source {
                Source::Item { position } => (position, 0),
                Source::Body { from } if long => (0, from),
                Source::Body { .. } | Source::Pad => return None,
            };
            Some(Cut {
                entries: list.clone(),
                position,
                skip,
                left: piece.length,
                to: piece.to,
            })
        })
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        loop {
            if let Some(piece) = self.ready.find(|piece| piece.length != 0) {
                return Some(piece);
            }
            if self.ended {
                return None;
            }
            let item = self.items.next();
            self.ended = item.is_none();
            self.ready = self.place.advance(item, self.body).into_iter();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// Bytes of the reduced message. The first of these bytes is at offset `from` of the message.
    Body { from: u32 },
    /// The whole Read chunk whose Position is `position`.
    Item { position: u32 },
    /// The XDR padding that follows a chunk.
    Pad,
}

/// The total lengths of the pieces that have been made so far.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Number of bytes of the reduced message in the pieces that have been made so far.
    body: u32,
    /// Length of all pieces that have been made so far, in bytes. This is also the offset of the
    /// next piece in the read buffer.
    to: u32,
}

impl Place {
    /// Returns the pieces of the unreduced message up to the end of the chunk `item`. If `item` is
    /// `None`, returns the pieces up to the end of the message.
    #[cold]
    fn advance(&mut self, item: Option<Item>, body: u32) -> [Piece; 3] {
        // NO-OVERFLOW: The admission of the Call has checked that each chunk begins inside the
        // message and after the end of the previous chunk, and that the unreduced message is
        // shorter than 2^32 bytes. So no operation here saturates.
        let before = match item {
            Some(item) => item.position.saturating_sub(self.to),
            None => body.saturating_sub(self.body),
        };
        let from = self.body;
        self.body = from.saturating_add(before);
        let first = self.piece(Source::Body { from }, before);
        let (position, length) = item.map_or((0, 0), |item| (item.position, item.length));
        let [second, third] = self.chunk(position, length);
        [first, second, third]
    }

    /// Returns the pieces of a chunk: its data and its pad.
    #[inline]
    fn chunk(&mut self, position: u32, length: u32) -> [Piece; 2] {
        let data = self.piece(Source::Item { position }, length);
        [data, self.piece(Source::Pad, xdr::pad(length))]
    }

    #[inline]
    fn piece(&mut self, source: Source, length: u32) -> Piece {
        let to = self.to;
        self.to = to.saturating_add(length);
        Piece { source, to, length }
    }
}

/// Iterator over the RDMA Reads that fill a read buffer.
struct Cuts<'a> {
    /// The Reads for the current piece. If the read buffer receives a single Read chunk and nothing
    /// else, these are the Reads for this chunk.
    cut: Cut<'a>,
    /// The pieces that follow the current piece.
    pieces: Option<Pieces<'a>>,
    list: ReadList<'a>,
    long: bool,
}

impl Iterator for Cuts<'_> {
    type Item = Read;

    #[inline]
    fn next(&mut self) -> Option<Read> {
        loop {
            if let Some(read) = self.cut.next() {
                return Some(read);
            }
            let pieces = self.pieces.as_mut()?;
            self.cut = pieces.cut(&self.list, self.long)?;
        }
    }
}

/// Iterator over the RDMA Reads for a part of one chunk.
#[derive(Default)]
struct Cut<'a> {
    entries: ReadList<'a>,
    position: u32,
    /// Number of bytes that must still be skipped to reach the wanted part of the chunk.
    skip: u32,
    /// Number of wanted bytes for which no RDMA Read has been returned yet.
    left: u32,
    to: u32,
}

impl Iterator for Cut<'_> {
    type Item = Read;

    #[inline]
    fn next(&mut self) -> Option<Read> {
        while self.left != 0 {
            let entry = self.entries.next()?;
            if entry.position != self.position {
                continue;
            }
            let skipped = self.skip.min(entry.segment.length);
            self.skip = self.skip.saturating_sub(skipped);
            let length = entry.segment.length.saturating_sub(skipped).min(self.left);
            if length == 0 {
                continue;
            }
            let to = self.to;
            self.left = self.left.saturating_sub(length);
            self.to = to.saturating_add(length);
            return Some(Read {
                handle: entry.segment.handle,
                offset: entry.segment.offset.saturating_add(u64::from(skipped)),
                length,
                to,
            });
        }
        None
    }
}
