// SPDX-License-Identifier: GPL-2.0

//! The limit on error messages that refuse options and whose Sends have not completed (MAL-184).

/// Maximum number of refusals of version 2 options that are posted and not completed (MAL-184).
pub const MAX_REFUSALS: u32 = 8;

/// The error if too many refusals are posted and not completed. The caller must close the
/// connection with [`Cause::OptionFlood`](crate::conn::Cause::OptionFlood) and count
/// [`Counter::OptFlood`](crate::error::Counter::OptFlood).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood;

/// Counts the Sends that refuse an option and have not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals(u32);

impl Refusals {
    /// Records a refusal that is about to be posted. Returns [`Flood`] if [`MAX_REFUSALS`] refusals
    /// have not completed.
    #[inline]
    pub fn begin(&mut self) -> Result<(), Flood> {
        if self.0 >= MAX_REFUSALS {
            return Err(Flood);
        }
        self.0 = self.0.saturating_add(1);
        Ok(())
    }

    /// Records that the Send of a refusal has completed.
    #[inline]
    pub fn end(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }
}
