// SPDX-License-Identifier: GPL-2.0

//! Types of received messages. First, the type of a message is determined. Then, if the message is
//! a reply, the driver looks up the call to which the reply belongs.

use crate::{
    error::{
        Counter,
        Error,
        Notes, //
    },
    wire::{
        chunk::Lists,
        header::{
            proc_nr,
            Credits,
            Fixed,
            Refusal,
            RefusalKind,
            Version,
            Xid, //
        },
        xdr::Reader, //
    }, //
};

/// The type of a received message, which determines what the driver has to do with it.
#[derive(Clone, Debug)]
pub enum Inbound<'a> {
    /// A reply to a client's call. The driver must look the xid up. If no call with this xid waits
    /// on this connection, the driver must drop the reply and increment [`Counter::BadXid`].
    Reply(Reply<'a>),
    /// An error report for a client's call. The driver must look the xid up as for a Reply. The
    /// credit word of an error is not a grant.
    Error(RemoteError),
    /// A well-formed Call from the server.
    ReverseCall(ReverseCall<'a>),
    /// The driver must send this error message to the server. The message needs space in the send
    /// queue but no credit.
    Refuse(Refusal),
    /// The type of the message depends on whether a call with this xid waits for its reply. The
    /// driver must call [`Ambiguous::resolve`].
    Ambiguous(Ambiguous),
    /// The driver must drop the message and increment the counter.
    Discard(Discard),
}

/// A message to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// The counter to increment.
    pub counter: Counter,
    /// The xid of the message, if it can be the xid of a client's call. If a call with this xid
    /// waits on this connection, the message counts as a bad reply to that call; see
    /// [`DiscardLimit`](crate::rpc::limit::DiscardLimit).
    pub xid: Option<Xid>,
}

/// The header of a Reply. The structure of this header has been checked.
#[derive(Clone, Debug)]
pub struct Reply<'a> {
    /// The xid of the call that this Reply answers.
    pub xid: Xid,
    /// The number of credits that the server grants. This number has not been checked.
    pub credits: Credits,
    /// Whether the message is an `RDMA_MSG`, whose RPC message is in [`payload`](Self::payload).
    pub inline: bool,
    /// The chunk lists.
    pub lists: Lists<'a>,
    /// All bytes that follow the transport header.
    pub payload: &'a [u8],
    /// Byte offset of the payload in the received message.
    pub offset: usize,
    /// Counters to increment for deviations from the protocol that were accepted.
    pub notes: Notes,
}

/// The header of a reverse Call.
#[derive(Clone, Copy, Debug)]
pub struct ReverseCall<'a> {
    /// The xid that the server chose. It is unrelated to the xids of the client's calls (BC-02).
    pub xid: Xid,
    /// The credits that the server requests. They are only a hint, and not a grant for forward
    /// calls (BC-03).
    pub credits: Credits,
    /// The RPC message.
    pub payload: &'a [u8],
    /// Byte offset of the payload in the received message.
    pub offset: usize,
    /// Counters to increment for deviations from the protocol that were accepted.
    pub notes: Notes,
}

/// An error report for a client's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteError {
    /// The xid of the call that failed.
    pub xid: Xid,
    /// The content of the peer's report.
    pub kind: RemoteErrorKind,
    /// Counters to increment for the error itself and for accepted deviations from the protocol.
    pub notes: Notes,
}

/// The content of an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteErrorKind {
    /// The peer reports the range of versions that it supports. The range is not checked.
    Version {
        /// The lowest version that the peer supports.
        low: u32,
        /// The highest version that the peer supports.
        high: u32,
    },
    /// The peer could not process the header of the call.
    Chunk,
    /// Version 2: the peer does not know the option.
    InvalOption,
}

impl RemoteErrorKind {
    /// Returns the error with which the call fails. The call is not retried (V1-090).
    ///
    /// The error INVAL_OPTION in answer to an ordinary call is permanent, like a bad header
    /// (MAL-177).
    #[inline]
    pub const fn error(self) -> Error {
        match self {
            Self::Version { .. } => Error::RemoteVersion,
            Self::Chunk | Self::InvalOption => Error::RemoteChunk,
        }
    }
}

/// A message that is a Reply if a call with the same xid was sent on this connection, and otherwise
/// a Call (X-21, MAL-118).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    /// The xid to look up among the calls of this connection.
    pub xid: Xid,
    version: Version,
    backchannel: bool,
}

impl Ambiguous {
    /// Decides what to do with the message. `pending` says whether a client's call with this xid
    /// waits for its reply, or was sent on this connection and has not ended.
    ///
    /// If there is such a call, the message is a bad Reply and is dropped. No error message may
    /// answer it (V1-081). If there is no such call, the message is a reverse Call that the client
    /// cannot accept.
    #[inline]
    pub const fn resolve(self, pending: bool) -> Inbound<'static> {
        if pending {
            discard(Counter::BadChunk, Some(self.xid))
        } else if self.backchannel {
            Inbound::Refuse(Refusal {
                version: self.version,
                xid: self.xid,
                kind: RefusalKind::Chunk,
            })
        } else {
            discard(Counter::BcDisabled, None)
        }
    }
}

/// Minimum length of an RPC Reply in bytes: MSG_DENIED with AUTH_ERROR (RFC 5531, section 9).
pub const MIN_RPC_REPLY: usize = 20;

pub(crate) const fn discard(counter: Counter, xid: Option<Xid>) -> Inbound<'static> {
    Inbound::Discard(Discard { counter, xid })
}

/// The fields of a message that were read from its fixed words.
pub(crate) struct Context {
    pub(crate) fixed: Fixed,
    pub(crate) version: Version,
    pub(crate) backchannel: bool,
    pub(crate) notes: Notes,
}

/// Returns the first two words of an RPC message, or `None` if the message is shorter.
#[inline]
pub(crate) fn rpc_words(payload: &[u8]) -> Option<(Xid, u32)> {
    let words = Reader::new(payload).array::<8>().ok()?;
    let mut words = Reader::new(&words);
    Some((Xid(words.u32().ok()?), words.u32().ok()?))
}

impl Context {
    pub(crate) fn discard(&self, counter: Counter) -> Inbound<'static> {
        discard(counter, Some(self.fixed.xid))
    }

    /// Returns the refusal of a message that the client cannot handle: a reverse Call or an option.
    pub(crate) fn refuse(&self, kind: RefusalKind) -> Inbound<'static> {
        Inbound::Refuse(Refusal {
            version: self.version,
            xid: self.fixed.xid,
            kind,
        })
    }

    /// Handles a reverse Call whose RPC message is in a Read chunk. Such a Call is never accepted
    /// (RFC 8167, section 5.3).
    pub(crate) fn long_call(&self) -> Inbound<'static> {
        if self.backchannel {
            self.refuse(RefusalKind::Chunk)
        } else {
            // The server chose the xid, which is unrelated to the client's calls.
            discard(Counter::BcDisabled, None)
        }
    }

    pub(crate) fn ambiguous(&self) -> Inbound<'static> {
        Inbound::Ambiguous(Ambiguous {
            xid: self.fixed.xid,
            version: self.version,
            backchannel: self.backchannel,
        })
    }

    /// Interprets a message as a Reply. If the RPC message is inline, the caller has checked that
    /// it is a Reply.
    #[inline]
    pub(crate) fn reply<'a>(
        &self,
        lists: Lists<'a>,
        payload: &'a [u8],
        message: &'a [u8],
    ) -> Inbound<'a> {
        let inline = self.fixed.procedure == proc_nr::MSG;
        let mut notes = self.notes;
        if !inline && !payload.is_empty() {
            notes.insert(Counter::Trailing);
        }
        Inbound::Reply(Reply {
            xid: self.fixed.xid,
            credits: self.fixed.credits,
            inline,
            lists,
            payload,
            offset: message.len().saturating_sub(payload.len()),
            notes,
        })
    }

    /// Handles a Call from the server whose RPC header is inline.
    pub(crate) fn reverse_call<'a>(
        &self,
        lists: &Lists<'a>,
        payload: &'a [u8],
        message: &'a [u8],
        rpc_xid: Xid,
    ) -> Inbound<'a> {
        if !self.backchannel {
            // The server chose the xid, which is unrelated to the client's calls.
            return discard(Counter::BcDisabled, None);
        }
        if !lists.is_empty() || rpc_xid != self.fixed.xid {
            return self.refuse(RefusalKind::Chunk);
        }
        Inbound::ReverseCall(ReverseCall {
            xid: self.fixed.xid,
            credits: self.fixed.credits,
            payload,
            offset: message.len().saturating_sub(payload.len()),
            notes: self.notes,
        })
    }

    /// Handles a Reply whose RPC header is inline and begins with `rpc_xid`.
    #[inline]
    pub(crate) fn inline_reply<'a>(
        &self,
        lists: Lists<'a>,
        payload: &'a [u8],
        message: &'a [u8],
        rpc_xid: Xid,
    ) -> Inbound<'a> {
        if rpc_xid != self.fixed.xid {
            return self.discard(Counter::XidMismatch);
        }
        if payload.len() < MIN_RPC_REPLY {
            return self.discard(Counter::BadPayloadLen);
        }
        self.reply(lists, payload, message)
    }
}
