// SPDX-License-Identifier: GPL-2.0

//! Finding a server whose software is dead while its adapter answers.
//!
//! Keepalive asks the adapter alone, and an NFSv4 client sends nothing again on a connection that
//! lives. So a server that hangs would be waited for without end, though its address may have moved
//! to another machine of a cluster. RPC timers tell: they fire for calls without an answer.
//!
//! A connection ends when [`ROUNDS`] timers have fired one after the other without a *message* in
//! between. Timers of calls that wait side by side count as one: the next one counts when as much
//! time has passed as it ran. A server that answers any call, such as the renewal of the lease, is
//! not affected. If the next connection brings no message either, the server may be slow rather
//! than dead: then twice as many timers have to fire, up to [`MOST_ROUNDS`].
//!
//! RFC 8267, section 6.7.2 recommends (SHOULD) a credit that is reserved for a health check, which
//! a Responder answers quickly. Its purpose is kept, its means is not: a NULL call would be a call
//! that the RPC client does not know of, and a credit less for those that it does. The calls that
//! wait ask the same question.

use crate::time::{
    Millis,
    Time, //
};

/// Number of timers without a message after which a connection ends.
const ROUNDS: u32 = 3;

/// Greatest number of such timers, for a server that never sends a message.
const MOST_ROUNDS: u32 = 8 * ROUNDS;

/// Two timers count only if they fire at least this far apart. `timeo=1` is a tenth of a second, in
/// which a healthy server may not send its next message.
const LEAST: Millis = Millis::from_secs(1);

/// An RPC timer that fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcTimer {
    /// How long it ran.
    pub span: Millis,
    /// When the last message came on the connection.
    pub heard: Time,
}

/// The timers that fired on one connection since the last message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    rounds: u32,
    /// When the last timer that counts has fired.
    counted: Time,
}

impl Timers {
    /// Records a timer that fired. Returns how many count.
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

/// How many timers must fire before a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience(u32);

impl Patience {
    /// The value for a server of which nothing is known.
    pub(super) const fn new() -> Self {
        Self(ROUNDS)
    }

    /// Returns whether this number of timers is too large.
    pub(super) const fn is_exceeded(self, rounds: u32) -> bool {
        rounds >= self.0
    }

    /// Whether a connection to this server has ended for its silence, without a message since.
    pub(super) const fn was_tried(self) -> bool {
        self.0 > ROUNDS
    }

    /// Records that a connection ended because the server sent nothing.
    pub(super) fn double(&mut self) {
        self.0 = self.0.saturating_mul(2).min(MOST_ROUNDS);
    }
}
