// SPDX-License-Identifier: GPL-2.0

//! The unreduced Call: where its pieces are, and what brings them together.
//!
//! A Call is inline, in a Position-Zero chunk, or in either of them with chunks of data that were
//! taken out of it. The driver gives a landing area, and gets RDMA Reads and [`Fill`]s that write
//! each byte of it once.

use crate::{
    responder::{
        admit::Admitted,
        call::Call,
        items::Item, //
    },
    wire::{
        chunk::{
            Handle,
            ReadList, //
        },
        xdr, //
    }, //
};
use core::num::NonZeroU32;

/// Where the unreduced message is when everything is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assembly {
    /// The whole message is the inline payload; there is no landing area.
    Inline,
    /// It is `payload[..at]`, the landing area, `payload[at..]`.
    Split {
        /// Where in the inline payload the data belong.
        at: u32,
    },
    /// The whole message is the landing area.
    Landed,
}

/// An RDMA Read, never of zero bytes and never beyond a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The client's region.
    pub handle: Handle,
    /// Where in the region.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
    /// Where in the landing area the bytes belong.
    pub to: u32,
}

/// A part of the landing area that no RDMA Read writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Bytes of the inline payload.
    Copy {
        /// Where in the inline payload.
        from: u32,
        /// Where in the landing area.
        to: u32,
        /// How many bytes.
        length: u32,
    },
    /// Zeroes: the pad that the client did not send.
    Zero {
        /// Where in the landing area.
        to: u32,
        /// How many bytes.
        length: u32,
    },
}

impl<'a> Call<'a, Admitted> {
    /// The inline payload, as [`Assembly`] and [`Fill`] refer to it.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Where the unreduced message is in the end.
    pub fn assembly(&self) -> Assembly {
        if self.facts.long {
            return Assembly::Landed;
        }
        match self.stage.items.only() {
            Some(item) => Assembly::Split { at: item.position },
            None if self.stage.items.is_empty() => Assembly::Inline,
            None => Assembly::Landed,
        }
    }

    /// Bytes of the landing area.
    pub fn landing(&self) -> u32 {
        match self.assembly() {
            Assembly::Inline => 0,
            Assembly::Split { .. } => self.stage.items.only().map_or(0, |item| item.padded),
            Assembly::Landed => self.stage.total,
        }
    }

    /// Pages of the landing area, the unit of [`Budget`](crate::responder::budget::Budget).
    pub fn landing_pages(&self, page_size: NonZeroU32) -> u32 {
        self.landing().div_ceil(page_size.get())
    }

    /// The RDMA Reads, in the order of the landing area.
    pub fn reads(&self) -> impl Iterator<Item = Read> + '_ {
        let long = self.facts.long;
        self.landed().flat_map(move |piece| {
            let (position, skip) = match piece.source {
                Source::Item { position } => (position, 0),
                Source::Body { from } if long => (0, from),
                Source::Body { .. } | Source::Pad => return Cut::default(),
            };
            Cut {
                entries: self.lists.reads.clone(),
                position,
                skip,
                left: piece.length,
                to: piece.to,
            }
        })
    }

    /// Returns the parts of the landing area that no RDMA Read fills, in its order.
    pub fn fills(&self) -> impl Iterator<Item = Fill> + '_ {
        let long = self.facts.long;
        self.landed().filter_map(move |piece| {
            let Piece { to, length, .. } = piece;
            match piece.source {
                Source::Body { from } if !long => Some(Fill::Copy { from, to, length }),
                Source::Pad => Some(Fill::Zero { to, length }),
                Source::Body { .. } | Source::Item { .. } => None,
            }
        })
    }

    /// Returns the pieces in the landing area, at their places there.
    fn landed(&self) -> impl Iterator<Item = Piece> + '_ {
        let (start, body) = match self.assembly() {
            Assembly::Inline => (0, false),
            Assembly::Split { at } => (at, false),
            Assembly::Landed => (0, true),
        };
        self.pieces()
            .filter(move |piece| body || !matches!(piece.source, Source::Body { .. }))
            .map(move |piece| Piece {
                to: piece.to.saturating_sub(start),
                ..piece
            })
    }

    /// The pieces of the unreduced message, none of them empty.
    fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        Pieces {
            items: self.stage.items.iter(),
            body: self.stage.body,
            place: Place::default(),
            ready: [Piece::EMPTY; 3].into_iter(),
            ended: false,
        }
    }
}

/// A piece of the unreduced message.
#[derive(Clone, Copy, Debug)]
struct Piece {
    source: Source,
    /// Where in the unreduced message.
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

/// The pieces of a message, none of them empty. A type of its own, and not a chain of adapters:
/// the names of what is compiled of those become longer than the kernel's tools take.
struct Pieces<I> {
    items: I,
    body: u32,
    place: Place,
    ready: core::array::IntoIter<Piece, 3>,
    ended: bool,
}

impl<I: Iterator<Item = Item>> Iterator for Pieces<I> {
    type Item = Piece;

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
    /// The reduced message, from this byte on.
    Body { from: u32 },
    /// All of the Read chunk at this Position.
    Item { position: u32 },
    /// The pad behind a chunk.
    Pad,
}

/// How much of the unreduced message was returned in pieces already.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Bytes of the reduced message.
    body: u32,
    /// Bytes of the unreduced message.
    to: u32,
}

impl Place {
    /// The pieces up to the end of the next chunk, or those behind the last one.
    fn advance(&mut self, item: Option<Item>, body: u32) -> [Piece; 3] {
        // NO-OVERFLOW: Admission found that each chunk begins inside the message, behind the one
        // before it, and that all of it together is below 2^32. Saturation is never seen.
        let before = match item {
            Some(item) => item.position.saturating_sub(self.to),
            None => body.saturating_sub(self.body),
        };
        let from = self.body;
        self.body = from.saturating_add(before);
        let first = self.piece(Source::Body { from }, before);
        let (position, length) = item.map_or((0, 0), |item| (item.position, item.length));
        let second = self.piece(Source::Item { position }, length);
        [first, second, self.piece(Source::Pad, xdr::pad(length))]
    }

    fn piece(&mut self, source: Source, length: u32) -> Piece {
        let to = self.to;
        self.to = to.saturating_add(length);
        Piece { source, to, length }
    }
}

/// The Reads of a part of one chunk.
#[derive(Default)]
struct Cut<'a> {
    entries: ReadList<'a>,
    position: u32,
    /// Bytes of the chunk in front of the wanted ones.
    skip: u32,
    /// Wanted bytes that are not read yet.
    left: u32,
    to: u32,
}

impl Iterator for Cut<'_> {
    type Item = Read;

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
