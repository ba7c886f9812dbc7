// SPDX-License-Identifier: GPL-2.0

//! A call that was passed to the RPC server.

use crate::{
    latency::Since,
    memory::Counted, //
};
use kernel::prelude::*;
use xprtrdma_proto::responder::{
    admit::Ready,
    call::Parked,
    grant::Ticket,
    pour::Span, //
};

/// The transport's state of a call that was passed to the RPC server.
pub(crate) struct Call {
    /// The Call as received; `None` after the reply was sent.
    pub(crate) parked: Option<Parked<Ready>>,
    /// The right to send a response; `None` after the response was sent.
    pub(crate) ticket: Option<Ticket>,
    /// Pages that are counted for the call; `None` if the call is too small to be counted.
    pub(crate) counted: Option<Counted>,
    /// Results that may be in Write chunks.
    pub(crate) marks: KVec<Span>,
    pub(crate) since: Since,
}

impl Call {
    pub(crate) fn new(
        parked: Parked<Ready>,
        ticket: Ticket,
        counted: Option<Counted>,
        since: Since,
    ) -> Self {
        Self {
            parked: Some(parked),
            ticket: Some(ticket),
            counted,
            marks: KVec::new(),
            since,
        }
    }

    /// Marks a result of the reply. Returns `E2BIG` if the result is longer than its Write chunk.
    pub(crate) fn mark(&mut self, front: &[u8], from: u32, length: u32) -> Result {
        let parked = self.parked.take().ok_or(EINVAL)?;
        let ready = parked.resume(front).ok_or(EINVAL)?;
        let room = ready.room(self.marks.len());
        self.parked = Some(ready.park());
        if room.is_some_and(|room| length > room) {
            return Err(E2BIG);
        }
        self.marks.push(Span { from, length }, GFP_KERNEL)?;
        Ok(())
    }
}
