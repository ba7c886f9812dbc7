// SPDX-License-Identifier: GPL-2.0

//! Helpers for several test files: the byte vectors, and a builder for messages from a peer.

use serde_json::Value;
use xprtrdma_proto::{
    conn::{
        FailedWork,
        Opcode, //
    },
    inbound::Reply,
    judge,
    Handle,
    Inbound,
    Offer,
    Segment,
    Verdict,
    Version,
    Xid, //
};

/// The xid of most test messages.
pub const XID: u32 = 0x1a2b_3c4d;
/// The words of an absent Read list, an absent Write list and an absent Reply chunk.
pub const NO_LISTS: [u32; 3] = [0, 0, 0];

pub const MSG: u32 = 0;
pub const NOMSG: u32 = 1;
pub const ERROR: u32 = 4;
pub const OPTIONAL: u32 = 5;
pub const CALL: u32 = 0;
pub const REPLY: u32 = 1;

/// Both versions of the protocol, for tests of rules that hold in both versions (MAL-191).
pub const VERSIONS: [Version; 2] = [Version::V1, Version::V2];

/// Values of `enum ib_wc_status`.
pub const FLUSHED: u32 = 5;
pub const REMOTE_INVALID_REQUEST: u32 = 9;
pub const REMOTE_ACCESS: u32 = 10;
pub const REMOTE_OPERATION: u32 = 11;
pub const RETRY_EXCEEDED: u32 = 12;
pub const GENERAL_ERROR: u32 = 21;

/// Returns a failed work request with this status.
pub fn failed(opcode: Opcode, status: u32) -> FailedWork {
    FailedWork {
        opcode,
        status,
        vendor_err: 0,
    }
}

/// A test vector: the bytes of a message, and their description.
pub struct Vector {
    pub id: String,
    pub bytes: Vec<u8>,
    pub decoded: Value,
}

/// Returns all byte vectors.
pub fn vectors() -> Vec<Vector> {
    let all: Value = serde_json::from_str(include_str!("../vectors.json")).unwrap();
    let vectors: Vec<_> = all.as_array().unwrap().iter().map(vector).collect();
    assert!(vectors.len() == 27);
    vectors
}

fn vector(value: &Value) -> Vector {
    let hex = value["hex"].as_str().unwrap();
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect();
    assert_eq!(bytes.len() as u64, value["len"].as_u64().unwrap());
    Vector {
        id: value["id"].as_str().unwrap().to_owned(),
        bytes,
        decoded: value["decoded"].clone(),
    }
}

/// Returns the test vector with this name.
pub fn named(id: &str) -> Vector {
    vectors().into_iter().find(|v| v.id == id).unwrap()
}

/// Converts XDR words to bytes.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A builder for a message.
#[derive(Clone, Debug)]
pub struct Message {
    pub xid: u32,
    pub version: u32,
    pub credits: u32,
    pub procedure: u32,
    /// The direction word of version 2.
    pub direction: Option<u32>,
    /// The chunk lists, or other words in place of the chunk lists.
    pub body: Vec<u32>,
    pub payload: Vec<u8>,
}

impl Message {
    /// Builds an `RDMA_MSG` Reply without chunks, with an RPC message of 24 bytes.
    pub fn reply(version: Version) -> Self {
        Self {
            xid: XID,
            version: version.number(),
            credits: 16,
            procedure: MSG,
            direction: (version == Version::V2).then_some(REPLY),
            body: NO_LISTS.to_vec(),
            payload: rpc(XID, REPLY, 24),
        }
    }

    /// Builds an `RDMA_NOMSG` Reply; the test adds chunks.
    pub fn long_reply(version: Version) -> Self {
        Self {
            procedure: NOMSG,
            payload: Vec::new(),
            ..Self::reply(version)
        }
    }

    /// Builds a reverse Call without chunks, with an RPC message of 40 bytes.
    pub fn reverse_call(version: Version) -> Self {
        Self {
            direction: (version == Version::V2).then_some(CALL),
            payload: rpc(XID, CALL, 40),
            ..Self::reply(version)
        }
    }

    /// Builds an error message with these words after the fixed words.
    pub fn error(version: Version, words: &[u32]) -> Self {
        Self {
            procedure: ERROR,
            direction: None,
            body: words.to_vec(),
            payload: Vec::new(),
            ..Self::reply(version)
        }
    }

    pub fn body(mut self, body: &[u32]) -> Self {
        self.body = body.to_vec();
        self
    }

    pub fn payload(mut self, payload: Vec<u8>) -> Self {
        self.payload = payload;
        self
    }

    /// Builds chunk lists with this Write list and Reply chunk, and an empty Read list.
    pub fn chunks(self, writes: &[&[Segment]], reply: Option<&[Segment]>) -> Self {
        let mut body = vec![0];
        for chunk in writes {
            body.extend(chunk_words(chunk));
        }
        body.push(0);
        match reply {
            Some(chunk) => body.extend(chunk_words(chunk)),
            None => body.push(0),
        }
        self.body(&body)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = words(&[self.xid, self.version, self.credits, self.procedure]);
        bytes.extend(words(self.direction.as_slice()));
        bytes.extend(words(&self.body));
        bytes.extend(&self.payload);
        bytes
    }
}

/// Builds the words of a Write chunk or a Reply chunk that has these segments.
pub fn chunk_words(segments: &[Segment]) -> Vec<u32> {
    let mut words = vec![1, segments.len() as u32];
    for segment in segments {
        words.extend(segment_words(segment));
    }
    words
}

pub fn segment_words(segment: &Segment) -> [u32; 4] {
    [
        segment.handle.0,
        segment.length,
        (segment.offset >> 32) as u32,
        segment.offset as u32,
    ]
}

/// Builds the beginning of an RPC message: xid, msg_type, and zeroes up to `len` bytes.
pub fn rpc(xid: u32, msg_type: u32, len: usize) -> Vec<u8> {
    let mut bytes = words(&[xid, msg_type]);
    bytes.resize(len, 0);
    bytes
}

/// Returns segments with these lengths; each has its own handle and offset.
pub fn segments(lengths: &[u32]) -> Vec<Segment> {
    lengths
        .iter()
        .zip(1u32..)
        .map(|(&length, n)| Segment {
            handle: Handle(0x1000 + n),
            length,
            offset: u64::from(n) << 33,
        })
        .collect()
}

/// Classifies a message on a connection without a backchannel. Returns the Reply, and panics if the
/// message is not a Reply.
pub fn reply_of(bytes: &[u8], version: Version) -> Reply<'_> {
    match xprtrdma_proto::classify(bytes, version, false) {
        Inbound::Reply(reply) => reply,
        other => panic!("not a Reply: {other:?}"),
    }
}

/// The final outcome of a received message. Each message is classified. A Reply is then also
/// compared with its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Judged(Verdict),
    Dropped(xprtrdma_proto::Counter, Option<Xid>),
    Failed(xprtrdma_proto::Error),
    Call(usize),
    Refused(xprtrdma_proto::header::RefusalKind),
}

/// Classifies and judges a message. `pending` says whether a call with the xid of the message waits
/// for its reply.
pub fn fate(
    bytes: &[u8],
    version: Version,
    backchannel: bool,
    pending: bool,
    offer: &Offer<'_>,
) -> Fate {
    let mut inbound = xprtrdma_proto::classify(bytes, version, backchannel);
    if let Inbound::Ambiguous(ambiguous) = inbound {
        inbound = ambiguous.resolve(pending);
    }
    match inbound {
        Inbound::Reply(reply) if pending => Fate::Judged(judge(&reply, offer)),
        Inbound::Error(error) if pending => Fate::Failed(error.kind.error()),
        Inbound::Reply(Reply { xid, .. }) => {
            Fate::Dropped(xprtrdma_proto::Counter::BadXid, Some(xid))
        }
        Inbound::Error(error) => Fate::Dropped(xprtrdma_proto::Counter::BadXid, Some(error.xid)),
        Inbound::ReverseCall(call) => Fate::Call(call.payload.len()),
        Inbound::Refuse(refusal) => Fate::Refused(refusal.kind),
        Inbound::Discard(discard) => Fate::Dropped(discard.counter, discard.xid),
        Inbound::Ambiguous(_) => panic!("ambiguous twice"),
    }
}
