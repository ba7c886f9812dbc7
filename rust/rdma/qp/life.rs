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
        UniqueArc, //
    },
    workqueue::new_work, //
};
use xprtrdma_base::new_spinlock;
use xprtrdma_bindings as bindings;

impl<H: QpHandler> Qp<H> {
    /// Creates the queue pair of the id behind `pd`, with all buffers, and posts all Receives.
    /// May sleep.
    ///
    /// `EBUSY` if the id has had a queue pair before, `EINVAL` if messages or Receives have no
    /// bytes.
    pub fn create(pd: &Arc<Pd>, config: &QpConfig, handler: H) -> Result<QpOwner<H>> {
        pd.id().claim_qp()?;
        // After the buffers nothing can fail. Objects that are made before them are dropped in the
        // order of their use.
        let place = UniqueArc::new_uninit(GFP_KERNEL)?;
        let recvs = u32::from(config.recv_count) + u32::from(config.recv_batch);
        // One more entry of each queue, for the drain.
        let (send_wr, recv_wr) = (config.send_wrs + 1, recvs + 1);
        let cqe = c_int::try_from(send_wr + recv_wr)?;
        // SAFETY: The device of a resolved id exists while `pd` does. By the type invariant of what
        // is made here the work queue outlives it.
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
        let memory = SendQueue::new(pd, config)
            .and_then(|sq| Ok((sq, RecvBuf::table(pd, config, recv_done::<H>)?)));
        let (sq, recvs) = match memory {
            Ok(memory) => memory,
            Err(error) => {
                if !raw.destroy(&cq) {
                    // The device may use both for ever.
                    core::mem::forget((raw, cq));
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
        // SAFETY: A field of a valid value.
        let entries = unsafe { &raw const (*this).send_cqes };
        // SAFETY: The pointer leads to the whole queue pair, which no other thread has yet.
        unsafe { SendEntries::bind(entries) };
        qp.sq.lock().bind(&qp.send_cqes);
        let mut all = Chain::EMPTY;
        for buf in &qp.recvs {
            // SAFETY: As above.
            unsafe { *buf.qp.get() = this };
            // SAFETY: No other thread has them yet.
            unsafe { all.push(buf) };
        }
        qp.post_recvs(&mut qp.rq.lock(), all)?;
        Ok(qp)
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
        // Messages that wait are not posted any more, and none is queued from here on.
        Self::cancel_doorbell_work(this);
        // An error means that there was no connection; the drain moves the queue pair to the error
        // state itself.
        let _ = this.pd.id().disconnect();
        // The drain does this as well, but does not report whether the device has done it.
        let stopped = this.raw.stop().is_ok() && this.pd.stops_in_error();
        // SAFETY: The queue pair is valid; each queue has a spare entry, and no other thread posts.
        unsafe { bindings::ib_drain_qp(this.raw.qp.as_ptr()) };
        // Nothing completes any more. But if the drain has failed, a handler may still run.
        this.cq.stop();
        // No handler runs any more, so these two do not change.
        let flushed = this.flushed.load(Relaxed) && this.receives_posted() == 0;
        // Otherwise only its destruction is known to stop it.
        if (stopped && flushed) || Self::destroy(this) {
            this.pd.set_drained();
        }
    }

    /// Destroys the queue pair. `false`: the device has not done so, and everything that it was
    /// told of stays as it is for ever. Regions stay, with the memory that was lent to them,
    /// because the domain does not count as drained. Rings and queues stay because a reference to
    /// them is leaked.
    fn destroy(this: &Arc<Self>) -> bool {
        let gone = this.raw.destroy(&this.cq);
        if !gone {
            core::mem::forget(this.clone());
        }
        gone
    }

    /// Drops the transfers that have not completed, with their pages, which may be megabytes: the
    /// queue pair is destroyed, and others may hold it for long.
    #[cfg(xprtrdma_server)]
    fn drop_transfers(&self) {
        let transfers = core::mem::take(&mut self.sq.lock().transfers);
        drop(transfers);
    }
}

/// The owner of a connection. Dropping it ends the connection, waits until every work request has
/// completed and its handler has returned, and destroys the queue pair.
///
/// Others may hold the [`Qp`] longer, but nothing can be posted any more, no handler runs, and the
/// peer reaches nothing through it. Must be dropped where it may sleep, and not by a handler.
pub struct QpOwner<H: QpHandler>(Arc<Qp<H>>);

impl<H: QpHandler> QpOwner<H> {
    /// A handle that does not own the connection.
    pub fn handle(&self) -> Arc<Qp<H>> {
        self.0.clone()
    }

    /// Ends the connection and waits until every work request has completed and its handler has
    /// returned, as dropping does. If the device is known to reach nothing then, the queue pair is
    /// left to be destroyed by that, which may take seconds. Regions are best deregistered behind
    /// that, for a provider may keep references to them in the queue pair; their memory need not
    /// wait, see [`ExposedMr::drained`](crate::mr::ExposedMr::drained). Idempotent. May sleep; must
    /// not be called by the handler.
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
        // If it has failed before, the domain does not count as drained.
        if gone && self.0.pd.is_drained() {
            self.0.drop_transfers();
        }
        #[cfg(not(xprtrdma_server))]
        let _ = gone;
    }
}
