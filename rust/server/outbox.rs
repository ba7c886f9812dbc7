// SPDX-License-Identifier: GPL-2.0

//! Responses that wait until they can be sent to the client.
//!
//! No thread waits for space in the send queue. If the send queue has no space for a response, the
//! response is stored. The completion handler that frees space then posts the stored response. The
//! client's grant limits the number of stored responses, see [`Grant::wait`].
//!
//! Lock order (outer first): the lock of the stored responses, the lock of the grant, the lock of
//! the send queue.

use crate::{
    count,
    events::Events,
    memory,
    stats::Answers, //
};
use core::ops::{
    Deref,
    DerefMut, //
};
use kernel::{
    alloc::kvec::PushError,
    prelude::*, //
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
use xprtrdma_svc::{
    sysctl::Counter,
    util::{
        new_spinlock,
        SpinLock,
        SpinLockGuard, //
    }, //
};

/// The grant of a connection, and the responses that wait for space in the send queue. The vector
/// of these responses does not grow beyond its capacity.
pub(crate) struct Outbox {
    pub(crate) grant: Pin<KBox<SpinLock<Account>>>,
    waiting: Pin<KBox<SpinLock<KVec<Waiting>>>>,
    pub(crate) answers: Answers,
}

/// The grant of a connection.
pub(crate) struct Account {
    grant: Grant,
    /// The number of finished calls whose Receives are counted in `grant`, modulo 2^32.
    finished: u32,
}

impl Account {
    /// Counts the Receives of the RPC calls that have finished since this function last ran. These
    /// Receives were posted again.
    #[inline(always)]
    pub(crate) fn count_finished<H: QpHandler>(&mut self, qp: &Qp<H>) {
        let finished = qp.given_back();
        self.grant.posted(finished.wrapping_sub(self.finished));
        self.finished = finished;
    }
}

impl Deref for Account {
    type Target = Grant;

    #[inline(always)]
    fn deref(&self) -> &Grant {
        &self.grant
    }
}

impl DerefMut for Account {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Grant {
        &mut self.grant
    }
}

struct Waiting {
    message: KVec<u8>,
    along: Along,
    unsent: Unsent,
}

/// Why a response was not sent, and its transfer if no other object owns the transfer.
pub(crate) type Unanswered = (Error, Option<KBox<Transfer>>);

/// Operations that are posted together with a response.
#[derive(Default)]
pub(crate) struct Along {
    /// RDMA Writes that are posted before the response.
    pub(crate) transfer: Option<KBox<Transfer>>,
    /// A key from the call. The client's device invalidates the key when the response arrives.
    pub(crate) invalidate: Option<u32>,
    /// Whether the connection's handler is called when the client's device has received the
    /// response. Used only for a response without RDMA Writes.
    pub(crate) confirmed: bool,
}

/// The place in which a response is encoded.
enum Place<'a, H: QpHandler> {
    /// The send queue has space. The lock of the grant is held until the response was posted.
    Queue(SendBatch<'a, H>, SpinLockGuard<'a, Account>),
    /// The send queue is full, so the response is stored.
    Memory(KVec<u8>, Unsent),
}

impl<H: QpHandler> Place<'_, H> {
    /// Returns the memory for the response.
    #[inline(always)]
    fn buffer(&mut self) -> &mut [u8] {
        match self {
            Self::Queue(batch, _) => batch.buffer(),
            Self::Memory(message, _) => message,
        }
    }
}

impl Along {
    /// Returns the number of work requests that the response needs.
    fn wrs(&self) -> u32 {
        let transfer = self.transfer.as_deref();
        // NO-OVERFLOW: A transfer in memory has far fewer than 2^32 work requests.
        transfer.map_or(0, Transfer::wrs).wrapping_add(1)
    }

    /// Posts a response of `len` bytes. All operations that access the client's memory are posted
    /// before the message.
    #[inline(always)]
    fn post<H: QpHandler>(self, batch: SendBatch<'_, H>, len: usize) -> Result {
        let message = Message {
            len,
            invalidate: self.invalidate,
            confirmed: self.confirmed,
        };
        match self.transfer {
            Some(transfer) => batch.anew().post_transfer(transfer, Some(message)),
            None => batch.post_message(message),
        }
    }
}

impl Outbox {
    /// Creates an outbox that can store `most` responses.
    pub(crate) fn new(grant: Grant, most: usize) -> Result<Self> {
        let waiting = KVec::with_capacity(most, GFP_KERNEL)?;
        let account = Account { grant, finished: 0 };
        Ok(Self {
            grant: KBox::pin_init(new_spinlock!(account, "Outbox::grant"), GFP_KERNEL)?,
            waiting: KBox::pin_init(new_spinlock!(waiting, "Outbox::waiting"), GFP_KERNEL)?,
            answers: Answers::new(),
        })
    }

    /// Posts the stored responses in the order of their grants, until the send queue is full.
    /// Returns true if the send queue still has space. Does not sleep.
    ///
    /// Another thread may have computed the credit grant of its response, but not stored the
    /// response yet. Later responses then wait until that thread has stored its response.
    /// Afterwards that thread calls this function, too.
    pub(crate) fn pump<H: QpHandler>(&self, qp: &Qp<H>) -> Result<bool> {
        let mut waiting = self.waiting.lock();
        while !waiting.is_empty() {
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
        Ok(true)
    }

    /// Returns how many stored responses have RDMA Writes.
    pub(crate) fn transfers(&self) -> u32 {
        let waiting = self.waiting.lock();
        let with_writes = waiting.iter().filter(|each| each.along.transfer.is_some());
        // CAST: The grant limits the number of stored responses.
        with_writes.count() as u32
    }

    /// Drops all stored responses, because the connection has ended. Returns how many counted pages
    /// their RDMA Writes had.
    pub(crate) fn give_up(&self) -> u32 {
        let waiting = core::mem::take(&mut *self.waiting.lock());
        let transfers = waiting
            .iter()
            .filter_map(|each| each.along.transfer.as_deref());
        transfers.map(memory::counted_transfer).sum()
    }

    /// Stores a response. Returns the response if the connection has ended. Before the end, the
    /// grant limits the number of stored responses to the capacity of the vector.
    fn push(&self, answer: Waiting) -> Result<(), Waiting> {
        let pushed = self.waiting.lock().push_within_capacity(answer);
        pushed.map_err(|PushError(answer)| answer)
    }

    /// Sends a response of at most `most` bytes, together with the operations in `along`. If the
    /// send queue has no space, the response is stored and sent later. `grant` returns the credits
    /// that the response grants, and `encode` writes the response. If `grant` returns an error,
    /// this function ends the connection, and the error is the cause. May sleep while it allocates
    /// memory.
    ///
    /// An error contains the transfer in `along` if the transfer was neither passed to the queue
    /// pair nor stored.
    pub(crate) fn answer<H: QpHandler>(
        &self,
        qp: &Qp<H>,
        events: &Events,
        most: usize,
        along: Along,
        grant: impl FnOnce(&mut Grant) -> Result<Granted, Overdrawn>,
        encode: impl FnOnce(Granted, &mut [u8]) -> Result<usize>,
    ) -> Result<(), Unanswered> {
        let mut account = self.grant.lock();
        account.count_finished(qp);
        let granted = match grant(&mut account) {
            Ok(granted) => granted,
            Err(why) => {
                drop(account);
                return Err((overdrawn(events, why), along.transfer));
            }
        };
        let stats = &self.answers;
        stats.sent.add(1);
        if let Some(transfer) = &along.transfer {
            stats.writes.add(1);
            // CAST: The number of work requests fits into a `usize`.
            Counter::Written.add(transfer.wrs() as usize);
        }
        stats.invalidations.add(along.invalidate.is_some().into());
        let room = match account.has_unsent() {
            true => Err(SendError::Full),
            false => qp.begin(most, along.wrs()),
        };
        let mut place = match room {
            Ok(batch) => Place::Queue(batch, account),
            Err(SendError::Closed) => return Err((EPIPE, along.transfer)),
            Err(SendError::Full) => {
                stats.waits.add(1);
                Counter::Starved.add(1);
                let unsent = account.wait();
                count::ANSWERS.add();
                drop(account);
                match KVec::from_elem(0, most, GFP_KERNEL) {
                    Ok(message) => Place::Memory(message, unsent),
                    Err(error) => return Err((error.into(), along.transfer)),
                }
            }
        };
        // `encode` is called only here, so that the compiler inlines it.
        let len = match encode(granted, place.buffer()) {
            Ok(len) => len,
            Err(error) => return Err((error, along.transfer)),
        };
        match place {
            Place::Queue(batch, account) => {
                let posted = along.post(batch, len);
                // The lock of the grant was held while the response was posted, so that responses
                // are sent in the order of their grants.
                drop(account);
                posted.map_err(|error| (error, None))
            }
            Place::Memory(mut message, unsent) => {
                message.truncate(len);
                let stored = Waiting {
                    message,
                    along,
                    unsent,
                };
                if let Err(refused) = self.push(stored) {
                    return Err((EPIPE, refused.along.transfer));
                }
                // Perhaps `send_space` was called before the response was stored, and no later
                // completion calls `send_space` again. So this thread tries to post the response.
                self.pump(qp).map(|_| ()).map_err(|error| (error, None))
            }
        }
    }
}

/// Ends a connection whose client cannot be granted credits.
#[cold]
fn overdrawn(events: &Events, why: Overdrawn) -> Error {
    events.end(why.into());
    EPIPE
}
