// SPDX-License-Identifier: GPL-2.0

//! Messages that wait for others to be posted with one doorbell ([`SendBatch::post_later`]), and the
//! work item that rings it if nothing else is posted before.
//!
//! [`SendBatch::post_later`]: super::SendBatch::post_later

use super::{
    send::SendQueue,
    Qp,
    QpHandler,
    WcStatus, //
};
use crate::{
    failure::Side,
    mr::{
        ExposedMr,
        FIRST_DOORBELL, //
    },
};
use core::ptr;
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};
use xprtrdma_base::{
    access_once::AccessOnce,
    lend::Lender, //
};
use xprtrdma_bindings as bindings;

/// So many messages do not wait for the doorbell after one that waited alone.
const IMPATIENCE: u32 = 16;

/// A place for a registration or a Send that waits.
struct Place {
    /// The work request; of a Send the first part only.
    wr: bindings::ib_reg_wr,
    sge: bindings::ib_sge,
}

/// Messages that wait for the doorbell, each behind the registrations of its regions.
///
/// A registration is a copy, so that the region's own work requests are free for an invalidation. It
/// refers to the region itself, which counts as posted from then on: it is not given back before its
/// invalidation is proven or its queue pair drained, and is leaked if it is dropped before.
///
/// # Invariants
///
/// - The first `len` places are in use. Their work requests are linked in that order, and the last
///   one's `next` is null.
/// - `places` never grows: pointers lead into it.
pub(super) struct SendChain {
    places: KVec<Place>,
    pub(super) len: usize,
    pub(super) messages: u32,
    /// With more places in use nothing waits, so that the longest message still finds its own.
    pub(super) full: usize,
}

// SAFETY: What the places refer to is the chain's own, or belongs to the queue pair, or is a region
// that its owner keeps; nothing of it has thread affinity.
unsafe impl Send for SendChain {}

impl SendChain {
    pub(super) fn new(message: u16, full: u16) -> Result<Self> {
        let (message, full) = (usize::from(message), usize::from(full));
        let mut places = KVec::with_capacity(message + full, GFP_KERNEL)?;
        for _ in 0..message + full {
            let place = Place {
                wr: Default::default(),
                sge: Default::default(),
            };
            places.push(place, GFP_KERNEL)?;
        }
        // INVARIANT: None is in use.
        Ok(Self {
            places,
            len: 0,
            messages: 0,
            full,
        })
    }

    /// Adds the registrations of `regions` and a Send of `sge`, for the doorbell with this number, all
    /// with this completion entry. `ENOSPC`: that does not fit, and the chain is as before.
    pub(super) fn push<L: Lender>(
        &mut self,
        doorbell: u32,
        regions: &mut [ExposedMr<L>],
        sge: bindings::ib_sge,
        flags: c_int,
        cqe: *mut bindings::ib_cqe,
    ) -> Result {
        let wrs = regions.len() + 1;
        let (used, free) = self.places.split_at_mut(self.len);
        let places = free.get_mut(..wrs).ok_or(ENOSPC)?;
        let (last, places) = places.split_last_mut().ok_or(ENOSPC)?;
        last.sge = sge;
        last.wr.wr = bindings::ib_send_wr {
            sg_list: &mut last.sge,
            num_sge: 1,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            send_flags: flags,
            ..Default::default()
        };
        // CAST: The union's first member is the pointer, as 64 bits.
        last.wr.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        // CAST: The first member of a registration is what all work requests have.
        let mut next = ptr::from_mut(&mut last.wr).cast();
        for (place, region) in places.iter_mut().zip(regions).rev() {
            place.wr = region.new_reg_wr(doorbell, cqe, next);
            next = ptr::from_mut(&mut place.wr).cast();
        }
        if let Some(before) = used.last_mut() {
            before.wr.wr.next = next;
        }
        // INVARIANT: Linked just now.
        self.len += wrs;
        self.messages += 1;
        Ok(())
    }

    /// Empties the chain; returns its beginning, which is valid until something is added.
    fn take(&mut self) -> Option<*const bindings::ib_send_wr> {
        self.messages = 0;
        // INVARIANT: None is in use.
        let used = self.places.get(..core::mem::take(&mut self.len))?;
        // CAST: As in `push`.
        Some(ptr::from_ref(&used.first()?.wr).cast())
    }
}

impl_has_work! {
    impl{H: QpHandler} HasWork<Self> for Qp<H> { self.bell }
}

impl<H: QpHandler> WorkItem for Qp<H> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut sq = this.sq.lock();
        if sq.chain.messages == 1 {
            sq.impatience = IMPATIENCE;
        }
        let rung = this.ring(&mut sq);
        drop(sq);
        if rung.is_err() || this.rq.lock().failed {
            Self::report_broken(
                this.as_arc_borrow(),
                Side::Send,
                WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR),
            );
        }
    }
}

impl<H: QpHandler> Qp<H> {
    /// Hands what waits to the device, unless the queue is closed. On error as [`Qp::submit`], even if
    /// the caller has nothing to do with what waited.
    #[cold]
    pub(super) fn ring(&self, sq: &mut SendQueue) -> Result {
        if sq.closed {
            return Ok(());
        }
        let Some(first) = sq.chain.take() else {
            return Ok(());
        };
        // Before the post, so that what answers these messages finds them posted: between the two writes
        // are the device and its own barriers.
        let next = self.doorbell.read_once().wrapping_add(1);
        self.doorbell.write_once(next.max(FIRST_DOORBELL));
        // SAFETY: A well-formed chain by its invariant. What it refers to outlives the post: the ring and
        // `send_cqe` belong to `self`, the regions to owners that keep them until they are proven
        // unreachable. The queue is open, and locked, for it is borrowed.
        unsafe { self.submit(&mut sq.closed, first) }
    }

    /// Sees to it that the doorbell is rung. Called with the queue locked and open, so that
    /// [`Qp::shutdown`] finds what is queued here.
    #[cold]
    pub(super) fn ring_later(&self) {
        // SAFETY: The pointer leads to the whole object, see `SendEntry`.
        let this = unsafe { Self::of_send(self.send_cqe.get()) };
        // An error means that it is queued and has not begun yet.
        let _ = self.handler.queue().enqueue(Arc::from(this));
    }

    /// Takes the work that rings the doorbell off its queue, or waits for its end. True if it will not
    /// run now. May sleep; must not be called by a handler.
    pub(crate) fn take_bell_back(this: &Arc<Self>) -> bool {
        let raw = Arc::as_ptr(this);
        // SAFETY: An initialised work item, kept by `this`; this may sleep.
        let queued =
            unsafe { kernel::bindings::cancel_work_sync(Work::raw_get(&raw const (*raw).bell)) };
        if queued {
            // SAFETY: The queue held one reference for the work that will not run now.
            drop(unsafe { Arc::from_raw(raw) });
        }
        queued
    }

    /// Has the work that rings the doorbell tell of what has failed: the caller may hold locks of handlers.
    #[cold]
    pub(super) fn tell_later(&self) {
        let sq = self.sq.lock();
        if !sq.closed {
            self.ring_later();
        }
    }
}
