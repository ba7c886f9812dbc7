// SPDX-License-Identifier: GPL-2.0

//! Patience with a peer that sends nonsense.

/// Discarded messages on one connection after which it is closed, unless set otherwise.
pub const DEFAULT_DISCARD_LIMIT: u32 = 16;
/// Bad replies after which a call is given up.
pub const CALL_STRIKES: u8 = 3;

/// How many bad replies one call has drawn, on all its connections together.
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

/// Counts dropped messages on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardLimit {
    limit: u32,
    seen: u32,
}

impl DiscardLimit {
    /// A new connection; `limit` of at least one.
    #[inline]
    pub fn new(limit: u32) -> Self {
        Self {
            limit: limit.max(1),
            seen: 0,
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
