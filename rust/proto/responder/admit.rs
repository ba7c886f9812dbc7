// SPDX-License-Identifier: GPL-2.0

//! Admission: whether a Call may be processed.
//!
//! Everything that can be checked in the message itself is checked before the first RDMA operation:
//!
//! - the chunk lists against this server's limits;
//! - the Positions against the length of the message;
//! - each segment against the client's address space;
//! - the header of the reply against the inline threshold.
//!
//! The RPC header of a message in a Position-Zero chunk is checked when that chunk has been
//! fetched. Nothing is allocated, and the work is linear in the length of the message.

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
        layout::Layout,
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
            ReadList,
            WriteList,
            CHUNK_LEN,
            READ_ENTRY_LEN,
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
        xdr::{
            round_up,
            Malformed, //
        }, //
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
    /// Length in bytes of the first Write chunk; zero without Write chunks.
    room: u32,
    /// Whether the RPC message is in a Position-Zero chunk.
    pub(crate) long: bool,
    /// Whether RPCSEC_GSS protects (or may protect) an inline message. Has no meaning without
    /// chunks of data, or if the message is in a Position-Zero chunk.
    protected: bool,
}

/// The state of a Call whose data have all arrived: it may be passed to the RPC layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whether RPCSEC_GSS protects (or may protect) the Call, so that no result may be put into a
    /// Write chunk. Has no meaning without Write chunks.
    pub(crate) protected: bool,
    /// Maximum length in bytes of a result in the first Write chunk: zero if there is no Write
    /// chunk, or if the Call is protected.
    pub(crate) room: u32,
}

impl<'a> Call<'a, Sorted> {
    /// Checks everything that can be checked in the received message alone.
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
    /// Returns the total length of the Call's Write chunks and Reply chunk, but at most
    /// [`Terms::longest_call`]. The RDMA Writes of the reply carry at most this number of bytes,
    /// provided that the RPC layer makes no reply longer than [`Terms::longest_call`].
    #[inline]
    pub fn results(&self, terms: &Terms) -> u32 {
        self.stage.results.min(terms.longest_call)
    }

    /// Returns whether the message deviates from the protocol in a way that the server tolerates:
    /// its length is not a multiple of four, or bytes follow the header of an `RDMA_NOMSG`. Such
    /// bytes are ignored.
    #[inline]
    pub const fn is_odd(&self) -> bool {
        // The transport header consists of whole words.
        self.payload.len() & 3 != 0 || (self.stage.long && !self.payload.is_empty())
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
        let protected = if self.stage.long {
            let front = front.get(..self.message_front()).unwrap_or(front);
            check_fetched(self.xid(), self.first_item(), front)
        } else {
            Ok(self.stage.protected)
        };
        let room = self.stage.room;
        match protected {
            Ok(protected) => Ok(self.now(Ready {
                protected,
                room: if protected { 0 } else { room },
            })),
            Err(fault) => Err(self.refuse(fault)),
        }
    }
}

// This function and the next functions are inlined, so that the compiler can keep the fields of the
// Call in registers.
#[inline(always)]
fn check(call: &Call<'_, Sorted>, terms: &Terms) -> Result<Admitted, Fault> {
    check_complexity(call)?;
    let Reads {
        message,
        items,
        first,
    } = Reads::group(call.lists.reads.clone())?;
    let first_chunk = (items != 0).then_some(first);
    let long = call.stage.long;
    let body = match (long, message) {
        (false, None) => u32::try_from(call.payload.len()).map_err(|_| Fault::TooLong)?,
        (false, Some(_)) => return Err(Fault::TwoMessages),
        // A message shorter than two words does not even contain an xid and a direction.
        (true, Some(len)) if len >= 8 => len,
        (true, _) => return Err(Fault::NoMessage),
    };
    let mut inserted = Inserted::default();
    match items {
        0 => {}
        1 => inserted.add(&first, body)?,
        _ => inserted = check_positions(call.lists.reads.clone(), first, items, body)?,
    }
    let total = body.checked_add(inserted.bytes).ok_or(Fault::TooLong)?;
    if total > terms.longest_call {
        return Err(Fault::TooLong);
    }
    let (results, room) = check_results(call, terms)?;
    let protected = if !long {
        match items {
            // Without Read chunks of data, the RPC header matters only if there are Write chunks.
            0 => call.lists.writes.is_empty() || RpcCall::is_protected(call.payload),
            _ => check_arguments(first_chunk, RpcCall::parse(call.payload))?,
        }
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
        long,
        protected,
    })
}

#[inline(always)]
fn check_complexity(call: &Call<'_, Sorted>) -> Result<(), Fault> {
    if call.lists.writes.len() > MAX_WRITES {
        return Err(Fault::TooComplex);
    }
    // Most lists are too short to contain more than `MAX_SEGMENTS` segments.
    let Layout { reads, writes, .. } = call.layout;
    // NO-OVERFLOW: A message in memory contains the lists.
    if reads.wrapping_add(call.layout.returned) <= MAX_SEGMENTS * SEGMENT_LEN {
        return Ok(());
    }
    let reply = call.lists.reply.as_ref().map_or(0, |chunk| chunk.len());
    check_segments(reads, writes, call.lists.writes.len(), reply)
}

/// Checks that the chunk lists have at most [`MAX_SEGMENTS`] segments together. `reads` and
/// `writes` are the lengths of the Read list and of the Write list in bytes. `chunks` is the number
/// of Write chunks, and `reply` is the number of segments of the Reply chunk.
///
/// The arguments are numbers and not references, so that the caller need not store the Call in
/// memory.
#[cold]
fn check_segments(reads: usize, writes: usize, chunks: usize, reply: usize) -> Result<(), Fault> {
    // The Write list contains whole chunks, so the subtraction does not saturate.
    let writes = writes.saturating_sub(chunks.saturating_mul(CHUNK_LEN));
    let segments = (reads / READ_ENTRY_LEN).saturating_add(writes / SEGMENT_LEN);
    let segments = segments.saturating_add(reply);
    if segments > MAX_SEGMENTS {
        return Err(Fault::TooComplex);
    }
    Ok(())
}

/// The Read chunks that were inserted into the reduced message so far.
#[derive(Default)]
struct Inserted {
    /// Length in bytes of the chunks with their pads.
    bytes: u32,
    /// Offset in the reduced message at which the last chunk was inserted.
    last: u32,
}

impl Inserted {
    /// Inserts the next Read chunk into the reduced message, which has `body` bytes. Checks that
    /// the chunk's Position is inside the message.
    ///
    /// A Position is an offset in the unreduced message. The offset in the reduced message is the
    /// Position minus the lengths of all earlier chunks with their pads (RFC 8166 3.4.5).
    #[inline(always)]
    fn add(&mut self, item: &Item, body: u32) -> Result<(), Fault> {
        let place = item.position.checked_sub(self.bytes);
        let place = place.ok_or(Fault::Overlap)?;
        if place < self.last {
            return Err(Fault::Overlap);
        }
        if place > body {
            return Err(Fault::Outside);
        }
        self.last = place;
        let padded = round_up(item.length).ok_or(Fault::Wraps)?;
        self.bytes = self.bytes.checked_add(padded).ok_or(Fault::TooLong)?;
        Ok(())
    }
}

/// Inserts the Read chunks of data in `list` into the reduced message, as [`Inserted::add`] does.
/// `items` is the number of these chunks, and `first` is the first of them.
#[cold]
fn check_positions(
    list: ReadList<'_>,
    first: Item,
    items: u32,
    body: u32,
) -> Result<Inserted, Fault> {
    let mut inserted = Inserted::default();
    for item in Items::new(list, first, items) {
        inserted.add(&item, body)?;
    }
    Ok(inserted)
}

/// Checks the segments of the Write chunks and of the Reply chunk. Also checks that the header of
/// every possible response fits into a Send, because a Reply repeats the chunk lists (RFC 8166
/// 3.4.6, 4.3.3). Returns the total length of the Write chunks and the Reply chunk, and the length
/// of the first Write chunk.
#[inline(always)]
fn check_results(call: &Call<'_, Sorted>, terms: &Terms) -> Result<(u32, u32), Fault> {
    let mut least = call.reply_header_len();
    let mut writes = call.lists.writes.clone();
    let (mut results, mut room) = (0, 0);
    if let Some(first) = writes.next() {
        room = capacity(first)?;
        results = room;
        if !writes.is_empty() {
            results = results.saturating_add(capacities(writes)?);
        }
    }
    let mut reply = 0;
    if let Some(chunk) = &call.lists.reply {
        reply = capacity(chunk.clone())?;
        results = results.saturating_add(reply);
    }
    // CAST: The constant `MIN_RPC_REPLY` is 20, which fits into 32 bits.
    if reply < MIN_RPC_REPLY as u32 {
        // NO-OVERFLOW: The header of the Reply repeats lists that a message in memory contains.
        least = least.wrapping_add(MIN_RPC_REPLY);
    }
    match usize::try_from(terms.longest_message(call.version())) {
        Ok(most) if least <= most => Ok((results, room)),
        _ => Err(Fault::ReplyHeader),
    }
}

/// Returns the total length in bytes of these Write chunks, but at most `u32::MAX`.
#[cold]
fn capacities(chunks: WriteList<'_>) -> Result<u32, Fault> {
    let mut all = 0u32;
    for chunk in chunks {
        all = all.saturating_add(capacity(chunk)?);
    }
    Ok(all)
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

/// Checks that the Call is allowed to have arguments in Read chunks. `first` is the first Read
/// chunk of data, if the Call has one. Returns whether RPCSEC_GSS protects (or may protect) the
/// message. If there is no Read chunk of data, a header that cannot be parsed is no error: the RPC
/// layer handles such a header.
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
