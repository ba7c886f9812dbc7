// SPDX-License-Identifier: GPL-2.0

//! Admission: whether a Call may be processed.
//!
//! Everything that can be checked in the message itself is checked before the first RDMA operation:
//! the chunk lists against this server's limits, the Positions against the length of the message,
//! each segment against the client's address space, and the header of the reply against the inline
//! threshold. Nothing is allocated, and the work is linear in the length of the message. The RPC
//! header of a message in a Position-Zero chunk is checked when that chunk has been fetched.

use crate::{
    responder::{
        call::{
            Call,
            Sorted, //
        },
        items::{
            capacity,
            Item,
            Items,
            Reads, //
        },
        refusal::{
            Fault,
            Refusal, //
        },
        rpc_call::{
            RpcCall,
            MIN_RPC_CALL, //
        },
        spoken::Spoken, //
    },
    wire::{
        chunk::{
            chunk_len,
            Lists,
            WriteList,
            ABSENT_LEN,
            CHUNK_LEN,
            SEGMENT_LEN, //
        },
        header::{
            direction,
            Version,
            Xid, //
        },
        inbound::{
            rpc_words,
            MIN_RPC_REPLY, //
        },
        xdr::Malformed, //
    }, //
};

pub use super::items::MAX_ITEMS;

/// Maximum number of segments in all chunk lists of a Call together. A server must accept sixteen
/// segments in each of four chunks (RFC 8267 6.4.2).
pub const MAX_SEGMENTS: usize = 64;
/// Maximum number of Write chunks in a Call.
pub const MAX_WRITES: usize = 16;

/// The protocol versions and the maximum lengths of messages on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The protocol versions that the server accepts.
    pub spoken: Spoken,
    /// Maximum length of a message to the client in version one, in bytes.
    pub reply_threshold: u32,
    /// Maximum length of a message to the client in version two, in bytes.
    pub reply_threshold_v2: u32,
    /// Maximum length of an RPC Call including the data in its Read chunks, in bytes.
    pub longest_call: u32,
}

impl Terms {
    /// Returns the maximum length of a message to the client in this protocol version, in bytes.
    #[inline]
    pub const fn longest_message(&self, version: Version) -> u32 {
        match version {
            Version::V1 => self.reply_threshold,
            Version::V2 => self.reply_threshold_v2,
        }
    }
}

/// The state of a Call that passed every check of [`Call::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The first Read chunk of data. Has no meaning if `items` is zero.
    first: Item,
    /// Number of Read chunks of data.
    pub(crate) items: u32,
    /// Length in bytes of the reduced message, which does not contain the data in Read chunks.
    pub(crate) body: u32,
    /// Length in bytes of the unreduced message, which contains the data in Read chunks.
    pub(crate) total: u32,
    /// Length in bytes of all Write chunks and the Reply chunk together; at most `u32::MAX`.
    results: u32,
    /// Length in bytes of the first Write chunk. Has no meaning without Write chunks.
    room: u32,
    /// Whether RPCSEC_GSS protects (or may protect) an inline message. Has no meaning if the
    /// message is in a Position-Zero chunk.
    protected: bool,
}

/// The state of a Call whose data have all arrived: it may be passed to the RPC layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whether RPCSEC_GSS protects (or may protect) the Call, so that no result may be put into a
    /// Write chunk.
    pub(crate) protected: bool,
    /// Length in bytes of the first Write chunk. Has no meaning without Write chunks.
    pub(crate) room: u32,
}

impl<'a> Call<'a, Sorted> {
    /// Checks everything that the received message itself shows.
    ///
    /// # Errors
    ///
    /// Returns the [`Refusal`] to send if the Call must not be processed. No RDMA operation has
    /// been posted for the Call.
    #[inline]
    pub fn admit(self, terms: &Terms) -> Result<Call<'a, Admitted>, Refusal> {
        match check(&self, terms) {
            Ok(stage) => Ok(self.now(stage)),
            Err(fault) => Err(self.refuse(fault)),
        }
    }
}

impl<'a> Call<'a, Admitted> {
    /// Returns the length in bytes of the unreduced RPC message.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.stage.total
    }

    /// Returns true if the RPC message is empty, which is impossible for an admitted Call.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the total length of the Call's Write chunks and Reply chunk, but at most
    /// [`Terms::longest_call`]. The RDMA Writes of the reply carry at most this number of bytes,
    /// provided that the RPC layer makes no reply longer than [`Terms::longest_call`].
    #[inline]
    pub fn results(&self, terms: &Terms) -> u32 {
        self.stage.results.min(terms.longest_call)
    }

    /// Returns the Read chunks of data.
    #[inline]
    pub(crate) fn items(&self) -> Items<'a> {
        Items::new(self.lists.reads.clone(), self.stage.first, self.stage.items)
    }

    /// Returns the first Read chunk of data.
    #[inline]
    pub(crate) fn first_item(&self) -> Option<Item> {
        (self.stage.items != 0).then_some(self.stage.first)
    }

    /// Returns how many bytes of the message precede the first Read chunk of data: the length of
    /// the whole message if no such chunk exists.
    #[inline(always)]
    fn message_front(&self) -> usize {
        let front = self
            .first_item()
            .map_or(self.stage.total, |item| item.position);
        usize::try_from(front).unwrap_or(usize::MAX)
    }

    /// Checks what is only visible in fetched data: the RPC header in a Position-Zero chunk.
    /// `front` is the contiguous beginning of the read buffer, the memory that receives the fetched
    /// data. `front` is ignored if the Call has no Position-Zero chunk.
    ///
    /// # Errors
    ///
    /// Returns the [`Refusal`] to send if the Call must not be processed.
    #[inline(always)]
    pub fn fetched(self, front: &[u8]) -> Result<Call<'a, Ready>, Refusal> {
        let protected = if self.facts.long {
            let front = front.get(..self.message_front()).unwrap_or(front);
            check_fetched(self.xid(), self.first_item(), front)
        } else {
            Ok(self.stage.protected)
        };
        let room = self.stage.room;
        match protected {
            Ok(protected) => Ok(self.now(Ready { protected, room })),
            Err(fault) => Err(self.refuse(fault)),
        }
    }
}

// This function and the next functions are inlined, so that the compiler can keep the fields of the
// Call in registers.
#[inline(always)]
fn check(call: &Call<'_, Sorted>, terms: &Terms) -> Result<Admitted, Fault> {
    check_complexity(&call.lists)?;
    let Reads {
        message,
        items,
        first,
    } = match call.lists.reads.is_empty() {
        true => Reads::default(),
        false => Reads::group(call.lists.reads.clone())?,
    };
    let chunks = Items::new(call.lists.reads.clone(), first, items);
    let first_chunk = (items != 0).then_some(first);
    let body = match (call.facts.long, message) {
        (false, None) => u32::try_from(call.payload.len()).map_err(|_| Fault::TooLong)?,
        (false, Some(_)) => return Err(Fault::TwoMessages),
        // A message shorter than two words does not even contain an xid and a direction.
        (true, Some(len)) if len >= 8 => len,
        (true, _) => return Err(Fault::NoMessage),
    };
    let total = match first_chunk {
        Some(_) => check_positions(chunks, body)?,
        None => body,
    };
    if total > terms.longest_call {
        return Err(Fault::TooLong);
    }
    let (results, room) = check_results(&call.lists, call.version(), terms)?;
    let protected = if !call.facts.long {
        check_arguments(first_chunk, RpcCall::parse(call.payload))?
    } else {
        // The RPC header is still in the client's memory; only its minimum length is known.
        match first_chunk {
            Some(item) if item.position < MIN_RPC_CALL => return Err(Fault::InsideHeader),
            _ => true,
        }
    };
    Ok(Admitted {
        first,
        items,
        body,
        total,
        results,
        room,
        protected,
    })
}

#[inline]
fn check_complexity(lists: &Lists<'_>) -> Result<(), Fault> {
    if lists.writes.len() > MAX_WRITES {
        return Err(Fault::TooComplex);
    }
    let reply = lists.reply.as_ref().map_or(0, |chunk| chunk.len());
    let segments = lists.reads.len().saturating_add(reply);
    let segments = segments.saturating_add(write_segments(&lists.writes));
    if segments > MAX_SEGMENTS {
        return Err(Fault::TooComplex);
    }
    Ok(())
}

/// Returns how many segments the chunks of a Write list have.
#[inline]
fn write_segments(list: &WriteList<'_>) -> usize {
    // By the type invariant `bytes` contains whole chunks, so the subtraction does not saturate.
    let chunks = list.len().saturating_mul(CHUNK_LEN);
    list.bytes.len().saturating_sub(chunks) / SEGMENT_LEN
}

/// Checks that each Read chunk has a Position inside the message. Also returns the length of the
/// unreduced message.
///
/// A Position is an offset in the unreduced message. To get the offset in the reduced message at
/// which a chunk is inserted, the lengths of the chunks before it, with their pads, are subtracted
/// (RFC 8166 3.4.5).
#[inline(always)]
fn check_positions(items: Items<'_>, body: u32) -> Result<u32, Fault> {
    let mut inserted = 0u32;
    let mut last = 0;
    for item in items {
        let place = item.position.checked_sub(inserted);
        let place = place.filter(|place| *place >= last).ok_or(Fault::Overlap)?;
        if place > body {
            return Err(Fault::Outside);
        }
        last = place;
        inserted = inserted.checked_add(item.padded).ok_or(Fault::TooLong)?;
    }
    body.checked_add(inserted).ok_or(Fault::TooLong)
}

/// Checks the segments of the Write chunks and of the Reply chunk. Also checks that the header of
/// every possible response fits into a Send, because a Reply repeats the chunk lists (RFC 8166
/// 3.4.6, 4.3.3). Returns the total length of the Write chunks and the Reply chunk, and the length
/// of the first Write chunk.
#[inline(always)]
fn check_results(lists: &Lists<'_>, version: Version, terms: &Terms) -> Result<(u32, u32), Fault> {
    let mut least = reply_header_len(lists, version);
    let mut writes = lists.writes.clone();
    let room = writes.next().map_or(Ok(0), capacity)?;
    let mut results = room;
    for chunk in writes {
        results = results.saturating_add(capacity(chunk)?);
    }
    let reply = lists.reply.clone().map_or(Ok(0), capacity)?;
    // CAST: The constant `MIN_RPC_REPLY` is 20, which fits into 32 bits.
    if reply < MIN_RPC_REPLY as u32 {
        least = least.saturating_add(MIN_RPC_REPLY);
    }
    match u32::try_from(least) {
        Ok(least) if least <= terms.longest_message(version) => {
            Ok((results.saturating_add(reply), room))
        }
        _ => Err(Fault::ReplyHeader),
    }
}

/// Returns the length in bytes of the header of a Reply to a Call of this version with these chunk
/// lists.
#[inline]
pub(crate) fn reply_header_len(lists: &Lists<'_>, version: Version) -> usize {
    let reply = lists.reply.as_ref();
    let reply = reply.map_or(ABSENT_LEN, |chunk| chunk_len(chunk.len()));
    // The first `ABSENT_LEN` is the length of the empty Read list. The second is the length of the
    // end of the Write list.
    version
        .fixed_len()
        .saturating_add(ABSENT_LEN)
        .saturating_add(lists.writes.bytes.len())
        .saturating_add(ABSENT_LEN)
        .saturating_add(reply)
}

/// Checks the RPC header of a Call whose Position-Zero chunk has been fetched. `first` is the first
/// Read chunk of data, if the Call has one. Returns whether RPCSEC_GSS protects (or may protect)
/// the Call.
#[cold]
fn check_fetched(xid: Xid, first: Option<Item>, front: &[u8]) -> Result<bool, Fault> {
    match rpc_words(front) {
        Some((inner, _)) if inner != xid => Err(Fault::RpcXid),
        Some((_, direction::CALL)) => check_arguments(first, RpcCall::parse(front)),
        _ => Err(Fault::RpcType),
    }
}

/// Checks that the arguments of the Call may be in its Read chunks, of which `first` is the first
/// one. Returns whether RPCSEC_GSS protects (or may protect) the message. If no argument is in a
/// Read chunk, a header that cannot be parsed is left to the RPC layer.
#[inline(always)]
fn check_arguments(first: Option<Item>, header: Result<RpcCall, Malformed>) -> Result<bool, Fault> {
    match (first, header) {
        (None, Ok(header)) => Ok(header.protected),
        (None, Err(Malformed)) => Ok(true),
        (Some(item), Ok(header)) if item.position >= header.len => {
            if header.protected {
                Err(Fault::Protected)
            } else if header.has_eligible_argument() {
                Ok(false)
            } else {
                Err(Fault::NotEligible)
            }
        }
        (Some(_), _) => Err(Fault::InsideHeader),
    }
}
