// SPDX-License-Identifier: GPL-2.0

//! Posts to the send queue, and completions of its work requests.

#[cfg(xprtrdma_server)]
use super::send_queue::RDMA_WRITE;
use super::{
    handler::QpHandler,
    send_queue::{
        opcode,
        OpKind,
        SendEntries, //
    },
    Qp, //
};
#[cfg(xprtrdma_server)]
use crate::transfer::Transfer;
use crate::{
    failure::FailedWork,
    mr::LocalInvalidation, //
};
use core::ptr;
use kernel::{
    prelude::*,
    sync::ArcBorrow, //
};
#[cfg(xprtrdma_server)]
use xprtrdma_base::list;
use xprtrdma_bindings as bindings;

impl<H: QpHandler> Qp<H> {
    /// Posts work requests to the device. If an error is returned, the connection has failed, and
    /// the queue is `closed`.
    ///
    /// # Safety
    ///
    /// `first` begins a well-formed chain. The memory that the device will use for the chain
    /// outlives the queue pair. The queue is locked and open.
    #[inline]
    pub(super) unsafe fn submit(
        &self,
        closed: &mut bool,
        first: *const bindings::ib_send_wr,
    ) -> Result {
        // The device also reports which work request failed, but this code does not use that
        // information.
        let mut failed = ptr::null();
        // SAFETY: The caller's contract guarantees the chain. The queue pair is valid while its
        // queue is open.
        let errno =
            unsafe { bindings::xprtrdma_post_send(self.raw.qp.as_ptr(), first, &mut failed) };
        if errno == 0 {
            return Ok(());
        }
        *closed = true;
        Err(Error::from_errno(errno))
    }

    /// Returns the queue pair with this completion entry.
    ///
    /// # Safety
    ///
    /// `cqe` was returned by [`SendEntries::get`] for this `KIND`, on a queue pair of this type
    /// that exists during `'a`.
    #[inline]
    pub(super) unsafe fn of_send<'a, const KIND: usize>(
        cqe: *mut bindings::ib_cqe,
    ) -> ArcBorrow<'a, Self> {
        // SAFETY: By the caller's contract `cqe` is the entry for this `KIND`.
        let entries = unsafe { SendEntries::of::<KIND>(cqe) };
        // SAFETY: By the caller's contract the entries are the field `send_cqes` of a queue pair of
        // this type.
        let this: *const Self = unsafe { kernel::container_of!(entries, Self, send_cqes) };
        // SAFETY: The pointer comes from `Arc::as_ptr`. By the caller's contract the queue pair
        // exists.
        unsafe { ArcBorrow::from_raw(this) }
    }

    /// Returns the number that the driver stored in the oldest transfer that has not completed.
    /// Work requests complete in the order of posting. So if the peer has refused a transfer, this
    /// function returns the number of that transfer.
    #[cfg(xprtrdma_server)]
    #[cold]
    pub fn oldest_transfer(&self) -> Option<u64> {
        self.sq.lock().transfers.first().map(|first| first.tag())
    }

    /// Returns the sum of `f` over all transfers that were posted and have not completed.
    #[cfg(xprtrdma_server)]
    pub fn sum_transfers(&self, f: impl Fn(&Transfer) -> u32) -> u32 {
        self.sq.lock().transfers.iter().map(|each| f(each)).sum()
    }

    /// Returns two numbers: how many work requests of the send queue are in flight (posted and not
    /// completed), and how many of these are signalled.
    #[cfg(xprtrdma_server)]
    pub fn sends_in_flight(&self) -> (u32, u32) {
        let sq = self.sq.lock();
        // CAST: The queue has fewer than 2^32 posts.
        (sq.wrs, sq.signalled() as u32)
    }

    /// Returns how many bytes of the send ring and how many work requests are in use, for
    /// statistics.
    pub fn send_occupancy(&self) -> (usize, u32) {
        let sq = self.sq.lock();
        (sq.used, sq.wrs)
    }
}

/// Passes a completed transfer to the handler.
#[cfg(xprtrdma_server)]
#[inline(always)]
fn transferred<H: QpHandler>(qp: ArcBorrow<'_, Qp<H>>, mut transfer: KBox<Transfer>) {
    transfer.completed();
    H::transferred(qp, transfer);
}

/// Does the same as [`transferred`], for a transfer that was posted together with a message. RDS
/// never posts such a transfer. So this function is not inlined if this crate is compiled for RDS.
#[cfg(xprtrdma_server)]
#[cfg_attr(xprtrdma_rds, inline(never))]
#[cfg_attr(not(xprtrdma_rds), inline(always))]
fn transferred_with_message<H: QpHandler>(qp: ArcBorrow<'_, Qp<H>>, transfer: KBox<Transfer>) {
    transferred(qp, transfer);
}

/// # Safety
///
/// Only ib_core calls this, for a work request that was posted with the completion entry of type
/// `KIND` in the `send_cqes` of a [`Qp<H>`].
pub(super) unsafe extern "C" fn send_done<H: QpHandler, const KIND: usize>(
    _cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: `wc` is valid during the call.
    let wc = unsafe { &*wc };
    // CAST: The same pointer was stored in this field, as 64 bits, when the work request was
    // posted.
    let cqe = wc.__bindgen_anon_1.bindgen_union_field as *mut bindings::ib_cqe;
    // SAFETY: By this function's contract the entry belongs to a `Qp<H>`. The owner of the queue
    // pair holds a reference, and drops it only after the drain, which waits for this handler.
    let qp = unsafe { Qp::<H>::of_send::<KIND>(cqe) };
    if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
        // The counter of posted work requests is not changed. The queue pair has failed, and its
        // teardown frees everything to which the work requests refer.
        Qp::report_broken(qp, FailedWork::of(opcode(KIND), wc));
        return;
    }
    let (op, wake) = {
        let mut sq = qp.sq.lock();
        let op = sq.complete();
        #[cfg(xprtrdma_server)]
        if let Some(OpKind::Transfer) = op {
            // Work requests complete in the order of posting, so the completed transfer is the
            // first one.
            let transfer = list::take_first(&mut sq.transfers);
            let wake = core::mem::replace(&mut sq.want_space, false);
            drop(sq);
            match transfer {
                Some(transfer) if KIND == RDMA_WRITE => transferred(qp, transfer),
                Some(transfer) => transferred_with_message(qp, transfer),
                None => {}
            }
            if wake {
                H::send_space(qp);
            }
            return;
        }
        (op, core::mem::replace(&mut sq.want_space, false))
    };
    match op {
        Some(OpKind::Send) => H::acknowledged(qp),
        Some(OpKind::Invalidate { token, seq }) => {
            let proof = LocalInvalidation {
                seq,
                pd: qp.pd.number(),
            };
            H::invalidated(qp, token, &proof);
        }
        Some(OpKind::Probe) => H::probed(qp),
        Some(OpKind::Confirmed) => H::confirmed(qp),
        Some(OpKind::Retirement(seq)) => qp.pd.retire(seq),
        #[cfg(xprtrdma_server)]
        Some(OpKind::Transfer) => {}
        None => {}
    }
    if wake {
        H::send_space(qp);
    }
}
