// SPDX-License-Identifier: GPL-2.0

//! A Call, and the stage of its processing.
//!
//! The type parameter says what may be done with the Call: a [`Sorted`] Call can only be admitted,
//! an `Admitted` Call can be fetched, and a `Ready` Call can be replied to.

use crate::{
    responder::{
        layout::Layout,
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

/// Deviations from the protocol in a Call that is processed nevertheless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// The length of the message is not a multiple of four.
    pub odd_length: bool,
    /// Bytes follow the header of an `RDMA_NOMSG`; they are ignored.
    pub trailing: bool,
    /// The client requests zero credits. The responder treats this as a request for one credit.
    pub no_credit: bool,
}

/// The values of a Call's fixed header words, and what the classification of the Call has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) xid: Xid,
    pub(crate) version: Version,
    pub(crate) credits: Credits,
    /// Whether the RPC message is in a Position-Zero chunk.
    pub(crate) long: bool,
    pub(crate) oddities: Oddities,
}

/// The stage of a Call whose chunk lists can be decoded. No later check has been made.
#[derive(Debug)]
pub struct Sorted(pub(crate) ());

/// A Call in stage `S` of its processing, with the message that contained it.
#[derive(Debug)]
pub struct Call<'a, S> {
    pub(crate) facts: Facts,
    pub(crate) lists: Lists<'a>,
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

    /// Returns how many credits the client requests.
    #[inline]
    pub const fn credits(&self) -> Credits {
        self.facts.credits
    }

    /// Returns the [`Refusal`] to send if the Call has this fault.
    #[inline]
    pub const fn refuse(&self, fault: Fault) -> Refusal {
        Refusal::new(self.facts.xid, self.facts.version, fault)
    }

    /// Returns the deviations from the protocol that were accepted in this Call.
    #[inline]
    pub const fn oddities(&self) -> Oddities {
        self.facts.oddities
    }

    /// Separates the Call from its message, so that the Call can be stored. The caller must keep
    /// the message unchanged for [`Parked::resume`].
    #[inline]
    pub fn park(self) -> Parked<S> {
        Parked {
            facts: self.facts,
            layout: Layout::of(&self.lists),
            stage: self.stage,
        }
    }

    /// Returns the same Call in the given stage.
    #[inline]
    pub(crate) fn now<T>(self, stage: T) -> Call<'a, T> {
        Call {
            facts: self.facts,
            lists: self.lists,
            payload: self.payload,
            stage,
        }
    }
}

/// A Call without its message, for a driver that must wait between two stages.
#[derive(Debug)]
pub struct Parked<S> {
    facts: Facts,
    layout: Layout,
    pub(crate) stage: S,
}

impl<S> Parked<S> {
    /// Combines the stored Call with its message again. Returns `None` if `message` is recognizably
    /// not the message of the Call: its xid differs, or it is too short for the chunk lists.
    #[inline]
    pub fn resume(self, message: &[u8]) -> Option<Call<'_, S>> {
        let (lists, payload) = self.lists(message)?;
        Some(Call {
            facts: self.facts,
            lists,
            payload,
            stage: self.stage,
        })
    }

    /// Returns the chunk lists in the message that contained the Call, and the bytes behind them.
    #[inline]
    pub(crate) fn lists<'a>(&self, message: &'a [u8]) -> Option<(Lists<'a>, &'a [u8])> {
        let mut input = Reader::new(message);
        if input.u32() != Ok(self.facts.xid.0) {
            return None;
        }
        let fixed = self.facts.version.fixed_len();
        let mut input = Reader::new(message.get(fixed..)?);
        let lists = self.layout.find(&mut input).ok()?;
        Some((lists, input.rest()))
    }
}
