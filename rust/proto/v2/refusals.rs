// SPDX-License-Identifier: GPL-2.0

//! How many refused options may be under way (MAL-184).

use crate::conn::Cause;

/// Refusals of version 2 options that may be under way at once (MAL-184).
pub const MAX_REFUSALS: u32 = 8;

/// Too many refusals are under way: disconnect and count
/// [`Counter::OptFlood`](crate::error::Counter::OptFlood).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood;

impl Flood {
    /// Why the connection ends.
    pub const fn cause(self) -> Cause {
        Cause::OptionFlood
    }
}

/// Counts refusals that have been posted and not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals(u32);

impl Refusals {
    /// A refusal is about to be posted.
    #[inline]
    pub fn begin(&mut self) -> Result<(), Flood> {
        if self.0 >= MAX_REFUSALS {
            return Err(Flood);
        }
        self.0 = self.0.saturating_add(1);
        Ok(())
    }

    /// Its Send completed.
    #[inline]
    pub fn end(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }
}
