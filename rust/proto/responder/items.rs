// SPDX-License-Identifier: GPL-2.0

//! The Read chunks of a Call, grouped by Position.
//!
//! A Read list contains segments. All segments with the same Position form one chunk, wherever in
//! the list they are (RFC 8166 3.4.5). The number of chunks is limited, so that grouping needs no
//! allocation and its work is linear in the length of the message.

use crate::{
    responder::refusal::Fault,
    wire::{
        chunk::{
            ReadList,
            Segment, //
        },
        xdr::round_up, //
    }, //
};

/// Maximum number of Read chunks of data in a Call. A Position-Zero chunk does not count.
pub const MAX_ITEMS: usize = 8;

/// A Read chunk of data: its Position is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Offset in the unreduced message at which the chunk begins; never zero.
    pub(crate) position: u32,
    /// Length in bytes of all segments of the chunk together.
    pub(crate) length: u32,
    /// Length in bytes of the chunk with its XDR padding.
    pub(crate) padded: u32,
}

/// All Read chunks of data in a Call, in ascending order of Position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Items {
    slots: [Option<Item>; MAX_ITEMS],
}

/// The content of a Read list, grouped into chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Length in bytes of the Position-Zero chunk, if the list contains one.
    pub(crate) message: Option<u32>,
    /// The Read chunks of data: all chunks but the Position-Zero chunk.
    pub(crate) items: Items,
}

impl Reads {
    /// Groups the segments of a Read list by Position, and checks each segment.
    pub(crate) fn group(list: &ReadList<'_>) -> Result<Self, Fault> {
        let mut reads = Self::default();
        for entry in list.clone() {
            if entry.position & 3 != 0 {
                return Err(Fault::Position);
            }
            check_memory(&entry.segment)?;
            if entry.position == 0 {
                reads.message = Some(sum(reads.message.unwrap_or(0), &entry.segment)?);
            } else {
                reads.items.add(entry.position, &entry.segment)?;
            }
        }
        Ok(reads)
    }
}

impl Items {
    fn add(&mut self, position: u32, segment: &Segment) -> Result<(), Fault> {
        let mut new = Item::new(position, segment.length)?;
        for slot in &mut self.slots {
            match slot {
                Some(item) if item.position == new.position => {
                    *item = Item::new(position, sum(item.length, segment)?)?;
                    return Ok(());
                }
                Some(item) if item.position < new.position => {}
                // The new chunk takes this slot; each later chunk moves to the next slot.
                Some(item) => core::mem::swap(item, &mut new),
                None => {
                    *slot = Some(new);
                    return Ok(());
                }
            }
        }
        Err(Fault::TooComplex)
    }

    /// Returns the chunks in ascending order of Position.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Item> + '_ {
        self.slots.iter().map_while(|slot| *slot)
    }

    /// Returns true if the Call has no Read chunk of data.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Returns the chunk with the lowest Position.
    #[inline]
    pub(crate) fn first(&self) -> Option<Item> {
        self.iter().next()
    }

    /// Returns the chunk if there is exactly one.
    #[inline]
    pub(crate) fn only(&self) -> Option<Item> {
        let mut items = self.iter();
        items.next().filter(|_| items.next().is_none())
    }
}

impl Item {
    fn new(position: u32, length: u32) -> Result<Self, Fault> {
        Ok(Self {
            position,
            length,
            padded: round_up(length).ok_or(Fault::Wraps)?,
        })
    }
}

/// Returns the length of a chunk after `segment` was added to it.
fn sum(length: u32, segment: &Segment) -> Result<u32, Fault> {
    length.checked_add(segment.length).ok_or(Fault::Wraps)
}

/// Checks that a segment does not go beyond the end of the client's 64-bit address space.
pub(crate) fn check_memory(segment: &Segment) -> Result<(), Fault> {
    let behind_first = u64::from(segment.length).saturating_sub(1);
    match segment.offset.checked_add(behind_first) {
        Some(_last) => Ok(()),
        None => Err(Fault::Wraps),
    }
}

/// Checks the segments of a Write chunk or Reply chunk, and returns the chunk's length in bytes.
pub(crate) fn capacity(segments: impl Iterator<Item = Segment>) -> Result<u32, Fault> {
    let mut bytes = 0;
    for segment in segments {
        check_memory(&segment)?;
        bytes = sum(bytes, &segment)?;
    }
    Ok(bytes)
}
