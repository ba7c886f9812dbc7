// SPDX-License-Identifier: GPL-2.0

//! Transport headers: the fixed words, and encoding of everything that we send.
//!
//! The first four words are the same in every version (V1-079). Version 2 adds one word, the
//! direction, and is otherwise laid out like version 1.

use crate::{
    error::Error,
    wire::{
        chunk::{
            ChunkLists,
            ReadChunk,
            Segment,
            ABSENT_LEN,
            CHUNK_LEN,
            READ_ENTRY_LEN,
            SEGMENT_LEN, //
        },
        xdr::{
            Full,
            Malformed,
            Reader,
            Writer, //
        }, //
    }, //
};

/// A transaction id; the same number in the transport and in the RPC header (V1-076).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Xid(pub u32);

/// A credit word: a request in a Call, a grant in a Reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credits(pub u32);

/// What is spoken on a connection: the words of its messages and what they mean.
///
/// Whatever depends on that matches on this type. The number on the wire is [`Version::number`]
/// alone: a later draft of version two has the number 2 as well and is a variant of its own here,
/// with a file for its codec, and with credits of its own behind `ForwardCredits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// RFC 8166.
    #[default]
    V1,
    /// The version two draft.
    V2,
}

impl Version {
    /// The number on the wire.
    #[inline]
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Bytes in front of the chunk lists.
    #[inline]
    pub const fn fixed_len(self) -> usize {
        match self {
            Self::V1 => 16,
            Self::V2 => 20,
        }
    }

    /// Bytes of a header without chunks, the smallest there is for a Call or Reply.
    #[inline]
    pub const fn min_header_len(self) -> usize {
        match self {
            Self::V1 => 28,
            Self::V2 => 32,
        }
    }
}

/// Bytes of the words common to all versions.
pub const FIXED_LEN: usize = 16;
/// Bytes of an error message without a version range.
pub const ERROR_LEN: usize = 20;
/// The most segments one chunk may have (ULB-26).
pub const MAX_SEGMENTS: usize = 16;

/// Values of the procedure word.
pub(crate) mod proc_nr {
    pub(crate) const MSG: u32 = 0;
    pub(crate) const NOMSG: u32 = 1;
    /// RDMA_DONE, of version 1 only.
    pub(crate) const DONE: u32 = 3;
    pub(crate) const ERROR: u32 = 4;
    pub(crate) const OPTIONAL: u32 = 5;
}

/// Values of the error word.
pub(crate) mod err_nr {
    pub(crate) const VERS: u32 = 1;
    /// ERR_CHUNK; BAD_HEADER in version 2.
    pub(crate) const CHUNK: u32 = 2;
    pub(crate) const INVAL_OPTION: u32 = 3;
}

/// Values of `msg_type` in the RPC header, and of the direction word of version 2.
pub(crate) mod direction {
    pub(crate) const CALL: u32 = 0;
    pub(crate) const REPLY: u32 = 1;
}

/// The words that every message of every version begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Transaction id.
    pub xid: Xid,
    /// Version number as received; not checked.
    pub version: u32,
    /// Credit word; its meaning depends on the direction.
    pub credits: Credits,
    /// Procedure number as received; not checked.
    pub procedure: u32,
}

impl Fixed {
    /// Takes the four words.
    #[inline]
    pub fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes = input.array::<FIXED_LEN>()?;
        let mut words = Reader::new(&bytes);
        Ok(Self {
            xid: Xid(words.u32()?),
            version: words.u32()?,
            credits: Credits(words.u32()?),
            procedure: words.u32()?,
        })
    }

    /// Writes the four words.
    #[inline(always)]
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.words([self.xid.0, self.version, self.credits.0, self.procedure])
    }
}

/// A forward Call: us to the server.
#[derive(Clone, Copy, Debug)]
pub struct CallHeader<'a> {
    /// Version of the connection.
    pub version: Version,
    /// The RPC's xid.
    pub xid: Xid,
    /// How many credits we ask for; never zero.
    pub credits: Credits,
    /// The chunks. A Read chunk at position zero makes the message an `RDMA_NOMSG`.
    pub lists: ChunkLists<'a>,
}

/// Bytes of a header's lists that are all absent.
const EMPTY: usize = 3 * ABSENT_LEN;
/// Bytes of a header's lists with a Write chunk of one segment.
pub const ONE_WRITE: usize = EMPTY + CHUNK_LEN + SEGMENT_LEN;
/// Bytes of a header's lists with a Read chunk of one segment.
pub const ONE_READ: usize = EMPTY + READ_ENTRY_LEN;
/// Bytes of a header's lists with a Reply chunk of one segment.
pub const ONE_REPLY: usize = ONE_WRITE - ABSENT_LEN;

/// The chunk of a Call that has one, of one segment, as nearly all Calls with chunks do.
#[derive(Clone, Copy, Debug)]
pub enum OneChunk {
    /// A Read chunk at this position, which is not zero.
    Read(u32, Segment),
    /// A Write chunk.
    Write(Segment),
    /// A Reply chunk.
    Reply(Segment),
}

impl OneChunk {
    /// Writes the header of a Call with this chunk to the front of `buf` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::BadChunk`] for an empty segment and a bad position (V1-038, V1-041, V1-043),
    /// [`Error::NoSpace`] if the buffer is too short. Nothing is written unless all of it fits.
    // A caller whose form is known at compile time gets the code of that form alone.
    #[inline(always)]
    pub fn encode(
        self,
        version: Version,
        xid: Xid,
        credits: Credits,
        buf: &mut [u8],
    ) -> Result<usize, Error> {
        match self {
            Self::Write(segment) if segment.length != 0 => {
                let (mut out, len) = front::<ONE_WRITE>(version, xid, credits, buf)?;
                out.words([0, 1, 1]).map_err(no_space)?;
                segment.encode(&mut out).map_err(no_space)?;
                out.words([0, 0]).map_err(no_space)?;
                Ok(len)
            }
            Self::Read(position, segment)
                if segment.length != 0 && position != 0 && position & 3 == 0 =>
            {
                let (mut out, len) = front::<ONE_READ>(version, xid, credits, buf)?;
                out.words([1, position]).map_err(no_space)?;
                segment.encode(&mut out).map_err(no_space)?;
                out.words([0, 0, 0]).map_err(no_space)?;
                Ok(len)
            }
            Self::Reply(segment) if segment.length != 0 => {
                let (mut out, len) = front::<ONE_REPLY>(version, xid, credits, buf)?;
                out.words([0, 0, 1, 1]).map_err(no_space)?;
                segment.encode(&mut out).map_err(no_space)?;
                Ok(len)
            }
            _ => Err(Error::BadChunk),
        }
    }
}

/// Writes what comes before lists of `N` bytes in a Call with an inline message, if all of it fits.
/// Returns a writer of the lists and the length of the header.
#[inline(always)]
fn front<const N: usize>(
    version: Version,
    xid: Xid,
    credits: Credits,
    buf: &mut [u8],
) -> Result<(Writer<'_>, usize), Error> {
    let fixed = version.fixed_len();
    // One check of the length if the version is known when this is compiled.
    let len = fixed.saturating_add(N);
    let (front, lists) = buf
        .get_mut(..len)
        .and_then(|room| room.split_at_mut_checked(fixed))
        .ok_or(Error::NoSpace)?;
    let out = &mut Writer::new(front);
    encode_front(version, xid, credits, proc_nr::MSG, direction::CALL, out).map_err(no_space)?;
    Ok((Writer::new(lists), len))
}

impl CallHeader<'_> {
    /// How many bytes [`encode`](Self::encode) writes.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        self.version
            .fixed_len()
            .saturating_add(self.lists.encoded_len())
    }

    /// Writes the header to the front of `buf` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::TooComplex`] for what a server need not accept (ULB-26), [`Error::BadChunk`] for
    /// empty segments and bad positions (V1-038, V1-041, V1-043), [`Error::NoSpace`] if the buffer
    /// is too short. Nothing is written unless all of it fits.
    #[inline(always)]
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, Error> {
        // Nearly every Call has one of these forms, whose length is known beforehand.
        let lists = &self.lists;
        let chunk = match (lists.reads, lists.writes, lists.reply) {
            ([], [], None) => {
                let (mut out, len) = front::<EMPTY>(self.version, self.xid, self.credits, buf)?;
                out.words([0, 0, 0]).map_err(no_space)?;
                return Ok(len);
            }
            ([], [[segment]], None) => OneChunk::Write(*segment),
            (
                [ReadChunk {
                    position,
                    segments: [segment],
                }],
                [],
                None,
            ) if *position != 0 => OneChunk::Read(*position, *segment),
            ([], [], Some([segment])) => OneChunk::Reply(*segment),
            _ => return self.encode_any(buf),
        };
        chunk.encode(self.version, self.xid, self.credits, buf)
    }

    /// As [`encode`](Self::encode), for every form.
    fn encode_any(&self, buf: &mut [u8]) -> Result<usize, Error> {
        let long = check_lists(&self.lists)?;
        let procedure = if long { proc_nr::NOMSG } else { proc_nr::MSG };
        let len = self.encoded_len();
        let out = &mut room(len, buf)?;
        self.encode_front(procedure, out).map_err(no_space)?;
        self.lists.encode(out).map_err(no_space)?;
        Ok(len)
    }

    #[inline(always)]
    fn encode_front(&self, procedure: u32, out: &mut Writer<'_>) -> Result<(), Full> {
        encode_front(
            self.version,
            self.xid,
            self.credits,
            procedure,
            direction::CALL,
            out,
        )
    }
}

/// A writer of the `len` bytes at the front of `buf`.
#[inline(always)]
fn room(len: usize, buf: &mut [u8]) -> Result<Writer<'_>, Error> {
    Ok(Writer::new(buf.get_mut(..len).ok_or(Error::NoSpace)?))
}

#[inline(always)]
fn no_space(_: Full) -> Error {
    Error::NoSpace
}

/// Checks the lists of a Call; true if it has a Position-Zero Read chunk.
#[inline]
fn check_lists(lists: &ChunkLists<'_>) -> Result<bool, Error> {
    let (long, data) = match lists.reads {
        [first, rest @ ..] if first.position == 0 => (true, rest),
        all => (false, all),
    };
    if data.len() > 1 || lists.writes.len() > 1 {
        return Err(Error::TooComplex);
    }
    if data
        .iter()
        .any(|chunk| chunk.position == 0 || chunk.position & 3 != 0)
    {
        return Err(Error::BadChunk);
    }
    for chunk in lists.reads {
        check_segments(chunk.segments, 1)?;
    }
    if let Some(chunk) = lists.reply {
        check_segments(chunk, 1)?;
    }
    for chunk in lists.writes {
        check_segments(chunk, 0)?;
    }
    Ok(long)
}

#[inline]
fn check_segments(segments: &[Segment], least: usize) -> Result<(), Error> {
    if segments.len() < least {
        return Err(Error::BadChunk);
    }
    if segments.len() > MAX_SEGMENTS {
        return Err(Error::TooComplex);
    }
    if segments.iter().any(|segment| segment.length == 0) {
        return Err(Error::BadChunk);
    }
    Ok(())
}

/// Writes what comes before the lists: the fixed words, and the direction in version 2.
#[inline(always)]
pub(crate) fn encode_front(
    version: Version,
    xid: Xid,
    credits: Credits,
    procedure: u32,
    direction: u32,
    out: &mut Writer<'_>,
) -> Result<(), Full> {
    Fixed {
        xid,
        version: version.number(),
        credits,
        procedure,
    }
    .encode(out)?;
    match version {
        Version::V1 => Ok(()),
        Version::V2 => out.u32(direction),
    }
}

/// A Reply of ours to a Call of the server; never has chunks (BC-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReverseReplyHeader {
    /// Version of the Call.
    pub version: Version,
    /// The Call's xid.
    pub xid: Xid,
    /// How many reverse Calls we can take at once.
    pub credits: Credits,
}

impl ReverseReplyHeader {
    /// Writes the header to the front of `buf` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if `buf` is shorter than that.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, Error> {
        let len = self.version.min_header_len();
        let buf = buf.get_mut(..len).ok_or(Error::NoSpace)?;
        let mut out = Writer::new(buf);
        encode_front(
            self.version,
            self.xid,
            self.credits,
            proc_nr::MSG,
            direction::REPLY,
            &mut out,
        )
        .and_then(|()| ChunkLists::default().encode(&mut out))
        .map_err(|Full| Error::NoSpace)?;
        Ok(len)
    }
}

/// Which error we report to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// ERR_CHUNK; BAD_HEADER in version 2.
    Chunk,
    /// Version 2 only: an option that we do not know.
    InvalOption,
}

/// An error message of ours: the answer to a reverse Call or option that we cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Version of the connection.
    pub version: Version,
    /// The xid of the refused message.
    pub xid: Xid,
    /// Why.
    pub kind: RefusalKind,
}

impl Refusal {
    /// Writes the message to the front of `buf` and returns its length, [`ERROR_LEN`].
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if `buf` is shorter.
    pub fn encode(&self, credits: Credits, buf: &mut [u8]) -> Result<usize, Error> {
        let buf = buf.get_mut(..ERROR_LEN).ok_or(Error::NoSpace)?;
        let mut out = Writer::new(buf);
        Fixed {
            xid: self.xid,
            version: self.version.number(),
            credits,
            procedure: proc_nr::ERROR,
        }
        .encode(&mut out)
        .and_then(|()| {
            out.u32(match self.kind {
                RefusalKind::Chunk => err_nr::CHUNK,
                RefusalKind::InvalOption => err_nr::INVAL_OPTION,
            })
        })
        .map_err(|Full| Error::NoSpace)?;
        Ok(ERROR_LEN)
    }
}
