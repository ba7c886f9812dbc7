// SPDX-License-Identifier: GPL-2.0

//! Queue pair: [`Qp`] owns a reliable connection's queues and the buffers behind them.
//!
//! | Part | What is there |
//! | --- | --- |
//! | this file | the life of a queue pair: made, shut down, destroyed |
//! | `handler` | who is told of completions |
//! | `send` | the send queue, and its completions |
//! | `batch` | posts to it |
//! | `doorbell` | messages that wait to be posted together |
//! | `recv` | the receive buffers, and how they are posted again |
//! | `message` | messages that arrive, and the completion that brings them |
//!
//! All completions of a connection arrive at one completion queue and are handled in process
//! context, one at a time ([`crate::cq`]). So the handlers need no lock among themselves.
//!
//! Lock order: the send queue's lock is taken inside of the handler's own locks (see
//! [`SendBatch`]), the receive queue's lock is a leaf.

mod batch;
mod doorbell;
mod fifo;
mod handler;
mod message;
mod recv;
mod send;

pub use batch::{
    SendBatch,
    SendError, //
};
pub use handler::{
    QpHandler,
    WcStatus, //
};
pub use message::{
    Held,
    Immediate,
    Received, //
};

use self::{
    recv::{
        Chain,
        RecvBuf,
        RecvQueue, //
    },
    send::{
        send_done,
        SendEntry,
        SendQueue, //
    },
};
use crate::{
    cq::{
        Attended,
        Cq, //
    },
    failure::{
        self,
        Failure,
        Reports,
        Side, //
    },
    mr::{
        FIRST_DOORBELL,
        NO_PD, //
    },
    pd::Pd, //
};
use core::{
    cell::UnsafeCell,
    ops::Deref,
    ptr::{self, NonNull}, //
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
        ArcBorrow,
        UniqueArc, //
    },
    types::Opaque,
    workqueue::{
        new_work,
        Work, //
    },
};
use xprtrdma_base::{
    new_spinlock,
    spin::SpinLock, //
};
use xprtrdma_bindings as bindings;

/// Sizes of a [`Qp`].
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Octets of the send ring, which is one piece of memory.
    pub send_bytes: usize,
    /// With too little memory in one piece it is smaller, but not than this: at least four times the longest
    /// message.
    pub least_send_bytes: usize,
    /// Work requests of the send queue.
    pub send_wrs: u32,
    /// At least every so many work requests one is signalled.
    pub signal_every: u32,
    /// Work requests of the longest message, with its registrations.
    pub message_wrs: u16,
    /// With more work requests than that waiting for the doorbell, it is rung.
    pub waiting_wrs: u16,
    /// Receives to keep posted.
    pub recv_count: u16,
    /// Receives that may be waiting to be posted again at a time.
    pub recv_batch: u16,
    /// Octets of one Receive.
    pub recv_size: usize,
}

/// The queue pair of an id.
///
/// # Invariants
///
/// `qp` is valid until `gone` is set. Its context is `reports`, which does not move.
struct RawQp {
    qp: NonNull<bindings::ib_qp>,
    /// Outlives the queue pair: the fields go after `drop`.
    reports: Pin<KBox<Reports>>,
    gone: Atomic<bool>,
    pd: Arc<Pd>,
}

impl RawQp {
    /// Destroys the queue pair, which nobody uses any more. Idempotent. May sleep.
    fn destroy(&self) {
        if !self.gone.xchg(true, Full) {
            // SAFETY: The queue pair was created on this id and is destroyed once; the id lives as
            // long as `pd`.
            unsafe { bindings::rdma_destroy_qp(self.pd.id().as_raw()) }
        }
    }
}

impl Drop for RawQp {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// A queue pair of a reliable connection with its completion queue, rings and handler.
///
/// Its connection lives as long as the [`QpOwner`] that [`Qp::create`] returns. The last handle must be
/// dropped where it may sleep.
///
/// # Invariants
///
/// - The object is in an [`Arc`].
/// - `send_cqe` and those in `recvs` are the only completion entries of work requests on the queue
///   pair, apart from those of the drain; they live as long as the queues.
/// - Handlers run only while the owner exists, which holds a reference: so a reference can be made
///   of the one that they borrow.
/// - The work queue that `handler` named outlives `cq`: a [`Queue`] is always borrowed, so `handler`
///   keeps whatever owns it; `handler` is never changed, and dropped after `cq`.
/// - The queue pair is used under the lock of an open queue, or by `shutdown`, which closes both.
/// - A buffer of `recvs` is either posted, or in `free` or in the receive queue's `returned`, or
///   belongs to one [`Received`] or [`Held`].
/// - `free` is used, and `taken` written, by completion handlers only. They never run at the same
///   time: all completions arrive at `cq`, which sees to that.
#[pin_data]
pub struct Qp<H: QpHandler> {
    broken: Atomic<bool>,
    down: Atomic<bool>,
    send_cqe: SendEntry,
    // Teardown order: queue pair, completion queue, then what they used: work queue and memory.
    raw: RawQp,
    cq: Pin<KBox<Cq>>,
    handler: H,
    #[pin]
    sq: SpinLock<SendQueue>,
    #[pin]
    rq: SpinLock<RecvQueue>,
    /// The number of the next doorbell for messages that wait; written under the lock of `sq`.
    doorbell: Atomic<u32>,
    /// Rings it; not queued once `sq` is closed and this was taken back.
    #[pin]
    bell: Work<Qp<H>>,
    recvs: KVVec<RecvBuf<H>>,
    /// Buffers of messages that ended with their handlers.
    free: UnsafeCell<Chain>,
    /// So many of `free`, or of the receive queue's `returned`, are posted together. What can wait in
    /// both is less than a batch: what was promised is posted even if no further message comes.
    free_batch: u32,
    returned_batch: u32,
    /// How many messages ever came, modulo 2^32.
    taken: Atomic<u32>,
    /// Of which domain a message proves that it invalidated a region.
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
    /// Creates the queue pair of the id behind `pd`, with all buffers, and posts all Receives.
    /// May sleep.
    ///
    /// `EBUSY` if the id has had a queue pair before, `EINVAL` if messages or Receives have no octets.
    pub fn create(pd: &Arc<Pd>, config: &QpConfig, handler: H) -> Result<QpOwner<H>> {
        pd.id().claim_qp()?;
        // Nothing can fail behind the buffers: what is made before them goes in the order of its use.
        let place = UniqueArc::new_uninit(GFP_KERNEL)?;
        let recvs = u32::from(config.recv_count) + u32::from(config.recv_batch);
        // One more of each for the drain.
        let (send_wr, recv_wr) = (config.send_wrs + 1, recvs + 1);
        let cqe = c_int::try_from(send_wr + recv_wr)?;
        // SAFETY: The device of a resolved id exists while `pd` does. By the type invariant of what is
        // made here the work queue outlives it.
        let cq = unsafe { Cq::new(pd.raw_device(), cqe, handler.queue()) }?;
        let reports = KBox::pin(Reports::new(), GFP_KERNEL)?;
        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(failure::event),
            qp_context: ptr::from_ref(&*reports).cast_mut().cast(),
            send_cq: cq.as_raw(),
            recv_cq: cq.as_raw(),
            cap: bindings::ib_qp_cap {
                max_send_wr: send_wr,
                max_recv_wr: recv_wr,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            port_num: u32::MAX,
            ..Default::default()
        };
        let id = pd.id().as_raw();
        // SAFETY: Id, domain and completion queue are valid and on one device.
        to_result(unsafe { bindings::rdma_create_qp(id, pd.as_raw(), &mut attr) })?;
        // SAFETY: A successful call has set the id's queue pair.
        let qp = unsafe { (*id).qp };
        let raw = RawQp {
            qp: NonNull::new(qp).ok_or(ENOMEM)?,
            reports,
            gone: Atomic::new(false),
            pd: pd.clone(),
        };
        let sq = SendQueue::new(pd, config)?;
        let recvs = RecvBuf::table(pd, config)?;
        let batch = u32::from(config.recv_batch);
        let qp = UniqueArc::pin_init_with(
            place,
            pin_init!(Self {
                broken: Atomic::new(false),
                down: Atomic::new(false),
                send_cqe: SendEntry {
                    cqe: Opaque::new(bindings::ib_cqe { done: Some(send_done::<H>) }),
                    ptr: UnsafeCell::new(ptr::null_mut()),
                },
                raw,
                cq,
                handler,
                sq <- new_spinlock!(sq, "Qp::sq"),
                doorbell: Atomic::new(FIRST_DOORBELL),
                bell <- new_work!("Qp::bell"),
                rq <- new_spinlock!(RecvQueue {
                    returned: Chain::EMPTY,
                    posted: 0,
                    closed: false,
                    failed: false,
                }, "Qp::rq"),
                recvs: RecvBuf::bind(recvs),
                free: UnsafeCell::new(Chain::EMPTY),
                free_batch: batch - batch / 4,
                returned_batch: batch / 4 + 1,
                taken: Atomic::new(0),
                proof_pd: match pd.believes_invalidations() {
                    true => pd.as_raw() as usize,
                    false => NO_PD,
                },
                pd: pd.clone(),
            }),
        )?;
        let qp = QpOwner(qp.into());
        let this = Arc::as_ptr(&qp.0);
        // SAFETY: A field of a valid value.
        let cqe = unsafe { &raw const (*this).send_cqe.cqe };
        // CAST: `Opaque` is transparent.
        // SAFETY: Nobody else has the queue pair yet.
        unsafe { *qp.send_cqe.ptr.get() = cqe.cast_mut().cast() };
        let mut all = Chain::EMPTY;
        for buf in &qp.recvs {
            // SAFETY: As above.
            unsafe { *buf.qp.get() = this };
            // SAFETY: Nobody else has them yet.
            unsafe { all.push(buf) };
        }
        qp.post_recvs(&mut qp.rq.lock(), all)?;
        Ok(qp)
    }

    /// The handler.
    #[inline]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// The protection domain, for allocating regions.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Handles completions in the calling thread until `is_over`, which a handler will bring about, with a
    /// full barrier. Returns earlier when a signal is pending, when the thread shall freeze, when
    /// [`Qp::dismiss`] is called, when the connection ends, or at once if it may not or another thread does
    /// this already. Must not be called by a handler, nor with a lock that handlers take. Sleeps; `may` and
    /// `is_over` must not.
    #[inline]
    pub fn attend(&self, may: impl FnOnce() -> bool, is_over: impl Fn() -> bool) -> Attended {
        self.cq.attend(may, is_over)
    }

    /// Sends a thread away that attends, or is about to: others, which may not wait for it, will want
    /// completions handled from now on. Called behind what makes its `may` false. From any context.
    #[inline]
    pub fn dismiss(&self) {
        self.cq.dismiss();
    }

    /// Ends the connection and waits until every work request has completed and its handler has
    /// returned. Afterwards nothing can be posted and the peer reaches nothing through this queue
    /// pair. Idempotent. May sleep; must not be called by the handler.
    fn shutdown(this: &Arc<Self>) {
        this.sq.lock().closed = true;
        this.rq.lock().closed = true;
        if this.down.xchg(true, Full) {
            return;
        }
        this.cq.close();
        // What waits is not posted any more, and nothing is queued from here on.
        Self::take_bell_back(this);
        // An error means that there was no connection: the drain moves the queue pair itself.
        let _ = this.pd.id().disconnect();
        // SAFETY: The queue pair is valid; each queue has a spare entry, and nobody else posts.
        unsafe { bindings::ib_drain_qp(this.raw.qp.as_ptr()) };
        // At once, for a provider may keep references to regions in the queue pair. Nobody uses it
        // any more: both queues are closed.
        this.raw.destroy();
        // Nothing completes any more, but if the drain has failed a handler may be at work.
        this.cq.stop();
        this.pd.set_drained();
    }

    /// What the device has told of a failure. Whatever is seen while the connection is ended is in it, too.
    pub fn failure(&self) -> Failure {
        self.raw.reports.seen()
    }

    #[cfg(xprtrdma_kunit)]
    pub(crate) fn raw_qp(&self) -> *mut bindings::ib_qp {
        self.raw.qp.as_ptr()
    }

    fn report_broken(this: ArcBorrow<'_, Self>, side: Side, status: WcStatus) {
        this.raw.reports.failed(side, status);
        if !this.broken.xchg(true, Relaxed) {
            H::broken(this, status);
        }
    }
}

/// The owner of a connection: dropping it ends the connection and waits until every work request
/// has completed and its handler has returned.
///
/// Others may hold the [`Qp`] longer, but nothing can be posted any more, no handler runs, and the
/// peer reaches nothing through it. Must be dropped where it may sleep, and not by a handler.
pub struct QpOwner<H: QpHandler>(Arc<Qp<H>>);

impl<H: QpHandler> QpOwner<H> {
    /// A handle that does not own the connection.
    pub fn handle(&self) -> Arc<Qp<H>> {
        self.0.clone()
    }
}

impl<H: QpHandler> Deref for QpOwner<H> {
    type Target = Arc<Qp<H>>;

    fn deref(&self) -> &Arc<Qp<H>> {
        &self.0
    }
}

impl<H: QpHandler> Drop for QpOwner<H> {
    fn drop(&mut self) {
        Qp::shutdown(&self.0);
    }
}
