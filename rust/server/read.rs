// SPDX-License-Identifier: GPL-2.0

//! Calls that wait for memory, and calls whose data are still in the client's memory.
//!
//! A call waits in its Receive buffer for three things, one after the other: memory for its data
//! and its results, space to post its RDMA Reads, and the completion of these Reads. No thread
//! waits with the call. Completion handlers, and threads that finish other calls, process waiting
//! calls further, in the order in which the calls arrived.

mod prepare;

use crate::{
    call::{
        Fetched,
        Message, //
    },
    count,
    events::Events,
    fetch::{
        Begun,
        Failed,
        Reading,
        Waiting, //
    },
    latency::{
        Since,
        Tag, //
    },
    memory::{
        self,
        Counted,
        Holder, //
    },
    sizes::{
        Sizes,
        KEPT, //
    },
    turns::Wake, //
};
use core::net::SocketAddr;
use kernel::{
    alloc::kvec::{
        InsertError,
        PushError, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    responder::{
        admit::Admitted,
        budget::{
            Share,
            Wait, //
        },
        call::Call,
        grant::Ticket,
        refusal::Refusal, //
    },
    served::cause::Cause, //
};
use xprtrdma_rdma::{
    blanks::Blanks,
    pd::Pd,
    pool::Pool,
    qp::{
        Qp,
        QpHandler,
        SendError, //
    },
    sink::Sinks,
    transfer::Transfer, //
};
use xprtrdma_svc::{
    sysctl::Counter,
    trace,
    util::{
        connection_reset,
        list,
        new_spinlock,
        SpinLock, //
    }, //
};

/// The calls of one connection that wait for memory or for their Reads, and the connection's share
/// of the memory.
pub(crate) struct Reads {
    queues: Pin<KBox<SpinLock<Queues>>>,
    holder: Holder,
    peer: SocketAddr,
    pool: Arc<Pool>,
    /// The memory regions into which RDMA Reads place data; `None` if the device needs no regions
    /// for that.
    sinks: Option<Arc<Sinks>>,
    sizes: Sizes,
}

/// The queues of waiting calls. Neither vector grows beyond its capacity.
struct Queues {
    waiting: KVec<Waiting>,
    /// The calls whose Reads are posted, in the order of posting.
    posted: KVec<Reading>,
    share: Share,
    blanks: Blanks,
}

/// The next call that can be processed further.
enum Next {
    Call(Waiting),
    Nothing,
    /// No call can be processed until other connections return memory.
    Short,
}

/// Why [`Reads::pump`] has stopped.
#[derive(PartialEq, Eq)]
pub(crate) enum Pumped {
    /// Every call that could be processed further was processed. If calls still wait, a later event
    /// of this connection causes their processing.
    All,
    /// The first waiting call needs memory that other connections hold.
    Short,
}

impl Reads {
    /// Creates the queues of a connection that may have `reads` RDMA Reads in flight. The pages of
    /// the connection also count towards the limit for its client's address.
    pub(crate) fn new(
        sizes: &Sizes,
        pd: &Arc<Pd>,
        reads: u8,
        events: &Events,
        waker: Arc<dyn Wake>,
    ) -> Result<Self> {
        let most = sizes.inbox();
        let queues = Queues {
            waiting: KVec::with_capacity(most, GFP_KERNEL)?,
            // Each posted call has at least one Read in flight, so the number of Reads limits the
            // number of posted calls.
            posted: KVec::with_capacity(reads.into(), GFP_KERNEL)?,
            share: memory::share(reads),
            blanks: Blanks::new()?,
        };
        let lock = new_spinlock!(queues, "Reads::queues");
        let pool = Pool::new(KEPT / PAGE_SIZE, memory::of_one() as usize)?;
        Ok(Self {
            queues: KBox::pin_init(lock, GFP_KERNEL)?,
            holder: Holder::new(events.peer.ip(), waker)?,
            peer: events.peer,
            pool: Arc::new(pool, GFP_KERNEL)?,
            sinks: sizes.sinks(pd, reads)?,
            sizes: *sizes,
        })
    }

    /// Counts the pages of a call without Reads towards the memory limits. Returns `None` if the
    /// call must wait.
    pub(crate) fn take(&self, pages: u32) -> Option<Counted> {
        let mut queues = self.queues.lock();
        match queues.waiting.is_empty() {
            true => memory::take(&mut queues.share, &self.holder, pages).ok(),
            false => None,
        }
    }

    /// Prepares the Reads of a call that has just arrived, unless the call must wait. `bytes` is
    /// the number of bytes to read, `pages` is the number of pages to count towards the memory
    /// limits, and `len` is the length of the received message. The caller must pass the result to
    /// [`Reads::add`]. May sleep.
    #[inline(always)]
    pub(crate) fn begin<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        call: Call<'_, Admitted>,
        (bytes, pages, len): (u32, u32, usize),
    ) -> Result<Result<Begun, Refusal>> {
        let mut queues = self.queues.lock();
        if !queues.waiting.is_empty() {
            return Ok(Ok(Begun::waiting(call)));
        }
        let counted = match pages {
            0 => None,
            _ => match memory::take(&mut queues.share, &self.holder, pages) {
                Ok(counted) => Some(counted),
                Err(_) => return Ok(Ok(Begun::waiting(call))),
            },
        };
        let blank = queues.blanks.take();
        drop(queues);
        let why = match self.prepare(qp, call, (bytes, len), blank) {
            Ok(Ok((stage, transfer))) => {
                return Ok(Ok(Begun {
                    stage,
                    counted,
                    transfer: Some(transfer),
                }))
            }
            Ok(Err(refusal)) => Ok(Err(refusal)),
            Err(error) => Err(error),
        };
        self.give_back(counted);
        why
    }

    /// Posts the Reads of a call that [`Reads::begin`] has prepared, or adds the call to the queue
    /// of waiting calls. `message` and `ticket` belong to the call, and `since` is the time of its
    /// arrival. `bytes` and `pages` must be the numbers that were passed to [`Reads::begin`].
    /// Returns whether the caller must call [`Reads::pump`].
    #[inline(always)]
    pub(crate) fn add<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        begun: Begun,
        (message, ticket, since): (Message, Ticket, Since),
        (bytes, pages): (u32, u32),
    ) -> Result<bool> {
        let transfer = begun.transfer;
        let reading = match Reading::new(message, begun.stage, ticket, begun.counted, since) {
            Ok(reading) => reading,
            Err(error) => {
                // If the Reads were prepared, the pages of the call were counted.
                if let Some(transfer) = transfer {
                    drop(transfer);
                    self.forget(pages);
                }
                return Err(error);
            }
        };
        match transfer {
            Some(transfer) => self.post(qp, reading, bytes, transfer).map(|_| false),
            None => {
                let waiting = Waiting {
                    reading,
                    bytes,
                    pages,
                    transfer: None,
                };
                let pushed = self.queues.lock().waiting.push_within_capacity(waiting);
                pushed.map_err(|_| ENOSPC)?;
                Ok(true)
            }
        }
    }

    /// Processes the waiting calls as far as memory and the send queue allow: posts the Reads of a
    /// call, or passes a call without Reads to `ready`. May sleep.
    pub(crate) fn pump<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        mut ready: impl FnMut(Fetched) -> Result,
    ) -> Result<Pumped, Failed> {
        loop {
            let Waiting {
                reading,
                bytes,
                transfer,
                ..
            } = match self.next() {
                Next::Call(waiting) => waiting,
                Next::Nothing => return Ok(Pumped::All),
                Next::Short => return Ok(Pumped::Short),
            };
            if bytes == 0 {
                ready(reading.finish(None, |counted| self.give_back(counted))?)?;
                continue;
            }
            let (reading, transfer) = match transfer {
                Some(transfer) => (reading, transfer),
                None => self.resume(qp, reading, bytes)?,
            };
            if !self.post(qp, reading, bytes, transfer)? {
                return Ok(Pumped::All);
            }
        }
    }

    /// Posts the Reads of a call. Returns false if the call must wait for space in the send queue
    /// or for the completion of other Reads.
    #[inline(always)]
    fn post<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        reading: Reading,
        bytes: u32,
        transfer: KBox<Transfer>,
    ) -> Result<bool> {
        let reads = transfer.transfers();
        let mut queues = self.queues.lock();
        let room = match queues.share.may_read(reads) {
            true => qp.begin(0, transfer.wrs()),
            false => Err(SendError::Full),
        };
        let batch = match room {
            Ok(batch) => batch,
            Err(SendError::Full) => {
                let waiting = Waiting {
                    reading,
                    bytes,
                    pages: 0,
                    transfer: Some(transfer),
                };
                let put_back = queues.waiting.insert_within_capacity(0, waiting);
                drop(queues);
                return match put_back {
                    Ok(()) => Ok(false),
                    // The queues were closed, because the connection has ended.
                    Err(InsertError::IndexOutOfBounds(lost) | InsertError::OutOfCapacity(lost)) => {
                        drop(lost.transfer);
                        Err(self.lose(lost.reading, EPIPE))
                    }
                };
            }
            Err(SendError::Closed) => {
                drop(queues);
                drop(transfer);
                return Err(self.lose(reading, EPIPE));
            }
        };
        // The call is stored before its Reads are posted, so that the completion handler finds the
        // call.
        if let Err(PushError(lost)) = queues.posted.push_within_capacity(reading) {
            drop((batch, queues, transfer));
            return Err(self.lose(lost, ENOSPC));
        }
        // CAST: The number of Reads fits into a `usize`.
        Counter::Read.add(reads as usize);
        trace::read(&self.peer, || {
            // CAST: The Reads of a call transfer at most a few megabytes.
            (Tag::of(&transfer).xid().0, transfer.bytes() as u32, reads)
        });
        if let Err(error) = batch.post_transfer(transfer, None) {
            // A failed post has no completion, so the call is removed. Otherwise a later completion
            // would be attributed to this call.
            // Its pages stay counted until the end of the connection, because the queue pair keeps
            // them.
            let lost = queues.posted.pop();
            drop(queues);
            drop(lost);
            return Err(error);
        }
        queues.share.begin_reads(reads);
        Ok(true)
    }

    /// Drops a call that cannot be processed, and stops counting its pages. Returns `error`.
    #[cold]
    #[inline(never)]
    fn lose(&self, mut reading: Reading, error: Error) -> Error {
        let counted = reading.counted().take();
        drop(reading);
        self.give_back(counted);
        error
    }

    /// Stops counting `pages` pages of a call that was dropped.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget(&self, pages: u32) {
        self.give_back((pages != 0).then(|| Counted::of(pages)));
    }

    /// Removes the first call from the queue of waiting calls, if the call can be processed
    /// further. The memory of the returned call counts towards the limits.
    fn next(&self) -> Next {
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
        if first.pages != 0 {
            match memory::take(share, &self.holder, first.pages) {
                Ok(pages) => (*first.reading.counted(), first.pages) = (Some(pages), 0),
                Err(wait) => {
                    count::waited(&wait);
                    return match wait {
                        Wait::Share => Next::Nothing,
                        Wait::Budget | Wait::Address => Next::Short,
                    };
                }
            }
        }
        waiting.remove(0).map_or(Next::Nothing, Next::Call)
    }

    /// Finishes the call whose Reads were posted first. Called when these Reads have completed.
    /// Also returns whether other calls wait. May sleep.
    #[inline(always)]
    pub(crate) fn completed(&self, transfer: KBox<Transfer>) -> (Result<Fetched, Failed>, bool) {
        let reads = transfer.transfers();
        let (pages, blank) = Transfer::end(transfer);
        let mut queues = self.queues.lock();
        queues.share.end_reads(reads);
        let rest = blank.and_then(|blank| queues.blanks.put(blank));
        let reading = list::take_first(&mut queues.posted);
        let others_wait = !queues.waiting.is_empty();
        drop(queues);
        // If `put` did not keep the transfer, the transfer is freed here, without the lock.
        drop(rest);
        let fetched = match (reading, pages) {
            (Some(reading), pages @ Some(_)) => {
                reading.finish(pages, |counted| self.give_back(counted))
            }
            (Some(reading), None) => Err(self.lose(reading, EINVAL).into()),
            (None, _) => Err(EINVAL.into()),
        };
        (fetched, others_wait)
    }

    /// Stops counting a finished call's memory towards the limits. Waiting calls can then use it.
    pub(crate) fn give_back(&self, counted: Option<Counted>) {
        if let Some(pages) = counted {
            memory::give_back(&mut self.queues.lock().share, &self.holder, pages);
        }
    }

    /// Drops a call that the RPC server does not accept any more, because it ends the connection.
    /// Stops counting the pages of the call.
    #[cold]
    #[inline(never)]
    pub(crate) fn drop_late(&self, mut call: Fetched, events: &Events) -> Error {
        events.end(Cause::Stopped);
        let counted = call.call().counted.take();
        drop(call);
        self.give_back(counted);
        connection_reset()
    }

    /// Makes the connection delay no other connection until it requests memory again.
    pub(crate) fn stop_waiting(&self) {
        self.holder.stop_waiting();
    }

    /// Returns the number of pages of the connection that count towards the limits.
    pub(crate) fn pages(&self) -> u32 {
        self.queues.lock().share.pages()
    }

    /// Returns the memory regions into which RDMA Reads place data, or `None` if the device needs
    /// no regions for that.
    pub(crate) fn sinks(&self) -> Option<&Sinks> {
        self.sinks.as_deref()
    }

    /// Takes back the memory of RDMA Writes that have completed. Returns true if calls wait and
    /// the limits now allow them more memory.
    pub(crate) fn written(&self, transfer: KBox<Transfer>) -> bool {
        let pages = memory::counted_writes(transfer.bytes());
        let (_, blank) = Transfer::end(transfer);
        let mut queues = self.queues.lock();
        if pages != 0 {
            memory::give_back(&mut queues.share, &self.holder, Counted::of(pages));
        }
        let rest = blank.and_then(|blank| queues.blanks.put(blank));
        let may_go_on = pages != 0 && !queues.waiting.is_empty();
        drop(queues);
        // If `put` did not keep the transfer, the transfer is freed here, without the lock.
        drop(rest);
        may_go_on
    }

    /// Drops all RPC calls, and stops counting their pages. Must be called when no handler runs any
    /// more: until then, the RPC calls and the queue pair keep each other alive.
    pub(crate) fn give_up(&self) {
        let mut queues = self.queues.lock();
        let mut waiting = core::mem::take(&mut queues.waiting);
        let mut posted = core::mem::take(&mut queues.posted);
        let blanks = queues.blanks.close();
        drop(queues);
        // From now on no call waits, so a thread that still processes calls requests no memory.
        self.stop_waiting();
        let waits = waiting.iter_mut().map(|call| &mut call.reading);
        let calls = Iterator::chain(waits, &mut posted);
        let pages = calls.filter_map(|call| call.counted().take());
        let pages = pages.map(|counted| counted.count()).sum();
        drop((waiting, posted, blanks));
        self.forget(pages);
        self.pool.close();
        if let Some(sinks) = &self.sinks {
            sinks.close();
        }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        memory::end(&self.queues.lock().share, &self.holder);
    }
}
