// SPDX-License-Identifier: GPL-2.0

//! Transport headers: the fixed words, and the encoding of all headers that the client sends.
//!
//! The first four words are the same in every version (V1-079). Version 2 adds a fifth word, the
//! direction. The other parts of the header have the same layout in both versions.

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

/// A transaction id. The transport header and the RPC header have the same xid (V1-076).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Xid(pub u32);

/// A credit word: in a Call it is a request, in a Reply a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credits(pub u32);

/// The protocol variant that a connection uses. The variant determines the words of the headers and
/// their meaning.
///
/// All code that depends on the protocol variant matches on this type, not on the version number on
/// the wire ([`Version::number`]). A later draft of version 2 also has the number 2. That draft
/// would be a separate variant of this type. It would need its own credit rules, and its own codec
/// in a separate file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 1, as in RFC 8166.
    #[default]
    V1,
    /// Version 2, as in the draft.
    V2,
}

impl Version {
    /// Returns the version number on the wire.
    #[inline]
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Returns the length of the words in front of the chunk lists, in bytes.
    #[inline]
    pub const fn fixed_len(self) -> usize {
        match self {
            Self::V1 => 16,
            Self::V2 => 20,
        }
    }

    /// Returns the length in bytes of a header without chunks. The header of a Call or Reply is
    /// never shorter.
    #[inline]
    pub const fn min_header_len(self) -> usize {
        match self {
            Self::V1 => 28,
            Self::V2 => 32,
        }
    }
}

/// Length of the words common to all versions, in bytes.
pub const FIXED_LEN: usize = 16;
/// Length of an error message without a version range, in bytes.
pub const ERROR_LEN: usize = 20;
/// Maximum number of segments in one chunk (ULB-26).
pub const MAX_SEGMENTS: usize = 16;

/// Numbers of the transport procedures.
pub(crate) mod proc_nr {
    pub(crate) const MSG: u32 = 0;
    pub(crate) const NOMSG: u32 = 1;
    /// The procedure RDMA_DONE, which only version 1 has.
    pub(crate) const DONE: u32 = 3;
    pub(crate) const ERROR: u32 = 4;
    pub(crate) const OPTIONAL: u32 = 5;
}

/// Codes of the error word in an error message.
pub(crate) mod err_nr {
    pub(crate) const VERS: u32 = 1;
    /// The code ERR_CHUNK, which is called BAD_HEADER in version 2.
    pub(crate) const CHUNK: u32 = 2;
    pub(crate) const INVAL_OPTION: u32 = 3;
}

/// Codes of `msg_type` in the RPC header, and of the direction word in a version 2 header.
pub(crate) mod direction {
    pub(crate) const CALL: u32 = 0;
    pub(crate) const REPLY: u32 = 1;
}

/// The words with which every message of every version begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The transaction id.
    pub xid: Xid,
    /// The version number as received. It is not checked.
    pub version: u32,
    /// The credit word. Its meaning depends on the direction.
    pub credits: Credits,
    /// The procedure number as received. It is not checked.
    pub procedure: u32,
}

impl Fixed {
    /// Takes the four fixed words from the input.
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

    /// Writes the four fixed words.
    #[inline(always)]
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.words([self.xid.0, self.version, self.credits.0, self.procedure])
    }
}

/// The header of a forward Call, from the client to the server.
#[derive(Clone, Copy, Debug)]
pub struct CallHeader<'a> {
    /// Version of the connection.
    pub version: Version,
    /// The RPC's xid.
    pub xid: Xid,
    /// The number of credits that the client requests. It is never zero.
    pub credits: Credits,
    /// The chunks. A Read chunk at position zero makes the message an `RDMA_NOMSG`.
    pub lists: ChunkLists<'a>,
}

/// Length of the chunk lists of a header without chunks, in bytes.
const EMPTY: usize = 3 * ABSENT_LEN;
/// Length of the chunk lists with one Write chunk of one segment, in bytes.
pub const ONE_WRITE: usize = EMPTY + CHUNK_LEN + SEGMENT_LEN;
/// Length of the chunk lists with one Read chunk of one segment, in bytes.
pub const ONE_READ: usize = EMPTY + READ_ENTRY_LEN;
/// Length of the chunk lists with a Reply chunk of one segment, in bytes.
pub const ONE_REPLY: usize = ONE_WRITE - ABSENT_LEN;

/// The chunk of a Call that has exactly one chunk, with one segment. Nearly all Calls with chunks
/// have this form.
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
    /// Returns [`Error::BadChunk`] for an empty segment or a bad position (V1-038, V1-041, V1-043),
    /// and [`Error::NoSpace`] if the buffer is too short. After an error, `buf` is unchanged.
    // If a caller knows the type of chunk at compile time, only the code for that type is inlined.
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

/// Writes the words before the chunk lists of a Call with an inline message, if these words and
/// `N` bytes of lists fit. Returns a writer for the lists and the length of the whole header.
#[inline(always)]
fn front<const N: usize>(
    version: Version,
    xid: Xid,
    credits: Credits,
    buf: &mut [u8],
) -> Result<(Writer<'_>, usize), Error> {
    let fixed = version.fixed_len();
    // If the version is known at compile time, `get_mut` is the only check of the length that the
    // compiler does not remove.
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
    /// Returns how many bytes [`encode`](Self::encode) writes.
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
    /// Returns [`Error::TooComplex`] for more chunks or segments than a server has to accept
    /// (ULB-26), [`Error::BadChunk`] for an empty segment or a bad position (V1-038, V1-041,
    /// V1-043), and [`Error::NoSpace`] if the buffer is too short. After an error, `buf` is
    /// unchanged.
    #[inline(always)]
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, Error> {
        // Nearly every Call has one of the four forms below, whose lengths are constants.
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

    /// Writes a header with any combination of chunks, for [`encode`](Self::encode).
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

/// Returns a writer for the first `len` bytes of `buf`.
#[inline(always)]
fn room(len: usize, buf: &mut [u8]) -> Result<Writer<'_>, Error> {
    Ok(Writer::new(buf.get_mut(..len).ok_or(Error::NoSpace)?))
}

#[inline(always)]
fn no_space(_: Full) -> Error {
    Error::NoSpace
}

/// Checks the lists of a Call. Returns true if the Call has a Position-Zero Read chunk.
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

/// Writes the words before the chunk lists: the fixed words, and the direction in version 2.
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

/// The header of the client's Reply to a reverse Call. It never has chunks (BC-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReverseReplyHeader {
    /// Version of the Call.
    pub version: Version,
    /// The Call's xid.
    pub xid: Xid,
    /// The grant: the number of reverse Calls that the client accepts at a time.
    pub credits: Credits,
}

impl ReverseReplyHeader {
    /// Writes the header to the front of `buf` and returns its length.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoSpace`] if `buf` is shorter than the header.
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

/// The error that the client reports to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The error ERR_CHUNK, which is called BAD_HEADER in version 2.
    Chunk,
    /// Version 2 only: the client does not know the option.
    InvalOption,
}

/// An error message from the client. It answers a reverse Call or an option that the client cannot
/// handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Version of the connection.
    pub version: Version,
    /// The xid of the refused message.
    pub xid: Xid,
    /// The reason for the refusal.
    pub kind: RefusalKind,
}

impl Refusal {
    /// Writes the message to the front of `buf` and returns its length, [`ERROR_LEN`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoSpace`] if `buf` is shorter than [`ERROR_LEN`].
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
