// SPDX-License-Identifier: GPL-2.0

//! A call that was handed to the RPC server.

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

/// A call that the RPC server has.
pub(crate) struct Call {
    /// Until the reply is sent.
    pub(crate) parked: Option<Parked<Ready>>,
    /// Until the call has its answer.
    pub(crate) ticket: Option<Ticket>,
    /// Memory that the call may use, if its memory is counted.
    pub(crate) counted: Option<Counted>,
    /// Results that may travel in Write chunks.
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

    /// Marks a result of the reply. `E2BIG`: it is longer than its Write chunk.
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
