// SPDX-License-Identifier: GPL-2.0

//! A Call, and the stage of its processing. The type parameter is the stage:
//!
//! - [`Sorted`]: The Call can only be admitted.
//! - `Admitted`: The data of the Call can be fetched.
//! - `Ready`: The Call can be replied to.

use crate::{
    responder::{
        layout::{
            Layout,
            Stored, //
        },
        refusal::{
            Fault,
            Refusal, //
        }, //
    },
    wire::{
        chunk::Lists,
        header::{
            Credits,
            Version,
            Xid, //
        },
        xdr::Reader, //
    }, //
};

/// The values of a Call's fixed header words that its response needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) xid: Xid,
    pub(crate) version: Version,
}

/// The stage of a Call whose chunk lists can be decoded. No later check has been made.
#[derive(Debug)]
pub struct Sorted {
    pub(crate) credits: Credits,
    /// Whether the RPC message is in a Position-Zero chunk.
    pub(crate) long: bool,
}

/// A Call in stage `S` of its processing, with the message that contained it.
#[derive(Debug)]
pub struct Call<'a, S> {
    pub(crate) facts: Facts,
    pub(crate) layout: Layout,
    pub(crate) lists: Lists<'a>,
    /// The Write list with its terminator and the Reply chunk, as they are encoded. The header of
    /// the Reply repeats these bytes, except for the lengths of the segments.
    pub(crate) returned: &'a [u8],
    /// The inline RPC message, or the bytes that follow the header of an `RDMA_NOMSG`.
    pub(crate) payload: &'a [u8],
    pub(crate) stage: S,
}

impl<'a, S> Call<'a, S> {
    /// Returns the xid of the Call.
    #[inline]
    pub const fn xid(&self) -> Xid {
        self.facts.xid
    }

    /// Returns the protocol version of the Call. Its response has the same version.
    #[inline]
    pub const fn version(&self) -> Version {
        self.facts.version
    }

    /// Returns the [`Refusal`] to send if the Call has this fault.
    #[inline]
    pub const fn refuse(&self, fault: Fault) -> Refusal {
        Refusal::new(self.facts.xid, self.facts.version, fault)
    }

    /// Separates the Call from its message, so that the Call can be stored. The caller must keep
    /// the message unchanged for [`Parked::resume`].
    #[inline]
    pub fn park(self) -> Parked<S> {
        Parked {
            facts: self.facts,
            layout: self.layout.store(),
            stage: self.stage,
        }
    }

    /// Returns the same Call in the given stage.
    #[inline]
    pub(crate) fn now<T>(self, stage: T) -> Call<'a, T> {
        Call {
            facts: self.facts,
            layout: self.layout,
            lists: self.lists,
            returned: self.returned,
            payload: self.payload,
            stage,
        }
    }

    /// Returns the length in bytes of the header of a Reply to this Call.
    #[inline]
    pub(crate) fn reply_header_len(&self) -> usize {
        let fixed = self.facts.version.fixed_len();
        // NO-OVERFLOW: The lists are part of a message in memory, so they are short.
        fixed.wrapping_add(self.layout.returned_len())
    }
}

impl Call<'_, Sorted> {
    /// Returns how many credits the client requests.
    #[inline]
    pub const fn credits(&self) -> Credits {
        self.stage.credits
    }
}

/// A Call without its message, for a driver that must wait between two stages.
#[derive(Debug)]
pub struct Parked<S> {
    facts: Facts,
    layout: Stored,
    pub(crate) stage: S,
}

impl<S> Parked<S> {
    /// Combines the stored Call with its message again. Returns `None` if `message` is recognizably
    /// not the message of the Call: its xid differs, or it is too short for the chunk lists.
    #[inline]
    pub fn resume(self, message: &[u8]) -> Option<Call<'_, S>> {
        let (lists, returned, payload) = self.lists(message)?;
        Some(Call {
            facts: self.facts,
            layout: self.layout.layout(),
            lists,
            returned,
            payload,
            stage: self.stage,
        })
    }

    /// Returns three parts of the message that contained the Call. These parts are the chunk lists,
    /// the encoded lists that the header of the Reply repeats, and the bytes after the lists.
    #[inline]
    pub(crate) fn lists<'a>(&self, message: &'a [u8]) -> Option<(Lists<'a>, &'a [u8], &'a [u8])> {
        let mut input = Reader::new(message);
        if input.u32() != Ok(self.facts.xid.0) {
            return None;
        }
        let fixed = self.facts.version.fixed_len();
        let mut input = Reader::new(message.get(fixed..)?);
        let (lists, returned) = self.layout.layout().find(&mut input).ok()?;
        Some((lists, returned, input.rest()))
    }
}
