// SPDX-License-Identifier: GPL-2.0

//! Backchannel Calls: from the server to the client, on the client's connection (RFC 8167).
//!
//! Backchannel Calls have no chunks, and have their own credits and xids. The server sends the
//! first backchannel Call only after two events:
//!
//! - The upper layer has reported that the client allows backchannel Calls.
//! - The client has sent its first Call, which determines the version.

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
        },
        threshold::MIN_THRESHOLD_V2, //
    }, //
};

/// Why a backchannel Call is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    /// No backchannel Call may be sent on this connection now.
    Closed,
    /// The Call does not fit into an inline message.
    TooLong,
    /// As many backchannel Calls are in flight as the client has granted.
    Busy,
}

/// The state of the backchannel on one connection.
#[derive(Debug)]
pub struct Reverse {
    credits: ForwardCredits,
    /// Number of Calls whose answers may still arrive, including Calls that the upper layer has
    /// given up. This number never exceeds the number of slots.
    in_flight: u32,
    /// Number of ticks for which backchannel Calls have been refused because too many were in
    /// flight. Becomes `None` when a Call in flight ends.
    stuck: Option<u32>,
    allowed: bool,
    /// The version of the client's first Call; `None` before that Call.
    version: Option<Version>,
    terms: Terms,
}

impl Reverse {
    /// Creates the backchannel state of a new connection. `slots` is the maximum number of
    /// backchannel Calls in flight. Only one may be in flight until a Reply grants more (RFC 8167
    /// 4.1).
    #[inline]
    pub fn new(slots: u32, terms: &Terms) -> Self {
        Self {
            credits: ForwardCredits::new(slots),
            in_flight: 0,
            stuck: None,
            allowed: false,
            version: None,
            terms: *terms,
        }
    }

    /// Records that the client sent a Call of this version. Backchannel Calls use the version of
    /// the client's first Call (RFC 8167 5.1).
    #[inline]
    pub fn heard(&mut self, version: Version) {
        self.version.get_or_insert(version);
    }

    /// Records that the client accepts backchannel Calls on this connection. Only the upper layer
    /// knows this (RFC 8167 6).
    #[inline]
    pub fn allow(&mut self) {
        self.allowed = true;
    }

    /// Returns the credits for backchannel Calls, which determine the congestion window of the
    /// server's RPC client.
    #[inline]
    pub const fn credits(&self) -> &ForwardCredits {
        &self.credits
    }

    /// Returns the maximum length in bytes of a backchannel RPC Call and of its Reply, which are
    /// both inline (RFC 8167 5.3). The client is assumed to send no Reply that is longer than the
    /// longest Call that it accepts.
    #[inline]
    pub fn longest(&self) -> u32 {
        // CAST: The minimum length of a header is 28 bytes in version one, and 32 in version two.
        let header = self.version().min_header_len() as u32;
        self.longest_message().saturating_sub(header)
    }

    /// Returns the maximum length in bytes of a message that contains a backchannel Call: at most
    /// [`MIN_THRESHOLD_V2`]. Without this limit, the client's Reply could be too long for the
    /// Receives of this end.
    #[inline]
    pub fn longest_message(&self) -> u32 {
        let announced = self.terms.longest_message(self.version());
        announced.min(MIN_THRESHOLD_V2)
    }

    /// Returns the version of backchannel Calls: version one before the client's first Call.
    fn version(&self) -> Version {
        self.version.unwrap_or_default()
    }

    /// Counts a backchannel Call of `len` bytes as in flight, and returns its transport header.
    ///
    /// # Errors
    ///
    /// Returns [`NotSent`] if the Call cannot be sent. In that case the Call is not counted.
    pub fn begin(&mut self, xid: Xid, len: u32) -> Result<CallHeader<'static>, NotSent> {
        let version = self.version.filter(|_| self.allowed);
        let version = version.ok_or(NotSent::Closed)?;
        if len > self.longest() {
            return Err(NotSent::TooLong);
        }
        if self.in_flight >= self.credits.granted() {
            self.stuck.get_or_insert(0);
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

    /// Records a Reply that completes a waiting backchannel Call, and takes over the Reply's grant.
    #[inline]
    pub fn replied(&mut self, reply: &ReverseReply<'_>) -> Granted {
        self.ended();
        self.credits.accept(reply.credits)
    }

    /// Records a Reply or a refusal for which no backchannel Call waits. If a Call is in flight,
    /// returns true: the message counts as the late answer to a Call that the upper layer has given
    /// up, and this Call is no longer in flight. Otherwise returns false, because the message
    /// answers no Call.
    ///
    /// The server cannot detect a message that answers no Call if the message arrives while a Call
    /// is in flight. A client can send one such message for each Call.
    pub fn unmatched(&mut self) -> bool {
        let expected = self.in_flight != 0;
        self.ended();
        expected
    }

    /// Records that a waiting backchannel Call is no longer in flight, because the client refused
    /// it.
    #[inline]
    pub fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.stuck = None;
    }

    /// Records a tick. Returns true if backchannel Calls have been refused for more than `patience`
    /// ticks, because no Call in flight has ended. In this case the client has lost the Calls in
    /// flight. Their credits become free only on a new connection, so this connection must end.
    pub fn tick(&mut self, patience: u32) -> bool {
        let ticks = self.stuck.map(|ticks| ticks.saturating_add(1));
        self.stuck = ticks;
        ticks.is_some_and(|ticks| ticks > patience)
    }
}
