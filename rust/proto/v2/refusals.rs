// SPDX-License-Identifier: GPL-2.0

//! How many refused options may be under way (MAL-184).

/// Refusals of version 2 options that may be under way at once (MAL-184).
pub const MAX_REFUSALS: u32 = 8;

/// Too many refusals are under way: end the connection with
/// [`Cause::OptionFlood`](crate::conn::Cause::OptionFlood) and count
/// [`Counter::OptFlood`](crate::error::Counter::OptFlood).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood;

/// Counts refusals that have been posted and not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals(u32);

impl Refusals {
    /// Records a refusal that is about to be posted; [`Flood`] if [`MAX_REFUSALS`] are under way.
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
