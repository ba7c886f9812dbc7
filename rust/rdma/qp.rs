// SPDX-License-Identifier: GPL-2.0

//! Queue pair: [`Qp`] owns a reliable connection's queues and the buffers that the queues use.
//!
//! | Part | Content |
//! | --- | --- |
//! | `life` | creates queue pairs and shuts them down |
//! | `batch` | posts to the send queue |
//! | `flags` | flags of a Send that the driver chooses |
//! | `doorbell` | posts waiting messages together |
//! | `send` | hands work requests to the device, and handles their completions |
//! | `handler` | the trait for handlers of completions |
//! | `outgoing` | a message to send that may invalidate a key of the peer |
//! | `message` | messages that arrive, and the completion that brings them |
//! | `recv` | takes receive buffers back and posts them again |
//! | this file | the queue pair |
//! | `send_queue`, `chain`, `fence`, `recv_queue`, `config` | parts of the queue pair |
//!
//! All completions of a connection arrive at one completion queue and are handled in process
//! context, one at a time ([`crate::cq`]). So handlers need no lock to exclude each other.
//!
//! Lock order: the send queue's lock is taken after the handler's own locks (see [`SendBatch`]).
//! The receive queue's lock is taken last.

mod batch;
mod chain;
mod config;
mod doorbell;
mod fence;
mod fifo;
#[cfg(any(xprtrdma_rds, xprtrdma_kunit))]
mod flags;
mod handler;
mod life;
mod message;
#[cfg(xprtrdma_server)]
mod outgoing;
mod recv;
mod recv_queue;
mod send;
mod send_queue;

pub use crate::wc::WcStatus;
pub use batch::{
    SendBatch,
    SendError, //
};
pub use config::QpConfig;
pub use handler::QpHandler;
pub use life::QpOwner;
pub use message::{
    Held,
    Immediate,
    Received, //
};
#[cfg(xprtrdma_server)]
pub use outgoing::Message;

use self::{
    recv_queue::{
        Chain,
        RecvQueue, //
    },
    send_queue::{
        SendEntries,
        SendQueue, //
    },
};
use crate::{
    cq::{
        Cq, //
        PollOutcome,
    },
    device::{
        DeviceInfo,
        Sendings, //
    },
    failure::{
        FailedWork,
        Failure,
        Reports, //
    },
    pd::Pd, //
};
use core::{
    cell::UnsafeCell,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    },
    workqueue::Work, //
};
use xprtrdma_base::spin::SpinLock;
use xprtrdma_bindings as bindings;

/// The `ib_qp` that was created on the `rdma_cm_id` of a protection domain.
///
/// # Invariants
///
/// `qp` is valid until `gone` is set. Its context is `reports`, which does not move.
struct RawQp {
    qp: NonNull<bindings::ib_qp>,
    /// The context of the queue pair. Rust drops the fields after `drop`, so the context outlives
    /// the queue pair.
    reports: Pin<KBox<Reports>>,
    gone: Atomic<bool>,
    pd: Arc<Pd>,
}

impl RawQp {
    /// Moves the queue pair to the error state. The queue pair must not be destroyed yet. Returns
    /// an error if the device has not changed the state. May sleep.
    fn stop(&self) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
        // SAFETY: The queue pair is valid, and the error state can be entered from every state.
        to_result(unsafe { bindings::ib_modify_qp(self.qp.as_ptr(), &mut attr, mask) })
    }

    /// Destroys the queue pair, which must not be in use any more. Idempotent. May sleep.
    ///
    /// Returns `false` if the device failed to destroy the queue pair: the device may then use the
    /// queue pair's memory for ever. Only the first call can return `false`. `rdma_destroy_qp()`
    /// does not report this failure. But after this failure, the queue pair still uses its
    /// completion queue `cq`. So this function checks whether `cq` is still used.
    #[must_use]
    fn destroy(&self, cq: &Cq) -> bool {
        if self.gone.xchg(true, Full) {
            return true;
        }
        // SAFETY: The queue pair was created on this id and is destroyed once; the id lives as long
        // as `pd`.
        unsafe { bindings::rdma_destroy_qp(self.pd.id().as_raw()) };
        let gone = !cq.is_used();
        if !gone {
            // LOG: A fault of the device or its driver. All memory that the queue pair may use is
            // never freed.
            pr_err!("the device has not destroyed a queue pair: its memory is lost\n");
        }
        gone
    }
}

/// A queue pair of a reliable connection with its completion queue, rings and handler.
///
/// The connection exists as long as the [`QpOwner`] that [`Qp::create`] returns. The last reference
/// must be dropped where the thread may sleep.
///
/// # Invariants
///
/// - The object is in an [`Arc`].
/// - `send_cqes` and the entries in the tables of `rq` exist as long as the queues. Apart from the
///   entries of the drain, they are the only completion entries of work requests on the queue pair.
/// - Handlers run only while the owner exists. The owner holds a reference, so a handler may create
///   another reference from its borrowed reference.
/// - The work queue of `handler` outlives `cq`: a `PromptQueue` is always borrowed, so `handler`
///   keeps the owner of the queue alive. `handler` never changes, and is dropped after `cq`.
/// - The `ib_qp` is used only under the lock of an open queue, or by `shutdown`, which closes both
///   queues.
/// - Each buffer of the tables of `rq` is in one of four places: it is posted, it is in `free`, it
///   is in the receive queue's `returned`, or it belongs to one [`Received`] or [`Held`]. No table
///   is removed.
/// - Only completion handlers use `free`, and write `taken`, `held` and `flushed`. They never run
///   at the same time, because all completions arrive at `cq`.
/// - `held` counts the objects of type [`Held`] that were made, and `given_back` those that were
///   dropped, modulo 2^32. While the numbers differ, the owner exists, or `own` in the receive
///   queue is a reference to this object.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::{Arc, ArcBorrow}};
/// # use xprtrdma_base::{lend::Lender, queue::{PromptQueue, WorkQueue}};
/// # use xprtrdma_rdma::{mr::{ExposedMr, LocalInvalidation}, pd::Pd, qp::*};
/// struct Client {
///     queue: WorkQueue,
/// }
///
/// impl QpHandler for Client {
///     fn queue(&self) -> &PromptQueue {
///         self.queue.queue()
///     }
///
///     fn received(_: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>) {
///         if message.immediate() == Immediate::None {
///             // Keeps the buffer beyond the handler.
///             let held: Held<Self> = message.hold();
///             pr_info!("a message of {} bytes\n", held.bytes().len());
///         }
///     }
///
///     fn broken(_: ArcBorrow<'_, Qp<Self>>, status: WcStatus) {
///         pr_info!("a work request failed with status {}\n", status.0);
///     }
///
/// // This example does not need the other calls.
///     fn invalidated(_: ArcBorrow<'_, Qp<Self>>, _: u64, _: &LocalInvalidation) {}
///     fn probed(_: ArcBorrow<'_, Qp<Self>>) {}
///     fn confirmed(_: ArcBorrow<'_, Qp<Self>>) {}
///     fn acknowledged(_: ArcBorrow<'_, Qp<Self>>) {}
///     fn send_space(_: ArcBorrow<'_, Qp<Self>>) {}
/// }
///
/// fn create(pd: &Arc<Pd>) -> Result<QpOwner<Client>> {
///     let config = QpConfig {
///         send_bytes: 4096,
///         least_send_bytes: 4096,
///         send_wrs: 64,
///         signal_every: 16,
///         message_wrs: 4,
///         waiting_wrs: 4,
///         recv_count: 16,
///         recv_batch: 4,
///         recv_more: 0,
///         recv_size: 1024,
///     };
///     let queue = WorkQueue::new(c"example")?;
///     Qp::create(pd, &config, Client { queue })
/// }
///
/// /// Posts the registrations of `regions`, and after them a Send of `message`.
/// fn send<L: Lender>(qp: &Qp<Client>, message: &[u8], regions: &mut [ExposedMr<L>]) -> Result {
///     let wrs = regions.len() as u32 + 1;
///     let mut batch: SendBatch<'_, Client> = match qp.begin(message.len(), wrs) {
///         Ok(batch) => batch,
///         Err(SendError::Full) => return Err(EAGAIN),
///         Err(SendError::Closed) => return Err(ENOTCONN),
///     };
///     batch.buffer()[..message.len()].copy_from_slice(message);
///     batch.post(message.len(), regions)
/// }
/// ```
#[pin_data]
pub struct Qp<H: QpHandler> {
    broken: Atomic<bool>,
    down: Atomic<bool>,
    send_cqes: SendEntries,
    // The next fields are in the order of teardown: the queue pair, the completion queue, the work
    // queue, and then the memory that the queue pair and the completion queue used.
    raw: RawQp,
    cq: Pin<KBox<Cq>>,
    handler: H,
    #[pin]
    sq: SpinLock<SendQueue>,
    #[pin]
    rq: SpinLock<RecvQueue<Self>>,
    /// The number that identifies the next doorbell for waiting messages. Written under the lock of
    /// `sq`.
    doorbell: Atomic<u32>,
    /// The work item that rings the doorbell for waiting messages. If the work item is cancelled
    /// after `sq` was closed, it is never queued again.
    #[pin]
    doorbell_work: Work<Qp<H>>,
    /// Free receive buffers: the handlers of the messages in these buffers have returned.
    free: UnsafeCell<Chain>,
    /// When `free` contains this number of buffers, they are posted together. So fewer than this
    /// number of buffers remain unposted, and the promised number of Receives stays posted even if
    /// no further message arrives.
    free_batch: u32,
    /// When the receive queue's list `returned` contains this number of buffers, they are posted
    /// together. So fewer than this number of buffers in the list remain unposted.
    returned_batch: u32,
    /// Number of Receives that have completed, modulo 2^32.
    taken: Atomic<u32>,
    /// Number of objects of type [`Held`] that were made, modulo 2^32.
    held: Atomic<u32>,
    /// Number of objects of type [`Held`] that were dropped, modulo 2^32. Written under the lock of
    /// `rq`.
    given_back: Atomic<u32>,
    /// Whether a Receive was flushed, which shows that the queue pair is in the error state.
    flushed: Atomic<bool>,
    /// The values that the device's counters of repeated and failed transmissions had when the
    /// queue pair was created.
    sendings: Sendings,
    /// The number of the protection domain, or `NO_PD` if the device's reports of invalidations are
    /// not trusted. If the reports are trusted, a message on this queue pair can prove that a
    /// region in this domain was invalidated.
    proof_pd: usize,
    pd: Arc<Pd>,
}

// SAFETY: Any thread may use verbs objects. All other fields are `Send`.
unsafe impl<H: QpHandler> Send for Qp<H> {}

// SAFETY: The queues are behind locks. Several threads may post to an `ib_qp` at the same time. `H`
// is `Sync`. By the type invariant, only one thread at a time uses `free`. Threads that do not own
// a buffer use only the address of the buffer.
unsafe impl<H: QpHandler> Sync for Qp<H> {}

impl<H: QpHandler> Qp<H> {
    /// Returns the handler of completions.
    #[inline]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Returns the protection domain, in which regions can be allocated.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Handles completions in the calling thread until `is_over` returns true.
    ///
    /// Returns immediately if `may` returns false, or if another thread or a worker already handles
    /// completions. Returns early if a signal is pending, the thread has to freeze, the connection
    /// ends, or [`Qp::stop_polling`] is called.
    ///
    /// Handlers may make `is_over` true. Any other thread that makes it true must then call
    /// [`Qp::stop_polling`]. This function must not be called by a handler, nor by a thread that
    /// holds a lock that handlers take. May sleep, but `may` and `is_over` must not sleep.
    #[inline]
    pub fn busy_poll(&self, may: impl FnOnce() -> bool, is_over: impl Fn() -> bool) -> PollOutcome {
        self.cq.busy_poll(may, is_over)
    }

    /// Stops a thread that polls or is about to poll: from now on the work item handles
    /// completions. When this function is called, the closure `may` that the thread passes to
    /// [`Qp::busy_poll`] must already return false. May be called in any context.
    #[inline]
    pub fn stop_polling(&self) {
        self.cq.stop_polling();
    }

    /// Returns the device's reports about a failure, including those that arrive during the
    /// shutdown.
    pub fn failure(&self) -> Failure {
        self.raw.reports.seen()
    }

    #[cfg(xprtrdma_kunit)]
    pub(crate) fn raw_qp(&self) -> *mut bindings::ib_qp {
        self.raw.qp.as_ptr()
    }

    fn report_broken(this: ArcBorrow<'_, Self>, work: FailedWork) {
        this.raw.reports.failed(work);
        if !this.broken.xchg(true, Relaxed) {
            this.look_for_repetition(work);
            H::broken(this, work.status);
        }
    }

    /// Checks whether the queue pair has failed because its device executed a registration a second
    /// time while the region was valid. Called by the handlers of failed completions, without
    /// locks. May sleep.
    ///
    /// rxe does not report such a failure: it flushes all work requests (`rxe_requester()` stores
    /// the status in the work request, and `rxe_completer()` flushes it). But the counters show
    /// that rxe has sent work requests again. Other failures of a queue pair can be told from this
    /// one: each of them is reported by a status or an event, is caused by this host, or is counted
    /// as a packet that could not be sent.
    ///
    /// There are two exceptions: rxe has no memory for a packet, or receives a malformed request
    /// from the peer. If rxe has also sent work requests again before one of these two failures,
    /// the failure is mistaken for a repeated registration.
    #[cold]
    fn look_for_repetition(&self, work: FailedWork) {
        if work.status != WcStatus::FLUSHED || !self.pd.executes_again() {
            return;
        }
        let unfenced = {
            let sq = self.sq.lock();
            sq.unfenced && !sq.closed
        };
        if !unfenced || self.failure().event.is_some() {
            return;
        }
        if !self.pd.sendings().may_have_repeated(self.sendings) {
            return;
        }
        self.raw.reports.repeated();
        if self.pd.has_repeated() {
            let device = DeviceInfo::of(self.pd.id());
            let name = device.as_ref().map_or("?", DeviceInfo::name);
            // LOG: See the entry about rxe in `Documentation/reliability.rst`.
            pr_info!(
                "{name} has executed a registration again, and lost a connection by that; from now \
                 on registrations wait there for what was sent before (registration_fence)\n"
            );
        }
    }
}
