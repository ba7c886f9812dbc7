// SPDX-License-Identifier: GPL-2.0

//! The Read chunks of a Call, grouped by Position.
//!
//! A Read list contains segments. All segments with the same Position form one chunk, wherever in
//! the list they are (RFC 8166 3.4.5). Only the first chunk is stored, so that the stored state of
//! a Call is small. Few Calls have more chunks. Each further chunk is found by a search of the
//! list. The number of chunks is limited ([`MAX_ITEMS`]), so the work is linear in the length of
//! the message.

use crate::{
    responder::refusal::Fault,
    wire::chunk::{
        ReadList,
        ReadSegment,
        Segment,
        Segments, //
    }, //
};

/// Maximum number of Read chunks of data in a Call. A Position-Zero chunk does not count.
pub const MAX_ITEMS: usize = 8;

/// A Read chunk of data: its Position is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// Offset in the unreduced message at which the chunk begins; never zero.
    pub(crate) position: u32,
    /// Length in bytes of all segments of the chunk together.
    pub(crate) length: u32,
}

/// Iterator over the Read chunks of data in a Call, in ascending order of Position.
#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    list: ReadList<'a>,
    /// The first chunk. Has no meaning if the list has no chunk of data.
    first: Item,
    /// Position of the chunk that the iterator returned last. Zero before the first chunk.
    last: u32,
    /// Number of chunks that the iterator has not returned yet.
    left: u32,
}

/// The content of a Read list, grouped into chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Length in bytes of the Position-Zero chunk, if the list contains one.
    pub(crate) message: Option<u32>,
    /// Number of Read chunks of data: all chunks but the Position-Zero chunk.
    pub(crate) items: u32,
    /// The first Read chunk of data. Has no meaning if `items` is zero.
    pub(crate) first: Item,
}

impl Reads {
    /// Groups the segments of a Read list by Position, and checks each segment.
    #[inline(always)]
    pub(crate) fn group(list: ReadList<'_>) -> Result<Self, Fault> {
        let mut rest = list.clone();
        match rest.next() {
            None => Ok(Self::default()),
            // Nearly every Read list has one segment, which is a chunk of data.
            Some(entry) if rest.is_empty() && entry.position != 0 => {
                check_entry(&entry)?;
                Ok(Self {
                    message: None,
                    items: 1,
                    first: Item {
                        position: entry.position,
                        length: entry.segment.length,
                    },
                })
            }
            Some(_) => Self::group_all(list),
        }
    }

    /// Groups the segments of any Read list. [`Self::group`] calls this function for unusual lists.
    #[cold]
    fn group_all(list: ReadList<'_>) -> Result<Self, Fault> {
        let mut reads = Self::default();
        let (mut first, mut length, mut is_alone) = (0, 0u64, true);
        for entry in list.clone() {
            check_entry(&entry)?;
            if entry.position == 0 {
                reads.message = Some(sum(reads.message.unwrap_or(0), &entry.segment)?);
                continue;
            }
            if first == 0 {
                first = entry.position;
            }
            is_alone &= entry.position == first;
            // A message has far fewer than 2^32 segments, so the sum does not saturate.
            length = length.saturating_add(entry.segment.length.into());
        }
        if first == 0 {
            return Ok(reads);
        }
        if is_alone {
            let length = u32::try_from(length).map_err(|_| Fault::Wraps)?;
            reads.first = Item {
                position: first,
                length,
            };
            reads.items = 1;
            return Ok(reads);
        }
        let mut last = 0;
        while let Some(item) = Item::behind(last, list.clone())? {
            // CAST: The constant `MAX_ITEMS` is 8, which fits into 32 bits.
            if reads.items == MAX_ITEMS as u32 {
                return Err(Fault::TooComplex);
            }
            if reads.items == 0 {
                reads.first = item;
            }
            reads.items = reads.items.saturating_add(1);
            last = item.position;
        }
        Ok(reads)
    }
}

impl<'a> Items<'a> {
    /// Returns an iterator over the `count` chunks of a Read list. [`Reads::group`] has checked the
    /// list, and has found its first chunk (`first`).
    #[inline]
    pub(crate) fn new(list: ReadList<'a>, first: Item, count: u32) -> Self {
        Self {
            list,
            first,
            last: 0,
            left: count,
        }
    }
}

impl Iterator for Items<'_> {
    type Item = Item;

    // This function is inlined, so that the compiler need not store the iterator in memory if the
    // Call has one chunk.
    #[inline(always)]
    fn next(&mut self) -> Option<Item> {
        self.left = self.left.checked_sub(1)?;
        let item = match self.last {
            0 => self.first,
            // The search cannot fail here, because `Reads::group` has found the same chunk without
            // an error.
            last => Item::behind(last, self.list.clone()).ok()??,
        };
        self.last = item.position;
        Some(item)
    }
}

impl Item {
    /// Returns the chunk with the lowest Position above `last`.
    #[cold]
    fn behind(last: u32, list: ReadList<'_>) -> Result<Option<Self>, Fault> {
        let (mut position, mut length) = (u32::MAX, None);
        for entry in list {
            if entry.position > last && entry.position <= position {
                let before = match entry.position == position {
                    true => length.unwrap_or(0),
                    false => 0,
                };
                position = entry.position;
                length = Some(sum(before, &entry.segment)?);
            }
        }
        Ok(length.map(|length| Self { position, length }))
    }
}

/// Returns the length of a chunk after `segment` was added to it.
#[inline]
fn sum(length: u32, segment: &Segment) -> Result<u32, Fault> {
    length.checked_add(segment.length).ok_or(Fault::Wraps)
}

/// Checks the Position and the memory of a segment in a Read list.
#[inline(always)]
fn check_entry(entry: &ReadSegment) -> Result<(), Fault> {
    if entry.position & 3 != 0 {
        return Err(Fault::Position);
    }
    check_memory(&entry.segment)
}

/// Checks that a segment does not go beyond the end of the client's 64-bit address space.
#[inline]
pub(crate) fn check_memory(segment: &Segment) -> Result<(), Fault> {
    match segment.offset.checked_add(segment.length.into()) {
        Some(_end) => Ok(()),
        None => check_end(segment.offset, segment.length),
    }
}

/// Checks that a segment ends exactly at the end of the address space.
#[cold]
fn check_end(offset: u64, length: u32) -> Result<(), Fault> {
    match offset.wrapping_add(length.into()) {
        0 => Ok(()),
        _ => Err(Fault::Wraps),
    }
}

/// Checks the segments of a Write chunk or Reply chunk, and returns the chunk's length in bytes.
#[inline(always)]
pub(crate) fn capacity(segments: Segments<'_>) -> Result<u32, Fault> {
    let mut bytes = 0;
    for segment in segments {
        check_memory(&segment)?;
        bytes = sum(bytes, &segment)?;
    }
    Ok(bytes)
}
