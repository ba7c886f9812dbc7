// SPDX-License-Identifier: GPL-2.0

//! Pages that are mapped for a device ([`MappedPages`]).

use crate::{
    dma::Direction,
    pages::{
        Mappable,
        Pages, //
    },
    pd::Pd, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::buffer::PageList;
use xprtrdma_bindings as bindings;

/// Pages of which parts are mapped for a device. Each part is a scatter/gather element. If this
/// module owns the pages, only the device uses the mapped bytes until [`MappedPages::unmap`]. If
/// other code uses the pages as well, the device only reads them.
///
/// # Invariants
///
/// The bytes of each element of `sges` are in the pages of `memory`, and [`MappedPages::map`] has
/// mapped them for `dir`. For pages that other code uses as well, `dir` is `ToDevice`.
pub(crate) struct MappedPages {
    sges: KVec<bindings::ib_sge>,
    /// `None` before [`MappedPages::hold`], and after [`MappedPages::unmap`].
    memory: Option<Mappable>,
    dir: Direction,
    pd: Arc<Pd>,
    /// Maximum number of elements of a work request.
    most_sges: usize,
    /// An empty list that earlier contained shared pages. The list is kept so that its allocated
    /// memory can be used again.
    list: Option<PageList>,
}

impl MappedPages {
    /// Makes an object without pages.
    pub(crate) fn none(pd: &Arc<Pd>) -> Self {
        // INVARIANT: There are no elements.
        Self {
            sges: KVec::new(),
            memory: None,
            dir: Direction::ToDevice,
            pd: pd.clone(),
            // CAST: The number of scatter/gather elements is small.
            most_sges: pd.max_send_sges() as usize,
            list: None,
        }
    }

    /// Stores `memory`, of which no part is mapped yet. Returns `EINVAL` if parts of the previous
    /// memory are still mapped, or if the device would write to shared pages.
    #[inline]
    pub(crate) fn hold(&mut self, memory: Mappable, dir: Direction) -> Result {
        let may_be_written = matches!(memory, Mappable::Own(_));
        if !self.sges.is_empty() || (dir != Direction::ToDevice && !may_be_written) {
            return Err(EINVAL);
        }
        // INVARIANT: There are no elements.
        self.dir = dir;
        self.memory = Some(memory);
        Ok(())
    }

    /// Maps the `left` bytes that begin at offset `at`, or only the first part of them, and adds at
    /// most `most` elements. Each element is physically contiguous. If the device or its bounce
    /// buffers have no space for such a long piece, the elements are shorter. Returns the number of
    /// elements and the number of their bytes. Returns `EINVAL` if there are no such bytes, and
    /// `EIO` if not even one page can be mapped. May sleep.
    #[inline(always)]
    pub(crate) fn map(&mut self, at: usize, left: usize, most: usize) -> Result<(usize, usize)> {
        let memory = self.memory.as_ref().ok_or(EINVAL)?;
        let len = memory.len();
        if left == 0 || at.checked_add(left).is_none_or(|end| end > len) {
            return Err(EINVAL);
        }
        // More elements than pages are never needed.
        let most = most.min(Pages::count(left).saturating_add(1)).max(1);
        self.sges.reserve(most, GFP_KERNEL)?;
        let mut bytes = memory.bytes(at, left);
        let mut longest = self.pd.max_entry() as usize;
        let mut count = 0;
        loop {
            let place = self.sges.spare_capacity_mut().as_mut_ptr().cast();
            // CAST: A work request has few elements.
            let room = most.saturating_sub(count) as u32;
            let (pd, dir) = (self.pd.as_raw(), self.dir.raw());
            // SAFETY: The domain exists as long as `pd`. The bytes are inside the pages, which
            // `memory` keeps. The vector has space for `room` elements.
            let added =
                unsafe { bindings::xprtrdma_dma_map(pd, &mut bytes, longest, dir, place, room) };
            // CAST: A `usize` is at least as wide as a `u32`.
            let added = added as usize;
            // SAFETY: The callee has written this number of elements, at most `room`.
            // INVARIANT: The callee has mapped their bytes for `dir`.
            unsafe { self.sges.inc_len(added) };
            count = count.wrapping_add(added);
            if bytes.refused == 0 {
                // NO-OVERFLOW: `bytes.left` was `left` at first, and the callee only decreases it.
                return Ok((count, left.wrapping_sub(bytes.left)));
            }
            longest = shorter(bytes.refused)?;
        }
    }

    /// Unmaps the pages. Returns them if this module owns them; drops the references to shared
    /// pages.
    #[inline]
    pub(crate) fn unmap(&mut self) -> Option<Pages> {
        self.forget_mappings();
        match self.memory.take()? {
            Mappable::Own(pages) => Some(pages),
            Mappable::Shared(refs) => {
                self.list = Some(refs.into_list());
                None
            }
        }
    }

    /// Returns the empty list whose allocated memory can be used for the next shared pages, if
    /// there is such a list.
    #[inline]
    pub(crate) fn list(&mut self) -> Option<PageList> {
        self.list.take()
    }

    /// Returns the number of bytes in the pages.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, Mappable::len)
    }

    /// Returns the maximum number of elements of a work request.
    #[inline]
    pub(crate) fn most_sges(&self) -> usize {
        self.most_sges
    }

    /// Returns the protection domain whose device the pages are mapped for.
    #[inline]
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns the scatter/gather elements of the mapped parts, in the order of the calls of
    /// [`MappedPages::map`].
    #[inline]
    pub(crate) fn sges(&self) -> &[bindings::ib_sge] {
        &self.sges
    }

    /// Returns the number of elements for which the list has memory.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.sges.capacity()
    }

    #[inline]
    fn forget_mappings(&mut self) {
        let (dev, dir) = (self.pd.raw_device(), self.dir.raw());
        // SAFETY: By the type invariant the bytes of the elements are mapped. They are unmapped
        // once, because the list is emptied below.
        unsafe { bindings::xprtrdma_dma_unmap(dev, self.sges.as_ptr(), self.sges.len(), dir) };
        self.sges.clear();
    }
}

/// Returns the length of the pieces to try if a piece of `len` bytes could not be mapped: bounce
/// buffers may be fragmented, so shorter pieces may still find space. Returns `EIO` if `len` is not
/// longer than a page.
#[cold]
fn shorter(len: usize) -> Result<usize> {
    if len <= PAGE_SIZE {
        return Err(EIO);
    }
    let half = (len / 2).max(PAGE_SIZE);
    // NO-OVERFLOW: The remainder of a division is not greater than the dividend.
    Ok(half.wrapping_sub(half % PAGE_SIZE))
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        self.forget_mappings();
    }
}
