// SPDX-License-Identifier: GPL-2.0

//! The completion handler: messages from the peer, and completed operations ([`Handler`]).

use crate::{
    driver::Rds,
    link::{
        Link,
        Posted, //
    },
    send::acknowledge, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
};
use xprtrdma_rdma::{
    failure::Opcode,
    mr::LocalInvalidation,
    qp::{
        Immediate,
        Qp,
        QpHandler,
        Received,
        WcStatus, //
    },
    transfer::{
        Blank,
        Kind,
        Transfer, //
    }, //
};
use xprtrdma_rds::{
    connection::{
        Connection,
        Entered,
        State, //
    },
    events::Event,
    incoming::Incoming,
    util::{
        list,
        may_log,
        no_buffers,
        not_connected,
        protocol_error,
        PromptQueue,
        Show,
        WorkQueue, //
    }, //
};
use xprtrdma_rds_proto::{
    header::{
        Fault,
        Header,
        ACK_REQUIRED,
        HEADER_BYTES,
        RETRANSMITTED, //
    },
    incoming::{
        opened,
        Part, //
    },
    operation::Completion,
    ping::is_ping, //
};

/// The completion handler of a queue pair.
pub(crate) struct Handler {
    connection: Arc<Connection<Rds>>,
    inflow: Pin<KBox<Mutex<Inflow>>>,
    // This reference keeps the work queue alive. The work queue must outlive the completion queue.
    queue: Arc<WorkQueue>,
}

/// The bytes of an incomplete message that have arrived so far.
#[derive(Default)]
struct Inflow {
    message: Option<KBox<Incoming>>,
    map: KVec<u8>,
}

impl Handler {
    pub(crate) fn new(connection: &Arc<Connection<Rds>>) -> Result<Self> {
        let inflow = new_mutex!(Inflow::default(), "Handler::inflow");
        Ok(Self {
            connection: connection.clone(),
            inflow: KBox::pin_init(inflow, GFP_KERNEL)?,
            queue: connection.driver().completions.clone(),
        })
    }

    #[inline(always)]
    fn with_link<R>(&self, f: impl FnOnce(&mut Link<Self>) -> R) -> Option<R> {
        self.connection.data().with_link(f)
    }

    /// Drops the connection after an error. No further fragment is accepted.
    #[cold]
    fn lost(&self, error: Error) {
        self.with_link(|link| link.assembly.end());
        if error == no_buffers() {
            Event::NoRoom.count();
            if may_log() {
                // LOG: The programs do not read their messages fast enough. The peer connects
                // again, and sends again what was not acknowledged.
                pr_warn!(
                    "no room for messages: the connection with {} ends (max_recv_allocation)\n",
                    Show(&self.connection.peer())
                );
            }
        }
        self.connection.drop_path();
    }

    /// Handles a received fragment. Returns true if the caller must send an acknowledgement. After
    /// an error the caller must call [`Handler::lost`].
    #[inline]
    fn take(&self, fragment: &[u8]) -> Result<bool> {
        let Ok((header, payload)) = Header::decode(fragment) else {
            return Err(protocol_error());
        };
        // The header is handled before the message is delivered. If the header acknowledges an
        // earlier message, that message must first drop its references to regions, because the new
        // message may refer to one of these regions.
        let (part, due) = self.heard(&header, payload.len())?;
        let (at, last) = match part {
            Part::Acknowledgement => return Ok(due),
            Part::Map { at, last } => {
                let entered = self.connection.enter().ok_or_else(not_connected)?;
                let mut inflow = self.inflow.lock();
                inflow.map(&entered, payload, at == 0, last)?;
                return Ok(due);
            }
            Part::Message { at, last } => (at, last),
        };
        // If no memory is available, the message is neither accepted nor acknowledged. So the peer
        // sends the message again on the next connection.
        let message = match at {
            0 => Incoming::new(header.len as usize, payload)?,
            _ => {
                let mut message = self.begun().ok_or_else(protocol_error)?;
                message.append(payload)?;
                message
            }
        };
        if !last {
            self.inflow.lock().message = Some(message);
            return Ok(due);
        }
        let entered = self.connection.enter().ok_or_else(not_connected)?;
        let bytes = fragment
            .first_chunk::<HEADER_BYTES>()
            .ok_or_else(protocol_error)?;
        // RDS drops a repeated message. So a repeated ping gets no answer, and does not count
        // towards the limit on pings.
        let repeated = header.has(RETRANSMITTED) && header.sequence < entered.next_sequence();
        let is_idle = || entered.is_idle();
        let may_go = || self.with_link(|link| link.pings.ping(is_idle)) != Some(false);
        if !is_ping(&header) || repeated || may_go() {
            entered.deliver(bytes, message);
        }
        let (sequence, required) = (header.sequence, header.has(ACK_REQUIRED));
        let received = move |link: &mut Link<_>| {
            link.owed.received(sequence, required);
            link.is_frame_due()
        };
        Ok(self.with_link(received) == Some(true))
    }

    /// Ends the oldest operation, which has completed. `completion` returns how the operation has
    /// ended. `spare` is the operation's transfer object, which is kept for a later operation.
    /// Returns the sequence number of the operation's message, and how the operation has ended.
    /// Returns `None` if the connection has no operation.
    #[inline(always)]
    fn ended(
        &self,
        mut spare: Option<Blank>,
        completion: impl FnOnce(&Posted) -> Completion,
    ) -> Option<(u64, Completion)> {
        // `news` is a sequence number. All messages up to this number were acknowledged, and their
        // operations have completed. Only this thread passes the number to RDS, and only after
        // `posted.end` has handled the status of this operation.
        let (posted, news) = {
            let mut place = self.connection.data().link.lock();
            let link: &mut Option<Link<Self>> = &mut place;
            let link = link.as_mut()?;
            link.keep_spare(&mut spare);
            let posted = list::take_first(&mut link.posted);
            (posted, link.advance())
        };
        let posted = posted?;
        let completion = completion(&posted);
        let ended = (posted.sequence(), completion);
        posted.end(completion);
        // After a failure the connection ends. RDS must not regard the message as acknowledged.
        // Otherwise RDS would not report the failure.
        if let Some(sequence) = news.filter(|_| completion == Completion::Done) {
            if let Some(entered) = self.connection.enter() {
                entered.acknowledged(sequence);
            }
        }
        Some(ended)
    }

    /// Ends the oldest operation, whose bytes were transferred from or to pages of this driver.
    #[cold]
    fn copied(&self, transfer: KBox<Transfer>) {
        let kind = transfer.kind();
        let (mut pages, spare) = Transfer::end(transfer);
        let ended = self.ended(spare, |posted| {
            let held = &posted.0;
            let copied = match (&mut pages, held.message().operation()) {
                (Some(pages), Some(asked)) if kind == Kind::Read => {
                    // CAST: `usize` has 64 bits.
                    let len = asked.bytes as usize;
                    pages.change(0, len, |at, part| held.copy_to_operation(at, part))
                }
                _ => Ok(()),
            };
            match copied {
                Ok(()) => Completion::Done,
                Err(_) => Completion::Failed,
            }
        });
        let Some((sequence, completion)) = ended else {
            return;
        };
        // A thread that sends messages may run at the same time. So a message that waits for the
        // data is released only here, after they were copied.
        let released = |link: &mut Link<_>| link.turn.completed(sequence, completion);
        let was_held = self.with_link(released) == Some(true);
        let Some(entered) = self.connection.enter() else {
            return;
        };
        if completion != Completion::Done {
            entered.drop_path();
        } else if was_held {
            entered.wake_sender();
        }
    }

    /// Takes the incomplete message, whose earlier fragments have arrived. Returns `None` if there
    /// is no such message.
    fn begun(&self) -> Option<KBox<Incoming>> {
        self.inflow.lock().message.take()
    }

    /// Classifies a fragment by its header and the length of its payload. Handles the
    /// acknowledgement and the credits in the header. Counts one Receive as posted, because the
    /// Receive of this fragment will be posted again. Returns the type of the fragment, and whether
    /// this host must send an acknowledgement.
    #[inline]
    fn heard(&self, header: &Header, payload: usize) -> Result<(Part, bool)> {
        let (ack, credit) = (header.ack, header.credit);
        let heard = self.with_link(|link| {
            let part = link.assembly.take(header, payload)?;
            link.credits.posted(1);
            link.credits.granted(credit)?;
            link.acknowledged.heard(ack, link.sent);
            Ok::<_, Fault>((part, link.advance(), link.is_frame_due()))
        });
        let heard = heard.ok_or_else(not_connected)?;
        let (part, news, due) = heard.map_err(|_| protocol_error())?;
        if news.is_some() || credit != 0 {
            let entered = self.connection.enter().ok_or_else(not_connected)?;
            if let Some(sequence) = news {
                entered.acknowledged(sequence);
            }
            if credit != 0 {
                Event::CreditsGranted.count();
                entered.wake_sender();
            }
        }
        Ok((part, due))
    }
}

impl Inflow {
    /// Handles a fragment of a congestion map.
    fn map(&mut self, entered: &Entered<'_>, payload: &[u8], first: bool, last: bool) -> Result {
        if first {
            self.map.clear();
        }
        self.map.extend_from_slice(payload, GFP_KERNEL)?;
        if last {
            let words = self.map.chunks_exact(8).map(|word| {
                let word = word.first_chunk().copied().unwrap_or_default();
                u64::from_le_bytes(word)
            });
            entered.congestion(words, opened);
        }
        Ok(())
    }
}

impl QpHandler for Handler {
    fn queue(&self) -> &PromptQueue {
        self.queue.queue()
    }

    #[inline]
    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>) {
        let this = qp.handler();
        // A message that invalidates a key, or that carries immediate data, is a protocol error.
        // Only the owner of a region is allowed to invalidate the key of the region.
        let taken = match (message.immediate(), message.invalidation()) {
            (Immediate::None, None) => this.take(message.bytes()),
            _ => Err(protocol_error()),
        };
        // Dropping the message posts its buffer again.
        drop(message);
        match taken {
            Ok(true) => acknowledge(&this.connection),
            Ok(false) => {}
            Err(error) => this.lost(error),
        }
    }

    #[inline(always)]
    fn transferred(qp: ArcBorrow<'_, Qp<Self>>, transfer: KBox<Transfer>) {
        let this = qp.handler();
        match Transfer::end_loan(transfer) {
            Ok(spare) => {
                this.ended(spare, |_| Completion::Done);
            }
            Err(transfer) => this.copied(transfer),
        }
    }

    fn invalidated(_qp: ArcBorrow<'_, Qp<Self>>, _token: u64, _proof: &LocalInvalidation) {}

    fn probed(_qp: ArcBorrow<'_, Qp<Self>>) {}

    fn confirmed(_qp: ArcBorrow<'_, Qp<Self>>) {}

    fn acknowledged(_qp: ArcBorrow<'_, Qp<Self>>) {}

    fn send_space(qp: ArcBorrow<'_, Qp<Self>>) {
        let this = qp.handler();
        acknowledge(&this.connection);
        if let Some(entered) = this.connection.enter() {
            entered.wake_sender();
        }
    }

    fn broken(qp: ArcBorrow<'_, Qp<Self>>, status: WcStatus) {
        let this = qp.handler();
        // If the first failed work request is a Send or a Receive, the RDMA operations did not
        // cause the failure. The device only flushed the work requests of these operations.
        let failure = match qp.failure().first {
            Some(work) if work.opcode != Opcode::RdmaWrite => Completion::Flushed,
            // Another thread may have recorded the first failure, so `status` may belong to another
            // work request.
            Some(work) => completion(work.status),
            None => completion(status),
        };
        this.with_link(|link| {
            link.failure.get_or_insert(failure);
        });
        // While a connection is being set up, the thread that sets it up handles the failure.
        if let Some(entered) = this.connection.enter() {
            if entered.state() == State::Up {
                entered.drop_path();
            }
        }
    }
}

/// Converts the status of the first work request that failed:
///
/// - `Refused`: the peer refused an operation. RDS tells the program this.
/// - `Flushed`: the connection failed. RDS discards the operations that were in flight.
/// - `Failed`: any other failure.
fn completion(status: WcStatus) -> Completion {
    match status {
        WcStatus::REMOTE_ACCESS | WcStatus::REMOTE_INVALID_REQUEST => Completion::Refused,
        WcStatus::FLUSHED | WcStatus::RETRY_EXCEEDED | WcStatus::RNR_RETRY_EXCEEDED => {
            Completion::Flushed
        }
        _ => Completion::Failed,
    }
}
