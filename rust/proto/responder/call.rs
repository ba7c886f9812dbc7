// SPDX-License-Identifier: GPL-2.0

//! A Call, and how far it has come.
//!
//! The type parameter says what may be done with it: a [`Sorted`] Call can only be admitted, an
//! `Admitted` one can be fetched, and a `Ready` one can be replied to.

use crate::wire::{
    chunk::Lists,
    header::{
        Credits,
        Version,
        Xid, //
    },
    xdr::Reader, //
};

/// A deviation of a Call that is processed nevertheless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// The length of the message is not a multiple of four.
    pub odd_length: bool,
    /// Bytes behind the header of an `RDMA_NOMSG` are ignored.
    pub trailing: bool,
    /// The client asks for no credit, which is read as one.
    pub no_credit: bool,
}

/// The content of the fixed words, and the result of the first look at the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) xid: Xid,
    pub(crate) version: Version,
    pub(crate) credits: Credits,
    /// The RPC message is in a Position-Zero chunk.
    pub(crate) long: bool,
    pub(crate) oddities: Oddities,
}

/// A Call whose chunk lists can be decoded; nothing else is known of it.
#[derive(Debug)]
pub struct Sorted(pub(crate) ());

/// A Call in a stage `S`, with the message that it came in.
#[derive(Debug)]
pub struct Call<'a, S> {
    pub(crate) facts: Facts,
    pub(crate) lists: Lists<'a>,
    /// The inline RPC message, or what is behind the header of an `RDMA_NOMSG`.
    pub(crate) payload: &'a [u8],
    pub(crate) stage: S,
}

impl<'a, S> Call<'a, S> {
    /// Its xid.
    #[inline]
    pub const fn xid(&self) -> Xid {
        self.facts.xid
    }

    /// Its version, which its answer has, too.
    #[inline]
    pub const fn version(&self) -> Version {
        self.facts.version
    }

    /// How many credits the client asks for.
    #[inline]
    pub const fn credits(&self) -> Credits {
        self.facts.credits
    }

    /// The deviations that were accepted.
    #[inline]
    pub const fn oddities(&self) -> Oddities {
        self.facts.oddities
    }

    /// Releases the message, which the caller keeps unchanged.
    #[inline]
    pub fn park(self) -> Parked<S> {
        Parked {
            facts: self.facts,
            stage: self.stage,
        }
    }

    /// The same Call in another stage.
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

/// A Call without its message, for a driver that waits.
#[derive(Debug)]
pub struct Parked<S> {
    facts: Facts,
    stage: S,
}

impl<S> Parked<S> {
    /// Takes up the Call again, with the message in which it came. Returns `None` if this is
    /// another message, as far as that can be seen.
    pub fn resume(self, message: &[u8]) -> Option<Call<'_, S>> {
        let mut input = Reader::new(message);
        if input.u32() != Ok(self.facts.xid.0) {
            return None;
        }
        let fixed = self.facts.version.fixed_len();
        let mut input = Reader::new(message.get(fixed..)?);
        let lists = Lists::decode(&mut input).ok()?;
        Some(Call {
            facts: self.facts,
            lists,
            payload: input.rest(),
            stage: self.stage,
        })
    }
}
