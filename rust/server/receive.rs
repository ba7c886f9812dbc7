// SPDX-License-Identifier: GPL-2.0

//! Processing of messages from the client, until they are passed to the RPC server.

use crate::{
    call::{
        Call,
        Fetched, //
    },
    driver::Rdma,
    events::Events,
    fetch::{
        self,
        Begun,
        Failed, //
    },
    latency::{
        Stage,
        Stamp,
        Tag, //
    },
    memory::{
        self,
        Counted, //
    },
    outbox::{
        Along,
        Outbox, //
    },
    read::{
        Pumped,
        Reads, //
    },
    reverse::Callbacks,
    sizes::{
        Device,
        Sizes, //
    },
    stats::Arrivals,
    ticker::{
        Tended,
        Ticker,
        Watch, //
    }, //
};
use core::sync::atomic::{
    AtomicU32,
    Ordering::Relaxed, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};
use xprtrdma_proto::{
    responder::{
        admit::Terms,
        grant::{
            Grant,
            Overdrawn,
            Ticket, //
        },
        refusal::{
            Blame,
            Refusal,
            VERSION_ERROR_LEN, //
        },
        sort::{
            sort,
            Arrival, //
        }, //
    },
    served::cause::Cause,
    wc,
    Credits, //
};
use xprtrdma_rdma::{
    mr::LocalInvalidation,
    pd::Pd,
    qp::{
        Immediate,
        Qp,
        QpHandler,
        QpOwner,
        Received,
        WcStatus, //
    },
    transfer::{
        Kind,
        Transfer, //
    }, //
};
use xprtrdma_svc::{
    inbox::Inbox,
    reverse::Line,
    sysctl::Counter,
    trace,
    util::{
        PromptQueue,
        WorkQueue, //
    }, //
};

/// The handler of a connection's completions.
pub(crate) struct Handler {
    pub(crate) events: Arc<Events>,
    pub(crate) terms: Terms,
    pub(crate) sizes: Sizes,
    pub(crate) outbox: Outbox,
    pub(crate) watch: Watch,
    ticker: Arc<Ticker<Self>>,
    pub(crate) callbacks: Callbacks,
    pub(crate) arrivals: Arrivals,
    pub(crate) reads: Reads,
    arrival: Stamp,
    /// Number of Receives that the connection has. Only completion handlers change the field.
    receives: AtomicU32,
    inbox: Inbox<Rdma>,
    queue: Arc<WorkQueue>,
}

impl Handler {
    pub(crate) fn new(
        events: &Arc<Events>,
        pd: &Arc<Pd>,
        device: &Device,
        terms: Terms,
        (inbox, line): (Inbox<Rdma>, Line<Rdma>),
        ticker: &Arc<Ticker<Self>>,
        queue: Arc<WorkQueue>,
    ) -> Result<Self> {
        let sizes = device.sizes;
        let mut grant = Grant::new(sizes.grant());
        grant.posted(sizes.first_receives());
        Ok(Self {
            events: events.clone(),
            terms,
            sizes,
            outbox: Outbox::new(grant, sizes.answers())?,
            callbacks: Callbacks::new(&terms, line)?,
            arrivals: Arrivals::new(),
            watch: Watch::new(device.is_iwarp)?,
            ticker: ticker.clone(),
            reads: Reads::new(&sizes, pd, device.reads, events, ticker.clone())?,
            arrival: Stamp::default(),
            receives: AtomicU32::new(sizes.first_receives()),
            inbox,
            queue,
        })
    }

    /// Destroys the queue pair, and drops the calls whose Reads have not completed, the responses
    /// that wait, and the RDMA Writes. Stops counting their pages. `owner` is `None` if the queue
    /// pair was destroyed before. May sleep.
    pub(crate) fn give_up(qp: &Qp<Self>, owner: Option<QpOwner<Self>>) {
        let this = qp.handler();
        let mut written = 0u32;
        if let Some(mut owner) = owner {
            owner.shut_down();
            let posted = qp.sum_transfers(memory::counted_transfer);
            drop(owner);
            // If the device may still use the memory of the Writes, the memory stays allocated and
            // counted.
            let kept = qp.sum_transfers(memory::counted_transfer);
            written = posted.saturating_sub(kept);
        }
        written = written.saturating_add(this.outbox.give_up());
        this.reads.give_back(Some(Counted::of(written)));
        this.reads.give_up();
    }

    /// Records a completed Receive, whose message needs a response. Adds Receives if the client
    /// needs a larger grant. Completion handlers call this function, one at a time.
    #[inline(always)]
    fn begin(qp: ArcBorrow<'_, Qp<Self>>, requested: Option<Credits>) -> Result<Ticket, Overdrawn> {
        let this = qp.handler();
        let mut grant = this.outbox.grant.lock();
        grant.received();
        let ticket = grant.begin(requested)?;
        let receives = grant.receives();
        drop(grant);
        if receives > this.receives.load(Relaxed) {
            Self::grow(qp, receives);
        }
        Ok(ticket)
    }

    /// Adds Receives until the connection has `receives` Receives. If memory is short, the grant
    /// does not grow, and the next call that arrives causes another attempt.
    #[cold]
    fn grow(qp: ArcBorrow<'_, Qp<Self>>, receives: u32) {
        let this = qp.handler();
        let more = receives.saturating_sub(this.receives.load(Relaxed));
        // CAST: `more` is at most `CALLS`.
        if Qp::add_receives(&qp.into(), more as u16, this.sizes.receive()).is_ok() {
            this.receives.store(receives, Relaxed);
            this.outbox.grant.lock().posted(more);
        }
    }

    /// Passes a call, whose data have all arrived, to the RPC server.
    #[inline(always)]
    fn push(&self, mut fetched: Fetched) -> Result {
        fetched.call().since.end(Stage::Read);
        self.pass(fetched)
    }

    /// Passes a call to the RPC server. If the RPC server has forgotten the connection, drops the
    /// call, and returns an error.
    #[inline(always)]
    fn pass(&self, call: Fetched) -> Result {
        let pushed = self.inbox.push(call);
        pushed.map_err(|call| self.reads.drop_late(call, &self.events))
    }

    /// Passes a call to the RPC server, after all Reads of the call have completed. Returns whether
    /// other calls wait. Not inlined: otherwise the caller would save the registers that this
    /// function uses, even if RDMA Writes have completed and this function is not needed.
    #[inline(never)]
    fn fetched(qp: ArcBorrow<'_, Qp<Self>>, transfer: KBox<Transfer>) -> bool {
        let this = qp.handler();
        let (fetched, others_wait) = this.reads.completed(transfer);
        let pushed = fetched.and_then(|fetched| Ok(this.push(fetched)?));
        if let Err(failed) = pushed {
            Self::failed(qp, failed);
        }
        others_wait
    }

    /// Processes calls that wait for memory, or for space in the send queue for their Reads.
    pub(crate) fn pump_reads(qp: &Qp<Self>) -> Result<(), Failed> {
        let this = qp.handler();
        loop {
            if this.events.ending().has_ended() {
                this.reads.stop_waiting();
                return Ok(());
            }
            match this.reads.pump(qp, |fetched| this.push(fetched)) {
                Ok(Pumped::All) => return Ok(()),
                Ok(Pumped::Short) => {
                    // If the connection has ended since the check above, the retry notices it.
                    this.ticker.retry();
                    return Ok(());
                }
                // After a refusal, the loop continues with the calls behind the refused call.
                Err(Failed::Refused(ticket, refusal)) => Self::refuse(qp, ticket, refusal)?,
                Err(failed) => return Err(failed),
            }
        }
    }

    /// Takes back the memory of a finished call, and processes waiting calls.
    pub(crate) fn give_back(qp: ArcBorrow<'_, Qp<Self>>, counted: Counted) {
        qp.handler().reads.give_back(Some(counted));
        Self::go_on(qp);
    }

    /// Refuses a message that cannot be decoded as a call, or a call that is not admitted.
    #[cold]
    fn refuse_message(qp: ArcBorrow<'_, Qp<Self>>, requested: Option<Credits>, refusal: Refusal) {
        match Self::begin(qp, requested) {
            Ok(ticket) => Self::turn_away(qp, ticket, refusal),
            Err(why) => qp.handler().events.end(why.into()),
        }
    }

    /// Counts a message that needs no response, unless the message was expected. The buffer is
    /// posted again when the caller drops the message, so the number of posted Receives stays the
    /// same.
    #[cold]
    fn no_call(qp: ArcBorrow<'_, Qp<Self>>, expected: bool, bytes: &[u8]) {
        let this = qp.handler();
        if !expected {
            this.arrivals.dropped.add(1);
            trace::dropped(&this.events.peer, bytes);
            this.watch.malformed(&this.events);
        }
    }

    /// Refuses a call that cannot be processed, or ends the connection.
    #[cold]
    pub(crate) fn failed(qp: ArcBorrow<'_, Qp<Self>>, failed: Failed) {
        let this = qp.handler();
        let answered = match failed {
            Failed::Refused(ticket, refusal) => Self::refuse(&qp, ticket, refusal),
            Failed::Error(error) => Err(error),
        };
        if answered.is_err() {
            this.events.end(Cause::Unanswerable);
        }
    }

    /// Refuses a call whose message was not kept with [`Received::hold`]. The caller then drops the
    /// message, which posts its Receive again.
    #[cold]
    fn turn_away(qp: ArcBorrow<'_, Qp<Self>>, ticket: Ticket, refusal: Refusal) {
        qp.handler().outbox.grant.lock().posted(1);
        Self::failed(qp, Failed::Refused(ticket, refusal));
    }

    /// Sends an error in response to a call that cannot be processed. Counts the call if the client
    /// is to blame. All errors are sent by this function.
    #[cold]
    pub(crate) fn refuse(qp: &Qp<Self>, ticket: Ticket, refusal: Refusal) -> Result {
        let this = qp.handler();
        let blame = refusal.fault.blame();
        match blame {
            Blame::Malformed => this.watch.malformed(&this.events),
            Blame::Option => this.watch.refuse_option(&this.events),
            Blame::Nothing => {}
        }
        trace::refused(&this.events.peer, refusal.xid.0, refusal.fault.text());
        let answered = this.outbox.answer(
            qp,
            &this.events,
            VERSION_ERROR_LEN,
            Along {
                confirmed: blame == Blame::Option,
                ..Along::default()
            },
            |grant| Ok(grant.refuse(ticket)),
            |granted, buffer| refusal.encode(granted, buffer).map_err(|_| EINVAL),
        );
        answered.map_err(|(error, _)| error)
    }
}

impl QpHandler for Handler {
    fn queue(&self) -> &PromptQueue {
        self.queue.queue()
    }

    #[inline(always)]
    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>) {
        let this = qp.handler();
        this.arrival.set();
        this.arrivals.messages.add(1);
        Counter::Received.add(1);
        let ending = this.events.ending();
        // No further messages are received. Otherwise the client could keep this host busy with
        // messages until a thread of the RPC server closes the connection.
        if ending.has_ended() {
            qp.stop_receiving();
            return;
        }
        ending.heard();
        if message.immediate() != Immediate::None {
            this.events.end(Cause::Malformed);
            return;
        }
        let bytes = message.bytes();
        // Every branch except the first returns from the function. So the compiler need not copy
        // the RPC call.
        let call = match sort(bytes, this.terms.spoken) {
            Arrival::Call(call) => call,
            Arrival::Refuse(refusal) => return Self::refuse_message(qp, None, refusal),
            Arrival::ReverseReply(reply) => {
                return Self::no_call(qp, this.callbacks.replied(&reply), bytes);
            }
            Arrival::ReverseError(xid) => {
                return Self::no_call(qp, this.callbacks.refused(xid), bytes);
            }
            Arrival::Drop(_) => return Self::no_call(qp, false, bytes),
        };
        let len = bytes.len();
        trace::call(&this.events.peer, || {
            let version = call.version().number();
            // CAST: The message has a few kilobytes.
            (call.xid().0, version, len as u32, call.credits().0)
        });
        this.callbacks.heard(call.version(), &this.events);
        let requested = Some(call.credits());
        // The next functions run after the call was admitted, because an admitted call has less
        // state to keep while they run.
        let call = match call.admit(&this.terms) {
            Ok(call) => call,
            Err(refusal) => return Self::refuse_message(qp, requested, refusal),
        };
        let ticket = match Self::begin(qp, requested) {
            Ok(ticket) => ticket,
            Err(why) => return this.events.end(why.into()),
        };
        if let Err(fault) = this.events.check(call.xid()) {
            return Self::turn_away(qp, ticket, call.refuse(fault));
        }
        if call.is_odd() {
            this.arrivals.odd.add(1);
        }
        // Chunks without bytes add nothing to the message.
        let bytes = if call.has_reads() { call.landing() } else { 0 };
        let pages = memory::counted(bytes, call.results(&this.terms));
        let counted = match (bytes, pages) {
            (0, 0) => Some(None),
            (0, pages) => this.reads.take(pages).map(Some),
            _ => None,
        };
        if let Some(counted) = counted {
            let start = fetch::start(&call, len);
            let ready = match call.fetched(&[]) {
                Ok(ready) => ready,
                Err(refusal) => {
                    this.reads.give_back(counted);
                    return Self::turn_away(qp, ticket, refusal);
                }
            };
            let since = this.arrival.end(Stage::Read);
            let call = Call::new(ready.park(), ticket, counted, since);
            let arrived = Fetched::new(message.hold(), start, call);
            let arrived = arrived.inspect_err(|_| this.reads.forget(pages));
            if let Err(error) = arrived.and_then(|call| this.pass(call)) {
                Self::failed(qp, Failed::Error(error));
            }
            return;
        }
        let begun = match bytes {
            0 => Ok(Ok(Begun::waiting(call))),
            _ => {
                this.arrivals.reads.add(1);
                // CAST: A `usize` is at least as wide as a `u32`.
                this.arrivals.read_bytes.add(bytes as usize);
                this.reads.begin(&qp, call, (bytes, pages, len))
            }
        };
        let begun = match begun {
            Ok(Ok(begun)) => begun,
            Ok(Err(refusal)) => return Self::turn_away(qp, ticket, refusal),
            Err(error) => return Self::failed(qp, Failed::Error(error)),
        };
        let received = (message.hold(), ticket, this.arrival.since());
        match this.reads.add(&qp, begun, received, (bytes, pages)) {
            Ok(true) => Self::go_on(qp),
            Ok(false) => {}
            Err(error) => Self::failed(qp, Failed::Error(error)),
        }
    }

    fn transferred(qp: ArcBorrow<'_, Qp<Self>>, transfer: KBox<Transfer>) {
        let this = qp.handler();
        this.watch.completed();
        let may_go_on = if transfer.kind() == Kind::Read {
            Self::fetched(qp, transfer)
        } else {
            Tag::of(&transfer).end();
            this.reads.written(transfer)
        };
        // This function calls `send_space` only if calls of the client wait. If a message waits for
        // space in the send queue, the queue pair calls `send_space` when space becomes free.
        if may_go_on {
            Self::send_space(qp);
        }
    }

    fn invalidated(_qp: ArcBorrow<'_, Qp<Self>>, _token: u64, _proof: &LocalInvalidation) {}

    fn probed(qp: ArcBorrow<'_, Qp<Self>>) {
        qp.handler().watch.completed();
    }

    /// Records that the client's device has received the refusal of an option.
    fn confirmed(qp: ArcBorrow<'_, Qp<Self>>) {
        let watch = &qp.handler().watch;
        watch.completed();
        watch.option_refused();
    }

    fn acknowledged(qp: ArcBorrow<'_, Qp<Self>>) {
        qp.handler().watch.completed();
    }

    fn send_space(qp: ArcBorrow<'_, Qp<Self>>) {
        let this = qp.handler();
        // Waiting responses are posted first. Reads may use only the remaining space of the send
        // queue.
        let pumped = match this.outbox.pump(&qp) {
            Ok(true) => Self::pump_reads(&qp),
            Ok(false) => Ok(()),
            Err(error) => Err(Failed::Error(error)),
        };
        if let Err(failed) = pumped {
            Self::failed(qp, failed);
        }
    }

    fn broken(qp: ArcBorrow<'_, Qp<Self>>, status: WcStatus) {
        let events = &qp.handler().events;
        match Tag::of_oldest(&qp) {
            Some(tag) if status == WcStatus::REMOTE_ACCESS => events.refused(tag.xid()),
            _ => events.end(wc::WcStatus::from_raw(status.0).into()),
        }
    }
}
