// SPDX-License-Identifier: GPL-2.0

//! Flags of a Send that the driver chooses.

use super::{
    batch::SendBatch,
    handler::QpHandler, //
};
use kernel::prelude::*;
use xprtrdma_bindings as bindings;

impl<H: QpHandler> SendBatch<'_, H> {
    /// Marks the message as solicited, for a peer that requests events for solicited messages only.
    #[inline]
    pub fn solicit(&mut self) {
        // CAST: The flag is a single bit.
        self.more_flags |= bindings::ib_send_flags_IB_SEND_SOLICITED as c_int;
    }

    /// Makes the device send the message only after all RDMA Reads that were posted before have
    /// completed.
    #[inline]
    pub fn fence(&mut self) {
        // CAST: The flag is a single bit.
        self.more_flags |= bindings::ib_send_flags_IB_SEND_FENCE as c_int;
    }
}
