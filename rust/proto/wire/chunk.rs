// SPDX-License-Identifier: GPL-2.0

//! Segments and chunk lists (RFC 8166 3.4, 4.3), the same in both protocol versions.
//!
//! - [`ChunkLists`] describes the lists of a message to be sent. It borrows arrays of [`Segment`].
//! - [`Lists`] is a view of the lists in received bytes. [`Lists::decode`] checks their structure,
//!   so later iteration cannot fail.
//!
//! A count in a received message cannot exhaust this host. The length of the message limits the
//! rounds of every loop, because each round consumes bytes of the message. No received count
//! determines the size of an array or of an allocation.

use crate::wire::xdr::{
    Full,
    Malformed,
    Reader,
    Writer, //
};

/// A steering tag: the rkey of a registered region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

/// A plain segment: a range of a memory region that the peer may access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The handle of the region.
    pub handle: Handle,
    /// The length in bytes. In a Reply, it is the number of bytes that the server wrote.
    pub length: u32,
    /// The offset in the region; any number is allowed (V1-112).
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
    /// Byte offset of the item in the unreduced Payload stream (V1-040); zero for a
    /// Position-Zero Read chunk.
    pub position: u32,
    /// The segments of memory that hold the item, in the order of its bytes.
    pub segments: &'a [Segment],
}

/// A segment of the Read list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// The position of the chunk; see [`ReadChunk::position`].
    pub position: u32,
    /// The handle, length and offset of the memory.
    pub segment: Segment,
}

/// Length of a plain segment in bytes.
pub const SEGMENT_LEN: usize = 16;
/// Length of a Read list entry in bytes: discriminator, position, segment.
pub const READ_ENTRY_LEN: usize = 24;
/// Length of a list terminator, or of the word for an absent Reply chunk, in bytes.
pub const ABSENT_LEN: usize = 4;
/// Length of a Write or Reply chunk without its segments, in bytes: discriminator and count.
pub const CHUNK_LEN: usize = 8;

/// The chunk lists of a message to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkLists<'a> {
    /// The Read list, chunk by chunk.
    pub reads: &'a [ReadChunk<'a>],
    /// The Write list, chunk by chunk. A chunk without segments means that the client wants the
    /// data inline.
    pub writes: &'a [&'a [Segment]],
    /// The Reply chunk, if there is one.
    pub reply: Option<&'a [Segment]>,
}

impl ChunkLists<'_> {
    /// Returns how many bytes [`encode`](Self::encode) writes.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        // NO-OVERFLOW: The length of the encoded lists is a small multiple of the size of the lists
        // in memory.
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

    /// Writes the three lists. Returns [`Full`] if they do not fit into `out`.
    // This function is inlined, so that the position of `out` can stay in a register. Otherwise it
    // would be stored and loaded again for every item.
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

/// Returns the bytes between `start` and `end`, without the list terminator that precedes `end`.
#[inline(always)]
fn taken<'a>(mut start: Reader<'a>, end: &Reader<'a>) -> Result<&'a [u8], Malformed> {
    // NO-OVERFLOW: The bytes from `end` on and the terminator are a part of the bytes from `start`
    // on.
    let len = start.rest().len().wrapping_sub(end.rest().len());
    start.take(len.wrapping_sub(ABSENT_LEN))
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
    pub(crate) bytes: &'a [u8],
}

impl<'a> Segments<'a> {
    /// Takes the count and the segments from the input. Fails if the input has fewer segments than
    /// the count says.
    #[inline]
    fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Self::take(input.u32()?, input)
    }

    /// Takes `count` segments from the input.
    #[inline]
    fn take(count: u32, input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        let len = count.checked_mul(SEGMENT_LEN).ok_or(Malformed)?;
        // INVARIANT: `len` is a multiple of `SEGMENT_LEN`.
        Ok(Self {
            bytes: input.take(len)?,
        })
    }

    /// Returns how many segments are left.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes.len() / SEGMENT_LEN
    }

    /// Returns true if no segment is left.
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
    pub(crate) bytes: &'a [u8],
}

impl<'a> ReadList<'a> {
    #[inline(always)]
    fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = input.clone();
        while input.present()? {
            input.take(READ_ENTRY_LEN - ABSENT_LEN)?;
        }
        // INVARIANT: The loop takes exactly one entry in each round.
        Ok(Self {
            bytes: taken(start, input)?,
        })
    }

    /// Returns true if no segment is left.
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
        let bytes = input.array::<READ_ENTRY_LEN>().ok()?;
        let mut fields = Reader::new(&bytes);
        fields.u32().ok()?;
        let entry = ReadSegment {
            position: fields.u32().ok()?,
            segment: decode_segment(&mut fields).ok()?,
        };
        self.bytes = input.rest();
        Some(entry)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.bytes.len() / READ_ENTRY_LEN;
        (left, Some(left))
    }
}

impl ExactSizeIterator for ReadList<'_> {}

/// The received Write list. It yields one [`Segments`] for each chunk.
///
/// # Invariants
///
/// The bytes are `count` whole chunks with their discriminators, without the terminator.
#[derive(Clone, Debug, Default)]
pub struct WriteList<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) count: usize,
}

impl<'a> WriteList<'a> {
    #[inline(always)]
    fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = input.clone();
        let mut count = 0usize;
        while input.present()? {
            Segments::decode(input)?;
            count = count.saturating_add(1);
        }
        // INVARIANT: In each round the loop takes exactly one chunk, and adds one to `count`.
        Ok(Self {
            bytes: taken(start, input)?,
            count,
        })
    }

    /// Returns how many chunks are left.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Returns true if no chunk is left.
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
        let [_, _, _, _, count @ ..] = input.array::<CHUNK_LEN>().ok()?;
        let chunk = Segments::take(u32::from_be_bytes(count), &mut input).ok()?;
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
    /// Takes the three lists from the input, and checks their structure, but not their meaning.
    /// Returns [`Malformed`] if the structure is wrong.
    #[inline(always)]
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        // Most messages have neither Read chunks nor Write chunks.
        let (reads, writes) = match input.both_absent() {
            true => (ReadList::default(), WriteList::default()),
            false => (ReadList::decode(input)?, WriteList::decode(input)?),
        };
        Ok(Self {
            reads,
            writes,
            reply: if input.present()? {
                Some(Segments::decode(input)?)
            } else {
                None
            },
        })
    }

    /// Returns true if both lists and the Reply chunk are absent.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }
}
