// SPDX-License-Identifier: GPL-2.0

//! The preparation of transfers: the Reads of a call, and empty transfers.

use super::Reads;
use crate::{
    fetch::{
        Failed,
        Reading,
        Stage, //
    },
    latency::Tag, //
};
use kernel::prelude::*;
use xprtrdma_proto::responder::{
    admit::Admitted,
    call::Call,
    refusal::Refusal, //
};
use xprtrdma_rdma::{
    pages::{
        Mappable,
        Pages, //
    },
    qp::{
        Qp,
        QpHandler, //
    },
    stretch::Stretch,
    transfer::{
        Blank,
        Kind,
        Transfer, //
    }, //
};

impl Reads {
    /// Prepares the Reads of a call. Returns a refusal if the call must not be processed, or if its
    /// Reads do not fit into the send queue.
    #[inline(always)]
    pub(super) fn prepare<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        call: Call<'_, Admitted>,
        (bytes, len): (u32, usize),
        blank: Option<Blank>,
    ) -> Result<Result<(Stage, KBox<Transfer>), Refusal>> {
        let blank = Self::or_new(blank, qp)?;
        // The pages need not be cleared: the Reads write most bytes, and `fill_in` writes all other
        // bytes.
        let pages = Pages::of(&self.pool, bytes as usize)?;
        let reads = &mut call.reads().map(|read| Stretch {
            handle: read.handle.0,
            offset: read.offset,
            len: read.length,
            at: read.to,
        });
        let mut transfer = match &self.sinks {
            None => blank.fill(Kind::Read, Mappable::Own(pages), reads)?,
            Some(sinks) => blank.fill_sink(sinks, pages, reads)?,
        };
        Tag::untimed(call.xid()).put_on(&mut transfer);
        let checked = self.sizes.check(&call, &transfer);
        match checked.and_then(|()| Stage::of(call, len)) {
            Ok(stage) => Ok(Ok((stage, transfer))),
            Err(refusal) => {
                // The drop of the pages returns them to their pool.
                drop(Transfer::end(transfer));
                Ok(Err(refusal))
            }
        }
    }

    /// Prepares the Reads of a waiting call.
    pub(super) fn resume<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        reading: Reading,
        bytes: u32,
    ) -> Result<(Reading, KBox<Transfer>), Failed> {
        let blank = self.queues.lock().blanks.take();
        let unread = match reading {
            Reading::Admitted(unread) => KBox::into_inner(unread),
            // The Reads of such a call were prepared when it arrived.
            reading @ Reading::Split { .. } => return Err(self.lose(reading, EINVAL).into()),
        };
        let (ticket, counted, since) = (unread.ticket, unread.counted, unread.since);
        let message = unread.message.bytes();
        let Some(call) = unread.parked.resume(message) else {
            self.give_back(counted);
            return Err(EINVAL.into());
        };
        let failed = match self.prepare(qp, call, (bytes, message.len()), blank) {
            Ok(Ok((stage, transfer))) => {
                match Reading::new(unread.message, stage, ticket, None, since) {
                    Ok(mut reading) => {
                        *reading.counted() = counted;
                        return Ok((reading, transfer));
                    }
                    Err(error) => Failed::Error(error),
                }
            }
            Ok(Err(refusal)) => Failed::Refused(ticket, refusal),
            Err(error) => Failed::Error(error),
        };
        self.give_back(counted);
        Err(failed)
    }

    /// Frees pages and empty transfers that were kept for calls, but not used for a while.
    pub(crate) fn trim(&self) {
        self.pool.trim();
        loop {
            let blank = self.queues.lock().blanks.trim();
            if blank.is_none() {
                return;
            }
        }
    }

    /// Returns a transfer that contains no work requests yet. May sleep.
    pub(crate) fn blank<H: QpHandler>(&self, qp: &Qp<H>) -> Result<Blank> {
        let kept = self.queues.lock().blanks.take();
        Self::or_new(kept, qp)
    }

    fn or_new<H: QpHandler>(kept: Option<Blank>, qp: &Qp<H>) -> Result<Blank> {
        match kept {
            Some(blank) => Ok(blank),
            None => Blank::new(qp.pd()),
        }
    }
}
