// SPDX-License-Identifier: GPL-2.0

//! Limits for a peer that sends useless messages.

use crate::time::{
    Millis,
    Time, //
};

/// Discarded messages on one connection after which it is closed, unless set otherwise.
pub const DEFAULT_DISCARD_LIMIT: u32 = 16;
/// Bad replies after which a call is given up.
pub const CALL_STRIKES: u8 = 3;

/// Number of bad replies to one call, on all its connections together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strikes(u8);

/// What to do after a message was dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing.
    Ignore,
    /// Close the connection, connect again with back-off.
    Reconnect,
    /// Complete the call with [`Error::BadReplies`](crate::error::Error::BadReplies), after
    /// invalidation.
    FailCall,
}

/// One dropped message is forgotten after this time.
const FORGOTTEN: Millis = Millis::from_secs(60);

/// Counts dropped messages on one connection, and forgets them one by one: a connection may last
/// for months, and a peer that is wrong once a week may keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardLimit {
    limit: u32,
    seen: u32,
    /// When a message was last forgotten, or when the count was last zero.
    since: Time,
}

impl DiscardLimit {
    /// The state of a new connection; `limit` is at least one.
    #[inline]
    pub fn new(limit: u32, now: Time) -> Self {
        Self {
            limit: limit.max(1),
            seen: 0,
            since: now,
        }
    }

    /// Forgets messages that are old enough. Must be called regularly: a message may be forgotten
    /// too early, by at most the time between two calls.
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
