// SPDX-License-Identifier: GPL-2.0

//! Whether a Reply fits its call.
//!
//! [`judge`] compares a Reply with what its call offered. It runs before any region is invalidated,
//! because a discarded Reply must not change anything. [`check_reply_chunk`] checks what
//! only the memory of the Reply chunk shows, once that memory is ours again.

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

/// What a call offered, and what its reply may look like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// The Write list as sent; a chunk without segments asked for its result inline.
    pub writes: &'a [&'a [Segment]],
    /// The Reply chunk as sent.
    pub reply: Option<&'a [Segment]>,
    /// The longest RPC message without the data of the Write chunks: the capacity of the receive
    /// buffer's head and tail. A longer one has eligible data where there must be none (MAL-060).
    /// A message that is not longer may have such data, too, in the place of attributes that did
    /// not come. The upper layer's decoder finds them where they are, so they are taken.
    pub non_data_max: u32,
    /// Also refuse returned handles and offsets that differ from ours (MAL-068, MAL-069).
    pub strict: bool,
}

/// What to do about a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Invalidate, then complete the call with what it says.
    Accept(Accept),
    /// Invalidate, then complete the call with the error.
    Fail(Error, Counter),
    /// Drop it and count; the call stays as it is. See
    /// [`DiscardLimit`](crate::rpc::limit::DiscardLimit).
    Discard(Counter),
}

/// Where the parts of an accepted Reply are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// The grant as sent: give it to
    /// [`ForwardCredits::accept`](crate::rpc::credit::ForwardCredits::accept).
    pub grant: Credits,
    /// Where the inline RPC message starts in the received message; see `inline_len`.
    pub inline_offset: usize,
    /// How long the inline RPC message is; zero if it is in the Reply chunk.
    pub inline_len: usize,
    /// Bytes of data in the Write chunks, filled from the front of each.
    pub placed: u32,
    /// Bytes of the RPC message in the Reply chunk; zero if it is inline.
    pub reply_len: u32,
    /// Deviations that were accepted and are to be counted.
    pub notes: Notes,
}

/// Compares a Reply with what its call offered.
///
/// The caller has found the call by the Reply's xid, waiting on this connection.
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

/// The Write list comes back as sent, with the lengths really written; returns their sum.
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

/// The Reply chunk holds the RPC message of an `RDMA_NOMSG` and nothing otherwise; returns its
/// length.
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
        // CAST: 20.
        total >= MIN_RPC_REPLY as u32 && total & 3 == 0
    };
    if fits {
        Ok(total)
    } else {
        Err(Refused::Drop)
    }
}

/// One returned chunk has the same segments as offered, none longer, filled in order without a gap.
/// Or it has no segment, which counts as unused. Returns the bytes written.
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
/// `front` is the beginning of the chunk's memory; the caller zeroed its first eight bytes before
/// the Call.
///
/// # Errors
///
/// [`Error::BadPayload`] if it does not begin with the xid and the direction of a Reply.
#[inline]
pub fn check_reply_chunk(front: &[u8], xid: Xid) -> Result<(), Error> {
    let mut input = Reader::new(front);
    match (input.u32(), input.u32()) {
        (Ok(found), Ok(direction::REPLY)) if found == xid.0 => Ok(()),
        _ => Err(Error::BadPayload),
    }
}

/// What a Receive completion says about regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidated {
    /// No region was invalidated remotely.
    Nothing,
    /// The region at this place in the call's list is invalid already; skip its local
    /// invalidation and raise the counter.
    Own(usize, Counter),
    /// A region of another call was invalidated: disconnect (MAL-014, MAL-015).
    Foreign,
}

/// Finds the remotely invalidated region among those of the call that the Reply answers.
///
/// `agreed` says whether both peers announced support (CM-16); an invalidation without it is
/// accepted if it hits the right region (MAL-013).
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
