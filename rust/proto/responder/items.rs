// SPDX-License-Identifier: GPL-2.0

//! The Read chunks of a Call, grouped by Position.
//!
//! A Read list names segments, and segments of one Position are a chunk wherever in the list they
//! are (RFC 8166 3.4.5). The number of chunks is bounded, so that grouping needs no memory and its
//! work is linear in the message.

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

/// The most Read chunks of data in a Call.
pub const MAX_ITEMS: usize = 8;

/// One Read chunk of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Where it begins in the unreduced message, not zero.
    pub(crate) position: u32,
    /// Bytes of its segments together.
    pub(crate) length: u32,
    /// The same with the pad behind it.
    pub(crate) padded: u32,
}

/// All Read chunks of data of a Call, by ascending Position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Items {
    slots: [Option<Item>; MAX_ITEMS],
}

/// The content of a Read list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Bytes of the Position-Zero chunk, if there is one.
    pub(crate) message: Option<u32>,
    /// The others.
    pub(crate) items: Items,
}

impl Reads {
    /// Groups a Read list by Position, and checks each segment.
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
                // The entries behind it move up by one.
                Some(item) => core::mem::swap(item, &mut new),
                None => {
                    *slot = Some(new);
                    return Ok(());
                }
            }
        }
        Err(Fault::TooComplex)
    }

    /// The chunks by ascending Position.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Item> + '_ {
        self.slots.iter().map_while(|slot| *slot)
    }

    /// True if there is no chunk.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// The chunk with the lowest Position.
    #[inline]
    pub(crate) fn first(&self) -> Option<Item> {
        self.iter().next()
    }

    /// The only chunk.
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

/// The length of a chunk with a segment more.
fn sum(length: u32, segment: &Segment) -> Result<u32, Fault> {
    length.checked_add(segment.length).ok_or(Fault::Wraps)
}

/// Checks that a segment does not go beyond the end of the client's address space.
pub(crate) fn check_memory(segment: &Segment) -> Result<(), Fault> {
    let behind_first = u64::from(segment.length).saturating_sub(1);
    match segment.offset.checked_add(behind_first) {
        Some(_last) => Ok(()),
        None => Err(Fault::Wraps),
    }
}

/// The bytes of a Write chunk or Reply chunk, whose segments are checked.
pub(crate) fn capacity(segments: impl Iterator<Item = Segment>) -> Result<u32, Fault> {
    let mut bytes = 0;
    for segment in segments {
        check_memory(&segment)?;
        bytes = sum(bytes, &segment)?;
    }
    Ok(bytes)
}
