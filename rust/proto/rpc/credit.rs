// SPDX-License-Identifier: GPL-2.0

//! Credits for the client's calls. Credits for the server's reverse calls are counted separately
//! (BC-03).

use crate::{
    error::Counter,
    wire::header::Credits, //
};

/// Shift between credits and sunrpc's congestion window: one credit is `1 << CWND_SHIFT`.
pub const CWND_SHIFT: u32 = 8;

/// Credit state of a connection. It determines how many of the client's calls may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardCredits {
    requested: u32,
    granted: u32,
    /// Number of calls that no task waits for any more, but whose replies have not arrived yet.
    abandoned: u32,
    /// Number of replies that matched neither a waiting call nor an abandoned call, see
    /// [`Self::unmatched_reply`]. Each of the next calls of [`Self::abandon`] subtracts one from
    /// this number.
    strays: u32,
    /// Whether no call may be sent at present.
    closed: bool,
}

/// The effect of an accepted Reply on the credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Whether the congestion window has changed. If so, the caller must set sunrpc's window to
    /// [`ForwardCredits::cwnd`] before it completes the call.
    pub changed: bool,
    /// The counter to increment if the grant was zero or larger than the request.
    pub note: Option<Counter>,
}

impl ForwardCredits {
    /// Returns the credit state of a new connection, which has one credit (V1-014). `requested` is
    /// the number of credits that every call requests: the number of calls that the client can have
    /// in flight, at least one.
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

    /// Returns the credit word for the headers of the client's calls.
    #[inline]
    pub const fn request(&self) -> Credits {
        Credits(self.requested)
    }

    /// Returns how many calls may be in flight now, abandoned calls included.
    #[inline]
    pub const fn granted(&self) -> u32 {
        self.granted
    }

    /// Returns how many calls may wait for their replies, in the unit of sunrpc's congestion
    /// window. Returns zero if abandoned calls hold every credit, or if the sending of calls is
    /// forbidden.
    #[inline]
    pub const fn cwnd(&self) -> u64 {
        if self.closed {
            return 0;
        }
        // CAST: The cast widens the number.
        (self.granted.saturating_sub(self.abandoned) as u64).wrapping_shl(CWND_SHIFT)
    }

    /// Forbids the sending of calls if `closed` is true, whatever the grant is. Allows the sending
    /// of calls again if `closed` is false.
    pub fn close(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Records that the client gave up a call before its reply. The server still works on the
    /// call, so its credit stays in use until the reply arrives (V1-013) or the connection is lost.
    #[inline]
    pub fn abandon(&mut self) {
        if self.strays > 0 {
            // The reply to this call has already arrived, so the call holds no credit.
            self.strays = self.strays.wrapping_sub(1);
        } else {
            self.abandoned = self.abandoned.saturating_add(1);
        }
    }

    /// Records a Reply that no call waits for.
    ///
    /// Returns `true` if an abandoned call is recorded. The Reply then counts as the reply to that
    /// call, whose credit is free from now on.
    ///
    /// Otherwise returns `false`. The Reply may belong to a call that was given up, but that
    /// [`Self::abandon`] has not recorded yet. If it belongs to no call, because the server is
    /// faulty, the client may later send one call more than the server granted.
    #[inline]
    pub fn unmatched_reply(&mut self) -> bool {
        if self.abandoned > 0 {
            self.abandoned = self.abandoned.wrapping_sub(1);
            return true;
        }
        self.strays = self.strays.saturating_add(1);
        false
    }

    /// Returns the number of calls that no task waits for any more, but whose replies have not
    /// arrived yet.
    #[inline]
    pub const fn abandoned(&self) -> u32 {
        self.abandoned
    }

    /// Takes over the grant of an accepted Reply; grants in other messages are ignored (V1-023).
    ///
    /// - A grant of zero credits counts as a grant of one credit.
    /// - A grant of more credits than requested counts as a grant of the requested number (V1-021).
    /// - The grant replaces earlier grants, even if it is smaller (V1-016).
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
