// SPDX-License-Identifier: GPL-2.0

//! Header prediction: a fast path for the Replies that nearly all calls get.
//!
//! The header of a correct Reply is known before it arrives, except the grant and the number of
//! bytes written. [`predicted`] compares a received header with the known words, one by one.
//! [`classify`](crate::classify) and [`judge`](mod@crate::rpc::judge) would accept the same message
//! with the same result, but need several times as many instructions. They handle every message
//! that [`predicted`] does not accept. So no rule of the protocol is implemented only here.

use crate::{
    error::Notes,
    rpc::judge::Accept,
    wire::{
        chunk::{
            Segment,
            ABSENT_LEN, //
        },
        header::{
            direction,
            proc_nr,
            Credits,
            Version,
            Xid,
            FIXED_LEN, //
        },
        inbound::MIN_RPC_REPLY,
        xdr::Reader, //
    }, //
};

/// The chunk that a call offered for its results, in one of the forms that can be predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// The call offered no chunk for its results.
    Inline,
    /// The call offered a Write chunk of one segment. The number is the maximum length of the RPC
    /// message without the chunk's data; see
    /// [`Offer::non_data_max`](crate::rpc::judge::Offer::non_data_max).
    Write(&'a Segment, u32),
    /// The call offered a Reply chunk of one segment.
    Reply(&'a Segment),
}

/// The chunk of one segment that a predicted reply returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The reply returns a Write chunk.
    Write,
    /// The reply returns a Reply chunk.
    Reply,
}

/// Returns the byte position, within a predicted reply, of the returned segment's offset field.
#[inline(always)]
pub const fn offset_place(returned: Returned, version: Version) -> usize {
    // Four words precede the offset field in the chunk: discriminator, count, the segment's handle,
    // the segment's length.
    const IN_CHUNK: usize = 4 + 4 + 4 + 4;
    let lists = match returned {
        // The empty Read list precedes the chunk.
        Returned::Write => ABSENT_LEN,
        // The empty Read list and the empty Write list precede the chunk.
        Returned::Reply => ABSENT_LEN + ABSENT_LEN,
    };
    header_len(version, lists.saturating_add(IN_CHUNK))
}

/// Returns the xid of the client's call to which a message refers.
///
/// Returns `None` if the message is too short to have an xid. Also returns `None` for a Call from
/// the server, whose xid is unrelated to the client's calls (BC-02). In version 1, only Calls
/// without chunks are recognised as Calls. In version 2, all Calls and all option requests are
/// recognised. The function checks nothing else in the message.
#[inline(always)]
pub fn call_xid(message: &[u8], version: Version) -> Option<Xid> {
    let xid = Reader::new(message).u32().ok()?;
    let call = match version {
        Version::V1 => plain_call(message),
        Version::V2 => directed_call(message),
    };
    call.is_none().then_some(Xid(xid))
}

/// Returns `Some(())` if the message is an RPC-over-RDMA version 1 message with a Call and without
/// chunks.
#[inline(always)]
fn plain_call(message: &[u8]) -> Option<()> {
    const LEN: usize = INLINE_LISTS + 8;
    const FRONT: usize = Version::V1.fixed_len() + LEN;
    // The last word is compared first: it alone distinguishes nearly every reply from a Call.
    let (_, last) = message.first_chunk::<FRONT>()?.split_last_chunk::<4>()?;
    expect(&mut Reader::new(last), direction::CALL)?;
    let (mut words, _, _) = front::<LEN>(message, Version::V1, proc_nr::MSG)?;
    absent(&mut words)?;
    absent(&mut words)
}

/// Returns `Some` if the direction word of a version 2 message has the value for a Call. Returns
/// `None` also in these cases:
///
/// * The message is an error or has an unknown procedure, so it has no direction word.
/// * The message is too short for a header, so it may be a truncated reply.
#[inline(always)]
fn directed_call(message: &[u8]) -> Option<()> {
    const LEN: usize = Version::V2.fixed_len();
    let mut words = Reader::new(message.first_chunk::<LEN>()?);
    words.u32().ok()?;
    expect(&mut words, Version::V2.number())?;
    words.u32().ok()?;
    let procedure = words.u32().ok()?;
    expect(&mut words, direction::CALL)?;
    let directed = match procedure {
        proc_nr::MSG | proc_nr::NOMSG => message.len() >= Version::V2.min_header_len(),
        _ => procedure == proc_nr::OPTIONAL,
    };
    directed.then_some(())
}

/// Length in bytes of chunk lists without any chunk.
const INLINE_LISTS: usize = 12;
/// Length in bytes of chunk lists with a Write chunk of one segment.
const WRITE_LISTS: usize = 36;
/// Length in bytes of chunk lists with a Reply chunk of one segment.
const REPLY_LISTS: usize = 32;

// All functions below are inlined, so that the compiled code is a straight series of comparisons.

/// Compares a message with the Reply that a call of this version expects. The caller has used the
/// message's xid to find the call. Returns `None` if the message differs from the prediction.
#[inline(always)]
pub fn predicted(message: &[u8], version: Version, expected: Expected<'_>) -> Option<Accept> {
    if message.len() & 3 != 0 {
        return None;
    }
    match expected {
        Expected::Inline => {
            const LEN: usize = INLINE_LISTS + MIN_RPC_REPLY;
            let (mut words, xid, grant) = front::<LEN>(message, version, proc_nr::MSG)?;
            absent(&mut words)?;
            absent(&mut words)?;
            let header = header_len(version, INLINE_LISTS);
            inline(message, &mut words, xid, header).map(|accept| Accept { grant, ..accept })
        }
        Expected::Write(offered, most) => {
            const LEN: usize = WRITE_LISTS + MIN_RPC_REPLY;
            let (mut words, xid, grant) = front::<LEN>(message, version, proc_nr::MSG)?;
            let placed = chunk(&mut words, offered)?;
            absent(&mut words)?;
            absent(&mut words)?;
            let header = header_len(version, WRITE_LISTS);
            let accept = inline(message, &mut words, xid, header)?;
            // CAST: The cast widens the number.
            (accept.inline_len as u64 <= u64::from(most)).then_some(Accept {
                grant,
                placed,
                ..accept
            })
        }
        Expected::Reply(offered) => {
            let (mut words, _, grant) = front::<REPLY_LISTS>(message, version, proc_nr::NOMSG)?;
            absent(&mut words)?;
            let reply_len = chunk(&mut words, offered)?;
            // CAST: The constant `MIN_RPC_REPLY` is 20, so it fits.
            let whole = reply_len >= MIN_RPC_REPLY as u32 && reply_len & 3 == 0;
            let header = header_len(version, REPLY_LISTS);
            (whole && message.len() == header).then_some(Accept {
                grant,
                inline_offset: header,
                inline_len: 0,
                placed: 0,
                reply_len,
                notes: Notes::NONE,
            })
        }
    }
}

/// Returns the length of a header whose chunk lists have `lists` bytes.
#[inline(always)]
const fn header_len(version: Version, lists: usize) -> usize {
    version.fixed_len().saturating_add(lists)
}

/// Checks the fixed words and the empty Read list of a message. At least `N` bytes must follow the
/// fixed words. Returns three values: a reader that begins after the Read list, the xid of the
/// message, and the grant of the message.
#[inline(always)]
fn front<const N: usize>(
    message: &[u8],
    version: Version,
    procedure: u32,
) -> Option<(Reader<'_>, u32, Credits)> {
    // If the version is known at compile time, the compiler keeps only the following length check
    // and removes all later length checks.
    let needed = message.get(..header_len(version, N))?;
    let (fixed, mut rest) = needed.split_first_chunk::<FIXED_LEN>()?;
    let mut words = Reader::new(fixed);
    let xid = words.u32().ok()?;
    expect(&mut words, version.number())?;
    let grant = Credits(words.u32().ok()?);
    expect(&mut words, procedure)?;
    if version == Version::V2 {
        let (word, behind) = rest.split_first_chunk::<4>()?;
        expect(&mut Reader::new(word), direction::REPLY)?;
        rest = behind;
    }
    let mut lists = Reader::new(rest.first_chunk::<N>()?);
    absent(&mut lists)?;
    Some((lists, xid, grant))
}

#[inline(always)]
fn expect(words: &mut Reader<'_>, word: u32) -> Option<()> {
    (words.u32() == Ok(word)).then_some(())
}

/// Checks that the next word is zero: the end of a list, or an absent Reply chunk.
#[inline(always)]
fn absent(words: &mut Reader<'_>) -> Option<()> {
    expect(words, 0)
}

/// Checks that a returned chunk consists of the offered segment. Returns the number of bytes that
/// the server wrote.
#[inline(always)]
fn chunk(words: &mut Reader<'_>, offered: &Segment) -> Option<u32> {
    expect(words, 1)?;
    expect(words, 1)?;
    expect(words, offered.handle.0)?;
    let length = words.u32().ok()?;
    let same = words.u64() == Ok(offered.offset) && length <= offered.length;
    same.then_some(length)
}

/// Checks the first words of the RPC Reply, which follows a header of `header` bytes.
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
