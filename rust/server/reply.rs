// SPDX-License-Identifier: GPL-2.0

//! Responses to calls of the client.

use crate::{
    call::Call,
    connection::Connection,
    latency::{
        Since,
        Stage,
        Tag, //
    },
    memory::{
        self,
        Counted, //
    },
    outbox::{
        Along,
        Unanswered, //
    },
    receive::Handler, //
};
use kernel::prelude::*;
use xprtrdma_proto::{
    responder::{
        grant::{
            Granted,
            Ticket, //
        },
        pour::Span,
        refusal::{
            Fault,
            Refusal, //
        },
        reply::Reply as Plan,
        results::Written, //
    },
    served::cause::Cause, //
};
use xprtrdma_rdma::{
    pages::{
        Mappable,
        Pages, //
    },
    stretch::Stretch,
    transfer::{
        Kind,
        Transfer, //
    }, //
};
use xprtrdma_svc::{
    reply::Reply,
    trace,
    util::{
        connection_reset,
        PageList,
        PageRefs, //
    }, //
};

impl Connection {
    /// Sends a reply, or an error in place of the reply.
    pub(crate) fn reply(&self, call: &mut Call, front: &[u8], reply: &mut Reply<'_>) -> Result {
        self.try_reply(call, front, reply).inspect_err(|_| {
            // If the connection has already ended, it keeps the first cause.
            self.events.end(Cause::Unanswerable);
        })
    }

    fn try_reply(&self, call: &mut Call, front: &[u8], reply: &mut Reply<'_>) -> Result {
        let handler = self.qp.handler();
        let (parked, ticket) = call.open.take().ok_or(EINVAL)?;
        let ready = parked.resume(front).ok_or(EINVAL)?;
        call.since.end(Stage::Serve);
        let xid = ready.xid();
        call.marks.correct(reply);
        let plan = match ready.reply(call.marks.spans(), reply.len(), &handler.terms) {
            Ok(plan) => plan,
            Err(refusal) => return self.refuse(&mut call.since, ticket, refusal),
        };
        let transfer = match plan.has_writes() {
            // After the connection has ended, no Write is prepared in vain.
            true if self.events.ending().has_ended() => return Err(connection_reset()),
            true => Some(self.write(&plan, reply, call.since.tag(xid))?),
            false => None,
        };
        if let Some(writes) = &transfer {
            if let Err(refusal) = handler.sizes.check(&ready, writes) {
                return self.refuse(&mut call.since, ticket, refusal);
            }
            if !hand_over(&mut call.counted, writes) {
                let refusal = Refusal::new(xid, ready.version(), Fault::ReplyRoom);
                return self.refuse(&mut call.since, ticket, refusal);
            }
        }
        let agreed = self.events.agreed.thresholds.remote_invalidation;
        let invalidate = ready.invalidate(agreed).map(|handle| handle.0);
        trace::reply(&self.events.peer, || {
            // CAST: A reply in memory is shorter than 4 GiB.
            let written = transfer.as_ref().map_or(0, |writes| writes.bytes() as u32);
            (xid.0, reply.len(), written, invalidate.unwrap_or(0))
        });
        // CAST: The longest message has a few kilobytes.
        let most = handler.terms.longest_message(ready.version()) as usize;
        let answered = handler.outbox.answer(
            &self.qp,
            &self.events,
            most,
            Along {
                transfer,
                invalidate,
                confirmed: false,
            },
            |grant| grant.answer(ticket),
            |granted, buffer| encode(&plan, granted, &*reply, buffer),
        );
        call.since.end(Stage::Reply);
        answered.map_err(|unanswered| self.drop_writes(unanswered))
    }

    /// Drops the RDMA Writes of a reply that was not sent, and stops counting their pages.
    #[cold]
    #[inline(never)]
    fn drop_writes(&self, (error, writes): Unanswered) -> Error {
        if let Some(writes) = writes {
            let counted = Counted::of(memory::counted_transfer(&writes));
            drop(writes);
            self.give_back(counted);
        }
        error
    }

    /// Sends an error in place of a reply.
    #[cold]
    fn refuse(&self, since: &mut Since, ticket: Ticket, refusal: Refusal) -> Result {
        let answered = Handler::refuse(&self.qp, ticket, refusal);
        since.end(Stage::Reply);
        answered
    }

    /// Prepares the RDMA Writes of a reply. Called only if the reply has RDMA Writes. The device
    /// reads the RPC server's own pages, or a copy of the bytes if the pages cannot be taken over.
    fn write(&self, plan: &Plan<'_>, reply: &mut Reply<'_>, tag: Tag) -> Result<KBox<Transfer>> {
        let mut blank = self.qp.handler().reads.blank(&self.qp)?;
        let Written { bytes, whole } = plan.carried();
        let taken = whole.and_then(|whole| take(plan, reply, whole, blank.list()));
        let memory = match taken {
            Some(pages) => Mappable::Shared(pages),
            None => Mappable::Own(copy(plan, reply, bytes as usize)?),
        };
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
        let mut transfer = blank.fill(Kind::Write, memory, stretches)?;
        tag.put_on(&mut transfer);
        Ok(transfer)
    }

    /// Records that a call is finished. The caller then drops the call's Receive, so the Receive is
    /// posted again. The next response of the connection counts this Receive as posted. The caller
    /// passes the result to [`Connection::give_back`] when the pages of the call were freed.
    #[inline(always)]
    pub(crate) fn over(&self, call: &mut Call) -> Option<Counted> {
        if call.open.is_some() {
            self.drop_unanswered(call);
        }
        call.counted.take()
    }

    /// Stops counting the pages of a finished call.
    #[inline(never)]
    pub(crate) fn give_back(&self, counted: Counted) {
        // No pages are left if the RDMA Writes of the reply use all pages that were counted for the
        // call.
        if counted.count() != 0 {
            Handler::give_back(self.qp.as_arc_borrow(), counted);
        }
    }

    /// Records that the RPC server has dropped a call, and will not send a reply.
    #[cold]
    #[inline(never)]
    fn drop_unanswered(&self, call: &mut Call) {
        let Some((_, ticket)) = call.open.take() else {
            return;
        };
        let handler = self.qp.handler();
        let mut grant = handler.outbox.grant.lock();
        // Usually the Receives that were posted again are counted when a response is sent. A
        // dropped call gets no response, so they are counted here.
        grant.count_finished(&self.qp);
        let lost = grant.drop_unanswered(ticket);
        drop(grant);
        if let Err(why) = lost {
            handler.events.end(why.into());
        }
    }
}

/// Splits the pages of the RDMA Writes from `counted`, the call's share of the counted pages. When
/// the call ends, the pages that are left in `counted` are no longer counted. The pages that were
/// split are counted until the Writes have completed. Returns false if the Writes use more pages
/// than were counted for the call. This is possible, because a reply of NFSv4.0 may be longer than
/// the longest call.
fn hand_over(counted: &mut Option<Counted>, writes: &Transfer) -> bool {
    match memory::counted_writes(writes.bytes()) {
        0 => true,
        count => counted
            .as_mut()
            .is_some_and(|counted| counted.split(count).is_some()),
    }
}

/// Takes over the pages of the range `whole` of a reply. The reply's RDMA Writes carry the bytes of
/// this range. Returns `None` if some of the bytes are not in pages, or if the inline part of the
/// reply needs the same pages.
fn take(
    plan: &Plan<'_>,
    reply: &mut Reply<'_>,
    whole: Span,
    list: Option<PageList>,
) -> Option<PageRefs> {
    // Usually the Writes carry all bytes that are in pages, so the inline part needs no page.
    if reply.is_middle(whole.from, whole.length) {
        return reply.take_middle(list);
    }
    let is_needed = |span: Span| reply.is_in_pages(span.from, span.length);
    if plan.inline().any(is_needed) {
        return None;
    }
    reply.take_pages(whole.from, whole.length, list)
}

/// Copies the bytes that the Writes carry.
fn copy(plan: &Plan<'_>, reply: &Reply<'_>, bytes: usize) -> Result<Pages> {
    let mut pages = Pages::new(bytes)?;
    let mut at = 0usize;
    for span in plan.written() {
        // NO-OVERFLOW: The spans are parts of a message in memory.
        let end = at.wrapping_add(span.length as usize);
        pages.change(at, end, |offset, part| {
            // CAST: The span is part of a message in memory, so its length fits.
            reply.copy(span.from.wrapping_add(offset as u32), part)
        })?;
        at = end;
    }
    Ok(pages)
}

/// Writes the message of a reply, and returns the length of the message. Does not sleep.
fn encode(
    plan: &Plan<'_>,
    granted: Granted,
    reply: &Reply<'_>,
    buffer: &mut [u8],
) -> Result<usize> {
    let mut len = plan.encode(granted, buffer).map_err(|_| EINVAL)?;
    for span in plan.inline() {
        // CAST: The length of the span is a few kilobytes.
        let end = len.checked_add(span.length as usize).ok_or(EINVAL)?;
        let part = buffer.get_mut(len..end).ok_or(EINVAL)?;
        reply.copy(span.from, part)?;
        len = end;
    }
    Ok(len)
}
