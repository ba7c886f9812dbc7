// SPDX-License-Identifier: GPL-2.0

//! Where the chunk lists of a message are ([`Layout`]).

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

/// The lengths of the chunk lists in a message that was decoded, to find the same lists again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    reads: u32,
    writes: u32,
    /// Number of Write chunks.
    chunks: u32,
    /// Length of the segments of the Reply chunk.
    reply: Option<u32>,
}

impl Layout {
    /// Returns the lengths of these lists.
    #[inline]
    pub(crate) fn of(lists: &Lists<'_>) -> Self {
        // CAST: A message has a few kilobytes.
        Self {
            reads: lists.reads.bytes.len() as u32,
            writes: lists.writes.bytes.len() as u32,
            chunks: lists.writes.count as u32,
            reply: lists.reply.as_ref().map(|reply| reply.bytes.len() as u32),
        }
    }

    /// Takes the three lists from the input, from which they were decoded before. Returns
    /// [`Malformed`] if the input is shorter than they are.
    #[inline]
    pub(crate) fn find<'a>(&self, input: &mut Reader<'a>) -> Result<Lists<'a>, Malformed> {
        // CAST: A `usize` is at least as wide.
        // INVARIANT: The input has not changed, so the lists are those that were decoded.
        let reads = ReadList {
            bytes: input.take(self.reads as usize)?,
        };
        input.take(ABSENT_LEN)?;
        let writes = WriteList {
            bytes: input.take(self.writes as usize)?,
            count: self.chunks as usize,
        };
        input.take(ABSENT_LEN)?;
        let reply = match self.reply {
            Some(len) => {
                input.take(CHUNK_LEN)?;
                let bytes = input.take(len as usize)?;
                Some(Segments { bytes })
            }
            None => {
                input.take(ABSENT_LEN)?;
                None
            }
        };
        Ok(Lists {
            reads,
            writes,
            reply,
        })
    }
}
