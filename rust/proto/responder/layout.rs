// SPDX-License-Identifier: GPL-2.0

//! The position of the chunk lists in a message ([`Layout`]).

use crate::wire::{
    chunk::{
        Lists,
        ReadList,
        Segments,
        WriteList,
        ABSENT_LEN,
        CHUNK_LEN, //
    },
    xdr::{
        Malformed,
        Reader, //
    }, //
};

/// The lengths in bytes of the chunk lists in a decoded message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Length of the Read list without its terminator.
    pub(crate) reads: usize,
    /// Length of the Write list without its terminator.
    pub(crate) writes: usize,
    /// Number of Write chunks.
    pub(crate) chunks: usize,
    /// Length of the lists that the header of the Reply repeats: the Write list, its terminator,
    /// and the Reply chunk.
    pub(crate) returned: usize,
}

/// The lengths of a [`Layout`] as 32-bit numbers. They are stored so that the lists can be found in
/// the message again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    reads: u32,
    writes: u32,
    chunks: u32,
    returned: u32,
}

impl Layout {
    /// Returns the lengths of these chunk lists, which have `len` bytes together.
    #[inline(always)]
    pub(crate) fn of(lists: &Lists<'_>, len: usize) -> Self {
        let reads = lists.reads.bytes.len();
        Self {
            reads,
            writes: lists.writes.bytes.len(),
            chunks: lists.writes.count,
            // NO-OVERFLOW: The Read list and its terminator are a part of the lists.
            returned: len.wrapping_sub(reads).wrapping_sub(ABSENT_LEN),
        }
    }

    /// Returns the length in bytes of the chunk lists in the header of the Reply. The Read list in
    /// this header is empty.
    #[inline(always)]
    pub(crate) fn returned_len(&self) -> usize {
        // NO-OVERFLOW: A message in memory contains the lists.
        self.returned.wrapping_add(ABSENT_LEN)
    }

    /// Returns the part of the lists that the header of the Reply repeats. `encoded` begins with
    /// the encoded lists.
    #[inline(always)]
    pub(crate) fn returned<'a>(&self, encoded: &'a [u8]) -> &'a [u8] {
        let mut input = Reader::new(encoded);
        let found = self.find(&mut input);
        // The bytes exist, because the lists were decoded from `encoded`.
        found.map(|(_, returned)| returned).unwrap_or_default()
    }

    /// Finds the three chunk lists in the input again. The input must begin with the lists from
    /// which this object was made. Also returns the part of the lists that the header of the Reply
    /// repeats. Returns [`Malformed`] if the input is shorter than the lists.
    #[inline(always)]
    pub(crate) fn find<'a>(
        &self,
        input: &mut Reader<'a>,
    ) -> Result<(Lists<'a>, &'a [u8]), Malformed> {
        // INVARIANT: The input has not changed, so the lists are those that were decoded.
        let reads = ReadList {
            bytes: input.take(self.reads)?,
        };
        input.take(ABSENT_LEN)?;
        let returned = input.take(self.returned)?;
        let (writes, rest) = returned.split_at_checked(self.writes).ok_or(Malformed)?;
        let lists = Lists {
            reads,
            writes: WriteList {
                bytes: writes,
                count: self.chunks,
            },
            // If the Reply chunk is absent, only one word follows the end of the Write list.
            reply: rest
                .get(ABSENT_LEN + CHUNK_LEN..)
                .map(|bytes| Segments { bytes }),
        };
        Ok((lists, returned))
    }

    /// Returns the lengths in the form in which they are stored.
    #[inline(always)]
    pub(crate) fn store(&self) -> Stored {
        // CAST: The lengths fit, because a message has a few kilobytes.
        Stored {
            reads: self.reads as u32,
            writes: self.writes as u32,
            chunks: self.chunks as u32,
            returned: self.returned as u32,
        }
    }
}

impl Stored {
    /// Returns the lengths.
    #[inline(always)]
    pub(crate) fn layout(&self) -> Layout {
        // CAST: A `usize` is at least as wide as a `u32`.
        Layout {
            reads: self.reads as usize,
            writes: self.writes as usize,
            chunks: self.chunks as usize,
            returned: self.returned as usize,
        }
    }
}
