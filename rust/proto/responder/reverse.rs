// SPDX-License-Identifier: GPL-2.0

//! Calls of ours to the client, on the client's connection (RFC 8167).
//!
//! They have no chunks, credits of their own, and xids of their own. None is sent before the client
//! allowed it, which the upper layer knows, and before its first Call, which has the version.

use crate::{
    responder::{
        admit::Terms,
        sort::ReverseReply, //
    },
    rpc::credit::{
        ForwardCredits,
        Granted, //
    },
    wire::{
        chunk::ChunkLists,
        header::{
            CallHeader,
            Version,
            Xid, //
        }, //
    }, //
};

/// Why a Call of ours is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    /// No Call may be sent on this connection now.
    Closed,
    /// It is longer than a message.
    TooLong,
    /// As many Calls are in flight as the client granted.
    Busy,
}

/// The reverse direction of one connection.
#[derive(Debug)]
pub struct Reverse {
    credits: ForwardCredits,
    in_flight: u32,
    allowed: bool,
    /// That of the client's first Call.
    version: Option<Version>,
    terms: Terms,
}

impl Reverse {
    /// The reverse direction of a new connection. `slots` is how many Calls of ours may be in
    /// flight at most; one is until a Reply grants more (RFC 8167 4.1).
    #[inline]
    pub fn new(slots: u32, terms: &Terms) -> Self {
        Self {
            credits: ForwardCredits::new(slots),
            in_flight: 0,
            allowed: false,
            version: None,
            terms: *terms,
        }
    }

    /// Records that the client sent a Call of this version. Calls of ours have the version of the
    /// first one (RFC 8167 5.1).
    #[inline]
    pub fn heard(&mut self, version: Version) {
        self.version.get_or_insert(version);
    }

    /// Sets whether the client takes Calls on this connection, which the upper layer knows (RFC
    /// 8167 6).
    #[inline]
    pub fn allow(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    /// The credits, whose window is that of the RPC client.
    #[inline]
    pub const fn credits(&self) -> &ForwardCredits {
        &self.credits
    }

    /// How many bytes an RPC Call or its Reply may have: both are inline (RFC 8167 5.3). The
    /// client is taken to send no longer Replies than it takes Calls.
    #[inline]
    pub fn longest(&self) -> u32 {
        // CAST: 28 or 32.
        let header = self.version().min_header_len() as u32;
        self.longest_message().saturating_sub(header)
    }

    /// How many bytes a message with such a Call may have.
    #[inline]
    pub fn longest_message(&self) -> u32 {
        self.terms.longest_message(self.version())
    }

    /// The version of Calls of ours; one before the client's first Call.
    fn version(&self) -> Version {
        self.version.unwrap_or_default()
    }

    /// The header of a Call of `len` bytes, which counts as in flight from now on.
    ///
    /// # Errors
    ///
    /// [`NotSent`] says why the Call cannot be sent; it does not count then.
    pub fn begin(&mut self, xid: Xid, len: u32) -> Result<CallHeader<'static>, NotSent> {
        let version = self.version.filter(|_| self.allowed);
        let version = version.ok_or(NotSent::Closed)?;
        if len > self.longest() {
            return Err(NotSent::TooLong);
        }
        if self.in_flight >= self.credits.granted() {
            return Err(NotSent::Busy);
        }
        self.in_flight = self.in_flight.saturating_add(1);
        Ok(CallHeader {
            version,
            xid,
            credits: self.credits.request(),
            lists: ChunkLists::default(),
        })
    }

    /// Records a Reply that completes a waiting Call; its grant counts.
    #[inline]
    pub fn replied(&mut self, reply: &ReverseReply<'_>) -> Granted {
        self.ended();
        self.credits.accept(reply.credits)
    }

    /// Records that a Call ended in another way: by an error of the client.
    #[inline]
    pub fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}
