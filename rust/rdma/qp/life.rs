// SPDX-License-Identifier: GPL-2.0

//! The life of a queue pair: how it is made, shut down and destroyed ([`QpOwner`]).

use super::{
    config::QpConfig,
    handler::QpHandler,
    message::recv_done,
    recv_queue::{
        Chain,
        RecvBuf,
        RecvQueue, //
    },
    send::send_done,
    send_queue::{
        SendEntries,
        SendQueue,
        LOCAL_INV,
        RDMA_WRITE,
        REG_MR,
        SEND, //
    },
    Qp,
    RawQp, //
};
use crate::{
    cq::Cq,
    failure::{
        self,
        Reports, //
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
    ptr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        UniqueArc, //
    },
    workqueue::new_work, //
};
use xprtrdma_base::new_spinlock;
use xprtrdma_bindings as bindings;

/// Maximum number of tables of Receives. If each new table doubles the number of Receives, the
/// tables contain up to 128 times the initial number.
const TABLES: usize = 8;

impl<H: QpHandler> Qp<H> {
    /// Creates the queue pair on the id of `pd`, with all buffers, and posts all Receives. May
    /// sleep.
    ///
    /// Returns `EBUSY` if the id had a queue pair before, and `EINVAL` if the configured size of
    /// messages or Receives is zero.
    pub fn create(pd: &Arc<Pd>, config: &QpConfig, handler: H) -> Result<QpOwner<H>> {
        pd.id().claim_qp()?;
        // If a step fails, the objects created so far are dropped in the order of teardown, the
        // queue pair first.
        let place = UniqueArc::new_uninit(GFP_KERNEL)?;
        let first = u32::from(config.recv_count) + u32::from(config.recv_batch);
        let recvs = first + u32::from(config.recv_more);
        // One additional entry in each queue is for the work request of the drain.
        let (send_wr, recv_wr) = (config.send_wrs + 1, recvs + 1);
        let cqe = c_int::try_from(send_wr + recv_wr)?;
        // SAFETY: The device of a resolved id exists as long as `pd`. By the type invariant of
        // `Qp`, the work queue outlives the completion queue.
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
                max_send_sge: pd.max_send_sges(),
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            port_num: u32::MAX,
            ..Default::default()
        };
        // SAFETY: The domain and the completion queue are valid, and on the device of the id.
        let made = unsafe { pd.id().create_qp(pd.as_raw(), &mut attr) };
        let qp = match made {
            Ok(qp) => qp,
            Err(error) => {
                if cq.is_used() {
                    // The device has not destroyed a queue pair that could not be prepared. So the
                    // objects that it may use are never freed.
                    core::mem::forget((reports, cq, handler, pd.clone()));
                }
                return Err(error);
            }
        };
        let raw = RawQp {
            qp,
            reports,
            gone: Atomic::new(false),
            pd: pd.clone(),
        };
        let memory = SendQueue::new(pd, config).and_then(|sq| {
            let mut tables = KVec::with_capacity(TABLES, GFP_KERNEL)?;
            // CAST: A `usize` has at least 32 bits.
            let table = RecvBuf::table(pd, first as usize, config.recv_size, recv_done::<H>)?;
            tables.push(table, GFP_KERNEL)?;
            Ok((sq, tables))
        });
        let (sq, tables) = match memory {
            Ok(memory) => memory,
            Err(error) => {
                if !raw.destroy(&cq) {
                    // The device possibly still uses the queue pair and the completion queue, so
                    // they are never freed. The handler keeps the work queue of the completion
                    // queue.
                    core::mem::forget((raw, cq, handler));
                }
                return Err(error);
            }
        };
        let batch = u32::from(config.recv_batch);
        let qp = UniqueArc::pin_init_with(
            place,
            pin_init!(Self {
                broken: Atomic::new(false),
                down: Atomic::new(false),
                send_cqes: SendEntries::new([
                    send_done::<H, SEND>,
                    send_done::<H, REG_MR>,
                    send_done::<H, LOCAL_INV>,
                    send_done::<H, RDMA_WRITE>,
                ]),
                raw,
                cq,
                handler,
                sq <- new_spinlock!(sq, "Qp::sq"),
                doorbell: Atomic::new(FIRST_DOORBELL),
                doorbell_work <- new_work!("Qp::doorbell_work"),
                rq <- new_spinlock!(RecvQueue {
                    own: None,
                    tables,
                    #[cfg(xprtrdma_server)]
                    may_add: config.recv_more,
                    returned: Chain::EMPTY,
                    posted: 0,
                    closed: false,
                    failed: false,
                }, "Qp::rq"),
                free: UnsafeCell::new(Chain::EMPTY),
                free_batch: batch - batch / 4,
                returned_batch: batch / 4 + 1,
                taken: Atomic::new(0),
                held: Atomic::new(0),
                given_back: Atomic::new(0),
                flushed: Atomic::new(false),
                sendings: pd.sendings(),
                proof_pd: match pd.believes_invalidations() {
                    true => pd.number(),
                    false => NO_PD,
                },
                pd: pd.clone(),
            }),
        )?;
        let qp = QpOwner(qp.into());
        let this = Arc::as_ptr(&qp.0);
        // SAFETY: `this` points to a valid queue pair, and only the address of a field is taken.
        let entries = unsafe { &raw const (*this).send_cqes };
        // SAFETY: The pointer may be used to access the whole queue pair, to which no other thread
        // has a pointer yet.
        unsafe { SendEntries::bind(entries) };
        qp.sq.lock().bind(&qp.send_cqes);
        let mut rq = qp.rq.lock();
        let first = rq.tables.first().ok_or(EINVAL)?;
        // SAFETY: The pointer comes from the `Arc`. No other thread has the queue pair yet, and no
        // table of Receives is removed before the queue pair is destroyed.
        let all = unsafe { RecvBuf::all(first, this) };
        qp.post_recvs(&mut rq, all)?;
        drop(rq);
        Ok(qp)
    }

    /// Ends the connection and waits until every work request has completed and its handler has
    /// returned. Afterwards nothing can be posted, and the peer cannot access memory through this
    /// queue pair. Idempotent. May sleep; must not be called by the handler.
    fn shutdown(this: &Arc<Self>) {
        this.sq.lock().closed = true;
        this.rq.lock().closed = true;
        if this.down.xchg(true, Full) {
            return;
        }
        this.cq.close();
        // Waiting messages are not posted any more. The send queue is closed, so no further
        // messages are queued.
        Self::cancel_doorbell_work(this);
        // If the disconnect fails, there was no connection. In that case the drain moves the queue
        // pair to the error state.
        let _ = this.pd.id().disconnect();
        // The drain also moves the queue pair to the error state, but does not report whether that
        // failed. So `stop` moves the queue pair to the error state before the drain.
        let stopped = this.raw.stop().is_ok() && this.pd.stops_in_error();
        // SAFETY: The queue pair is valid; each queue has a spare entry, and no other thread posts.
        unsafe { bindings::ib_drain_qp(this.raw.qp.as_ptr()) };
        // After a successful drain no work request completes any more. But if the drain has failed,
        // a handler may still run.
        this.cq.stop();
        // No handler runs any more, so `flushed` and the number of posted Receives do not change.
        let flushed = this.flushed.load(Relaxed) && this.receives_posted() == 0;
        // If the queue pair is not known to have stopped, only its destruction stops it for
        // certain.
        if (stopped && flushed) || Self::destroy(this) {
            this.pd.set_drained();
        }
    }

    /// Destroys the queue pair. Returns `false` if the device failed to destroy it. Then the device
    /// may still use the following objects, so they stay allocated for ever:
    ///
    /// - the regions and their memory, because the domain does not count as drained
    /// - the rings and queues, because a reference to the [`Qp`] is leaked
    fn destroy(this: &Arc<Self>) -> bool {
        let gone = this.raw.destroy(&this.cq);
        if !gone {
            core::mem::forget(this.clone());
        }
        gone
    }

    /// Drops the transfers that have not completed, together with their pages. The pages may take
    /// up megabytes, and handles may keep the [`Qp`] alive for a long time after the queue pair is
    /// destroyed. So this function drops the transfers before the [`Qp`] is dropped.
    #[cfg(xprtrdma_server)]
    fn drop_transfers(&self) {
        let transfers = core::mem::take(&mut self.sq.lock().transfers);
        drop(transfers);
    }
}

/// The owner of a connection. Dropping it ends the connection, waits until every work request has
/// completed and its handler has returned, and destroys the queue pair.
///
/// Handles may keep the [`Qp`] alive longer. But after the drop nothing can be posted, no handler
/// runs, and the peer cannot access memory through the queue pair. The owner must be dropped where
/// the thread may sleep, and not by a handler.
pub struct QpOwner<H: QpHandler>(Arc<Qp<H>>);

impl<H: QpHandler> QpOwner<H> {
    /// Returns a handle that does not own the connection.
    pub fn handle(&self) -> Arc<Qp<H>> {
        self.0.clone()
    }

    /// Ends the connection and waits until every work request has completed and its handler has
    /// returned.
    ///
    /// If the queue pair is known to have stopped, it is not destroyed yet, because the destruction
    /// may take seconds. Dropping the owner destroys it.
    ///
    /// Until it is destroyed, the queue pair may contain references to regions. So regions should
    /// be deregistered after the owner was dropped. The memory of a region can be returned to its
    /// lender earlier, see `ExposedMr::drained`.
    ///
    /// Idempotent. May sleep; must not be called by the handler.
    pub fn shut_down(&mut self) {
        Qp::shutdown(&self.0);
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
        let gone = Qp::destroy(&self.0);
        #[cfg(xprtrdma_server)]
        // If the shutdown has failed, the protection domain does not count as drained. In that case
        // the transfers are not dropped, because the device may still use their memory.
        if gone && self.0.pd.is_drained() {
            self.0.drop_transfers();
        }
        #[cfg(not(xprtrdma_server))]
        let _ = gone;
        Qp::keep_for_held(&self.0);
    }
}
