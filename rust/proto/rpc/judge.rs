// SPDX-License-Identifier: GPL-2.0

//! Checks whether a Reply fits its call.
//!
//! [`judge`] compares a Reply with the chunks that its call offered. It runs before any region is
//! invalidated, because a discarded Reply must not change anything. [`check_reply_chunk`]
//! checks the RPC message in the memory of the Reply chunk, after the regions of that memory have
//! been invalidated.

use crate::{
    error::{
        Counter,
        Error,
        Notes, //
    },
    wire::{
        chunk::{
            Handle,
            Segment,
            Segments, //
        },
        header::{
            direction,
            Credits,
            Xid, //
        },
        inbound::{
            Reply,
            MIN_RPC_REPLY, //
        },
        xdr::Reader, //
    }, //
};

/// The chunks that a call offered, and the limits of its reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// The Write list, as the call's header contains it. A chunk without segments means that the
    /// client wants the data inline.
    pub writes: &'a [&'a [Segment]],
    /// The Reply chunk, as the call's header contains it.
    pub reply: Option<&'a [Segment]>,
    /// Maximum length of the RPC message without the data of the Write chunks: the capacity of the
    /// receive buffer's head and tail. Checked only if the call offers a Write chunk.
    ///
    /// - A longer message contains DDP-eligible data that belongs in a Write chunk. The message is
    ///   refused (MAL-060).
    /// - A shorter message may contain such data, too: if the server leaves out optional
    ///   attributes, the data fits into the space for these attributes. The upper layer's decoder
    ///   finds the data there, so the message is accepted.
    pub non_data_max: u32,
    /// Whether a Reply is refused if its returned handles and offsets differ from the offered ones
    /// (MAL-068, MAL-069).
    pub strict: bool,
}

/// The action that the caller must take for a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Invalidate the regions of the call, then complete the call with this reply.
    Accept(Accept),
    /// Invalidate the regions of the call, then complete the call with the error.
    Fail(Error, Counter),
    /// Drop the Reply, and add one to this counter of the transport; the call keeps waiting. See
    /// [`DiscardLimit`](crate::rpc::limit::DiscardLimit).
    Discard(Counter),
}

/// Where the parts of an accepted Reply are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// The unchecked grant of the server, for
    /// [`ForwardCredits::accept`](crate::rpc::credit::ForwardCredits::accept).
    pub grant: Credits,
    /// Byte offset of the inline RPC message in the received message; see `inline_len`.
    pub inline_offset: usize,
    /// Length of the inline RPC message in bytes; zero if the message is in the Reply chunk.
    pub inline_len: usize,
    /// Total number of data bytes in all Write chunks. Each chunk is filled from its beginning.
    pub placed: u32,
    /// Length of the RPC message in the Reply chunk in bytes; zero if the message is inline.
    pub reply_len: u32,
    /// Counters to raise for deviations from the protocol that were accepted.
    pub notes: Notes,
}

/// Compares a Reply with the chunks that its call offered.
///
/// The caller has used the xid of the Reply to find the call, which waits on this connection.
#[inline]
pub fn judge(reply: &Reply<'_>, offer: &Offer<'_>) -> Verdict {
    match weigh(reply, offer) {
        Ok(accept) => Verdict::Accept(accept),
        Err(Refused::Drop) => Verdict::Discard(Counter::BadChunk),
        Err(Refused::Strict) => Verdict::Discard(Counter::SegMismatch),
        Err(Refused::Violation) => Verdict::Fail(Error::DdpViolation, Counter::DdpViolation),
    }
}

/// Why a Reply is not accepted.
enum Refused {
    Drop,
    Strict,
    Violation,
}

#[inline]
fn weigh(reply: &Reply<'_>, offer: &Offer<'_>) -> Result<Accept, Refused> {
    let mut notes = reply.notes;
    if !reply.lists.reads.is_empty() {
        return Err(Refused::Drop);
    }
    let placed = judge_write_list(reply, offer, &mut notes)?;
    let reply_len = judge_reply_chunk(reply, offer, &mut notes)?;
    let (inline_len, message_len) = if reply.inline {
        (reply.payload.len(), reply.payload.len())
    } else {
        (0, usize::try_from(reply_len).map_err(|_| Refused::Drop)?)
    };
    let data_expected = offer.writes.iter().any(|chunk| !chunk.is_empty());
    if data_expected && message_len > usize::try_from(offer.non_data_max).unwrap_or(usize::MAX) {
        return Err(Refused::Violation);
    }
    Ok(Accept {
        grant: reply.credits,
        inline_offset: reply.offset,
        inline_len,
        placed,
        reply_len,
        notes,
    })
}

/// Checks that the Reply returns the Write list of the call, with the lengths that were written.
/// Returns the sum of these lengths.
#[inline]
fn judge_write_list(
    reply: &Reply<'_>,
    offer: &Offer<'_>,
    notes: &mut Notes,
) -> Result<u32, Refused> {
    let returned = &reply.lists.writes;
    if returned.is_empty() {
        if !offer.writes.is_empty() {
            notes.insert(Counter::WlistMissing);
        }
        return Ok(0);
    }
    if returned.len() != offer.writes.len() {
        return Err(Refused::Drop);
    }
    let mut placed = 0u32;
    for (chunk, offered) in returned.clone().zip(offer.writes) {
        let total = judge_chunk(chunk, offered, offer.strict, notes)?;
        placed = placed.checked_add(total).ok_or(Refused::Drop)?;
    }
    Ok(placed)
}

/// Checks that the Reply chunk holds the RPC message of an `RDMA_NOMSG`, and is unused in an
/// `RDMA_MSG`. Returns the length of the message in the chunk.
#[inline]
fn judge_reply_chunk(
    reply: &Reply<'_>,
    offer: &Offer<'_>,
    notes: &mut Notes,
) -> Result<u32, Refused> {
    let (returned, offered) = match (&reply.lists.reply, offer.reply) {
        (Some(returned), Some(offered)) => (returned, offered),
        (Some(_), None) => return Err(Refused::Drop),
        (None, _) if !reply.inline => return Err(Refused::Drop),
        (None, offered) => {
            if offered.is_some() {
                notes.insert(Counter::RchunkMissing);
            }
            return Ok(0);
        }
    };
    let total = judge_chunk(returned.clone(), offered, offer.strict, notes)?;
    let fits = if reply.inline {
        total == 0
    } else {
        // CAST: The constant `MIN_RPC_REPLY` is 20, which fits into 32 bits.
        total >= MIN_RPC_REPLY as u32 && total & 3 == 0
    };
    if fits {
        Ok(total)
    } else {
        Err(Refused::Drop)
    }
}

/// Checks a returned chunk against the offered chunk:
///
/// - Both chunks have the same number of segments.
/// - No segment is longer than the offered segment.
/// - The segments are filled in order, without a gap.
///
/// A returned chunk without segments counts as unused. Returns the number of bytes written.
#[inline]
fn judge_chunk(
    returned: Segments<'_>,
    offered: &[Segment],
    strict: bool,
    notes: &mut Notes,
) -> Result<u32, Refused> {
    if returned.is_empty() {
        return Ok(0);
    }
    if returned.len() != offered.len() {
        return Err(Refused::Drop);
    }
    let mut total = 0u64;
    let mut ended = false;
    for (segment, offered) in returned.zip(offered) {
        if segment.length > offered.length || (ended && segment.length != 0) {
            return Err(Refused::Drop);
        }
        if segment.handle != offered.handle || segment.offset != offered.offset {
            notes.insert(Counter::SegMismatch);
            if strict {
                return Err(Refused::Strict);
            }
        }
        ended = segment.length < offered.length;
        total = total.saturating_add(u64::from(segment.length));
    }
    u32::try_from(total).map_err(|_| Refused::Drop)
}

/// Checks the RPC message in the Reply chunk, after invalidation (V1-070, MAL-086 to MAL-088).
///
/// `front` is the beginning of the chunk's memory. The caller must have zeroed the first eight
/// bytes of this memory before it sent the Call.
///
/// # Errors
///
/// Returns [`Error::BadPayload`] if `front` does not begin with the xid and the direction of a
/// Reply.
#[inline]
pub fn check_reply_chunk(front: &[u8], xid: Xid) -> Result<(), Error> {
    let mut input = Reader::new(front);
    match (input.u32(), input.u32()) {
        (Ok(found), Ok(direction::REPLY)) if found == xid.0 => Ok(()),
        _ => Err(Error::BadPayload),
    }
}

/// Which region a Receive completion reports as remotely invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidated {
    /// No region was invalidated remotely.
    Nothing,
    /// The peer has invalidated the region at this index of the call's list. Skip the local
    /// invalidation of the region, and add one to this counter of the transport.
    Own(usize, Counter),
    /// The invalidated region does not belong to this call: disconnect (MAL-014, MAL-015).
    Foreign,
}

/// Finds the remotely invalidated region among the regions of the call that the Reply answers.
///
/// `agreed` says whether both peers announced support for remote invalidation (CM-16). `agreed`
/// only selects the counter. Even if it is false, an invalidation of a region of the call is
/// accepted (MAL-013).
#[inline]
pub fn invalidated(
    rkey: Option<Handle>,
    regions: impl IntoIterator<Item = Handle>,
    agreed: bool,
) -> Invalidated {
    let Some(rkey) = rkey else {
        return Invalidated::Nothing;
    };
    let mut index = 0usize;
    for handle in regions {
        if handle == rkey {
            return match agreed {
                true => Invalidated::Own(index, Counter::Reminv),
                false => Invalidated::Own(index, Counter::ReminvUnannounced),
            };
        }
        index = index.saturating_add(1);
    }
    Invalidated::Foreign
}
