// SPDX-License-Identifier: GPL-2.0

//! Answers on their way to the client.
//!
//! No thread waits for room in the send queue. An answer that finds none is kept, and the
//! completion that makes room posts it. The number of answers that are kept is bounded by the
//! client's grant, see [`Grant::wait`].
//!
//! Lock order: that of the answers that wait, that of the grant, the send queue's.

use crate::count;
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
        Qp,
        QpHandler,
        SendBatch,
        SendError, //
    },
    transfer::Transfer, //
};

/// The grant of a connection, and the answers that wait for room in the send queue. The vector does
/// not grow beyond its capacity.
pub(crate) struct Outbox {
    pub(crate) grant: Pin<KBox<SpinLock<Grant>>>,
    waiting: Pin<KBox<SpinLock<KVec<Waiting>>>>,
}

struct Waiting {
    message: KVec<u8>,
    /// RDMA Writes in front of it.
    transfer: Option<KBox<Transfer>>,
    unsent: Unsent,
}

impl Outbox {
    /// Makes it with room for `most` answers.
    pub(crate) fn new(grant: Grant, most: usize) -> Result<Self> {
        let waiting = KVec::with_capacity(most, GFP_KERNEL)?;
        Ok(Self {
            grant: KBox::pin_init(new_spinlock!(grant, "Outbox::grant"), GFP_KERNEL)?,
            waiting: KBox::pin_init(new_spinlock!(waiting, "Outbox::waiting"), GFP_KERNEL)?,
        })
    }

    /// Posts the answers that wait, as far as there is room. Returns whether none waits any more.
    /// Does not sleep.
    pub(crate) fn pump<H: QpHandler>(&self, qp: &Qp<H>) -> Result<bool> {
        let mut waiting = self.waiting.lock();
        while let Some(first) = waiting.first() {
            let wrs = wrs(first.transfer.as_deref());
            let mut batch = match qp.begin(first.message.len(), wrs) {
                Ok(batch) => batch,
                Err(SendError::Full) => return Ok(false),
                Err(SendError::Closed) => return Err(EPIPE),
            };
            let answer = waiting.remove(0).map_err(|_| EINVAL)?;
            batch.buffer().copy_from_slice(&answer.message);
            post(batch, answer.message.len(), answer.transfer)?;
            self.grant.lock().sent(answer.unsent);
        }
        Ok(true)
    }

    /// Drops what waits: the connection has ended.
    pub(crate) fn give_up(&self) {
        let waiting = core::mem::take(&mut *self.waiting.lock());
        drop(waiting);
    }

    fn push(&self, answer: Waiting) -> Result {
        let pushed = self.waiting.lock().push_within_capacity(answer);
        // Cannot be: the grant bounds what waits.
        pushed.map_err(|_| ENOSPC)
    }

    /// Sends an answer of at most `most` bytes, behind its RDMA Writes: now, or when there is room.
    /// `grant` takes its grant, `encode` writes it. May sleep for memory.
    pub(crate) fn answer<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        most: usize,
        transfer: Option<KBox<Transfer>>,
        grant: impl FnOnce(&mut Grant) -> Result<Granted, Overdrawn>,
        encode: impl FnOnce(Granted, &mut [u8]) -> Result<usize>,
    ) -> Result {
        let mut account = self.grant.lock();
        let granted = grant(&mut account).map_err(|_| ENOMEM)?;
        let room = match account.has_unsent() {
            true => Err(SendError::Full),
            false => qp.begin(most, wrs(transfer.as_deref())),
        };
        match room {
            Ok(mut batch) => {
                // In the lock of the grant: answers leave in the order of their grants.
                let len = encode(granted, batch.buffer())?;
                return post(batch, len, transfer);
            }
            Err(SendError::Closed) => return Err(EPIPE),
            Err(SendError::Full) => {}
        }
        let unsent = account.wait();
        count::ANSWERS.add();
        drop(account);
        let mut message = KVec::from_elem(0, most, GFP_KERNEL)?;
        let len = encode(granted, &mut message)?;
        message.truncate(len);
        self.push(Waiting {
            message,
            transfer,
            unsent,
        })?;
        // There may be room by now, and no completion that follows.
        self.pump(qp).map(|_| ())
    }
}

/// Returns the work requests of an answer.
fn wrs(transfer: Option<&Transfer>) -> u32 {
    // NO-OVERFLOW: A list in memory is shorter.
    transfer.map_or(0, Transfer::wrs).wrapping_add(1)
}

fn post<H: QpHandler>(
    batch: SendBatch<'_, H>,
    len: usize,
    transfer: Option<KBox<Transfer>>,
) -> Result {
    match transfer {
        Some(transfer) => batch.post_transfer(transfer, Some(len)),
        None => batch.post_message(len),
    }
}
