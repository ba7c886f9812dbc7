// SPDX-License-Identifier: GPL-2.0

//! Queue pair: [`Qp`] owns a reliable connection's queues and the buffers behind them.
//!
//! | Part | What is there |
//! | --- | --- |
//! | `life` | creates queue pairs and shuts them down |
//! | `batch` | posts to the send queue |
//! | `doorbell` | posts waiting messages together |
//! | `send` | hands work requests to the device, and handles their completions |
//! | `handler` | the trait for handlers of completions |
//! | `message` | messages that arrive, and the completion that brings them |
//! | `recv` | takes receive buffers back and posts them again |
//! | this file | the queue pair |
//! | `send_queue`, `chain`, `fence`, `recv_queue`, `config` | parts of the queue pair |
//!
//! All completions of a connection arrive at one completion queue and are handled in process
//! context, one at a time ([`crate::cq`]). So the handlers need no lock among themselves.
//!
//! Lock order: the send queue's lock is taken inside of the handler's own locks (see
//! [`SendBatch`]), the receive queue's lock is a leaf.

mod batch;
mod chain;
mod config;
mod doorbell;
mod fence;
mod fifo;
mod handler;
mod life;
mod message;
mod recv;
mod recv_queue;
mod send;
mod send_queue;

pub use crate::wc::WcStatus;
#[cfg(xprtrdma_server)]
pub use batch::Message;
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

use self::{
    recv_queue::{
        Chain,
        RecvBuf,
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
    /// The context of the queue pair. Outlives it, because fields are dropped after `drop` ran.
    reports: Pin<KBox<Reports>>,
    gone: Atomic<bool>,
    pd: Arc<Pd>,
}

impl RawQp {
    /// Moves the queue pair, which is not destroyed yet, to the error state. Returns an error if
    /// the device has not done so. May sleep.
    fn stop(&self) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
        // SAFETY: The queue pair is valid, and the error state can be entered from every state.
        to_result(unsafe { bindings::ib_modify_qp(self.qp.as_ptr(), &mut attr, mask) })
    }

    /// Destroys the queue pair, which is not used any more. Idempotent. May sleep.
    ///
    /// Returns `false`, on the first call only, if the device failed to destroy the queue pair: the
    /// device may then use the queue pair's memory for ever. `rdma_destroy_qp()` reports no error;
    /// a failure shows because the queue pair still uses `cq`, its completion queue.
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
            pr_err!("the device has not destroyed a queue pair: its memory is lost\n");
        }
        gone
    }
}

/// A queue pair of a reliable connection with its completion queue, rings and handler.
///
/// Its connection lives as long as the [`QpOwner`] that [`Qp::create`] returns. The last handle
/// must be dropped where it may sleep.
///
/// # Invariants
///
/// - The object is in an [`Arc`].
/// - `send_cqes` and those in `recvs` are the only completion entries of work requests on the queue
///   pair, apart from those of the drain; they live as long as the queues.
/// - Handlers run only while the owner exists, which holds a reference: so a reference can be made
///   of the one that they borrow.
/// - The work queue that `handler` named outlives `cq`: a [`Queue`] is always borrowed, so
///   `handler` keeps the queue's owner alive; `handler` never changes, and is dropped after `cq`.
/// - The queue pair is used under the lock of an open queue, or by `shutdown`, which closes both.
/// - A buffer of `recvs` is either posted, or in `free` or in the receive queue's `returned`, or
///   belongs to one [`Received`] or [`Held`].
/// - `free` is used, and `taken` and `flushed` written, by completion handlers only. They never run
///   at the same time: all completions arrive at `cq`, which sees to that.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::{Arc, ArcBorrow}, workqueue::Queue};
/// # use xprtrdma_base::{lend::Lender, queue::WorkQueue};
/// # use xprtrdma_rdma::{mr::{ExposedMr, LocalInvalidation}, pd::Pd, qp::*};
/// struct Client {
///     queue: WorkQueue,
/// }
///
/// impl QpHandler for Client {
///     fn queue(&self) -> &Queue {
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
///     // What has no use here.
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
///         recv_size: 1024,
///     };
///     let queue = WorkQueue::new(c"example")?;
///     Qp::create(pd, &config, Client { queue })
/// }
///
/// /// Sends a message behind the registrations of the regions that it tells of.
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
    // Teardown order: queue pair, completion queue, then the work queue and memory that both used.
    raw: RawQp,
    cq: Pin<KBox<Cq>>,
    handler: H,
    #[pin]
    sq: SpinLock<SendQueue>,
    #[pin]
    rq: SpinLock<RecvQueue>,
    /// Number of the next doorbell for waiting messages. Written under the lock of `sq`.
    doorbell: Atomic<u32>,
    /// The work item that rings the doorbell for waiting messages. It is no longer queued after
    /// `sq` was closed and the work item was cancelled.
    #[pin]
    doorbell_work: Work<Qp<H>>,
    recvs: KVVec<RecvBuf<Self>>,
    /// Buffers of messages whose handlers have ended.
    free: UnsafeCell<Chain>,
    /// Number of buffers of `free` that are posted together; `returned_batch` is the same for the
    /// receive queue's `returned`. Each list may keep fewer buffers than its batch unposted: so the
    /// promised number of Receives is posted even if no further message arrives.
    free_batch: u32,
    returned_batch: u32,
    /// How many Receives have completed, modulo 2^32.
    taken: Atomic<u32>,
    /// A Receive was flushed: the queue pair is in the error state.
    flushed: Atomic<bool>,
    /// The device's counters when the queue pair was created.
    sendings: Sendings,
    /// Number of the protection domain in which a message can prove that a region was invalidated.
    proof_pd: usize,
    pd: Arc<Pd>,
}

// SAFETY: Verbs objects have no thread affinity; the rest is `Send`.
unsafe impl<H: QpHandler> Send for Qp<H> {}

// SAFETY: The queues are behind locks, posting is safe from several threads, `H` is `Sync`. `free`
// is used by one thread at a time by the type invariant; of the buffers only their owner uses more
// than addresses.
unsafe impl<H: QpHandler> Sync for Qp<H> {}

impl<H: QpHandler> Qp<H> {
    /// The handler.
    #[inline]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// The protection domain, for allocating regions.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Handles completions in the calling thread until `is_over`, which a handler makes true.
    /// Returns earlier when a signal is pending, the thread has to freeze, [`Qp::stop_polling`] is
    /// called or the connection ends. Returns at once if `may` is false, or if another thread or a
    /// worker handles completions already. Must not be called by a handler, nor with a lock that
    /// handlers take. Sleeps; `may` and `is_over` must not.
    #[inline]
    pub fn busy_poll(&self, may: impl FnOnce() -> bool, is_over: impl Fn() -> bool) -> PollOutcome {
        self.cq.busy_poll(may, is_over)
    }

    /// Stops a thread that polls, or is about to: the work item handles completions from now on.
    /// Called after its `may` has become false. From any context.
    #[inline]
    pub fn stop_polling(&self) {
        self.cq.stop_polling();
    }

    /// What the device has told of a failure. Whatever is seen while the connection is ended is in
    /// it, too.
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

    /// Finds out whether the queue pair has failed because its device executed a registration again
    /// while the region was valid.
    ///
    /// rxe then gives all work requests back as flushed and does not say why (`rxe_requester()`
    /// puts the status into the work request, and `rxe_completer()` flushes it). Its counters tell
    /// that it has sent again. Whatever else ends a queue pair there comes with a status or an
    /// event, or from this side, or is counted as a packet that could not be sent; apart from a
    /// lack of memory for a packet and malformed requests of the peer, which are taken for this if
    /// something was sent again as well.
    ///
    /// Called by handlers of failed completions, without locks: may sleep.
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
            pr_info!(
                "{name} has executed a registration again, and lost a connection by that; from now \
                 on registrations wait there for what was sent before (registration_fence)\n"
            );
        }
    }
}
