// SPDX-License-Identifier: GPL-2.0

//! Limit for calls whose memory cannot be mapped for the device ([`Unmapped`]).

use crate::error::Error;

/// Maximum number of failed attempts to map the memory of a call. The next failed attempt fails the
/// call.
pub const RETRIES: u8 = 8;

/// Counts how many times in a row the memory of one call could not be mapped on one connection. The
/// RPC client retries without a limit, so this counter ends the retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unmapped {
    /// The xid of the counted call, and the number of its connection.
    call: (u32, u32),
    times: u8,
}

impl Unmapped {
    /// Records that the memory of the call `xid` could not be mapped on the connection with the
    /// number `connection`. Returns the error for the call: [`Error::NoBuffers`], after which the
    /// RPC client retries, or [`Error::Unmappable`], which fails the call.
    pub fn again(&mut self, xid: u32, connection: u32) -> Error {
        if self.call != (xid, connection) {
            self.call = (xid, connection);
            self.times = 0;
        }
        let error = if self.times < RETRIES {
            Error::NoBuffers
        } else {
            Error::Unmappable
        };
        self.times = self.times.saturating_add(1);
        error
    }
}
