// SPDX-License-Identifier: GPL-2.0

//! Calls that wait for memory, and calls of which parts are still in the client's memory.
//!
//! A call waits in its Receive buffer until there is memory for what it brings and what it asks
//! for, until its RDMA Reads can be posted, and until they have completed. No thread waits. Calls
//! leave in their order, and completion handlers or the thread that ends a call let them go on.

use crate::{
    count,
    latency::Since,
    memory::{
        self,
        Account,
        Counted, //
    },
    sizes::Sizes, //
};
use kernel::{
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};
use xprtrdma_proto::responder::{
    admit::{
        Admitted,
        Ready, //
    },
    budget::{
        Share,
        Wait, //
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
use xprtrdma_svc::{
    inbox::Place,
    sysctl::Counter, //
};

/// A call that waits for memory, or for its RDMA Reads.
pub(crate) struct Reading<H: QpHandler> {
    message: Held<H>,
    parked: Option<Parked<Admitted>>,
    ticket: Ticket,
    /// Bytes to be read. Without any the call waits for memory only.
    bytes: u32,
    /// Pages that are counted for it.
    pages: u32,
    /// These pages, once there are as many.
    counted: Option<Counted>,
    since: Since,
    /// Ready to be posted, and not yet posted.
    transfer: Option<KBox<Transfer>>,
}

/// A call that has arrived completely.
pub(crate) struct Fetched<H: QpHandler> {
    pub(crate) message: Held<H>,
    pub(crate) place: Place<Pages>,
    pub(crate) parked: Parked<Ready>,
    pub(crate) ticket: Ticket,
    pub(crate) counted: Option<Counted>,
    pub(crate) since: Since,
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

/// The calls of a connection that wait for memory or for their Reads, and the memory of all its
/// calls.
pub(crate) struct Reads<H: QpHandler> {
    queues: Pin<KBox<SpinLock<Queues<H>>>>,
    address: Arc<Account>,
    sizes: Sizes,
}

/// Neither vector grows beyond its capacity.
struct Queues<H: QpHandler> {
    waiting: KVec<Reading<H>>,
    /// In the order of the posts.
    posted: KVec<Reading<H>>,
    share: Share,
}

/// What may go on now.
enum Next<H: QpHandler> {
    Call(Reading<H>),
    Nothing,
    /// Not before other connections give memory back.
    Short,
}

/// What became of the calls that waited.
#[derive(PartialEq, Eq)]
pub(crate) enum Pumped {
    /// What could go on has gone on; something of the connection's own lets the rest go on.
    All,
    /// The first that waits needs memory that other connections hold.
    Short,
}

impl<H: QpHandler> Reads<H> {
    /// Makes the queues of a connection that may have this number of RDMA Reads under way. Its
    /// pages count for its address as well.
    pub(crate) fn new(sizes: &Sizes, reads: u8, address: Arc<Account>) -> Result<Self> {
        let most = sizes.inbox();
        let queues = Queues {
            waiting: KVec::with_capacity(most, GFP_KERNEL)?,
            posted: KVec::with_capacity(most, GFP_KERNEL)?,
            share: memory::share(reads),
        };
        let lock = new_spinlock!(queues, "Reads::queues");
        Ok(Self {
            queues: KBox::pin_init(lock, GFP_KERNEL)?,
            address,
            sizes: *sizes,
        })
    }

    /// Takes pages for a call without Reads. `None`: it has to wait.
    pub(crate) fn take(&self, pages: u32) -> Option<Counted> {
        let mut queues = self.queues.lock();
        match queues.waiting.is_empty() {
            true => memory::take(&mut queues.share, &self.address, pages).ok(),
            false => None,
        }
    }

    /// Adds a call, behind those that wait: `bytes` of it are to be read, and `pages` are counted.
    pub(crate) fn add(
        &self,
        message: Held<H>,
        parked: Parked<Admitted>,
        ticket: Ticket,
        bytes: u32,
        pages: u32,
        since: Since,
    ) -> Result {
        let reading = Reading {
            message,
            parked: Some(parked),
            ticket,
            bytes,
            pages,
            counted: None,
            since,
            transfer: None,
        };
        let pushed = self.queues.lock().waiting.push_within_capacity(reading);
        pushed.map_err(|_| ENOSPC)
    }

    /// Goes on with calls that wait, as far as there is room: posts their Reads, or hands those
    /// without Reads to `ready`. May sleep.
    pub(crate) fn pump(
        &self,
        qp: &Qp<H>,
        mut ready: impl FnMut(Fetched<H>) -> Result,
    ) -> Result<Pumped, Failed> {
        loop {
            let mut reading = match self.next() {
                Next::Call(reading) => reading,
                Next::Nothing => return Ok(Pumped::All),
                Next::Short => return Ok(Pumped::Short),
            };
            if reading.bytes == 0 {
                ready(reading.without_reads()?)?;
                continue;
            }
            let transfer = match reading.transfer.take() {
                Some(transfer) => transfer,
                None => match reading.prepare(qp, &self.sizes)? {
                    Ok(transfer) => transfer,
                    Err(refusal) => {
                        self.give_back(reading.counted.take());
                        return Err(Failed::Refused(reading.ticket, refusal));
                    }
                },
            };
            let wrs = transfer.wrs();
            let mut queues = self.queues.lock();
            let room = match queues.share.may_read(wrs) {
                true => qp.begin(0, wrs),
                false => Err(SendError::Full),
            };
            let batch = match room {
                Ok(batch) => batch,
                Err(SendError::Full) => {
                    reading.transfer = Some(transfer);
                    let put_back = queues.waiting.insert_within_capacity(0, reading);
                    put_back.map_err(|_| ENOSPC)?;
                    return Ok(Pumped::All);
                }
                Err(SendError::Closed) => return Err(EPIPE.into()),
            };
            // Before the post, so that it is there when the Reads complete.
            if queues.posted.push_within_capacity(reading).is_err() {
                return Err(ENOSPC.into());
            }
            // CAST: A list in memory is shorter.
            Counter::Read.add(transfer.wrs() as usize);
            let posted = batch.post_transfer(transfer, None);
            if posted.is_err() {
                // Nothing completes it, and it must not be taken for a call that is posted later.
                let _ = queues.posted.pop();
            }
            posted?;
            queues.share.begin_reads(wrs);
        }
    }

    /// Takes the next call that may go on, with the memory for it.
    fn next(&self) -> Next<H> {
        let mut queues = self.queues.lock();
        let Queues { waiting, share, .. } = &mut *queues;
        let Some(first) = waiting.first_mut() else {
            return Next::Nothing;
        };
        if let Some(transfer) = &first.transfer {
            if !share.may_read(transfer.wrs()) {
                count::READS.add();
                return Next::Nothing;
            }
        }
        if first.counted.is_none() && first.pages != 0 {
            match memory::take(share, &self.address, first.pages) {
                Ok(pages) => first.counted = Some(pages),
                Err(Wait::Share) => {
                    count::SHARE.add();
                    return Next::Nothing;
                }
                Err(Wait::Budget) => {
                    count::BUDGET.add();
                    return Next::Short;
                }
                Err(Wait::Address) => {
                    count::ADDRESS.add();
                    return Next::Short;
                }
            }
        }
        waiting.remove(0).map_or(Next::Nothing, Next::Call)
    }

    /// Finishes the call of the oldest Reads that were posted: they have completed. May sleep.
    pub(crate) fn completed(&self, transfer: Transfer) -> Result<Fetched<H>, Failed> {
        let mut queues = self.queues.lock();
        queues.share.end_reads(transfer.wrs());
        let mut reading = queues.posted.remove(0).map_err(|_| EINVAL)?;
        drop(queues);
        let counted = reading.counted.take();
        let pages = transfer.into_pages().ok_or(EINVAL)?;
        match reading.finish(pages) {
            Ok(fetched) => Ok(Fetched { counted, ..fetched }),
            Err(failed) => {
                self.give_back(counted);
                Err(failed)
            }
        }
    }

    /// Takes back the memory of a call that is over. Others may go on then.
    pub(crate) fn give_back(&self, counted: Option<Counted>) {
        if let Some(pages) = counted {
            memory::give_back(&mut self.queues.lock().share, &self.address, pages);
        }
    }

    /// Takes back the memory of RDMA Writes that have completed.
    pub(crate) fn written(&self, transfer: &Transfer) {
        let pages = memory::counted_writes(transfer.bytes());
        if pages != 0 {
            let mut queues = self.queues.lock();
            memory::give_back(&mut queues.share, &self.address, Counted::of_writes(pages));
        }
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

impl<H: QpHandler> Drop for Reads<H> {
    fn drop(&mut self) {
        memory::end(&self.queues.lock().share, &self.address);
    }
}

impl<H: QpHandler> Reading<H> {
    /// Makes a call of one that has waited for memory only.
    fn without_reads(self) -> Result<Fetched<H>, Failed> {
        let Self {
            message,
            parked,
            ticket,
            counted,
            since,
            ..
        } = self;
        let parked = parked.ok_or(EINVAL)?;
        let call = parked.resume(message.bytes()).ok_or(EINVAL)?;
        // NO-OVERFLOW: The payload is the end of the message.
        let start = message.bytes().len().wrapping_sub(call.payload().len());
        match call.fetched(&[]).map(|ready| ready.park()) {
            Ok(parked) => Ok(Fetched {
                message,
                place: Place::Message { start },
                parked,
                ticket,
                counted,
                since,
            }),
            Err(refusal) => Err(Failed::Refused(ticket, refusal)),
        }
    }

    /// Makes the Reads of the call, or its refusal if they do not fit into the send queue.
    fn prepare(&mut self, qp: &Qp<H>, sizes: &Sizes) -> Result<Result<KBox<Transfer>, Refusal>> {
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
        let transfer =
            Transfer::new(Kind::Read, pages, most_sges, reads)?.tagged(call.xid().0.into());
        if let Err(refusal) = sizes.check(&call, &transfer) {
            return Ok(Err(refusal));
        }
        self.parked = Some(call.park());
        Ok(Ok(KBox::new(transfer, GFP_KERNEL)?))
    }

    /// Brings the pieces of the call together.
    fn finish(self, mut pages: Pages) -> Result<Fetched<H>, Failed> {
        let Self {
            message,
            parked,
            ticket,
            bytes,
            since,
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
            counted: None,
            since,
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
