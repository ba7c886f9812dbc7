// SPDX-License-Identifier: GPL-2.0

//! Calls that wait for memory, and calls whose data are still in the client's memory.
//!
//! A call waits in its Receive buffer until three conditions hold: memory is available for its data
//! and its results, its RDMA Reads can be posted, and these have completed. No thread waits. Calls
//! continue in the order of their arrival. The completion handlers, or a thread that finishes
//! another call, process them.

use crate::{
    call::{
        fill_in,
        Fetched, //
    },
    count,
    events::Events,
    latency::{
        Since,
        Tag, //
    },
    memory::{
        self,
        Account,
        Counted, //
    },
    sizes::{
        Sizes,
        KEPT, //
    }, //
};
use core::net::SocketAddr;
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
    admit::Admitted,
    budget::{
        Share,
        Wait, //
    },
    call::Parked,
    grant::Ticket,
    refusal::Refusal,
    stream::Assembly, //
};
use xprtrdma_rdma::{
    blanks::Blanks,
    pages::{
        Mappable,
        Pages, //
    },
    pd::Pd,
    pool::Pool,
    qp::{
        Held,
        Qp,
        QpHandler,
        SendError, //
    },
    sink::Sinks,
    stretch::Stretch,
    transfer::{
        Blank,
        Kind,
        Transfer, //
    }, //
};
use xprtrdma_svc::{
    inbox::Place,
    sysctl::Counter,
    trace, //
};

/// A call that waits for memory or for its RDMA Reads.
pub(crate) struct Reading<H: QpHandler> {
    message: Held<H>,
    parked: Option<Parked<Admitted>>,
    ticket: Ticket,
    /// Number of bytes to read. If it is zero, the call waits for memory only.
    bytes: u32,
    /// Number of pages to count for the call.
    pages: u32,
    /// The counted pages; `None` while too few pages are free.
    counted: Option<Counted>,
    since: Since,
    /// The transfer, after it was prepared and before it is posted.
    transfer: Option<KBox<Transfer>>,
}

/// Why a call cannot be processed.
pub(crate) enum Failed {
    /// The client receives this error.
    Refused(Ticket, Refusal),
    /// The connection must be closed.
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The calls of one connection that wait for memory or for their Reads, and the connection's share
/// of the memory.
pub(crate) struct Reads<H: QpHandler> {
    queues: Pin<KBox<SpinLock<Queues<H>>>>,
    address: Arc<Account>,
    peer: SocketAddr,
    pool: Arc<Pool>,
    blanks: Blanks,
    /// The regions for the data of Reads, if the device needs them.
    sinks: Option<Arc<Sinks>>,
    sizes: Sizes,
}

/// The queues of waiting calls. Neither vector grows beyond its capacity.
struct Queues<H: QpHandler> {
    waiting: KVec<Reading<H>>,
    /// The calls whose Reads are posted, in the order of posting.
    posted: KVec<Reading<H>>,
    share: Share,
}

/// The next call that can be processed further.
enum Next<H: QpHandler> {
    Call(Reading<H>),
    Nothing,
    /// No call can be processed until other connections return memory.
    Short,
}

/// Why [`Reads::pump`] has stopped.
#[derive(PartialEq, Eq)]
pub(crate) enum Pumped {
    /// Every call that could be processed further was processed. If calls remain, a later event of
    /// this connection continues with them.
    All,
    /// The first waiting call needs memory that other connections hold.
    Short,
}

impl<H: QpHandler> Reads<H> {
    /// Creates the queues of a connection that may have this number of RDMA Reads in flight. The
    /// pages of the connection are also added to the account of its client address.
    pub(crate) fn new(sizes: &Sizes, pd: &Arc<Pd>, reads: u8, events: &Events) -> Result<Self> {
        let most = sizes.inbox();
        let queues = Queues {
            waiting: KVec::with_capacity(most, GFP_KERNEL)?,
            posted: KVec::with_capacity(most, GFP_KERNEL)?,
            share: memory::share(reads),
        };
        let lock = new_spinlock!(queues, "Reads::queues");
        let pool = Pool::new(KEPT / PAGE_SIZE, memory::of_one() as usize)?;
        Ok(Self {
            queues: KBox::pin_init(lock, GFP_KERNEL)?,
            address: events.ending().address().clone(),
            peer: events.peer,
            pool: Arc::new(pool, GFP_KERNEL)?,
            blanks: Blanks::new()?,
            sinks: sizes.sinks(pd, reads)?,
            sizes: *sizes,
        })
    }

    /// Counts pages for a call without Reads. Returns `None` if the call must wait.
    pub(crate) fn take(&self, pages: u32) -> Option<Counted> {
        let mut queues = self.queues.lock();
        match queues.waiting.is_empty() {
            true => memory::take(&mut queues.share, &self.address, pages).ok(),
            false => None,
        }
    }

    /// Adds a call behind the waiting calls. `bytes` is the number of bytes to read, and `pages`
    /// the number of pages to count.
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

    /// Processes the waiting calls as far as memory and the send queue allow: posts the Reads of a
    /// call, or passes a call without Reads to `ready`. May sleep.
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
                None => match reading.prepare(self, self.blank(qp)?)? {
                    Ok(transfer) => transfer,
                    Err(refusal) => {
                        self.give_back(reading.counted.take());
                        return Err(Failed::Refused(reading.ticket, refusal));
                    }
                },
            };
            let reads = transfer.transfers();
            let mut queues = self.queues.lock();
            let room = match queues.share.may_read(reads) {
                true => qp.begin(0, transfer.wrs()),
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
            // The call is stored before the post, so that the completion handler finds it.
            if queues.posted.push_within_capacity(reading).is_err() {
                return Err(ENOSPC.into());
            }
            // CAST: The number fits into a `usize`.
            Counter::Read.add(reads as usize);
            trace::read(&self.peer, || {
                // CAST: A message has a few megabytes.
                (Tag::of(&transfer).xid().0, transfer.bytes() as u32, reads)
            });
            let posted = batch.post_transfer(transfer, None);
            if posted.is_err() {
                // No completion follows, so the call is removed. Otherwise it would be mistaken for
                // a call that is posted later.
                let _ = queues.posted.pop();
            }
            posted?;
            queues.share.begin_reads(reads);
            if queues.waiting.is_empty() {
                return Ok(Pumped::All);
            }
        }
    }

    /// Removes the first call from the queue if it can be processed further. Its memory is then
    /// counted.
    fn next(&self) -> Next<H> {
        let mut queues = self.queues.lock();
        let Queues { waiting, share, .. } = &mut *queues;
        let Some(first) = waiting.first_mut() else {
            return Next::Nothing;
        };
        if let Some(transfer) = &first.transfer {
            if !share.may_read(transfer.transfers()) {
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

    /// Finishes the call whose Reads were posted first. Called when these Reads have completed. May
    /// sleep.
    pub(crate) fn completed(&self, transfer: KBox<Transfer>) -> Result<Fetched<H>, Failed> {
        let mut queues = self.queues.lock();
        queues.share.end_reads(transfer.transfers());
        let mut reading = queues.posted.remove(0).map_err(|_| EINVAL)?;
        drop(queues);
        let counted = reading.counted.take();
        let pages = self.end(transfer).ok_or(EINVAL)?;
        match reading.finish(pages) {
            Ok(fetched) => Ok(Fetched { counted, ..fetched }),
            Err(failed) => {
                self.give_back(counted);
                Err(failed)
            }
        }
    }

    /// Takes back the memory of a finished call. Waiting calls may then be processed further.
    pub(crate) fn give_back(&self, counted: Option<Counted>) {
        if let Some(pages) = counted {
            memory::give_back(&mut self.queues.lock().share, &self.address, pages);
        }
    }

    /// Returns the regions for the data of Reads, if the device needs them.
    pub(crate) fn sinks(&self) -> Option<&Sinks> {
        self.sinks.as_deref()
    }

    /// Frees kept pages that no call has used for a while.
    pub(crate) fn trim(&self) {
        self.pool.trim();
        self.blanks.trim();
    }

    /// Returns a transfer without work requests. May sleep.
    pub(crate) fn blank(&self, qp: &Qp<H>) -> Result<Blank> {
        self.blanks.take(qp.pd())
    }

    /// Ends a transfer, and keeps it for later use. Returns its pages.
    fn end(&self, transfer: KBox<Transfer>) -> Option<Pages> {
        let (pages, blank) = Transfer::end(transfer);
        if let Some(blank) = blank {
            self.blanks.put(blank);
        }
        pages
    }

    /// Takes back the memory of RDMA Writes that have completed.
    pub(crate) fn written(&self, transfer: KBox<Transfer>) {
        let pages = memory::counted_writes(transfer.bytes());
        if pages != 0 {
            let mut queues = self.queues.lock();
            memory::give_back(&mut queues.share, &self.address, Counted::of_writes(pages));
        }
        self.end(transfer);
    }

    /// Drops all calls. Called when the connection has ended and no handler runs. The drop is
    /// needed to break a cycle of references: the calls hold the queue pair, whose handler holds
    /// the calls.
    pub(crate) fn give_up(&self) {
        let mut queues = self.queues.lock();
        let calls = (
            core::mem::take(&mut queues.waiting),
            core::mem::take(&mut queues.posted),
        );
        drop(queues);
        drop(calls);
        self.pool.close();
        self.blanks.close();
        if let Some(sinks) = &self.sinks {
            sinks.close();
        }
    }
}

impl<H: QpHandler> Drop for Reads<H> {
    fn drop(&mut self) {
        memory::end(&self.queues.lock().share, &self.address);
    }
}

impl<H: QpHandler> Reading<H> {
    /// Finishes a call that waited only for memory.
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
        // NO-OVERFLOW: The payload is the last part of the message.
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

    /// Prepares the Reads of the call. Returns the refusal of the call if the Reads do not fit into
    /// the send queue.
    fn prepare(&mut self, all: &Reads<H>, blank: Blank) -> Result<Result<KBox<Transfer>, Refusal>> {
        // The pages may contain old data, because the Reads and the fills write all bytes.
        let pages = Pages::of(&all.pool, self.bytes as usize)?;
        let parked = self.parked.take().ok_or(EINVAL)?;
        let call = parked.resume(self.message.bytes()).ok_or(EINVAL)?;
        let reads = call.reads().map(|read| Stretch {
            handle: read.handle.0,
            offset: read.offset,
            len: read.length,
            at: read.to,
        });
        let mut transfer = match &all.sinks {
            None => blank.fill(Kind::Read, Mappable::Own(pages), reads)?,
            Some(sinks) => blank.fill_sink(sinks, pages, reads)?,
        };
        Tag::untimed(call.xid()).put_on(&mut transfer);
        if let Err(refusal) = all.sizes.check(&call, &transfer) {
            all.end(transfer);
            return Ok(Err(refusal));
        }
        self.parked = Some(call.park());
        Ok(Ok(transfer))
    }

    /// Assembles the message of the call after its Reads have completed.
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
        // NO-OVERFLOW: The payload is the last part of the message.
        let start = len.wrapping_sub(call.payload().len());
        let assembly = call.assembly();
        // `fetched` needs the first page of the landing area only if the whole message is in that
        // area.
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
