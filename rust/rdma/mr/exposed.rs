// SPDX-License-Identifier: GPL-2.0

//! A region that the peer may be able to access, and how it becomes idle again.

use super::{
    idle::IdleMr,
    proof::{
        Echo,
        LocalInvalidation,
        RemoteInvalidation, //
    },
    Access,
    Inner,
    Window, //
};
use crate::pd::Pd;
use core::mem::ManuallyDrop;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::{
    access_once::AccessOnce,
    lend::Lender, //
};
use xprtrdma_bindings as bindings;

/// Value of [`ExposedMr::posted`]: no registration of the region was posted or queued.
const UNPOSTED: u32 = 0;

/// Value of [`ExposedMr::posted`]: the registration was posted without waiting for a doorbell.
const AT_ONCE: u32 = 1;

/// The lowest number of a doorbell. If [`ExposedMr::posted`] is at least this value, it is the
/// number of the doorbell with which the registration was or will be posted.
pub(crate) const FIRST_DOORBELL: u32 = 2;

/// A region that the peer may be able to access, with the lender of its memory.
///
/// Dropping the object deregisters the region, which may sleep. A region that was posted may only
/// be dropped after its queue pair was shut down; if it is dropped earlier, the region and its
/// memory are leaked. The memory is also leaked if the device fails to deregister the region while
/// another queue pair may share the domain's `ib_pd`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_base::lend::{Lender, Loan};
/// # use xprtrdma_rdma::mr::{
/// #     Access, Echo, ExposedMr, IdleMr, LocalInvalidation, MapError, RemoteInvalidation, Window,
/// # };
/// /// Maps memory that the peer may write to. The queue pair posts the region afterwards.
/// fn expose<L: Loan>(region: IdleMr, loan: L) -> Result<ExposedMr<L::Lender>> {
///     let exposed = region
///         .map(loan, 0, Access::RemoteWrite)
///         .map_err(|MapError { error, .. }| error)?;
///     let Window { handle, length, offset } = exposed.window();
///     pr_info!("{length} bytes with the key {handle:#x}, from {offset:#x} on\n");
///     Ok(exposed)
/// }
///
/// /// Makes the region idle if the peer's message proves that the region was invalidated.
/// fn answered<L: Lender>(
///     region: ExposedMr<L>,
///     proof: &RemoteInvalidation<'_>,
/// ) -> Result<(IdleMr, L), ExposedMr<L>> {
///     region.remotely_invalidated(proof, Echo::Offset)
/// }
///
/// /// Makes the region idle if this host's invalidation of the region has completed.
/// fn invalidated<L: Lender>(
///     region: ExposedMr<L>,
///     proof: &LocalInvalidation,
/// ) -> Result<(IdleMr, L), ExposedMr<L>> {
///     region.locally_invalidated(proof)
/// }
/// ```
pub struct ExposedMr<L: Lender> {
    inner: ManuallyDrop<KBox<Inner>>,
    length: u32,
    // How the region's registration was posted: `UNPOSTED`, `AT_ONCE`, or the number of the
    // doorbell with which the registration was or will be posted.
    posted: u32,
    // Number of the posted invalidation that covers this region; 0 if no invalidation was posted.
    invalidate_seq: u64,
    lender: ManuallyDrop<L>,
}

impl<L: Lender> Drop for ExposedMr<L> {
    fn drop(&mut self) {
        if self.posted != UNPOSTED && !self.inner.pd.is_drained() {
            // Work requests may still refer to the region, so neither the region nor its memory is
            // freed. The RPC request that lent the memory then waits for ever, but no memory is
            // corrupted.
            // LOG: A fault of this module: the region and its request are never freed. Report this
            // fault.
            pr_err!("a region was dropped while its queue pair is in use\n");
            return;
        }
        let ended = self.inner.deregister();
        // If the deregistration fails, the key may still be valid. The region's own queue pair is
        // drained, but the peer of a queue pair that shares the `ib_pd` can use the key.
        let lost = cfg!(xprtrdma_rds) && self.posted != UNPOSTED && !ended;
        if lost {
            // INVARIANT: The mapping is leaked, and `sg` is not used again.
            self.inner.mapped = 0;
            // LOG: A fault of a device or its driver (only with `rds_rdma_rs`). The memory of the
            // region is never freed.
            pr_err!("the device does not give up a region: its memory is lost\n");
        }
        // SAFETY: The field is dropped only here.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        if !lost {
            // SAFETY: The field is dropped only here. No peer can use the region any more, and the
            // memory is unmapped.
            unsafe { ManuallyDrop::drop(&mut self.lender) };
        }
    }
}

impl<L: Lender> ExposedMr<L> {
    /// Makes the object for a region that was just mapped to `length` bytes of the lender's memory.
    #[inline]
    pub(super) fn new(inner: KBox<Inner>, length: u32, lender: L) -> Self {
        Self {
            inner: ManuallyDrop::new(inner),
            length,
            posted: UNPOSTED,
            invalidate_seq: 0,
            lender: ManuallyDrop::new(lender),
        }
    }

    /// Returns the description of the region for the peer.
    #[inline]
    pub fn window(&self) -> Window {
        Window {
            handle: self.inner.reg.key,
            length: self.length,
            offset: self.inner.offset,
        }
    }

    /// Returns what the peer may do with the region.
    #[inline]
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// Returns the lender of the region's memory.
    pub fn lender(&self) -> &L {
        &self.lender
    }

    /// Makes the region idle if a message of the peer invalidated the region, and the message
    /// proves this. The proof is content in the message that the peer can only know from the Send
    /// that named the region.
    ///
    /// Returns the region unchanged in these cases:
    ///
    /// - The message invalidated another region.
    /// - The message does not repeat the content that `echo` describes.
    /// - The device's reports of invalidations are not trusted (see [`RemoteInvalidation`]).
    /// - The registration still waits to be posted, so the peer has guessed the key.
    #[inline(always)]
    pub fn remotely_invalidated(
        self,
        proof: &RemoteInvalidation<'_>,
        echo: Echo,
    ) -> Result<(IdleMr, L), Self> {
        let window = self.window();
        let told = match self.inner.access {
            Access::RemoteRead if echo == Echo::Unforeseen => true,
            _ => echo.has_offset(proof.bytes, window.offset),
        };
        if told
            && proof.rkey == window.handle
            && !proof.used.get()
            && proof.pd == self.inner.pd.number()
            && proof.doorbell.read_once() != self.posted
        {
            proof.used.set(true);
            Ok(self.reclaim())
        } else {
            Err(self)
        }
    }

    /// Makes the region idle if `proof` covers the local invalidation of the region. Otherwise
    /// returns the region unchanged.
    pub fn locally_invalidated(self, proof: &LocalInvalidation) -> Result<(IdleMr, L), Self> {
        if self.invalidate_seq != 0
            && self.invalidate_seq <= proof.seq
            && proof.pd == self.inner.pd.number()
        {
            Ok(self.reclaim())
        } else {
            Err(self)
        }
    }

    /// Makes the region idle if no registration was posted since the region was mapped.
    pub fn unposted(self) -> Result<(IdleMr, L), Self> {
        if self.posted != UNPOSTED {
            Err(self)
        } else {
            Ok(self.reclaim())
        }
    }

    /// Returns whether the region may be registered on the queue pair of the domain `pd`. Two
    /// conditions must hold:
    ///
    /// - The mapping was not registered before. If the same key were registered twice, the second
    ///   registration could still be valid when it is proven that the first one has ended.
    /// - `pd` is the region's own domain. Otherwise the peer could still use the region after the
    ///   queue pair of the region's own domain was drained.
    #[inline]
    pub(crate) fn may_be_posted(&self, pd: &Arc<Pd>) -> bool {
        self.posted == UNPOSTED && Arc::ptr_eq(&self.inner.pd, pd)
    }

    /// Returns whether an invalidation of the region may be posted on the queue pair of the domain
    /// `pd`. This requires that the region belongs to `pd`, and that its registration was posted,
    /// but no invalidation yet.
    #[inline]
    pub(crate) fn may_be_invalidated(&self, pd: &Arc<Pd>) -> bool {
        self.posted != UNPOSTED && self.invalidate_seq == 0 && Arc::ptr_eq(&self.inner.pd, pd)
    }

    /// Makes the region idle if the queue pair of its domain is shut down. The region's key may
    /// still be valid. But no peer can use the key, because the domain never has another queue
    /// pair. RDS lets several queue pairs share an `ib_pd`, so its module lacks this method.
    #[cfg(not(xprtrdma_rds))]
    pub fn drained(self) -> Result<(IdleMr, L), Self> {
        if self.inner.pd.is_drained() {
            Ok(self.reclaim())
        } else {
            Err(self)
        }
    }

    #[inline(always)]
    fn reclaim(self) -> (IdleMr, L) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: Each field is taken once; afterwards `this` is neither used nor dropped.
        let (mut inner, lender) = unsafe {
            (
                ManuallyDrop::take(&mut this.inner),
                ManuallyDrop::take(&mut this.lender),
            )
        };
        inner.cover_nothing();
        inner.unmap();
        (IdleMr(inner), lender)
    }

    /// Returns the registration work request, linked in front of `next`. The work request is part
    /// of the region, which must not move until the request is posted. `seq` is the number of the
    /// last invalidation on the send queue.
    #[inline]
    pub(crate) fn reg_wr(
        &mut self,
        seq: u64,
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> &mut bindings::ib_send_wr {
        self.posted = AT_ONCE;
        let inner = &mut **self.inner;
        inner.queued_at = seq;
        let wr = &mut inner.reg.wr;
        // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits.
        wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        wr.next = next;
        wr
    }

    /// Returns a registration work request that is posted with the doorbell of this number. The
    /// work request refers to the region, but is not stored in the region. So the work requests
    /// that are stored in the region remain free for the invalidation.
    pub(crate) fn new_reg_wr(
        &mut self,
        (doorbell, seq): (u32, u64),
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> bindings::ib_reg_wr {
        self.posted = doorbell;
        self.inner.queued_at = seq;
        let reg = &self.inner.reg;
        let mut copy = bindings::ib_reg_wr {
            mr: reg.mr,
            key: reg.key,
            access: reg.access,
            ..Default::default()
        };
        copy.wr.next = next;
        copy.wr.opcode = reg.wr.opcode;
        // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits.
        copy.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        copy
    }

    /// Records that an RDMA Read is posted after the registration. The Read invalidates the region
    /// as soon as all data of the Read have arrived. `seq` is the number of this invalidation on
    /// the send queue.
    #[cfg(xprtrdma_server)]
    pub(crate) fn invalidated_by_read(&mut self, seq: u64) {
        self.invalidate_seq = seq;
    }

    /// Returns the invalidation work request, linked in front of `next`. The work request is part
    /// of the region. `seq` is the number of this invalidation on the send queue.
    pub(crate) fn inv_wr(
        &mut self,
        seq: u64,
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> &mut bindings::ib_send_wr {
        self.invalidate_seq = seq;
        let wr = &mut self.inner.inv;
        // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits.
        wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        wr.next = next;
        wr
    }
}
