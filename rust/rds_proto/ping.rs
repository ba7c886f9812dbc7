// SPDX-License-Identifier: GPL-2.0

//! Pings of a peer, of which no more are answered than the peer takes ([`Pings`]).
//!
//! A ping is a message to port zero. The socket layer answers it with a message, which it keeps
//! until the peer has acknowledged it: no program reads or waits in between. So a peer that pings,
//! and takes or acknowledges nothing, would fill this host's memory.

use crate::header::Header;

/// Answers that may wait for the peer on one connection.
pub const MOST: u32 = 1024;

/// Pings whose answer the peer has not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pings {
    open: u32,
    /// Of these, those whose answer went out, and the number of the last of these answers.
    sent: u32,
    last: u64,
}

/// Whether the message with this header is answered by the socket layer.
#[must_use]
pub fn is_ping(header: &Header) -> bool {
    header.dport == 0 && header.sport != 0
}

/// Whether the message with this header of this host answers a ping.
#[must_use]
pub fn is_answer(header: &Header) -> bool {
    header.sport == 0 && header.dport != 0
}

impl Pings {
    /// A ping is here. `false`: it is not to be answered. `idle`: the peer has acknowledged all
    /// that was sent on this connection, and that was something; then no answer waits for it, and
    /// those that are counted were not made.
    #[must_use]
    pub fn ping(&mut self, idle: bool) -> bool {
        if self.open >= MOST {
            if !idle {
                return false;
            }
            *self = Self::default();
        }
        self.open = self.open.saturating_add(1);
        true
    }

    /// An answer with this sequence number goes out for the first time.
    pub fn answered(&mut self, sequence: u64) {
        self.sent = self.sent.saturating_add(1);
        self.last = sequence;
    }

    /// The peer has acknowledged everything up to this number.
    pub fn acknowledged(&mut self, sequence: u64) {
        if self.sent != 0 && sequence >= self.last {
            self.open = self.open.saturating_sub(self.sent);
            self.sent = 0;
        }
    }
}
