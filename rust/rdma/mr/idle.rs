// SPDX-License-Identifier: GPL-2.0

//! A region that nobody but us can reach, and how it is exposed.

use super::{
    exposed::ExposedMr,
    table::Filling,
    Access,
    Inner, //
};
use crate::pd::Pd;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings::scatterlist,
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::lend::Loan;
use xprtrdma_bindings as bindings;

/// A region that nobody but us can reach.
pub struct IdleMr(pub(super) KBox<Inner>);

/// Why a region could not be mapped; the region and the loan come back.
pub struct MapError<L> {
    /// The region, idle as before.
    pub mr: IdleMr,
    /// The memory.
    pub loan: L,
    /// The reason: `EINVAL` when nothing is to be mapped, `EIO` when the device or its IOMMU
    /// refused.
    pub error: Error,
}

impl IdleMr {
    /// Allocates a region of `pages` pages on the device of `pd`. May sleep.
    ///
    /// `EINVAL` for a region without pages. With `gaps` the region's pieces need not meet at page borders; the device must offer it.
    pub fn alloc(pd: &Arc<Pd>, pages: u32, gaps: bool) -> Result<Self> {
        if pages == 0 {
            return Err(EINVAL);
        }
        let mut sg = KVec::with_capacity(pages as usize, GFP_KERNEL)?;
        for _ in 0..pages {
            sg.push_within_capacity(scatterlist::default())
                .map_err(|_| ENOMEM)?;
        }
        // SAFETY: The table has `pages` entries, and at least the one that becomes the last.
        unsafe { kernel::bindings::sg_init_table(sg.as_mut_ptr(), pages) };
        let kind = if gaps {
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        } else {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG
        };
        // SAFETY: `pd` is valid and will be held by the region.
        let mr = from_err_ptr(unsafe { bindings::ib_alloc_mr(pd.as_raw(), kind, pages) })?;
        // INVARIANT: Allocated just now; nothing is mapped.
        let mut inner = Inner {
            mr: NonNull::new(mr).ok_or(ENOMEM)?,
            sg,
            mapped: 0,
            access: Access::RemoteRead,
            reg: Default::default(),
            inv: Default::default(),
            pd: pd.clone(),
        };
        inner.reg.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        inner.reg.mr = mr;
        inner.inv.opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
        Ok(Self(KBox::new(inner, GFP_KERNEL)?))
    }

    /// Maps as much of the loan's memory from `start` on as one region can hold and gives it a
    /// new key (V1-106). Does not sleep.
    ///
    /// The region counts as exposed from here on, although the peer can reach it only once a
    /// queue pair has posted it.
    pub fn map<L: Loan>(
        self,
        loan: L,
        start: usize,
        access: Access,
    ) -> Result<ExposedMr<L::Lender>, MapError<L>> {
        let mut inner = self.0;
        let gaps = {
            // SAFETY: The region is valid; its type never changes.
            let kind = unsafe { (*inner.mr.as_ptr()).type_ };
            kind == bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        };
        let fail = |inner, loan, error| {
            Err(MapError {
                mr: IdleMr(inner),
                loan,
                error,
            })
        };

        let max_entry = inner.pd.max_entry();
        let mut filling = Filling::new(&mut inner.sg, max_entry, gaps);
        loan.pieces(start, |pages, first, len| filling.add(pages, first, len));
        let (nents, length) = (filling.nents, filling.octets as u32);
        if nents == 0 {
            return fail(inner, loan, EINVAL);
        }
        let dev = inner.pd.raw_device();
        // SAFETY: The first `nents` entries of the table were filled in; the loan keeps their
        // pages.
        let mapped = unsafe {
            bindings::xprtrdma_dma_map_sg(
                dev,
                inner.sg.as_mut_ptr(),
                nents as c_int,
                access.direction().raw(),
            )
        };
        if mapped <= 0 {
            return fail(inner, loan, EIO);
        }
        // INVARIANT: These entries are mapped for `access` now; unmapping takes the number given
        // to the mapping call, not the number that it returned.
        inner.mapped = nents;
        inner.access = access;
        let mr = inner.mr.as_ptr();
        // SAFETY: The region is idle, i.e. ours; the table is mapped.
        let used = unsafe {
            bindings::ib_map_mr_sg(
                mr,
                inner.sg.as_mut_ptr(),
                mapped,
                ptr::null_mut(),
                PAGE_SIZE as u32,
            )
        };
        // A region that covers less than it was given would shift every octet behind the gap.
        if used != mapped {
            inner.unmap();
            return fail(inner, loan, EIO);
        }
        // SAFETY: The region is ours until it is posted. The device learns address and key from
        // the registration work request.
        unsafe {
            (*mr).iova &= PAGE_SIZE as u64 - 1;
            bindings::xprtrdma_bump_rkey(mr);
        }
        // SAFETY: The region is valid; nobody else changes its key.
        let key = unsafe { (*mr).rkey };
        inner.reg.key = key;
        inner.reg.access = access.raw();
        inner.inv.ex.bindgen_union_field = key;
        Ok(ExposedMr::new(inner, length, loan.into_lender()))
    }
}
