// SPDX-License-Identifier: GPL-2.0

//! The completion handler: messages from the peer, and completed operations ([`Handler`]).

use crate::{
    driver::Rds,
    link::Link,
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
    workqueue::Queue, //
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
        may_log,
        no_buffers,
        not_connected,
        protocol_error,
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
        Assembly,
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

/// The fragments of an incomplete message that have arrived so far.
#[derive(Default)]
struct Inflow {
    assembly: Assembly,
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

    /// Handles a received fragment. Returns true if the caller must send an acknowledgement. After
    /// an error no further fragment is accepted, and the caller must drop the connection.
    fn fragment(&self, fragment: &[u8]) -> Result<bool> {
        let taken = self.take(fragment);
        if let Err(error) = taken {
            self.inflow.lock().assembly.end();
            if error == no_buffers() {
                Event::NoRoom.count();
                if may_log() {
                    pr_warn!(
                        "no room for messages: the connection with {} ends (max_recv_allocation)\n",
                        Show(&self.connection.peer())
                    );
                }
            }
        }
        taken
    }

    fn take(&self, fragment: &[u8]) -> Result<bool> {
        let Ok((header, payload)) = Header::decode(fragment) else {
            return Err(protocol_error());
        };
        let mut inflow = self.inflow.lock();
        let Ok(part) = inflow.assembly.take(&header, payload.len()) else {
            return Err(protocol_error());
        };
        // The header is handled before the message is delivered. The message may refer to a region
        // to which an earlier message still holds a reference. If the header acknowledges that
        // earlier message, the reference is dropped first.
        let mut due = self.heard(&header)?;
        match part {
            Part::Acknowledgement => {}
            Part::Map { at, last } => {
                let entered = self.connection.enter().ok_or_else(not_connected)?;
                inflow.map(&entered, payload, at == 0, last)?;
            }
            Part::Message { at, last } => {
                // If no memory is available, the message is neither accepted nor acknowledged. So
                // the peer sends the message again on the next connection.
                let mut message = match at {
                    0 => Incoming::new(header.len as usize)?,
                    _ => inflow.message.take().ok_or_else(protocol_error)?,
                };
                message.append(payload)?;
                if !last {
                    inflow.message = Some(message);
                    return Ok(due);
                }
                let entered = self.connection.enter().ok_or_else(not_connected)?;
                let bytes = fragment
                    .first_chunk::<HEADER_BYTES>()
                    .ok_or_else(protocol_error)?;
                // RDS drops a repeated message, so it does not answer a repeated ping. A repeated
                // ping does not use up the limit on pings.
                let repeated =
                    header.has(RETRANSMITTED) && header.sequence < entered.next_sequence();
                let may_go = || self.with_link(Link::ping) != Some(false);
                if !is_ping(&header) || repeated || may_go() {
                    entered.deliver(bytes, message);
                }
                let (sequence, required) = (header.sequence, header.has(ACK_REQUIRED));
                let received = move |link: &mut Link<_>| {
                    link.owed.received(sequence, required);
                    link.is_frame_due()
                };
                due = self.with_link(received) == Some(true);
            }
        }
        Ok(due)
    }

    /// Handles the acknowledgement and the credits in a received header. Also counts the Receive
    /// that the fragment has used, because it will be posted again. Returns true if an
    /// acknowledgement is due.
    #[inline(always)]
    fn heard(&self, header: &Header) -> Result<bool> {
        let (ack, credit) = (header.ack, header.credit);
        let heard = self.with_link(move |link| {
            link.credits.posted(1);
            link.credits.granted(credit)?;
            link.acknowledged.heard(ack, link.sent);
            Ok::<_, Fault>((link.advance(), link.is_frame_due()))
        });
        let Some((news, due)) = heard.transpose().map_err(|_| protocol_error())? else {
            return Ok(false);
        };
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
        Ok(due)
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
    fn queue(&self) -> &Queue {
        self.queue.queue()
    }

    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>) {
        let this = qp.handler();
        // A message that invalidates a key, or that carries immediate data, is a protocol error.
        // Only the owner of a region revokes the region.
        let taken = match (message.immediate(), message.invalidation()) {
            (Immediate::None, None) => this.fragment(message.bytes()),
            _ => {
                this.inflow.lock().assembly.end();
                Err(protocol_error())
            }
        };
        // Dropping the message posts its buffer again.
        drop(message);
        match taken {
            Ok(true) => acknowledge(&this.connection),
            Ok(false) => {}
            Err(_) => this.connection.drop_path(),
        }
    }

    fn transferred(qp: ArcBorrow<'_, Qp<Self>>, transfer: KBox<Transfer>) {
        let this = qp.handler();
        let kind = transfer.kind();
        let (pages, mut spare) = Transfer::end(transfer);
        // `news` is a sequence number. All messages up to this number were acknowledged, and their
        // operations have completed. Only this thread passes the number to RDS. So it can first
        // report the status of this operation.
        let ended = this.with_link(|link| {
            link.keep_spare(&mut spare);
            (link.take_posted(), link.advance())
        });
        let Some((Some(posted), news)) = ended else {
            return;
        };
        let holds_message = posted.holds_message;
        let copied = match (kind, pages) {
            (Kind::Read, Some(mut pages)) => {
                let len = posted.bytes as usize;
                pages.change(0, len, |at, part| {
                    posted.message.copy_to_operation(at, part)
                })
            }
            _ => Ok(()),
        };
        posted.end(match copied {
            Ok(()) => Completion::Done,
            Err(_) => Completion::Failed,
        });
        if news.is_none() && !holds_message {
            return;
        }
        let Some(entered) = this.connection.enter() else {
            return;
        };
        if let Some(sequence) = news {
            entered.acknowledged(sequence);
        }
        if holds_message {
            entered.wake_sender();
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
        // cause the failure. Their work requests were only flushed.
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

/// Converts the status of the first work request that failed. If the peer refused an operation, the
/// program is told that the peer refused the operation. If the connection failed, RDS discards the
/// operations that were in flight.
fn completion(status: WcStatus) -> Completion {
    match status {
        WcStatus::REMOTE_ACCESS | WcStatus::REMOTE_INVALID_REQUEST => Completion::Refused,
        WcStatus::FLUSHED | WcStatus::RETRY_EXCEEDED | WcStatus::RNR_RETRY_EXCEEDED => {
            Completion::Flushed
        }
        _ => Completion::Failed,
    }
}
