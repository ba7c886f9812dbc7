// SPDX-License-Identifier: GPL-2.0

//! Header prediction: a fast path for the Replies that nearly all calls get.
//!
//! All of the header of a good Reply is known beforehand, except the grant and the length that was
//! written. [`predicted`] compares the header with that, word for word. What it accepts,
//! [`classify`](crate::classify) and [`judge`](mod@crate::rpc::judge) accept with the same result,
//! in several times as many instructions. They decide about everything else. So no rule is here
//! alone.

use crate::{
    error::Notes,
    rpc::judge::Accept,
    wire::{
        chunk::Segment,
        header::{
            direction,
            proc_nr,
            Credits,
            Version,
            Xid, //
        },
        inbound::MIN_RPC_REPLY,
        xdr::Reader, //
    }, //
};

/// The chunk that a call offered for its results, if it is of a predicted form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// No chunk.
    Inline,
    /// A Write chunk of one segment; the longest RPC message without its data, see
    /// [`Offer::non_data_max`](crate::rpc::judge::Offer::non_data_max).
    Write(&'a Segment, u32),
    /// A Reply chunk of one segment.
    Reply(&'a Segment),
}

/// The xid of the call of ours that a message is about. `None` for a version 1 Call of the server
/// without chunks, whose xid says nothing about our calls (BC-02), and for a message that is too
/// short to have an xid. Nothing else is checked.
#[inline(always)]
pub fn call_xid(message: &[u8]) -> Option<Xid> {
    let xid = Reader::new(message).u32().ok()?;
    plain_call(message).is_none().then_some(Xid(xid))
}

/// A version 1 Call without chunks.
#[inline(always)]
fn plain_call(message: &[u8]) -> Option<()> {
    const LEN: usize = INLINE_HEADER + 8;
    let (mut words, _, _) = front::<LEN>(message, proc_nr::MSG)?;
    absent(&mut words)?;
    absent(&mut words)?;
    words.u32().ok()?;
    expect(&mut words, direction::CALL)
}

/// Lengths of the predicted headers, in bytes: all lists absent, a Write chunk of one segment, a
/// Reply chunk of one segment.
const INLINE_HEADER: usize = 28;
const WRITE_HEADER: usize = 52;
const REPLY_HEADER: usize = 48;

// Everything is inlined, so that a row of comparisons is left.

/// Compares a message with the Reply that a version 1 call expects. The caller has found the call
/// by the message's xid. `None` if the message is not the predicted one.
#[inline(always)]
pub fn predicted(message: &[u8], expected: Expected<'_>) -> Option<Accept> {
    if message.len() & 3 != 0 {
        return None;
    }
    match expected {
        Expected::Inline => {
            const LEN: usize = INLINE_HEADER + MIN_RPC_REPLY;
            let (mut words, xid, grant) = front::<LEN>(message, proc_nr::MSG)?;
            absent(&mut words)?;
            absent(&mut words)?;
            inline(message, &mut words, xid, INLINE_HEADER).map(|accept| Accept { grant, ..accept })
        }
        Expected::Write(offered, most) => {
            const LEN: usize = WRITE_HEADER + MIN_RPC_REPLY;
            let (mut words, xid, grant) = front::<LEN>(message, proc_nr::MSG)?;
            let placed = chunk(&mut words, offered)?;
            absent(&mut words)?;
            absent(&mut words)?;
            let accept = inline(message, &mut words, xid, WRITE_HEADER)?;
            // CAST: widening.
            (accept.inline_len as u64 <= u64::from(most)).then_some(Accept {
                grant,
                placed,
                ..accept
            })
        }
        Expected::Reply(offered) => {
            let (mut words, _, grant) = front::<REPLY_HEADER>(message, proc_nr::NOMSG)?;
            absent(&mut words)?;
            let reply_len = chunk(&mut words, offered)?;
            // CAST: 20.
            let whole = reply_len >= MIN_RPC_REPLY as u32 && reply_len & 3 == 0;
            (whole && message.len() == REPLY_HEADER).then_some(Accept {
                grant,
                inline_offset: REPLY_HEADER,
                inline_len: 0,
                placed: 0,
                reply_len,
                notes: Notes::NONE,
            })
        }
    }
}

/// Checks the fixed words and the empty Read list of a message of at least `N` bytes. Returns the
/// rest of the first `N` bytes, the xid and the grant.
#[inline(always)]
fn front<const N: usize>(message: &[u8], procedure: u32) -> Option<(Reader<'_>, u32, Credits)> {
    let mut words = Reader::new(message.first_chunk::<N>()?);
    let xid = words.u32().ok()?;
    expect(&mut words, Version::V1.number())?;
    let grant = Credits(words.u32().ok()?);
    expect(&mut words, procedure)?;
    absent(&mut words)?;
    Some((words, xid, grant))
}

#[inline(always)]
fn expect(words: &mut Reader<'_>, word: u32) -> Option<()> {
    (words.u32() == Ok(word)).then_some(())
}

/// The end of a list, or an absent Reply chunk.
#[inline(always)]
fn absent(words: &mut Reader<'_>) -> Option<()> {
    expect(words, 0)
}

/// Checks that a chunk has the one segment that was offered; returns how many bytes were written.
#[inline(always)]
fn chunk(words: &mut Reader<'_>, offered: &Segment) -> Option<u32> {
    expect(words, 1)?;
    expect(words, 1)?;
    expect(words, offered.handle.0)?;
    let length = words.u32().ok()?;
    let same = words.u64() == Ok(offered.offset) && length <= offered.length;
    same.then_some(length)
}

/// Checks the beginning of the RPC Reply, which is behind `header` bytes.
#[inline(always)]
fn inline(message: &[u8], words: &mut Reader<'_>, xid: u32, header: usize) -> Option<Accept> {
    expect(words, xid)?;
    expect(words, direction::REPLY)?;
    Some(Accept {
        inline_offset: header,
        inline_len: message.len().saturating_sub(header),
        ..Accept::default()
    })
}
