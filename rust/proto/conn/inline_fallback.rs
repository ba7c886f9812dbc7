// SPDX-License-Identifier: GPL-2.0

//! Fallback for a peer whose Receives are smaller than the size that the peer announces (CM-24,
//! MAL-149).

use super::cause::Cause;
use crate::{
    time::{
        Millis,
        Time, //
    },
    wire::threshold::MIN_THRESHOLD, //
};

/// Number of losses in a row after which the Receive size that the peer announces is ignored.
const LOSSES: u8 = 2;

/// If a connection is lost more than this time after its first large Send, that Send is not the
/// reason for the loss.
const IMMEDIATE: Millis = Millis::from_secs(2);

/// How long Sends are limited to [`MIN_THRESHOLD`] before the announced size is tried again.
const HOLD: Millis = Millis::from_secs(600);

/// Tracks what happens to each connection after its first Send that is larger than
/// [`MIN_THRESHOLD`].
#[derive(Clone, Debug, Default)]
pub struct InlineFallback {
    /// When the first large Send of this connection was posted; `None` after the peer has
    /// received the Send.
    pending: Option<Time>,
    /// Whether this connection has posted its first large Send, or the peer has received one.
    seen: bool,
    losses: u8,
    until: Option<Time>,
}

impl InlineFallback {
    /// Makes the initial state, in which Sends may be as large as the peer announces.
    pub const fn new() -> Self {
        Self {
            pending: None,
            seen: false,
            losses: 0,
            until: None,
        }
    }

    /// Records a new connection.
    pub fn connected(&mut self) {
        self.pending = None;
        self.seen = false;
    }

    /// Records that a large Send was posted. Only the first large Send of a connection is recorded.
    pub fn sent(&mut self, now: Time) {
        if !self.seen {
            self.seen = true;
            self.pending = Some(now);
        }
    }

    /// Records that the peer received a large Send. So the announced size is right, and no large
    /// Send can be the reason for the loss of this connection. This is also true if this method is
    /// called before [`sent`](Self::sent), which may happen if both are called at the same time.
    pub fn taken(&mut self) {
        self.seen = true;
        self.pending = None;
        self.losses = 0;
    }

    /// Records the loss of the connection.
    pub fn lost(&mut self, cause: Cause, now: Time) {
        let Some(sent) = self.pending.take() else {
            return;
        };
        if cause.fits_oversized_send() && now.since(sent) <= IMMEDIATE {
            self.losses = self.losses.saturating_add(1);
            if self.losses >= LOSSES {
                self.losses = 0;
                self.until = Some(now.after(HOLD));
            }
        }
    }

    /// Returns the maximum size of Sends on a connection that is requested at `now`. Returns `None`
    /// if only the size that the peer announces limits the Sends.
    pub fn cap(&self, now: Time) -> Option<u32> {
        match self.until {
            Some(until) if now < until => Some(MIN_THRESHOLD),
            _ => None,
        }
    }
}
