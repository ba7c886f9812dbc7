// SPDX-License-Identifier: GPL-2.0

//! What a received message is, before any call is looked up.

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

/// What a received message is.
#[derive(Clone, Debug)]
pub enum Inbound<'a> {
    /// An answer to a call of ours. Look its xid up; if no call waits for it on this connection,
    /// it is a [`Counter::BadXid`] discard.
    Reply(Reply<'a>),
    /// An error report. Look its xid up as for a Reply; its credit word is no grant.
    Error(RemoteError),
    /// A well-formed Call of the server.
    ReverseCall(ReverseCall<'a>),
    /// Send this refusal; it takes a send slot but no credit.
    Refuse(Refusal),
    /// Only the table of waiting calls can decide: call [`Ambiguous::resolve`].
    Ambiguous(Ambiguous),
    /// Drop it, count it, repost the Receive.
    Discard(Discard),
}

/// A message to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// What to count.
    pub counter: Counter,
    /// The xid, if the message was long enough to have a trustworthy one. If a call waits for it on
    /// this connection, the call got a bad reply; see
    /// [`DiscardLimit`](crate::rpc::limit::DiscardLimit).
    pub xid: Option<Xid>,
}

/// The header of a Reply, structurally valid.
#[derive(Clone, Debug)]
pub struct Reply<'a> {
    /// The call it answers.
    pub xid: Xid,
    /// The grant, as sent.
    pub credits: Credits,
    /// True for `RDMA_MSG`: the RPC message is in [`payload`](Self::payload).
    pub inline: bool,
    /// The chunk lists.
    pub lists: Lists<'a>,
    /// Everything behind the header.
    pub payload: &'a [u8],
    /// Where the payload starts in the received message.
    pub offset: usize,
    /// Oddities that were accepted.
    pub notes: Notes,
}

/// The header of a reverse Call.
#[derive(Clone, Copy, Debug)]
pub struct ReverseCall<'a> {
    /// Its xid; unrelated to our own (BC-02).
    pub xid: Xid,
    /// The credits that the server asks for; a hint only, never the forward grant (BC-03).
    pub credits: Credits,
    /// The RPC message.
    pub payload: &'a [u8],
    /// Where the payload starts in the received message.
    pub offset: usize,
    /// Oddities that were accepted.
    pub notes: Notes,
}

/// An error report for a call of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteError {
    /// The call it is about.
    pub xid: Xid,
    /// What the peer reports.
    pub kind: RemoteErrorKind,
    /// Oddities that were accepted, and the received error itself.
    pub notes: Notes,
}

/// What an error message reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteErrorKind {
    /// The peer speaks only these versions, as it says; nothing about the range is checked.
    Version {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The peer could not process the header of the call.
    Chunk,
    /// Version 2: the peer knows no such option.
    InvalOption,
}

impl RemoteErrorKind {
    /// The error with which the call ends, for good (V1-090).
    ///
    /// INVAL_OPTION for an ordinary call is as permanent as a bad header (MAL-177).
    #[inline]
    pub const fn error(self) -> Error {
        match self {
            Self::Version { .. } => Error::RemoteVersion,
            Self::Chunk | Self::InvalOption => Error::RemoteChunk,
        }
    }
}

/// A message whose direction only the table of waiting calls can decide (X-21, MAL-118).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    /// The xid to look up among the calls waiting on this connection.
    pub xid: Xid,
    version: Version,
    backchannel: bool,
}

impl Ambiguous {
    /// Decides, given whether a call of ours waits for this xid.
    ///
    /// A bad Reply is dropped; anything else is a reverse Call that we cannot take.
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

/// The shortest RPC Reply: MSG_DENIED with AUTH_ERROR (RFC 5531 9).
pub const MIN_RPC_REPLY: usize = 20;

pub(crate) const fn discard(counter: Counter, xid: Option<Xid>) -> Inbound<'static> {
    Inbound::Discard(Discard { counter, xid })
}

/// What is known of a message once its fixed words have been read.
pub(crate) struct Context {
    pub(crate) fixed: Fixed,
    pub(crate) version: Version,
    pub(crate) backchannel: bool,
    pub(crate) notes: Notes,
}

/// The first two words of an RPC message, if it has them.
#[inline]
pub(crate) fn rpc_words(payload: &[u8]) -> Option<(Xid, u32)> {
    let mut input = Reader::new(payload);
    Some((Xid(input.u32().ok()?), input.u32().ok()?))
}

impl Context {
    pub(crate) fn discard(&self, counter: Counter) -> Inbound<'static> {
        discard(counter, Some(self.fixed.xid))
    }

    /// A reverse Call that we cannot take.
    pub(crate) fn refuse(&self, kind: RefusalKind) -> Inbound<'static> {
        Inbound::Refuse(Refusal {
            version: self.version,
            xid: self.fixed.xid,
            kind,
        })
    }

    /// A reverse Call whose RPC message is in a Read chunk: it is never taken (RFC 8167, section
    /// 5.3).
    pub(crate) fn long_call(&self) -> Inbound<'static> {
        if self.backchannel {
            self.refuse(RefusalKind::Chunk)
        } else {
            // The xid is the server's: it says nothing about our calls.
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

    /// A message that is a Reply; for an inline one the RPC header was found to say so.
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

    /// A message that is a Call, with its RPC header inline.
    pub(crate) fn reverse_call<'a>(
        &self,
        lists: &Lists<'a>,
        payload: &'a [u8],
        message: &'a [u8],
        rpc_xid: Xid,
    ) -> Inbound<'a> {
        if !self.backchannel {
            // The xid is the server's: it says nothing about our calls.
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

    /// A Reply whose RPC header is inline and begins with `rpc_xid`.
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
