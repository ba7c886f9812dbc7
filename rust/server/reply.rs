// SPDX-License-Identifier: GPL-2.0

//! Responses to calls of the client.

use crate::{
    call::Call,
    connection::Connection,
    latency::{
        Stage,
        Tag, //
    },
    memory::{
        self,
        Counted, //
    },
    outbox::Along,
    receive::Handler, //
};
use kernel::prelude::*;
use xprtrdma_proto::{
    responder::{
        grant::Granted,
        reply::Reply as Plan, //
    },
    served::cause::Cause, //
};
use xprtrdma_rdma::{
    dma::Direction,
    pages::Pages,
    transfer::{
        Kind,
        Stretch,
        Transfer, //
    }, //
};
use xprtrdma_svc::{
    reply::Reply,
    trace, //
};

impl Connection {
    /// Sends a reply, or an error in place of the reply.
    pub(crate) fn reply(&self, call: &mut Call, front: &[u8], reply: &Reply<'_>) -> Result {
        self.try_reply(call, front, reply).inspect_err(|_| {
            self.events.end(Cause::Unanswerable);
        })
    }

    fn try_reply(&self, call: &mut Call, front: &[u8], reply: &Reply<'_>) -> Result {
        let handler = self.qp.handler();
        let parked = call.parked.take().ok_or(EINVAL)?;
        let ready = parked.resume(front).ok_or(EINVAL)?;
        let since = call.since.end(Stage::Serve);
        let xid = ready.xid();
        let tag = since.tag(xid);
        let plan = ready.reply(&call.marks, reply.len(), &handler.terms);
        let agreed = self.events.agreed.thresholds.remote_invalidation;
        let invalidate = ready.invalidate(agreed).map(|handle| handle.0);
        let ticket = call.ticket.take().ok_or(EINVAL)?;
        let made = match plan {
            Ok(plan) => {
                let transfer = self.write(&plan, reply, tag)?;
                let fits = match &transfer {
                    Some(writes) => handler.sizes.check(&ready, writes),
                    None => Ok(()),
                };
                fits.map(|()| (plan, transfer))
            }
            Err(refusal) => Err(refusal),
        };
        let answered = match made {
            Ok((plan, transfer)) => {
                if let Some(writes) = &transfer {
                    hand_over(&mut call.counted, writes)?;
                }
                trace::reply(&self.events.peer, || {
                    // CAST: A reply in memory is shorter than 4 GiB.
                    let written = transfer.as_ref().map_or(0, |writes| writes.bytes() as u32);
                    (xid.0, reply.len(), written, invalidate.unwrap_or(0))
                });
                // CAST: The length is a few kilobytes.
                let most = handler.terms.longest_message(ready.version()) as usize;
                handler.outbox.answer(
                    &self.qp,
                    most,
                    Along {
                        transfer,
                        invalidate,
                        confirmed: false,
                    },
                    |grant| grant.answer(ticket),
                    |granted, buffer| encode(&plan, granted, reply, buffer),
                )
            }
            Err(refusal) => Handler::refuse(&self.qp, ticket, refusal),
        };
        since.end(Stage::Reply);
        answered
    }

    /// Prepares the RDMA Writes of a reply, if there are any. The bytes are copied first, because
    /// the RPC server reuses its pages when this call returns.
    fn write(
        &self,
        plan: &Plan<'_>,
        reply: &Reply<'_>,
        tag: Tag,
    ) -> Result<Option<KBox<Transfer>>> {
        let bytes = plan.writes().map(|write| write.span.length as usize).sum();
        if bytes == 0 {
            return Ok(None);
        }
        let mut pages = Pages::new(bytes)?;
        let mut at = 0usize;
        for write in plan.writes() {
            // NO-OVERFLOW: The spans are parts of a message in memory.
            let end = at.wrapping_add(write.span.length as usize);
            pages.change(at, end, |offset, part| {
                // CAST: The span is part of a message in memory, whose length fits.
                reply.copy(write.span.from.wrapping_add(offset as u32), part)
            })?;
            at = end;
        }
        let pages = pages.map(self.qp.pd(), Direction::ToDevice)?;
        let mut at = 0u32;
        let stretches = plan.writes().map(|write| {
            let begin = at;
            // NO-OVERFLOW: The spans are parts of a message in memory.
            at = at.wrapping_add(write.span.length);
            Stretch {
                handle: write.handle.0,
                offset: write.offset,
                len: write.span.length,
                at: begin,
            }
        });
        let most_sges = self.qp.pd().max_send_sges() as usize;
        let transfer = Transfer::new(Kind::Write, pages, most_sges, stretches)?;
        Ok(Some(KBox::new(tag.put_on(transfer), GFP_KERNEL)?))
    }

    /// Records that a call is finished. Its Receive has been posted again.
    pub(crate) fn over(&self, mut call: Call) {
        let counted = call.counted.take();
        let handler = self.qp.handler();
        let mut grant = handler.outbox.grant.lock();
        grant.posted(1);
        let lost = match call.ticket {
            Some(ticket) => grant.drop_unanswered(ticket),
            None => Ok(()),
        };
        drop(grant);
        if let Err(why) = lost {
            handler.events.end(why.into());
        }
        // If no page is left, the Writes of the reply hold all pages of the call.
        if let Some(counted) = counted.filter(|counted| counted.count() != 0) {
            Handler::give_back(self.qp.as_arc_borrow(), counted);
        }
    }
}

/// Moves the pages of RDMA Writes from the call to the Writes. The pages are returned when the
/// Writes have completed.
fn hand_over(counted: &mut Option<Counted>, writes: &Transfer) -> Result {
    let count = memory::counted_writes(writes.bytes());
    if count != 0 {
        let part = counted.as_mut().and_then(|counted| counted.split(count));
        let _ = part.ok_or(E2BIG)?;
    }
    Ok(())
}

/// Writes the message of a reply, and returns its length. Does not sleep.
fn encode(
    plan: &Plan<'_>,
    granted: Granted,
    reply: &Reply<'_>,
    buffer: &mut [u8],
) -> Result<usize> {
    let mut len = plan.encode(granted, buffer).map_err(|_| EINVAL)?;
    for span in plan.inline() {
        // CAST: The length is a few kilobytes.
        let end = len.checked_add(span.length as usize).ok_or(EINVAL)?;
        let part = buffer.get_mut(len..end).ok_or(EINVAL)?;
        reply.copy(span.from, part)?;
        len = end;
    }
    Ok(len)
}
