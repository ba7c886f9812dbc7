// SPDX-License-Identifier: GPL-2.0

//! Answers on their way to the client.
//!
//! No thread waits for room in the send queue. An answer that finds none is kept, and the
//! completion that makes room posts it. The number of answers that are kept is bounded by the
//! client's grant, see [`Grant::wait`].
//!
//! Lock order: that of the answers that wait, that of the grant, the send queue's.

use crate::{
    count,
    stats::Answers, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};
use xprtrdma_proto::responder::grant::{
    Grant,
    Granted,
    Overdrawn,
    Unsent, //
};
use xprtrdma_rdma::{
    qp::{
        Message,
        Qp,
        QpHandler,
        SendBatch,
        SendError, //
    },
    transfer::Transfer, //
};
use xprtrdma_svc::sysctl::Counter;

/// The grant of a connection, and the answers that wait for room in the send queue. The vector does
/// not grow beyond its capacity.
pub(crate) struct Outbox {
    pub(crate) grant: Pin<KBox<SpinLock<Grant>>>,
    waiting: Pin<KBox<SpinLock<KVec<Waiting>>>>,
    pub(crate) answers: Answers,
}

struct Waiting {
    message: KVec<u8>,
    along: Along,
    unsent: Unsent,
}

/// What goes with an answer.
#[derive(Default)]
pub(crate) struct Along {
    /// RDMA Writes in front of it.
    pub(crate) transfer: Option<KBox<Transfer>>,
    /// A key of the call, which the client's device invalidates when the answer arrives.
    pub(crate) invalidate: Option<u32>,
    /// The handler is told when the client's device has the answer, which has no Writes.
    pub(crate) confirmed: bool,
}

impl Along {
    /// Returns the work requests of the answer.
    fn wrs(&self) -> u32 {
        let transfer = self.transfer.as_deref();
        // NO-OVERFLOW: A list in memory is shorter.
        transfer.map_or(0, Transfer::wrs).wrapping_add(1)
    }

    /// Posts an answer of `len` bytes. Everything that uses the client's memory goes in front of
    /// the message.
    fn post<H: QpHandler>(self, batch: SendBatch<'_, H>, len: usize) -> Result {
        let invalidate = self.invalidate;
        let message = Message {
            len,
            invalidate,
            confirmed: self.confirmed,
        };
        match self.transfer {
            Some(transfer) => batch.post_transfer(transfer, Some(message)),
            None => batch.post_message(message),
        }
    }
}

impl Outbox {
    /// Makes it with room for `most` answers.
    pub(crate) fn new(grant: Grant, most: usize) -> Result<Self> {
        let waiting = KVec::with_capacity(most, GFP_KERNEL)?;
        Ok(Self {
            grant: KBox::pin_init(new_spinlock!(grant, "Outbox::grant"), GFP_KERNEL)?,
            waiting: KBox::pin_init(new_spinlock!(waiting, "Outbox::waiting"), GFP_KERNEL)?,
            answers: Answers::new(),
        })
    }

    /// Posts the answers that wait, in the order of their grants and as far as there is room.
    /// Returns whether there is room for more. Does not sleep.
    ///
    /// An answer that has its grant may not be in the list yet. The answers behind it wait until
    /// its thread has put it there; that thread calls this function, too.
    pub(crate) fn pump<H: QpHandler>(&self, qp: &Qp<H>) -> Result<bool> {
        let mut waiting = self.waiting.lock();
        loop {
            let grant = self.grant.lock();
            let next = waiting
                .iter()
                .position(|answer| grant.may_send(&answer.unsent));
            drop(grant);
            let Some((at, first)) = next.and_then(|at| Some((at, waiting.get(at)?))) else {
                return Ok(true);
            };
            let mut batch = match qp.begin(first.message.len(), first.along.wrs()) {
                Ok(batch) => batch,
                Err(SendError::Full) => return Ok(false),
                Err(SendError::Closed) => return Err(EPIPE),
            };
            let answer = waiting.remove(at).map_err(|_| EINVAL)?;
            batch.buffer().copy_from_slice(&answer.message);
            answer.along.post(batch, answer.message.len())?;
            self.grant.lock().sent(answer.unsent);
        }
    }

    /// Drops what waits: the connection has ended.
    pub(crate) fn give_up(&self) {
        let waiting = core::mem::take(&mut *self.waiting.lock());
        drop(waiting);
    }

    fn push(&self, answer: Waiting) -> Result {
        let pushed = self.waiting.lock().push_within_capacity(answer);
        // Cannot happen: the grant bounds the number of answers that wait.
        pushed.map_err(|_| ENOSPC)
    }

    /// Sends an answer of at most `most` bytes, and what goes along: now, or when there is room.
    /// `grant` takes its grant, `encode` writes it. May sleep for memory.
    pub(crate) fn answer<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        most: usize,
        along: Along,
        grant: impl FnOnce(&mut Grant) -> Result<Granted, Overdrawn>,
        encode: impl FnOnce(Granted, &mut [u8]) -> Result<usize>,
    ) -> Result {
        let mut account = self.grant.lock();
        let granted = grant(&mut account).map_err(|_| ENOMEM)?;
        let stats = &self.answers;
        stats.sent.add(1);
        if let Some(transfer) = &along.transfer {
            stats.writes.add(1);
            // CAST: A list in memory is shorter.
            Counter::Written.add(transfer.wrs() as usize);
        }
        stats.invalidations.add(along.invalidate.is_some().into());
        let room = match account.has_unsent() {
            true => Err(SendError::Full),
            false => qp.begin(most, along.wrs()),
        };
        match room {
            Ok(mut batch) => {
                // In the lock of the grant: answers leave in the order of their grants.
                let len = encode(granted, batch.buffer())?;
                return along.post(batch, len);
            }
            Err(SendError::Closed) => return Err(EPIPE),
            Err(SendError::Full) => {}
        }
        stats.waits.add(1);
        Counter::Starved.add(1);
        let unsent = account.wait();
        count::ANSWERS.add();
        drop(account);
        let mut message = KVec::from_elem(0, most, GFP_KERNEL)?;
        let len = encode(granted, &mut message)?;
        message.truncate(len);
        self.push(Waiting {
            message,
            along,
            unsent,
        })?;
        // There may be room by now, and no completion that follows.
        self.pump(qp).map(|_| ())
    }
}
