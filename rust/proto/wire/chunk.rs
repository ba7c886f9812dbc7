// SPDX-License-Identifier: GPL-2.0

//! Segments and chunk lists (RFC 8166 3.4, 4.3), the same in both protocol versions.
//!
//! What we send is described by [`ChunkLists`], which borrows arrays of [`Segment`]. What we
//! receive is [`Lists`]: views over the received bytes whose structure was checked once by
//! [`Lists::decode`], so that walking them later cannot fail. Every loop consumes input and is
//! therefore bounded by the length of the message; no count from the wire sizes anything.

use crate::wire::xdr::{
    Full,
    Malformed,
    Reader,
    Writer, //
};

/// A steering tag: the rkey of a registered region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

/// A plain segment: part of a region that the peer may access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Which region.
    pub handle: Handle,
    /// The length in bytes; in a Reply, how many bytes were written.
    pub length: u32,
    /// Where in the region; any value is allowed (V1-112).
    pub offset: u64,
}

impl Segment {
    /// Writes the segment.
    #[inline(always)]
    pub(crate) fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let mut bytes = [0; SEGMENT_LEN];
        let mut fields = Writer::new(&mut bytes);
        fields.u32(self.handle.0)?;
        fields.u32(self.length)?;
        fields.u64(self.offset)?;
        out.array(bytes)
    }
}

/// A Read chunk to be sent: one data item, or the whole message if `position` is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadChunk<'a> {
    /// Where the item starts in the unreduced Payload stream (V1-040); zero for a
    /// Position-Zero Read chunk.
    pub position: u32,
    /// The memory that holds the item, in order.
    pub segments: &'a [Segment],
}

/// A segment of the Read list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// See [`ReadChunk::position`].
    pub position: u32,
    /// The memory.
    pub segment: Segment,
}

/// Bytes of a plain segment.
pub const SEGMENT_LEN: usize = 16;
/// Bytes of an entry of the Read list: discriminator, position, segment.
pub const READ_ENTRY_LEN: usize = 24;
/// Bytes of a list terminator or of an absent Reply chunk.
pub const ABSENT_LEN: usize = 4;
/// Bytes of a Write or Reply chunk without its segments: discriminator and count.
pub const CHUNK_LEN: usize = 8;

/// Bytes of a Write or Reply chunk of `segments` segments.
#[inline]
pub const fn chunk_len(segments: usize) -> usize {
    segments
        .saturating_mul(SEGMENT_LEN)
        .saturating_add(CHUNK_LEN)
}

/// The chunk lists of a message to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkLists<'a> {
    /// The Read list, chunk by chunk.
    pub reads: &'a [ReadChunk<'a>],
    /// The Write list, chunk by chunk; a chunk without segments asks for that result inline.
    pub writes: &'a [&'a [Segment]],
    /// The Reply chunk, if there is one.
    pub reply: Option<&'a [Segment]>,
}

impl ChunkLists<'_> {
    /// How many bytes [`encode`](Self::encode) writes.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        // NO-OVERFLOW: On the wire a list is little longer than in memory.
        let chunk_len = |chunk: &[Segment]| {
            let segments = chunk.len().wrapping_mul(SEGMENT_LEN);
            segments.wrapping_add(CHUNK_LEN)
        };
        let mut len = ABSENT_LEN.wrapping_add(ABSENT_LEN);
        for chunk in self.reads {
            len = len.wrapping_add(chunk.segments.len().wrapping_mul(READ_ENTRY_LEN));
        }
        for chunk in self.writes {
            len = len.wrapping_add(chunk_len(chunk));
        }
        len.wrapping_add(self.reply.map_or(ABSENT_LEN, chunk_len))
    }

    /// Writes the three lists; [`Full`] if they do not fit.
    // Always inlined: otherwise the position of `out` is stored and loaded for every item.
    #[inline(always)]
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        for chunk in self.reads {
            for segment in chunk.segments {
                let mut bytes = [0; READ_ENTRY_LEN];
                let mut entry = Writer::new(&mut bytes);
                entry.u32(1)?;
                entry.u32(chunk.position)?;
                segment.encode(&mut entry)?;
                out.array(bytes)?;
            }
        }
        out.u32(0)?;
        for chunk in self.writes {
            encode_chunk(chunk, out)?;
        }
        out.u32(0)?;
        match self.reply {
            Some(chunk) => encode_chunk(chunk, out),
            None => out.u32(0),
        }
    }
}

#[inline(always)]
fn encode_chunk(segments: &[Segment], out: &mut Writer<'_>) -> Result<(), Full> {
    out.words([1, u32::try_from(segments.len()).map_err(|_| Full)?])?;
    for segment in segments {
        segment.encode(out)?;
    }
    Ok(())
}

#[inline]
fn decode_segment(input: &mut Reader<'_>) -> Result<Segment, Malformed> {
    let bytes = input.array::<SEGMENT_LEN>()?;
    let mut fields = Reader::new(&bytes);
    Ok(Segment {
        handle: Handle(fields.u32()?),
        length: fields.u32()?,
        offset: fields.u64()?,
    })
}

/// The segments of a received Write or Reply chunk.
///
/// # Invariants
///
/// The bytes are a whole number of segments.
#[derive(Clone, Debug, Default)]
pub struct Segments<'a> {
    bytes: &'a [u8],
}

impl<'a> Segments<'a> {
    /// Takes the count and the segments; the count is believed only as far as the input reaches.
    #[inline]
    fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = usize::try_from(input.u32()?).map_err(|_| Malformed)?;
        let len = count.checked_mul(SEGMENT_LEN).ok_or(Malformed)?;
        // INVARIANT: `len` is a multiple of `SEGMENT_LEN`.
        Ok(Self {
            bytes: input.take(len)?,
        })
    }

    /// How many segments are left.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes.len() / SEGMENT_LEN
    }

    /// True if no segment is left.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        let mut input = Reader::new(self.bytes);
        let segment = decode_segment(&mut input).ok()?;
        self.bytes = input.rest();
        Some(segment)
    }
}

/// The received Read list.
///
/// # Invariants
///
/// The bytes are a whole number of entries, without the terminator.
#[derive(Clone, Debug, Default)]
pub struct ReadList<'a> {
    bytes: &'a [u8],
}

impl<'a> ReadList<'a> {
    #[inline]
    fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = input.clone();
        let mut len = 0usize;
        while input.present()? {
            input.take(READ_ENTRY_LEN - ABSENT_LEN)?;
            len = len.saturating_add(READ_ENTRY_LEN);
        }
        // INVARIANT: `len` grew by a whole entry at a time.
        Ok(Self {
            bytes: start.clone().take(len)?,
        })
    }

    /// True if no segment is left.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Iterator for ReadList<'_> {
    type Item = ReadSegment;

    #[inline]
    fn next(&mut self) -> Option<ReadSegment> {
        let mut input = Reader::new(self.bytes);
        input.u32().ok()?;
        let entry = ReadSegment {
            position: input.u32().ok()?,
            segment: decode_segment(&mut input).ok()?,
        };
        self.bytes = input.rest();
        Some(entry)
    }
}

/// The received Write list; yields one [`Segments`] per chunk.
///
/// # Invariants
///
/// The bytes are `count` whole chunks with their discriminators, without the terminator.
#[derive(Clone, Debug, Default)]
pub struct WriteList<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> WriteList<'a> {
    #[inline]
    fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut start = input.clone();
        let mut count = 0usize;
        let mut len = 0usize;
        while input.present()? {
            let chunk = Segments::decode(input)?;
            len = len.saturating_add(chunk_len(chunk.len()));
            count = count.saturating_add(1);
        }
        // INVARIANT: `len` grew by a whole chunk and `count` by one at a time.
        Ok(Self {
            bytes: start.take(len)?,
            count,
        })
    }

    /// How many chunks are left.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True if no chunk is left.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Iterator for WriteList<'a> {
    type Item = Segments<'a>;

    #[inline]
    fn next(&mut self) -> Option<Segments<'a>> {
        let mut input = Reader::new(self.bytes);
        input.u32().ok()?;
        let chunk = Segments::decode(&mut input).ok()?;
        self.bytes = input.rest();
        self.count = self.count.saturating_sub(1);
        Some(chunk)
    }
}

/// The three chunk lists of a received message.
#[derive(Clone, Debug, Default)]
pub struct Lists<'a> {
    /// The Read list.
    pub reads: ReadList<'a>,
    /// The Write list.
    pub writes: WriteList<'a>,
    /// The Reply chunk, if present.
    pub reply: Option<Segments<'a>>,
}

impl<'a> Lists<'a> {
    /// Takes the three lists and checks their structure, not their meaning; [`Malformed`] if it is
    /// wrong.
    #[inline]
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            reads: ReadList::decode(input)?,
            writes: WriteList::decode(input)?,
            reply: if input.present()? {
                Some(Segments::decode(input)?)
            } else {
                None
            },
        })
    }

    /// True if all three are absent.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }
}
