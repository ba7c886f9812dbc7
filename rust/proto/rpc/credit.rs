// SPDX-License-Identifier: GPL-2.0

//! Credits of our calls. The credits of the server's calls are counted apart (BC-03).

use crate::{
    error::Counter,
    wire::header::Credits, //
};

/// The sunrpc congestion window of one credit is `1 << CWND_SHIFT`.
pub const CWND_SHIFT: u32 = 8;

/// How many calls of ours may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardCredits {
    requested: u32,
    granted: u32,
    /// Calls for which no task waits any more, with their replies still to come.
    abandoned: u32,
    /// Replies without a waiting call that came before the end of their call was reported.
    strays: u32,
    /// No call may be sent.
    closed: bool,
}

/// What an accepted Reply did to the credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The congestion window has changed; set [`ForwardCredits::cwnd`] before completing the call.
    pub changed: bool,
    /// An oddity to count.
    pub note: Option<Counter>,
}

impl ForwardCredits {
    /// The credits of a new connection: one (V1-014). `requested` is what every call asks for: the
    /// number of calls that we can have in flight, at least one.
    #[inline]
    pub fn new(requested: u32) -> Self {
        Self {
            requested: requested.max(1),
            granted: 1,
            abandoned: 0,
            strays: 0,
            closed: false,
        }
    }

    /// The credit word of our calls.
    #[inline]
    pub const fn request(&self) -> Credits {
        Credits(self.requested)
    }

    /// How many calls may be in flight now, abandoned ones included.
    #[inline]
    pub const fn granted(&self) -> u32 {
        self.granted
    }

    /// How many calls may wait for their reply, in the unit of sunrpc's congestion window. Zero
    /// while abandoned calls hold every credit, or none may go out.
    #[inline]
    pub const fn cwnd(&self) -> u64 {
        if self.closed {
            return 0;
        }
        // CAST: widening.
        (self.granted.saturating_sub(self.abandoned) as u64).wrapping_shl(CWND_SHIFT)
    }

    /// Stops the sending of calls, whatever is granted, or allows it again.
    pub fn close(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Records that a call ends before its reply. The server still works on it, so its credit is
    /// not free before the reply comes (V1-013) or the connection ends.
    #[inline]
    pub fn abandon(&mut self) {
        if self.strays > 0 {
            // The reply came before the report of the call's end.
            self.strays = self.strays.wrapping_sub(1);
        } else {
            self.abandoned = self.abandoned.saturating_add(1);
        }
    }

    /// Records a Reply for which no call waits. Returns `true` if it is taken for the reply to an
    /// abandoned call, whose credit is free now. Otherwise the end of its call may not have been
    /// reported yet. Or the server is wrong; then it gets one call more than it granted for each
    /// such reply.
    #[inline]
    pub fn unmatched_reply(&mut self) -> bool {
        if self.abandoned > 0 {
            self.abandoned = self.abandoned.wrapping_sub(1);
            return true;
        }
        self.strays = self.strays.saturating_add(1);
        false
    }

    /// Calls for which no task waits any more, with their replies still to come.
    #[inline]
    pub const fn abandoned(&self) -> u32 {
        self.abandoned
    }

    /// Takes the grant of an accepted Reply, and of nothing else (V1-023).
    ///
    /// Zero is read as one, more than we asked for as what we asked for (V1-021). The newest
    /// Reply counts, also if it takes credits away (V1-016).
    #[inline]
    pub fn accept(&mut self, grant: Credits) -> Granted {
        let (granted, note) = match grant.0 {
            0 => (1, Some(Counter::CreditZero)),
            n if n > self.requested => (self.requested, Some(Counter::CreditClamped)),
            n => (n, None),
        };
        let changed = granted != self.granted;
        self.granted = granted;
        Granted { changed, note }
    }
}
