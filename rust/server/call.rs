// SPDX-License-Identifier: GPL-2.0

//! A call that has arrived, and a call that was passed to the RPC server.

use crate::{
    driver::Rdma,
    latency::Since,
    memory::Counted, //
};
use core::slice;
use kernel::prelude::*;
use xprtrdma_proto::responder::{
    admit::Ready,
    call::Parked,
    grant::Ticket,
    pour::Span,
    results,
    stream::Fill, //
};
use xprtrdma_rdma::pages::Pages;
use xprtrdma_svc::{
    inbox::Arrived,
    reply::Reply,
    service::Service, //
};

/// A call whose data have all arrived.
pub(crate) type Fetched = Arrived<Rdma>;

/// The message that brings a call.
pub(crate) type Message = <Rdma as Service>::Message;

/// Those results of a reply that may be sent in Write chunks. Most replies have at most one such
/// result.
pub(crate) enum Marks {
    None,
    One(Span),
    Several(KVec<Span>),
}

impl Marks {
    /// Returns the results, in order.
    pub(crate) fn spans(&self) -> &[Span] {
        match self {
            Self::None => &[],
            Self::One(span) => slice::from_ref(span),
            Self::Several(spans) => spans,
        }
    }

    /// Corrects the range of each result. Afterwards the range contains only the data that the
    /// result has in the finished reply.
    #[inline]
    pub(crate) fn correct(&mut self, reply: &Reply<'_>) {
        let correct = |span: &mut Span| *span = results::data_of(*span, |at| reply.word(at));
        match self {
            Self::None => {}
            Self::One(span) => correct(span),
            Self::Several(spans) => spans.iter_mut().for_each(correct),
        }
    }

    #[cold]
    fn push(&mut self, span: Span) -> Result {
        match self {
            Self::None => *self = Self::One(span),
            Self::One(first) => {
                let mut spans = KVec::with_capacity(2, GFP_KERNEL)?;
                spans.push(*first, GFP_KERNEL)?;
                spans.push(span, GFP_KERNEL)?;
                *self = Self::Several(spans);
            }
            Self::Several(spans) => spans.push(span, GFP_KERNEL)?,
        }
        Ok(())
    }
}

/// What the transport keeps about a call that was passed to the RPC server.
pub(crate) struct Call {
    /// The Call as received, and the right to send a response; `None` after the reply was sent.
    pub(crate) open: Option<(Parked<Ready>, Ticket)>,
    /// The pages of the call that count towards the memory limits; `None` if the call is too small
    /// to count.
    pub(crate) counted: Option<Counted>,
    /// Results that may be sent in Write chunks.
    pub(crate) marks: Marks,
    pub(crate) since: Since,
}

impl Call {
    #[inline(always)]
    pub(crate) fn new(
        parked: Parked<Ready>,
        ticket: Ticket,
        counted: Option<Counted>,
        since: Since,
    ) -> Self {
        Self {
            open: Some((parked, ticket)),
            counted,
            marks: Marks::None,
            since,
        }
    }

    /// Records that a result of the reply may be sent in a Write chunk. Returns `E2BIG` if the
    /// result is longer than its Write chunk.
    #[inline(always)]
    pub(crate) fn mark(&mut self, front: &[u8], from: u32, length: u32) -> Result {
        let span = Span { from, length };
        // Most replies have at most one such result.
        if !matches!(self.marks, Marks::None) {
            return self.mark_another(front, span);
        }
        self.check_room(front, 0, length)?;
        // The old value owns no memory, so it need not be dropped.
        core::mem::forget(core::mem::replace(&mut self.marks, Marks::One(span)));
        Ok(())
    }

    /// Records another result, see [`Call::mark`].
    #[cold]
    #[inline(never)]
    fn mark_another(&mut self, front: &[u8], span: Span) -> Result {
        self.check_room(front, self.marks.spans().len(), span.length)?;
        self.marks.push(span)
    }

    /// Returns `E2BIG` if the k-th result is longer than its Write chunk.
    #[inline(always)]
    fn check_room(&self, front: &[u8], k: usize, length: u32) -> Result {
        let (parked, _) = self.open.as_ref().ok_or(EINVAL)?;
        let room = parked.room(front, k).ok_or(EINVAL)?;
        if room.is_some_and(|room| length > room) {
            return Err(E2BIG);
        }
        Ok(())
    }
}

/// Fills a part of the pages with bytes of the call's payload, or with zeros.
pub(crate) fn fill_in(pages: &mut Pages, payload: &[u8], fill: Fill) -> Result {
    let (from, to, length) = match fill {
        Fill::Copy { from, to, length } => (Some(from as usize), to as usize, length as usize),
        Fill::Zero { to, length } => (None, to as usize, length as usize),
    };
    let end = to.checked_add(length).ok_or(EINVAL)?;
    pages.change(to, end, |offset, part| {
        let Some(from) = from else {
            part.fill(0);
            return Ok(());
        };
        let from = from.checked_add(offset).ok_or(EINVAL)?;
        let end = from.checked_add(part.len()).ok_or(EINVAL)?;
        part.copy_from_slice(payload.get(from..end).ok_or(EINVAL)?);
        Ok(())
    })
}
