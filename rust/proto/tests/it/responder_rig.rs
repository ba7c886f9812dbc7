// SPDX-License-Identifier: GPL-2.0

//! Helpers for the tests of the responder: messages from a client, and a grant that is never
//! exhausted.

use crate::common::{
    chunk_words,
    segment_words,
    words,
    Message,
    CALL,
    MSG,
    NOMSG,
    XID, //
};
use xprtrdma_proto::{
    responder::{
        admit::{
            Admitted,
            Ready,
            Terms, //
        },
        call::{
            Call,
            Sorted, //
        },
        grant::{
            Grant,
            GrantBounds,
            Granted, //
        },
        refusal::Fault,
        reply::Reply,
        sort::{
            sort,
            Arrival, //
        },
        spoken::Spoken, //
    },
    Credits,
    Segment, //
};

/// The limits that most tests use.
pub const TERMS: Terms = Terms {
    spoken: Spoken::Both,
    reply_threshold: 4096,
    reply_threshold_v2: 4096,
    longest_call: 1 << 20,
};

/// A segment of the Read list, with its Position.
pub type Entry = (u32, Segment);

/// Builds an RPC Call of the NFS program with these words of a credential. Zeroes fill the Call up
/// to a length of `len` bytes.
pub fn rpc_call(version: u32, procedure: u32, credential: &[u32], len: usize) -> Vec<u8> {
    let mut all = vec![XID, CALL, 2, 100_003, version, procedure];
    all.extend(credential);
    all.extend([0, 0]);
    let mut bytes = words(&all);
    bytes.resize(len.max(bytes.len()), 0);
    bytes
}

/// The words of an empty credential.
pub const NONE: [u32; 2] = [0, 0];

/// Builds a credential of RPCSEC_GSS that requests this service.
pub fn gss(service: u32) -> Vec<u32> {
    vec![6, 20, 1, 0, 7, service, 0]
}

/// Builds a WRITE Call of NFSv3. Zeroes fill the Call up to a length of `len` bytes.
pub fn write_call(len: usize) -> Vec<u8> {
    rpc_call(3, 7, &NONE, len)
}

/// Returns the words of the three chunk lists.
pub fn lists(reads: &[Entry], writes: &[&[Segment]], reply: Option<&[Segment]>) -> Vec<u32> {
    let mut all = Vec::new();
    for (position, segment) in reads {
        all.extend([1, *position]);
        all.extend(segment_words(segment));
    }
    all.push(0);
    writes
        .iter()
        .for_each(|chunk| all.extend(chunk_words(chunk)));
    all.push(0);
    all.extend(reply.map_or(vec![0], chunk_words));
    all
}

/// Builds a message with these chunk lists. The message contains an inline WRITE Call of 100 bytes,
/// unless `reads` contains a Position-Zero chunk.
pub fn message(reads: &[Entry], writes: &[&[Segment]], reply: Option<&[Segment]>) -> Message {
    let long = reads.iter().any(|(position, _)| *position == 0);
    Message {
        xid: XID,
        version: 1,
        credits: 32,
        procedure: if long { NOMSG } else { MSG },
        direction: None,
        body: lists(reads, writes, reply),
        payload: if long { Vec::new() } else { write_call(100) },
    }
}

/// Classifies a message, which must be a Call.
pub fn sorted(bytes: &[u8]) -> Call<'_, Sorted> {
    match sort(bytes, TERMS.spoken) {
        Arrival::Call(call) => call,
        other => panic!("no Call: {other:?}"),
    }
}

/// Classifies and admits a Call.
pub fn admitted(bytes: &[u8]) -> Call<'_, Admitted> {
    sorted(bytes).admit(&TERMS).expect("admitted")
}

/// Processes an inline Call until it can be passed to the RPC layer.
pub fn ready(bytes: &[u8]) -> Call<'_, Ready> {
    admitted(bytes).fetched(&[]).expect("fetched")
}

/// Returns true if the bytes of a reply that are in no Write chunk are in the Reply chunk. Returns
/// false if these bytes are inline. There is at least one such byte.
pub fn is_in_reply_chunk(reply: &Reply<'_>) -> bool {
    reply.inline().next().is_none()
}

/// Returns the fault of a message, if it has one.
pub fn fault(bytes: &[u8], terms: &Terms) -> Option<Fault> {
    match sort(bytes, TERMS.spoken) {
        Arrival::Call(call) => call.admit(terms).err().map(|refusal| refusal.fault),
        Arrival::Refuse(refusal) => Some(refusal.fault),
        other => panic!("neither served nor refused: {other:?}"),
    }
}

/// Returns the right to send one response that grants this number of credits.
pub fn granted(credits: u32) -> Granted {
    let mut grant = Grant::new(GrantBounds {
        least: credits,
        most: credits,
        reserved: 0,
        spare: 0,
    });
    grant.posted(credits);
    grant.received();
    let ticket = grant.begin(Some(Credits(credits))).expect("the first Call");
    grant.posted(1);
    grant.answer(ticket).expect("a grant")
}
