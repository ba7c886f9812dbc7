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

/// The lengths of the chunk lists in a decoded message. They are stored so that the lists can be
/// found in the message again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    reads: u32,
    writes: u32,
    /// Number of Write chunks.
    chunks: u32,
    /// Length of the encoded segments of the Reply chunk; `None` without a Reply chunk.
    reply: Option<u32>,
}

impl Layout {
    /// Returns the lengths of these chunk lists.
    #[inline]
    pub(crate) fn of(lists: &Lists<'_>) -> Self {
        // CAST: The lengths fit, because a message has a few kilobytes.
        Self {
            reads: lists.reads.bytes.len() as u32,
            writes: lists.writes.bytes.len() as u32,
            chunks: lists.writes.count as u32,
            reply: lists.reply.as_ref().map(|reply| reply.bytes.len() as u32),
        }
    }

    /// Takes the three chunk lists from the input. The same lists were decoded from this input
    /// before. Returns [`Malformed`] if the input is shorter than the lists.
    #[inline]
    pub(crate) fn find<'a>(&self, input: &mut Reader<'a>) -> Result<Lists<'a>, Malformed> {
        // CAST: A `usize` is at least as wide as the type of the stored lengths.
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
