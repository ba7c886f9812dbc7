// SPDX-License-Identifier: GPL-2.0

//! The limit on unacknowledged answers to a peer's pings ([`Pings`]).
//!
//! A ping is a message to port zero. The socket layer answers a ping with another message, and
//! keeps the answer until the peer has acknowledged it. No program is involved. So without a limit,
//! a peer that sends pings and acknowledges no answer could fill this host's memory.

use crate::header::Header;

/// Maximum number of answers that wait for an acknowledgement on one connection.
pub const MOST: u32 = 1024;

/// The number of pings whose answer the peer has not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pings {
    open: u32,
    /// Number of answers that were sent and not acknowledged.
    sent: u32,
    /// The sequence number of the last sent answer.
    last: u64,
}

/// Returns true if this header belongs to a ping, which the socket layer answers.
#[inline]
#[must_use]
pub fn is_ping(header: &Header) -> bool {
    header.dport == 0 && header.sport != 0
}

/// Returns true if this header belongs to an answer that this host sends to a ping.
#[inline]
#[must_use]
pub fn is_answer(header: &Header) -> bool {
    header.sport == 0 && header.dport != 0
}

impl Pings {
    /// Records that a ping arrived. Returns false if the ping must not be answered.
    ///
    /// `idle` is called only if the limit is reached. It returns true if the socket layer keeps no
    /// message of this connection: neither a message to be sent, nor a message that the peer has
    /// not acknowledged. It is not enough that all sent messages were acknowledged: a peer may
    /// acknowledge all of them, but post no Receives. Further answers then wait in the socket
    /// layer.
    ///
    /// An answer that is dropped before it is sent is never acknowledged, so it stays in the count.
    /// If `idle` returns true, all counted answers were dropped in this way. In this case the count
    /// starts again from zero.
    #[must_use]
    pub fn ping(&mut self, idle: impl FnOnce() -> bool) -> bool {
        if self.open >= MOST {
            if !idle() {
                return false;
            }
            *self = Self::default();
        }
        self.open = self.open.saturating_add(1);
        true
    }

    /// Records that an answer with this sequence number is sent for the first time.
    pub fn answered(&mut self, sequence: u64) {
        self.sent = self.sent.saturating_add(1);
        self.last = sequence;
    }

    /// Records that the peer has acknowledged all messages up to this sequence number.
    #[inline]
    pub fn acknowledged(&mut self, sequence: u64) {
        if self.sent != 0 && sequence >= self.last {
            self.open = self.open.saturating_sub(self.sent);
            self.sent = 0;
        }
    }
}
