// SPDX-License-Identifier: GPL-2.0

//! The receive queue: a fixed number of buffers of one size.
//!
//! Each has a completion entry of its own, so a completion says which buffer it is about. Buffers
//! are posted again in batches. Those of messages that end with their handler are gathered without
//! a lock, which is only taken to post a batch of them.

use super::{
    message::recv_done,
    Qp,
    QpConfig,
    QpHandler,
    WcStatus, //
};
use crate::{
    dma::{
        Direction,
        DmaBuf, //
    },
    failure::Side,
    pd::Pd,
};
use core::{
    cell::UnsafeCell,
    ptr, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};
use xprtrdma_bindings as bindings;

/// A receive buffer and its work request.
///
/// # Invariants
///
/// - `wr` refers to `cqe` and to `sge`, which refers to `mem`. All are in the table of `qp`, where
///   they stay as long as it lives. The pointer to `cqe` leads to the whole value.
/// - `qp` is as its `Arc` knows it, once something is posted.
/// - `wr` belongs to whom the buffer belongs to.
pub(super) struct RecvBuf<H: QpHandler> {
    pub(super) cqe: Opaque<bindings::ib_cqe>,
    wr: Opaque<bindings::ib_recv_wr>,
    sge: Opaque<bindings::ib_sge>,
    pub(super) mem: DmaBuf,
    pub(super) qp: UnsafeCell<*const Qp<H>>,
}

impl<H: QpHandler> RecvBuf<H> {
    /// Allocates the buffers of a queue pair. They are of use after [`RecvBuf::bind`]. May sleep.
    pub(super) fn table(pd: &Arc<Pd>, config: &QpConfig) -> Result<KVVec<Self>> {
        let total = usize::from(config.recv_count) + usize::from(config.recv_batch);
        let mut table = KVVec::with_capacity(total, GFP_KERNEL)?;
        for _ in 0..total {
            let mem = DmaBuf::new(pd, config.recv_size, Direction::FromDevice)?;
            let buf = Self {
                cqe: Opaque::new(bindings::ib_cqe {
                    done: Some(recv_done::<H>),
                }),
                wr: Opaque::new(Default::default()),
                sge: Opaque::new(mem.sge(0, mem.len())),
                mem,
                qp: UnsafeCell::new(ptr::null()),
            };
            table.push(buf, GFP_KERNEL)?;
        }
        Ok(table)
    }

    /// Completes the buffers, whose table is.
    pub(super) fn bind(mut table: KVVec<Self>) -> KVVec<Self> {
        for buf in table.iter_mut() {
            let this = ptr::from_mut(buf);
            // SAFETY: A field of a valid value.
            let cqe = unsafe { &raw mut (*this).cqe };
            // INVARIANT: The table is complete, and its entries move no more.
            buf.wr = Opaque::new(bindings::ib_recv_wr {
                __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                    // CAST: The union's first member is the pointer, as 64 bits.
                    bindgen_union_field: cqe as u64,
                    ..Default::default()
                },
                sg_list: buf.sge.get(),
                num_sge: 1,
                ..Default::default()
            });
        }
        table
    }
}

/// Receive buffers of one queue pair that belong to the device and wait to be posted, linked by
/// their work requests.
pub(super) struct Chain {
    first: *mut bindings::ib_recv_wr,
    len: u32,
}

// SAFETY: What is linked belongs to the chain, wherever that is.
unsafe impl Send for Chain {}

impl Chain {
    pub(super) const EMPTY: Self = Self {
        first: ptr::null_mut(),
        len: 0,
    };

    /// Adds a buffer, and gives it to the device.
    ///
    /// # Safety
    ///
    /// The caller owns the buffer, and gives it up.
    #[inline]
    pub(super) unsafe fn push<H: QpHandler>(&mut self, buf: &RecvBuf<H>) {
        buf.mem.sync_for_device(0, buf.mem.len());
        let wr = buf.wr.get();
        // SAFETY: Valid by the type invariant, and the caller's to write.
        unsafe { (*wr).next = self.first };
        self.first = wr;
        // NO-OVERFLOW: A queue pair's buffers are counted by 32 bits.
        self.len = self.len.wrapping_add(1);
    }

    #[inline]
    fn take(&mut self) -> Self {
        core::mem::replace(self, Self::EMPTY)
    }
}

pub(super) struct RecvQueue {
    /// Buffers of dropped [`Held`]s.
    pub(super) returned: Chain,
    /// How many Receives were ever posted, modulo 2^32.
    pub(super) posted: u32,
    pub(super) closed: bool,
    /// Buffers of dropped [`Held`]s could not be posted; the work that rings the doorbell tells of it.
    pub(super) failed: bool,
}

impl<H: QpHandler> Qp<H> {
    /// Receives posted now, for statistics.
    pub fn receives_posted(&self) -> usize {
        let rq = self.rq.lock();
        // What is taken was posted before, and nothing is posted now.
        rq.posted.wrapping_sub(self.taken.load(Relaxed)) as usize
    }

    /// Takes the buffer of a message back whose handler ends. True if a batch of them has come
    /// together, which is to be posted.
    ///
    /// # Safety
    ///
    /// Only to be called by a completion handler, which owns the buffer and gives it up.
    #[inline]
    pub(super) unsafe fn give_back(&self, buf: &RecvBuf<H>) -> bool {
        // SAFETY: By the type invariant nobody else uses it now.
        let free = unsafe { &mut *self.free.get() };
        // SAFETY: By this function's contract.
        unsafe { free.push(buf) };
        free.len >= self.free_batch
    }

    /// Posts the buffers of messages whose handlers have ended.
    ///
    /// # Safety
    ///
    /// Only to be called by a completion handler.
    #[cold]
    pub(super) unsafe fn post_free(this: ArcBorrow<'_, Self>) {
        // SAFETY: By the type invariant nobody else uses it now.
        let free = unsafe { (*this.free.get()).take() };
        if this.post_recvs(&mut this.rq.lock(), free).is_err() {
            let status = WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR);
            Self::report_broken(this, Side::Receive, status);
        }
    }

    /// Takes the buffer of a message back that was kept beyond its handler, and posts such buffers
    /// if there are enough.
    ///
    /// # Safety
    ///
    /// The caller owns the buffer, and gives it up.
    pub(super) unsafe fn give_back_held(&self, buf: &RecvBuf<H>) {
        let mut rq = self.rq.lock();
        // SAFETY: By this function's contract.
        unsafe { rq.returned.push(buf) };
        if rq.returned.len < self.returned_batch {
            return;
        }
        let returned = rq.returned.take();
        if self.post_recvs(&mut rq, returned).is_err() {
            rq.failed = true;
            drop(rq);
            self.tell_later();
        }
    }

    /// Posts Receives. Once the queue is closed, which comes before the drain, their buffers are only
    /// for the teardown.
    pub(super) fn post_recvs(&self, rq: &mut RecvQueue, chain: Chain) -> Result {
        if rq.closed {
            return Ok(());
        }
        rq.posted = rq.posted.wrapping_add(chain.len);
        // SAFETY: A well-formed chain on a valid queue pair, which the buffers outlive.
        let posted = unsafe { bindings::xprtrdma_post_recv(self.raw.qp.as_ptr(), chain.first) };
        if posted != 0 {
            // Some may have been posted: only a teardown can tell which.
            rq.closed = true;
        }
        to_result(posted)
    }
}
