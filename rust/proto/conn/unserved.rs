// SPDX-License-Identifier: GPL-2.0

//! Detects a server whose software is dead although its adapter still answers.
//!
//! A keepalive probe reaches only the adapter, and an NFSv4 client never retransmits on a live
//! connection. So without this module the client would wait for a hung server for ever, even if the
//! server's address has moved to another machine of a cluster.
//!
//! This module counts RPC timers, which fire for calls without a reply. A connection ends when
//! [`ROUNDS`] timers were counted without a *message* in between.
//!
//! - A timer that ran for N seconds is counted only if about N seconds have passed since the last
//!   counted timer. So timers of calls that wait at the same time count as one timer.
//! - A server that answers any call, such as the renewal of an NFS lease, is not affected.
//! - If the next connection brings no message either, the server may be slow rather than dead. So
//!   each connection that ends in this way doubles the required number of timers, up to
//!   [`MOST_ROUNDS`].
//!
//! RFC 8267, section 6.7.2 recommends (SHOULD) that a credit is reserved for a health check, which
//! a Responder answers quickly. This module serves the same purpose without a reserved credit,
//! because the calls that already wait test the server just as well. A NULL call as a health check
//! would be unknown to the RPC client, and would take a credit away from the client's own calls.

use crate::time::{
    Millis,
    Time, //
};

/// A connection ends after this number of RPC timers in a row have fired without a message from the
/// server.
const ROUNDS: u32 = 3;

/// If the server was silent on several connections in a row, the required number of RPC timers
/// grows up to this limit.
const MOST_ROUNDS: u32 = 8 * ROUNDS;

/// Minimum time between two timers that are counted. With `timeo=1` timers fire every tenth of a
/// second, and a healthy server might need longer than that to send its next message.
const LEAST: Millis = Millis::from_secs(1);

/// An RPC timer that fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcTimer {
    /// How long the timer ran.
    pub span: Millis,
    /// When the last message arrived on the connection.
    pub heard: Time,
}

/// The timers that fired on one connection since its last message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    rounds: u32,
    /// When the last counted timer fired.
    counted: Time,
}

impl Timers {
    /// Records a timer that fired. Returns the number of timers that were counted since the last
    /// message from the server.
    pub(super) fn fired(&mut self, timer: RpcTimer, now: Time) -> u32 {
        if timer.heard >= self.counted {
            self.rounds = 0;
        }
        // A timer may fire a little early.
        let span = timer.span.get();
        let least = Millis::new(span.saturating_sub(span >> 3)).max(LEAST);
        if self.rounds == 0 || now.since(self.counted) >= least {
            self.rounds = self.rounds.saturating_add(1);
            self.counted = now;
        }
        self.rounds
    }
}

/// Number of RPC timers that must fire without a message before a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience(u32);

impl Patience {
    /// Returns the initial number of RPC timers that must fire before a connection ends. This
    /// number applies to a server of which nothing is known.
    pub(super) const fn new() -> Self {
        Self(ROUNDS)
    }

    /// Returns true if the connection must end after `rounds` timers have fired without a message.
    pub(super) const fn is_exceeded(self, rounds: u32) -> bool {
        rounds >= self.0
    }

    /// Returns whether a connection to this server ended because the server sent nothing, and no
    /// reply has arrived since then.
    pub(super) const fn was_tried(self) -> bool {
        self.0 > ROUNDS
    }

    /// Records that a connection ended because the server sent nothing.
    pub(super) fn double(&mut self) {
        self.0 = self.0.saturating_mul(2).min(MOST_ROUNDS);
    }
}
