// SPDX-License-Identifier: GPL-2.0

//! Memory that the device does not map.

use crate::error::Error;

/// How often a call may find that its memory cannot be mapped before it fails.
pub const RETRIES: u8 = 8;

/// How often in a row the memory of a call could not be mapped. The RPC client retries without end,
/// so the core counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unmapped {
    /// Xid and connection.
    call: (u32, u32),
    times: u8,
}

impl Unmapped {
    /// The memory of the call with this xid could not be mapped on the connection with this number.
    /// Returns what that means for the call.
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
