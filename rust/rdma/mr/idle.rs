// SPDX-License-Identifier: GPL-2.0

//! A region that only this host can access ([`IdleMr`]).

use super::{
    Access,
    Inner, //
};
use crate::pd::Pd;
use core::ptr::NonNull;
use kernel::{
    bindings::scatterlist,
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_bindings as bindings;

/// A region that only this host can access.
pub struct IdleMr(pub(super) KBox<Inner>);

impl IdleMr {
    /// Allocates a region of `pages` pages on the device of `pd`. May sleep.
    ///
    /// Returns `EINVAL` if `pages` is zero. With `gaps` the pieces of memory in the region need not
    /// begin and end at page borders; the device must support such regions.
    pub fn alloc(pd: &Arc<Pd>, pages: u32, gaps: bool) -> Result<Self> {
        if pages == 0 {
            return Err(EINVAL);
        }
        let mut sg = KVec::with_capacity(pages as usize, GFP_KERNEL)?;
        for _ in 0..pages {
            sg.push_within_capacity(scatterlist::default())
                .map_err(|_| ENOMEM)?;
        }
        // SAFETY: The table has `pages` entries, and `pages` is not zero.
        unsafe { kernel::bindings::sg_init_table(sg.as_mut_ptr(), pages) };
        let kind = if gaps {
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        } else {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG
        };
        // SAFETY: `pd` is valid, and the region will hold a reference to it.
        let mr = from_err_ptr(unsafe { bindings::ib_alloc_mr(pd.as_raw(), kind, pages) })?;
        // INVARIANT: The region was just allocated, and nothing is mapped.
        let mut inner = Inner {
            mr: NonNull::new(mr).ok_or(ENOMEM)?,
            dev: pd.raw_device(),
            sg,
            mapped: 0,
            access: Access::RemoteRead,
            gaps,
            // NO-OVERFLOW: A list with one entry for each of these pages was allocated, so their
            // number is small.
            reach: (pages as usize)
                .wrapping_mul(PAGE_SIZE)
                .min(pd.max_entry() as usize),
            offset: 0,
            queued_at: 0,
            ended: false,
            reg: Default::default(),
            inv: Default::default(),
            pd: pd.clone(),
        };
        inner.reg.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        inner.reg.mr = mr;
        inner.inv.opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
        Ok(Self(KBox::new(inner, GFP_KERNEL)?))
    }

    /// Returns the flags that the DMA layer sets in the first entry of the region's table. Returns
    /// `None` in kernels whose scatterlist entries have no such flags.
    #[cfg(xprtrdma_kunit)]
    pub(crate) fn dma_flags(&mut self) -> Option<&mut u32> {
        #[cfg(CONFIG_NEED_SG_DMA_FLAGS)]
        return self.0.sg.first_mut().map(|first| &mut first.dma_flags);
        #[cfg(not(CONFIG_NEED_SG_DMA_FLAGS))]
        None
    }

    /// Returns the protection domain of the region.
    pub(crate) fn pd(&self) -> &Pd {
        &self.0.pd
    }

    /// Returns the access that the last mapping of the region granted to the peer.
    pub fn access(&self) -> Access {
        self.0.access
    }

    /// Marks the region as last mapped for `access`, unless [`IdleMr::allows`] forbids that access.
    pub fn meant_for(mut self, access: Access) -> Self {
        if self.allows(access) {
            // INVARIANT: Nothing is mapped.
            self.0.access = access;
        }
        self
    }

    /// Returns whether the region may be mapped for `access`. A device may execute the region's
    /// last registration a second time. The key of that registration then becomes valid again, with
    /// the access rights of that registration. So the region's access rights must not change while
    /// a send queue contains that registration.
    #[inline]
    pub fn allows(&self, access: Access) -> bool {
        self.0.access == access || !self.0.may_be_queued()
    }

    /// Returns whether the region may be dropped, because no send queue contains its registration.
    pub fn is_retired(&self) -> bool {
        !self.0.may_be_queued()
    }

    /// Returns the region's current key, which gives no access to memory.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: By the type invariant the region is valid. Only `map` changes the region's key.
        unsafe { (*self.0.mr.as_ptr()).rkey }
    }
}
