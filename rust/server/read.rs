// SPDX-License-Identifier: GPL-2.0

//! Calls of which parts are still in the client's memory.
//!
//! A call waits in its Receive buffer until its RDMA Reads can be posted, and until they have
//! completed. No thread waits. Everything here is called by completion handlers, one at a time,
//! apart from [`Reads::give_up`].

use crate::sizes::{
    Sizes,
    READ_BYTES, //
};
use kernel::{
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::SpinLock, //
};
use xprtrdma_proto::responder::{
    admit::{
        Admitted,
        Ready, //
    },
    call::Parked,
    grant::Ticket,
    refusal::Refusal,
    stream::{
        Assembly,
        Fill, //
    }, //
};
use xprtrdma_rdma::{
    dma::Direction,
    pages::Pages,
    qp::{
        Held,
        Qp,
        QpHandler,
        SendError, //
    },
    transfer::{
        Kind,
        Stretch,
        Transfer, //
    }, //
};
use xprtrdma_svc::inbox::Place;

/// A call of which parts are still in the client's memory.
pub(crate) struct Reading<H: QpHandler> {
    message: Held<H>,
    parked: Option<Parked<Admitted>>,
    ticket: Ticket,
    /// Bytes to be read.
    bytes: u32,
    /// Ready to be posted, and not yet posted.
    transfer: Option<KBox<Transfer>>,
}

/// A call of which everything is here.
pub(crate) struct Fetched<H: QpHandler> {
    pub(crate) message: Held<H>,
    pub(crate) place: Place<Pages>,
    pub(crate) parked: Parked<Ready>,
    pub(crate) ticket: Ticket,
}

/// Why a call cannot be processed.
pub(crate) enum Failed {
    /// The client is told.
    Refused(Ticket, Refusal),
    /// The connection ends.
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The calls of a connection of which parts are still in the client's memory.
pub(crate) struct Reads<H: QpHandler> {
    queues: Pin<KBox<SpinLock<Queues<H>>>>,
    sizes: Sizes,
}

/// Neither vector grows beyond its capacity.
struct Queues<H: QpHandler> {
    waiting: KVec<Reading<H>>,
    /// In the order of the posts.
    posted: KVec<Reading<H>>,
    /// Bytes that posted Reads will bring.
    bytes: u32,
}

impl<H: QpHandler> Reads<H> {
    pub(crate) fn new(sizes: &Sizes) -> Result<Self> {
        let most = sizes.inbox();
        let queues = Queues {
            waiting: KVec::with_capacity(most, GFP_KERNEL)?,
            posted: KVec::with_capacity(most, GFP_KERNEL)?,
            bytes: 0,
        };
        let lock = new_spinlock!(queues, "Reads::queues");
        Ok(Self {
            queues: KBox::pin_init(lock, GFP_KERNEL)?,
            sizes: *sizes,
        })
    }

    /// Adds a call, behind those that wait.
    pub(crate) fn add(
        &self,
        message: Held<H>,
        parked: Parked<Admitted>,
        ticket: Ticket,
        bytes: u32,
    ) -> Result {
        let reading = Reading {
            message,
            parked: Some(parked),
            ticket,
            bytes,
            transfer: None,
        };
        let pushed = self.queues.lock().waiting.push_within_capacity(reading);
        pushed.map_err(|_| ENOSPC)
    }

    /// Posts the Reads of calls that wait, as far as there is room. May sleep.
    pub(crate) fn pump(&self, qp: &Qp<H>) -> Result {
        while let Some(mut reading) = self.next() {
            let transfer = match reading.transfer.take() {
                Some(transfer) => transfer,
                None => reading.prepare(qp, self.sizes.transfer_wrs())?,
            };
            let mut queues = self.queues.lock();
            let batch = match qp.begin(0, transfer.wrs()) {
                Ok(batch) => batch,
                Err(SendError::Full) => {
                    reading.transfer = Some(transfer);
                    let put_back = queues.waiting.insert_within_capacity(0, reading);
                    return put_back.map_err(|_| ENOSPC);
                }
                Err(SendError::Closed) => return Err(EPIPE),
            };
            // NO-OVERFLOW: Bounded by what `next` lets through.
            queues.bytes = queues.bytes.wrapping_add(reading.bytes);
            // Before the post, so that it is there when the Reads complete.
            if queues.posted.push_within_capacity(reading).is_err() {
                return Err(ENOSPC);
            }
            let posted = batch.post_transfer(transfer, None);
            if posted.is_err() {
                // Nothing completes it, and it must not be taken for a call that is posted later.
                let _ = queues.posted.pop();
            }
            posted?;
        }
        Ok(())
    }

    /// Takes the next call whose Reads may be posted.
    fn next(&self) -> Option<Reading<H>> {
        let mut queues = self.queues.lock();
        let bytes = queues.waiting.first()?.bytes;
        let all = queues.bytes.saturating_add(bytes);
        // One call alone always may.
        if all > READ_BYTES && queues.bytes != 0 {
            return None;
        }
        queues.waiting.remove(0).ok()
    }

    /// Finishes the call of the oldest Reads that were posted: they have completed. May sleep.
    pub(crate) fn completed(&self, transfer: Transfer) -> Result<Fetched<H>, Failed> {
        let mut queues = self.queues.lock();
        let reading = queues.posted.remove(0).map_err(|_| EINVAL)?;
        queues.bytes = queues.bytes.saturating_sub(reading.bytes);
        drop(queues);
        reading.finish(transfer.into_pages())
    }

    /// Drops all calls: the connection has ended, and no handler is at work. The calls keep the
    /// queue pair, whose handler keeps them.
    pub(crate) fn give_up(&self) {
        let mut queues = self.queues.lock();
        let calls = (
            core::mem::take(&mut queues.waiting),
            core::mem::take(&mut queues.posted),
        );
        drop(queues);
        drop(calls);
    }
}

impl<H: QpHandler> Reading<H> {
    /// Makes the Reads of the call.
    fn prepare(&mut self, qp: &Qp<H>, most_wrs: u32) -> Result<KBox<Transfer>> {
        let pages = Pages::new(self.bytes as usize)?.map(qp.pd(), Direction::FromDevice)?;
        let parked = self.parked.take().ok_or(EINVAL)?;
        let call = parked.resume(self.message.bytes()).ok_or(EINVAL)?;
        let reads = call.reads().map(|read| Stretch {
            handle: read.handle.0,
            offset: read.offset,
            len: read.length,
            at: read.to,
        });
        let most_sges = qp.pd().max_send_sges() as usize;
        let transfer = Transfer::new(Kind::Read, pages, most_sges, reads)?;
        if transfer.wrs() > most_wrs {
            return Err(E2BIG);
        }
        self.parked = Some(call.park());
        Ok(KBox::new(transfer, GFP_KERNEL)?)
    }

    /// Brings the pieces of the call together.
    fn finish(self, mut pages: Pages) -> Result<Fetched<H>, Failed> {
        let Self {
            message,
            parked,
            ticket,
            bytes,
            ..
        } = self;
        let len = message.bytes().len();
        let parked = parked.ok_or(EINVAL)?;
        let call = parked.resume(message.bytes()).ok_or(EINVAL)?;
        for fill in call.fills() {
            fill_in(&mut pages, call.payload(), fill)?;
        }
        // NO-OVERFLOW: The payload is the end of the message.
        let start = len.wrapping_sub(call.payload().len());
        let assembly = call.assembly();
        // The beginning of the landing area matters if all of the call is there.
        let (mut call, mut ready) = (Some(call), None);
        pages.change(0, PAGE_SIZE.min(bytes as usize), |_, front| {
            ready = call.take().map(|call| call.fetched(front));
            Ok(())
        })?;
        let ready = ready.ok_or(EINVAL)?;
        let parked = match ready {
            Ok(ready) => ready.park(),
            Err(refusal) => return Err(Failed::Refused(ticket, refusal)),
        };
        let place = match assembly {
            Assembly::Inline => Place::Message { start },
            Assembly::Split { at } => Place::Split {
                start,
                at: at as usize,
                pages,
            },
            Assembly::Landed => Place::Pages { start, pages },
        };
        Ok(Fetched {
            message,
            place,
            parked,
            ticket,
        })
    }
}

fn fill_in(pages: &mut Pages, payload: &[u8], fill: Fill) -> Result {
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
