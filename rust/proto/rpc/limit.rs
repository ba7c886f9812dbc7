// SPDX-License-Identifier: GPL-2.0

//! Limits for a peer that sends useless messages.

use crate::time::{
    Millis,
    Time, //
};

/// Default number of discarded messages after which a connection is closed.
pub const DEFAULT_DISCARD_LIMIT: u32 = 16;
/// A call fails after this number of bad replies to it.
pub const CALL_STRIKES: u8 = 3;

/// Number of bad replies to one call, summed over all connections on which it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strikes(u8);

/// What to do after a message was dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Do nothing.
    Ignore,
    /// Close the connection, and connect again after the back-off.
    Reconnect,
    /// Complete the call with [`Error::BadReplies`](crate::error::Error::BadReplies), after its
    /// regions are invalidated.
    FailCall,
}

/// Interval after which [`DiscardLimit`] lowers its count of dropped messages by one.
const FORGOTTEN: Millis = Millis::from_secs(60);

/// Counts the messages that were dropped on one connection. The count falls by one each minute:
/// a connection may last for months, and one bad message a week must not close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardLimit {
    limit: u32,
    seen: u32,
    /// Time at which the count last fell by one, or at which `tick` last found it zero.
    since: Time,
}

impl DiscardLimit {
    /// Returns the state of a new connection. A `limit` of zero is raised to one.
    #[inline]
    pub fn new(limit: u32, now: Time) -> Self {
        Self {
            limit: limit.max(1),
            seen: 0,
            since: now,
        }
    }

    /// Lowers the count by one for each minute that has passed. Must be called regularly: the first
    /// minute begins at a call of `tick`, not when a message is dropped. So the count may fall too
    /// early, by at most the time between two calls.
    pub fn tick(&mut self, now: Time) {
        while self.seen > 0 && now.since(self.since) >= FORGOTTEN {
            self.seen = self.seen.saturating_sub(1);
            self.since = self.since.after(FORGOTTEN);
        }
        if self.seen == 0 {
            self.since = now;
        }
    }

    /// Counts a dropped message. `call` is the record of the call that waits for the message's
    /// xid on this connection, if there is one.
    #[inline]
    pub fn discard(&mut self, call: Option<&mut Strikes>) -> Reaction {
        self.seen = self.seen.saturating_add(1);
        match call {
            Some(strikes) => {
                strikes.0 = strikes.0.saturating_add(1);
                if strikes.0 >= CALL_STRIKES {
                    Reaction::FailCall
                } else {
                    Reaction::Reconnect
                }
            }
            None if self.seen >= self.limit => Reaction::Reconnect,
            None => Reaction::Ignore,
        }
    }
}
